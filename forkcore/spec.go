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
}

// ForkSpec is a fan-out by a person or the API; the JSON body of
// POST /sessions/{id}/forks and /forks/quote.
type ForkSpec struct {
	Directives []Directive `json:"directives"`
	Isolation  string      `json:"isolation,omitempty"` // shared or worktree; default shared
	Gate       GateMode    `json:"gate,omitempty"`      // default auto
	BudgetUSD  *float64    `json:"budget_usd,omitempty"`
	// Jobs is what the caller expects of the work. It changes the advice of the quote and nothing else.
	Jobs Jobs `json:"jobs,omitzero"`
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
