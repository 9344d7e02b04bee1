package modelsim

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMarksAreCutOut(t *testing.T) {
	const m = `"cache_control":{"type":"ephemeral"}`
	for _, tc := range []struct{ name, in, want string }{
		{"last", `{"type":"text","text":"a",` + m + `}`, `{"type":"text","text":"a"}`},
		{"first", `{` + m + `,"type":"text","text":"a"}`, `{"type":"text","text":"a"}`},
		{"middle", `{"type":"text",` + m + `,"text":"a"}`, `{"type":"text","text":"a"}`},
		{"with spaces", `{"type":"text", "text":"a" , ` + m + ` }`, `{"type":"text", "text":"a" }`},
		{"twice", `{` + m + `,"type":"text",` + m + `,"text":"a"}`, `{"type":"text","text":"a"}`},
		{"in a string only", `{"type":"text","text":"{\"cache_control\":{\"type\":\"ephemeral\"}}"}`, `{"type":"text","text":"{\"cache_control\":{\"type\":\"ephemeral\"}}"}`},
		{"in a tool's input", `{"type":"tool_use","id":"t","name":"A","input":{` + m + `}}`, `{"type":"tool_use","id":"t","name":"A","input":{` + m + `}}`},
		{
			"inside a result", `{"type":"tool_result","content":[{"type":"text",` + m + `,"text":"a"},{"type":"text","text":"b",` + m + `}],"tool_use_id":"t",` + m + `}`,
			`{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"tool_use_id":"t"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pos, err := newPosition(tierMessages, "p", "user", []byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(pos.clean); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Cutting agrees with the standard decoder: same members, same elements, and a mark that is cut out is the only loss.
func FuzzCutting(f *testing.F) {
	for _, s := range []string{
		`{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}`, `[1, [2,"]"],{"a":"}"}, null]`, `{"a\u0062":1,"":{}}`, ` {"x" : -1e5 , "y":"\\"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) == nil && want != nil {
			got := map[string]json.RawMessage{}
			ms := members(raw)
			for _, m := range ms {
				got[m.name] = m.value
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("members of %q (-want +got):\n%s", raw, diff)
			}
			for name := range want {
				less := cut(raw, memberSpans(raw, ms, name))
				var rest map[string]json.RawMessage
				if err := json.Unmarshal(less, &rest); err != nil {
					t.Fatalf("%q without %q is %q: %v", raw, name, less, err)
				}
				if _, still := rest[name]; still || len(rest) != len(want)-1 {
					t.Errorf("%q without %q is %q", raw, name, less)
				}
			}
		}
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil && list != nil {
			got, ok := elements(raw)
			if !ok || len(got) != len(list) {
				t.Fatalf("%d elements in %q, want %d", len(got), raw, len(list))
			}
			for i := range list {
				if !bytes.Equal(got[i], list[i]) {
					t.Errorf("element %d of %q = %q", i, raw, got[i])
				}
			}
		}
	})
}

// Whatever comes in, the server answers with a message or a documented error, and keeps the bytes.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(hello))
	f.Add([]byte(extra(`"system":[` + textMarked("s", "1h") + `],"tools":[{"name":"A","input_schema":{"type":"object"}}],"thinking":{"type":"adaptive"},"diagnostics":{"previous_message_id":null}`)))
	f.Add([]byte(conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[`+textMarked("a", "")+`]}`, res2))))
	f.Add([]byte(conversation(user(`{"type":"text","text":"<fork-boilerplate>r</fork-boilerplate>"}`, note))))
	f.Fuzz(func(t *testing.T, body []byte) {
		sim := New(Options{})
		w := direct(sim, string(body))
		if w.Code != http.StatusOK {
			if e := errorOf(t, w.Body.Bytes()); e.Error.Type != kindOf(w.Code) || e.Error.Message == "" {
				t.Errorf("status %d with %s", w.Code, w.Body)
			}
		}
		got := sim.Requests()
		if len(got) != 1 || !bytes.Equal(got[0].Body, body) || got[0].Status != w.Code {
			t.Errorf("captured %+v", got)
		}
	})
}
