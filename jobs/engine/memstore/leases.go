package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// Accept implements engine.Store.
func (s *Store) Accept(ctx context.Context, in engine.Accept) (engine.Accepted, error) {
	c, leave, err := s.lookup(ctx, "accept", in.Run.SessionID)
	if err != nil {
		return engine.Accepted{}, err
	}
	defer leave()
	names := []string{"item:" + in.ItemID}
	if in.IdempotencyKey != "" {
		names = append(names, "key:"+in.IdempotencyKey)
	}
	if known, ok := c.accepted[names[len(names)-1]]; ok {
		if in.IdempotencyKey != "" && known.hash != in.RequestHash {
			return engine.Accepted{}, fmt.Errorf("accept: %w", forkcore.ErrIdempotencyMismatch)
		}
		// A token that comes again proves the very same call, whose answer was lost.
		if r := s.runs[known.run]; known.token == in.Holder.Token && r.State == forkcore.Running && r.token == in.Holder.Token {
			return engine.Accepted{RunID: r.ID, Started: true, Lease: r.lease()}, nil
		}
		return engine.Accepted{RunID: known.run}, nil
	}

	st := s.begin()
	c.put(forkcore.InboxItem{ID: in.ItemID, Kind: "message", Text: in.Text, At: st.now})
	out := engine.Accepted{RunID: c.ActiveRunID, Started: c.ActiveRunID == ""}
	if active := s.runs[c.ActiveRunID]; active != nil && active.Stop != "" {
		c.follow = in.ItemID // a turn that was asked to stop will not read it: another one follows
	}
	note := acceptance{run: c.ActiveRunID, hash: in.RequestHash}
	if out.Started {
		r := st.startTurn(in.Run, forkcore.Running)
		st.grant(r, in.Holder.Executor, in.Holder.Token)
		out.RunID, note.run, note.token = r.ID, r.ID, in.Holder.Token
	} else {
		st.touchSession(c) // whoever watches sees that something waits
	}
	for _, name := range names {
		c.accepted[name] = note
	}
	st.finish()
	if out.Started {
		out.Lease = s.runs[out.RunID].lease()
	}
	return out, nil
}

func (r *run) lease() engine.Lease {
	l := engine.Lease{
		Run:    r.Run,
		Holder: engine.Holder{SessionID: r.SessionID, RunID: r.ID, Executor: r.executor, Epoch: r.epoch, Token: r.token},
	}
	for _, row := range r.rows {
		if _, open := r.open[row.N]; open {
			l.OpenRows = append(l.OpenRows, row)
		}
	}
	return l
}

func (st *step) grant(r *run, executor, token string) {
	r.epoch++
	r.executor, r.token = executor, token
	r.op = "" // what the predecessor did last is not to be answered again
	if r.StartedAt.IsZero() {
		r.StartedAt = st.now
	}
	// An executor that dies before its first beat must be found silent as well.
	if _, known := st.beats[executor]; !known {
		st.beats[executor] = st.now
	}
}

func (st *step) dropLease(r *run) {
	delete(st.signals[r.executor], r.ID)
	r.executor, r.token = "", ""
}

