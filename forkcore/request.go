package forkcore

import "time"

// Mark is a cache_control mark as sent. Block is the path of its block, such as
// "system.0" or "messages.3.content.1".
type Mark struct {
	Block string `json:"block"`
	TTL   string `json:"ttl"`
	// Offset is the canonical length of the prefix that ends with the marked block.
	Offset int64 `json:"offset"`
}

// RequestStatus is the outcome of one provider request.
type RequestStatus string

// The outcomes. Open rows belong to requests in flight.
const (
	RequestOpen    RequestStatus = "open"
	RequestOK      RequestStatus = "ok"
	RequestAborted RequestStatus = "aborted"
	RequestError   RequestStatus = "error"
)

// RequestRef names one provider request.
type RequestRef struct {
	RunID string `json:"run_id"`
	N     int64  `json:"n"`
}

// MissReason says why a request read less than expected.
type MissReason struct {
	// Code is one of model, tools, system, messages, thinking, expired, too_short, look_back,
	// race, other_key, provider, unknown.
	Code   string `json:"code"`
	Path   string `json:"path,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// RequestRow is the ledger's row of one provider request; a retry is a new
// row. It is written whole by the holder of the run's lease.
type RequestRow struct {
	RunID      string `json:"run_id"`
	SessionID  string `json:"session_id"`
	DispatchID string `json:"dispatch_id,omitempty"`
	// N counts the run's requests from 1.
	N            int64      `json:"n"`
	StartedAt    time.Time  `json:"started_at"`
	FirstEventAt *time.Time `json:"first_event_at"`
	EndedAt      *time.Time `json:"ended_at"`
	Attempt      int        `json:"attempt"` // from 1, of one model call
	Model        string     `json:"model"`
	Prefix       Digest     `json:"prefix_sha256"`
	PrefixBytes  int64      `json:"prefix_bytes"`
	Body         Digest     `json:"body_sha256"`
	BodyBytes    int64      `json:"body_bytes"`
	Marks        []Mark     `json:"marks"`
	ExpectedRead *int64     `json:"expected_read_tokens"` // null before anything is known
	// ExpectedExact is true when the provider counted those tokens, false while they are estimated from bytes.
	ExpectedExact bool `json:"expected_read_exact,omitempty"`
	// ExpectedFrom is the request that wrote them.
	ExpectedFrom *RequestRef   `json:"expected_from,omitempty"`
	Usage        *Usage        `json:"usage"`           // null: unknown
	Estimated    bool          `json:"usage_estimated"` // output of an aborted stream
	Cost         *int64        `json:"cost_nanousd"`    // null: no price or unknown usage
	ReadFrom     *RequestRef   `json:"read_from"`
	Miss         *MissReason   `json:"miss_reason"`
	StopReason   string        `json:"stop_reason"`
	Status       RequestStatus `json:"status"`
	// Error is the provider's or transport's message when Status is error or aborted.
	Error string `json:"error,omitempty"`
	// ProviderRequestID is the provider's request-id header.
	ProviderRequestID string `json:"provider_request_id,omitempty"`
	// MessageID is the provider's id of its answer.
	MessageID string `json:"message_id,omitempty"`
	// Scope is where it went: what the entries that it reads and writes are keyed by beside their bytes.
	Scope Scope `json:"scope,omitzero"`
	// Diagnostics is what the body asks the provider to compare it with; nil = it asks nothing.
	Diagnostics *Diagnostics `json:"diagnostics,omitempty"`
	// Diagnosis is the provider's answer; nil = none, or no difference.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"`
	// KeyRefused is true when the provider refused the key: none of the run's failures.
	KeyRefused bool `json:"key_refused,omitempty"`
	// Limits are the provider's rate limits as this response told them; nil = it told none.
	Limits []RateLimit `json:"rate_limits,omitempty"`
	// StopDetails say more about a refusal; nil = nothing.
	StopDetails *StopDetails `json:"stop_details,omitempty"`
	// LogSeq is the last log entry that the request was built from: replaying the log up to it rebuilds the body.
	LogSeq int64 `json:"log_seq"`
	// AtRisk is true for a request whose rendered prompt was lost and came out differently when it was rendered anew:
	// what the provider holds does not prefix it.
	AtRisk bool `json:"cache_at_risk,omitempty"`
	// Refresh is true for a request that answered nothing: it kept the entry of the one before alive.
	Refresh bool `json:"refresh,omitempty"`
	// First is true for the run's first request that got a response.
	First bool `json:"first,omitempty"`
}
