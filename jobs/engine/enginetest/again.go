package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func testResume(f *fixture) {
	d := f.forks(3, forkcore.GateNone, "")
	var holders []engine.Holder
	for _, w := range f.create(d) {
		holders = append(holders, f.lease(w.RunID, w.N, worker).Holder)
	}
	first := d.Runs[0].ID
	_, err := f.store.Resume(f.ctx, first)
	f.wantConflict(err, "resume a running run")
	failed := engine.EndRun{State: forkcore.Failed, Reason: &forkcore.Reason{Code: forkcore.CodeOverloaded, Message: "m", NextStep: "n"}}
	f.end(holders[0], failed)
	f.end(holders[1], engine.EndRun{State: forkcore.Cancelled})
	equal(f, f.dispatch(d.Dispatch.ID).Undelivered, 2, "notices held back")

	// A notice that nobody has read is taken back.
	wakes, err := f.store.Resume(f.ctx, first)
	f.noError(err, "resume")
	same(f, wakes, []engine.Wake{{RunID: first, N: 2}}, "wakes")
	r := f.run(first)
	equal(f, r.State, forkcore.Queued, "state")
	equal(f, r.Reason == nil && r.EndedAt.IsZero() && !r.ResumedAt.IsZero(), true, "no end, but a resumption")
	got := f.dispatch(d.Dispatch.ID)
	equal(f, got.Remaining, 2, "remaining")
	equal(f, got.Undelivered, 1, "notices held back after the resumption")
	equal(f, f.sessionNow().ActiveRuns, 2, "active runs")
	equal(f, f.kinds(first), "fork_of message resumed", "log")
	_, err = f.store.Resume(f.ctx, first)
	f.wantConflict(err, "resume twice")
	_, err = f.store.Resume(f.ctx, d.Runs[1].ID)
	f.wantConflict(err, "resume a cancelled run")
	_, err = f.store.Resume(f.ctx, f.newRunID())
	f.wantError(err, forkcore.ErrNotFound, "resume an unknown run")

	// It ends again, and with it the dispatch: each run tells its latest end, once.
	f.end(holders[2], engine.EndRun{State: forkcore.OverBudget})
	f.end(f.lease(first, 2, worker).Holder, failed)
	f.wantNotices(d.Runs[1], d.Runs[2], d.Runs[0])
	equal(f, f.dispatch(d.Dispatch.ID).EndedAt.IsZero(), false, "ended")

	// Resumed after that, its notice leaves the inbox, and its next end is told alone.
	for _, i := range []int{0, 2} {
		_, err = f.store.Resume(f.ctx, d.Runs[i].ID)
		f.noError(err, "resume after the dispatch ended")
	}
	f.wantNotices(d.Runs[1])
	equal(f, f.dispatch(d.Dispatch.ID).EndedAt.IsZero(), true, "the dispatch goes on")
	h := f.turn()
	f.takeAll(h)
	f.end(h, engine.EndRun{State: forkcore.Done})
	f.end(f.lease(first, 3, worker).Holder, engine.EndRun{State: forkcore.Done})
	f.wantNotices()
	last := f.ending(forkcore.Done)
	wakes = f.end(f.lease(d.Runs[2].ID, 2, worker).Holder, last)
	f.wantNotices(d.Runs[0], d.Runs[2])
	same(f, wakes, []engine.Wake{{RunID: last.Candidate, N: 1}}, "wakes of the last end")
	_, err = f.store.Resume(f.ctx, first)
	f.wantConflict(err, "resume a run that is done")
	_, err = f.store.Resume(f.ctx, h.RunID)
	f.wantConflict(err, "resume a main turn")
}

func testResumeStopped(f *fixture) {
	d := f.forks(1, forkcore.GateNone, "")
	w := f.create(d)[0]
	h := f.lease(w.RunID, w.N, worker).Holder
	f.stop("tree")
	f.end(h, engine.EndRun{State: forkcore.Failed})
	_, err := f.store.Resume(f.ctx, w.RunID)
	f.wantConflict(err, "resume a run that a person stopped")
}

