package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// watched is a store whose deltas somebody watches.
type watched struct {
	engine.Store
	mu     sync.Mutex
	start  time.Time
	deltas []timedDelta
}

type timedDelta struct {
	After time.Duration
	engine.Delta
}

func (w *watched) PublishDelta(ctx context.Context, d engine.Delta) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deltas = append(w.deltas, timedDelta{time.Since(w.start), d})
	return forkcore.ErrStoreUnavailable // nobody may care
}

func TestDeltas(t *testing.T) {
	text := func(block int, s string) forkcore.ModelDelta {
		return forkcore.ModelDelta{Index: block, Kind: "text", Text: s}
	}
	const ms = time.Millisecond
	type piece struct {
		After  time.Duration
		Block  int
		Kind   string
		Offset int64
		Text   string
		Tool   string
	}
	tests := []struct {
		name   string
		every  time.Duration
		deltas []forkcore.ModelDelta
		want   []piece
	}{
		{"none", 0, nil, nil},
		{"one", 100 * ms, []forkcore.ModelDelta{text(0, "abc")}, []piece{{60 * ms, 0, "text", 0, "abc", ""}}},
		{"at once", 0, []forkcore.ModelDelta{text(0, "a"), text(0, "bé"), text(0, "c")}, []piece{{0, 0, "text", 0, "abéc", ""}}},
		{
			"coalesced", 25 * ms,
			[]forkcore.ModelDelta{text(0, "a"), text(0, "b"), text(0, "c"), text(0, "d"), text(0, "e")},
			[]piece{{60 * ms, 0, "text", 0, "abc", ""}, {125 * ms, 0, "text", 3, "de", ""}},
		},
		{"blocks apart", 10 * ms, []forkcore.ModelDelta{
			{Index: 0, Kind: "thinking", Text: "hm"}, text(1, "a"), {Index: 2, Kind: "tool_input", ToolName: "Bash"}, {Index: 2, Kind: "tool_input", Text: `{"x"`}, {Index: 2, Kind: "tool_input", Text: `:1}`},
		}, []piece{{10 * ms, 0, "thinking", 0, "hm", ""}, {20 * ms, 1, "text", 0, "a", ""}, {50 * ms, 2, "tool_input", 0, `{"x":1}`, "Bash"}}},
		{
			"a tool without input", 10 * ms,
			[]forkcore.ModelDelta{{Index: 0, Kind: "tool_input", ToolName: "Bash"}, text(1, "a")},
			[]piece{{20 * ms, 1, "text", 0, "a", ""}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &watched{start: time.Now()}
				y := newYard(t, func(call) reply {
					a := say("x")
					a.deltas, a.every = tt.deltas, tt.every
					return a
				}, func(o *engine.Options) {
					w.Store = o.Store
					o.Store = w
				})
				r := y.ask("go")
				time.Sleep(time.Second)
				var got []piece
				for _, d := range w.deltas {
					want(t, "run", d.RunID, r.ID)
					want(t, "session", d.SessionID, y.session.ID)
					want(t, "seq", d.Seq, 3) // of the message to be: turn_start, user, assistant
					got = append(got, piece{d.After, d.Block, d.Kind, d.Offset, d.Text, d.Tool})
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("deltas (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDeltaRate: a fast stream gives at most about 16 updates a second, and all of its text.
func TestDeltaRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{start: time.Now()}
		y := newYard(t, func(call) reply {
			a := say("x")
			for range 1000 {
				a.deltas = append(a.deltas, forkcore.ModelDelta{Kind: "text", Text: "word "})
			}
			a.every = 3 * time.Millisecond
			return a
		}, func(o *engine.Options) {
			w.Store = o.Store
			o.Store = w
		})
		y.ask("go")
		var all strings.Builder
		for _, d := range w.deltas {
			want(t, "offset", d.Offset, int64(all.Len()))
			all.WriteString(d.Text)
		}
		want(t, "text", all.String(), strings.Repeat("word ", 1000))
		if n := len(w.deltas); n < 40 || n > 51 {
			t.Errorf("%d updates in 3 s, want about 50", n)
		}
	})
}
