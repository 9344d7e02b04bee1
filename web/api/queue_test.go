package api

import (
	"context"
	"slices"
	"testing"
	"time"

	"forkyard/forkcore"
)

// queue is a ready list that notes what was asked of it.
type queue struct{ asked []string }

const workerID = "exe_1"

func (q *queue) Queue(context.Context) (forkcore.QueueStatus, error) {
	return forkcore.QueueStatus{
		PausedSince: new(noon), Pools: []forkcore.QueuePool{{ID: "0a", Root: "/srv/project", Interactive: 2, Workers: 1}},
		Sessions: []forkcore.QueuedSession{{SessionID: sessionID, Ready: 2}},
		Workers:  []forkcore.Worker{{ID: workerID, Host: "h", PID: 7, Slots: 32, Busy: 1, StartedAt: noon, SeenAt: noon.Add(time.Second)}},
	}, nil
}

func (q *queue) Pause(_ context.Context, scope string, paused bool) error {
	word := "resume "
	if paused {
		word = "pause "
	}
	q.asked = append(q.asked, word+scope)
	return nil
}

func (q *queue) DrainWorker(_ context.Context, id string, on bool) error {
	if id != workerID {
		return forkcore.ErrNotFound
	}
	word := "undrain "
	if on {
		word = "drain "
	}
	q.asked = append(q.asked, word+id)
	return nil
}

func TestQueueCalls(t *testing.T) {
	f := newFake()
	q := &queue{}
	f.queue = q
	server := serve(t, f)
	for _, tt := range []struct {
		path, body string
		status     int
	}{
		{"/queue/pause", `{"scope":"all"}`, 202},
		{"/queue/resume", `{"scope":"session:` + sessionID + `"}`, 202},
		{"/queue/pause", `{"scope":"pool:0a"}`, 202},
		{"/queue/pause", `{"scope":"session:nonsense"}`, 422},
		{"/queue/pause", `{"scope":"everything"}`, 422},
		{"/queue/pause", `{}`, 422},
		{"/workers/" + workerID + "/drain", "", 202},
		{"/workers/" + workerID + "/undrain", "{}", 202},
		{"/workers/nobody/drain", "", 404},
	} {
		if res, body := call(t, server, "POST", tt.path, tt.body); res.StatusCode != tt.status {
			t.Errorf("POST %s %s: %d, want %d: %s", tt.path, tt.body, res.StatusCode, tt.status, body)
		}
	}
	want := []string{"pause all", "resume session:" + sessionID, "pause pool:0a", "drain " + workerID, "undrain " + workerID}
	if !slices.Equal(q.asked, want) {
		t.Errorf("asked %q, want %q", q.asked, want)
	}
}
