package forkcore

import (
	"errors"
	"fmt"
	"strconv"
)

// QuerySourceFork is what a fork's run carries from its birth on, beside its
// conversation: no compaction can take it away.
const QuerySourceFork = "agent:builtin:fork"

// Defaults of Guard.
const (
	// DefaultForkDepth makes every fork a leaf.
	DefaultForkDepth = 1
	// DefaultMaxDescendants is four of the widest fan-outs: more than a task of a
	// day needs, and at some tenths of a dollar for a fork a runaway ends before it costs about a hundred.
	DefaultMaxDescendants = 4 * MaxDirectives
)

// The largest settings of Guard. Each level sends a longer prefix than the one above it.
const (
	maxForkDepth   = 8
	maxDescendants = 1_000_000
)

// The names of the guards, in the order in which they are asked. Logs and
// transcripts name the one that refused.
const (
	GuardQuerySource = "query_source"
	GuardTag         = "tag"
	GuardDepth       = "depth"
	GuardDescendants = "descendants"
)

// Guard keeps agents from starting agents without end. It is asked before
// anything else about an Agent call, for every type of agent.
type Guard struct {
	// MaxDepth is how deep a tree may be: 1 = forks are leaves, 2 = they may fork once more.
	MaxDepth int
	// MaxDescendants is how many forks one session may start in all.
	MaxDescendants int64
}

// ParseGuard reads the settings FORKYARD_FORK_DEPTH and
// FORKYARD_MAX_DESCENDANTS; the error names each that is bad.
func ParseGuard(depth, descendants string) (g Guard, err error) {
	var errs []error
	if g.MaxDepth, err = strconv.Atoi(depth); err != nil || g.MaxDepth < 1 || g.MaxDepth > maxForkDepth {
		errs = append(errs, fmt.Errorf("FORKYARD_FORK_DEPTH: %q is no number from 1 to %d", depth, maxForkDepth))
	}
	if g.MaxDescendants, err = strconv.ParseInt(descendants, 10, 64); err != nil || g.MaxDescendants < 1 || g.MaxDescendants > maxDescendants {
		errs = append(errs, fmt.Errorf("FORKYARD_MAX_DESCENDANTS: %q is no number from 1 to %d", descendants, maxDescendants))
	}
	return g, errors.Join(errs...)
}

// Caller is what is known of the agent that calls Agent. The first three say
// each on its own how deep it is at least, so that the loss of any two changes nothing.
type Caller struct {
	// QuerySource is that of the run.
	QuerySource string
	// Tags is Prefix.ForkTags of what the agent sends.
	Tags int
	// Depth is that of the run: 0 for the main agent.
	Depth int
	// Descendants is how many forks the session has started.
	Descendants int64
}

// Refusal is the answer of a guard that says no: the text of a tool error. It costs no request.
type Refusal struct {
	Guard  string
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// RefuseNestedFork is the reason in a fork that is a leaf.
const RefuseNestedFork = "a fork cannot start agents: carry out the directive yourself and report"

// RefuseNestedAgent is the reason in an agent with a conversation of its own: it is a leaf.
const RefuseNestedAgent = "an agent cannot start agents: carry out the task yourself and report"

// Check says whether a caller may start one agent more; nil = yes.
func (g Guard) Check(c Caller) *Refusal {
	fork := 0
	if c.QuerySource == QuerySourceFork {
		fork = 1
	}
	for _, evidence := range []struct {
		guard string
		depth int
	}{{GuardQuerySource, fork}, {GuardTag, c.Tags}, {GuardDepth, c.Depth}} {
		if evidence.depth < g.MaxDepth || evidence.depth == 0 {
			continue
		}
		reason := RefuseNestedFork
		if g.MaxDepth > 1 {
			reason = fmt.Sprintf("forks may be nested %d deep here, and this one is: carry out the directive yourself and report", g.MaxDepth)
		}
		return &Refusal{Guard: evidence.guard, Reason: reason}
	}
	if err := g.Admit(c.Descendants, 1); err != nil {
		return &Refusal{Guard: GuardDescendants, Reason: err.Message + ". Do the rest of the work yourself"}
	}
	return nil
}

// Admit says whether a session that has started so many forks may start n
// more; nil = yes. Stores ask it in the step that creates a dispatch.
func (g Guard) Admit(descendants, n int64) *ConflictError {
	if descendants+n <= g.MaxDescendants {
		return nil
	}
	left := max(g.MaxDescendants-descendants, 0)
	e := &ConflictError{
		Message:  fmt.Sprintf("this session has started %d of at most %d forks; %d more would be too many", descendants, g.MaxDescendants, n),
		NextStep: "Start a new session, or raise FORKYARD_MAX_DESCENDANTS and restart",
	}
	if left > 0 {
		e.NextStep = fmt.Sprintf("Dispatch at most %d, start a new session, or raise FORKYARD_MAX_DESCENDANTS and restart", left)
	}
	return e
}
