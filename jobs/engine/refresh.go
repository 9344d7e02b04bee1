package engine

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"forkyard/forkcore"
)

// sent is the latest request that was answered, for keeping what the provider holds of it alive.
type sent struct {
	prefix  *forkcore.Prefix
	row     forkcore.RequestRow
	entries []forkcore.CacheEntry // what the provider holds of it, the longest last
	spent   int64                 // on keeping it alive, in nano-dollars
}

func (s *sent) entry() *forkcore.CacheEntry { return &s.entries[len(s.entries)-1] }

// executeWarm runs a tool that may take longer than the provider keeps the conversation. Shortly before an entry expires it
// is read once more by a request that answers nothing, as long as that costs less than writing it again.
func (d *driver) executeWarm(ctx context.Context, call forkcore.ToolCall) forkcore.ToolResult {
	if d.sent == nil || len(d.sent.entries) == 0 {
		return d.execute(ctx, call)
	}
	type outcome struct {
		result   forkcore.ToolResult
		panicked any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			// In this goroutine a panic would end the process; in the driver's it ends the run.
			if o.panicked = recover(); o.panicked != nil {
				d.e.log.Error("panic in a tool", "tool", call.Name, "panic", o.panicked, "stack", string(debug.Stack()))
			}
			done <- o
		}()
		o.result = d.execute(ctx, call)
	}()
	for warm := true; ; {
		var due <-chan time.Time
		if warm {
			due = time.After(max(time.Until(d.sent.entry().ExpiresAt())-forkcore.RefreshMargin, 0))
		}
		select {
		case o := <-done:
			if o.panicked != nil {
				panic(o.panicked)
			}
			return o.result
		case <-due:
			why, err := d.refresh(ctx)
			if err == nil && why != "" {
				err = d.append(ctx, nil, d.marker(forkcore.Marker{Type: forkcore.MarkerCooling, Name: call.Name, Detail: why}))
			}
			if err != nil {
				d.e.log.Warn("keep the cache warm", "run", d.run.ID, "err", err) // whatever it is, the next step meets it
			}
			warm = why == "" && err == nil
		}
	}
}

// refresh keeps the latest request's entry alive. why says why that is not done; empty: it was.
func (d *driver) refresh(ctx context.Context) (why string, err error) {
	model, ok := d.e.o.Model.(forkcore.Prewarmer)
	switch {
	case !ok || !d.e.traits().Prewarm:
		return "this endpoint takes no request that only keeps the cache warm", nil
	case !d.params.Prewarmable():
		return "with these settings (thinking, tool choice) no request may only keep the cache warm", nil
	}
	entry := *d.sent.entry()
	info, priced := d.e.o.Catalogue.ModelAt(d.params.Model, time.Now())
	if !priced || !forkcore.RefreshPays(info.RatesFor(entry.Tokens), entry, d.sent.spent) {
		return "keeping it longer would cost more than writing it again", nil
	}
	if account := d.e.account(); account != "" {
		switch a, err := d.e.o.Store.Admit(ctx, account, 0, false); {
		case err != nil:
			return "", fmt.Errorf("ask for a place: %w", err)
		case !a.Placed:
			return "the provider wants fewer requests", nil
		}
	}
	params := d.params
	params.MaxTokens = 0
	body, err := d.sent.prefix.Body(d.sent.row.Marks, params, nil)
	if err != nil {
		return "", err
	}
	row := forkcore.RequestRow{
		RunID: d.run.ID, SessionID: d.session.ID, DispatchID: d.run.DispatchID, N: d.requests + 1, StartedAt: time.Now(), Attempt: 1, Model: d.params.Model,
		Prefix: d.sent.row.Prefix, PrefixBytes: d.sent.row.PrefixBytes, Body: body.Digest(), BodyBytes: body.Len(), Marks: d.sent.row.Marks,
		Status: forkcore.RequestOpen, AtRisk: d.sent.row.AtRisk, LogSeq: d.sent.row.LogSeq, Scope: d.scope(), Refresh: true,
		ExpectedRead: &entry.Tokens, ExpectedExact: entry.Exact, ExpectedFrom: &forkcore.RequestRef{RunID: entry.RunID, N: entry.N},
	}
	if err := d.e.o.Store.BeginRequest(ctx, d.holder, row, info.Cost(forkcore.Usage{CacheRead: entry.Tokens}), d.e.o.GateLimit); err != nil {
		return "", err
	}
	d.requests = row.N
	start, err := model.Prewarm(ctx, forkcore.Request{Body: body.Reader, ContentLength: body.Len(), Betas: d.params.Betas})
	sctx, cancel := cleanup(ctx)
	defer cancel()
	if err != nil {
		return "the request that keeps it warm failed", d.settleAborted(sctx, row, 0, err)
	}
	ended := time.Now()
	row.FirstEventAt, row.EndedAt, row.Status, row.StopReason = &ended, &ended, forkcore.RequestOK, "max_tokens"
	row.ProviderRequestID, row.MessageID, row.Limits, row.Scope.Workspace = start.ProviderRequestID, start.MessageID, start.Limits, start.Workspace
	s := Settle{Row: row, ExpectLen: -1}
	if start.UsageKnown {
		u := start.Usage
		s.Row.Usage = &u
		d.book(&s.Row, u)
		if u.CacheRead > 0 {
			s.Row.ReadFrom = row.ExpectedFrom
		}
		if d.run.Kind != forkcore.KindMain && !d.view.Compacted {
			s.InheritedTokens, s.InheritedRead = d.inherited, min(u.CacheRead, d.inherited)
		}
		if s.Row.Cost != nil {
			d.sent.spent += *s.Row.Cost
		}
		for i := range d.sent.entries {
			e := &d.sent.entries[i]
			e.UsedAt = row.StartedAt
			if !entry.ReadBy(u) {
				e.RunID, e.N, e.MessageID = row.RunID, row.N, row.MessageID // it was gone, and is written anew
			}
		}
		s.Entries = d.sent.entries
		if d.run.Kind == forkcore.KindMain {
			s.Warm = d.sent.entry()
		}
	}
	_, err = d.e.o.Store.Settle(sctx, d.holder, s)
	return "", err
}
