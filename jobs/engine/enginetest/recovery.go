package enginetest

import (
	"cmp"
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func testSweepDead(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	f.create(d)
	h := f.lease(d.Runs[0].ID, 1, worker).Holder
	f.signals(worker)
	// This one dies before its first heartbeat: the lease counts as one.
	f.lease(d.Runs[1].ID, 1, "worker-2")
	equal(f, len(f.sweep(never, never)), 0, "wakes while all live")
	var wakes []engine.Wake
	f.eventually("the executors' silence", func() bool {
		wakes = append(wakes, f.sweep(time.Millisecond, never)...)
		return len(wakes) >= 2
	})
	slices.SortFunc(wakes, func(a, b engine.Wake) int { return cmp.Compare(a.RunID, b.RunID) })
	want := []engine.Wake{{RunID: d.Runs[0].ID, N: 2}, {RunID: d.Runs[1].ID, N: 2}}
	slices.SortFunc(want, func(a, b engine.Wake) int { return cmp.Compare(a.RunID, b.RunID) })
	same(f, wakes, want, "wakes")
	equal(f, f.run(h.RunID).State, forkcore.Queued, "state")
	_, err := f.store.Append(f.ctx, h, 2, nil, nil)
	f.wantError(err, engine.ErrLeaseLost, "append by the silent one")
	equal(f, len(f.sweep(time.Millisecond, never)), 0, "wakes of another sweep")
	equal(f, f.run(h.RunID).Wake, 2, "wake after another sweep")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 1}, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take with the old wake")
	equal(f, f.lease(h.RunID, 2, worker).Holder.Epoch, 2, "epoch")
}

func testGoodbye(f *fixture) {
	d := f.forks(1, forkcore.GateNone, "")
	f.create(d)
	alive := f.lease(d.Runs[0].ID, 1, worker).Holder
	h := f.turn()
	f.noError(f.store.Goodbye(f.ctx, web), "goodbye")
	equal(f, f.run(h.RunID).State, forkcore.Running, "state before the sweep")
	same(f, f.sweep(never, never), []engine.Wake{{RunID: h.RunID, N: 1}}, "wakes")
	equal(f, f.run(alive.RunID).State, forkcore.Running, "state of a living executor's run")
	equal(f, len(f.sweep(never, never)), 0, "wakes of another sweep")
	f.noError(f.store.Goodbye(f.ctx, "nobody"), "goodbye of an unknown executor")
	equal(f, len(f.sweep(never, never)), 0, "wakes after a stranger's goodbye")
}

// testSweepForeground: a turn whose web process died goes on in a worker.
func testSweepForeground(f *fixture) {
	h := f.turn()
	row := f.begin(h, 1, 10)
	before := f.kinds(f.session)
	f.noError(f.store.Goodbye(f.ctx, web), "goodbye")
	wakes := f.sweep(never, never)
	r := f.run(h.RunID)
	equal(f, r.State, forkcore.Queued, "state")
	equal(f, r.Background, true, "background")
	equal(f, f.kinds(f.session), before+" background", "log")
	l := f.lease(wakes[0].RunID, wakes[0].N, worker)
	same(f, l.OpenRows, []forkcore.RequestRow{row}, "open rows")
	f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, 2), 0, never), engine.ErrLeaseLost, "request of the lost process")
	// The lost process comes back to life: its heartbeat takes nothing.
	equal(f, len(f.signals(web)), 0, "signals")
	f.end(l.Holder, engine.EndRun{State: forkcore.Done})
}

func testSweepRedue(f *fixture) {
	d := f.forks(1, forkcore.GateNone, "")
	want := f.create(d)
	equal(f, len(f.sweep(never, never)), 0, "wakes while the enqueue is on its way")
	var wakes []engine.Wake
	f.eventually("the due time", func() bool {
		wakes = f.sweep(never, never)
		return len(wakes) > 0
	})
	same(f, wakes, want, "wakes")
	equal(f, f.run(d.Runs[0].ID).Wake, 1, "wake")
	equal(f, len(f.sweep(never, never)), 0, "wakes before they are due again")

	again := f.forks(1, forkcore.GateNone, "")
	f.create(again)
	for range 2 {
		f.eventually("being due again and again", func() bool {
			wakes = f.sweep(never, time.Millisecond)
			return len(wakes) > 0
		})
		same(f, wakes, []engine.Wake{{RunID: again.Runs[0].ID, N: 1}}, "wakes")
	}
	f.lease(again.Runs[0].ID, 1, worker)
	equal(f, len(f.sweep(never, time.Millisecond)), 0, "wakes of a running run")
}

// testSweepStuck: a wake that was offered in vain is replaced by a new one, whose task has another id.
