package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

// follow runs Live until the test ends; stop waits for its end and checks the error.
func (s *scene) follow(since time.Time) (events <-chan forkcore.Event, stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan forkcore.Event, 10_000)
	done := make(chan error, 1)
	go func() { done <- s.store.Live(ctx, since, func(e forkcore.Event) { ch <- e }) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				s.Errorf("live ended with %v, want context.Canceled", err)
			}
		case <-time.After(20 * time.Second):
			s.Error("live did not end with its context")
		}
	})
	s.Cleanup(stop)
	return ch, stop
}

// await returns the events up to the first that is wanted.
func (s *scene) await(events <-chan forkcore.Event, wanted func(forkcore.Event) bool) (got []forkcore.Event) {
	s.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			got = append(got, e)
			if wanted(e) {
				return got
			}
		case <-deadline:
			s.Fatalf("the event did not come; %d others did", len(got))
		}
	}
}

func (s *scene) collect(since time.Time, wanted func(forkcore.Event) bool) []forkcore.Event {
	s.Helper()
	events, stop := s.follow(since)
	defer stop()
	return s.await(events, wanted)
}

// ready publishes deltas until one arrives: from then on nothing is missed.
func (s *scene) ready(session string, events <-chan forkcore.Event) {
	s.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		s.must(s.store.PublishDelta(s.Context(), engine.Delta{SessionID: session, RunID: "ready"}))
		select {
		case <-events:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	s.Fatal("live does not deliver")
}

func ended(run string) func(forkcore.Event) bool {
	return func(e forkcore.Event) bool {
		return e.Type == forkcore.EventRun && e.RunID == run && e.Run.State.Ended()
	}
}

func durable(events []forkcore.Event, session string) (list []forkcore.Event) {
	for _, e := range events {
		if e.ID != "" && e.SessionID == session {
			list = append(list, e)
		}
	}
	return list
}

func TestLive(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newScene(t, b.open(t), redisstore.Options{})
			old := s.session()
			events, stop := s.follow(time.Time{})
			s.ready(old, events)

			// Sessions of several shards, each with a turn.
			var sessions, runs []string
			for range 5 {
				session := s.session()
				h := s.accept(session, "t").Holder
				s.end(h)
				sessions, runs = append(sessions, session), append(runs, h.RunID)
			}
			var got []forkcore.Event
			missing := map[string]bool{}
			for _, r := range runs {
				missing[r] = true
			}
			last := map[string]string{}
			for _, session := range sessions {
				id, err := s.store.LastEventID(t.Context(), session)
				s.must(err)
				last[session] = id
			}
			got = s.await(events, func(e forkcore.Event) bool {
				if last[e.SessionID] == e.ID {
					delete(last, e.SessionID)
				}
				return len(last) == 0
			})
			for _, session := range sessions {
				want, err := s.store.Events(t.Context(), session, "0", 0)
				s.must(err)
				if diff := cmp.Diff(want, durable(got, session)); diff != "" {
					t.Errorf("events of %s (-stored +live):\n%s", session, diff)
				}
			}
			if d := durable(got, old); d != nil {
				t.Errorf("events from before: %+v", d)
			}
			stop()
			again := s.collect(time.Now().Add(-time.Hour), ended(runs[0]))
			if len(durable(again, sessions[0])) == 0 {
				t.Error("nothing from the past")
			}
		})
	}
}

// TestLiveSurvivesRestart: Redis crashes and comes back; what was acknowledged before and after arrives once, in order.
func TestLiveSurvivesRestart(t *testing.T) {
	server := redistest.NewServer(t)
	s := newScene(t, connect(t, server.URL()), redisstore.Options{})
	session := s.session()
	events, _ := s.follow(time.Time{})
	s.ready(session, events)
	h := s.accept(session, "t1").Holder
	s.end(h)
	got := s.await(events, ended(h.RunID))

	server.Kill()
	_, err := s.store.Session(t.Context(), session)
	if !errors.Is(err, forkcore.ErrStoreUnavailable) {
		t.Errorf("read while redis is away: %v, want ErrStoreUnavailable", err)
	}
	server.Restart()

	h = s.accept(session, "t2").Holder
	s.end(h)
	last, err := s.store.LastEventID(t.Context(), session)
	s.must(err)
	got = append(got, s.await(events, func(e forkcore.Event) bool { return e.ID == last })...)
	stored, err := s.store.Events(t.Context(), session, "0", 0)
	s.must(err)
	if diff := cmp.Diff(stored[1:], durable(got, session)); diff != "" {
		t.Errorf("events (-stored +live):\n%s", diff)
	}
}
