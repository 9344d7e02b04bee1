package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// Append implements engine.Store.
func (s *Store) Append(ctx context.Context, h engine.Holder, expectLen int64, entries []forkcore.Entry, takeInbox []string) (int64, error) {
	if err := checkEntries(entries); err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	a, err := s.held(ctx, "append", h, []any{expectLen, entries, takeInbox}, func(st *step, r *run) (answer, error) {
		c := st.sessions[r.SessionID]
		if int64(len(c.logs[r.AgentID])) != expectLen {
			return answer{}, engine.ErrLeaseLost
		}
		rest := slices.Clone(c.inbox)
		for _, id := range takeInbox {
			i := slices.IndexFunc(rest, func(item forkcore.InboxItem) bool { return item.ID == id })
			if i < 0 {
				return answer{}, engine.ErrInbox
			}
			rest = slices.Delete(rest, i, i+1)
		}
		c.inbox = rest
		return answer{n: st.appendAll(r, entries)}, nil
	})
	return a.n, err
}

func checkEntries(entries []forkcore.Entry) error {
	for i, e := range entries {
		message := e.Kind == forkcore.EntryMessage && e.Marker == nil && !e.Blob.IsZero()
		marker := e.Kind == forkcore.EntryMarker && e.Marker != nil && e.Blob.IsZero()
		if !message && !marker {
			return fmt.Errorf("entry %d of kind %q must have a blob or a marker, as its kind says", i, e.Kind)
		}
	}
	return nil
}

// appendAll adds entries to the log of a run's agent and returns its length.
// Bytes are not kept there: they are blobs.
func (st *step) appendAll(r *run, entries []forkcore.Entry) int64 {
	c := st.sessions[r.SessionID]
	for _, e := range entries {
		e.Seq, e.Bytes = int64(len(c.logs[r.AgentID]))+1, nil
		if e.At.IsZero() {
			e.At = st.now
		}
		if e.Marker != nil {
			m := *e.Marker
			m.Bytes = nil
			e.Marker = &m
			if m.Type == forkcore.MarkerToolStarted {
				r.ToolUses++
				r.LastTool, r.LastToolDetail = m.Name, m.Detail
				st.touchRun(r)
			}
		}
		c.logs[r.AgentID] = append(c.logs[r.AgentID], e)
		st.queue = append(st.queue, change{event: forkcore.Event{
			Type: forkcore.EventMessage, SessionID: c.ID, RunID: e.RunID, Entry: &e, AgentID: r.AgentID,
		}})
	}
	return int64(len(c.logs[r.AgentID]))
}

// mark appends a marker of the store's own.
func (st *step) mark(r *run, m forkcore.Marker) {
	st.appendAll(r, []forkcore.Entry{{Kind: forkcore.EntryMarker, RunID: r.ID, Marker: &m}})
}

// Log implements engine.Reader.
func (s *Store) Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	if _, err := forkcore.ShardOf(agentID); err != nil {
		return nil, err
	}
	c, leave, err := s.lookup(ctx, "read log", sessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
	if r := s.runs[agentID]; agentID != sessionID && (r == nil || r.SessionID != sessionID) {
		return nil, notFound("log of", agentID)
	}
	all := c.logs[agentID]
	start := min(max(int(after), 0), len(all))
	end := len(all)
	if limit > 0 {
		end = min(end, start+limit)
	}
	entries := slices.Clone(all[start:end])
	for i := range entries {
		e := &entries[i]
		if !e.Blob.IsZero() {
			if e.Bytes, err = s.logBlob(sessionID, e.Blob); err != nil {
				return nil, err
			}
		}
		if e.Marker == nil {
			continue
		}
		m := *e.Marker
		e.Marker = &m
		if m.Blob != nil {
			if e.Marker.Bytes, err = s.logBlob(sessionID, *m.Blob); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

// logBlob reads bytes that a log refers to: that they are gone is damage.
func (s *Store) logBlob(sessionID string, id forkcore.Digest) ([]byte, error) {
	b, err := s.blob(sessionID, id)
	if errors.Is(err, forkcore.ErrNotFound) {
		err = fmt.Errorf("%w: %w", forkcore.ErrCorrupt, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return b, nil
}

// Inbox implements engine.Reader.
func (s *Store) Inbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error) {
	c, leave, err := s.lookup(ctx, "read inbox", sessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
	return slices.Clone(c.inbox), nil
}
