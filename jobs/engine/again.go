package engine

import (
	"context"
	"fmt"

	"forkyard/forkcore"
)

// Resume lets a run go on that ended as failed or over budget. A child goes on
// under its own id from where its log ends; a main turn has ended for good, so a new turn
// takes up its work. It answers the id of the run that goes on.
func (e *Engine) Resume(ctx context.Context, runID string) (string, error) {
	r, err := e.o.Store.Run(ctx, runID)
	if err != nil {
		return "", err
	}
	s, err := e.o.Store.Session(ctx, r.SessionID)
	if err != nil {
		return "", err
	}
	if r.Kind == forkcore.KindMain {
		return e.resumeTurn(ctx, s, r)
	}
	if r.State == forkcore.OverBudget {
		if err := e.affordResumed(ctx, s, r); err != nil {
			return "", err
		}
	}
	wakes, err := e.o.Store.Resume(ctx, runID)
	if err != nil {
		return "", err
	}
	e.enqueue(ctx, wakes...)
	return runID, nil
}

func (e *Engine) resumeTurn(ctx context.Context, s forkcore.Session, r forkcore.Run) (string, error) {
	switch {
	case !r.State.Ended():
		return "", &forkcore.ConflictError{Message: fmt.Sprintf("This turn has not ended: it is %s.", r.State), NextStep: "Wait for its end, or stop it."}
	case r.State == forkcore.Done:
		return "", &forkcore.ConflictError{Message: "This turn is done.", NextStep: "Send a message."}
	case s.LastRunID != r.ID || s.ActiveRunID != "":
		return "", &forkcore.ConflictError{Message: "The conversation went on after this turn.", NextStep: "Send a message."}
	}
	if err := e.affordTurn(s); err != nil {
		return "", err
	}
	return e.SendMessage(ctx, s.ID, forkcore.ContinueText, "resume "+r.ID)
}

// affordResumed refuses a child whose next request could not be reserved still.
func (e *Engine) affordResumed(ctx context.Context, s forkcore.Session, r forkcore.Run) error {
	d, err := e.o.Store.Dispatch(ctx, r.DispatchID)
	if err != nil {
		return err
	}
	need := d.Quote.ReserveNanoUSD
	if need == nil {
		return nil
	}
	if s.BudgetNanoUSD > 0 {
		if err := fits("session", s.BudgetNanoUSD-s.Cost.NanoUSD-s.ReservedNanoUSD, *need); err != nil {
			return err
		}
	}
	if d.BudgetNanoUSD > 0 {
		return fits("fan-out", d.BudgetNanoUSD-d.Cost.NanoUSD, *need)
	}
	return nil
}

// ResumeDispatch resumes every child of a dispatch that ended as failed or over
// budget and answers their ids. None is a *forkcore.ConflictError.
func (e *Engine) ResumeDispatch(ctx context.Context, dispatchID string) ([]string, error) {
	_, runs, err := e.dispatchWithRuns(ctx, dispatchID)
	if err != nil {
		return nil, err
	}
	var resumed []string
	for _, r := range runs {
		if !r.CanResume() {
			continue
		}
		id, err := e.Resume(ctx, r.ID)
		if err != nil {
			return resumed, err
		}
		resumed = append(resumed, id)
	}
	if len(resumed) == 0 {
		return nil, &forkcore.ConflictError{Message: "No run of this fan-out ended as failed or over budget.", NextStep: "Dispatch again what is still wanted."}
	}
	return resumed, nil
}

// Retry starts the directives of a dispatch's failed children again, or of the
// children named, as a new fan-out over the same snapshot: while the entry lives they
// read what the first one wrote. An idempotency key names the new dispatch.
func (e *Engine) Retry(ctx context.Context, dispatchID string, spec forkcore.RetrySpec, idempotencyKey string) (forkcore.Dispatch, []forkcore.Run, error) {
	var none forkcore.Dispatch
	old, runs, err := e.dispatchWithRuns(ctx, dispatchID)
	if err != nil {
		return none, nil, err
	}
	s, err := e.o.Store.Session(ctx, old.SessionID)
	if err != nil {
		return none, nil, err
	}
	var specs []childSpec
	wanted := map[string]bool{}
	for _, id := range spec.Runs {
		wanted[id] = true
	}
	var bad forkcore.InvalidError
	for _, r := range runs {
		switch {
		case wanted[r.ID] && !r.State.Ended():
			bad.Add("runs", "%s has not ended: it is %s", r.ID, r.State)
		case wanted[r.ID], len(spec.Runs) == 0 && r.State.Ended() && r.State != forkcore.Done:
			specs = append(specs, childSpec{title: r.Title, prompt: r.Directive, toolUseID: r.ToolUseID})
		}
		delete(wanted, r.ID)
	}
	for id := range wanted {
		bad.Add("runs", "%q is no run of this fan-out", id)
	}
	if len(bad.Fields) > 0 {
		return none, nil, &bad
	}
	if len(specs) == 0 {
		return none, nil, &forkcore.ConflictError{Message: "No run of this fan-out failed.", NextStep: "Name in runs which ones to start again."}
	}
	snap, err := e.o.Store.Snapshot(ctx, s.ID, old.Snapshot)
	if err != nil {
		return none, nil, err
	}
	entries, err := e.prefixing(ctx, snap)
	if err != nil {
		return none, nil, err
	}
	plan := &dispatchPlan{snapshot: snap, specs: specs, gate: old.GateMode, notify: old.Notify, retryOf: old.ID, budget: old.BudgetNanoUSD}
	e.price(plan, s, entries, forkcore.Jobs{})
	id, err := forkcore.NewDispatchID(s.ID, entropyOf("retry\x00"+old.ID, idempotencyKey))
	if err != nil {
		return none, nil, err
	}
	return e.startForks(ctx, s, plan, id, hashHex(spec.Runs...))
}

// prefixing lists what the provider is believed to hold now of a snapshot's bytes.
func (e *Engine) prefixing(ctx context.Context, snap forkcore.Snapshot) ([]forkcore.CacheEntry, error) {
	loaded, err := e.snapshots.get(ctx, snap.SessionID, snap.ID)
	if err != nil {
		return nil, fmt.Errorf("load snapshot: %w", err)
	}
	entries, err := e.o.Store.CacheEntries(ctx, snap.SessionID)
	if err != nil {
		return nil, fmt.Errorf("load cache entries: %w", err)
	}
	var held []forkcore.CacheEntry
	for _, en := range entries {
		if loaded.base.StartsWith(en) {
			held = append(held, en)
		}
	}
	return held, nil
}

// SetBudget sets the budget of a session or a dispatch in US dollars; nil = none.
func (e *Engine) SetBudget(ctx context.Context, id string, usd *float64) error {
	var nano int64
	if usd != nil {
		var err error
		if nano, err = nanoUSD(*usd); err != nil {
			return forkcore.Invalid("budget_usd", err.Error())
		}
	}
	return e.o.Store.SetBudget(ctx, id, nano)
}

// DeliverNotices hands over what ended children of a dispatch have to tell,
// whatever its policy says, and starts a turn for it when the session is idle.
func (e *Engine) DeliverNotices(ctx context.Context, dispatchID string) error {
	wakes, err := e.o.Store.DeliverNotices(ctx, dispatchID)
	if err != nil {
		return err
	}
	e.enqueue(ctx, wakes...)
	return nil
}