// TakeLease implements engine.Store.
func (s *Store) TakeLease(ctx context.Context, w engine.Wake, executor, token string, foreground bool) (engine.Lease, error) {
	runID := w.RunID
	leave, err := s.enter(ctx, "take lease", runID)
	if err != nil {
		return engine.Lease{}, err
	}
	defer leave()
	r := s.runs[runID]
	switch {
	case r == nil:
		return engine.Lease{}, notFound("run", runID)
	case r.State == forkcore.Running && r.token == token:
		return r.lease(), nil // the answer of this very call was lost
	case r.State != forkcore.Queued || r.Wake != w.N:
		return engine.Lease{}, fmt.Errorf("take lease: %w", engine.ErrStale)
	}
	st := s.begin()
	defer st.finish()
	if r.Stop != "" {
		st.obeyStop(r)
		for _, w := range st.wakes { // this call cannot answer them: the next sweep does
			s.runs[w.RunID].due = st.now
		}
		return engine.Lease{}, fmt.Errorf("take lease: %w", engine.ErrStale)
	}
	if d := s.dispatches[r.DispatchID]; d != nil {
		fresh := r.Usage == (forkcore.Usage{}) && r.Cost == (forkcore.Cost{})
		if d.Gate == forkcore.GateClosed && d.LeaderRunID != r.ID && (fresh || d.Cold) {
			st.setState(r, forkcore.Parked)
			return engine.Lease{}, fmt.Errorf("take lease: %w", engine.ErrParked)
		}
		if d.Gate == forkcore.GateOpen && (d.Cold || fresh && st.now.Sub(d.opened) > gateTTL) {
			// The shared entry is gone by now: write it again before the others read.
			d.Generation++
			d.Gate = forkcore.GateClosed
			st.lead(d, r)
			cause := "expired"
			if d.Cold {
				cause = "other_key"
			}
			st.gateHistory(d, "closed", r.ID, cause)
		}
	}
	if !foreground {
		st.toBackground(r)
		for _, w := range st.wakes { // of a call that this one answers: the next sweep hands it out
			s.runs[w.RunID].due = st.now
		}
	}
	st.setState(r, forkcore.Running)
	st.grant(r, executor, token)
	l := r.lease()
	l.Run.Version, l.Run.UpdatedAt = l.Run.Version+1, st.now // as finish will leave them
	return l, nil
}

// requeue takes the lease away and lets a worker go on from the log.
func (st *step) requeue(r *run) {
	st.dropLease(r)
	st.setState(r, forkcore.Queued)
	st.toBackground(r)
}

// toBackground notes that a run that nobody holds goes on in a worker.
func (st *step) toBackground(r *run) {
	if r.Background {
		return
	}
	r.Background = true
	st.mark(r, forkcore.Marker{Type: forkcore.MarkerBackground})
	st.touchRun(r)
	st.detach(r)
}

// detach answers the call that waits for an agent: it will hear of the end later.
func (st *step) detach(r *run) {
	if r.Awaited {
		r.Awaited = false
		st.touchRun(r)
		st.wakeParent(r)
	}
}

// wakeParent lets a run go on that waits for the end of agents, because of what became of one of them.
func (st *step) wakeParent(r *run) {
	if parent := st.runs[r.ParentRunID]; parent != nil && parent.State == forkcore.Waiting && parent.children {
		st.setState(parent, forkcore.Queued)
	}
}

// awaitedBy lists the agents that a run waits for.
func (st *step) awaitedBy(parent *run) (agents []*run) {
	for _, r := range st.sessions[parent.SessionID].runs {
		if r.ParentRunID == parent.ID && r.Awaited && !r.State.Ended() {
			agents = append(agents, r)
		}
	}
	return agents
}

// Release implements engine.Store.
func (s *Store) Release(ctx context.Context, h engine.Holder) ([]engine.Wake, error) {
	a, err := s.held(ctx, "release", h, nil, func(st *step, r *run) (answer, error) {
		st.requeue(r)
		return answer{wakes: st.wakes}, nil
	})
	return a.wakes, err
}

// Wait implements engine.Store.
func (s *Store) Wait(ctx context.Context, h engine.Holder, w engine.WaitFor) error {
	_, err := s.held(ctx, "wait", h, w, func(st *step, r *run) (answer, error) {
		if r.Stop != "" {
			return answer{}, engine.ErrStopped
		}
		for _, id := range w.Children {
			if c := st.runs[id]; c == nil || !c.Awaited || c.State.Ended() {
				return answer{}, engine.ErrInbox
			}
		}
		st.dropLease(r)
		st.setState(r, forkcore.Waiting)
		r.Reason, r.due, r.account, r.children = &w.Reason, st.now.Add(w.Delay), w.Account, len(w.Children) > 0
		if d := st.dispatches[r.DispatchID]; d != nil && w.Account != "" && d.Gate == forkcore.GateClosed && d.LeaderRunID == r.ID {
			d.limit = time.Time{}
			for _, f := range st.sleepers(d) { // they wait for what it waits for
				st.setState(f, forkcore.Waiting)
				f.Reason, f.account = &w.Reason, w.Account
			}
		}
		return answer{}, nil
	})
	return err
}

