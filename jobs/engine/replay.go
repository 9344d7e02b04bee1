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
	view   *forkcore.View
	// latched is the head of an agent's own requests; zero for those that send the session's.
	latched forkcore.Digest
}

// atRisk is true when the rendered prompt was lost and came out differently when it was rendered anew.
func (o origin) atRisk(s forkcore.Session) bool {
	latched := s.Head
	if !o.latched.IsZero() {
		latched = o.latched
	}
	return o.view.Prefix.HeadID() != latched
}

// begin loads a run's origin. A fork's comes from its snapshot alone; a main
// log goes on from where this process saw it last.
func (e *Engine) begin(ctx context.Context, s forkcore.Session, r forkcore.Run) (origin, error) {
	if r.Kind == forkcore.KindFork {
		snap, err := e.snapshots.get(ctx, s.ID, r.Snapshot)
		if err != nil {
			return origin{}, fmt.Errorf("load snapshot: %w", err)
		}
		v := forkcore.NewView(snap.base)
		v.Replacements = snap.manifest.Replacements.Clone()
		return origin{params: snap.manifest.Params, snap: snap, view: v}, nil
	}
	if r.Kind == forkcore.KindAgent {
		head, err := e.head(ctx, s, r.Head, func() []byte { return e.agentHeadAnew(ctx, s, r) })
		if err != nil {
			return origin{}, err
		}
		return origin{params: sessionParams(s), view: forkcore.NewView(forkcore.NewPrefix(head)), latched: r.Head}, nil
	}
	if v := e.views.get(s.ID); v != nil {
		return origin{params: sessionParams(s), view: v}, nil
	}
	return e.beginAtHead(ctx, s, s.Head)
}

// beginAtHead starts at the very beginning of a main log, whatever was replayed of it before.
func (e *Engine) beginAtHead(ctx context.Context, s forkcore.Session, id forkcore.Digest) (origin, error) {
	head, err := e.head(ctx, s, id, func() []byte { return e.renderHead(s) })
	if err != nil {
		return origin{}, err
	}
	return origin{params: sessionParams(s), view: forkcore.NewView(forkcore.NewPrefix(head))}, nil
}

// completedTurn is what a dispatch by a person or the API inherits: the main
// agent's last completed turn as its slot says, whatever a turn in progress
// adds. Before the first it is the head alone.
func (e *Engine) completedTurn(ctx context.Context, s forkcore.Session) (inheritance, error) {
	o, err := e.begin(ctx, s, forkcore.Run{Kind: forkcore.KindMain})
	if err != nil {
		return inheritance{}, err
	}
	slot := s.CacheSafe
	if slot == nil { // no turn is done yet, or none since slots are written: the log knows
		if err := e.replay(ctx, o.view, s.ID, s.ID, 0); err != nil {
			return inheritance{}, err
		}
		e.views.put(s.ID, o.view)
		return inheritance{o.view.Completed, o.view.CompletedSeq, o.params, o.view.CompletedReplacements}, nil
	}
	if o.view.Len > slot.UpToSeq && slot.Verify(o.view.Completed) == nil {
		return slotInheritance(slot, o.view.Completed, o.view.CompletedReplacements)
	}
	if o.view.Len > slot.UpToSeq || o.view.Prefix.HeadID() != slot.Head && !o.atRisk(s) {
		if o, err = e.beginAtHead(ctx, s, slot.Head); err != nil {
			return inheritance{}, err
		}
	}
	if n := slot.UpToSeq - o.view.Len; n > 0 {
		if err := e.replay(ctx, o.view, s.ID, s.ID, int(n)); err != nil {
			return inheritance{}, err
		}
		e.views.put(s.ID, o.view)
	}
	if o.atRisk(s) && slot.Head == s.Head {
		// The slot's own prompt is lost: its messages are what can still be inherited, and every child says so.
		return inheritance{o.view.Prefix, slot.UpToSeq, slot.Params, o.view.Replacements}, nil
	}
	return slotInheritance(slot, o.view.Prefix, o.view.Replacements)
}

// slotInheritance hands out a history only when it is the one that the slot describes.
func slotInheritance(slot *forkcore.CacheSafeParams, history *forkcore.Prefix, replaced forkcore.ReplacementState) (inheritance, error) {
	err := slot.Verify(history)
	if err == nil && replaced.Digest() != slot.Replacements {
		err = fmt.Errorf("the decisions about tool results up to log entry %d are not those of turn %s: %w", slot.UpToSeq, slot.RunID, forkcore.ErrCorrupt)
	}
	if err != nil {
		return inheritance{}, fmt.Errorf("forks cannot share the last completed turn; send a message, so that a new turn takes its bytes anew: %w", err)
	}
	return inheritance{history, slot.UpToSeq, slot.Params, replaced}, nil
}

// head loads a session's rendered request head. One that is lost is rendered
// anew, which is the last resort: whatever went into it may have changed since,
// and then nothing that the provider holds can be read.
func (e *Engine) head(ctx context.Context, s forkcore.Session, id forkcore.Digest, render func() []byte) ([]byte, error) {
	blobs, err := e.o.Store.Blobs(ctx, s.ID, id)
	if err == nil {
		return blobs[0], nil
	}
	if !errors.Is(err, forkcore.ErrNotFound) && !errors.Is(err, forkcore.ErrCorrupt) {
		return nil, fmt.Errorf("load request head: %w", err)
	}
	head := render()
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
