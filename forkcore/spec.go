package forkcore

import (
	"encoding/json"
	"time"
)

// SessionSpec is what a caller wishes of a new session; the JSON body of
// POST /sessions. Absent fields take the server's defaults.
type SessionSpec struct {
	Title          string          `json:"title,omitempty"`
	Workspace      string          `json:"workspace"`
	Model          string          `json:"model,omitempty"`
	Mode           Mode            `json:"mode,omitempty"`
	PermissionMode PermissionMode  `json:"permission_mode,omitempty"`
	Thinking       json.RawMessage `json:"thinking,omitempty"`
	Effort         string          `json:"effort,omitempty"`
	BudgetUSD      *float64        `json:"budget_usd,omitempty"`
	Interactive    *bool           `json:"interactive,omitempty"`
	// AutoBackgroundSeconds is after how long a foreground turn moves to a worker; 0 = never.
	AutoBackgroundSeconds *float64 `json:"auto_background_seconds,omitempty"`
	// Notify is the default of its fan-outs, and what those of its main agent have.
	Notify NotifyPolicy `json:"notify,omitempty"`
}

// ForkSpec is a fan-out by a person or the API; the JSON body of
// POST /sessions/{id}/forks and /forks/quote.
type ForkSpec struct {
	Directives []Directive `json:"directives"`
	Isolation  string      `json:"isolation,omitempty"` // shared or worktree; default shared
	Gate       GateMode    `json:"gate,omitempty"`      // default auto
	BudgetUSD  *float64    `json:"budget_usd,omitempty"`
	// Notify is when the main agent hears of the children's ends; default: as the session says.
	Notify NotifyPolicy `json:"notify,omitempty"`
	// DeadlineSeconds is after how long children that have not ended are ended as failed, their work kept; absent = never.
	DeadlineSeconds *float64 `json:"deadline_seconds,omitempty"`
	// Jobs is what the caller expects of the work. It changes the advice of the quote and nothing else.
	Jobs Jobs `json:"jobs,omitzero"`
	Overrides
}

// RetrySpec says which children of a dispatch to start again; the JSON body of POST /dispatches/{id}/retry.
type RetrySpec struct {
	// Runs are ids of children that have ended; empty = all that ended otherwise than done.
	Runs []string `json:"runs,omitempty"`
}

// Overrides are parameters that nobody may choose for a fork. They are read in order to be refused with the reason.
type Overrides struct {
	Model      json.RawMessage `json:"model,omitempty"`
	Effort     json.RawMessage `json:"effort,omitempty"`
	Thinking   json.RawMessage `json:"thinking,omitempty"`
	ToolChoice json.RawMessage `json:"tool_choice,omitempty"`
	MaxTokens  json.RawMessage `json:"max_tokens,omitempty"`
}

// Invalid lists the parameters that were given; path is what stands before their names. null is none.
func (o Overrides) Invalid(path string) []FieldError {
	var bad InvalidError
	for _, f := range []struct {
		name  string
		value json.RawMessage
		why   string
	}{
		{"model", o.Model, "another one has another cache and could not read the shared prefix"},
		{"effort", o.Effort, "another one is another cache key"},
		{"thinking", o.Thinking, "other settings are another cache key"},
		{"tool_choice", o.ToolChoice, "another one is another cache key"},
		{"max_tokens", o.MaxTokens, "it comes from the snapshot, so that siblings send the same request"},
	} {
		if len(f.value) > 0 && string(f.value) != "null" {
			bad.Add(path+f.name, "cannot be set for a fork, which keeps that of its conversation: %s; leave it out", f.why)
		}
	}
	return bad.Fields
}

// TranscriptLine is one line of a log as readers see it. Message holds the
// canonical bytes as they are; a fork's first message is shown assembled.
type TranscriptLine struct {
	Seq     int64
	At      time.Time
	Kind    EntryKind
	RunID   string
	Message []byte
	Marker  *Marker
}
