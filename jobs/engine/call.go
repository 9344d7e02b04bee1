package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"forkyard/forkcore"
)

// The retry budget of one model call.
const (
	maxAttempts  = 4
	maxRetryWait = 60 * time.Second
	// longWait is the retry-after from which a run waits without a worker.
	longWait = 10 * time.Second
)

// callModel sends the history, with retries, and appends the answer. Partial
// answers are never kept.
func (d *driver) callModel(ctx context.Context) error {
	ungated, err := d.waitForGate(ctx)
	if err != nil {
		return err
	}
	var waited time.Duration
	for attempt := d.failures + 1; ; attempt++ {
		if err := d.admit(ctx); err != nil {
			return err
		}
		account := d.e.account()
		err := d.attempt(ctx, attempt, ungated)
		var me *forkcore.ModelError
		if !errors.As(err, &me) {
			d.failures = 0
			return err
		}
		if err := d.failedAttempt(ctx, me, account); err != nil {
			return err // a refused key is none of the run's failures
		}
		d.failures = attempt
		wait := backoff(attempt)
		if me.RetryAfter > wait {
			wait = me.RetryAfter
		}
		waited += wait
		if !me.Retryable || attempt >= maxAttempts || (waited > maxRetryWait && me.RetryAfter == 0) {
			return &endError{fail(me.Code, providerMessage(me, attempt), nextStepFor(me))}
		}
		d.e.log.Warn("model call failed, trying again", "run", d.run.ID, "attempt", attempt, "wait", wait, "err", me)
		switch {
		case me.RetryAfter > 0 && account != "":
			continue // the account's cool-down is what it waits for
		case wait > longWait:
			code := forkcore.WaitProvider
			if me.Code == forkcore.CodeRateLimited {
				code = forkcore.WaitRateLimit
			}
			return &waitError{WaitFor{Delay: wait, Reason: forkcore.Reason{
				Code:     code,
				Message:  fmt.Sprintf("%s; the provider wants it tried again at %s", providerMessage(me, attempt), clock(wait)),
				NextStep: "Nothing: it goes on by itself then. Cancel it if that is too late",
			}}}
		}
		if err := d.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// backoff is exponential from half a second with full jitter on its upper half.
func backoff(attempt int) time.Duration {
	base := 500 * time.Millisecond << (attempt - 1)
	return base/2 + rand.N(base/2+1)
}

func providerMessage(me *forkcore.ModelError, attempt int) string {
	if attempt > 1 {
		return fmt.Sprintf("%s (after %d attempts)", me.Message, attempt)
	}
	return me.Message
}

// nextStepFor looks at the answer as well: a request that the provider calls
// invalid would be refused again.
func nextStepFor(me *forkcore.ModelError) string {
	if me.Code == forkcore.CodeProviderError && (me.Status == 400 || me.Status == 404 || me.Status == 422) {
		return "Start a session with other settings (model, thinking, effort): the provider's message says which one it refuses"
	}
	return nextStep(me.Code)
}

func nextStep(code string) string {
	switch code {
	case forkcore.CodeProviderAuth:
		return "Check ANTHROPIC_API_KEY and the account's credit, restart, then send again"
	case forkcore.CodeOverloaded, forkcore.CodeRateLimited:
		return "Wait a minute and send again; the conversation is kept"
	case forkcore.CodeContextWindow:
		return "Start a new session with a summary of this one"
	case forkcore.CodeStreamCut, forkcore.CodeInvalidResponse:
		return "Send again; if it repeats, check the endpoint and the network between"
	}
	return "Check ANTHROPIC_BASE_URL and that the endpoint is up, then send again; the conversation is kept"
}

// waitForGate lets a parent's request after an all-forks message wait until the
// leader's response makes the shared placeholders readable, at most ParentWait from the
// dispatch, or from when the run went on. ungated says that a request goes out before
// the response of the one that writes what they share has begun, as far as a gate would know.
func (d *driver) waitForGate(ctx context.Context) (ungated bool, err error) {
	if d.run.Kind == forkcore.KindFork && !d.answered {
		if d.run.Leader {
			return false, nil
		}
		dis, err := d.e.o.Store.Dispatch(ctx, d.run.DispatchID)
		if err != nil {
			return false, fmt.Errorf("load dispatch: %w", err)
		}
		return dis.Gate != forkcore.GateOpen && len(dis.RunIDs) > 1, nil
	}
	if d.view.Launch == nil || !d.view.Launch.All {
		return false, nil
	}
	for {
		dis, err := d.e.o.Store.Dispatch(ctx, d.view.Launch.DispatchID)
		if err != nil {
			return false, fmt.Errorf("load dispatch: %w", err)
		}
		since := dis.CreatedAt
		if since.Before(d.taken) {
			since = d.taken // it waited for something else meanwhile, and its forks may have as well
		}
		closed := dis.Gate == forkcore.GateClosed || dis.Cold
		if late := time.Since(since) >= d.e.o.ParentWait; late || !closed {
			return late && closed, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// request is one attempt's bytes and what is expected of it.
type request struct {
	plan forkcore.Planned
	body *forkcore.Body
	row  forkcore.RequestRow
	// racing requests may write what another one, sent before their response began, writes as well.
	racing bool
	lost   *forkcore.CacheEntry // see forkcore.Outcome
	raced  *forkcore.CacheEntry
	// counted are the tokens of prefixes that the provider has counted: an estimate does not replace them.
	counted map[forkcore.Digest]int64
}

// build plans marks, verifies a fork's prefix and splices the body.
func (d *driver) build(ctx context.Context, attempt int) (*request, error) {
	entries, err := d.e.o.Store.CacheEntries(ctx, d.session.ID)
	if err != nil {
		return nil, fmt.Errorf("load cache entries: %w", err)
	}
	now := time.Now()
	p := forkcore.Plan{
		Prefix: d.view.Prefix, Entries: entries,
		Live:         d.e.liveNow(),
		FirstRequest: !d.answered, PreviousTail: d.previousTail,
	}
	if d.snap != nil && !d.view.Compacted {
		p.Snapshot = &d.snap.manifest
		err := forkcore.Verify(d.snap.manifest, d.view.Prefix, func() ([][]byte, error) { return d.snap.segments, nil })
		if err != nil {
			return nil, prefixMismatch(err)
		}
	}
	plan, err := forkcore.PlanMarks(p)
	if err != nil {
		return nil, err
	}
	lost, err := d.lost(ctx, plan.Best, entries, p.Live)
	if err != nil {
		return nil, err
	}
	ask := d.diagnostics(plan, lost)
	body, err := d.view.Prefix.Body(plan.Marks, d.params, ask)
	if err != nil {
		return nil, err
	}
	if err := forkcore.Refuse(d.view.Prefix.Violations(plan.Marks, d.params, body.Len())); err != nil {
		return nil, &endError{unsendable(err)}
	}
	r := &request{plan: plan, body: body, lost: lost, counted: map[forkcore.Digest]int64{}}
	for _, e := range entries {
		if e.Exact {
			r.counted[e.Prefix] = e.Tokens
		}
	}
	r.row = forkcore.RequestRow{
		RunID: d.run.ID, SessionID: d.session.ID, DispatchID: d.run.DispatchID,
		N: d.requests + 1, StartedAt: now, Attempt: attempt, Model: d.params.Model,
		Prefix: plan.Prefix, PrefixBytes: plan.PrefixBytes,
		Body: body.Digest(), BodyBytes: body.Len(), Marks: plan.Marks,
		Status: forkcore.RequestOpen, AtRisk: d.atRisk(d.session), LogSeq: d.view.Len, First: d.run.Kind == forkcore.KindFork && !d.answered,
		Scope: d.scope(), Diagnostics: ask,
	}
	zero := int64(0)
	r.row.ExpectedRead = &zero
	if r.plan.Best != nil {
		t := r.plan.Best.Tokens
		r.row.ExpectedExact = r.plan.Best.Exact
		r.row.ExpectedRead = &t
		r.row.ExpectedFrom = &forkcore.RequestRef{RunID: r.plan.Best.RunID, N: r.plan.Best.N}
	}
	return r, nil
}

// prefixMismatch ends a fork whose bytes are not those of its snapshot: sent, it would share nothing.
func prefixMismatch(err error) error {
	return &endError{fail(forkcore.CodePrefixMismatch, err.Error(), "Dispatch again: the snapshot is taken anew")}
}

// unsendable ends a run whose next request the provider would refuse, every time. Nothing is sent, so nothing is paid or lost.
func unsendable(err error) EndRun {
	var invalid *forkcore.InvalidRequestError
	if errors.As(err, &invalid) && invalid.TooLarge() {
		return fail(forkcore.CodeContextWindow, err.Error(), nextStep(forkcore.CodeContextWindow))
	}
	return fail(forkcore.CodeInternal, err.Error(), "Start a new session with a summary of this one, and report this message: the conversation is kept")
}

// liveNow tells which entries may still be read now.
func (e *Engine) liveNow() func(forkcore.CacheEntry) bool {
	now, account := time.Now(), e.account()
	return func(en forkcore.CacheEntry) bool {
		return en.HeldFor(account) && en.ExpiresAt().After(now) && en.UsedAt.After(e.o.CacheSince)
	}
}

// attempt sends one request. A *forkcore.ModelError may be tried again.
func (d *driver) attempt(ctx context.Context, attempt int, ungated bool) error {
	r, err := d.build(ctx, attempt)
	if err != nil {
		return err
	}
	if err := d.e.o.Store.BeginRequest(ctx, d.holder, r.row, d.reserve(r), d.e.o.GateLimit); err != nil {
		return err
	}
	d.requests = r.row.N
	r.racing = ungated || r.row.First && !d.run.Leader

	w := newDeltaWriter(ctx, d.e, d.session.ID, d.run.ID, d.view.Len+1)
	defer w.close()
	var end *forkcore.ModelEnd
	var failure error
	for ev, err := range d.e.o.Model.Stream(ctx, forkcore.Request{
		Body: func() io.Reader { return r.body.Reader() }, ContentLength: r.body.Len(), Betas: d.params.Betas,
	}) {
		if err != nil {
			failure = err
			break
		}
		switch ev := ev.(type) {
		case *forkcore.ModelStart:
			if err := d.firstEvent(ctx, r, ev); err != nil {
				failure = err
			}
		case *forkcore.ModelDelta:
			w.add(ev)
		case *forkcore.ModelEnd:
			end = ev
		}
		if failure != nil {
			break
		}
	}
	w.close()
	if failure == nil && end == nil {
		failure = &forkcore.ModelError{Code: forkcore.CodeStreamCut, Message: "the stream ended without an answer", Retryable: true}
	}
	if failure != nil {
		cctx, done := cleanup(ctx)
		defer done()
		if err := d.settleAborted(cctx, r.row, w.total, failure); err != nil {
			return err
		}
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return failure
	}
	return d.settle(ctx, r, end)
}

// firstEvent books the input usage, tells others what can be read now, and
// opens the gate if this run leads one.
func (d *driver) firstEvent(ctx context.Context, r *request, ev *forkcore.ModelStart) error {
	now := time.Now()
	r.row.FirstEventAt = &now
	r.row.ProviderRequestID, r.row.MessageID = ev.ProviderRequestID, ev.MessageID
	r.row.Scope.Workspace, r.row.Diagnosis, r.row.Limits = ev.Workspace, ev.Diagnosis, ev.Limits
	if account := r.row.Scope.Account(); account != "" && len(ev.Limits) > 0 {
		if err := d.e.o.Store.NoteLimits(ctx, account, ev.Limits); err != nil {
			return err
		}
	}
	var entries []forkcore.CacheEntry
	if ev.UsageKnown {
		u := ev.Usage
		r.row.Usage = &u
		entries = d.entriesAfter(r, u)
		d.book(&r.row, u) // what is known is not lost should nobody settle the row
		if r.racing && u.CacheWrite5m+u.CacheWrite1h > 0 {
			var err error
			if r.raced, err = d.raced(ctx, r, u); err != nil {
				return err
			}
		}
	}
	wakes, err := d.e.o.Store.FirstEvent(ctx, d.holder, r.row, entries)
	if err != nil {
		return err
	}
	d.e.enqueue(ctx, wakes...)
	return nil
}

// settle books the answer and appends it in one step.
func (d *driver) settle(ctx context.Context, r *request, end *forkcore.ModelEnd) error {
	// The answer is there and paid for: it is kept though the run is being stopped.
	ctx, done := cleanup(ctx)
	defer done()
	now := time.Now()
	row := r.row
	row.Cost = nil
	row.EndedAt, row.StopReason, row.StopDetails, row.Status = &now, end.StopReason, end.StopDetails, forkcore.RequestOK
	s := Settle{ExpectLen: d.view.Len}
	if end.UsageKnown {
		u := end.Usage
		row.Usage = &u
		s.Entries = d.entriesAfter(r, u)
		d.book(&row, u)
		switch n := len(s.Entries); {
		case d.run.Kind == forkcore.KindMain:
			if n > 0 {
				s.Warm = &s.Entries[n-1]
			}
		case !d.view.Compacted: // afterwards nothing of its requests is inherited
			if row.First {
				d.inherited = d.inheritedBy(row, u)
			}
			s.InheritedTokens, s.InheritedRead = d.inherited, min(u.CacheRead, d.inherited)
		}
		row.Miss = d.explain(ctx, r, u)
		if u.CacheRead > 0 && r.plan.Best != nil {
			row.ReadFrom = row.ExpectedFrom
		}
	} else {
		row.First = false // its prefix count is not known
	}
	s.Row = row

	var ended error
	switch {
	case end.StopReason == "refusal":
		ended = &endError{fail(forkcore.CodeRefusal, refusalMessage(end.StopDetails), "Rephrase the request")}
	case len(end.Blocks) == 0:
		ended = &endError{fail(forkcore.CodeNoOutput, "the model's answer was empty", "Send again, or rephrase the request")}
	default:
		answer := d.message(forkcore.RoleAssistant, end.Blocks)
		m, err := forkcore.ParseMessage(answer.Bytes)
		if err == nil {
			err = d.view.Prefix.Admit(m)
		}
		switch {
		case err != nil:
			// What cannot be read back must not enter the log: every later step would fail on it.
			bad := &forkcore.ModelError{Code: forkcore.CodeInvalidResponse, Status: 200, Message: err.Error(), Retryable: true}
			if err := d.settleAborted(ctx, r.row, outputBytes(end), bad); err != nil {
				return err
			}
			return bad
		case end.StopReason == "max_tokens" && len(m.ToolCalls()) > 0:
			ended = &endError{fail(forkcore.CodeTruncated, "the answer was cut at the output limit inside a tool call", "Ask it to go on in smaller steps")}
		case end.StopReason == "end_turn" || end.StopReason == "tool_use":
			s.Append = []forkcore.Entry{answer}
		default:
			s.Append = []forkcore.Entry{answer, d.marker(forkcore.Marker{Type: forkcore.MarkerStop, Name: end.StopReason})}
		}
	}
	if len(s.Append) == 0 {
		s.ExpectLen = -1
	}
	if err := d.putBytes(ctx, s.Append); err != nil {
		return err
	}
	if _, err := d.e.o.Store.Settle(ctx, d.holder, s); err != nil {
		return err
	}
	d.answered, d.previousTail = true, tailMark(row)
	d.sent = &sent{prefix: d.view.Prefix, row: row, entries: s.Entries}
	if s.Warm != nil {
		d.session.Warm = s.Warm
	}
	if ended != nil {
		return ended
	}
	return d.apply(s.Append)
}

// refusalMessage says what the provider said of a refusal.
func refusalMessage(d *forkcore.StopDetails) string {
	msg := "the model declined to answer"
	if d != nil && d.Category != "" {
		msg += " (" + forkcore.CutText(forkcore.CleanText(d.Category), 100) + ")"
	}
	if d != nil && d.Explanation != "" {
		msg += ": " + forkcore.CutText(forkcore.CleanText(d.Explanation), 1000)
	}
	return msg
}

func outputBytes(end *forkcore.ModelEnd) int64 {
	var n int64
	for _, b := range end.Blocks {
		n += int64(len(b))
	}
	return n
}
