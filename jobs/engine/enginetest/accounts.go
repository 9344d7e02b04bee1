package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

const otherAccount = "endpoint-other"

// newAccount names an account that no other test of the same database uses.
func (f *fixture) newAccount() string { return f.name("endpoint-") }

func (f *fixture) admit(account string, patience time.Duration, pace bool) engine.Admission {
	f.Helper()
	a, err := f.store.Admit(f.ctx, account, patience, pace)
	f.noError(err, "admit")
	return a
}

func (f *fixture) account(id string) forkcore.ProviderAccount {
	f.Helper()
	a, err := f.store.Account(f.ctx, id)
	f.noError(err, "read account")
	return a
}

// testAdmit: places after a cool-down lie apart, and come closer.
func testAdmit(f *fixture) {
	account := f.newAccount()
	for range 50 {
		if a := f.admit(account, 0, false); !a.Placed || a.Wait != 0 {
			f.Fatalf("an account of which nothing is known: %+v, want a place at once", a)
		}
	}
	f.noError(f.store.CoolDown(f.ctx, account, 30*time.Second), "cool down")
	f.noError(f.store.CoolDown(f.ctx, account, time.Second), "a shorter cool-down")
	a := f.admit(account, 10*time.Second, false)
	if a.Placed || a.Wait < 25*time.Second || a.Wait > 30*time.Second {
		f.Errorf("during a cool-down of 30 s: %+v, want no place, and 30 s", a)
	}
	until := f.account(account).CoolUntil
	var places []time.Duration
	for range 5 {
		a := f.admit(account, time.Minute, false)
		if !a.Placed {
			f.Fatalf("with patience: %+v, want a place", a)
		}
		if at := time.Now().Add(a.Wait); at.Before(until.Add(-time.Second)) {
			f.Errorf("a place at %v, before the end of the cool-down at %v", at, until)
		}
		places = append(places, a.Wait)
	}
	if spread := places[4] - places[0]; spread < 1900*time.Millisecond || spread > 3*time.Second {
		f.Errorf("five places after a cool-down lie within %v: %v, want two seconds or a little more", spread, places)
	}
	for i := 2; i < 5; i++ {
		if places[i]-places[i-1] > places[i-1]-places[i-2]+100*time.Millisecond {
			f.Errorf("the gaps grow: %v", places)
		}
	}
	if a := f.admit(f.newAccount(), 0, false); !a.Placed || a.Wait != 0 {
		f.Errorf("another account: %+v, want a place at once", a)
	}
}

// testAdmitPaced: a burst goes at once, what follows by degrees.
func testAdmitPaced(f *fixture) {
	account := f.newAccount()
	var waits []time.Duration
	for range 64 {
		waits = append(waits, f.admit(account, time.Minute, true).Wait)
	}
	for i := range engine.Pacing.Burst {
		if waits[i] != 0 {
			f.Errorf("start %d of the burst waits %v", i+1, waits[i])
		}
	}
	last := waits[len(waits)-1]
	if last < 300*time.Millisecond || last > 2*time.Second {
		f.Errorf("the last of 64 starts waits %v, want about a second", last)
	}
}

