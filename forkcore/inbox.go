package forkcore

import "time"

// InboxItem waits to be told to the session's main agent.
type InboxItem struct {
	ID string `json:"id"`
	// Kind is "message" (Text) or "notification" (RunID of the child that ended).
	Kind  string    `json:"kind"`
	Text  string    `json:"text,omitempty"`
	RunID string    `json:"run_id,omitempty"`
	At    time.Time `json:"at"`
}
