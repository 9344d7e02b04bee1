package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// EndRun implements engine.Store.
func (s *Store) EndRun(ctx context.Context, h engine.Holder, e engine.EndRun) ([]engine.Wake, error) {
	const doing = "end run"
	do := func(st *step, r *run) (answer, error) {
		if !r.State.CanBecome(e.State) || !e.State.Ended() {
			return answer{}, &forkcore.ConflictError{Message: fmt.Sprintf("A %s run cannot end as %s.", r.State, e.State), NextStep: "Reload to see its present state."}
		}
		if e.State == forkcore.Done && r.Kind == forkcore.KindMain && len(s.sessions[r.SessionID].inbox) > 0 {
			return answer{}, engine.ErrInbox
		}
		st.endRun(r, e)
		return answer{wakes: st.wakes}, nil
	}
	if h.Token != "" {
		a, err := s.held(ctx, doing, h, e, do)
		return a.wakes, err
	}
	leave, err := s.enter(ctx, doing, h.RunID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := s.runs[h.RunID]
	op := stepName(doing, h, e)
	switch {
	case r == nil:
		return nil, notFound("run", h.RunID)
	case r.op == op:
		return r.answer.wakes, nil
	case r.State.Ended() || r.token != "":
		return nil, fmt.Errorf("%s: %w", doing, engine.ErrLeaseLost)
	}
	a, err := s.perform(doing, r, op, do)
	return a.wakes, err
}

// newTurn is an end that may start a turn although no executor named one.
func (st *step) newTurn(r *run) engine.EndRun {
	var e forkcore.Entropy
	rand.Read(e[:]) // never fails (crypto/rand)
	id, err := forkcore.NewRunID(r.SessionID, e)
	if err != nil {
		panic(err) // stored ids are well-formed
	}
	if r.Kind == forkcore.KindMain {
		return engine.EndRun{Candidate: id, CandidateTitle: engine.InboxTitle}
	}
	return engine.EndRun{Candidate: id, CandidateTitle: engine.ReportsTitle}
}

// endRun ends a run; the caller has checked that its state may become this one.
func (st *step) endRun(r *run, e engine.EndRun) {
	c := st.sessions[r.SessionID]
	st.closeRows(c, r)
	st.setState(r, e.State)
	r.EndedAt, r.Reason, r.Report = st.now, e.Reason, e.Report
	st.dropLease(r)
	c.ActiveRuns--
	st.touchSession(c)
	if r.Kind == forkcore.KindMain {
		st.mark(r, forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: e.State, Reason: e.Reason})
		c.ActiveRunID, c.LastRunID, c.LastState, c.LastReason = "", r.ID, e.State, e.Reason
		if e.State == forkcore.Done && e.CacheSafe != nil {
			slot := *e.CacheSafe
			slot.Version, slot.RunID, slot.At = 1, r.ID, st.now
			if c.CacheSafe != nil {
				slot.Version += c.CacheSafe.Version
			}
			c.CacheSafe = &slot
		}
		if c.mustFollow(r) {
			st.startCandidate(c, e)
		}
		return
	}
	st.endChild(c, st.dispatches[r.DispatchID], r, e)
}

// mustFollow says whether what waits in the inbox wants a turn after the end of this one: a text that came after its
// stop wish, or whatever a failed turn left. One that failed before its first request would only fail again.
func (c *session) mustFollow(r *run) bool {
	late := slices.ContainsFunc(c.inbox, func(item forkcore.InboxItem) bool { return item.ID == c.follow })
	return late || (r.State == forkcore.Failed && r.Requests > 0 && len(c.inbox) > 0)
}

