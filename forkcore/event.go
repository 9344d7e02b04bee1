package forkcore

import "time"

// EventType is the SSE event name.
type EventType string

// The events of a session.
const (
	EventSession      EventType = "session"
	EventRun          EventType = "run"
	EventMessage      EventType = "message"
	EventDelta        EventType = "delta"
	EventRequest      EventType = "request"
	EventGate         EventType = "gate"
	EventPermission   EventType = "permission"
	EventNotification EventType = "notification"
)

// Event is one change, with the object as it was then.
type Event struct {
	// ID is the stream position ("<ms>-<n>"); empty for deltas, which are not kept.
	ID        string
	Type      EventType
	SessionID string
	RunID     string // empty for session events
	At        time.Time

	// One of these is set, by Type.
	Session  *Session    // session
	Run      *Run        // run, notification (the child that ended)
	Dispatch *Dispatch   // gate
	Request  *RequestRow // request
	// Entry is a log entry without Bytes (message: both kinds, messages and markers); AgentID names its log.
	Entry   *Entry
	AgentID string
	// Delta is the JSON of the delta.
	Delta []byte
}