func testKeyState(f *fixture) {
	account := f.newAccount()
	if a := f.account(account); a.ID != account || a.Refused != nil || !a.CoolUntil.IsZero() || a.Limits != nil || a.Successor != "" {
		f.Errorf("an unknown account: %+v", a)
	}
	limits := []forkcore.RateLimit{{Name: "requests", Limit: 50, Remaining: 49, Reset: time.Now().UTC().Truncate(time.Second)}}
	f.noError(f.store.NoteLimits(f.ctx, account, limits), "note limits")
	f.noError(f.store.NoteLimits(f.ctx, account, nil), "note no limits")
	same(f, f.account(account).Limits, limits, "limits")
	if f.account(account).LimitsAt.IsZero() {
		f.Errorf("the time of the limits is not known")
	}

	reason := forkcore.Reason{Code: forkcore.WaitProvider, Message: `invalid "key"`, NextStep: "Give another."}
	f.noError(f.store.RefuseKey(f.ctx, account, reason), "refuse")
	since := f.account(account).RefusedAt
	f.noError(f.store.RefuseKey(f.ctx, account, forkcore.Reason{Code: "x"}), "refuse again")
	a := f.account(account)
	same(f, a.Refused, &reason, "reason")
	same(f, a.RefusedAt, since, "since when")
	got := f.admit(account, time.Minute, false)
	same(f, got, engine.Admission{Refused: &reason}, "admission of a refused key")
	f.noError(f.store.AcceptKey(f.ctx, account), "accept")
	if a := f.account(account); a.Refused != nil || !a.RefusedAt.IsZero() {
		f.Errorf("an accepted account: %+v", a)
	}

	next := f.newAccount()
	f.succeed(account, next, "sealed", true)
	f.succeed(account, next, "sealed again", true)
	f.succeed(account, "another", "sealed", false)
	same(f, f.admit(account, time.Minute, false), engine.Admission{Successor: next, Sealed: "sealed"}, "admission of a replaced key")
	equal(f, f.account(account).Successor, next, "successor")
	f.succeed(next, account, "", true)
	if a := f.admit(next, 0, false); !a.Placed {
		f.Errorf("a replaced key whose successor is not sealed: %+v, want a place", a)
	}
	f.noError(f.store.RefuseKey(f.ctx, next, reason), "refuse the second")
	same(f, f.admit(next, 0, false), engine.Admission{Refused: &reason, Successor: account}, "admission of a refused key whose successor is not sealed")
	f.noError(f.store.AcceptKey(f.ctx, account), "accept the first again")
	equal(f, f.account(account).Successor, "", "successor of a key that is in use again")

	_, err := f.store.UseAccount(f.ctx, account)
	f.noError(err, "use")
	before, err := f.store.UseAccount(f.ctx, next)
	f.noError(err, "use another")
	equal(f, before, account, "the account before")
}

// testWaitKey: runs that wait for a key have no time; the key's return wakes them.
func testWaitKey(f *fixture) {
	account := f.newAccount()
	reason := forkcore.Reason{Code: forkcore.WaitProvider, Message: "no credit", NextStep: "Pay."}
	wait := engine.WaitFor{Reason: reason, Account: account}
	d := f.forks(3, forkcore.GateClosed, "")
	f.create(d)
	leader := f.lease(d.Runs[0].ID, 1, worker).Holder
	f.begin(leader, 1, 0)
	f.noError(f.store.Wait(f.ctx, leader, wait), "the leader waits")
	h := f.turn()
	f.noError(f.store.Wait(f.ctx, h, wait), "a turn waits")
	f.noError(f.store.Wait(f.ctx, h, wait), "repeated wait")
	equal(f, f.account(account).Waiting, 4, "runs that wait")
	equal(f, f.account(otherAccount).Waiting, 0, "runs that wait for another key")
	same(f, f.run(h.RunID).Reason, &reason, "reason")

	time.Sleep(3 * time.Millisecond)
	for _, w := range f.sweep(never, never) {
		f.Errorf("a sweep woke %+v", w)
	}
	equal(f, f.dispatch(d.Dispatch.ID).Gate, forkcore.GateClosed, "gate whose leader waits for a key")
	same(f, f.states(d.Runs), []forkcore.State{forkcore.Waiting, forkcore.Waiting, forkcore.Waiting}, "states")

	wakes, err := f.store.WakeWaiting(f.ctx, otherAccount, false)
	f.noError(err, "wake for another account")
	equal(f, len(wakes), 0, "wakes for another account")
	wakes, err = f.store.WakeWaiting(f.ctx, account, true)
	f.noError(err, "wake")
	equal(f, len(wakes), 4, "wakes")
	equal(f, f.account(account).Waiting, 0, "runs that wait afterwards")
	equal(f, f.run(leader.RunID).State, forkcore.Queued, "state of the leader")
	_, err = f.store.TakeLease(f.ctx, engine.Wake{RunID: d.Runs[1].ID, N: f.run(d.Runs[1].ID).Wake}, worker, f.name("token"), false)
	f.wantError(err, engine.ErrParked, "a follower before its leader has sent")
	wakes, err = f.store.WakeWaiting(f.ctx, account, true)
	f.noError(err, "wake again")
	equal(f, len(wakes), 0, "wakes of a second call")

	l := f.lease(h.RunID, f.run(h.RunID).Wake, worker)
	f.noError(f.store.Wait(f.ctx, l.Holder, wait), "wait once more")
	f.stop("tree")
	equal(f, f.run(h.RunID).State, forkcore.Cancelled, "state of a waiting run that was stopped")
	equal(f, f.account(account).Waiting, 0, "runs that wait after the stop")
}

