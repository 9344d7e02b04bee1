package enginetest

import (
	"slices"
	"sync"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func testEndTurn(f *fixture) {
	h := f.turn()
	before := f.kinds(f.session)
	_, err := f.store.EndRun(f.ctx, h, engine.EndRun{State: forkcore.Running})
	f.wantConflict(err, "end as running")
	reason := forkcore.Reason{Code: forkcore.CodeLoop, Message: `it said "again"`, NextStep: "say something else"}
	end := engine.EndRun{State: forkcore.Failed, Reason: &reason}
	equal(f, len(f.end(h, end)), 0, "wakes")
	r, s := f.run(h.RunID), f.sessionNow()
	equal(f, r.State, forkcore.Failed, "state")
	same(f, r.Reason, &reason, "reason")
	if r.EndedAt.IsZero() {
		f.Error("ended at the zero time")
	}
	equal(f, s.ActiveRunID, "", "active run")
	equal(f, s.ActiveRuns, 0, "active runs")
	equal(f, s.LastRunID, h.RunID, "last run")
	equal(f, s.LastState, forkcore.Failed, "last state")
	same(f, s.LastReason, &reason, "last reason")
	equal(f, f.kinds(f.session), before+" turn_end", "log")
	log := f.log(f.session)
	same(f, log[len(log)-1].Marker, &forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: forkcore.Failed, Reason: &reason}, "marker")

	f.end(h, end) // its answer may get lost
	equal(f, f.sessionNow().ActiveRuns, 0, "active runs after the repeat")
	_, err = f.store.EndRun(f.ctx, h, engine.EndRun{State: forkcore.Done})
	f.wantError(err, engine.ErrLeaseLost, "end an ended run")

	// What came in during a turn that fails gets a turn of its own, unless it failed before its first request: the next would too.
	failing := f.turn()
	f.begin(failing, 1, 0)
	late := f.acceptance("one more thing")
	f.accept(late)
	again := engine.EndRun{State: forkcore.Failed, Reason: &reason, Candidate: f.newRunID(), CandidateTitle: "one more thing"}
	equal(f, len(f.end(failing, again)), 1, "wakes of a failed turn with a full inbox")
	equal(f, f.run(again.Candidate).State, forkcore.Queued, "state of the turn for the inbox")
	equal(f, f.sessionNow().ActiveRunID, again.Candidate, "active run")
	taken := f.lease(again.Candidate, 1, worker).Holder
	f.begin(taken, 1, 0)
	_, err = f.store.Append(f.ctx, taken, int64(len(f.log(f.session))), []forkcore.Entry{f.message(taken.RunID, `{"role":"user"}`)}, []string{late.ItemID})
	f.noError(err, "take the late message")
	f.end(taken, engine.EndRun{State: forkcore.Failed, Reason: &reason, Candidate: f.newRunID()})
	equal(f, f.sessionNow().ActiveRunID, "", "active run after a failed turn with an empty inbox")

	unsent := f.turn()
	late = f.acceptance("one more thing")
	f.accept(late)
	equal(f, len(f.end(unsent, engine.EndRun{State: forkcore.Failed, Reason: &reason, Candidate: f.newRunID()})), 0, "wakes of a turn that sent nothing")
	equal(f, len(f.inbox()), 1, "items that wait")
	reading := f.accept(f.acceptance("are you there?")).Lease.Holder
	f.takeAll(reading)
	f.end(reading, engine.EndRun{State: forkcore.Done})

	next := f.turn()
	f.end(next, engine.EndRun{State: forkcore.Done})
	s = f.sessionNow()
	equal(f, s.LastRunID, next.RunID, "last run")
	equal(f, s.LastState, forkcore.Done, "last state")
	if s.LastReason != nil {
		f.Errorf("last reason = %+v, want none", s.LastReason)
	}
}

func testEndUnheld(f *fixture) {
	d := f.forks(3, forkcore.GateClosed, "")
	f.create(d)
	h := f.lease(d.Runs[0].ID, 1, worker).Holder
	nobody := func(r forkcore.Run) engine.Holder { return engine.Holder{SessionID: f.session, RunID: r.ID} }
	_, err := f.store.EndRun(f.ctx, nobody(d.Runs[0]), engine.EndRun{State: forkcore.Failed})
	f.wantError(err, engine.ErrLeaseLost, "end a run that somebody holds")
	_, err = f.store.EndRun(f.ctx, nobody(d.Runs[1]), engine.EndRun{State: forkcore.Done})
	f.wantConflict(err, "end a parked run as done")
	f.end(nobody(d.Runs[1]), engine.EndRun{State: forkcore.Failed})
	equal(f, f.run(d.Runs[1].ID).State, forkcore.Failed, "state")
	equal(f, f.dispatch(d.Dispatch.ID).Remaining, 2, "remaining")
	_, err = f.store.EndRun(f.ctx, nobody(d.Runs[1]), engine.EndRun{State: forkcore.Cancelled})
	f.wantError(err, engine.ErrLeaseLost, "end an ended run")
	_, err = f.store.EndRun(f.ctx, engine.Holder{RunID: f.newRunID()}, engine.EndRun{State: forkcore.Failed})
	f.wantError(err, forkcore.ErrNotFound, "end an unknown run")
	f.end(h, engine.EndRun{State: forkcore.Done})
}

