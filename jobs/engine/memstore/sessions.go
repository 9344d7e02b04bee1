package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"forkyard/forkcore"
)

// session is a stored session with all that belongs to it.
type session struct {
	forkcore.Session
	hash      string // of the request that created it
	place     int    // in the list of all, from 0
	runs      []*run // in order of creation
	logs      map[string][]forkcore.Entry
	inbox     []forkcore.InboxItem
	follow    string                // the last item that came after the stop wish of the turn in progress
	accepted  map[string]acceptance // by idempotency key and by item
	entries   map[forkcore.Digest]forkcore.CacheEntry
	snapshots map[forkcore.Digest]forkcore.Snapshot
	events    []forkcore.Event
}

// acceptance is what Accept answered; token is set when it granted a lease.
type acceptance struct{ run, hash, token string }

// CreateSession implements engine.Store.
func (s *Store) CreateSession(ctx context.Context, in forkcore.Session, requestHash string) (forkcore.Session, bool, error) {
	leave, err := s.enter(ctx, "create session", in.ID)
	if err != nil {
		return forkcore.Session{}, false, err
	}
	defer leave()
	if old := s.sessions[in.ID]; old != nil {
		if old.hash != requestHash {
			return forkcore.Session{}, false, fmt.Errorf("create session: %w", forkcore.ErrIdempotencyMismatch)
		}
		return old.Session, false, nil
	}
	st := s.begin()
	// Only what the caller decides is taken over; states, sums and times are the store's.
	c := &session{
		Session: forkcore.Session{
			ID: in.ID, Title: in.Title, Workspace: in.Workspace, Root: in.Root, Model: in.Model, Mode: in.Mode, PermissionMode: in.PermissionMode,
			Thinking: slices.Clone(in.Thinking), Effort: in.Effort, Betas: slices.Clone(in.Betas), BudgetNanoUSD: in.BudgetNanoUSD, Interactive: in.Interactive,
			AutoBackground: in.AutoBackground, Notify: in.Notify, Head: in.Head, CreatedAt: st.now,
		},
		hash: requestHash, place: len(s.order), logs: map[string][]forkcore.Entry{}, accepted: map[string]acceptance{},
		entries: map[forkcore.Digest]forkcore.CacheEntry{}, snapshots: map[forkcore.Digest]forkcore.Snapshot{},
	}
	s.sessions[c.ID] = c
	s.order = append(s.order, c)
	st.touchSession(c)
	st.finish()
	return c.Session, true, nil
}

// lookup reads one session under the lock.
func (s *Store) lookup(ctx context.Context, doing, id string) (*session, func(), error) {
	leave, err := s.enter(ctx, doing, id)
	if err != nil {
		return nil, nil, err
	}
	c := s.sessions[id]
	if c == nil {
		leave()
		return nil, nil, notFound("session", id)
	}
	return c, leave, nil
}

// Session implements engine.Reader.
func (s *Store) Session(ctx context.Context, id string) (forkcore.Session, error) {
	c, leave, err := s.lookup(ctx, "read session", id)
	if err != nil {
		return forkcore.Session{}, err
	}
	defer leave()
	return c.Session, nil
}

// Sessions implements engine.Reader. A cursor is the place of the last session seen.
func (s *Store) Sessions(ctx context.Context, cursor string, limit int) ([]forkcore.Session, string, error) {
	leave, err := s.enter(ctx, "list sessions")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	page, next, err := newestFirst(s.order, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	list := make([]forkcore.Session, len(page))
	for i, c := range page {
		list[i] = c.Session
	}
	return list, next, nil
}

// newestFirst is one page of a list that is kept oldest first.
func newestFirst[T any](all []T, cursor string, limit int) (page []T, next string, err error) {
	end := len(all)
	if cursor != "" {
		n, err := strconv.ParseUint(cursor, 10, 31)
		if err != nil {
			return nil, "", forkcore.Invalid("cursor", "must be a next_cursor of an earlier answer")
		}
		end = min(end, int(n))
	}
	start := 0
	if limit > 0 && end > limit {
		start = end - limit
		next = strconv.Itoa(start)
	}
	page = slices.Clone(all[start:end])
	slices.Reverse(page)
	return page, next, nil
}

// put adds an inbox item once.
func (c *session) put(item forkcore.InboxItem) {
	if !slices.ContainsFunc(c.inbox, func(i forkcore.InboxItem) bool { return i.ID == item.ID }) {
		c.inbox = append(c.inbox, item)
	}
}

// publish gives an event its id, "<ms>-<n>".
func (c *session) publish(at time.Time, e forkcore.Event) {
	ms, n := at.UnixMilli(), int64(0)
	if k := len(c.events); k > 0 {
		// The clock may stand still or go back; ids do not.
		if lastMS, lastN := splitEventID(c.events[k-1].ID); lastMS >= ms {
			ms, n = lastMS, lastN+1
		}
	}
	e.ID, e.At = fmt.Sprintf("%d-%d", ms, n), at
	c.events = append(c.events, e)
}
