package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"forkyard/forkcore"
)

// Execute takes the lease for a wake and advances the run as far as it goes.
// It is what a worker does with a task. A wake that was overtaken or whose gate is
// closed is a quiet end; the only error is a database that cannot be reached.
func (e *Engine) Execute(ctx context.Context, w Wake) error {
	return e.execute(ctx, w, false)
}

func (e *Engine) execute(ctx context.Context, w Wake, foreground bool) error {
	rctx, h, ok := e.hold(ctx, w.RunID, foreground)
	if !ok {
		return nil // draining: the due set brings the wake back elsewhere
	}
	defer e.letGo(h)
	token := randomToken()
	lease, err := e.o.Store.TakeLease(rctx, w, e.executor, token, foreground)
	switch {
	case errors.Is(err, forkcore.ErrStoreUnavailable):
		e.later(func(ctx context.Context) error { // it may have been granted
			l, err := e.o.Store.TakeLease(ctx, w, e.executor, token, foreground)
			if err != nil {
				return err
			}
			return e.release(ctx, l.Holder)
		})
		return err
	case errors.Is(err, ErrStale), errors.Is(err, ErrParked):
		return nil
	case errors.Is(err, forkcore.ErrNotFound):
		e.log.Warn("a task names a run that does not exist", "run", w.RunID)
		return nil
	case err != nil:
		return err
	}
	if foreground {
		e.setParent(h, lease.Run.ParentRunID)
		s, err := e.o.Store.Session(rctx, lease.Run.SessionID)
		if err == nil && s.AutoBackground > 0 {
			// Both times are the database's.
			defer e.moveAfter(rctx, h, lease.Run, s.AutoBackground-lease.Run.UpdatedAt.Sub(lease.Run.StartedAt))()
		}
	}
	e.drive(rctx, h, lease)
	return nil
}

// driver advances one run under one lease.
type driver struct {
	e       *Engine
	h       *held
	holder  Holder
	run     forkcore.Run
	taken   time.Time // the lease
	session forkcore.Session
	origin
	// inherited is the token count of the shared prefix, known from the fork's first answer; 0 before.
	inherited int64
	// answered is true once a request of this run got its answer; previousTail is the offset of its tail mark.
	answered     bool
	previousTail int64
	requests     int64
	// sent is the latest request that this driver got an answer to; nil before.
	sent *sent
	// failures counts the attempts of the present model call that failed, those before a wait included.
	failures int
}

// drive steps until the run ends, waits or goes elsewhere. Whatever happens,
// panics included, the lease does not outlive it.
func (e *Engine) drive(ctx context.Context, h *held, lease Lease) {
	d := &driver{e: e, h: h, holder: lease.Holder, run: lease.Run, taken: time.Now()}
	log := e.log.With("run", d.run.ID)
	defer func() {
		if r := recover(); r != nil {
			log.Error("panic in a run", "panic", r, "stack", string(debug.Stack()))
			d.end(ctx, fail(forkcore.CodeInternal, fmt.Sprintf("the run stopped on a fault in the program: %v", r), "Report this with the server's log; the partial transcript is kept"))
		}
	}()
	err := d.load(ctx, lease)
	if err == nil {
		err = d.loop(ctx)
	}
	if d.run.Kind == forkcore.KindMain && d.view != nil {
		e.views.put(d.session.ID, d.view)
	}
	d.settleError(ctx, err)
}

