package web

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"forkyard/forkcore"
)

// draft is a message that a model is writing.
type draft struct {
	Seq     int64 // that the message will get
	Blocks  []draftBlock
	At      time.Time // of the last piece
	Version int64     // counts the pieces
}

// draftBlock is one content block of it.
type draftBlock struct {
	Index int
	Kind  string // text, thinking or tool_input
	Tool  string // of a tool_input
	Text  string
	// Lost is how many bytes before Text nobody here has seen.
	Lost int64
}

// drafts holds the unfinished messages of all runs that are written anywhere: pieces are not kept in the store, and a
// page that is opened in mid-sentence should show the sentence from its beginning.
type drafts struct {
	mu    sync.Mutex
	byRun map[string]*draft
	// finished is the seq up to which the messages of a run are complete: a piece that is published late, or once more,
	// must not bring a finished message back.
	finished map[string]int64
}

// finishedRuns bounds finished. Forgetting a run that is still written costs nothing but that protection.
const finishedRuns = 10_000

func newDrafts() *drafts { return &drafts{byRun: map[string]*draft{}, finished: map[string]int64{}} }

// FeedLost implements sse.Observer: what was missed cannot be told.
func (d *drafts) FeedLost() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.byRun)
}

// Observe implements sse.Observer. It takes in an event, any number of times; pages, which get it afterwards, only read.
func (d *drafts) Observe(e forkcore.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case e.Type == forkcore.EventDelta:
		d.add(e)
	case e.Run != nil && e.Run.State.Ended():
		d.finish(e.Run.ID, math.MaxInt64)
	case e.Run != nil && e.Run.State != forkcore.Running:
		delete(d.byRun, e.Run.ID)
		if d.finished[e.Run.ID] == math.MaxInt64 { // it was resumed after its end
			delete(d.finished, e.Run.ID)
		}
	case e.Entry != nil && e.Entry.Kind == forkcore.EntryMessage:
		d.finish(e.Entry.RunID, e.Entry.Seq)
	}
}

func (d *drafts) finish(runID string, seq int64) {
	if len(d.finished) >= finishedRuns {
		clear(d.finished)
	}
	d.finished[runID] = max(seq, d.finished[runID])
	if w := d.byRun[runID]; w != nil && seq >= w.Seq {
		delete(d.byRun, runID)
	}
}

func (d *drafts) add(e forkcore.Event) {
	var p struct {
		Seq    int64  `json:"seq"`
		Block  int    `json:"block"`
		Kind   string `json:"kind"`
		Offset int64  `json:"offset"`
		Text   string `json:"text"`
		Tool   string `json:"tool"`
	}
	if json.Unmarshal(e.Delta, &p) != nil || p.Seq <= d.finished[e.RunID] {
		return
	}
	w := d.byRun[e.RunID]
	if w == nil || p.Seq > w.Seq || p.Seq == w.Seq && p.Block == 0 && p.Offset == 0 && w.begins(p.Text) {
		w = &draft{Seq: p.Seq} // of a new message, or of a new attempt at this one
		d.byRun[e.RunID] = w
	}
	if p.Seq < w.Seq {
		return
	}
	i := slices.IndexFunc(w.Blocks, func(b draftBlock) bool { return b.Index == p.Block })
	if i < 0 {
		w.Blocks = append(w.Blocks, draftBlock{Index: p.Block, Kind: p.Kind, Lost: p.Offset})
		i = len(w.Blocks) - 1
	}
	b := &w.Blocks[i]
	if p.Tool != "" {
		b.Tool = p.Tool
	}
	switch end := b.Lost + int64(len(b.Text)); {
	case p.Offset == end:
		b.Text += p.Text
	case p.Offset > end: // a piece was dropped
		b.Text, b.Lost = p.Text, p.Offset
	default:
		return // known
	}
	w.At, w.Version = e.At, w.Version+1
}

// begins reports whether a first piece cannot be a repeat of the one that the draft begins with.
func (w *draft) begins(text string) bool {
	if len(w.Blocks) == 0 {
		return false
	}
	b := w.Blocks[0]
	return b.Index != 0 || b.Lost > 0 || len(w.Blocks) > 1 || !strings.HasPrefix(b.Text, text)
}

// of returns a copy of what a run is writing; ok is false when that is nothing.
func (d *drafts) of(runID string) (w draft, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.byRun[runID]; p != nil {
		w, ok = *p, true
		w.Blocks = slices.Clone(p.Blocks)
	}
	return w, ok
}

// pace is the least time between two drawings of a draft. Each is sent and morphed as a whole, so what it costs grows with
// its length: without a pace a long answer takes quadratic traffic, and a browser that falls behind freezes.
func (w draft) pace() time.Duration {
	size := 0
	for _, b := range w.Blocks {
		size += len(b.Text)
	}
	return time.Duration(size/draftRate) * time.Millisecond
}

// draftRate is how many bytes of a draft are drawn in a millisecond.
const draftRate = 20
