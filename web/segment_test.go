package web

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// The request in testdata is the second one of a fork, as it was sent to the simulated model.
const (
	sampleMark         = `,"cache_control":{"type":"ephemeral"}`
	samplePrefix       = "384caf3c8596551e7e2588e1fafcbd6d297fc847ae70fae18e1d3104e555fbdf"
	samplePrefixLength = 12455
)

func sampleBody(t testing.TB) []byte {
	t.Helper()
	body, err := os.ReadFile("testdata/request.json")
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// sampleMarks finds the marks by their text.
func sampleMarks(t testing.TB) []forkcore.Mark {
	t.Helper()
	parts := strings.Split(string(sampleBody(t)), sampleMark)
	paths := []string{"system.0", "messages.2.content.5", "messages.4.content.1"}
	if len(parts) != len(paths)+1 {
		t.Fatalf("the sample has %d marks", len(parts)-1)
	}
	var marks []forkcore.Mark
	at := 0
	for i, path := range paths {
		at += len(parts[i])
		marks = append(marks, forkcore.Mark{Block: path, TTL: "5m", Offset: int64(at + 1)})
	}
	return marks
}

func TestSegmentsOfARealRequest(t *testing.T) {
	body, marks := sampleBody(t), sampleMarks(t)
	list, end, err := segments(body, marks)
	if err != nil {
		t.Fatal(err)
	}
	canonical := []byte(strings.ReplaceAll(string(body), sampleMark, ""))
	var marked, kinds []string
	at := int64(0)
	for _, s := range list {
		if s.Start < at || s.End <= s.Start || !bytes.Equal(s.Raw, canonical[s.Start:s.End]) {
			t.Fatalf("%s: bytes %d to %d after %d", s.Path, s.Start, s.End, at)
		}
		at = s.End
		if s.Mark != nil {
			marked = append(marked, s.Path)
			if s.Mark.Block != s.Path || s.Mark.Offset != s.End {
				t.Errorf("mark %+v stands at %s, %d", *s.Mark, s.Path, s.End)
			}
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != s.Kind {
			kinds = append(kinds, s.Kind)
		}
	}
	if d := cmp.Diff([]string{"system.0", "messages.2.content.5", "messages.4.content.1"}, marked); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"settings", "tool", "system", "text", "tool_use", "tool_result", "text", "tool_use", "tool_result"}, kinds); d != "" {
		t.Error(d)
	}
	if got := forkcore.DigestOf(canonical[:samplePrefixLength]).String(); got != samplePrefix || marks[1].Offset != samplePrefixLength {
		t.Errorf("prefix of %d bytes is %s", marks[1].Offset, got)
	}
	if !bytes.HasPrefix(canonical[end:], []byte(`],"max_tokens":`)) {
		t.Errorf("after the messages comes %.30q", canonical[end:])
	}
	through, err := canonicalOf(body, marks)
	if err != nil || !bytes.Equal(through, canonical[:end]) {
		t.Errorf("canonical bytes: %v", err)
	}
}