func testNotifyEach(f *fixture) {
	d := f.forks(3, forkcore.GateNone, "")
	d.Dispatch.Notify = forkcore.NotifyEach
	var holders []engine.Holder
	for _, w := range f.create(d) {
		holders = append(holders, f.lease(w.RunID, w.N, worker).Holder)
	}
	equal(f, f.dispatch(d.Dispatch.ID).Notify, forkcore.NotifyEach, "policy")
	first := f.ending(forkcore.Done)
	same(f, f.end(holders[1], first), []engine.Wake{{RunID: first.Candidate, N: 1}}, "wakes of the first end")
	f.wantNotices(d.Runs[1])
	equal(f, len(f.end(holders[0], f.ending(forkcore.Failed))), 0, "wakes while a turn is waiting to read")
	f.wantNotices(d.Runs[1], d.Runs[0])
	h := f.lease(first.Candidate, 1, worker).Holder
	f.takeAll(h)
	f.end(h, engine.EndRun{State: forkcore.Done})
	last := f.ending(forkcore.Done)
	same(f, f.end(holders[2], last), []engine.Wake{{RunID: last.Candidate, N: 1}}, "wakes of the last end")
	f.wantNotices(d.Runs[2])
}

func testNotifyManual(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	d.Dispatch.Notify = forkcore.NotifyManual
	var holders []engine.Holder
	for _, w := range f.create(d) {
		holders = append(holders, f.lease(w.RunID, w.N, worker).Holder)
	}
	_, err := f.store.DeliverNotices(f.ctx, d.Dispatch.ID)
	f.wantConflict(err, "deliver before an end")
	for _, h := range holders {
		equal(f, len(f.end(h, f.ending(forkcore.Done))), 0, "wakes of an end")
	}
	f.wantNotices()
	equal(f, f.dispatch(d.Dispatch.ID).Undelivered, 2, "notices held back")
	wakes, err := f.store.DeliverNotices(f.ctx, d.Dispatch.ID)
	f.noError(err, "deliver")
	f.wantNotices(d.Runs...)
	if len(wakes) != 1 || wakes[0].RunID != f.sessionNow().ActiveRunID {
		f.Errorf("wakes = %v, want the one new turn %s", wakes, f.sessionNow().ActiveRunID)
	}
	equal(f, f.dispatch(d.Dispatch.ID).Undelivered, 0, "notices held back after the delivery")
	_, err = f.store.DeliverNotices(f.ctx, d.Dispatch.ID)
	f.wantConflict(err, "deliver twice")
}

// testLateNotices: what a stopped tree has to tell is kept until somebody asks or the next turn reads it.
func testLateNotices(f *fixture) {
	d := f.forks(1, forkcore.GateNone, "")
	w := f.create(d)[0]
	h := f.lease(w.RunID, w.N, worker).Holder
	f.stop("tree")
	equal(f, len(f.end(h, f.ending(forkcore.Cancelled))), 0, "wakes after a stop of the tree")
	f.wantNotices(d.Runs[0])
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
}