func (st *step) signal(r *run, kind string) {
	if r.executor == "" {
		return
	}
	if st.signals[r.executor] == nil {
		st.signals[r.executor] = map[string]string{}
	}
	if kind == "stop" || st.signals[r.executor][r.ID] == "" {
		st.signals[r.executor][r.ID] = kind
	}
}

// SignalBackground implements engine.Store.
func (s *Store) SignalBackground(ctx context.Context, runID string) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "signal background", runID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := s.runs[runID]
	if r == nil {
		return nil, notFound("run", runID)
	}
	if r.State.Ended() || r.Background {
		return nil, &forkcore.ConflictError{Message: "This run is not running in the foreground.", NextStep: "It already goes on without you, or has ended."}
	}
	st := s.begin()
	// The agents that it waits for go first, so that it wakes once.
	for _, c := range st.awaitedBy(r) {
		c.Awaited = false
		st.touchRun(c)
		if c.token != "" {
			st.signal(c, "background")
		} else {
			st.toBackground(c)
		}
	}
	switch {
	case r.token != "":
		st.detach(r)
		st.signal(r, "background")
	case r.children:
		st.requeue(r)
	default:
		st.toBackground(r)
	}
	st.finish()
	return st.wakes, nil
}

// Heartbeat implements engine.Store.
func (s *Store) Heartbeat(ctx context.Context, executor string) ([]engine.Signal, error) {
	leave, err := s.enter(ctx, "heartbeat")
	if err != nil {
		return nil, err
	}
	defer leave()
	var signals []engine.Signal
	if _, known := s.beats[executor]; !known {
		signals = append(signals, engine.Signal{Kind: "swept"})
	}
	s.beats[executor] = s.begin().now
	for run, kind := range s.signals[executor] {
		signals = append(signals, engine.Signal{RunID: run, Kind: kind})
	}
	delete(s.signals, executor)
	return signals, nil
}

// Goodbye implements engine.Store.
func (s *Store) Goodbye(ctx context.Context, executor string) error {
	leave, err := s.enter(ctx, "goodbye")
	if err != nil {
		return err
	}
	defer leave()
	s.beats[executor] = time.Time{}
	return nil
}

// Sweep implements engine.Store.
func (s *Store) Sweep(ctx context.Context, dead, redue time.Duration) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "sweep")
	if err != nil {
		return nil, err
	}
	defer leave()
	st := s.begin()
	for executor, beat := range s.beats {
		if st.now.Sub(beat) <= dead {
			continue
		}
		for _, c := range s.order {
			for _, r := range c.runs {
				if r.State == forkcore.Running && r.executor == executor {
					st.requeue(r)
				}
			}
		}
		delete(s.signals, executor)
		delete(s.beats, executor)
	}
	for _, c := range s.order {
		for _, r := range c.runs {
			if d := s.dispatches[r.DispatchID]; d != nil && d.Gate == forkcore.GateClosed && !d.limit.IsZero() && !d.limit.After(st.now) {
				st.openGate(d, d.LeaderRunID, "limit")
			}
			switch w := (engine.Wake{RunID: r.ID, N: r.Wake}); {
			case r.due.After(st.now), r.State == forkcore.Waiting && (r.account != "" || r.children):
			case r.State == forkcore.Waiting:
				st.requeue(r)
			case r.State == forkcore.Queued && !slices.Contains(st.wakes, w):
				st.wakes = append(st.wakes, w)
			}
		}
	}
	st.endLate()
	for _, w := range st.wakes {
		s.runs[w.RunID].due = st.now.Add(redue)
	}
	st.finish()
	return st.wakes, nil
}

// endLate asks the children of dispatches past their deadline to stop.
func (st *step) endLate() {
	for _, d := range st.dispatches {
		if d.Remaining == 0 || d.Deadline.IsZero() || d.Deadline.After(st.now) || d.late {
			continue
		}
		d.late = true
		var late []*run
		for _, id := range d.RunIDs {
			if r := st.runs[id]; !r.State.Ended() {
				st.wishStop(r, forkcore.WishDeadline)
				late = append(late, r)
			}
		}
		for _, r := range late {
			if r.Stop == forkcore.WishDeadline {
				st.obeyStop(r)
			}
		}
	}
}
