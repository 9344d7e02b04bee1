package forkcore

import "time"

// MaxDirectives is the widest fan-out of one dispatch.
const MaxDirectives = 64

// Directive is what makes one fork differ from its siblings.
type Directive struct {
	Title  string `json:"title,omitempty"`
	Prompt string `json:"prompt"`
	Overrides
}

// GateMode is the wish; whether a dispatch has a gate is decided once from it.
type GateMode string

// The gate modes. Auto gates when the quoted saving is at least GateMinSaving.
const (
	GateAuto   GateMode = "auto"
	GateAlways GateMode = "always"
	GateOff    GateMode = "off"
)

// GateMinSaving is the saving in nano-dollars from which GateAuto gates.
const GateMinSaving = 500_000

// GateState is whether followers may send.
type GateState string

// The states of a gate; GateNone for dispatches without one.
const (
	GateNone   GateState = "none"
	GateClosed GateState = "closed"
	GateOpen   GateState = "open"
)

// NotifyPolicy is when what ended children have to tell reaches the agent they report to.
type NotifyPolicy string

// The policies. With NotifyManual a person hands the notices over.
const (
	NotifyAllDone NotifyPolicy = "all_done" // when the last child has ended; the default
	NotifyEach    NotifyPolicy = "each"     // as each child ends
	NotifyManual  NotifyPolicy = "manual"
)

// NotifyPolicies lists them.
var NotifyPolicies = []NotifyPolicy{NotifyAllDone, NotifyEach, NotifyManual}

// Dispatch is one fan-out: N directives, one snapshot, one gate, one quote,
// one bill.
type Dispatch struct {
	ID          string
	SessionID   string
	ParentRunID string // empty for dispatches by a person or the API
	Snapshot    Digest
	RunIDs      []string // in order of the directives
	// Remaining counts children that have not ended.
	Remaining int64
	// Notify says when their notices reach the main agent, Undelivered counts those that wait for that.
	Notify      NotifyPolicy
	Undelivered int64
	// RetryOf is the dispatch whose failed children this one starts again; empty = none.
	RetryOf string
	// Deadline is when children that have not ended are ended as failed; zero = never.
	Deadline      time.Time
	Quote         Quote
	BudgetNanoUSD int64 // 0 = none
	GateMode      GateMode
	Gate          GateState
	Generation    int64  // of the gate, from 1
	LeaderRunID   string // empty without a gate
	// Cold is true from when what the gate opened for is held under another key: the next fork to go on leads again, and
	// its answer makes it false.
	Cold        bool
	GateHistory []GateEvent
	Usage       Usage
	Cost        Cost
	// FirstRequests is the bill of the children's first requests alone, what the quote speaks of.
	FirstRequests     Cost
	FirstRequestUsage Usage
	CreatedAt         time.Time
	UpdatedAt         time.Time
	EndedAt           time.Time // when the last child ended; zero before
	Version           int64
}

// GateEvent is one line of a gate's history.
type GateEvent struct {
	At         time.Time `json:"at"`
	Generation int64     `json:"generation"`
	// Type is "closed", "opened" or "promoted".
	Type string `json:"type"`
	// RunID is the leader at that moment.
	RunID string `json:"run_id,omitempty"`
	// Cause is "dispatch", "message_start", "limit", "leader_ended" or "expired".
	Cause string `json:"cause"`
}
