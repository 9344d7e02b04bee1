package web

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

type piece struct {
	Seq    int64  `json:"seq"`
	Block  int    `json:"block"`
	Kind   string `json:"kind"`
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	Tool   string `json:"tool,omitempty"`
}

func (p piece) event(run string) forkcore.Event {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return forkcore.Event{Type: forkcore.EventDelta, RunID: run, At: noon, Delta: b}
}

func TestDrafts(t *testing.T) {
	text := func(s string) []draftBlock { return []draftBlock{{Kind: "text", Text: s}} }
	ended := forkcore.Event{Type: forkcore.EventRun, Run: &forkcore.Run{ID: "r", State: forkcore.Done}}
	message := func(seq int64, kind forkcore.EntryKind) forkcore.Event {
		return forkcore.Event{Type: forkcore.EventMessage, Entry: &forkcore.Entry{Seq: seq, Kind: kind, RunID: "r"}}
	}
	hello, world := piece{Seq: 3, Kind: "text", Text: "hello "}.event("r"), piece{Seq: 3, Kind: "text", Offset: 6, Text: "world"}.event("r")
	tests := []struct {
		name   string
		events []forkcore.Event
		want   []draftBlock // nil: nothing is written
	}{
		{"pieces join", []forkcore.Event{hello, world}, text("hello world")},
		{"a piece that comes twice", []forkcore.Event{hello, hello, world, world, hello}, text("hello world")},
		{"a piece was dropped", []forkcore.Event{hello, piece{Seq: 3, Kind: "text", Offset: 9, Text: "ld"}.event("r")}, []draftBlock{{Kind: "text", Text: "ld", Lost: 9}}},
		{"opened in mid-sentence", []forkcore.Event{world}, []draftBlock{{Kind: "text", Text: "world", Lost: 6}}},
		{"a new attempt says something else", []forkcore.Event{hello, world, piece{Seq: 3, Kind: "text", Text: "good"}.event("r")}, text("good")},
		{"the next message", []forkcore.Event{hello, piece{Seq: 5, Kind: "text", Text: "x"}.event("r")}, text("x")},
		{"a late piece of an older message", []forkcore.Event{piece{Seq: 5, Kind: "text", Text: "x"}.event("r"), world}, text("x")},
		{
			"blocks",
			[]forkcore.Event{hello, piece{Seq: 3, Block: 1, Kind: "tool_input", Tool: "Grep", Text: `{"p`}.event("r")},
			[]draftBlock{{Kind: "text", Text: "hello "}, {Index: 1, Kind: "tool_input", Tool: "Grep", Text: `{"p`}},
		},
		{"the message came", []forkcore.Event{hello, message(3, forkcore.EntryMessage)}, nil},
		{"a marker before it", []forkcore.Event{hello, message(3, forkcore.EntryMarker)}, text("hello ")},
		{"an older message", []forkcore.Event{hello, message(2, forkcore.EntryMessage)}, text("hello ")},
		{"the run ended", []forkcore.Event{hello, ended}, nil},
		{"a piece that comes after its message", []forkcore.Event{hello, message(3, forkcore.EntryMessage), world}, nil},
		{"a piece that comes after the end", []forkcore.Event{hello, ended, world}, nil},
		{"what follows a message", []forkcore.Event{hello, message(3, forkcore.EntryMessage), piece{Seq: 5, Kind: "text", Text: "x"}.event("r")}, text("x")},
		{"no delta at all", []forkcore.Event{{Type: forkcore.EventDelta, RunID: "r", Delta: []byte("{")}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := newDrafts()
			for _, e := range test.events {
				d.Observe(e)
			}
			w, ok := d.of("r")
			if ok != (test.want != nil) {
				t.Fatalf("is written: %t, want %t", ok, test.want != nil)
			}
			if diff := cmp.Diff(test.want, w.Blocks); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
		})
	}
	d := newDrafts()
	d.Observe(hello)
	d.Observe(piece{Seq: 1, Kind: "text", Text: "other"}.event("s"))
	before, _ := d.of("r")
	d.Observe(world)
	after, _ := d.of("r")
	if before.Blocks[0].Text != "hello " || after.Version <= before.Version || !after.At.Equal(noon) {
		t.Errorf("before %+v, after %+v: a copy must not change, and the version must", before, after)
	}
}
