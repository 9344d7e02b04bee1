package enginetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// forks is a dispatch of n children; parent is empty or the main turn that dispatches.
func (f *fixture) forks(n int, gate forkcore.GateState, parent string) engine.CreateDispatch {
	f.Helper()
	id, err := forkcore.NewDispatchID(f.session, f.entropy())
	f.noError(err, "new dispatch id")
	snapshot := forkcore.DigestOf([]byte("snapshot"))
	saving := int64(600_000)
	d := engine.CreateDispatch{
		Dispatch: forkcore.Dispatch{
			ID: id, SessionID: f.session, ParentRunID: parent, Snapshot: snapshot, GateMode: forkcore.GateAuto, Gate: gate, Notify: forkcore.NotifyAllDone,
			Quote: forkcore.Quote{Model: "claude-sonnet-5-5", Children: n, SharedTokens: 9, SavingNanoUSD: &saving},
		},
		RequestHash: "hash",
	}
	for i := range n {
		child, err := forkcore.ChildRunID(id, i)
		f.noError(err, "child id")
		d.Runs = append(d.Runs, forkcore.Run{
			ID: child, SessionID: f.session, AgentID: child, Kind: forkcore.KindFork, Title: fmt.Sprint("fork ", i), Directive: "look",
			ParentRunID: parent, Depth: 1, QuerySource: forkcore.QuerySourceFork, DispatchID: id, ToolUseID: fmt.Sprint("toolu_", i), Index: i, Snapshot: snapshot, Background: true,
		})
		directive := f.message(child, fmt.Sprintf(`{"type":"text","text":"look %d"}`, i))
		directive.Fragment = true
		d.Logs = append(d.Logs, []forkcore.Entry{markerEntry(child, forkcore.Marker{Type: forkcore.MarkerForkOf, Snapshot: &snapshot}), directive})
	}
	return d
}

// create stores a dispatch by a person.
func (f *fixture) create(d engine.CreateDispatch) []engine.Wake {
	f.Helper()
	wakes, created, err := f.store.CreateDispatch(f.ctx, nil, d)
	f.noError(err, "create dispatch")
	if !created {
		f.Fatal("create dispatch: created = false for a new id")
	}
	return wakes
}

func (f *fixture) end(h engine.Holder, e engine.EndRun) []engine.Wake {
	f.Helper()
	wakes, err := f.store.EndRun(f.ctx, h, e)
	f.noError(err, "end run")
	return wakes
}

// states are the states of runs, in order.
func (f *fixture) states(runs []forkcore.Run) (states []forkcore.State) {
	f.Helper()
	for _, r := range runs {
		states = append(states, f.run(r.ID).State)
	}
	return states
}