// settleError turns what stopped the loop into the run's state.
func (d *driver) settleError(ctx context.Context, err error) {
	cause := context.Cause(ctx)
	var wait *waitError
	switch {
	case err == nil:
	case errors.Is(err, ErrLeaseLost), errors.Is(cause, ErrLeaseLost):
		// Mostly true; should the lease be held all the same, it is given back, or nobody could ever take the run.
		d.e.log.Info("lease lost", "run", d.run.ID)
		d.release(ctx)
	case errors.Is(err, ErrStopped), errors.Is(cause, errStopAsked):
		d.end(ctx, d.stopped(ctx))
	case errors.As(err, &wait):
		d.wait(ctx, wait)
	case errors.Is(err, errHandOver), errors.Is(cause, errShutdown):
		d.release(ctx)
	case errors.Is(err, forkcore.ErrStoreUnavailable):
		d.e.log.Error("the database went away during a run", "run", d.run.ID, "err", err)
		d.release(ctx)
	case errors.Is(err, forkcore.ErrBudget):
		d.end(ctx, EndRun{State: forkcore.OverBudget, Reason: &forkcore.Reason{Code: "over_budget", Message: "the next request could cost more than what is left of the budget", NextStep: "Raise the budget and resume it; what was done until here is kept"}})
	default:
		var end *endError
		if errors.As(err, &end) {
			d.end(ctx, end.EndRun)
			return
		}
		d.e.log.Error("a run failed", "run", d.run.ID, "err", err)
		d.end(ctx, fail(forkcore.CodeInternal, err.Error(), "Report this with the server's log; the partial transcript is kept"))
	}
}

// stopped is the end of a run that was asked to stop; the store knows by which wish.
func (d *driver) stopped(ctx context.Context) EndRun {
	ctx, done := cleanup(ctx)
	defer done()
	wish := "cancel"
	if r, err := d.e.o.Store.Run(ctx, d.run.ID); err == nil && r.Stop != "" {
		wish = r.Stop
	}
	reason := forkcore.StopReason(wish)
	return EndRun{State: forkcore.StopState(wish), Reason: &reason}
}

// endError carries the end of a run out of the loop.
type endError struct{ EndRun }

func (e *endError) Error() string {
	if e.Reason != nil {
		return string(e.State) + ": " + e.Reason.Message
	}
	return string(e.State)
}

func fail(code, message, next string) EndRun {
	return EndRun{State: forkcore.Failed, Reason: &forkcore.Reason{Code: code, Message: message, NextStep: next}}
}

var errHandOver = errors.New("the run goes on in another executor")

// load fetches everything the loop needs and settles what a predecessor left open.
func (d *driver) load(ctx context.Context, lease Lease) error {
	var err error
	st := d.e.o.Store
	if d.session, err = st.Session(ctx, d.run.SessionID); err != nil {
		return fmt.Errorf("load session: %w", err)
	}
	for _, row := range lease.OpenRows {
		if err := d.settleAborted(ctx, row, 0, errors.New("its executor went away")); err != nil {
			return err
		}
	}
	rows, err := st.Requests(ctx, d.run.ID)
	if err != nil {
		return fmt.Errorf("load requests: %w", err)
	}
	for _, r := range rows {
		d.requests = max(d.requests, r.N)
		if r.Status == forkcore.RequestError && !r.KeyRefused && !r.Refresh && r.StartedAt.After(d.run.ResumedAt) {
			d.failures++
		}
		if r.Status != forkcore.RequestOK {
			continue
		}
		d.failures = 0
		if r.First && r.Usage != nil {
			d.inherited = d.inheritedBy(r, *r.Usage)
		}
		d.answered = true
		d.previousTail = tailMark(r)
	}
	if d.origin, err = d.e.begin(ctx, d.session, d.run); err != nil {
		if d.run.Kind == forkcore.KindFork && errors.Is(err, forkcore.ErrCorrupt) {
			return prefixMismatch(err)
		}
		return err
	}
	return d.catchUp(ctx)
}

// catchUp applies log entries that the view has not seen.
func (d *driver) catchUp(ctx context.Context) error {
	return d.e.replay(ctx, d.view, d.session.ID, d.run.AgentID, 0)
}