func TestSegmentsRefuses(t *testing.T) {
	const good = `{"model":"m","tools":[{"name":"A"}],"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_tokens":1,"stream":true}`
	tests := []struct {
		name, body string
		marks      []forkcore.Mark
		want       string
	}{
		{"nothing", "", nil, "reading a request"},
		{"an array", "[]", nil, "not those of a request"},
		{"messages are no array", `{"messages":{}}`, nil, "not those of a request"},
		{"a message is a text", `{"messages":["hi"]}`, nil, "not those of a request"},
		{"content is a text", `{"messages":[{"content":"hi"}]}`, nil, "not those of a request"},
		{"cut off", good[:90], nil, "reading a request"},
		{"a mark that is not there", good, []forkcore.Mark{{Block: "system.0", Offset: 73}}, "no mark stands at offset 73 (system.0)"},
		{"a mark far out", good, []forkcore.Mark{{Offset: 9999}}, "offset 9999"},
		{"a mark at no block", `{"messages":[],"x":{"a":1,"cache_control":{"type":"ephemeral"}}}`, []forkcore.Mark{{Block: "x", Offset: 26}}, "mark 1 (x) stands at the end of no block"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := segments([]byte(tt.body), tt.marks)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if list, _, err := segments([]byte(good), nil); err != nil || len(list) != 4 {
		t.Errorf("the good one: %d segments, %v", len(list), err)
	}
}

func TestSegmentText(t *testing.T) {
	tests := []struct{ name, kind, raw, text, headline string }{
		{"text", "text", `{"type":"text","text":"one\ntwo"}`, "one\ntwo", "one two"},
		{"tool", segmentTool, `{"name":"Bash","description":"d"}`, `{"name":"Bash","description":"d"}`, "Bash"},
		{"call", "tool_use", `{"type":"tool_use","name":"Read","input":{"file_path": "a"}}`, `{"type":"tool_use","name":"Read","input":{"file_path": "a"}}`, `Read {"file_path": "a"}`},
		{"result", "tool_result", `{"type":"tool_result","content":[{"type":"text","text":"out"}]}`, "out", "out"},
		{"two results", "tool_result", `{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image"}]}`, `{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image"}]}`, `{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"image"}]}`},
		{"a number", "", `17`, "17", "17"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := segment{Kind: tt.kind, Raw: []byte(tt.raw)}
			if got := segmentText(s); got != tt.text {
				t.Errorf("text %q, want %q", got, tt.text)
			}
			if got := segmentHeadline(s); got != tt.headline {
				t.Errorf("headline %q, want %q", got, tt.headline)
			}
		})
	}
}

func TestReadEnd(t *testing.T) {
	marks := []forkcore.Mark{{Offset: 1000}, {Offset: 2000}, {Offset: 4000}}
	usage := func(read, written int64) *forkcore.Usage {
		return &forkcore.Usage{CacheRead: read, CacheWrite5m: written, Input: 7}
	}
	writer := &forkcore.RequestRow{Usage: usage(100, 350), Marks: []forkcore.Mark{{Offset: 900}, {Offset: 2000}}}
	tests := []struct {
		name         string
		row          forkcore.RequestRow
		writer       *forkcore.RequestRow
		read, cached int64
		exact        bool
	}{
		{"unknown", forkcore.RequestRow{Marks: marks}, nil, 0, 0, true},
		{"nothing cached", forkcore.RequestRow{Marks: marks, Usage: usage(0, 0)}, nil, 0, 0, true},
		{"no marks", forkcore.RequestRow{Usage: usage(5, 5)}, nil, 0, 0, true},
		{"all written", forkcore.RequestRow{Marks: marks, Usage: usage(0, 900)}, nil, 0, 4000, true},
		{"all read", forkcore.RequestRow{Marks: marks, Usage: usage(900, 0)}, nil, 4000, 4000, true},
		{"what the writer counted", forkcore.RequestRow{Marks: marks, Usage: usage(450, 900)}, writer, 2000, 4000, true},
		{"another count", forkcore.RequestRow{Marks: marks, Usage: usage(440, 460)}, writer, 2000, 4000, false},
		{"near the first mark", forkcore.RequestRow{Marks: marks, Usage: usage(230, 670)}, nil, 1000, 4000, false},
		{"next to nothing", forkcore.RequestRow{Marks: marks, Usage: usage(1, 899)}, nil, 0, 4000, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			read, cached, exact := readEnd(tt.row, tt.writer)
			if read != tt.read || cached != tt.cached || exact != tt.exact {
				t.Errorf("got %d %d %v, want %d %d %v", read, cached, exact, tt.read, tt.cached, tt.exact)
			}
		})
	}
}

// Whatever the bytes are, segments cover pieces of them in order, or there is an error.
func FuzzSegments(f *testing.F) {
	f.Add(sampleBody(f), int64(-1))
	f.Add([]byte(strings.ReplaceAll(string(sampleBody(f)), sampleMark, "")), int64(0))
	f.Add([]byte(`{"messages":[{"role":1,"content":[[],"a",{"a":1,"cache_control":{"type":"ephemeral"}}]}]}`), int64(54))
	f.Fuzz(func(t *testing.T, body []byte, offset int64) {
		var marks []forkcore.Mark
		if offset >= 0 {
			marks = []forkcore.Mark{{Offset: offset}}
		}
		list, end, err := segments(body, marks)
		if err != nil {
			return
		}
		at, marked := int64(0), 0
		for _, s := range list {
			if s.Start < at || s.End < s.Start || s.End > int64(len(body)) {
				t.Fatalf("%s spans %d to %d after %d", s.Path, s.Start, s.End, at)
			}
			at = s.End
			if s.Mark != nil {
				marked++
			}
			_, _ = segmentText(s), segmentHeadline(s)
		}
		if marked != len(marks) || end > int64(len(body)) {
			t.Fatalf("%d of %d marks, end %d of %d bytes", marked, len(marks), end, len(body))
		}
	})
}
