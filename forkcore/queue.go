package forkcore

import "time"

// Worker is a process that takes runs off the ready list.
type Worker struct {
	ID   string `json:"id"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Slots is how many runs it advances at a time, Busy how many it does.
	Slots int `json:"slots"`
	Busy  int `json:"busy"`
	// Pools are those that it serves, Roots what they are called; runs of sessions without a root all serve.
	Pools     []string  `json:"pools"`
	Roots     []string  `json:"roots"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	// Draining workers hand over what they do and take nothing new.
	Draining bool `json:"draining"`
}

// QueueStatus is what waits for a worker, what is paused and who works.
type QueueStatus struct {
	// PausedSince is set while nothing at all is started.
	PausedSince *time.Time      `json:"paused_since"`
	Pools       []QueuePool     `json:"pools"`
	Sessions    []QueuedSession `json:"sessions"`
	Workers     []Worker        `json:"workers"`
}

// QueuePool is the runs of the sessions in one root that wait for a worker.
type QueuePool struct {
	ID   string `json:"id"`
	Root string `json:"root"`
	// Interactive runs are those that somebody waits for; Batch those of sessions that nobody answers.
	Interactive int64 `json:"interactive"`
	Batch       int64 `json:"batch"`
	Paused      bool  `json:"paused"`
	// Workers counts those that serve it.
	Workers int `json:"workers"`
}

// QueuedSession is a session with runs that wait for a worker, or one that is paused.
type QueuedSession struct {
	SessionID string `json:"session_id"`
	Ready     int64  `json:"ready"`
	Paused    bool   `json:"paused"`
}

// Unserved reports whether runs of a root wait in vain because no worker announces it.
func (q QueueStatus) Unserved(root string) bool {
	for _, p := range q.Pools {
		if p.Root == root {
			return p.Workers == 0
		}
	}
	return false
}
