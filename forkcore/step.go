package forkcore

import (
	"fmt"
	"strings"
)

// Limits of one run.
const (
	// MaxRounds is how many answers a run may have.
	MaxRounds = 200
	// MaxRepeats is how often in a row a run may make the very same tool calls.
	MaxRepeats = 8
	// MaxPauses is how often in a row a turn that the provider paused is continued.
	MaxPauses = 10
)

// ContinueText is what a run gets to answer that is resumed behind its own last answer, and a main turn that is resumed.
const ContinueText = "Go on from where you stopped."

// Decision is what the engine has to do next: CallModel, RunTools, Deliver or Finish.
type Decision interface{ decision() }

// CallModel sends the history as it stands.
type CallModel struct{}

// RunTools runs the pending calls that have no result.
type RunTools struct{ Calls []PendingCall }

// AwaitChildren waits for agents that calls wait for. Whatever else there is, typed text included, waits with it.
type AwaitChildren struct{ RunIDs []string }

// Deliver appends one user message: the answers to the pending calls, then
// whatever is in the inbox.
type Deliver struct{ Answers [][]byte }

// Finish ends the run. Final is the last answer's text.
type Finish struct {
	State  State
	Reason *Reason
	Final  string
}

func (CallModel) decision()     {}
func (RunTools) decision()      {}
func (AwaitChildren) decision() {}
func (Deliver) decision()       {}
func (Finish) decision()        {}

// Step decides from the log alone (and the number of deliverable inbox items
// of a main agent) what comes next. It is pure: whoever holds the lease
// performs the answer, appends what came of it and steps again.
func Step(v *View, kind RunKind, inbox int) Decision {
	var open []PendingCall
	var awaited []string
	for _, p := range v.Pending {
		switch {
		case p.Awaits():
			awaited = append(awaited, p.ChildRunID)
		case p.Result == nil:
			open = append(open, p)
		}
	}
	last, any := v.Last()
	switch {
	case len(open) > 0:
		return RunTools{Calls: open}
	case len(awaited) > 0:
		return AwaitChildren{RunIDs: awaited}
	case any && len(v.Pending) == 0 && v.Stop == "pause_turn" && last.Paused() && v.Pauses <= MaxPauses:
		return CallModel{} // before the inbox: a message may not stand between a server tool's call and its result
	case len(v.Pending) > 0 || inbox > 0:
		return Deliver{Answers: v.AnswerBlocks()}
	case !any:
		return failed(CodeInternal, "there is nothing to answer", "Send a message")
	case last.Role == RoleUser && v.Rounds >= MaxRounds:
		return failed(CodeTurnCap, "the run made 200 model calls without coming to an end", "Send a message to go on from here, or split the task")
	case last.Role == RoleUser && v.Repeats >= MaxRepeats:
		return failed(CodeLoop, "the model made the same tool calls eight times in a row", "Say in a message what it should do instead")
	case last.Role == RoleUser:
		return CallModel{}
	case v.Resumed:
		// Current models refuse a history that ends with an answer.
		return Deliver{Answers: [][]byte{AppendTextBlock(nil, ContinueText)}}
	}
	final := last.Text()
	switch v.Stop {
	case "max_tokens":
		f := failed(CodeTruncated, "the answer was cut at the output limit", "Ask it to go on in a new message, or to be briefer")
		f.Final = final
		return f
	case "pause_turn":
		f := failed(CodeTruncated, "the provider paused the turn, and it could not be continued", "Send a message to go on from here")
		if v.Pauses > MaxPauses {
			f = failed(CodeTruncated, "the provider paused the turn eleven times in a row in the middle of its own tools", "Ask for less at a time in a new message")
		}
		f.Final = final
		return f
	case "refusal":
		return failed(CodeRefusal, "the model declined to answer", "Rephrase the request")
	case "model_context_window_exceeded":
		f := failed(CodeContextWindow, "the conversation fills the model's context window", "Start a new session with a summary of this one")
		f.Final = final
		return f
	}
	if kind != KindMain && strings.TrimSpace(final) == "" {
		return failed(CodeNoOutput, fmt.Sprintf("the %s ended without a report", kind), "Read its transcript, then dispatch the directive again")
	}
	return Finish{State: Done, Final: final}
}

func failed(code, message, next string) Finish {
	return Finish{State: Failed, Reason: &Reason{Code: code, Message: message, NextStep: next}}
}
