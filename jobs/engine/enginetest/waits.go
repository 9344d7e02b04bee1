package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// overloaded is why a run waits.
func overloaded() forkcore.Reason {
	return forkcore.Reason{Code: forkcore.CodeOverloaded, Message: `The model is "busy".`, NextStep: "Nothing: it goes on by itself."}
}

func testWait(f *fixture) {
	h := f.turn()
	before := f.kinds(f.session)
	reason := overloaded()
	f.noError(f.store.Wait(f.ctx, h, engine.WaitFor{Delay: never, Reason: reason}), "wait")
	r := f.run(h.RunID)
	equal(f, r.State, forkcore.Waiting, "state")
	same(f, r.Reason, &reason, "reason")
	equal(f, r.Wake, 0, "wake")
	equal(f, r.Background, false, "background")
	equal(f, f.kinds(f.session), before, "log")
	equal(f, f.sessionNow().ActiveRunID, h.RunID, "active run")
	equal(f, f.sessionNow().ActiveRuns, 1, "active runs")

	// Its answer may get lost; anything else by the former holder is refused.
	f.noError(f.store.Wait(f.ctx, h, engine.WaitFor{Delay: never, Reason: reason}), "repeated wait")
	_, err := f.store.Append(f.ctx, h, int64(len(f.log(f.session))), nil, nil)
	f.wantError(err, engine.ErrLeaseLost, "append while waiting")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 0}, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take a waiting run")
	equal(f, len(f.background(h.RunID)), 0, "wakes of a run that waits for its time")
	equal(f, f.run(h.RunID).Background, true, "background")
	f.noBackground(h.RunID, "signal it again")
	late := f.acceptance("while it waits")
	equal(f, f.accept(late).RunID, h.RunID, "run that a text goes to meanwhile")

	// Neither the end of its former executor nor an early sweep wakes it.
	f.noError(f.store.Goodbye(f.ctx, web), "goodbye")
	equal(f, len(f.sweep(never, never)), 0, "wakes before the time")
	equal(f, f.run(h.RunID).State, forkcore.Waiting, "state before the time")
	f.stop("turn")
	equal(f, f.run(h.RunID).State, forkcore.Cancelled, "state of a waiting turn that was stopped")

	d := f.forks(2, forkcore.GateNone, "")
	f.create(d)
	fork := f.lease(d.Runs[0].ID, 1, worker).Holder
	f.noError(f.store.Wait(f.ctx, fork, engine.WaitFor{Delay: time.Millisecond, Reason: reason}), "a fork waits")
	var wakes []engine.Wake
	f.eventually("the end of the wait", func() bool {
		for _, w := range f.sweep(never, never) {
			if w.RunID == fork.RunID { // the sibling becomes due some time
				wakes = append(wakes, w)
			}
		}
		return len(wakes) > 0
	})
	same(f, wakes, []engine.Wake{{RunID: fork.RunID, N: 2}}, "wakes")
	r = f.run(fork.RunID)
	equal(f, r.State, forkcore.Queued, "state after the wait")
	if r.Reason != nil {
		f.Errorf("reason after the wait = %+v, want none", r.Reason)
	}
	equal(f, f.lease(fork.RunID, 2, worker).Holder.Epoch, 2, "epoch")
}

// testWaitMain: a main turn goes on in the background, with what it left open.
func testWaitMain(f *fixture) {
	h := f.turn()
	row := f.begin(h, 1, 10)
	before := f.kinds(f.session)
	f.noError(f.store.Wait(f.ctx, h, engine.WaitFor{Delay: time.Millisecond, Reason: overloaded()}), "wait")
	var wakes []engine.Wake
	f.eventually("the end of the wait", func() bool {
		wakes = f.sweep(never, never)
		return len(wakes) > 0
	})
	same(f, wakes, []engine.Wake{{RunID: h.RunID, N: 1}}, "wakes")
	equal(f, len(f.sweep(never, never)), 0, "wakes of another sweep")
	equal(f, f.run(h.RunID).Background, true, "background")
	equal(f, f.kinds(f.session), before+" background", "log")
	equal(f, f.sessionNow().ActiveRunID, h.RunID, "active run")
	l := f.lease(h.RunID, 1, worker)
	same(f, l.OpenRows, []forkcore.RequestRow{row}, "open rows")
	f.wantError(f.store.Wait(f.ctx, h, engine.WaitFor{Delay: never, Reason: overloaded()}), engine.ErrLeaseLost, "wait by the predecessor")

	f.stop("turn")
	f.wantError(f.store.Wait(f.ctx, l.Holder, engine.WaitFor{Delay: never, Reason: overloaded()}), engine.ErrStopped, "wait after a stop")
	equal(f, f.run(h.RunID).State, forkcore.Running, "state after the refusal")
	f.end(l.Holder, engine.EndRun{State: forkcore.Cancelled})
}
