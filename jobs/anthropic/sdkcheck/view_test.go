package sdkcheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
)

// The readers that are compared.
const (
	typescript = "TypeScript SDK"
	golang     = "Go SDK"
	ours       = "this program"
)

// view is what one reader says of one answer.
type view struct {
	ID          string
	StopReason  string
	StopDetails string // JSON with sorted keys
	Usage       usage
	// Blocks are JSON with sorted keys: equal text is an equal value. Numbers keep their digits.
	Blocks []string
	Err    *failure
}

// usage has every field of the API's usage object that a reader can show; thinking is unknown where it is -1.
type usage struct {
	Input, Write, Write5m, Write1h, Read, Output, Thinking int64
}

type failure struct {
	Class     string // of the TypeScript SDK
	Status    int
	Type      string
	Code      string
	Message   string
	RequestID string
}

const unknown = -1

// wireUsage is the usage object of the API.
type wireUsage struct {
	Input    int64 `json:"input_tokens"`
	Write    int64 `json:"cache_creation_input_tokens"`
	Read     int64 `json:"cache_read_input_tokens"`
	Creation struct {
		M5 int64 `json:"ephemeral_5m_input_tokens"`
		H1 int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	Output  int64 `json:"output_tokens"`
	Details *struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u wireUsage) usage() usage {
	out := usage{Input: u.Input, Write: u.Write, Write5m: u.Creation.M5, Write1h: u.Creation.H1, Read: u.Read, Output: u.Output}
	if u.Details != nil {
		out.Thinking = u.Details.Thinking
	}
	return out
}

// wireMessage is a message as the SDKs hold it, written as JSON.
type wireMessage struct {
	ID          string            `json:"id"`
	Content     []json.RawMessage `json:"content"`
	StopReason  string            `json:"stop_reason"`
	StopDetails json.RawMessage   `json:"stop_details"`
	Usage       wireUsage         `json:"usage"`
}

func (m wireMessage) view(t testing.TB) view {
	v := view{ID: m.ID, StopReason: m.StopReason, StopDetails: canonical(t, m.StopDetails), Usage: m.Usage.usage()}
	for _, b := range m.Content {
		v.Blocks = append(v.Blocks, canonical(t, b))
	}
	return v
}

// canonical sorts the keys of a JSON value and drops white space; numbers keep their digits. "" for no value and null.
func canonical(t testing.TB, raw []byte) string {
	t.Helper()
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return encode(t, decode(t, raw, false))
}

// rounded is canonical with numbers as JavaScript holds them.
func rounded(t testing.TB, raw string) string {
	t.Helper()
	return encode(t, decode(t, []byte(raw), true))
}

func decode(t testing.TB, raw []byte, floats bool) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	if !floats {
		dec.UseNumber()
	}
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return v
}

func encode(t testing.TB, v any) string {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(buf.String())
}

// agree compares the views of one request. Message and request ids differ between requests, since each reader sends its
// own: they are compared with what the simulator recorded, elsewhere.
func agree(t testing.TB, views map[string]view) {
	t.Helper()
	names := []string{typescript, golang, ours}
	base := shape(t, views[names[0]])
	for _, name := range names[1:] {
		v, ok := views[name]
		if !ok {
			t.Errorf("%s has no view", name)
			continue
		}
		got, want := shape(t, v), base
		if got.Usage.Thinking == unknown {
			want.Usage.Thinking = unknown
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-) and %s (+) disagree:\n%s", names[0], name, diff)
		}
	}
	if t.Failed() {
		t.Log(table(views))
	}
}

func shape(t testing.TB, v view) view {
	v.ID = ""
	v.Blocks = slices.Clone(v.Blocks)
	for i, b := range v.Blocks {
		v.Blocks[i] = rounded(t, b)
	}
	return v
}

// table shows what each reader said, one line a property.
func table(views map[string]view) string {
	names := []string{typescript, golang, ours}
	var buf strings.Builder
	w := tabwriter.NewWriter(&buf, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what each said\t%s\n", strings.Join(names, "\t"))
	row := func(title string, f func(view) string) {
		fmt.Fprint(w, title)
		for _, name := range names {
			said := "–"
			if v, ok := views[name]; ok {
				said = f(v)
			}
			fmt.Fprint(w, "\t"+said)
		}
		fmt.Fprintln(w)
	}
	row("id", func(v view) string { return v.ID })
	row("stop reason", func(v view) string { return v.StopReason + v.StopDetails })
	row("usage", func(v view) string {
		u := v.Usage
		return fmt.Sprintf("in %d, written %d (5m %d, 1h %d), read %d, out %d (thinking %d)", u.Input, u.Write, u.Write5m, u.Write1h, u.Read, u.Output, u.Thinking)
	})
	blocks := 0
	for _, v := range views {
		blocks = max(blocks, len(v.Blocks))
	}
	for i := range blocks {
		row(fmt.Sprintf("block %d", i), func(v view) string {
			if i >= len(v.Blocks) {
				return "none"
			}
			return v.Blocks[i]
		})
	}
	row("error", func(v view) string {
		if v.Err == nil {
			return "none"
		}
		return fmt.Sprintf("%+v", *v.Err)
	})
	_ = w.Flush()
	return buf.String()
}

func TestDisagreementIsFoundAndShown(t *testing.T) {
	same := view{StopReason: "end_turn", Usage: usage{Input: 3, Thinking: 2}, Blocks: []string{`{"n":9007199254740993}`}}
	blind := same
	blind.Usage.Thinking = unknown
	other := same
	other.Usage.Input = 4
	for name, tt := range map[string]struct {
		views map[string]view
		want  bool
	}{
		"equal":          {map[string]view{typescript: same, golang: same, ours: blind}, false},
		"other usage":    {map[string]view{typescript: same, golang: other, ours: blind}, true},
		"a view missing": {map[string]view{typescript: same, golang: same}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rec := &recorder{TB: t}
			agree(rec, tt.views)
			if rec.failed != tt.want {
				t.Errorf("found = %v, want %v", rec.failed, tt.want)
			}
			if rec.failed && !strings.Contains(rec.logged, "what each said") {
				t.Errorf("no table: %q", rec.logged)
			}
		})
	}
}

// recorder keeps what a check reports.
type recorder struct {
	testing.TB
	failed bool
	logged string
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Log(args ...any)       { r.logged += fmt.Sprint(args...) }