func same[T any](f *fixture, got, want T, what string) {
	f.Helper()
	// What the ready-list goes by is the store's own.
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(engine.Wake{}, "SessionID", "Pool", "Batch")); diff != "" {
		f.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func testCreateDispatch(f *fixture) {
	for _, tt := range []struct {
		gate   forkcore.GateState
		wakes  int
		states []forkcore.State
	}{
		{forkcore.GateClosed, 1, []forkcore.State{forkcore.Queued, forkcore.Parked, forkcore.Parked}},
		{forkcore.GateNone, 3, []forkcore.State{forkcore.Queued, forkcore.Queued, forkcore.Queued}},
	} {
		f.T.Run(string(tt.gate), func(t *testing.T) {
			outer := f.T
			f.T = t
			defer func() { f.T = outer }()
			active := f.sessionNow().ActiveRuns
			d := f.forks(3, tt.gate, "")
			wakes := f.create(d)
			var want []engine.Wake
			for _, r := range d.Runs[:tt.wakes] {
				want = append(want, engine.Wake{RunID: r.ID, N: 1})
			}
			same(f, wakes, want, "wakes")
			same(f, f.states(d.Runs), tt.states, "states")
			equal(f, f.sessionNow().ActiveRuns, active+3, "active runs")

			got := f.dispatch(d.Dispatch.ID)
			stored := d.Dispatch
			stored.Remaining = 3
			for _, r := range d.Runs {
				stored.RunIDs = append(stored.RunIDs, r.ID)
			}
			if tt.gate == forkcore.GateClosed {
				stored.Generation, stored.LeaderRunID = 1, d.Runs[0].ID
				if len(got.GateHistory) == 1 && got.GateHistory[0].At.IsZero() {
					t.Error("gate event without a time")
				}
				stored.GateHistory = []forkcore.GateEvent{{Generation: 1, Type: "closed", RunID: d.Runs[0].ID, Cause: "dispatch"}}
				got.GateHistory[0].At = stored.GateHistory[0].At
			}
			if got.CreatedAt.IsZero() || got.Version == 0 {
				t.Errorf("created at %v, version %d", got.CreatedAt, got.Version)
			}
			stored.CreatedAt, stored.UpdatedAt, stored.Version = got.CreatedAt, got.UpdatedAt, got.Version
			same(f, got, stored, "dispatch")
			for i, r := range d.Runs {
				got := f.run(r.ID)
				r.State, r.Leader = tt.states[i], tt.gate == forkcore.GateClosed && i == 0
				if r.State == forkcore.Queued {
					r.Wake = 1
				}
				r.CreatedAt, r.UpdatedAt, r.Version = got.CreatedAt, got.UpdatedAt, got.Version
				same(f, got, r, "child")
				log := f.log(r.ID)
				equal(f, f.kinds(r.ID), "fork_of message", "child's log")
				equal(f, string(log[1].Bytes), fmt.Sprintf(`{"type":"text","text":"look %d"}`, i), "directive")
				equal(f, log[1].Fragment, true, "fragment")
			}

			again, created, err := f.store.CreateDispatch(f.ctx, nil, d)
			f.noError(err, "create again")
			equal(f, created, false, "created again")
			same(f, again, want, "wakes of the repeat")
			equal(f, f.sessionNow().ActiveRuns, active+3, "active runs after the repeat")
			d.RequestHash = "other"
			_, _, err = f.store.CreateDispatch(f.ctx, nil, d)
			f.wantError(err, forkcore.ErrIdempotencyMismatch, "create with another hash")
		})
	}
	d := f.forks(1, forkcore.GateNone, "")
	d.Dispatch.SessionID = forkcore.NewSessionID(f.entropy())
	_, _, err := f.store.CreateDispatch(f.ctx, nil, d)
	f.wantError(err, forkcore.ErrNotFound, "create in an unknown session")
}

func testModelDispatch(f *fixture) {
	h := f.turn()
	length := int64(len(f.log(f.session)))
	d := f.forks(2, forkcore.GateClosed, h.RunID)
	d.ExpectLen = length + 1
	d.Launch = []forkcore.Entry{markerEntry(h.RunID, forkcore.Marker{
		Type: forkcore.MarkerLaunched, DispatchID: d.Dispatch.ID, RunIDs: []string{d.Runs[0].ID, d.Runs[1].ID}, ToolUseIDs: []string{"toolu_0", "toolu_1"},
	})}
	_, _, err := f.store.CreateDispatch(f.ctx, &h, d)
	f.wantError(err, engine.ErrLeaseLost, "launch at another length")
	d.ExpectLen = length
	wakes, created, err := f.store.CreateDispatch(f.ctx, &h, d)
	f.noError(err, "launch")
	equal(f, created, true, "created")
	same(f, wakes, []engine.Wake{{RunID: d.Runs[0].ID, N: 1}}, "wakes")
	log := f.log(f.session)
	equal(f, int64(len(log)), length+1, "length of the parent's log")
	same(f, log[length].Marker, d.Launch[0].Marker, "launch marker")

	// A successor that replays the same log launches the same dispatch: nothing is doubled.
	w := f.release(h)
	next := f.lease(w.RunID, w.N, worker).Holder
	d.ExpectLen = length + 2
	_, created, err = f.store.CreateDispatch(f.ctx, &next, d)
	f.noError(err, "launch again")
	equal(f, created, false, "created again")
	equal(f, f.sessionNow().ActiveRuns, 3, "active runs")

	_, _, err = f.store.Stop(f.ctx, f.session, "turn")
	f.noError(err, "stop")
	later := f.forks(2, forkcore.GateNone, h.RunID)
	later.ExpectLen = int64(len(f.log(f.session)))
	_, _, err = f.store.CreateDispatch(f.ctx, &next, later)
	f.wantError(err, engine.ErrStopped, "launch after a stop")
	_, err = f.store.Run(f.ctx, later.Runs[0].ID)
	f.wantError(err, forkcore.ErrNotFound, "child born after a stop")
}
