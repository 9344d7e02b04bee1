package enginetest

import (
	"errors"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// lease takes a run that must be there to take.
func (f *fixture) lease(runID string, wake int64, executor string) engine.Lease {
	f.Helper()
	l, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: runID, N: wake}, executor, f.name("token"), false)
	f.noError(err, "take lease")
	return l
}

func (f *fixture) release(h engine.Holder) engine.Wake {
	f.Helper()
	wakes, err := f.store.Release(f.ctx, h)
	f.noError(err, "release")
	if len(wakes) == 0 || wakes[0].RunID != h.RunID {
		f.Fatalf("release: wakes %v, want that of %s first", wakes, h.RunID)
	}
	return wakes[0]
}

func testTakeLease(f *fixture) {
	_, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: "run_1", N: 1}, worker, "t", false)
	f.wantError(err, forkcore.ErrBadID, "take a bad id")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: f.newRunID(), N: 1}, worker, "t", false)
	f.wantError(err, forkcore.ErrNotFound, "take an unknown run")

	h := f.turn()
	started := f.run(h.RunID).StartedAt
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 0}, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take a running run")

	w := f.release(h)
	same(f, w, engine.Wake{RunID: h.RunID, N: 1}, "wake")
	for _, wake := range []int64{0, 2} {
		_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: wake}, worker, "t", false)
		f.wantError(err, engine.ErrStale, "take with another wake")
	}
	l, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 1}, worker, "second", false)
	f.noError(err, "take")
	equal(f, l.Holder, engine.Holder{SessionID: f.session, RunID: h.RunID, Executor: worker, Epoch: 2, Token: "second"}, "holder")
	equal(f, l.Run.State, forkcore.Running, "state")
	if !l.Run.StartedAt.Equal(started) {
		f.Errorf("started at %v after the second lease, want %v", l.Run.StartedAt, started)
	}
	if diff := cmp.Diff(f.run(h.RunID), l.Run); diff != "" {
		f.Errorf("run of the lease (-read +leased):\n%s", diff)
	}
	equal(f, len(l.OpenRows), 0, "open rows")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 1}, worker, "third", false)
	f.wantError(err, engine.ErrStale, "take twice")

	// The client retried because the answer was lost: the token proves the same grant.
	again, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 1}, worker, "second", false)
	f.noError(err, "retried take")
	equal(f, again.Holder, l.Holder, "holder of the retried take")

	_, err = f.store.EndRun(f.ctx, l.Holder, engine.EndRun{State: forkcore.Done})
	f.noError(err, "end")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: 1}, worker, "fourth", false)
	f.wantError(err, engine.ErrStale, "take an ended run")
}

func testTakeLeaseStopped(f *fixture) {
	h := f.turn()
	_, err := f.store.Cancel(f.ctx, h.RunID)
	f.noError(err, "cancel")
	w := f.release(h)
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: h.RunID, N: w.N}, worker, "t", false)
	f.wantError(err, engine.ErrStale, "take a run that was asked to stop")
	r := f.run(h.RunID)
	equal(f, r.State, forkcore.Cancelled, "state")
	if r.Reason == nil || r.Reason.NextStep == "" {
		f.Errorf("reason = %+v, want one with a next step", r.Reason)
	}
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
}

// testTakeLeaseOpenRows: a successor is given what its predecessor left open, oldest first.
func testTakeLeaseOpenRows(f *fixture) {
	h := f.turn()
	var rows []forkcore.RequestRow
	for n := int64(1); n <= 11; n++ {
		rows = append(rows, f.begin(h, n, 5))
	}
	settled := rows[2]
	f.settle(h, engine.Settle{Row: f.answered(settled, 1), ExpectLen: -1})
	rows = append(rows[:2], rows[3:]...)
	w := f.release(h)
	l := f.lease(w.RunID, w.N, worker)
	if diff := cmp.Diff(rows, l.OpenRows); diff != "" {
		f.Errorf("open rows (-want +got):\n%s", diff)
	}
	equal(f, f.sessionNow().ReservedNanoUSD, 50, "reserved")
	for _, row := range l.OpenRows {
		row.Status = forkcore.RequestAborted
		f.settle(l.Holder, engine.Settle{Row: row, ExpectLen: -1})
	}
	equal(f, f.sessionNow().ReservedNanoUSD, 0, "reserved after settling")
}