// closeRows removes the reservations of requests whose end nobody will tell. What
// their first event told is what they used at least; a cost it did not tell is unknown.
func (st *step) closeRows(c *session, r *run) {
	for i := range r.rows {
		row := &r.rows[i]
		reserved, open := r.open[row.N]
		if !open {
			continue
		}
		ended := st.now
		row.Status, row.EndedAt, row.First = forkcore.RequestAborted, &ended, false
		row.Estimated = row.Estimated || row.Usage != nil
		usage, cost := sums(*row)
		st.bill(r, -reserved, usage, cost)
		st.publishRow(c, *row)
	}
	clear(r.open)
}

func (st *step) endChild(c *session, d *dispatch, r *run, e engine.EndRun) {
	st.touch(r, forkcore.EventNotification)
	st.touch(d, "")
	d.notices = append(d.notices, r.ID)
	d.Undelivered++
	d.Remaining--
	if d.Gate == forkcore.GateClosed && d.LeaderRunID == r.ID {
		st.promoteLeader(d, r)
	}
	if d.Remaining == 0 {
		d.EndedAt = st.now
		st.touchDispatch(d)
	}
	if r.Awaited {
		st.deliverNotices(c, d, engine.EndRun{})
		st.wakeParent(r)
	} else if d.Notify == forkcore.NotifyEach || d.Remaining == 0 && d.Notify != forkcore.NotifyManual {
		st.deliverNotices(c, d, e)
	}
}

// notice names what a run's latest end has to tell: a resumed run tells again.
func notice(r *run) string { return fmt.Sprintf("ended_%s.%d", r.ID, r.Wake) }

// deliverNotices moves what the children have to tell to the session's inbox
// and starts a turn when nobody else would read it.
func (st *step) deliverNotices(c *session, d *dispatch, e engine.EndRun) {
	any := len(d.notices) > 0
	for _, id := range d.notices {
		c.put(forkcore.InboxItem{ID: notice(st.runs[id]), Kind: "notification", RunID: id, At: st.now})
	}
	d.notices, d.Undelivered = nil, 0
	st.touchDispatch(d)
	if any && !d.stopped {
		st.startCandidate(c, e)
	}
}

// DeliverNotices implements engine.Store.
func (s *Store) DeliverNotices(ctx context.Context, dispatchID string) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "deliver notices", dispatchID)
	if err != nil {
		return nil, err
	}
	defer leave()
	d := s.dispatches[dispatchID]
	switch {
	case d == nil:
		return nil, notFound("dispatch", dispatchID)
	case len(d.notices) == 0:
		return nil, &forkcore.ConflictError{Message: "No run of this fan-out has anything to tell that was not handed over.", NextStep: "Wait until one of them ends."}
	}
	st := s.begin()
	d.stopped = false // whoever asks wants the turn that a stop held back
	st.deliverNotices(s.sessions[d.SessionID], d, st.newTurn(s.runs[d.RunIDs[0]]))
	st.finish()
	return st.wakes, nil
}

// Resume implements engine.Store.
func (s *Store) Resume(ctx context.Context, runID string) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "resume", runID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := s.runs[runID]
	switch {
	case r == nil:
		return nil, notFound("run", runID)
	case !r.State.Ended():
		return nil, &forkcore.ConflictError{Message: fmt.Sprintf("This run has not ended: it is %s.", r.State), NextStep: "Wait for its end, or cancel it."}
	case !r.CanResume():
		return nil, &forkcore.ConflictError{Message: fmt.Sprintf("A run that ended as %s cannot be resumed.", r.State), NextStep: "Dispatch its directive again, or send a message."}
	}
	st, c, d := s.begin(), s.sessions[r.SessionID], s.dispatches[r.DispatchID]
	c.inbox = slices.DeleteFunc(c.inbox, func(item forkcore.InboxItem) bool { return item.ID == notice(r) })
	d.notices = slices.DeleteFunc(d.notices, func(id string) bool { return id == r.ID })
	d.Undelivered = int64(len(d.notices))
	r.EndedAt, r.Reason, r.Report, r.Stop, r.Awaited, r.ResumedAt = time.Time{}, nil, nil, "", false, st.now
	c.ActiveRuns++
	st.touchSession(c)
	d.Remaining++
	d.EndedAt, d.stopped = time.Time{}, false
	st.touchDispatch(d)
	st.mark(r, forkcore.Marker{Type: forkcore.MarkerResumed})
	st.setState(r, forkcore.Queued)
	st.finish()
	return st.wakes, nil
}

