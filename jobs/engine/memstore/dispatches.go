package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// dispatch is a stored dispatch.
type dispatch struct {
	forkcore.Dispatch
	hash     string
	above    *dispatch // whose fork dispatched this one
	reserved int64     // nano-dollars of running requests, those of nested dispatches included
	below    int64     // nano-dollars that nested dispatches cost
	notices  []string  // children that ended, in that order
	stopped  bool      // the tree was stopped: its end starts no turn
	opened   time.Time // when the gate opened
	late     bool      // its deadline was acted upon
	limit    time.Time // when the closed gate opens by itself; zero before the leader's send
}

// view is a copy that the caller may keep and change.
func (d *dispatch) view() forkcore.Dispatch {
	v := d.Dispatch
	v.RunIDs, v.GateHistory = slices.Clone(v.RunIDs), slices.Clone(v.GateHistory)
	return v
}

// Dispatch implements engine.Reader.
func (s *Store) Dispatch(ctx context.Context, id string) (forkcore.Dispatch, error) {
	leave, err := s.enter(ctx, "read dispatch", id)
	if err != nil {
		return forkcore.Dispatch{}, err
	}
	defer leave()
	d := s.dispatches[id]
	if d == nil {
		return forkcore.Dispatch{}, notFound("dispatch", id)
	}
	return d.view(), nil
}

// CreateDispatch implements engine.Store. Repeated, it answers the wakes of the children that are still queued.
func (s *Store) CreateDispatch(ctx context.Context, h *engine.Holder, in engine.CreateDispatch) ([]engine.Wake, bool, error) {
	const doing = "create dispatch"
	id := in.Dispatch.ID
	if len(in.Runs) == 0 || len(in.Logs) != len(in.Runs) {
		return nil, false, fmt.Errorf("%s %s: %d runs with %d logs", doing, id, len(in.Runs), len(in.Logs))
	}
	if h != nil {
		a, err := s.held(ctx, doing, *h, in, func(st *step, r *run) (answer, error) { return st.createDispatch(r, in) })
		return a.wakes, a.created, err
	}
	leave, err := s.enter(ctx, doing, id)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	st := s.begin()
	a, err := st.createDispatch(nil, in)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", doing, err)
	}
	st.finish()
	return a.wakes, a.created, nil
}

// createDispatch stores a dispatch; launcher is the holder's run, nil for one by a person or the API.
func (st *step) createDispatch(launcher *run, in engine.CreateDispatch) (answer, error) {
	if old := st.dispatches[in.Dispatch.ID]; old != nil {
		if old.hash != in.RequestHash {
			return answer{}, forkcore.ErrIdempotencyMismatch
		}
		var a answer
		for _, id := range old.RunIDs {
			if r := st.runs[id]; r.State == forkcore.Queued {
				a.wakes = append(a.wakes, engine.Wake{RunID: id, N: r.Wake})
			}
		}
		return a, nil
	}
	c := st.sessions[in.Dispatch.SessionID]
	if c == nil {
		return answer{}, notFound("session", in.Dispatch.SessionID)
	}
	if parent := st.runs[in.Dispatch.ParentRunID]; parent != nil && parent.Stop != "" {
		return answer{}, engine.ErrStopped
	}
	if launcher != nil {
		if launcher.Stop != "" {
			return answer{}, engine.ErrStopped
		}
		if int64(len(c.logs[launcher.AgentID])) != in.ExpectLen {
			return answer{}, engine.ErrLeaseLost
		}
	}
	if n := int64(len(in.Runs)); in.MaxDescendants > 0 {
		if err := (forkcore.Guard{MaxDescendants: in.MaxDescendants}).Admit(c.Descendants, n); err != nil {
			return answer{}, err
		}
	}
	if launcher != nil {
		st.appendAll(launcher, in.Launch)
		st.touchRun(launcher)
	}
	c.Descendants += int64(len(in.Runs))
	d := &dispatch{
		Dispatch: forkcore.Dispatch{
			ID: in.Dispatch.ID, SessionID: c.ID, ParentRunID: in.Dispatch.ParentRunID, Snapshot: in.Dispatch.Snapshot,
			Remaining: int64(len(in.Runs)), Quote: in.Dispatch.Quote, BudgetNanoUSD: in.Dispatch.BudgetNanoUSD,
			GateMode: in.Dispatch.GateMode, Gate: in.Dispatch.Gate, CreatedAt: st.now,
		},
		hash: in.RequestHash,
	}
	for _, r := range in.Runs {
		d.RunIDs = append(d.RunIDs, r.ID)
	}
	st.dispatches[d.ID] = d
	d.Notify, d.RetryOf = cmp.Or(in.Dispatch.Notify, forkcore.NotifyAllDone), in.Dispatch.RetryOf
	if parent := st.runs[d.ParentRunID]; parent != nil {
		d.above = st.dispatches[parent.DispatchID]
	}
	if in.Deadline > 0 {
		d.Deadline = st.now.Add(in.Deadline)
	}
	closed := d.Gate == forkcore.GateClosed
	if closed {
		d.Generation, d.LeaderRunID = 1, d.RunIDs[0]
		st.gateHistory(d, "closed", d.RunIDs[0], "dispatch")
	}
	st.touchDispatch(d)
	for i, r := range in.Runs {
		state := forkcore.Queued
		if closed && i > 0 {
			state = forkcore.Parked
		}
		r.Leader = closed && i == 0
		st.appendAll(st.createRun(r, state), in.Logs[i])
	}
	return answer{wakes: st.wakes, created: true}, nil
}

func (st *step) gateHistory(d *dispatch, what, runID, cause string) {
	d.GateHistory = append(d.GateHistory, forkcore.GateEvent{At: st.now, Generation: d.Generation, Type: what, RunID: runID, Cause: cause})
	st.touchDispatch(d)
}

// sleepers are the children that the gate holds and nobody stopped.
func (st *step) sleepers(d *dispatch) (runs []*run) {
	for _, id := range d.RunIDs {
		if r := st.runs[id]; r.State == forkcore.Parked && r.Stop == "" {
			runs = append(runs, r)
		}
	}
	return runs
}

func (st *step) openGate(d *dispatch, runID, cause string) {
	d.Gate, d.opened, d.Cold, d.limit = forkcore.GateOpen, st.now, false, time.Time{}
	st.gateHistory(d, "opened", runID, cause)
	for _, r := range st.sleepers(d) {
		st.setState(r, forkcore.Queued)
	}
}

func (st *step) lead(d *dispatch, r *run) {
	d.LeaderRunID, r.Leader = r.ID, true
	st.touchRun(r)
}

// promoteLeader lets the next child lead after the leader's end; with none left the gate opens.
func (st *step) promoteLeader(d *dispatch, old *run) {
	old.Leader, d.limit = false, time.Time{}
	next := st.sleepers(d)
	if len(next) == 0 {
		st.openGate(d, old.ID, "leader_ended")
		d.opened = time.Time{} // nobody wrote anything: who comes next leads again
		return
	}
	st.lead(d, next[0])
	st.setState(next[0], forkcore.Queued)
	st.gateHistory(d, "promoted", next[0].ID, "leader_ended")
}
