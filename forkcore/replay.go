package forkcore

import (
	"fmt"
	"slices"
)

// View is what a log says: replaying it gives the next request. It is built by
// Apply, entry by entry, and only from entries.
type View struct {
	// Len is the seq of the last entry applied.
	Len int64
	// Prefix is the whole history to send, a fork's inherited part included.
	Prefix *Prefix
	// Compacted is true once the history was replaced by a summary: then a fork's requests no longer start with its snapshot.
	Compacted bool
	// Pending are the tool calls of the last assistant message that no user message answers yet.
	Pending []PendingCall
	// AssistantSeq is the seq of the last assistant message.
	AssistantSeq int64
	// Rounds counts this run's assistant messages.
	Rounds int
	// Repeats counts how often the last round's tool calls were made in a row, 1 for the first time.
	Repeats int
	// Stop is the last answer's stop reason when it was neither end_turn nor tool_use.
	Stop string
	// Pauses counts the answers in a row that the provider paused.
	Pauses int
	// Resumed is true between a resumption and the next message.
	Resumed bool
	// TurnRunID is the main turn in progress, empty between turns.
	TurnRunID string
	// Launch is the dispatch that the last assistant message started, nil without one.
	Launch *Launch
	// Completed is the history, and CompletedSeq the seq, when the last main turn was done; before, the head alone and 0.
	Completed    *Prefix
	CompletedSeq int64
	// Replacements are the decisions about the tool results in Prefix, CompletedReplacements about those in Completed.
	Replacements          ReplacementState
	CompletedReplacements ReplacementState

	last     *Message
	lastCall string
	fork     bool // the log is a fork's
}

// PendingCall is a tool call that is not answered in the history yet.
type PendingCall struct {
	Call ToolCall
	// StartedBy names the executor and epoch that started it; empty = not started.
	StartedBy string
	// Result is the canonical tool_result block; nil = none yet.
	Result []byte
	// ChildRunID is set for Agent calls that started a child.
	ChildRunID string
	// Forked calls started a fork; the others with a ChildRunID an agent.
	Forked bool
	// Async is true when the call does not wait for the agent's end.
	Async bool
}

// Awaits reports whether the call waits for the end of an agent.
func (p PendingCall) Awaits() bool { return p.ChildRunID != "" && p.Result == nil }

// Launch is a model's dispatch.
type Launch struct {
	DispatchID string
	RunIDs     []string
	// All is true when the message called nothing else: then the parent's next
	// request shares the forks' prefix through the last placeholder.
	All bool
}

// NewView starts the replay of a log over the bytes that it continues: the
// request head for a main log (see NewPrefix), the inheritance for a fork's (see LoadSnapshot).
func NewView(base *Prefix) *View { return &View{Prefix: base, Completed: base} }

// Clone gives a view that goes on by itself. Bytes are shared, they never change.
func (v *View) Clone() *View {
	c := *v
	c.Pending = slices.Clone(v.Pending)
	c.Replacements = v.Replacements.Clone()
	if v.Launch != nil {
		l := *v.Launch
		c.Launch = &l
	}
	return &c
}

// turnEnded answers a call that was still open when its turn ended.
const turnEnded = "not run: the turn was stopped before this call"

// turnEndedBefore answers a call whose agent was at work when its turn ended.
const turnEndedBefore = "the turn was stopped before this agent ended; what it has to tell arrives as a task notification"

// Apply adds one entry. Entries must come in seq order without a gap. An entry
// that is refused leaves the view as it was.
func (v *View) Apply(e Entry) error {
	if e.Seq != v.Len+1 {
		return fmt.Errorf("log entry %d follows entry %d", e.Seq, v.Len)
	}
	if e.Kind == EntryMessage {
		if err := v.applyBytes(e); err != nil {
			return fmt.Errorf("log entry %d: %w", e.Seq, err)
		}
		return nil
	}
	if e.Marker == nil {
		return fmt.Errorf("log entry %d is a marker without content", e.Seq)
	}
	if e.Marker.Type == MarkerCompact && (len(v.Pending) > 0 || v.Prefix.open) {
		return fmt.Errorf("log entry %d compacts a history with an open end", e.Seq)
	}
	v.Len = e.Seq
	v.applyMarker(e)
	return nil
}

func (v *View) applyBytes(e Entry) error {
	if e.Fragment {
		p, blocks, err := v.Prefix.Complete(e.Bytes)
		if err != nil {
			return err
		}
		v.Prefix, v.Len = p, e.Seq
		v.applyMessage(Message{Role: RoleUser, Blocks: blocks})
		return nil
	}
	m, err := ParseMessage(e.Bytes)
	if err != nil {
		return err
	}
	m.Sum = e.Blob
	if v.Prefix.open {
		return fmt.Errorf("a message follows an open segment")
	}
	v.Prefix, v.Len = v.Prefix.Append(m), e.Seq
	v.applyMessage(m)
	return nil
}

