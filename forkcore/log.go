package forkcore

import "time"

// EntryKind is "message" or "marker".
type EntryKind string

// The kinds of log entries.
const (
	EntryMessage EntryKind = "message"
	EntryMarker  EntryKind = "marker"
)

// Entry is one line of an agent's log.
type Entry struct {
	// Seq is gap-free from 1 per log; the store assigns it.
	Seq   int64
	At    time.Time
	Kind  EntryKind
	RunID string
	// Blob is the digest of the bytes of a message.
	Blob Digest
	// Bytes are the canonical bytes of the message, filled in by readers. For a
	// Fragment they are the blocks that complete the snapshot's open message.
	Bytes []byte
	// Fragment marks a fork's first message: its head is the snapshot's open last segment.
	Fragment bool
	// Marker is set for EntryMarker.
	Marker *Marker
}

// MarkerType names what a marker records.
type MarkerType string

// The marker types.
const (
	// MarkerForkOf starts a fork's log (Snapshot).
	MarkerForkOf MarkerType = "fork_of"
	// MarkerTurnStart and MarkerTurnEnd bound a main turn (State, Reason at the end).
	MarkerTurnStart MarkerType = "turn_start"
	MarkerTurnEnd   MarkerType = "turn_end"
	// MarkerToolStarted precedes the execution of a tool call (ToolUseID, Name, Detail, Holder): only its writer executes it.
	MarkerToolStarted MarkerType = "tool_started"
	// MarkerToolResult stores one tool_result block (ToolUseID, Blob, IsError) before all of its message are there.
	MarkerToolResult MarkerType = "tool_result"
	// MarkerLaunched records a model's dispatch (DispatchID, RunIDs, ToolUseIDs).
	MarkerLaunched MarkerType = "launched"
	// MarkerSpawned records agents that a call waits for (RunIDs, ToolUseIDs), MarkerAsync that calls do not wait any
	// more: they are answered as launched, and the result will arrive as a task notification (ToolUseIDs).
	MarkerSpawned MarkerType = "spawned"
	MarkerAsync   MarkerType = "async_launched"
	// MarkerReplacement puts another block (Blob) in the place of a tool result that is too big, before it is first
	// sent (ToolUseID, Name, IsError, Replacement). The tool_result marker before it has the full one.
	MarkerReplacement MarkerType = "replacement"
	// MarkerStop keeps an answer's stop reason (Name) when it is neither end_turn nor tool_use.
	MarkerStop MarkerType = "stop"
	// MarkerCompact drops the history before it from the requests to come; the log keeps it. The next
	// message, from the user, sums it up.
	MarkerCompact MarkerType = "compact_boundary"
	// MarkerBackground records that the run went on in a worker.
	MarkerBackground MarkerType = "background"
	// MarkerCooling records that what the provider holds of the conversation expires while a tool runs (Name), and why it
	// is not kept (Detail): the next request writes it again.
	MarkerCooling MarkerType = "cache_cooling"
	// MarkerResumed records that a person let an ended child go on from here.
	MarkerResumed MarkerType = "resumed"
)

// Marker is a log entry that is no message. Only the fields of its type are set.
type Marker struct {
	Type       MarkerType `json:"type"`
	Snapshot   *Digest    `json:"snapshot,omitempty"`
	State      State      `json:"state,omitempty"`
	Reason     *Reason    `json:"reason,omitempty"`
	ToolUseID  string     `json:"tool_use_id,omitempty"`
	Name       string     `json:"name,omitempty"`
	Detail     string     `json:"detail,omitempty"`
	Holder     string     `json:"holder,omitempty"`
	Blob       *Digest    `json:"blob,omitempty"`
	IsError    bool       `json:"is_error,omitempty"`
	DispatchID string     `json:"dispatch_id,omitempty"`
	RunIDs     []string   `json:"run_ids,omitempty"`
	ToolUseIDs []string   `json:"tool_use_ids,omitempty"`
	// Replacement is the decision about one tool result.
	Replacement *Replacement `json:"replacement,omitempty"`
	// Bytes are the bytes of Blob, filled in by readers.
	Bytes []byte `json:"-"`
}
