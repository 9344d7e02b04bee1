package engine

import (
	"context"
	"errors"
	"fmt"

	"forkyard/forkcore"
)

// origin is what a run's log is replayed over: the parts of its requests that
// the log does not hold.
type origin struct {
	params forkcore.Params
	snap   *loadedSnapshot // forks
	// atRisk is true when the rendered prompt was lost and came out differently when it was rendered anew.
	atRisk bool
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
		return origin{params: snap.manifest.Params, snap: snap, atRisk: snap.manifest.ID != r.Snapshot, view: forkcore.NewView(snap.base)}, nil
	}
	if v := e.views.get(s.ID); v != nil {
		return origin{params: sessionParams(s), view: v}, nil
	}
	return e.beginAtHead(ctx, s)
}

// beginAtHead starts at the very beginning of a main log, whatever was replayed of it before.
func (e *Engine) beginAtHead(ctx context.Context, s forkcore.Session) (origin, error) {
	head, err := e.head(ctx, s, s.Head)
	if err != nil {
		return origin{}, err
	}
	return origin{params: sessionParams(s), atRisk: forkcore.DigestOf(head) != s.Head, view: forkcore.NewView(forkcore.NewPrefix(head))}, nil
}

// head loads a session's rendered request head. One that is lost is rendered
// anew, which is the last resort: whatever went into it may have changed since,
// and then nothing that the provider holds can be read.
func (e *Engine) head(ctx context.Context, s forkcore.Session, id forkcore.Digest) ([]byte, error) {
	blobs, err := e.o.Store.Blobs(ctx, s.ID, id)
	if err == nil {
		return blobs[0], nil
	}
	if !errors.Is(err, forkcore.ErrNotFound) && !errors.Is(err, forkcore.ErrCorrupt) {
		return nil, fmt.Errorf("load request head: %w", err)
	}
	head := e.renderHead(s)
	e.recomputed.Add(1)
	e.log.Warn("the rendered prompt of a session is lost and was rendered anew", "session", s.ID, "err", err, "cache_at_risk", forkcore.DigestOf(head) != id)
	// Dispatches refer to it; and where it is the lost one, it is found again.
	if err := e.o.Store.PutBlobs(ctx, s.ID, head); err != nil {
		return nil, fmt.Errorf("store request head: %w", err)
	}
	return head, nil
}

// PromptsRecomputed counts how often this process had to render a lost prompt anew.
func (e *Engine) PromptsRecomputed() int64 { return e.recomputed.Load() }

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
