package enginetest

import (
	"errors"
	"slices"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func (f *fixture) stop(scope string) (ids []string, wakes []engine.Wake) {
	f.Helper()
	ids, wakes, err := f.store.Stop(f.ctx, f.session, scope)
	f.noError(err, "stop")
	slices.Sort(ids)
	return ids, wakes
}

// signals are those for runs.
func (f *fixture) signals(executor string) []engine.Signal {
	f.Helper()
	signals := slices.DeleteFunc(f.beat(executor), func(s engine.Signal) bool { return s.RunID == "" })
	slices.SortFunc(signals, func(a, b engine.Signal) int { return slices.Compare([]string{a.RunID}, []string{b.RunID}) })
	return signals
}

func (f *fixture) beat(executor string) []engine.Signal {
	f.Helper()
	signals, err := f.store.Heartbeat(f.ctx, executor)
	f.noError(err, "heartbeat")
	return signals
}

// testSwept: an executor that is not on the list of the living is told so, once.
func testSwept(f *fixture) {
	swept := engine.Signal{Kind: "swept"}
	same(f, f.beat(worker), []engine.Signal{swept}, "signals of the first beat")
	equal(f, len(f.beat(worker)), 0, "signals of the second beat")
	f.noError(f.store.Goodbye(f.ctx, worker), "goodbye")
	f.sweep(never, never)
	d := f.forks(1, forkcore.GateNone, "")
	f.create(d)
	same(f, f.beat(worker), []engine.Signal{swept}, "signals after the sweep")
	h := f.lease(d.Runs[0].ID, 1, worker).Holder
	_, err := f.store.Cancel(f.ctx, h.RunID)
	f.noError(err, "cancel")
	same(f, f.beat(worker), []engine.Signal{{RunID: h.RunID, Kind: "stop"}}, "signals of a known executor")
}

// testWishBetween: a holder repeats a step whose answer was lost, and somebody's wish came in between.
func testWishBetween(f *fixture) {
	wishes := map[string]func(runID string){
		"cancel": func(runID string) {
			_, err := f.store.Cancel(f.ctx, runID)
			f.noError(err, "cancel")
		},
		"stop turn": func(string) { f.stop("turn") },
		"stop tree": func(string) { f.stop("tree") },
	}
	for name, wish := range wishes {
		h := f.turn()
		length := int64(len(f.log(f.session)))
		entries := []forkcore.Entry{f.message(h.RunID, `{"role":"assistant"}`)}
		for range 2 {
			got, err := f.store.Append(f.ctx, h, length, entries, nil)
			f.noError(err, "append around "+name)
			equal(f, got, length+1, "length")
			wish(h.RunID)
		}
		w := f.release(h)
		wish(h.RunID)
		equal(f, f.run(h.RunID).State, forkcore.Cancelled, "state")
		equal(f, f.release(h), w, "repeated release around "+name)
	}
}

func testStopTurn(f *fixture) {
	ids, wakes := f.stop("turn")
	equal(f, len(ids)+len(wakes), 0, "ids and wakes of an idle session")
	_, _, err := f.store.Stop(f.ctx, f.session, "everything")
	var invalid *forkcore.InvalidError
	if !errors.As(err, &invalid) {
		f.Errorf("stop with another scope: %v, want *forkcore.InvalidError", err)
	}
	_, _, err = f.store.Stop(f.ctx, forkcore.NewSessionID(f.entropy()), "turn")
	f.wantError(err, forkcore.ErrNotFound, "stop an unknown session")

	d := f.forks(1, forkcore.GateNone, "")
	f.create(d)
	h := f.turn()
	ids, _ = f.stop("turn")
	same(f, ids, []string{h.RunID}, "ids")
	r := f.run(h.RunID)
	equal(f, r.State, forkcore.Running, "state of a running turn")
	equal(f, r.Stop, "turn", "stop wish")
	same(f, f.signals(web), []engine.Signal{{RunID: h.RunID, Kind: "stop"}}, "signals")
	equal(f, f.run(d.Runs[0].ID).Stop, "", "wish on a fork")
	f.end(h, engine.EndRun{State: forkcore.Cancelled})

	// A turn in the queue ends at once.
	w := f.release(f.turn())
	ids, _ = f.stop("turn")
	same(f, ids, []string{w.RunID}, "ids of a queued turn")
	r = f.run(w.RunID)
	equal(f, r.State, forkcore.Cancelled, "state of a queued turn")
	if r.Reason == nil || r.Reason.Message == "" || r.Reason.NextStep == "" {
		f.Errorf("reason = %+v, want a message and a next step", r.Reason)
	}
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
	equal(f, f.sessionNow().LastState, forkcore.Cancelled, "last state")
}

func testStopTree(f *fixture) {
	gated := f.forks(4, forkcore.GateClosed, "")
	f.create(gated)
	free := f.forks(2, forkcore.GateNone, "")
	f.create(free)
	running := f.lease(free.Runs[0].ID, 1, worker).Holder
	turn := f.turn()
	ended := f.forks(1, forkcore.GateNone, "")
	f.create(ended)
	_, err := f.store.Cancel(f.ctx, ended.Runs[0].ID)
	f.noError(err, "cancel")

	ids, wakes := f.stop("tree")
	want := []string{turn.RunID}
	for _, r := range slices.Concat(gated.Runs, free.Runs) {
		want = append(want, r.ID)
	}
	slices.Sort(want)
	same(f, ids, want, "ids")
	equal(f, len(wakes), 0, "wakes")
	cancelled := forkcore.Cancelled
	same(f, f.states(gated.Runs), []forkcore.State{cancelled, cancelled, cancelled, cancelled}, "queued leader and parked followers")
	same(f, f.states(free.Runs), []forkcore.State{forkcore.Running, cancelled}, "running and queued")
	same(f, f.signals(worker), []engine.Signal{{RunID: running.RunID, Kind: "stop"}}, "worker's signals")
	same(f, f.signals(web), []engine.Signal{{RunID: turn.RunID, Kind: "stop"}}, "web's signals")
	f.wantError(f.store.BeginRequest(f.ctx, running, f.row(running, 1), 0, never), engine.ErrStopped, "request of a stopped fork")

	born := f.forks(1, forkcore.GateNone, turn.RunID)
	born.ExpectLen = int64(len(f.log(f.session)))
	_, _, err = f.store.CreateDispatch(f.ctx, &turn, born)
	f.wantError(err, engine.ErrStopped, "child born after the stop")
	f.end(turn, engine.EndRun{State: cancelled})
	equal(f, len(f.end(running, f.ending(cancelled))), 0, "a stopped tree wakes nobody")
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
	equal(f, f.sessionNow().ActiveRuns, 0, "active runs")
	ids, _ = f.stop("tree")
	equal(f, len(ids), 0, "ids of a second stop")
	equal(f, len(f.sweep(never, never)), 0, "wakes of a sweep")

	// What comes afterwards is a new tree.
	next := f.forks(1, forkcore.GateNone, "")
	w := f.create(next)[0]
	end := f.ending(forkcore.Done)
	same(f, f.end(f.lease(w.RunID, w.N, worker).Holder, end), []engine.Wake{{RunID: end.Candidate, N: 1}}, "wakes of a new dispatch")
}

func testCancel(f *fixture) {
	_, err := f.store.Cancel(f.ctx, f.newRunID())
	f.wantError(err, forkcore.ErrNotFound, "cancel an unknown run")
	d := f.forks(3, forkcore.GateNone, "")
	f.create(d)
	h := f.lease(d.Runs[0].ID, 1, worker).Holder
	wakes, err := f.store.Cancel(f.ctx, h.RunID)
	f.noError(err, "cancel a running run")
	equal(f, len(wakes), 0, "wakes")
	equal(f, f.run(h.RunID).Stop, "cancel", "stop wish")
	same(f, f.signals(worker), []engine.Signal{{RunID: h.RunID, Kind: "stop"}}, "signals")
	_, _ = f.stop("tree")
	equal(f, f.run(h.RunID).Stop, "cancel", "the first wish stays")
	same(f, f.states(d.Runs), []forkcore.State{forkcore.Running, forkcore.Cancelled, forkcore.Cancelled}, "states")
	_, err = f.store.Cancel(f.ctx, d.Runs[1].ID)
	f.wantConflict(err, "cancel an ended run")
	f.end(h, engine.EndRun{State: forkcore.Cancelled})

	// The last child's end tells an idle parent what the others found, even when a person ended it.
	e := f.forks(2, forkcore.GateNone, "")
	f.create(e)
	f.end(f.lease(e.Runs[0].ID, 1, worker).Holder, engine.EndRun{State: forkcore.Done})
	wakes, err = f.store.Cancel(f.ctx, e.Runs[1].ID)
	f.noError(err, "cancel the last child")
	if len(wakes) != 1 || wakes[0].RunID != f.sessionNow().ActiveRunID {
		f.Errorf("wakes = %v, want the new turn %q", wakes, f.sessionNow().ActiveRunID)
	}
}

// background asks for a run to go on in the background and answers who goes on at once.
func (f *fixture) background(runID string) []engine.Wake {
	f.Helper()
	wakes, err := f.store.SignalBackground(f.ctx, runID)
	f.noError(err, "signal background")
	return wakes
}

func (f *fixture) noBackground(runID, doing string) {
	f.Helper()
	_, err := f.store.SignalBackground(f.ctx, runID)
	f.wantConflict(err, doing)
}

func testSignals(f *fixture) {
	h := f.turn()
	f.background(h.RunID)
	same(f, f.signals(web), []engine.Signal{{RunID: h.RunID, Kind: "background"}}, "signals")
	equal(f, len(f.signals(web)), 0, "signals fetched twice")
	equal(f, len(f.signals(worker)), 0, "another executor's signals")

	// Stopping is stronger than moving on elsewhere, in either order.
	f.background(h.RunID)
	f.stop("turn")
	f.background(h.RunID)
	same(f, f.signals(web), []engine.Signal{{RunID: h.RunID, Kind: "stop"}}, "signals")

	// Signals for a run that was handed over are not delivered.
	f.background(h.RunID)
	w := f.release(h)
	equal(f, len(f.signals(web)), 0, "signals of a released run")
	f.noBackground(w.RunID, "signal a run in the background")
	_, err := f.store.SignalBackground(f.ctx, f.newRunID())
	f.wantError(err, forkcore.ErrNotFound, "signal an unknown run")
	d := f.forks(1, forkcore.GateNone, "")
	f.create(d)
	l := f.lease(d.Runs[0].ID, 1, worker)
	f.noBackground(l.Run.ID, "signal a fork")
}
