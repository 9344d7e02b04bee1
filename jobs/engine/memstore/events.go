package memstore

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

var eventID = regexp.MustCompile(`^\d{1,19}(-\d{1,19})?$`)

// splitEventID reads an id whose shape is known to be right.
func splitEventID(id string) (ms, n int64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseInt(first, 10, 64)
	n, _ = strconv.ParseInt(second, 10, 64)
	return ms, n
}

// Events returns a session's durable events with an ID after the given one,
// oldest first; after "0" means from the beginning, limit 0 all of them.
func (s *Store) Events(ctx context.Context, sessionID, after string, limit int) ([]forkcore.Event, error) {
	leave, err := s.enter(ctx, "read events", sessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if !eventID.MatchString(after) {
		return nil, forkcore.Invalid("after", "must be the id of an event, such as 1764510000000-0, or 0")
	}
	c := s.sessions[sessionID]
	if c == nil {
		return nil, nil
	}
	ms, n := splitEventID(after)
	start := slices.IndexFunc(c.events, func(e forkcore.Event) bool {
		m, k := splitEventID(e.ID)
		return m > ms || (m == ms && k > n)
	})
	if start < 0 {
		return nil, nil
	}
	list := c.events[start:]
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return slices.Clone(list), nil
}

// LastEventID is the ID of a session's latest durable event, "0-0" when there is none.
func (s *Store) LastEventID(ctx context.Context, sessionID string) (string, error) {
	leave, err := s.enter(ctx, "read last event", sessionID)
	if err != nil {
		return "", err
	}
	defer leave()
	if c := s.sessions[sessionID]; c != nil && len(c.events) > 0 {
		return c.events[len(c.events)-1].ID, nil
	}
	return "0-0", nil
}

// PublishDelta implements engine.Store. Nobody watches a store in memory, and
// deltas are never kept, so it only checks its input.
func (s *Store) PublishDelta(ctx context.Context, d engine.Delta) error {
	leave, err := s.enter(ctx, "publish delta", d.SessionID)
	if err != nil {
		return err
	}
	leave()
	return nil
}
