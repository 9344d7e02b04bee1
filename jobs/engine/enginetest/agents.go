package enginetest

import (
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// agents lets a foreground turn start n agents that it waits for, each of which a foreground executor holds. The turn waits.
func (f *fixture) agents(n int) (turn engine.Holder, agents []engine.Holder) {
	f.Helper()
	turn = f.turn()
	d := f.forks(n, forkcore.GateNone, turn.RunID)
	d.Dispatch.Notify, d.Dispatch.Snapshot = forkcore.NotifyEach, forkcore.Digest{}
	var ids []string
	for i := range d.Runs {
		r := &d.Runs[i]
		r.Kind, r.AgentType, r.Head, r.Snapshot = forkcore.KindAgent, forkcore.AgentGeneralPurpose, forkcore.DigestOf([]byte("head")), forkcore.Digest{}
		r.Awaited, r.Background = true, false
		d.Logs[i] = d.Logs[i][1:]
		d.Logs[i][0].Fragment = false
		ids = append(ids, r.ID)
	}
	d.ExpectLen = int64(len(f.log(f.session)))
	d.Launch = []forkcore.Entry{markerEntry(turn.RunID, forkcore.Marker{Type: forkcore.MarkerSpawned, DispatchID: d.Dispatch.ID, RunIDs: ids, ToolUseIDs: []string{"toolu_0"}})}
	wakes, created, err := f.store.CreateDispatch(f.ctx, &turn, d)
	f.noError(err, "spawn")
	equal(f, created, true, "created")
	equal(f, len(wakes), n, "wakes")
	for _, w := range wakes {
		l, err := f.store.TakeLease(f.ctx, w, web, f.name("token"), true)
		f.noError(err, "take an agent's lease")
		equal(f, l.Run.Background, false, "background of a foreground agent")
		equal(f, l.Run.Awaited, true, "awaited")
		agents = append(agents, l.Holder)
	}
	f.noError(f.store.Wait(f.ctx, turn, f.forChildren(ids...)), "wait for agents")
	r := f.run(turn.RunID)
	equal(f, r.State, forkcore.Waiting, "state")
	equal(f, r.Reason.Code, forkcore.WaitChildren, "reason")
	return turn, agents
}

func (f *fixture) forChildren(ids ...string) engine.WaitFor {
	return engine.WaitFor{Children: ids, Reason: forkcore.Reason{Code: forkcore.WaitChildren, Message: "m", NextStep: "n"}}
}

// again is the turn's lease after its next wake.
func (f *fixture) again(runID string, foreground bool) engine.Lease {
	f.Helper()
	r := f.run(runID)
	equal(f, r.State, forkcore.Queued, "state of a turn that was woken")
	l, err := f.store.TakeLease(f.ctx, engine.Wake{RunID: runID, N: r.Wake}, web, f.name("token"), foreground)
	f.noError(err, "take the turn's lease again")
	return l
}

func testAwait(f *fixture) {
	turn, agents := f.agents(2)
	// Nothing else wakes it: neither text nor time.
	f.accept(f.acceptance("typed meanwhile"))
	f.beat(web)
	equal(f, len(f.sweep(time.Hour, time.Hour)), 0, "wakes by a sweep")
	equal(f, f.run(turn.RunID).State, forkcore.Waiting, "state with a text in the inbox")

	wakes := f.end(agents[0], f.ending(forkcore.Done))
	same(f, wakes, []engine.Wake{{RunID: turn.RunID, N: 1}}, "wakes of an agent's end")
	equal(f, len(f.inbox()), 2, "inbox")
	l := f.again(turn.RunID, true)
	equal(f, l.Run.Background, false, "background of a turn that went on in the foreground")
	// A wait for one that has ended is refused, one for the other is not.
	f.wantError(f.store.Wait(f.ctx, l.Holder, f.forChildren(agents[0].RunID, agents[1].RunID)), engine.ErrInbox, "wait for an agent that has ended")
	f.noError(f.store.Wait(f.ctx, l.Holder, f.forChildren(agents[1].RunID)), "wait for the other")
	f.end(agents[1], f.ending(forkcore.Failed))

	// A worker that takes it moves it to the background.
	l = f.again(turn.RunID, false)
	equal(f, l.Run.Background, true, "background of a turn that a worker took")
	f.takeAll(l.Holder)
	f.end(l.Holder, engine.EndRun{State: forkcore.Done})
	equal(f, f.sessionNow().ActiveRuns, 0, "active runs")
}

func testAwaitedToBackground(f *fixture) {
	turn, agents := f.agents(2)
	wakes := f.background(agents[0].RunID)
	same(f, wakes, []engine.Wake{{RunID: turn.RunID, N: 1}}, "who goes on at once")
	r := f.run(agents[0].RunID)
	equal(f, r.Awaited, false, "awaited")
	equal(f, r.State, forkcore.Running, "state of the agent until its next step")
	same(f, f.signals(web), []engine.Signal{{RunID: agents[0].RunID, Kind: "background"}}, "signals")
	f.release(agents[0])
	equal(f, f.run(agents[0].RunID).Background, true, "background after the hand-over")

	// Its end is told as a notice; the turn that reads it is the one in progress.
	l := f.again(turn.RunID, true)
	f.noError(f.store.Wait(f.ctx, l.Holder, f.forChildren(agents[1].RunID)), "wait for the other")
	h := f.lease(agents[0].RunID, 2, worker).Holder
	equal(f, len(f.end(h, f.ending(forkcore.Done))), 0, "wakes of a detached agent's end")
	equal(f, f.run(turn.RunID).State, forkcore.Waiting, "state of the turn")
	equal(f, len(f.inbox()), 1, "inbox")

	// The turn itself moves with what it still waits for, which hears of it at its next step.
	wakes = f.background(turn.RunID)
	same(f, wakes, []engine.Wake{{RunID: turn.RunID, N: f.run(turn.RunID).Wake}}, "who goes on at once")
	equal(f, f.run(turn.RunID).Background, true, "background of the turn")
	equal(f, f.run(agents[1].RunID).Awaited, false, "awaited")
	same(f, f.signals(web), []engine.Signal{{RunID: agents[1].RunID, Kind: "background"}}, "signals")
	f.noBackground(turn.RunID, "signal it again")
}

// testAwaitedLost: an agent whose process goes away is no longer in the foreground, so that nobody waits for it in vain.
func testAwaitedLost(f *fixture) {
	turn, agents := f.agents(1)
	f.noError(f.store.Goodbye(f.ctx, web), "goodbye")
	var wakes []engine.Wake
	f.eventually("the sweep of a dead executor", func() bool {
		wakes = append(wakes, f.sweep(time.Second, time.Hour)...)
		return len(wakes) > 0
	})
	equal(f, len(wakes), 2, "wakes: the agent and its turn")
	r := f.run(agents[0].RunID)
	equal(f, r.State, forkcore.Queued, "state of the agent")
	equal(f, r.Awaited, false, "awaited")
	equal(f, f.run(turn.RunID).State, forkcore.Queued, "state of the turn")
}

func testStopAwaited(f *fixture) {
	turn, agents := f.agents(2)
	ids, wakes := f.stop("turn")
	same(f, ids, slices.Sorted(slices.Values([]string{turn.RunID, agents[0].RunID, agents[1].RunID})), "runs concerned")
	equal(f, len(wakes), 0, "wakes")
	equal(f, f.run(turn.RunID).State, forkcore.Cancelled, "state of the turn")
	// What the agents have to tell is kept for the next turn, and starts none.
	for _, h := range agents {
		equal(f, f.run(h.RunID).Stop, "turn", "wish for an agent")
		equal(f, len(f.end(h, f.ending(forkcore.Cancelled))), 0, "wakes of its end")
	}
	equal(f, f.sessionNow().ActiveRunID, "", "active run")
	equal(f, len(f.inbox()), 2, "notices kept")
}
