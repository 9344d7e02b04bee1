package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"forkyard/forkcore"
)

// loadedSnapshot is a snapshot and its bytes, shared by all its forks in this
// process and never changed.
type loadedSnapshot struct {
	manifest forkcore.Snapshot
	base     *forkcore.Prefix
	segments [][]byte // head included, the last one open
}

func (s *loadedSnapshot) open() []byte { return s.segments[len(s.segments)-1] }

// snapshotCache holds a few snapshots by session and id, oldest out first.
// Loading is done once for all who ask at the same time.
type snapshotCache struct {
	load func(ctx context.Context, sessionID string, id forkcore.Digest) (*loadedSnapshot, error)

	mu    sync.Mutex
	items map[string]*snapshotItem
	order []string
}

type snapshotItem struct {
	once sync.Once
	snap *loadedSnapshot
	err  error
}

const snapshotsKept = 32

func (c *snapshotCache) get(ctx context.Context, sessionID string, id forkcore.Digest) (*loadedSnapshot, error) {
	key := sessionID + "/" + id.String()
	c.mu.Lock()
	item := c.items[key]
	if item == nil {
		if c.items == nil {
			c.items = map[string]*snapshotItem{}
		}
		item = &snapshotItem{}
		c.items[key] = item
		c.order = append(c.order, key)
		if len(c.order) > snapshotsKept {
			delete(c.items, c.order[0])
			c.order = c.order[1:]
		}
	}
	c.mu.Unlock()
	item.once.Do(func() {
		item.snap, item.err = c.load(context.WithoutCancel(ctx), sessionID, id)
	})
	if item.err != nil {
		c.mu.Lock()
		if c.items[key] == item {
			delete(c.items, key) // the next asker tries again
		}
		c.mu.Unlock()
	}
	return item.snap, item.err
}

func (e *Engine) loadSnapshot(ctx context.Context, sessionID string, id forkcore.Digest) (*loadedSnapshot, error) {
	m, err := e.o.Store.Snapshot(ctx, sessionID, id)
	if err != nil {
		return nil, err
	}
	ids := make([]forkcore.Digest, len(m.Segments))
	for i, s := range m.Segments {
		ids[i] = s.SHA256
	}
	blobs, err := e.o.Store.Blobs(ctx, sessionID, ids...)
	if err != nil {
		return e.recoverSnapshot(ctx, sessionID, m, ids, err)
	}
	base, err := forkcore.LoadSnapshot(m, blobs)
	if err != nil {
		return nil, err
	}
	return &loadedSnapshot{manifest: m, base: base, segments: blobs}, nil
}

// recoverSnapshot goes on without the rendered head, should that alone be what is missing. Messages cannot be made anew.
func (e *Engine) recoverSnapshot(ctx context.Context, sessionID string, m forkcore.Snapshot, ids []forkcore.Digest, cause error) (*loadedSnapshot, error) {
	failed := func(err error) error { return fmt.Errorf("load segments of snapshot %s: %w", m.ID, err) }
	if len(ids) == 0 || (!errors.Is(cause, forkcore.ErrNotFound) && !errors.Is(cause, forkcore.ErrCorrupt)) {
		return nil, failed(cause)
	}
	messages, err := e.o.Store.Blobs(ctx, sessionID, ids[1:]...)
	if err != nil {
		return nil, failed(err)
	}
	s, err := e.o.Store.Session(ctx, sessionID)
	if err != nil {
		return nil, fmt.Errorf("load session: %w", err)
	}
	head, err := e.head(ctx, s, ids[0], func() []byte { return e.renderHead(s) })
	if err != nil {
		return nil, err
	}
	m, base, err := forkcore.RecomputeSnapshot(m, head, messages)
	if err != nil {
		return nil, err
	}
	return &loadedSnapshot{manifest: m, base: base, segments: append([][]byte{head}, messages...)}, nil
}
