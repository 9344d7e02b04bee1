package forkcore

import "time"

// State is where a run is in its life. See transitions for the edges.
type State string

// The states of a run. Done, Failed, Cancelled and OverBudget are ends.
const (
	Queued     State = "queued"
	Running    State = "running"
	Parked     State = "parked"  // held by its dispatch's gate; costs no worker
	Waiting    State = "waiting" // for what Run.Reason names; costs no worker
	Done       State = "done"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
	OverBudget State = "over_budget"
)

// States lists all states in the order of a run's life.
var States = []State{Queued, Running, Parked, Waiting, Done, Failed, Cancelled, OverBudget}

// transitions is the one table of what may follow what.
var transitions = map[State][]State{
	Queued:  {Running, Parked, Cancelled, OverBudget, Failed},
	Running: {Queued, Parked, Waiting, Done, Failed, Cancelled, OverBudget},
	Parked:  {Queued, Waiting, Cancelled, OverBudget, Failed},
	Waiting: {Queued, Cancelled, OverBudget, Failed},
	// Resumed by a person, a child goes on from its log. A stop is for good.
	Failed:     {Queued},
	OverBudget: {Queued},
}

// CanBecome reports whether a run in state s may enter state next.
func (s State) CanBecome(next State) bool {
	for _, t := range transitions[s] {
		if t == next {
			return true
		}
	}
	return false
}

// Ended reports whether s is an end state.
func (s State) Ended() bool {
	switch s {
	case Done, Failed, Cancelled, OverBudget:
		return true
	}
	return false
}

// Resumable reports whether a child that ended so may be resumed.
func (s State) Resumable() bool { return s.Ended() && s.CanBecome(Queued) }

// Valid reports whether s is one of States.
func (s State) Valid() bool {
	for _, t := range States {
		if s == t {
			return true
		}
	}
	return false
}

// Codes of the reason of a failed run.
const (
	CodeRefusal         = "refusal"
	CodeContextWindow   = "context_window"
	CodeTruncated       = "truncated"
	CodeOverloaded      = "overloaded"
	CodeRateLimited     = "rate_limited"
	CodeStreamCut       = "stream_cut"
	CodeInvalidResponse = "invalid_response"
	CodeProviderAuth    = "provider_auth"
	CodeProviderError   = "provider_error"
	CodeNoOutput        = "no_output"
	CodeTurnCap         = "turn_cap"
	CodeLoop            = "loop"
	CodeDeadline        = "deadline"
	CodePrefixMismatch  = "prefix_mismatch"
	CodeWorkspace       = "workspace"
	CodeLost            = "lost"
	CodeInternal        = "internal"
)

// Codes of the reason of a waiting run: what it waits for.
const (
	WaitRateLimit = "rate_limit"
	// WaitChildren is the end of agents that calls wait for.
	WaitChildren = "children"
	// WaitProvider is a key that the endpoint refuses. A person ends it: by another key, or by mending the account.
	WaitProvider = "provider"
)

// Reason says why a run is where it is and what a person can do next.
type Reason struct {
	Code     string `json:"code"`
	Message  string `json:"message"`
	NextStep string `json:"next_step"`
}

// WishDeadline is the value of Run.Stop of a run whose time was up. Unlike the others it is no person's wish: it ends
// a run as failed, and resuming takes it back.
const WishDeadline = "deadline"

// StopWishes are the values of Run.Stop: one run, the main turn, everything in the session, or whatever is left at a deadline.
var StopWishes = []string{"cancel", "turn", "tree", WishDeadline}

// StopState is the state in which a run ends by a stop wish.
func StopState(wish string) State {
	if wish == WishDeadline {
		return Failed
	}
	return Cancelled
}

// StopReason is the reason of a run that ended by a stop wish.
func StopReason(wish string) Reason {
	r := Reason{Code: "cancelled", Message: "Somebody cancelled this run.", NextStep: "Dispatch it again if its work is still wanted."}
	switch wish {
	case WishDeadline:
		return Reason{Code: CodeDeadline, Message: "The time that this fan-out was given is up.", NextStep: "Read what it did until here; resume it if the rest is still wanted."}
	case "turn":
		r.Message, r.NextStep = "Somebody stopped this turn.", "Send a message to go on from here."
	case "tree":
		r.Message, r.NextStep = "Somebody stopped the session with all its runs.", "Send a message to go on from here."
	}
	return r
}

// RunKind tells a main turn from a child.
type RunKind string

