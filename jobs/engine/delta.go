package engine

import (
	"context"
	"sync"
	"time"

	"forkyard/forkcore"
)

// deltaPeriod is how long pieces of text are gathered before they are sent to
// whoever watches: at most about 16 updates a second and run.
const deltaPeriod = 60 * time.Millisecond

// deltaWriter coalesces streamed text. Deltas may be dropped, so errors are
// ignored: the complete message follows through the log.
type deltaWriter struct {
	ctx   context.Context
	e     *Engine
	base  Delta
	total int64 // bytes seen, for estimates

	mu      sync.Mutex
	pending Delta
	offsets map[int]int64
	timer   *time.Timer
	closed  bool
}

func newDeltaWriter(ctx context.Context, e *Engine, sessionID, runID string, seq int64) *deltaWriter {
	return &deltaWriter{ctx: ctx, e: e, base: Delta{SessionID: sessionID, RunID: runID, Seq: seq}, offsets: map[int]int64{}}
}

func (w *deltaWriter) add(ev *forkcore.ModelDelta) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += int64(len(ev.Text))
	if w.closed {
		return
	}
	if w.pending.Text != "" && (w.pending.Block != ev.Index || w.pending.Kind != ev.Kind) {
		w.flush()
	}
	if w.pending.Text == "" {
		tool := ""
		if w.pending.Block == ev.Index {
			tool = w.pending.Tool // a tool's name may come before its input
		}
		w.pending = w.base
		w.pending.Block, w.pending.Kind, w.pending.Offset, w.pending.Tool = ev.Index, ev.Kind, w.offsets[ev.Index], tool
	}
	if ev.ToolName != "" {
		w.pending.Tool = ev.ToolName
	}
	w.pending.Text += ev.Text
	w.offsets[ev.Index] += int64(len(ev.Text))
	if w.timer == nil {
		w.timer = time.AfterFunc(deltaPeriod, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.timer = nil
			if !w.closed {
				w.flush()
			}
		})
	}
}

// flush sends what is pending; w.mu is held.
func (w *deltaWriter) flush() {
	if w.pending.Text == "" {
		return
	}
	_ = w.e.o.Store.PublishDelta(w.ctx, w.pending)
	w.pending = Delta{}
}

func (w *deltaWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.ctx.Err() == nil {
		w.flush()
	}
}
