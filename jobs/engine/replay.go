package engine

import (
	"context"
	"fmt"

	"forkyard/forkcore"
)

// origin is what a run's log is replayed over: the parts of its requests that
// the log does not hold.
type origin struct {
	params forkcore.Params
	snap   *loadedSnapshot // forks
	view   *forkcore.View
}

// begin loads a run's origin. A fork's comes from its snapshot alone; a main
// log goes on from where this process saw it last.
func (e *Engine) begin(ctx context.Context, s forkcore.Session, r forkcore.Run) (origin, error) {
	if r.Kind == forkcore.KindFork {
		snap, err := e.snapshots.get(ctx, s.ID, r.Snapshot)
		if err != nil {
			return origin{}, fmt.Errorf("load snapshot: %w", err)
		}
		return origin{params: snap.manifest.Params, snap: snap, view: forkcore.NewView(snap.base)}, nil
	}
	if v := e.views.get(s.ID); v != nil {
		return origin{params: sessionParams(s), view: v}, nil
	}
	return e.beginAtHead(ctx, s)
}

// beginAtHead starts at the very beginning of a main log, whatever was replayed of it before.
func (e *Engine) beginAtHead(ctx context.Context, s forkcore.Session) (origin, error) {
	blobs, err := e.o.Store.Blobs(ctx, s.ID, s.Head)
	if err != nil {
		return origin{}, fmt.Errorf("load request head: %w", err)
	}
	return origin{params: sessionParams(s), view: forkcore.NewView(forkcore.NewPrefix(blobs[0]))}, nil
}

// replay applies the log entries that a view has not seen, at most limit; 0 = all.
func (e *Engine) replay(ctx context.Context, v *forkcore.View, sessionID, agentID string, limit int) error {
	entries, err := e.o.Store.Log(ctx, sessionID, agentID, v.Len, limit)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	for _, en := range entries {
		if err := v.Apply(en); err != nil {
			return err
		}
	}
	return nil
}
