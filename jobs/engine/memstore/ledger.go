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

// bill adds to the sums of a run, its session and its dispatch.
func (st *step) bill(r *run, reserved int64, u forkcore.Usage, c forkcore.Cost) {
	s := st.sessions[r.SessionID]
	s.ReservedNanoUSD += reserved
	s.Usage, s.Cost = s.Usage.Add(u), s.Cost.Add(c)
	r.Usage, r.Cost = r.Usage.Add(u), r.Cost.Add(c)
	st.touch(s, "")
	st.touch(r, "")
	if d := st.dispatches[r.DispatchID]; d != nil {
		for a := d; a != nil; a = a.above {
			a.reserved += reserved
			if a != d {
				a.below += c.NanoUSD
			}
			st.touch(a, "")
		}
		d.Usage, d.Cost = d.Usage.Add(u), d.Cost.Add(c)
		if c != (forkcore.Cost{}) || u != (forkcore.Usage{}) {
			st.touchDispatch(d)
		}
	}
}

// sums are what a row adds to the sums of its run: what it does not know is nothing of usage, and an unpriced cost.
func sums(row forkcore.RequestRow) (usage forkcore.Usage, cost forkcore.Cost) {
	if row.Usage != nil {
		usage = *row.Usage
	}
	if row.Cost == nil {
		return usage, forkcore.Cost{Unpriced: 1}
	}
	return usage, forkcore.Cost{NanoUSD: *row.Cost}
}

func (st *step) publishRow(s *session, row forkcore.RequestRow) {
	st.queue = append(st.queue, change{event: forkcore.Event{
		Type: forkcore.EventRequest, SessionID: s.ID, RunID: row.RunID, Request: &row,
	}})
}

// BeginRequest implements engine.Store.
func (s *Store) BeginRequest(ctx context.Context, h engine.Holder, row forkcore.RequestRow, reserve int64, gateLimit time.Duration) error {
	if reserve < 0 {
		return fmt.Errorf("begin request: reservation of %d nano-dollars is negative", reserve)
	}
	_, err := s.held(ctx, "begin request", h, []any{row, reserve, gateLimit}, func(st *step, r *run) (answer, error) {
		c, d := st.sessions[r.SessionID], st.dispatches[r.DispatchID]
		short := false
		over := func(budget, spent, reserved int64) bool { return budget > 0 && spent+reserved+reserve > budget }
		for a := d; a != nil; a = a.above {
			short = short || over(a.BudgetNanoUSD, a.Cost.NanoUSD+a.below, a.reserved)
		}
		switch {
		case r.Stop != "":
			return answer{}, engine.ErrStopped
		case row.N != r.Requests+1:
			return answer{}, engine.ErrLeaseLost
		case over(c.BudgetNanoUSD, c.Cost.NanoUSD, c.ReservedNanoUSD), short:
			return answer{}, forkcore.ErrBudget
		}
		r.Requests++
		if account := row.Scope.Account(); account != "" && c.Account != account {
			c.Account = account
			st.touchSession(c)
		}
		if row.AtRisk {
			r.AtRiskRequests++
			c.AtRiskRequests++
		}
		r.rows = append(r.rows, row)
		r.open[row.N] = reserve
		st.bill(r, reserve, forkcore.Usage{}, forkcore.Cost{})
		st.touchRun(r)
		st.publishRow(c, row)
		// The limit counts from the leader's first send, not from its retries.
		if d != nil && d.Gate == forkcore.GateClosed && d.LeaderRunID == r.ID && d.limit.IsZero() {
			d.limit = st.now.Add(gateLimit)
		}
		return answer{}, nil
	})
	return err
}

// FirstEvent implements engine.Store.
func (s *Store) FirstEvent(ctx context.Context, h engine.Holder, row forkcore.RequestRow, entries []forkcore.CacheEntry) ([]engine.Wake, error) {
	a, err := s.held(ctx, "first event", h, []any{row, entries}, func(st *step, r *run) (answer, error) {
		if _, open := r.open[row.N]; !open {
			return answer{}, engine.ErrLeaseLost
		}
		c := st.sessions[r.SessionID]
		r.rows[row.N-1] = row
		c.upsert(entries)
		st.publishRow(c, row)
		st.touch(r, "")
		if d := st.dispatches[r.DispatchID]; d != nil && d.Gate == forkcore.GateClosed && d.LeaderRunID == r.ID {
			st.openGate(d, r.ID, "message_start")
		}
		return answer{wakes: st.wakes}, nil
	})
	return a.wakes, err
}

// Settle implements engine.Store. A row that is not open any more is engine.ErrLeaseLost.
func (s *Store) Settle(ctx context.Context, h engine.Holder, in engine.Settle) (int64, error) {
	if in.ExpectLen < 0 {
		in.Append = nil
	}
	if err := checkEntries(in.Append); err != nil {
		return 0, fmt.Errorf("settle request %d: %w", in.Row.N, err)
	}
	a, err := s.held(ctx, "settle", h, in, func(st *step, r *run) (answer, error) {
		c, d := st.sessions[r.SessionID], st.dispatches[r.DispatchID]
		reserved, open := r.open[in.Row.N]
		if !open || (in.ExpectLen >= 0 && int64(len(c.logs[r.AgentID])) != in.ExpectLen) {
			return answer{}, engine.ErrLeaseLost
		}
		r.rows[in.Row.N-1] = in.Row
		delete(r.open, in.Row.N)
		usage, cost := sums(in.Row)
		st.bill(r, -reserved, usage, cost)
		if d != nil && in.Row.First {
			d.FirstRequests, d.FirstRequestUsage = d.FirstRequests.Add(cost), d.FirstRequestUsage.Add(usage)
		}
		r.InheritedTokens += in.InheritedTokens
		r.InheritedRead += in.InheritedRead
		c.upsert(in.Entries)
		if in.Warm != nil && r.Kind == forkcore.KindMain {
			warm := *in.Warm
			c.Warm = &warm
		}
		st.publishRow(c, in.Row)
		st.touchRun(r)
		st.touchSession(c)
		return answer{n: st.appendAll(r, in.Append)}, nil
	})
	return a.n, err
}

// upsert notes what the provider holds. Siblings settle in any order; the
// latest use decides how long an entry lives.
func (c *session) upsert(entries []forkcore.CacheEntry) {
	for _, e := range entries {
		if old, known := c.entries[e.Prefix]; !known || !old.UsedAt.After(e.UsedAt) {
			c.entries[e.Prefix] = e
		}
	}
}

// Requests implements engine.Reader.
func (s *Store) Requests(ctx context.Context, runID string) ([]forkcore.RequestRow, error) {
	leave, err := s.enter(ctx, "read requests", runID)
	if err != nil {
		return nil, err
	}
	defer leave()
	r := s.runs[runID]
	if r == nil {
		return nil, notFound("run", runID)
	}
	return slices.Clone(r.rows), nil
}

// CacheEntries implements engine.Reader, the latest used first.
func (s *Store) CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	c, leave, err := s.lookup(ctx, "read cache entries", sessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
	var list []forkcore.CacheEntry
	for _, e := range c.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b forkcore.CacheEntry) int {
		return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(b.Bytes, a.Bytes))
	})
	return list, nil
}
