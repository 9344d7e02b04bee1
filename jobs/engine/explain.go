package engine

import (
	"cmp"
	"context"
	"fmt"

	"forkyard/forkcore"
)

// scope is where this run's requests go, as far as it is known before a response.
func (d *driver) scope() forkcore.Scope {
	var s forkcore.Scope
	if m, ok := d.e.o.Model.(forkcore.Scoped); ok {
		s = m.Scope()
	}
	return s.WithBetas(d.params.Betas)
}

// lost is what this agent's previous request left with the provider, when that
// is alive, more than best, and not what the present request starts with: after
// a compaction, or with a prompt that was rendered anew.
func (d *driver) lost(ctx context.Context, best *forkcore.CacheEntry, entries []forkcore.CacheEntry, live func(forkcore.CacheEntry) bool) (*forkcore.CacheEntry, error) {
	var before *forkcore.CacheEntry
	switch {
	case d.run.Kind == forkcore.KindMain:
		before = d.session.Warm
	case d.answered:
		for i := range entries {
			e := &entries[i]
			if e.RunID == d.run.ID && (before == nil || cmp.Or(cmp.Compare(e.N, before.N), cmp.Compare(e.Bytes, before.Bytes)) > 0) {
				before = e
			}
		}
	case d.atRisk(d.session): // else the snapshot is what it starts with
		s, err := d.e.o.Store.Snapshot(ctx, d.session.ID, d.run.Snapshot)
		if err != nil {
			return nil, fmt.Errorf("load the snapshot as it was: %w", err)
		}
		for i := range s.Entries {
			if e := &s.Entries[i]; live(*e) && (before == nil || e.Bytes > before.Bytes) {
				before = e
			}
		}
	}
	if before == nil {
		return nil, nil
	}
	for i := range entries {
		if entries[i].Prefix == before.Prefix {
			before = &entries[i] // as it was used last
		}
	}
	if d.view.Prefix.StartsWith(*before) || !live(*before) || best != nil && best.Tokens >= before.Tokens {
		return nil, nil
	}
	return before, nil
}

// compared is the entry whose request the provider is asked to compare with.
func compared(plan forkcore.Planned, lost *forkcore.CacheEntry) *forkcore.CacheEntry {
	return cmp.Or(lost, plan.Best, plan.Expired)
}

// diagnostics is what a request asks for; nil when it must not ask.
func (d *driver) diagnostics(plan forkcore.Planned, lost *forkcore.CacheEntry) *forkcore.Diagnostics {
	if !d.e.o.Diagnostics {
		return nil
	}
	ask := &forkcore.Diagnostics{}
	if e := compared(plan, lost); e != nil {
		ask.PreviousMessageID = e.MessageID
	}
	return ask
}

// raced is the longest entry that somebody else's response has made readable
// since r was sent, and that r could have read.
func (d *driver) raced(ctx context.Context, r *request, u forkcore.Usage) (*forkcore.CacheEntry, error) {
	if r.row.First {
		return d.racedSibling(ctx, r, u)
	}
	entries, err := d.e.o.Store.CacheEntries(ctx, d.session.ID)
	if err != nil {
		return nil, fmt.Errorf("load cache entries: %w", err)
	}
	var longest *forkcore.CacheEntry
	if len(r.row.Marks) == 0 {
		return nil, nil
	}
	last := r.row.Marks[len(r.row.Marks)-1].Offset
	live := d.e.liveNow()
	for i := range entries {
		e := &entries[i]
		switch {
		case !d.view.Prefix.StartsWith(*e) || e.Bytes > last || !live(*e):
		case r.plan.Best != nil && e.Bytes <= r.plan.Best.Bytes: // it could be read all along
		case longest == nil || e.Bytes > longest.Bytes:
			longest = e
		}
	}
	return longest, nil
}

// racedSibling is what a sibling was about to write, sent before r with the
// same prefix and not answered yet when r was sent. Rows tell it, not entries: siblings that start together begin to be answered
// together, and what each finds in the store then is a matter of luck.
func (d *driver) racedSibling(ctx context.Context, r *request, u forkcore.Usage) (*forkcore.CacheEntry, error) {
	dis, err := d.e.o.Store.Dispatch(ctx, d.run.DispatchID)
	if err != nil {
		return nil, fmt.Errorf("load dispatch: %w", err)
	}
	if len(r.row.Marks) == 0 {
		return nil, nil
	}
	since := r.row.StartedAt
	for i, id := range dis.RunIDs {
		if id == d.run.ID {
			continue
		}
		rows, err := d.e.o.Store.Requests(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("load requests of a sibling: %w", err)
		}
		for _, row := range rows {
			earlier := row.StartedAt.Before(since) || row.StartedAt.Equal(since) && i < d.run.Index
			unanswered := (row.FirstEventAt == nil || row.FirstEventAt.After(since)) && (row.EndedAt == nil || row.EndedAt.After(since))
			if row.Prefix == r.row.Prefix && earlier && unanswered && row.Status != forkcore.RequestError {
				last := r.row.Marks[len(r.row.Marks)-1]
				return &forkcore.CacheEntry{
					Prefix: row.Prefix, Bytes: last.Offset, Tokens: u.Cached(), Exact: true, TTL: last.TTL, UsedAt: row.StartedAt,
					RunID: id, N: row.N, Scope: row.Scope,
				}, nil
			}
		}
	}
	return nil, nil
}

// explain says why a request read less than it could have. What it takes
// beyond the request is read only when that is so.
func (d *driver) explain(ctx context.Context, r *request, u forkcore.Usage) *forkcore.MissReason {
	info, _ := d.e.o.Catalogue.Model(r.row.Model)
	o := forkcore.Outcome{
		Usage: u, Expected: r.row.ExpectedRead, Best: r.plan.Best, Expired: r.plan.Expired, Lost: r.lost, Raced: r.raced,
		Prefix: d.view.Prefix, Marks: r.row.Marks, Scope: r.row.Scope,
		Diagnosis: r.row.Diagnosis, Compared: compared(r.plan, r.lost), MinCacheable: info.MinCacheable, SentAt: r.row.StartedAt,
	}
	if r.lost != nil {
		o.Sent = func() ([]byte, error) {
			// A lost prompt would be rendered anew, and that is not what was sent.
			if _, err := d.e.o.Store.Blobs(ctx, d.session.ID, d.session.Head); err != nil {
				return nil, err
			}
			return d.e.canonical(ctx, r.lost.RunID, r.lost.N)
		}
	}
	return forkcore.Explain(o)
}