// SetBudget implements engine.Store.
func (s *Store) SetBudget(ctx context.Context, id string, nanoUSD int64) error {
	leave, err := s.enter(ctx, "set budget", id)
	if err != nil {
		return err
	}
	defer leave()
	st := s.begin()
	if c := s.sessions[id]; c != nil {
		c.BudgetNanoUSD = nanoUSD
		st.touchSession(c)
	} else if d := s.dispatches[id]; d != nil {
		d.BudgetNanoUSD = nanoUSD
		st.touchDispatch(d)
	} else {
		return notFound("session or dispatch", id)
	}
	st.finish()
	return nil
}

// startCandidate starts a turn for what waits in the inbox of an idle session.
func (st *step) startCandidate(c *session, e engine.EndRun) {
	if e.Candidate == "" || c.ActiveRunID != "" || st.runs[e.Candidate] != nil {
		return
	}
	st.startTurn(forkcore.Run{
		ID: e.Candidate, SessionID: c.ID, AgentID: c.ID, Kind: forkcore.KindMain, Title: e.CandidateTitle, Background: true,
	}, forkcore.Queued)
}

// Stop implements engine.Store. An idle session has nothing to stop: no ids, no error.
func (s *Store) Stop(ctx context.Context, sessionID, scope string) ([]string, []engine.Wake, error) {
	if scope != "turn" && scope != "tree" {
		return nil, nil, forkcore.Invalid("scope", "must be turn or tree")
	}
	c, leave, err := s.lookup(ctx, "stop", sessionID)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	st := s.begin()
	var ids []string
	var runs []*run
	for _, r := range c.runs {
		part := r.ID == c.ActiveRunID || r.Awaited && r.ParentRunID == c.ActiveRunID // what a turn waits for is part of it
		if !r.State.Ended() && (scope == "tree" || part) {
			ids, runs = append(ids, r.ID), append(runs, r)
		}
	}
	// All wishes first, so that no end below promotes or wakes a run that is to end too.
	for _, r := range runs {
		st.wishStop(r, scope)
		if d := s.dispatches[r.DispatchID]; d != nil {
			d.stopped = true
			st.touch(d, "")
		}
	}
	for _, r := range runs {
		st.obeyStop(r)
	}
	st.finish()
	return ids, st.wakes, nil
}

// Cancel implements engine.Store.
func (s *Store) Cancel(ctx context.Context, runID string) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "cancel", runID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := s.runs[runID]
	if r == nil {
		return nil, notFound("run", runID)
	}
	if r.State.Ended() {
		return nil, &forkcore.ConflictError{Message: fmt.Sprintf("This run has ended already (%s).", r.State), NextStep: "Nothing is left to cancel."}
	}
	st := s.begin()
	st.wishStop(r, "cancel")
	st.obeyStop(r)
	st.finish()
	return st.wakes, nil
}

// wishStop notes a wish; it is one-way and the first one stays.
func (st *step) wishStop(r *run, wish string) {
	if r.Stop == "" {
		r.Stop = wish
		st.touchRun(r)
	}
}

// obeyStop ends a run that nobody executes, and tells the executor otherwise.
func (st *step) obeyStop(r *run) {
	switch {
	case r.State == forkcore.Running:
		st.signal(r, "stop")
	case !r.State.Ended():
		reason, end := forkcore.StopReason(r.Stop), st.newTurn(r)
		end.State, end.Reason = forkcore.StopState(r.Stop), &reason
		st.endRun(r, end)
	}
}
