package enginetest

import (
	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// late sends a text to a turn in progress.
func (f *fixture) late(h engine.Holder, text string) engine.Accept {
	f.Helper()
	a := f.acceptance(text)
	equal(f, f.accept(a).RunID, h.RunID, "run that the text went to")
	return a
}

// takeAll reads the inbox into the log.
func (f *fixture) takeAll(h engine.Holder) {
	f.Helper()
	var items []string
	for _, item := range f.inbox() {
		items = append(items, item.ID)
	}
	_, err := f.store.Append(f.ctx, h, int64(len(f.log(f.session))), []forkcore.Entry{f.message(h.RunID, `{"role":"user"}`)}, items)
	f.noError(err, "take the inbox")
}

// wantFollower checks the turn that an end started for the inbox, and lets it read and end.
func (f *fixture) wantFollower(wakes []engine.Wake, title string) {
	f.Helper()
	active := f.sessionNow().ActiveRunID
	if len(wakes) != 1 || wakes[0].RunID != active || wakes[0].N != 1 {
		f.Fatalf("wakes = %v, want the first of the new turn %q", wakes, active)
	}
	r := f.run(active)
	equal(f, r.State, forkcore.Queued, "state of the turn that follows")
	equal(f, r.Kind, forkcore.KindMain, "kind of the turn that follows")
	equal(f, r.Title, title, "title of the turn that follows")
	h := f.lease(active, 1, worker).Holder
	f.takeAll(h)
	f.end(h, engine.EndRun{State: forkcore.Done})
	equal(f, f.sessionNow().ActiveRunID, "", "active run after the turn that followed")
}

// testFollowStop: a text that comes after a stop is read by another turn, however the stopped one ends.
func testFollowStop(f *fixture) {
	for _, state := range []forkcore.State{forkcore.Cancelled, forkcore.Failed, forkcore.OverBudget} {
		h := f.turn()
		f.stop("turn")
		f.late(h, "but do this")
		end := f.ending(state)
		f.wantFollower(f.end(h, end), end.CandidateTitle)
	}

	// What came before the stop waits for the next text.
	h := f.turn()
	before := f.late(h, "came before")
	f.stop("turn")
	equal(f, len(f.end(h, f.ending(forkcore.Cancelled))), 0, "wakes for a text from before the stop")
	h = f.accept(f.acceptance("go on")).Lease.Holder
	equal(f, f.inbox()[0].ID, before.ItemID, "first item")

	// The stopped turn has read it: nothing is left to follow up, and what comes by itself does not count.
	f.stop("tree")
	after := f.late(h, "and this")
	length := int64(len(f.log(f.session)))
	_, err := f.store.Append(f.ctx, h, length, []forkcore.Entry{f.message(h.RunID, `{"role":"user"}`)}, []string{after.ItemID})
	f.noError(err, "take the text")
	equal(f, len(f.inbox()), 2, "items that are left")
	equal(f, len(f.end(h, f.ending(forkcore.Cancelled))), 0, "wakes when the late text was read")

	// Without a candidate nothing starts, and the next turn is a new beginning.
	h = f.accept(f.acceptance("next")).Lease.Holder
	f.stop("turn")
	f.late(h, "unheard")
	equal(f, len(f.end(h, engine.EndRun{State: forkcore.Cancelled})), 0, "wakes without a candidate")
	h = f.accept(f.acceptance("again")).Lease.Holder
	equal(f, len(f.end(h, f.ending(forkcore.Failed))), 0, "wakes of a turn that failed before its first request")
}

// testFollowUnheld: the store starts the turn by itself when nobody executes the stopped one.
func testFollowUnheld(f *fixture) {
	h := f.turn()
	f.stop("turn")
	f.late(h, "after the stop")
	f.release(h)
	ids, wakes := f.stop("turn")
	same(f, ids, []string{h.RunID}, "ids of the second stop")
	f.wantFollower(wakes, engine.InboxTitle)

	h = f.turn()
	f.stop("tree")
	f.late(h, "after the stop of the tree")
	f.release(h)
	_, wakes = f.stop("tree")
	f.wantFollower(wakes, engine.InboxTitle)

	h = f.turn()
	f.stop("turn")
	f.late(h, "after the stop")
	f.release(h)
	wakes, err := f.store.Cancel(f.ctx, h.RunID)
	f.noError(err, "cancel")
	f.wantFollower(wakes, engine.InboxTitle)

	// TakeLease cannot answer a wake: the next sweep does.
	h = f.turn()
	f.stop("turn")
	f.late(h, "after the stop")
	w := f.release(h)
	_, err = f.store.TakeLease(f.ctx, w, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take a stopped turn")
	f.wantFollower(f.sweep(never, never), engine.InboxTitle)
}
