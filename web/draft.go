package web

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"forkyard/forkcore"
	"forkyard/web/sse"
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
}

func newDrafts() *drafts { return &drafts{byRun: map[string]*draft{}} }

// follow takes in all events until the hub closes.
func (d *drafts) follow(hub *sse.Hub) {
	for hub.Open() {
		sub := hub.NewObserver(context.Background(), "")
		sub.Collect()
		d.read(sub)
		sub.Close()
		// The feed was interrupted: what was missed cannot be told.
		d.mu.Lock()
		clear(d.byRun)
		d.mu.Unlock()
	}
}

func (d *drafts) read(sub *sse.Subscription) {
	for {
		select {
		case <-sub.Context().Done():
			return
		case item := <-sub.Items():
			d.apply(item.Event)
		}
	}
}

// apply takes in an event, any number of times.
func (d *drafts) apply(e forkcore.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case e.Type == forkcore.EventDelta:
		d.add(e)
	case e.Run != nil && e.Run.State != forkcore.Running:
		delete(d.byRun, e.Run.ID)
	case e.Entry != nil && e.Entry.Kind == forkcore.EntryMessage:
		if w := d.byRun[e.Entry.RunID]; w != nil && e.Entry.Seq >= w.Seq {
			delete(d.byRun, e.Entry.RunID)
		}
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
	if json.Unmarshal(e.Delta, &p) != nil {
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
