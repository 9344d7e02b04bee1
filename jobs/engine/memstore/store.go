// Package memstore keeps sessions, runs, logs and events in memory. It is
// for tests of the engine under a fake clock: one mutex, the clock of package
// time, no goroutines. It is also the proof that the contract of engine.Store
// does not lean on Redis, because it passes the same conformance suite.
package memstore

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

var _ engine.Store = (*Store)(nil)

const (
	// gateTTL is for how long the opening of a gate is trusted: the life of the provider's entry less a margin.
	gateTTL = 290 * time.Second
	// enqueueGrace is how long a queued run waits for its enqueue before a sweep hands it out.
	enqueueGrace = time.Second
)

// Store implements engine.Store. Use New. Its methods are safe for concurrent
// use; a context that has ended fails them, as it would over a network.
type Store struct {
	mu         sync.Mutex
	sessions   map[string]*session
	order      []*session // oldest first
	runs       map[string]*run
	dispatches map[string]*dispatch
	blobs      map[string]map[forkcore.Digest][]byte // by session
	beats      map[string]time.Time                  // by executor; zero after a goodbye
	signals    map[string]map[string]string          // kind by executor and run
	accounts   map[string]*account
	inUse      string // the account of the dashboard
	flags      map[string]bool
}

// New returns an empty store.
func New() *Store {
	return &Store{
		sessions: map[string]*session{}, runs: map[string]*run{}, dispatches: map[string]*dispatch{},
		blobs: map[string]map[forkcore.Digest][]byte{}, beats: map[string]time.Time{}, signals: map[string]map[string]string{},
		accounts: map[string]*account{}, flags: map[string]bool{},
	}
}

// enter locks the store for one method; ids must be well-formed.
func (s *Store) enter(ctx context.Context, doing string, ids ...string) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	for _, id := range ids {
		if _, err := forkcore.ShardOf(id); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
	}
	s.mu.Lock()
	return s.mu.Unlock, nil
}

func notFound(noun, id string) error {
	return fmt.Errorf("%s %s: %w", noun, id, forkcore.ErrNotFound)
}

// step is one atomic change: what it touched is versioned and published at its
// end. Everything is checked before the first change, so a refused step leaves no trace.
type step struct {
	*Store
	now     time.Time
	touched map[any]bool
	queue   []change
	wakes   []engine.Wake
}

// change becomes one event; of is the object to be published as it is at the end of the step.
type change struct {
	of    any // *session, *run or *dispatch; nil when event is complete
	event forkcore.Event
}

func (s *Store) begin() *step {
	return &step{Store: s, now: time.Now().UTC().Truncate(time.Millisecond), touched: map[any]bool{}}
}

// touch bumps an object's version; with an event type the object is published too, once.
func (st *step) touch(of any, event forkcore.EventType) {
	st.touched[of] = true
	if event == "" {
		return
	}
	for _, c := range st.queue {
		if c.of == of && c.event.Type == event {
			return
		}
	}
	st.queue = append(st.queue, change{of: of, event: forkcore.Event{Type: event}})
}

func (st *step) touchRun(r *run)           { st.touch(r, forkcore.EventRun) }
func (st *step) touchSession(s *session)   { st.touch(s, forkcore.EventSession) }
func (st *step) touchDispatch(d *dispatch) { st.touch(d, forkcore.EventGate) }

// finish versions and publishes what the step touched.
func (st *step) finish() {
	for of := range st.touched {
		switch o := of.(type) {
		case *session:
			o.Version, o.UpdatedAt = o.Version+1, st.now
		case *run:
			o.Version, o.UpdatedAt = o.Version+1, st.now
		case *dispatch:
			o.Version, o.UpdatedAt = o.Version+1, st.now
		}
	}
	for _, c := range st.queue {
		e := c.event
		switch o := c.of.(type) {
		case *session:
			v := o.Session
			v.CacheSafe = nil
			e.SessionID, e.Session = o.ID, &v
		case *run:
			v := o.Run
			e.SessionID, e.RunID, e.Run = o.SessionID, o.ID, &v
		case *dispatch:
			v := o.view()
			e.SessionID, e.Dispatch = o.SessionID, &v
		}
		st.sessions[e.SessionID].publish(st.now, e)
	}
}

// answer is what a step of a holder answered.
type answer struct {
	n       int64
	wakes   []engine.Wake
	created bool
}

// held performs a step of a holder. The same step again, because its answer was
// lost, changes nothing and answers as before.
func (s *Store) held(ctx context.Context, doing string, h engine.Holder, input any, do func(*step, *run) (answer, error)) (answer, error) {
	leave, err := s.enter(ctx, doing, h.RunID)
	if err != nil {
		return answer{}, err
	}
	defer leave()
	r := s.runs[h.RunID]
	if r == nil {
		return answer{}, fmt.Errorf("%s: %w", doing, engine.ErrLeaseLost)
	}
	op := stepName(doing, h, input)
	if r.op == op {
		return r.answer, nil
	}
	if !r.heldBy(h) {
		return answer{}, fmt.Errorf("%s: %w", doing, engine.ErrLeaseLost)
	}
	return s.perform(doing, r, op, do)
}

// perform runs do, and notes its answer for a repeat.
func (s *Store) perform(doing string, r *run, op string, do func(*step, *run) (answer, error)) (answer, error) {
	st := s.begin()
	a, err := do(st, r)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", doing, err)
	}
	st.finish()
	r.op, r.answer = op, a
	return a, nil
}

// stepName names a step by what it does: token and log length make it unique.
func stepName(doing string, h engine.Holder, input any) string {
	b, err := json.Marshal([]any{doing, h, input})
	if err != nil {
		panic(err) // our own structs of strings and numbers always encode
	}
	return forkcore.DigestOf(b).String()
}