func (v *View) applyMessage(m Message) {
	v.last, v.Resumed = &m, false
	if v.Compacted && v.TurnRunID == "" {
		// Written between turns: from now on this is the history that is complete.
		v.complete(v.Len)
	}
	if v.Launch != nil && m.Role == RoleUser && len(v.Pending) > 0 {
		v.Launch.All = v.AllLaunched()
	}
	for _, p := range v.Pending {
		if p.Result != nil && !p.Forked && !p.Async {
			v.Replacements = v.Replacements.Freeze(Replacement{ToolUseID: p.Call.ID}) // sent as it is, unless a marker said otherwise
		}
	}
	v.Pending = nil
	if m.Role != RoleAssistant {
		v.Pauses = 0
		return
	}
	v.Rounds++
	v.AssistantSeq = v.Len
	v.Stop = ""
	v.Launch = nil
	var sig string
	for _, c := range m.ToolCalls() {
		v.Pending = append(v.Pending, PendingCall{Call: c})
		sig += c.Name + "\x00" + string(c.Input) + "\x00"
	}
	if sig != "" && sig == v.lastCall {
		v.Repeats++
	} else {
		v.Repeats = 1
	}
	v.lastCall = sig
}

func (v *View) applyMarker(e Entry) {
	m := e.Marker
	switch m.Type {
	case MarkerTurnStart:
		v.TurnRunID, v.Rounds, v.Repeats, v.lastCall, v.Stop = e.RunID, 0, 0, "", ""
	case MarkerTurnEnd:
		v.TurnRunID = ""
		for i := range v.Pending {
			if p := &v.Pending[i]; p.Awaits() {
				p.Result = AppendToolResult(nil, p.Call.ID, turnEndedBefore, true)
			} else if p.Result == nil {
				p.Result = AppendToolResult(nil, p.Call.ID, turnEnded, true)
			}
		}
		if m.State == Done {
			v.complete(e.Seq)
		}
	case MarkerForkOf:
		v.fork = true
	case MarkerResumed:
		v.Resumed, v.Rounds, v.Repeats, v.lastCall = true, 0, 0, ""
	case MarkerToolStarted:
		if p := v.pending(m.ToolUseID); p != nil {
			p.StartedBy = m.Holder
		}
	case MarkerToolResult:
		if p := v.pending(m.ToolUseID); p != nil {
			p.Result = m.Bytes
		}
	case MarkerReplacement:
		if p := v.pending(m.ToolUseID); p != nil && m.Replacement != nil {
			p.Result = m.Bytes
			v.Replacements = v.Replacements.Freeze(*m.Replacement)
		}
	case MarkerLaunched:
		v.Launch = &Launch{DispatchID: m.DispatchID, RunIDs: m.RunIDs}
		for i, id := range m.ToolUseIDs {
			if p := v.pending(id); p != nil && i < len(m.RunIDs) {
				p.ChildRunID, p.Forked = m.RunIDs[i], true
				p.Result = AppendToolResult(nil, id, Placeholder, false)
			}
		}
	case MarkerSpawned:
		for i, id := range m.ToolUseIDs {
			if p := v.pending(id); p != nil && i < len(m.RunIDs) {
				p.ChildRunID = m.RunIDs[i]
			}
		}
	case MarkerAsync:
		for _, id := range m.ToolUseIDs {
			if p := v.pending(id); p != nil && p.Awaits() {
				p.Async = true
				p.Result = AppendToolResult(nil, id, "async_launched: agent "+p.ChildRunID+" runs in the background; its result will arrive as a task notification", false)
			}
		}
	case MarkerCompact:
		v.Prefix, v.Compacted, v.last, v.Launch, v.Replacements = v.Prefix.Head(), true, nil, nil, nil
	case MarkerStop:
		if v.Stop = m.Name; v.Stop == "pause_turn" {
			v.Pauses++
		}
	}
}

func (v *View) complete(seq int64) {
	v.Completed, v.CompletedSeq, v.CompletedReplacements = v.Prefix, seq, v.Replacements.Clone()
}

func (v *View) pending(toolUseID string) *PendingCall {
	for i := range v.Pending {
		if v.Pending[i].Call.ID == toolUseID {
			return &v.Pending[i]
		}
	}
	return nil
}

// Last is the last message of the log; ok is false before the first. A fork's
// first message has views of its own blocks alone.
func (v *View) Last() (Message, bool) {
	if v.last == nil {
		return Message{}, false
	}
	return *v.last, true
}

// AllLaunched reports whether every pending call was an Agent call that
// started a fork: then the parent's next request shares the forks' prefix
// through the last placeholder.
func (v *View) AllLaunched() bool {
	for _, p := range v.Pending {
		if !p.Forked {
			return false
		}
	}
	return len(v.Pending) > 0
}

// reports says where the reports of forks go, and else how they arrive. A fork
// that forks does not get them: it ends when its own directive is done,
// whatever its forks still do.
func (v *View) reports(whose, arrive string) string {
	if v.fork {
		return whose + " will go to the main agent, not to you"
	}
	return whose + " will arrive as " + arrive
}

// AnswerBlocks gives the tool_result blocks for the pending calls, in
// tool_use order, followed by one text block that lists the forks started.
// With AllLaunched the results are the placeholders of the forks' own prefix;
// otherwise each started fork's result names it.
func (v *View) AnswerBlocks() [][]byte {
	all := v.AllLaunched()
	var blocks [][]byte
	list := "Forks started in the background; " + v.reports("their reports", "task notifications") + ":"
	for _, p := range v.Pending {
		if p.Forked && !all {
			blocks = append(blocks, AppendToolResult(nil, p.Call.ID, "async_launched: fork "+p.ChildRunID+" runs in the background; "+v.reports("its report", "a task notification"), false))
			continue
		}
		blocks = append(blocks, p.Result)
		list += "\n- " + p.ChildRunID
	}
	if all {
		blocks = append(blocks, AppendTextBlock(nil, list))
	}
	return blocks
}