func testSetBudget(f *fixture) {
	turn := f.turn()
	over := f.forks(1, forkcore.GateNone, turn.RunID)
	over.Dispatch.BudgetNanoUSD = 100
	w := f.create(over)[0]
	parent := f.lease(w.RunID, w.N, worker).Holder
	nested := f.forks(1, forkcore.GateNone, w.RunID)
	w = f.create(nested)[0]
	child := f.lease(w.RunID, w.N, worker).Holder

	// What a fork's forks reserve and spend is the fork's dispatch's too.
	row := f.begin(child, 1, 60)
	f.wantError(f.store.BeginRequest(f.ctx, parent, f.row(parent, 1), 41, time.Minute), forkcore.ErrBudget, "begin beside a nested reservation")
	f.settle(child, engine.Settle{Row: f.answered(row, 50), ExpectLen: -1})
	f.begin(parent, 1, 50)
	f.wantError(f.store.BeginRequest(f.ctx, child, f.row(child, 2), 1, time.Minute), forkcore.ErrBudget, "begin beyond the budget above")
	f.noError(f.store.SetBudget(f.ctx, over.Dispatch.ID, 200), "raise the budget")
	equal(f, f.dispatch(over.Dispatch.ID).BudgetNanoUSD, 200, "budget")
	f.begin(child, 2, 100)
	equal(f, f.dispatch(over.Dispatch.ID).Cost.NanoUSD, 0, "own cost of the dispatch above")

	f.noError(f.store.SetBudget(f.ctx, f.session, 120), "set the session's budget")
	equal(f, f.sessionNow().BudgetNanoUSD, 120, "session budget")
	f.wantError(f.store.BeginRequest(f.ctx, turn, f.row(turn, 1), 1, time.Minute), forkcore.ErrBudget, "begin beyond the session's budget")
	f.noError(f.store.SetBudget(f.ctx, f.session, 0), "take the session's budget away")
	f.begin(turn, 1, 1_000_000)
	f.wantError(f.store.SetBudget(f.ctx, f.newRunID(), 1), forkcore.ErrNotFound, "budget of something else")
}

func testDeadline(f *fixture) {
	d := f.forks(4, forkcore.GateClosed, "")
	d.Deadline = 200 * time.Millisecond
	leader := f.create(d)[0]
	h := f.lease(leader.RunID, leader.N, worker).Holder
	f.end(engine.Holder{SessionID: f.session, RunID: d.Runs[3].ID}, engine.EndRun{State: forkcore.Cancelled})
	if got := f.dispatch(d.Dispatch.ID).Deadline; got.Before(f.dispatch(d.Dispatch.ID).CreatedAt) {
		f.Errorf("deadline %v before the creation", got)
	}
	f.beat(worker)
	var wakes []engine.Wake
	f.eventually("the deadline", func() bool {
		wakes = append(wakes, f.sweep(time.Hour, time.Hour)...)
		return f.run(d.Runs[1].ID).State.Ended()
	})
	for _, r := range d.Runs[1:3] {
		got := f.run(r.ID)
		equal(f, got.State, forkcore.Failed, "state of a run that nobody held")
		equal(f, got.Reason.Code, forkcore.CodeDeadline, "reason")
	}
	equal(f, f.run(d.Runs[3].ID).State, forkcore.Cancelled, "state of a run that had ended")
	equal(f, f.run(leader.RunID).Stop, forkcore.WishDeadline, "wish for the running one")
	same(f, f.signals(worker), []engine.Signal{{RunID: leader.RunID, Kind: "stop"}}, "signals")
	equal(f, len(wakes), 0, "wakes")

	// Nobody's wish is taken back by resuming: the time is up once.
	f.end(h, engine.EndRun{State: forkcore.Failed})
	_, err := f.store.Resume(f.ctx, leader.RunID)
	f.noError(err, "resume after the deadline")
	equal(f, f.run(leader.RunID).Stop, "", "wish after the resumption")
	f.sweep(time.Hour, time.Hour)
	equal(f, f.run(leader.RunID).State, forkcore.Queued, "state after another sweep")
}

func testFlags(f *fixture) {
	flags, err := f.store.Flags(f.ctx)
	f.noError(err, "read flags")
	equal(f, len(flags), 0, "flags before any was set")
	f.noError(f.store.SetFlag(f.ctx, "a", true), "set a flag")
	f.noError(f.store.SetFlag(f.ctx, "b", true), "set another")
	f.noError(f.store.SetFlag(f.ctx, "b", false), "set it again")
	flags, err = f.store.Flags(f.ctx)
	f.noError(err, "read flags")
	same(f, flags, map[string]bool{"a": true, "b": false}, "flags")
}