// ending is a child's end with a candidate for the parent's next turn.
func (f *fixture) ending(state forkcore.State) engine.EndRun {
	return engine.EndRun{State: state, Candidate: f.newRunID(), CandidateTitle: "what the forks found"}
}

func (f *fixture) wantNotices(runs ...forkcore.Run) {
	f.Helper()
	var got, want []string
	for _, item := range f.inbox() {
		if item.Kind != "notification" || item.ID == "" || item.At.IsZero() {
			f.Errorf("inbox item %+v, want a notification", item)
		}
		got = append(got, item.RunID)
	}
	for _, r := range runs {
		want = append(want, r.ID)
	}
	same(f, got, want, "notices in the inbox")
}

func testNoticesIdle(f *fixture) {
	d := f.forks(3, forkcore.GateNone, "")
	var holders []engine.Holder
	for _, w := range f.create(d) {
		holders = append(holders, f.lease(w.RunID, w.N, worker).Holder)
	}
	report := forkcore.Report{Scope: "s", Missing: []string{"Issues"}, Text: "<done> \u2028"}
	end := f.ending(forkcore.Done)
	end.Report = &report
	equal(f, len(f.end(holders[1], end)), 0, "wakes of the first end")
	same(f, f.run(holders[1].RunID).Report, &report, "report")
	equal(f, len(f.end(holders[0], f.ending(forkcore.Failed))), 0, "wakes of the second end")
	equal(f, f.dispatch(d.Dispatch.ID).Remaining, 1, "remaining")
	equal(f, f.dispatch(d.Dispatch.ID).EndedAt.IsZero(), true, "not ended yet")
	f.wantNotices()

	last := f.ending(forkcore.Cancelled)
	wakes := f.end(holders[2], last)
	same(f, wakes, []engine.Wake{{RunID: last.Candidate, N: 1}}, "wakes of the last end")
	f.wantNotices(d.Runs[1], d.Runs[0], d.Runs[2])
	got := f.dispatch(d.Dispatch.ID)
	equal(f, got.Remaining, 0, "remaining")
	equal(f, got.EndedAt.IsZero(), false, "ended")
	r := f.run(last.Candidate)
	want := forkcore.Run{
		ID: last.Candidate, SessionID: f.session, AgentID: f.session, Kind: forkcore.KindMain, Title: last.CandidateTitle,
		State: forkcore.Queued, Background: true, Wake: 1, Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	same(f, r, want, "the new turn")
	equal(f, f.sessionNow().ActiveRunID, last.Candidate, "active run")
	equal(f, f.sessionNow().ActiveRuns, 1, "active runs")
	equal(f, f.kinds(f.session), "turn_start", "log")

	// The answer may get lost: the same end again starts nothing more.
	same(f, f.end(holders[2], last), wakes, "wakes of the repeat")
	equal(f, f.sessionNow().ActiveRuns, 1, "active runs after the repeat")

	l := f.lease(last.Candidate, 1, worker)
	var items []string
	for _, item := range f.inbox() {
		items = append(items, item.ID)
	}
	_, err := f.store.Append(f.ctx, l.Holder, 1, []forkcore.Entry{f.message(l.Run.ID, `{"role":"user"}`)}, items)
	f.noError(err, "tell the notices")
	f.end(l.Holder, engine.EndRun{State: forkcore.Done})
}

func testNoticesBusy(f *fixture) {
	d := f.forks(1, forkcore.GateNone, "")
	w := f.create(d)[0]
	h := f.lease(w.RunID, w.N, worker).Holder
	turn := f.turn()
	equal(f, len(f.end(h, f.ending(forkcore.Done))), 0, "wakes with a busy parent")
	f.wantNotices(d.Runs[0])
	equal(f, f.sessionNow().ActiveRunID, turn.RunID, "active run")
	_, err := f.store.EndRun(f.ctx, turn, engine.EndRun{State: forkcore.Done})
	f.wantError(err, engine.ErrInbox, "end with a notice waiting")
	f.end(turn, engine.EndRun{State: forkcore.Failed})

	// Without a candidate an idle parent is left alone.
	e := f.forks(1, forkcore.GateNone, "")
	w = f.create(e)[0]
	equal(f, len(f.end(f.lease(w.RunID, w.N, worker).Holder, engine.EndRun{State: forkcore.Done})), 0, "wakes without a candidate")
	f.wantNotices(d.Runs[0], e.Runs[0])
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
}

func testLastChildrenConcurrently(f *fixture) {
	d := f.forks(8, forkcore.GateNone, "")
	var holders []engine.Holder
	for _, w := range f.create(d) {
		holders = append(holders, f.lease(w.RunID, w.N, worker).Holder)
	}
	ends := make([]engine.EndRun, len(holders))
	for i := range ends {
		ends[i] = f.ending(forkcore.Done)
	}
	wakes, errs := make([][]engine.Wake, len(holders)), make([]error, len(holders))
	var wg sync.WaitGroup
	for i, h := range holders {
		wg.Go(func() { wakes[i], errs[i] = f.store.EndRun(f.ctx, h, ends[i]) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			f.Errorf("end %d: %v", i, err)
		}
	}
	all := slices.Concat(wakes...)
	if len(all) != 1 || all[0].RunID != f.sessionNow().ActiveRunID {
		f.Fatalf("wakes = %v, want the one new turn %s", all, f.sessionNow().ActiveRunID)
	}
	equal(f, len(f.inbox()), len(holders), "notices")
	equal(f, f.sessionNow().ActiveRuns, 1, "active runs")
}
