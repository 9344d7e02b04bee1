package redisstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
)

// TestGateExpires: a follower that starts after the shared entry's life leads the
// next generation, and those behind it wait again.
func TestGateExpires(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			const ttl = 2 * time.Millisecond
			s := newScene(t, b.open(t), redisstore.Options{GateTTL: ttl})
			d, _ := s.dispatch(s.session(), 4, forkcore.GateClosed)
			first := s.lease(d.Runs[0].ID, 1, "t1").Holder
			s.firstEvent(first, s.begin(first, 1))
			opened, err := s.store.Dispatch(t.Context(), d.Dispatch.ID)
			s.must(err)
			for deadline := time.Now().Add(10 * time.Second); !s.databaseTime().After(opened.GateHistory[1].At.Add(ttl + time.Millisecond)); {
				if time.Now().After(deadline) {
					t.Fatal("the database's clock stands still")
				}
			}

			second := s.lease(d.Runs[1].ID, 1, "t2")
			if !second.Run.Leader {
				t.Error("the late follower does not lead")
			}
			_, err = s.store.TakeLease(t.Context(), engine.Wake{RunID: d.Runs[2].ID, N: 1}, "worker", "t3", false)
			if !errors.Is(err, engine.ErrParked) {
				t.Fatalf("take behind a gate that closed again: %v, want ErrParked", err)
			}
			parked, err := s.store.Run(t.Context(), d.Runs[2].ID)
			s.must(err)
			if parked.State != forkcore.Parked {
				t.Errorf("state = %s, want parked", parked.State)
			}
			// The first leader goes on: it has sent before.
			s.begin(first, 2)

			wakes := s.firstEvent(second.Holder, s.begin(second.Holder, 1))
			if diff := cmp.Diff([]engine.Wake{{RunID: d.Runs[2].ID, N: 2, SessionID: d.Dispatch.SessionID, Batch: true}}, wakes); diff != "" {
				t.Errorf("wakes (-want +got):\n%s", diff)
			}
			now, err := s.store.Dispatch(t.Context(), d.Dispatch.ID)
			s.must(err)
			for i := range now.GateHistory {
				now.GateHistory[i].At = time.Time{}
			}
			want := []forkcore.GateEvent{
				{Generation: 1, Type: "closed", RunID: d.Runs[0].ID, Cause: "dispatch"},
				{Generation: 1, Type: "opened", RunID: d.Runs[0].ID, Cause: "message_start"},
				{Generation: 2, Type: "closed", RunID: d.Runs[1].ID, Cause: "expired"},
				{Generation: 2, Type: "opened", RunID: d.Runs[1].ID, Cause: "message_start"},
			}
			if diff := cmp.Diff(want, now.GateHistory); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
			if now.Generation != 2 || now.Gate != forkcore.GateOpen || now.LeaderRunID != d.Runs[1].ID {
				t.Errorf("generation %d, gate %s, leader %s", now.Generation, now.Gate, now.LeaderRunID)
			}
		})
	}
}

func (s *scene) databaseTime() time.Time {
	s.Helper()
	now, err := s.client.Time(s.Context()).Result()
	s.must(err)
	return now
}
