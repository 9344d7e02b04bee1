package engine_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// faulty is a store whose n-th call fails, or some calls from there on, before or after they took effect.
// With dead set every later call fails too, without effect: what a process that
// was killed, or cut off from the database, looks like to the others.
type faulty struct {
	engine.Store
	n     int // 0: none fails
	span  int // how many calls fail; 0: one
	after bool
	dead  bool
	err   error
	// trigger names what failed.
	trigger string

	mu    sync.Mutex
	calls int
}

// next says what becomes of a call: whether it is done and whether its answer arrives.
func (f *faulty) next(name string) (do, answer bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	switch {
	case f.n > 0 && f.calls >= f.n && f.calls < f.n+max(f.span, 1):
		if f.trigger == "" {
			f.trigger = name
		}
		return f.after, false
	case f.n > 0 && f.calls > f.n && f.dead:
		return false, false
	}
	return true, true
}

// failed reports whether the fault has struck, and at what.
func (f *faulty) failed() (at string, yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trigger, f.trigger != ""
}

func hit[T any](f *faulty, name string, do func() (T, error)) (T, error) {
	var zero T
	done, answer := f.next(name)
	if !done {
		return zero, fmt.Errorf("%s: %w", name, f.err)
	}
	v, err := do()
	if !answer {
		return zero, fmt.Errorf("%s: %w", name, f.err)
	}
	return v, err
}

type none struct{}

type pair[A, B any] struct {
	a A
	b B
}

func (f *faulty) PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error {
	_, err := hit(f, "PutBlobs", func() (none, error) { return none{}, f.Store.PutBlobs(ctx, sessionID, blobs...) })
	return err
}

func (f *faulty) PutSnapshot(ctx context.Context, s forkcore.Snapshot) error {
	_, err := hit(f, "PutSnapshot", func() (none, error) { return none{}, f.Store.PutSnapshot(ctx, s) })
	return err
}

func (f *faulty) Accept(ctx context.Context, a engine.Accept) (engine.Accepted, error) {
	return hit(f, "Accept", func() (engine.Accepted, error) { return f.Store.Accept(ctx, a) })
}

func (f *faulty) TakeLease(ctx context.Context, w engine.Wake, executor, token string, foreground bool) (engine.Lease, error) {
	return hit(f, "TakeLease", func() (engine.Lease, error) { return f.Store.TakeLease(ctx, w, executor, token, foreground) })
}

func (f *faulty) Append(ctx context.Context, h engine.Holder, n int64, entries []forkcore.Entry, take []string) (int64, error) {
	return hit(f, "Append", func() (int64, error) { return f.Store.Append(ctx, h, n, entries, take) })
}

func (f *faulty) BeginRequest(ctx context.Context, h engine.Holder, row forkcore.RequestRow, reserve int64, limit time.Duration) error {
	_, err := hit(f, "BeginRequest", func() (none, error) { return none{}, f.Store.BeginRequest(ctx, h, row, reserve, limit) })
	return err
}

func (f *faulty) FirstEvent(ctx context.Context, h engine.Holder, row forkcore.RequestRow, entries []forkcore.CacheEntry) ([]engine.Wake, error) {
	return hit(f, "FirstEvent", func() ([]engine.Wake, error) { return f.Store.FirstEvent(ctx, h, row, entries) })
}

func (f *faulty) Settle(ctx context.Context, h engine.Holder, s engine.Settle) (int64, error) {
	return hit(f, "Settle", func() (int64, error) { return f.Store.Settle(ctx, h, s) })
}

func (f *faulty) CreateDispatch(ctx context.Context, h *engine.Holder, d engine.CreateDispatch) ([]engine.Wake, bool, error) {
	p, err := hit(f, "CreateDispatch", func() (pair[[]engine.Wake, bool], error) {
		wakes, created, err := f.Store.CreateDispatch(ctx, h, d)
		return pair[[]engine.Wake, bool]{wakes, created}, err
	})
	return p.a, p.b, err
}

func (f *faulty) Release(ctx context.Context, h engine.Holder) ([]engine.Wake, error) {
	return hit(f, "Release", func() ([]engine.Wake, error) { return f.Store.Release(ctx, h) })
}

func (f *faulty) EndRun(ctx context.Context, h engine.Holder, e engine.EndRun) ([]engine.Wake, error) {
	return hit(f, "EndRun", func() ([]engine.Wake, error) { return f.Store.EndRun(ctx, h, e) })
}

func (f *faulty) Session(ctx context.Context, id string) (forkcore.Session, error) {
	return hit(f, "Session", func() (forkcore.Session, error) { return f.Store.Session(ctx, id) })
}

func (f *faulty) Run(ctx context.Context, id string) (forkcore.Run, error) {
	return hit(f, "Run", func() (forkcore.Run, error) { return f.Store.Run(ctx, id) })
}

func (f *faulty) Dispatch(ctx context.Context, id string) (forkcore.Dispatch, error) {
	return hit(f, "Dispatch", func() (forkcore.Dispatch, error) { return f.Store.Dispatch(ctx, id) })
}

func (f *faulty) Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	return hit(f, "Log", func() ([]forkcore.Entry, error) { return f.Store.Log(ctx, sessionID, agentID, after, limit) })
}

func (f *faulty) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	return hit(f, "Blobs", func() ([][]byte, error) { return f.Store.Blobs(ctx, sessionID, ids...) })
}

func (f *faulty) Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error) {
	return hit(f, "Snapshot", func() (forkcore.Snapshot, error) { return f.Store.Snapshot(ctx, sessionID, id) })
}

func (f *faulty) Inbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error) {
	return hit(f, "Inbox", func() ([]forkcore.InboxItem, error) { return f.Store.Inbox(ctx, sessionID) })
}

func (f *faulty) Requests(ctx context.Context, runID string) ([]forkcore.RequestRow, error) {
	return hit(f, "Requests", func() ([]forkcore.RequestRow, error) { return f.Store.Requests(ctx, runID) })
}

func (f *faulty) CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	return hit(f, "CacheEntries", func() ([]forkcore.CacheEntry, error) { return f.Store.CacheEntries(ctx, sessionID) })
}

// Heartbeat and Sweep are not counted: they come with the clock, not with a run. They fail with the rest.
func (f *faulty) Heartbeat(ctx context.Context, executor string) ([]engine.Signal, error) {
	if _, down := f.failed(); down && f.dead {
		return nil, f.err
	}
	return f.Store.Heartbeat(ctx, executor)
}

func (f *faulty) Sweep(ctx context.Context, dead, redue time.Duration) ([]engine.Wake, error) {
	if _, down := f.failed(); down && f.dead {
		return nil, f.err
	}
	return f.Store.Sweep(ctx, dead, redue)
}