// testColdGate: after another key one fork writes again what all share.
func testColdGate(f *fixture) {
	account := f.newAccount()
	d := f.forks(4, forkcore.GateClosed, "")
	f.create(d)
	leader := f.lease(d.Runs[0].ID, 1, worker).Holder
	row := f.begin(leader, 1, 0)
	_, err := f.store.FirstEvent(f.ctx, leader, row, nil)
	f.noError(err, "first event")
	for i, r := range d.Runs[1:] {
		h := f.lease(r.ID, 1, worker).Holder
		row := f.begin(h, 1, 0)
		if i > 0 { // in the middle of its work
			f.settle(h, engine.Settle{Row: f.answered(row, 1), ExpectLen: -1})
		}
		f.noError(f.store.Wait(f.ctx, h, engine.WaitFor{Reason: overloaded(), Account: account}), "a follower waits")
	}
	wakes, err := f.store.WakeWaiting(f.ctx, account, true)
	f.noError(err, "wake")
	equal(f, len(wakes), 3, "wakes")
	equal(f, f.dispatch(d.Dispatch.ID).Cold, true, "cold")
	leader = f.lease(wakes[0].RunID, wakes[0].N, worker).Holder
	got := f.dispatch(d.Dispatch.ID)
	equal(f, got.Gate, forkcore.GateClosed, "gate")
	equal(f, got.LeaderRunID, wakes[0].RunID, "leader")
	equal(f, got.Generation, 2, "generation")
	for _, w := range wakes[1:] {
		_, err = f.store.TakeLease(f.ctx, w, worker, f.name("token"), false)
		f.wantError(err, engine.ErrParked, "another one")
	}
	n := f.run(leader.RunID).Requests + 1
	_, err = f.store.FirstEvent(f.ctx, leader, f.begin(leader, n, 0), nil)
	f.noError(err, "first event of the new leader")
	equal(f, f.dispatch(d.Dispatch.ID).Cold, false, "cold once the leader has its answer")
	f.wantHistory(d,
		forkcore.GateEvent{Generation: 1, Type: "closed", RunID: d.Runs[0].ID, Cause: "dispatch"},
		forkcore.GateEvent{Generation: 1, Type: "opened", RunID: d.Runs[0].ID, Cause: "message_start"},
		forkcore.GateEvent{Generation: 2, Type: "closed", RunID: leader.RunID, Cause: "other_key"},
		forkcore.GateEvent{Generation: 2, Type: "opened", RunID: leader.RunID, Cause: "message_start"})
	for _, w := range wakes[1:] {
		f.lease(w.RunID, f.run(w.RunID).Wake, worker)
	}
}

// testBind: a session is bound to the account of its latest request.
func testBind(f *fixture) {
	h := f.turn()
	equal(f, f.sessionNow().Account, "", "account before the first request")
	row := f.row(h, 1)
	row.Scope = forkcore.Scope{Endpoint: "e", Key: "k"}
	f.noError(f.store.BeginRequest(f.ctx, h, row, 0, time.Minute), "begin")
	equal(f, f.sessionNow().Account, "e-k", "account")
	row = f.row(h, 2)
	row.Scope = forkcore.Scope{}
	f.noError(f.store.BeginRequest(f.ctx, h, row, 0, time.Minute), "begin without a scope")
	equal(f, f.sessionNow().Account, "e-k", "account after a request that tells none")
}

func (f *fixture) succeed(account, successor, sealed string, first bool) {
	f.Helper()
	got, err := f.store.SucceedKey(f.ctx, account, successor, sealed)
	f.noError(err, "succeed")
	equal(f, got, first, "first successor")
}
