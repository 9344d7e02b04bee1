package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forkyard/forkcore"
)

// reservedOutput is the output that a request reserves, in tokens.
const reservedOutput = 4096

// reservation is what a request of so many bytes may cost at most by the rule
// of the budget: what is held at the read price, the rest at the write price
// and three bytes a token, and 4,096 tokens of output.
func reservation(info forkcore.ModelInfo, held *forkcore.CacheEntry, bytes int64) int64 {
	u := forkcore.Usage{Output: reservedOutput}
	if held != nil {
		u.CacheRead = held.Tokens
		bytes -= held.Bytes
	}
	u.CacheWrite5m = max(bytes, 0) / 3
	return info.Cost(u)
}

// reserve is the reservation of one request; a model without a price reserves nothing.
func (d *driver) reserve(r *request) int64 {
	info, ok := d.e.o.Catalogue.ModelAt(d.params.Model, r.row.StartedAt)
	if !ok {
		return 0
	}
	return reservation(info, r.plan.Best, r.row.BodyBytes)
}

// entriesAfter says what the provider holds after a response, learnt from
// usage and not from the marks alone: a prefix under the model's minimum writes nothing. The
// token count at the last mark is exact; counts at earlier marks keep what was known and are
// estimated by their share of bytes otherwise.
func (d *driver) entriesAfter(r *request, u forkcore.Usage) []forkcore.CacheEntry {
	switch {
	case len(r.row.Marks) == 0:
		return nil
	case d.e.caching(r.row, u) == forkcore.CachingAutomatic:
		return d.entriesKept(r, u)
	case u.Cached() == 0:
		return nil
	}
	last := r.row.Marks[len(r.row.Marks)-1] // they are in wire order
	var out []forkcore.CacheEntry
	for _, m := range r.row.Marks {
		id, _ := d.view.Prefix.At(m.Offset)
		e := forkcore.CacheEntry{
			Prefix: id, Bytes: m.Offset, TTL: m.TTL, UsedAt: r.row.StartedAt,
			RunID: d.run.ID, N: r.row.N, Scope: r.row.Scope, MessageID: r.row.MessageID, Inside: m.Offset < r.plan.Tail,
		}
		switch {
		case m.Offset == last.Offset:
			e.Tokens, e.Exact = u.Cached(), true
		case r.plan.Best != nil && m.Offset == r.plan.Best.Bytes && u.CacheRead > 0:
			e.Tokens, e.Exact = r.plan.Best.Tokens, r.plan.Best.Exact
		default:
			if e.Tokens, e.Exact = r.counted[id]; !e.Exact {
				e.Tokens = u.Cached() * m.Offset / last.Offset
			}
		}
		if best := r.plan.Best; best != nil && m.Offset <= best.Bytes && best.ReadBy(u) {
			e.RunID, e.N, e.MessageID = best.RunID, best.N, best.MessageID // it was read, not written
			e.Inside = best.Inside || m.Offset < best.Bytes
		}
		out = append(out, e)
	}
	return out
}

// entriesKept are the entries of an endpoint that reuses whatever a slot still
// holds of a prompt: all of it, at no place that is counted. For how long is
// not told; the shortest lifetime is assumed.
func (d *driver) entriesKept(r *request, u forkcore.Usage) []forkcore.CacheEntry {
	var out []forkcore.CacheEntry
	for _, m := range r.row.Marks {
		id, _ := d.view.Prefix.At(m.Offset)
		out = append(out, forkcore.CacheEntry{
			Prefix: id, Bytes: m.Offset, Tokens: share(u, m.Offset, r.row.BodyBytes), TTL: m.TTL, UsedAt: r.row.StartedAt,
			RunID: d.run.ID, N: r.row.N, Scope: r.row.Scope, MessageID: r.row.MessageID, Inside: m.Offset < r.plan.Tail,
		})
	}
	return out
}

// caching is how the endpoint keeps prefixes. Where it is not known the
// response tells: only at marks is anything written that is told, or a count read that was known before.
func (e *Engine) caching(row forkcore.RequestRow, u forkcore.Usage) forkcore.Caching {
	c := e.traits().Caching
	switch {
	case c != forkcore.CachingUnknown:
		return c
	case u.CacheRead > 0 && u.CacheWrite5m+u.CacheWrite1h == 0 && !row.ExpectedExact:
		return forkcore.CachingAutomatic
	}
	return forkcore.CachingMarks
}

// share estimates the tokens of the first bytes of a request from the count of the whole.
func share(u forkcore.Usage, bytes, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return u.TotalInput() * bytes / whole
}

// inheritedBy is how many tokens of a fork's first request it inherited: counted where its last mark shows it, else estimated.
func (d *driver) inheritedBy(row forkcore.RequestRow, u forkcore.Usage) int64 {
	if d.e.caching(row, u) == forkcore.CachingAutomatic {
		return share(u, row.PrefixBytes, row.BodyBytes)
	}
	return u.Cached()
}

func (d *driver) book(row *forkcore.RequestRow, u forkcore.Usage) {
	if info, ok := d.e.o.Catalogue.ModelAt(row.Model, row.StartedAt); ok {
		cost := info.Cost(u)
		row.Cost = &cost
	}
}

// expectedInput is what a request should have used before its first event: what
// was expected from the cache, and the rest of its bytes written.
func expectedInput(row forkcore.RequestRow) forkcore.Usage {
	var u forkcore.Usage
	if row.ExpectedRead != nil {
		u.CacheRead = *row.ExpectedRead
	}
	u.CacheWrite5m = max(forkcore.EstimateTokens(row.BodyBytes)-u.CacheRead, 0)
	return u
}

// settleAborted closes the row of a request that gave no answer. What it used
// is known as far as its first event said, and the output is estimated from the text seen. Before its first event
// the usage is unknown; the cost is nothing when the endpoint answered with an error or was not reached, and else an estimate.
func (d *driver) settleAborted(ctx context.Context, row forkcore.RequestRow, seenBytes int64, cause error) error {
	now := time.Now()
	row.EndedAt, row.Error = &now, cause.Error()
	row.Status = forkcore.RequestAborted
	row.First = false
	var me *forkcore.ModelError
	if errors.As(cause, &me) {
		row.Status = forkcore.RequestError
		if me.ProviderRequestID != "" {
			row.ProviderRequestID = me.ProviderRequestID
		}
		row.KeyRefused = me.KeyRefused
		if len(me.Limits) > 0 {
			row.Limits = me.Limits
		}
	}
	switch {
	case row.Usage != nil:
		u := *row.Usage
		u.Output = max(u.Output, forkcore.EstimateTokens(seenBytes))
		row.Usage, row.Estimated = &u, true
		d.book(&row, u)
	case me != nil && (me.Status >= 400 || me.Unsent):
		free := int64(0)
		row.Cost = &free
	default:
		// It may have been billed: the budget counts what was to be expected.
		row.Estimated = true
		d.book(&row, expectedInput(row))
	}
	if _, err := d.e.o.Store.Settle(ctx, d.holder, Settle{Row: row, ExpectLen: -1}); err != nil {
		return fmt.Errorf("settle request %d: %w", row.N, err)
	}
	return nil
}

// tailMark is the offset of the last mark beyond the shared prefix.
func tailMark(row forkcore.RequestRow) int64 {
	var tail int64
	for _, m := range row.Marks {
		if m.Offset > row.PrefixBytes {
			tail = max(tail, m.Offset)
		}
	}
	return tail
}
