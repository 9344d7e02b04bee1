package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
)

// label is what an event is about, without ids that differ from run to run.
func label(e forkcore.Event) string {
	switch {
	case e.Session != nil:
		return fmt.Sprintf("%s active=%d cost=%d", e.Type, e.Session.ActiveRuns, e.Session.Cost.NanoUSD)
	case e.Run != nil:
		return fmt.Sprintf("%s %s %s requests=%d tools=%d", e.Type, e.Run.Kind, e.Run.State, e.Run.Requests, e.Run.ToolUses)
	case e.Dispatch != nil:
		return fmt.Sprintf("%s %s remaining=%d", e.Type, e.Dispatch.Gate, e.Dispatch.Remaining)
	case e.Request != nil:
		return fmt.Sprintf("%s %d %s", e.Type, e.Request.N, e.Request.Status)
	case e.Entry != nil && e.Entry.Marker != nil:
		return fmt.Sprintf("%s %d %s", e.Type, e.Entry.Seq, e.Entry.Marker.Type)
	case e.Entry != nil:
		return fmt.Sprintf("%s %d bytes=%d", e.Type, e.Entry.Seq, len(e.Entry.Bytes))
	}
	return string(e.Type)
}

func TestEvents(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newScene(t, b.open(t), redisstore.Options{})
			ctx := t.Context()
			session := s.session()
			after := "0"
			var all []forkcore.Event
			// step checks what one step published, and that objects are whole and as they are now.
			step := func(name string, want ...string) {
				t.Helper()
				events, err := s.store.Events(ctx, session, after, 0)
				s.must(err)
				var got []string
				for _, e := range events {
					got = append(got, label(e))
					if e.SessionID != session || e.At.IsZero() || e.ID <= after && len(e.ID) == len(after) {
						t.Errorf("%s: event %+v after %s", name, e, after)
					}
					after = e.ID
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				all = append(all, events...)
				checkNow(s, name, events)
			}

			step("create session", "session active=0 cost=0")
			h := s.accept(session, "t1").Holder
			step("accept", "run main running requests=0 tools=0", "session active=1 cost=0", "message 1 turn_start")
			entries := []forkcore.Entry{
				s.message(session, h.RunID, "m"),
				{Kind: forkcore.EntryMarker, RunID: h.RunID, Marker: &forkcore.Marker{Type: forkcore.MarkerToolStarted, Name: "Bash"}},
			}
			_, err := s.store.Append(ctx, h, 1, entries, []string{"item-" + h.RunID})
			s.must(err)
			step("append", "message 2 bytes=0", "message 3 tool_started", "run main running requests=0 tools=1")
			row := s.begin(h, 1)
			step("begin", "run main running requests=1 tools=1", "request 1 open")
			s.firstEvent(h, row)
			step("first event", "request 1 open")
			cost := int64(7)
			row.Status, row.Cost = forkcore.RequestOK, &cost
			_, err = s.store.Settle(ctx, h, engine.Settle{Row: row, ExpectLen: 3, Append: entries[:1]})
			s.must(err)
			step("settle", "request 1 ok", "run main running requests=1 tools=1", "session active=1 cost=7", "message 4 bytes=0")
			_, err = s.store.Release(ctx, h)
			s.must(err)
			step("release", "run main queued requests=1 tools=1", "message 5 background")
			_, err = s.store.TakeLease(ctx, engine.Wake{RunID: h.RunID, N: 9}, "w", "t", false)
			if !errors.Is(err, engine.ErrStale) {
				t.Fatalf("take with another wake: %v", err)
			}
			step("refused lease")
			h = s.lease(h.RunID, 1, "t2").Holder
			step("lease", "run main running requests=1 tools=1")
			_, err = s.store.SignalBackground(ctx, s.accept(s.session(), "t3").Run.ID)
			s.must(err)
			step("another session's changes")

			d, _ := s.dispatch(session, 2, forkcore.GateClosed)
			step("dispatch", "gate closed remaining=2",
				"run fork queued requests=0 tools=0", "session active=3 cost=7", "message 1 bytes=0",
				"run fork parked requests=0 tools=0", "message 1 bytes=0")
			leader := s.lease(d.Runs[0].ID, 1, "t4").Holder
			step("leader", "run fork running requests=0 tools=0")
			row = s.begin(leader, 1)
			step("leader sends", "run fork running requests=1 tools=0", "request 1 open")
			s.firstEvent(leader, row)
			step("gate opens", "request 1 open", "gate open remaining=2", "run fork queued requests=0 tools=0")
			s.end(leader)
			step("leader fails", "gate open remaining=1", "request 1 aborted", "run fork failed requests=1 tools=0", "session active=2 cost=7", "notification fork failed requests=1 tools=0")
			_, err = s.store.Cancel(ctx, d.Runs[1].ID)
			s.must(err)
			step("last child cancelled", "run fork cancelled requests=0 tools=0", "session active=1 cost=7",
				"notification fork cancelled requests=0 tools=0", "gate open remaining=0")
			_, _, err = s.store.Stop(ctx, session, "turn")
			s.must(err)
			step("stop", "run main running requests=1 tools=1")
			s.end(h)
			step("turn ends", "run main failed requests=1 tools=1", "session active=0 cost=7", "message 6 turn_end")

			// Pages, the last id, and what is no id.
			last, err := s.store.LastEventID(ctx, session)
			s.must(err)
			if last != after {
				t.Errorf("last event id = %s, want %s", last, after)
			}
			for i := 0; i < len(all); i += 4 {
				from := "0-0"
				if i > 0 {
					from = all[i-1].ID
				}
				page, err := s.store.Events(ctx, session, from, 4)
				s.must(err)
				if diff := cmp.Diff(all[i:min(i+4, len(all))], page); diff != "" {
					t.Errorf("page from %s (-want +got):\n%s", from, diff)
				}
			}
			for _, bad := range []string{"", "-", "+", "(0", "1-", "x", "1-1-1"} {
				_, err := s.store.Events(ctx, session, bad, 1)
				var invalid *forkcore.InvalidError
				if !errors.As(err, &invalid) {
					t.Errorf("events after %q: %v, want *forkcore.InvalidError", bad, err)
				}
			}
			if last, err := s.store.LastEventID(ctx, forkcore.NewSessionID(s.entropy())); err != nil || last != "0-0" {
				t.Errorf("last event of nothing = %q, %v, want 0-0", last, err)
			}
		})
	}
}

