package memstore_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/engine/memstore"
)

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ctx := memstore.New(), t.Context()
		session := forkcore.NewSessionID(forkcore.Entropy{1})
		last, err := s.LastEventID(ctx, session)
		if err != nil || last != "0-0" {
			t.Fatalf("last id of nothing = %q, %v; want 0-0", last, err)
		}
		if _, _, err := s.CreateSession(ctx, forkcore.Session{ID: session}, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		run, err := forkcore.NewRunID(session, forkcore.Entropy{2})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Accept(ctx, engine.Accept{
			Run:    forkcore.Run{ID: run, SessionID: session, AgentID: session, Kind: forkcore.KindMain},
			Holder: engine.Holder{SessionID: session, RunID: run, Executor: "e", Token: "t"}, ItemID: "i", Text: "hello",
		})
		if err != nil {
			t.Fatal(err)
		}

		all, err := s.Events(ctx, session, "0", 0)
		if err != nil {
			t.Fatal(err)
		}
		type line struct {
			ID    string
			Event forkcore.EventType
			Run   string
		}
		var got []line
		for _, e := range all {
			got = append(got, line{e.ID, e.Type, e.RunID})
		}
		// The fake clock starts at the first second of 2000.
		want := []line{
			{"946684800000-0", forkcore.EventSession, ""},
			{"946684800001-0", forkcore.EventRun, run},
			{"946684800001-1", forkcore.EventSession, ""},
			{"946684800001-2", forkcore.EventMessage, run},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("events (-want +got):\n%s", diff)
		}
		stored, err := s.Run(ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(stored, *all[1].Run); diff != "" {
			t.Errorf("run in its event (-stored +published):\n%s", diff)
		}
		last, err = s.LastEventID(ctx, session)
		if err != nil || last != want[3].ID {
			t.Errorf("last id = %q, %v; want %s", last, err, want[3].ID)
		}
		for i := range all {
			rest, err := s.Events(ctx, session, all[i].ID, 2)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(all[i+1:min(i+3, len(all))], rest, cmp.Transformer("id", func(e forkcore.Event) string { return e.ID })); diff != "" && len(rest) > 0 {
				t.Errorf("events after %s (-want +got):\n%s", all[i].ID, diff)
			}
			if wantLen := min(2, len(all)-i-1); len(rest) != wantLen {
				t.Errorf("%d events after %s, want %d", len(rest), all[i].ID, wantLen)
			}
		}
		var invalid *forkcore.InvalidError
		if _, err := s.Events(ctx, session, "now", 0); !errors.As(err, &invalid) {
			t.Errorf("events after no id: %v, want *forkcore.InvalidError", err)
		}
	})
}