func testTakeLeaseConcurrently(f *fixture) {
	w := f.release(f.turn())
	const executors = 16
	var wg sync.WaitGroup
	errs := make([]error, executors)
	for i := range executors {
		token := f.name("token")
		wg.Go(func() {
			_, errs[i] = f.store.TakeLease(f.ctx, w, worker, token, false)
		})
	}
	wg.Wait()
	granted := 0
	for _, err := range errs {
		if err == nil {
			granted++
		} else if !errors.Is(err, engine.ErrStale) {
			f.Errorf("take: %v, want ErrStale", err)
		}
	}
	equal(f, granted, 1, "leases granted")
}

// testFencing: whoever lost the lease changes nothing, with any method.
func testFencing(f *fixture) {
	stale := f.turn()
	row := f.begin(stale, 1, 10)
	w := f.release(stale)
	now := f.lease(w.RunID, w.N, worker).Holder
	length := int64(len(f.log(f.session)))
	entry := f.message(stale.RunID, `{"role":"assistant"}`)

	dispatch := f.forks(2, forkcore.GateClosed, stale.RunID)
	dispatch.ExpectLen, dispatch.Launch = length, []forkcore.Entry{entry}
	holders := map[string]engine.Holder{
		"predecessor":    stale,
		"other token":    {SessionID: now.SessionID, RunID: now.RunID, Executor: now.Executor, Epoch: now.Epoch, Token: "guess"},
		"other epoch":    {SessionID: now.SessionID, RunID: now.RunID, Executor: now.Executor, Epoch: now.Epoch - 1, Token: now.Token},
		"other executor": {SessionID: now.SessionID, RunID: now.RunID, Executor: web, Epoch: now.Epoch, Token: now.Token},
	}
	steps := map[string]func(h engine.Holder) error{
		"append": func(h engine.Holder) error {
			_, err := f.store.Append(f.ctx, h, length, []forkcore.Entry{entry}, nil)
			return err
		},
		"begin request": func(h engine.Holder) error {
			return f.store.BeginRequest(f.ctx, h, f.row(h, 2), 10, time.Minute)
		},
		"first event": func(h engine.Holder) error {
			_, err := f.store.FirstEvent(f.ctx, h, row, nil)
			return err
		},
		"settle": func(h engine.Holder) error {
			_, err := f.store.Settle(f.ctx, h, engine.Settle{Row: f.answered(row, 1), ExpectLen: length, Append: []forkcore.Entry{entry}})
			return err
		},
		"create dispatch": func(h engine.Holder) error {
			_, _, err := f.store.CreateDispatch(f.ctx, &h, dispatch)
			return err
		},
		"release": func(h engine.Holder) error {
			_, err := f.store.Release(f.ctx, h)
			return err
		},
		"wait": func(h engine.Holder) error {
			return f.store.Wait(f.ctx, h, engine.WaitFor{Delay: time.Minute, Reason: overloaded()})
		},
		"end": func(h engine.Holder) error {
			_, err := f.store.EndRun(f.ctx, h, engine.EndRun{State: forkcore.Done})
			return err
		},
	}
	run, session := f.run(now.RunID), f.sessionNow()
	for who, h := range holders {
		for what, step := range steps {
			f.wantError(step(h), engine.ErrLeaseLost, what+" by "+who)
		}
	}
	if diff := cmp.Diff(run, f.run(now.RunID)); diff != "" {
		f.Errorf("run changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(session, f.sessionNow()); diff != "" {
		f.Errorf("session changed (-before +after):\n%s", diff)
	}
	equal(f, int64(len(f.log(f.session))), length, "log length")
	_, err := f.store.Dispatch(f.ctx, dispatch.Dispatch.ID)
	f.wantError(err, forkcore.ErrNotFound, "dispatch of a stale holder")
	rows, err := f.store.Requests(f.ctx, now.RunID)
	f.noError(err, "requests")
	if diff := cmp.Diff([]forkcore.RequestRow{row}, rows); diff != "" {
		f.Errorf("ledger changed (-before +after):\n%s", diff)
	}
}

func testRelease(f *fixture) {
	h := f.turn()
	before := f.kinds(f.session)
	w := f.release(h)
	r := f.run(h.RunID)
	equal(f, r.State, forkcore.Queued, "state")
	equal(f, r.Background, true, "background")
	equal(f, r.Wake, 1, "wake")
	equal(f, f.kinds(f.session), before+" background", "log")
	equal(f, f.sessionNow().ActiveRunID, h.RunID, "active run")

	// Its answer may get lost: the same step again answers as before.
	equal(f, f.release(h), w, "repeated release")
	equal(f, f.run(h.RunID).Wake, 1, "wake after the repeat")

	w = f.release(f.lease(w.RunID, w.N, worker).Holder)
	equal(f, w.N, 2, "second wake")
	equal(f, f.kinds(f.session), before+" background", "log after the second release")
}
