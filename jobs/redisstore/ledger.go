package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func encodeRow(r forkcore.RequestRow) string { return encode(r) }

func decodeRow(s string) (forkcore.RequestRow, error) {
	var r forkcore.RequestRow
	if err := json.Unmarshal([]byte(s), &r); err != nil {
		return forkcore.RequestRow{}, fmt.Errorf("read request row: %w", err)
	}
	return r, nil
}

func encodeCacheEntries(list []forkcore.CacheEntry) []fields {
	out := make([]fields, len(list))
	for i, e := range list {
		out[i] = fields{"prefix": e.Prefix.String(), "used": formatInt(e.UsedAt.UnixMilli()), "json": encode(e)}
	}
	return out
}

// BeginRequest implements engine.Store.
func (s *Store) BeginRequest(ctx context.Context, h engine.Holder, row forkcore.RequestRow, reserve int64, gateLimit time.Duration) error {
	if reserve < 0 {
		return fmt.Errorf("begin request: reservation of %d nano-dollars is negative", reserve)
	}
	st, err := heldStep(scriptBeginRequest, h, args{
		"n": formatInt(row.N), "row": encodeRow(row), "reserve": formatInt(reserve), "limit": millis(gateLimit), "at_risk": formatBool(row.AtRisk),
		"account": row.Scope.Account(),
	})
	if err != nil {
		return err
	}
	_, err = s.run(ctx, st)
	return err
}

// FirstEvent implements engine.Store.
func (s *Store) FirstEvent(ctx context.Context, h engine.Holder, row forkcore.RequestRow, entries []forkcore.CacheEntry) ([]engine.Wake, error) {
	st, err := heldStep(scriptFirstEvent, h, args{"n": formatInt(row.N), "row": encodeRow(row), "entries": encodeCacheEntries(entries)})
	if err != nil {
		return nil, err
	}
	return s.wakesOf(ctx, st, 0)
}

// Settle implements engine.Store. A row that is not open any more is engine.ErrLeaseLost.
func (s *Store) Settle(ctx context.Context, h engine.Holder, in engine.Settle) (int64, error) {
	a := args{
		"n": formatInt(in.Row.N), "row": encodeRow(in.Row), "bill": bill(in.Row), "first": formatBool(in.Row.First),
		"inherited": formatInt(in.InheritedTokens), "inherited_read": formatInt(in.InheritedRead),
		"entries": encodeCacheEntries(in.Entries), "warm": jsonOrEmpty(in.Warm), "expect": "", "append": []storedEntry{},
	}
	if in.ExpectLen >= 0 {
		a["expect"] = formatInt(in.ExpectLen)
		var err error
		if a["append"], err = encodeEntries(in.Append); err != nil {
			return 0, fmt.Errorf("settle request %d: %w", in.Row.N, err)
		}
	}
	return s.lengthOf(ctx, scriptSettle, h, a)
}

// Requests implements engine.Reader.
func (s *Store) Requests(ctx context.Context, runID string) ([]forkcore.RequestRow, error) {
	return opened(ctx, s, runID, func() ([]forkcore.RequestRow, error) { return s.readRequests(ctx, runID) })
}

func (s *Store) readRequests(ctx context.Context, runID string) ([]forkcore.RequestRow, error) {
	sh, err := shardOf(runID)
	if err != nil {
		return nil, err
	}
	stored, err := s.client.HVals(ctx, sh.key(stemLedger, runID)).Result()
	if err != nil {
		return nil, s.failure("read requests", err)
	}
	if len(stored) == 0 {
		_, err := s.object(ctx, "run", stemRun, runID)
		return nil, err
	}
	rows := make([]forkcore.RequestRow, len(stored))
	for i, v := range stored {
		if rows[i], err = decodeRow(v); err != nil {
			return nil, fmt.Errorf("run %s: %w", runID, err)
		}
	}
	slices.SortFunc(rows, func(a, b forkcore.RequestRow) int { return cmp.Compare(a.N, b.N) })
	return rows, nil
}

// CacheEntries implements engine.Reader, the latest used first.
func (s *Store) CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	return opened(ctx, s, sessionID, func() ([]forkcore.CacheEntry, error) { return s.readCacheEntries(ctx, sessionID) })
}

func (s *Store) readCacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	stored, err := s.client.HVals(ctx, sh.key(stemEntries, sessionID)).Result()
	if err != nil {
		return nil, s.failure("read cache entries", err)
	}
	if len(stored) == 0 {
		_, err := s.object(ctx, "session", stemSession, sessionID)
		return nil, err
	}
	entries := make([]forkcore.CacheEntry, len(stored))
	for i, v := range stored {
		_, body, _ := strings.Cut(v, ":")
		if err := json.Unmarshal([]byte(body), &entries[i]); err != nil {
			return nil, fmt.Errorf("read cache entry of %s: %w", sessionID, err)
		}
	}
	slices.SortFunc(entries, func(a, b forkcore.CacheEntry) int {
		return cmp.Or(b.UsedAt.Compare(a.UsedAt), cmp.Compare(b.Bytes, a.Bytes))
	})
	return entries, nil
}
