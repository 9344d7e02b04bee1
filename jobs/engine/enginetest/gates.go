package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// history is a gate's history as "<type> <generation> <place of the leader> <cause>".
func (f *fixture) wantHistory(d engine.CreateDispatch, want ...forkcore.GateEvent) {
	f.Helper()
	got := f.dispatch(d.Dispatch.ID).GateHistory
	for i := range got {
		if got[i].At.IsZero() || (i > 0 && got[i].At.Before(got[i-1].At)) {
			f.Errorf("time %d of the gate's history = %v", i, got[i].At)
		}
		got[i].At = time.Time{}
	}
	same(f, got, want, "gate history")
}

func testGateOpens(f *fixture) {
	d := f.forks(3, forkcore.GateClosed, "")
	f.create(d)
	a, b, c := d.Runs[0].ID, d.Runs[1].ID, d.Runs[2].ID
	_, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: b, N: 0}, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take a parked follower")
	l := f.lease(a, 1, worker)
	equal(f, l.Run.Leader, true, "leader")
	row := f.begin(l.Holder, 1, 0)
	same(f, f.states(d.Runs), []forkcore.State{forkcore.Running, forkcore.Parked, forkcore.Parked}, "states before the first event")

	want := []engine.Wake{{RunID: b, N: 1}, {RunID: c, N: 1}}
	wakes, err := f.store.FirstEvent(f.ctx, l.Holder, row, nil)
	f.noError(err, "first event")
	same(f, wakes, want, "wakes")
	equal(f, f.dispatch(d.Dispatch.ID).Gate, forkcore.GateOpen, "gate")
	same(f, f.states(d.Runs), []forkcore.State{forkcore.Running, forkcore.Queued, forkcore.Queued}, "states")
	closed := forkcore.GateEvent{Generation: 1, Type: "closed", RunID: a, Cause: "dispatch"}
	opened := forkcore.GateEvent{Generation: 1, Type: "opened", RunID: a, Cause: "message_start"}
	f.wantHistory(d, closed, opened)

	// A second request's first event does nothing to the gate.
	f.settle(l.Holder, engine.Settle{Row: f.answered(row, 1), ExpectLen: -1})
	second := f.begin(l.Holder, 2, 0)
	wakes, err = f.store.FirstEvent(f.ctx, l.Holder, second, nil)
	f.noError(err, "second first event")
	equal(f, len(wakes), 0, "wakes of the second")
	f.wantHistory(d, closed, opened)

	follower := f.lease(b, 1, worker)
	equal(f, follower.Run.Leader, false, "follower leads")
	equal(f, follower.Run.State, forkcore.Running, "state of the follower")
	// Neither a follower's event nor its end touches the gate.
	first := f.begin(follower.Holder, 1, 0)
	wakes, err = f.store.FirstEvent(f.ctx, follower.Holder, first, nil)
	f.noError(err, "follower's first event")
	equal(f, len(wakes), 0, "wakes of a follower")
	equal(f, len(f.end(follower.Holder, engine.EndRun{State: forkcore.Done})), 0, "wakes of a follower's end")
	f.wantHistory(d, closed, opened)
}

func testGatePromotes(f *fixture) {
	d := f.forks(3, forkcore.GateClosed, "")
	f.create(d)
	a, b, c := d.Runs[0].ID, d.Runs[1].ID, d.Runs[2].ID
	h := f.lease(a, 1, worker).Holder
	f.begin(h, 1, 0)
	wakes := f.end(h, engine.EndRun{State: forkcore.Failed, Reason: &forkcore.Reason{Code: forkcore.CodeProviderError, Message: "m", NextStep: "n"}})
	same(f, wakes, []engine.Wake{{RunID: b, N: 1}}, "wakes of a leader's end")
	same(f, f.states(d.Runs), []forkcore.State{forkcore.Failed, forkcore.Queued, forkcore.Parked}, "states")
	equal(f, f.run(a).Leader, false, "old leader leads")
	equal(f, f.run(b).Leader, true, "new leader leads")
	equal(f, f.dispatch(d.Dispatch.ID).LeaderRunID, b, "leader")
	closed := forkcore.GateEvent{Generation: 1, Type: "closed", RunID: a, Cause: "dispatch"}
	promotedB := forkcore.GateEvent{Generation: 1, Type: "promoted", RunID: b, Cause: "leader_ended"}
	f.wantHistory(d, closed, promotedB)

	// Cancelling a leader that waits in the queue promotes as well.
	wakes, err := f.store.Cancel(f.ctx, b)
	f.noError(err, "cancel the leader")
	same(f, wakes, []engine.Wake{{RunID: c, N: 1}}, "wakes of a cancelled leader")
	h = f.lease(c, 1, worker).Holder
	f.end(h, engine.EndRun{State: forkcore.OverBudget})
	got := f.dispatch(d.Dispatch.ID)
	equal(f, got.Gate, forkcore.GateOpen, "gate with nobody left")
	equal(f, got.Remaining, 0, "remaining")
	f.wantHistory(d, closed, promotedB,
		forkcore.GateEvent{Generation: 1, Type: "promoted", RunID: c, Cause: "leader_ended"},
		forkcore.GateEvent{Generation: 1, Type: "opened", RunID: c, Cause: "leader_ended"})
}

// never is longer than any test runs.
const never = time.Hour

func (f *fixture) sweep(dead, redue time.Duration) []engine.Wake {
	f.Helper()
	wakes, err := f.store.Sweep(f.ctx, dead, redue)
	f.noError(err, "sweep")
	return wakes
}

func testGateLimit(f *fixture) {
	d := f.forks(2, forkcore.GateClosed, "")
	f.create(d)
	h := f.lease(d.Runs[0].ID, 1, worker).Holder
	equal(f, len(f.sweep(never, never)), 0, "wakes before the leader sent")
	row := f.row(h, 1)
	f.noError(f.store.BeginRequest(f.ctx, h, row, 0, time.Millisecond), "begin")
	var wakes []engine.Wake
	f.eventually("the gate's limit", func() bool {
		wakes = f.sweep(never, never)
		return len(wakes) > 0
	})
	same(f, wakes, []engine.Wake{{RunID: d.Runs[1].ID, N: 1}}, "wakes")
	f.wantHistory(d,
		forkcore.GateEvent{Generation: 1, Type: "closed", RunID: h.RunID, Cause: "dispatch"},
		forkcore.GateEvent{Generation: 1, Type: "opened", RunID: h.RunID, Cause: "limit"})
	wakes, err := f.store.FirstEvent(f.ctx, h, row, nil)
	f.noError(err, "late first event")
	equal(f, len(wakes), 0, "wakes of a late first event")
	equal(f, len(f.sweep(never, never)), 0, "wakes of another sweep")
}
