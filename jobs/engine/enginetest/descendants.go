package enginetest

import (
	"errors"
	"sync"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// testForkDispatch: a fork's dispatch goes to its own log, and the session counts all that is below it.
func testForkDispatch(f *fixture) {
	first := f.forks(1, forkcore.GateNone, "")
	w := f.create(first)
	fork := f.lease(w[0].RunID, w[0].N, worker).Holder
	main := int64(len(f.log(f.session)))

	d := f.forks(2, forkcore.GateClosed, fork.RunID)
	for i := range d.Runs {
		d.Runs[i].Depth = 2
	}
	d.ExpectLen = int64(len(f.log(fork.RunID)))
	d.Launch = []forkcore.Entry{markerEntry(fork.RunID, forkcore.Marker{Type: forkcore.MarkerLaunched, DispatchID: d.Dispatch.ID})}
	wakes, created, err := f.store.CreateDispatch(f.ctx, &fork, d)
	f.noError(err, "launch")
	equal(f, created, true, "created")
	same(f, wakes, []engine.Wake{{RunID: d.Runs[0].ID, N: 1}}, "wakes")
	equal(f, f.kinds(fork.RunID), "fork_of message launched", "log of the fork")
	equal(f, int64(len(f.log(f.session))), main, "length of the main log")
	child := f.run(d.Runs[1].ID)
	equal(f, child.Depth, 2, "depth")
	equal(f, child.QuerySource, forkcore.QuerySourceFork, "query source")
	equal(f, child.ParentRunID, fork.RunID, "parent")
	equal(f, f.sessionNow().Descendants, 3, "descendants")
	equal(f, f.sessionNow().ActiveRuns, 3, "active runs")

	// The fork's end leaves its forks alone, and theirs tells the main agent.
	f.end(fork, engine.EndRun{State: forkcore.Done})
	equal(f, f.dispatch(d.Dispatch.ID).Remaining, 2, "remaining")
	leader := f.lease(d.Runs[0].ID, 1, worker).Holder
	for _, w := range f.end(leader, engine.EndRun{State: forkcore.Done}) {
		f.end(f.lease(w.RunID, w.N, worker).Holder, engine.EndRun{State: forkcore.Done})
	}
	equal(f, f.dispatch(d.Dispatch.ID).Remaining, 0, "remaining at the end")
	equal(f, len(f.inbox()), 3, "notices to the main agent")
	equal(f, f.sessionNow().ActiveRuns, 0, "active runs at the end")
	equal(f, f.sessionNow().Descendants, 3, "descendants at the end")
}

// testDescendants: the cap counts every fork ever started, ended ones included.
func testDescendants(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	d.MaxDescendants = 3
	for _, w := range f.create(d) {
		f.end(f.lease(w.RunID, w.N, worker).Holder, engine.EndRun{State: forkcore.Done})
	}
	over := f.forks(2, forkcore.GateNone, "")
	over.MaxDescendants = 3
	refuse := func(h *engine.Holder, doing string) {
		f.Helper()
		_, _, err := f.store.CreateDispatch(f.ctx, h, over)
		f.wantConflict(err, doing)
		var got *forkcore.ConflictError
		errors.As(err, &got)
		same(f, got, forkcore.Guard{MaxDescendants: 3}.Admit(2, 2), "refusal of "+doing)
		_, err = f.store.Dispatch(f.ctx, over.Dispatch.ID)
		f.wantError(err, forkcore.ErrNotFound, "dispatch that was refused")
		_, err = f.store.Run(f.ctx, over.Runs[0].ID)
		f.wantError(err, forkcore.ErrNotFound, "run that was refused")
		equal(f, f.sessionNow().Descendants, 2, "descendants after the refusal")
	}
	refuse(nil, "one too many")

	// A model's is refused as well, and its log keeps nothing of it.
	h := f.turn()
	length := int64(len(f.log(f.session)))
	over.ExpectLen = length
	over.Launch = []forkcore.Entry{markerEntry(h.RunID, forkcore.Marker{Type: forkcore.MarkerLaunched, DispatchID: over.Dispatch.ID})}
	refuse(&h, "one too many of a model")
	equal(f, int64(len(f.log(f.session))), length, "length of the log after the refusal")

	// A repeat starts nothing, so the cap does not concern it.
	_, created, err := f.store.CreateDispatch(f.ctx, nil, d)
	f.noError(err, "repeat")
	equal(f, created, false, "created again")

	last := f.forks(1, forkcore.GateNone, "")
	last.MaxDescendants = 3
	f.create(last)
	equal(f, f.sessionNow().Descendants, 3, "descendants at the cap")
	more := f.forks(1, forkcore.GateNone, "") // without a cap
	f.create(more)
	equal(f, f.sessionNow().Descendants, 4, "descendants beyond it")
}

// testDescendantsConcurrently: dispatches that come together cannot pass the cap together.
func testDescendantsConcurrently(f *fixture) {
	const together, limit = 8, 7
	var list []engine.CreateDispatch
	for range together {
		d := f.forks(2, forkcore.GateNone, "")
		d.MaxDescendants = limit
		list = append(list, d)
	}
	errs := make([]error, together)
	var wg sync.WaitGroup
	for i, d := range list {
		wg.Go(func() { _, _, errs[i] = f.store.CreateDispatch(f.ctx, nil, d) })
	}
	wg.Wait()
	started := 0
	for _, err := range errs {
		if err == nil {
			started++
		} else {
			f.wantConflict(err, "create dispatch")
		}
	}
	equal(f, started, limit/2, "dispatches that were started")
	equal(f, f.sessionNow().Descendants, limit-1, "descendants")
}