func (d *driver) loop(ctx context.Context) error {
	for {
		if d.h.wantsHandOver() {
			return errHandOver
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		var inbox []forkcore.InboxItem
		if d.run.Kind == forkcore.KindMain {
			var err error
			if inbox, err = d.e.o.Store.Inbox(ctx, d.session.ID); err != nil {
				return fmt.Errorf("read inbox: %w", err)
			}
		}
		if answered, err := d.answerAwaited(ctx, inbox); err != nil {
			return err
		} else if answered {
			continue
		}
		var err error
		switch dec := forkcore.Step(d.view, d.run.Kind, len(inbox)).(type) {
		case forkcore.CallModel:
			err = d.callModel(ctx)
		case forkcore.RunTools:
			err = d.runTools(ctx, dec.Calls)
		case forkcore.AwaitChildren:
			err = d.await(ctx, dec.RunIDs)
		case forkcore.Deliver:
			var replaced bool
			if replaced, err = d.replaceResults(ctx); err == nil && !replaced {
				err = d.deliver(ctx, dec.Answers, inbox)
			}
		case forkcore.Finish:
			end := EndRun{State: dec.State, Reason: dec.Reason}
			end.Report = d.report(dec.Final)
			if d.run.Kind == forkcore.KindMain && dec.State == forkcore.Done {
				end.CacheSafe, err = d.cacheSafe(ctx)
			}
			if err == nil {
				err = d.tryEnd(ctx, end)
			}
			if err == nil {
				return nil
			}
		}
		if errors.Is(err, errAwaiting) {
			return nil
		}
		if errors.Is(err, ErrInbox) {
			continue // something came in, or went, meanwhile: step again
		}
		if err != nil {
			return err
		}
	}
}

// cacheSafe is the slot of a main turn that is done: what was sent, and the answer to it.
func (d *driver) cacheSafe(ctx context.Context) (*forkcore.CacheSafeParams, error) {
	entries, err := d.e.o.Store.CacheEntries(ctx, d.session.ID)
	if err != nil {
		return nil, fmt.Errorf("load cache entries: %w", err)
	}
	c, err := forkcore.NewCacheSafeParams(d.view.Prefix, d.params, d.view.Len, d.view.Replacements, entries)
	return &c, err
}

// deliver writes one user message: the answers to the pending calls, then the
// inbox. It is born here, and the inbox items leave in the same step.
func (d *driver) deliver(ctx context.Context, answers [][]byte, inbox []forkcore.InboxItem) error {
	blocks := answers
	ids := make([]string, 0, len(inbox))
	for _, item := range inbox {
		text := forkcore.NeutralizeTags(forkcore.CleanText(item.Text))
		if item.Kind == "notification" {
			child, err := d.e.o.Store.Run(ctx, item.RunID)
			if err != nil {
				return fmt.Errorf("load the run of a notification: %w", err)
			}
			text = forkcore.Notification(child)
		}
		blocks = append(blocks, forkcore.AppendTextBlock(nil, text))
		ids = append(ids, item.ID)
	}
	return d.append(ctx, ids, d.message(forkcore.RoleUser, blocks))
}

func (d *driver) message(role forkcore.Role, blocks [][]byte) forkcore.Entry {
	raw := forkcore.EncodeMessage(role, blocks...)
	return forkcore.Entry{Kind: forkcore.EntryMessage, RunID: d.run.ID, Blob: forkcore.DigestOf(raw), Bytes: raw}
}

func (d *driver) marker(m forkcore.Marker) forkcore.Entry {
	return forkcore.Entry{Kind: forkcore.EntryMarker, RunID: d.run.ID, Marker: &m}
}

// append stores the entries' bytes, appends them and applies them to the view.
func (d *driver) append(ctx context.Context, takeInbox []string, entries ...forkcore.Entry) error {
	if err := d.putBytes(ctx, entries); err != nil {
		return err
	}
	if _, err := d.e.o.Store.Append(ctx, d.holder, d.view.Len, entries, takeInbox); err != nil {
		return err
	}
	return d.apply(entries)
}

func (d *driver) putBytes(ctx context.Context, entries []forkcore.Entry) error {
	var blobs [][]byte
	for _, en := range entries {
		switch {
		case en.Kind == forkcore.EntryMessage:
			blobs = append(blobs, en.Bytes)
		case en.Marker.Blob != nil:
			blobs = append(blobs, en.Marker.Bytes)
		}
	}
	if len(blobs) == 0 {
		return nil
	}
	if err := d.e.o.Store.PutBlobs(ctx, d.session.ID, blobs...); err != nil {
		return fmt.Errorf("store message bytes: %w", err)
	}
	return nil
}

func (d *driver) apply(entries []forkcore.Entry) error {
	for _, en := range entries {
		en.Seq = d.view.Len + 1
		if err := d.view.Apply(en); err != nil {
			return err
		}
	}
	return nil
}

// cleanup gives store calls that must happen after a cancelled run some time.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// report is what a child has to tell; nil for a main turn and without a text.
func (d *driver) report(final string) *forkcore.Report {
	switch {
	case final == "":
		return nil
	case d.run.Kind == forkcore.KindFork:
		r := forkcore.ParseReport(final)
		return &r
	case d.run.Kind == forkcore.KindAgent:
		return &forkcore.Report{Result: final, Text: final}
	}
	return nil
}

// end ends the run for a cause from outside the log. An inbox item does not
// keep it alive; it waits for the next turn.
func (d *driver) end(ctx context.Context, end EndRun) {
	ctx, done := cleanup(ctx)
	defer done()
	if end.Report == nil && d.view != nil {
		if last, ok := d.view.Last(); ok && last.Role == forkcore.RoleAssistant && d.view.Rounds > 0 {
			end.Report = d.report(last.Text()) // partial work stays visible
		}
	}
	if err := d.tryEnd(ctx, end); err != nil && !errors.Is(err, ErrLeaseLost) {
		d.e.log.Error("end a run", "run", d.run.ID, "err", err)
		d.release(ctx) // whoever takes it comes to an end of its own
	}
}

func (d *driver) tryEnd(ctx context.Context, end EndRun) error {
	candidate, err := forkcore.NewRunID(d.session.ID, entropy())
	if err != nil {
		return err
	}
	end.Candidate, end.CandidateTitle = candidate, ReportsTitle
	if d.run.Kind == forkcore.KindMain {
		end.CandidateTitle = InboxTitle
	}
	wakes, err := d.e.o.Store.EndRun(ctx, d.holder, end)
	if err != nil {
		return err
	}
	d.e.wake(ctx, d.h.foreground, d.run.ParentRunID, wakes)
	return nil
}

// waitError carries a run out of the loop that can go on only later.
type waitError struct{ WaitFor }

func (e *waitError) Error() string { return e.Reason.Message }

// wait parks the run until its time, without a worker.
func (d *driver) wait(ctx context.Context, w *waitError) {
	ctx, done := cleanup(ctx)
	defer done()
	err := d.e.o.Store.Wait(ctx, d.holder, w.WaitFor)
	switch {
	case err == nil && w.Account != "":
		// The key may have been accepted or replaced between the refusal and this step: then nobody else would wake it.
		if a, err := d.e.o.Store.Account(ctx, w.Account); err == nil && (a.Refused == nil || a.Successor != "") {
			if _, err := d.e.resume(ctx, w.Account, false); err != nil {
				d.e.log.Error("wake a run whose key was accepted", "run", d.run.ID, "err", err)
			}
		}
	case err == nil, errors.Is(err, ErrLeaseLost):
	case errors.Is(err, ErrStopped):
		d.end(ctx, d.stopped(ctx))
	default:
		d.e.log.Error("let a run wait", "run", d.run.ID, "err", err)
		d.release(ctx)
	}
}

// release lets the run go on elsewhere.
func (d *driver) release(ctx context.Context) {
	ctx, done := cleanup(ctx)
	defer done()
	if err := d.e.release(ctx, d.holder); err != nil && !errors.Is(err, ErrLeaseLost) {
		d.e.log.Error("give a run back", "run", d.run.ID, "err", err)
		d.e.later(func(ctx context.Context) error { return d.e.release(ctx, d.holder) })
	}
}

func (e *Engine) release(ctx context.Context, h Holder) error {
	wakes, err := e.o.Store.Release(ctx, h)
	if err != nil {
		return err
	}
	e.enqueue(ctx, wakes...)
	return nil
}
