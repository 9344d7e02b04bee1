package sse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"forkyard/forkcore"
)

// memory keeps events and follows them, as the database does.
type memory struct {
	mu     sync.Mutex
	events map[string][]forkcore.Event
	feeds  map[int]func(forkcore.Event)
	breaks map[int]context.CancelCauseFunc
	next   int
	fed    chan struct{} // one value per opened feed
	before []func()      // each called by one call of Events
}

func newMemory() *memory {
	return &memory{
		events: map[string][]forkcore.Event{}, feeds: map[int]func(forkcore.Event){},
		breaks: map[int]context.CancelCauseFunc{}, fed: make(chan struct{}, 100),
	}
}

// publish stores a durable event "<n>-0", or sends a delta when n is 0.
func (m *memory) publish(sessionID string, n int) {
	e := forkcore.Event{Type: forkcore.EventRun, SessionID: sessionID, At: time.Now()}
	if n > 0 {
		e.ID = fmt.Sprintf("%d-0", n)
	} else {
		e.Type = forkcore.EventDelta
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if n > 0 {
		m.events[sessionID] = append(m.events[sessionID], e)
	}
	for _, fn := range m.feeds {
		fn(e)
	}
}

func (m *memory) Live(ctx context.Context, _ time.Time, fn func(forkcore.Event)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	id := m.next
	m.next++
	m.feeds[id], m.breaks[id] = fn, cancel
	m.mu.Unlock()
	m.fed <- struct{}{}
	<-ctx.Done()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.feeds, id)
	delete(m.breaks, id)
	return context.Cause(ctx)
}

// interrupt breaks the open feeds.
func (m *memory) interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cancel := range m.breaks {
		cancel(errors.New("connection refused"))
	}
}

func (m *memory) Events(_ context.Context, sessionID, after string, limit int) ([]forkcore.Event, error) {
	from, err := ParseID(after)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	var before func()
	if len(m.before) > 0 {
		before, m.before = m.before[0], m.before[1:]
	}
	m.mu.Unlock()
	if before != nil {
		before()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []forkcore.Event
	for _, e := range m.events[sessionID] {
		id, err := ParseID(e.ID)
		if err != nil {
			return nil, err
		}
		if id.Compare(from) > 0 && len(found) < limit {
			found = append(found, e)
		}
	}
	return found, nil
}

func (m *memory) LastEventID(_ context.Context, sessionID string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all := m.events[sessionID]; len(all) > 0 {
		return all[len(all)-1].ID, nil
	}
	return "0-0", nil
}

// Sessions pages by two.
func (m *memory) Sessions(_ context.Context, cursor string, _ int) ([]forkcore.Session, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	start := 0
	if cursor != "" {
		var err error
		if start, err = strconv.Atoi(cursor); err != nil {
			return nil, "", err
		}
	}
	var all []forkcore.Session
	for _, id := range []string{"a", "b", "c"} {
		if len(m.events[id]) > 0 {
			all = append(all, forkcore.Session{ID: id})
		}
	}
	end := min(start+2, len(all))
	next := ""
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return all[start:end], next, nil
}

func encodeID(_ context.Context, e forkcore.Event) (Frame, error) {
	return Frame{ID: e.ID, Event: string(e.Type), Data: []byte(e.SessionID + "/" + e.ID)}, nil
}

// startHub starts a hub whose feed is open.
func startHub(t *testing.T, m *memory, encode Encode) *Hub {
	t.Helper()
	h := StartHub(m, encode, testLog(t))
	t.Cleanup(h.Close)
	<-m.fed
	return h
}