// The kinds of runs.
const (
	KindMain RunKind = "main"
	KindFork RunKind = "fork"
	// KindAgent is a child with a conversation of its own.
	KindAgent RunKind = "agent"
)

// Run is one activation of an agent. A main turn spans part of the session's
// main log; a fork has one run whose id is also the id of its agent and log.
type Run struct {
	ID        string
	SessionID string
	// AgentID names the log: the session id for a main turn, the run id for a fork.
	AgentID     string
	Kind        RunKind
	Title       string
	Directive   string // forks only
	ParentRunID string // the main turn or fork that dispatched it; empty for dispatches by a person or the API
	// Depth is how many forks stand between the main agent and this run, itself included: 0 for a main turn.
	Depth int
	// QuerySource is QuerySourceFork for forks. It is set at birth, as Depth is, and neither changes.
	QuerySource string
	DispatchID  string // forks only
	ToolUseID   string // the Agent call it answers; empty for dispatches by a person or the API
	Index       int    // place among its siblings, from 0
	Snapshot    Digest // forks only
	// AgentType and Head are of agents only: the definition, and the blob of their request head.
	AgentType string
	Head      Digest
	// Awaited is true while the call that started the agent waits for its end.
	Awaited bool
	State   State
	Reason  *Reason
	// Background is true once a worker carries the run (forks always).
	Background bool
	// Leader is true for the fork whose response opens its dispatch's gate.
	Leader bool
	// Stop is empty, or the wish that every script honours: one of StopWishes.
	Stop string
	// Wake counts transitions to queued; "<id>.<wake>" is the asynq task id.
	Wake int64
	// Version counts all changes, for readers that merge streams.
	Version   int64
	CreatedAt time.Time
	UpdatedAt time.Time
	StartedAt time.Time // first lease; zero before
	EndedAt   time.Time // zero before the end
	// ResumedAt is when it was last resumed after an end; zero = never. Attempts that failed before do not count any more.
	ResumedAt time.Time
	Requests  int64 // provider requests begun, retries included
	ToolUses  int64
	LastTool  string // name of the last tool started
	// LastToolDetail is what it was asked for, in one line: ToolCall.Headline.
	LastToolDetail string
	Usage          Usage
	Cost           Cost
	// InheritedTokens is the sum over requests of the shared prefix's tokens,
	// InheritedRead the part of it that the cache served. For hit rates.
	InheritedTokens int64
	InheritedRead   int64
	// AtRiskRequests counts the requests that were sent with a recomputed prompt (RequestRow.AtRisk).
	AtRiskRequests int64
	Report         *Report
}

// CanResume reports whether a person may let it go on from where it ended: a child that failed or is over budget and
// that nobody stopped.
func (r Run) CanResume() bool {
	return r.Kind != KindMain && r.State.Resumable() && (r.Stop == "" || StopState(r.Stop) == r.State)
}

// UsedNoTool reports whether a fork came to its end without a tool: whatever it
// reports it took from the conversation, or made up. Whether its directive
// needed a tool nobody but a reader can tell.
func (r Run) UsedNoTool() bool { return r.Kind == KindFork && r.State == Done && r.ToolUses == 0 }

// HitRates are fractions from 0 to 1; nil where there is nothing to divide by.
type HitRates struct {
	Total, Inherited, Own *float64
}

// HitRate sums first and divides last: read / (uncached + write + read), split
// into the inherited prefix and the run's own growth.
func (r Run) HitRate() HitRates {
	in := r.Usage.TotalInput()
	h := HitRates{Total: fraction(r.Usage.CacheRead, in)}
	if r.Kind == KindFork {
		h.Inherited = fraction(r.InheritedRead, r.InheritedTokens)
		h.Own = fraction(r.Usage.CacheRead-r.InheritedRead, in-r.InheritedTokens)
	}
	return h
}

func fraction(part, whole int64) *float64 {
	if whole <= 0 {
		return nil
	}
	f := float64(part) / float64(whole)
	return &f
}

// Report is a fork's final text, parsed by its five labels.
type Report struct {
	Scope        string `json:"scope"`
	Result       string `json:"result"`
	KeyFiles     string `json:"key_files"`
	FilesChanged string `json:"files_changed"`
	Issues       string `json:"issues"`
	// Missing lists the labels that the text does not have.
	Missing []string `json:"missing"`
	// Text is the whole final answer.
	Text string `json:"text"`
}