// checkNow compares the objects of a step's events with what readers say now.
func checkNow(s *scene, step string, events []forkcore.Event) {
	s.Helper()
	for _, e := range events {
		var want, got any
		var err error
		switch e.Type {
		case forkcore.EventRun, forkcore.EventNotification:
			got = *e.Run
			want, err = s.store.Run(s.Context(), e.RunID)
		case forkcore.EventSession:
			got = *e.Session
			want, err = s.store.Session(s.Context(), e.SessionID)
		case forkcore.EventGate:
			got = *e.Dispatch
			want, err = s.store.Dispatch(s.Context(), e.Dispatch.ID)
		case forkcore.EventRequest:
			got = []forkcore.RequestRow{*e.Request}
			want, err = s.store.Requests(s.Context(), e.RunID)
		case forkcore.EventMessage:
			var log []forkcore.Entry
			log, err = s.store.Log(s.Context(), e.SessionID, e.AgentID, e.Entry.Seq-1, 1)
			if len(log) == 1 {
				log[0].Bytes = nil
				want, got = log[0], *e.Entry
			}
		}
		s.must(err)
		if diff := cmp.Diff(want, got); want == nil || diff != "" {
			s.Errorf("%s: %s event (-now +event):\n%s", step, e.Type, diff)
		}
	}
}

func TestPublishDelta(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newScene(t, b.open(t), redisstore.Options{})
			session := s.session()
			before, err := s.store.LastEventID(t.Context(), session)
			s.must(err)
			since := time.Now()
			s.must(s.store.PublishDelta(t.Context(), engine.Delta{SessionID: session, RunID: "r", Seq: 3, Kind: "text", Text: "<b>", Offset: 9}))
			after, err := s.store.LastEventID(t.Context(), session)
			s.must(err)
			if before != after {
				t.Errorf("a delta became a durable event: %s, then %s", before, after)
			}
			got := s.collect(since.Add(-time.Second), func(e forkcore.Event) bool { return e.Type == forkcore.EventDelta })
			e := got[len(got)-1]
			want := `{"session_id":"` + session + `","run_id":"r","seq":3,"block":0,"kind":"text","offset":9,"text":"\u003cb\u003e"}`
			if string(e.Delta) != want || e.ID != "" || e.RunID != "r" || e.SessionID != session || e.At.IsZero() {
				t.Errorf("delta event %+v with %s, want %s", e, e.Delta, want)
			}
		})
	}
}
