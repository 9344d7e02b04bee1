package forkcore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"
)

// Request is one provider request, ready to be sent as it is.
type Request struct {
	// Body opens a fresh reader over the bytes; a retry opens another.
	Body func() io.Reader
	// ContentLength is the number of bytes that Body yields.
	ContentLength int64
	// Betas is the anthropic-beta set in its latched order; empty = no header.
	Betas []string
}

// Model sends requests to a Messages API endpoint.
//
// Stream performs exactly one attempt; retrying is the caller's. It yields
// ModelStart once, any number of ModelDelta, then ModelEnd once, and stops. On
// failure the last pair has a non-nil error, a *ModelError unless ctx ended,
// and whatever came before must be discarded. Breaking out of the loop or
// cancelling ctx closes the connection.
type Model interface {
	Stream(ctx context.Context, r Request) iter.Seq2[ModelEvent, error]
}

// Prewarmer is a Model that can send a request whose max_tokens is 0: it writes
// or reads what its marks say, answers nothing and bills no output. The error is a *ModelError unless ctx ended.
// Source: Messages API, prompt caching, pre-warming.
type Prewarmer interface {
	Prewarm(ctx context.Context, r Request) (*ModelStart, error)
}

// Scoped is a Model that can tell before it sends where requests go. Workspace
// and Betas of the scope are empty: the response names the one, each request the other.
type Scoped interface{ Scope() Scope }

// Caching says how an endpoint keeps prefixes.
type Caching string

// The ways of keeping prefixes.
const (
	CachingMarks     Caching = "marks"     // entries at cache_control marks, as documented for the Messages API
	CachingAutomatic Caching = "automatic" // whatever a slot still holds is reused; marks are ignored
	CachingUnknown   Caching = "unknown"   // nothing is reported
)

// Traits are the points in which an endpoint may differ from the documented Messages API.
type Traits struct {
	// Name is the endpoint's kind for people, such as "Anthropic API" or "llama.cpp".
	Name    string
	Caching Caching
	// Prewarm says that max_tokens 0 is accepted, Diagnostics that the diagnostics field is.
	Prewarm, Diagnostics bool
	// Ramp says that a sudden rise of requests is refused, so that a fan-out starts by degrees.
	Ramp bool
}

// Described is a Model that knows its endpoint. One that does not is taken for the documented API.
type Described interface{ Traits() Traits }

// RateLimit is one of the provider's limits as a response told it.
// Source: Messages API, rate limits: headers anthropic-ratelimit-<name>-{limit,remaining,reset}.
type RateLimit struct {
	// Name is "requests", "tokens", "input-tokens" or "output-tokens", or another that the provider invents.
	Name      string    `json:"name"`
	Limit     int64     `json:"limit"`
	Remaining int64     `json:"remaining"`
	Reset     time.Time `json:"reset"` // when it is whole again; zero = not told
}

// StopDetails say more about a stop reason. Source: Messages API, stop_details, of refusals only.
type StopDetails struct {
	Type        string `json:"type"`
	Category    string `json:"category,omitempty"`
	Explanation string `json:"explanation,omitempty"`
}

// ModelEvent is *ModelStart, *ModelDelta or *ModelEnd.
type ModelEvent interface{ modelEvent() }

// ModelStart is the provider's first event (message_start): from now on the
// entries of this request can be read by others.
type ModelStart struct {
	MessageID         string
	ProviderRequestID string
	// Usage has the input classes; Output is what message_start said.
	Usage Usage
	// UsageKnown is false when the endpoint reported no input usage yet.
	UsageKnown bool
	// Workspace is the provider's workspace that the request was counted to; empty = not told.
	Workspace string
	// Diagnosis is the provider's answer to the request's diagnostics; nil = none, or no difference.
	Diagnosis *Diagnosis
	// Limits are what the response's headers told; nil = nothing.
	Limits []RateLimit
}

// ModelDelta is a piece of text for people who watch. It is never stored.
type ModelDelta struct {
	// Index is the block's index in the message.
	Index int
	// Kind is "text", "thinking" or "tool_input".
	Kind string
	// ToolName is set on the first delta of a tool_use block.
	ToolName string
	Text     string
}

// ModelEnd is the complete answer.
type ModelEnd struct {
	// Blocks are the bytes of the content blocks, each canonical JSON born
	// here: text joined from its deltas and encoded once, tool input as
	// streamed, thinking with its signature, unknown blocks verbatim.
	Blocks     [][]byte
	StopReason string
	// StopDetails belong to a refusal; nil = none.
	StopDetails *StopDetails
	// Usage is the final usage: input classes from message_start unless
	// message_delta repeated them, output cumulative.
	Usage      Usage
	UsageKnown bool
}

func (*ModelStart) modelEvent() {}
func (*ModelDelta) modelEvent() {}
func (*ModelEnd) modelEvent()   {}

// ModelError is a failed attempt.
type ModelError struct {
	// Code is one of the reason codes: CodeOverloaded, CodeRateLimited,
	// CodeStreamCut, CodeInvalidResponse, CodeProviderAuth, CodeContextWindow, CodeProviderError.
	Code string
	// Status is the HTTP status; 0 when no response came, 200 for an error inside a stream.
	Status int
	// Type is the provider's error.type, such as overloaded_error.
	Type string
	// Message is the provider's or transport's text.
	Message           string
	ProviderRequestID string
	// Retryable says that the same request may succeed later.
	Retryable bool
	// Unsent says that no connection came about, so that nothing can have been billed.
	Unsent bool
	// RetryAfter is the provider's wish; 0 when it gave none.
	RetryAfter time.Duration
	// KeyRefused says that no request with this key will succeed until a person acts: it is not valid, or its
	// credit or spend limit is used up.
	KeyRefused bool
	// Ramp says that requests came too suddenly (ramp_limit_exceeded), not that there were too many.
	Ramp bool
	// Limits are what the response's headers told; nil = nothing.
	Limits []RateLimit
}

func (e *ModelError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("%s (HTTP %d %s): %s", e.Code, e.Status, e.Type, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}
