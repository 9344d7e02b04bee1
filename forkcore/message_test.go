package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const thinkingBlock = `{"type":"thinking","thinking":"a<b \u00e9","signature":"QUJD/+=="}`

func TestParseMessageViews(t *testing.T) {
	blocks := [][]byte{
		[]byte(`{"type":"redacted_thinking","data":"EjQB"}`),
		[]byte(thinkingBlock),
		[]byte(`{"type":"text","text":"one <b>"}`),
		[]byte(`{"type":"tool_use","id":"t1","name":"Bash","input":{ "id" : 9007199254740993,"x":1.0,"y":1e2, "c":"\u003c<" }}`),
		[]byte(`{"type":"future_x","k":1}`),
		[]byte(`{"type":"future_y","text":{"not":"a string"},"id":7}`),
		[]byte(`{"type":"text","text":"two"}`),
		[]byte(`{"type":"tool_use","id":"t2","name":"Agent","input":{}}`),
	}
	raw := EncodeMessage(RoleAssistant, blocks...)
	m, err := ParseMessage(raw)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	var raws [][]byte
	for _, b := range m.Blocks {
		types = append(types, b.Type)
		raws = append(raws, b.Raw)
	}
	if d := cmp.Diff([]string{"redacted_thinking", "thinking", "text", "tool_use", "future_x", "future_y", "text", "tool_use"}, types); d != "" {
		t.Errorf("types (-want +got):\n%s", d)
	}
	if d := cmp.Diff(blocks, raws); d != "" {
		t.Errorf("block bytes (-want +got):\n%s", d)
	}
	if got := EncodeMessage(m.Role, raws...); !bytes.Equal(got, raw) {
		t.Errorf("encoded again:\n%s\nwant\n%s", got, raw)
	}
	if got, want := m.Text(), "one <b>\n\ntwo"; got != want {
		t.Errorf("Text() = %q, want %q", got, want)
	}
	want := []ToolCall{
		{ID: "t1", Name: "Bash", Input: json.RawMessage(`{ "id" : 9007199254740993,"x":1.0,"y":1e2, "c":"\u003c<" }`)},
		{ID: "t2", Name: "Agent", Input: json.RawMessage(`{}`)},
	}
	if d := cmp.Diff(want, m.ToolCalls()); d != "" {
		t.Errorf("ToolCalls() (-want +got):\n%s", d)
	}
	// A view must not be able to write past its block.
	for i, b := range m.Blocks {
		if cap(b.Raw) != len(b.Raw) {
			t.Errorf("block %d: capacity %d over length %d reaches into its neighbour", i, cap(b.Raw), len(b.Raw))
		}
	}
}

func TestParseMessageToolResults(t *testing.T) {
	raw := EncodeMessage(RoleUser,
		AppendToolResult(nil, "t1", "out", false), AppendToolResult(nil, "t2", "bad", true),
		[]byte(`{"type":"tool_result","tool_use_id":"t3","content":"as a string"}`), AppendTextBlock(nil, "note"))
	m, err := ParseMessage(raw)
	if err != nil {
		t.Fatal(err)
	}
	var got []Block
	for _, b := range m.Blocks {
		b.Raw = nil
		got = append(got, b)
	}
	want := []Block{
		{Type: "tool_result", ToolUseID: "t1", Text: "out"},
		{Type: "tool_result", ToolUseID: "t2", Text: "bad", IsError: true},
		{Type: "tool_result", ToolUseID: "t3"},
		{Type: "text", Text: "note"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("blocks (-want +got):\n%s", d)
	}
}

func TestParseMessageRefuses(t *testing.T) {
	tests := []struct{ name, raw string }{
		{"nothing", ``},
		{"no object", `[]`},
		{"cut", `{"role":"user","content":[{"type":"text","text":"a"}]`},
		{"white space before", ` {"role":"user","content":[]}`},
		{"white space after", `{"role":"user","content":[]} `},
		{"final newline", "{\"role\":\"user\",\"content\":[]}\n"},
		{"white space between keys", `{"role": "user","content":[]}`},
		{"white space before a comma", `{"role":"user","content":[{"type":"a"} ,{"type":"b"}]}`},
		{"white space between blocks", `{"role":"user","content":[{"type":"a"}, {"type":"b"}]}`},
		{"white space inside the array", `{"role":"user","content":[ {"type":"a"}]}`},
		{"content first", `{"content":[{"type":"text","text":"a"}],"role":"user"}`},
		{"another key of the same length", `{"role":"user","contenX":[]}`},
		{"key in another case", `{"role":"user","Content":[]}`},
		{"both keys in another case", `{"Role":"user","Content":[{"type":"a"}]}`},
		{"content as a string", `{"role":"user","content":"a"}`},
		{"content null", `{"role":"user","content":null}`},
		{"unknown role", `{"role":"system","content":[]}`},
		{"escaped role", `{"role":"\u0075ser","content":[]}`},
		{"more keys", `{"role":"user","content":[],"x":1}`},
		{"key before", `{"x":1,"role":"user","content":[]}`},
		{"content twice", `{"role":"user","content":[],"content":[]}`},
		{"content twice, the first one shorter", `{"role":"user","content":[{"type":"a"}],"content":[{"type":"a"},{"type":"b"}]}`},
		{"block is a string", `{"role":"user","content":["a"]}`},
		{"block is null", `{"role":"user","content":[null]}`},
		{"block is an array", `{"role":"user","content":[[]]}`},
		{"block is a number", `{"role":"user","content":[1]}`},
		{"type is no string", `{"role":"user","content":[{"type":1}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if m, err := ParseMessage([]byte(tt.raw)); !errors.Is(err, ErrNotCanonical) {
				t.Errorf("ParseMessage(%s) = %+v, %v; want ErrNotCanonical", tt.raw, m, err)
			}
		})
	}
}

// FuzzParseMessage: what parses has the bytes that encoding its blocks gives.
func FuzzParseMessage(f *testing.F) {
	f.Add([]byte(`{"role":"user","content":[{"type":"text","text":"a<b\u2028"}]}`))
	f.Add([]byte(`{"role":"assistant","content":[` + thinkingBlock + `,{"type":"tool_use","id":"t","name":"n","input":{ "a" : [ 1.0 ] }}]}`))
	f.Add([]byte(`{"role":"user","contenX":[]}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[]},{"type":"x"}]}`))
	f.Add([]byte(`{"role":"assistant","content":[{ "k" : [1E+400, 0.10 ] , "k":{} ,"type":"\u0074ext","text":"\/\ud83d"}]}`))
	f.Add([]byte(`{"role":"user","content":[{"type":"future_x","cache_control":{"type":"ephemeral"},"content":[{"cache_control":1}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := ParseMessage(raw)
		if err != nil {
			if !errors.Is(err, ErrNotCanonical) {
				t.Fatalf("error %v is no ErrNotCanonical", err)
			}
			return
		}
		raws := make([][]byte, len(m.Blocks))
		for i, b := range m.Blocks {
			raws[i] = b.Raw
		}
		if got := EncodeMessage(m.Role, raws...); !bytes.Equal(got, raw) {
			t.Fatalf("parsed %q, encodes to %q", raw, got)
		}
		// What grows from views is judged like the bytes.
		whole := slices.Concat(testHead(), raw, requestClose(testParams, nil))
		if d := cmp.Diff(Validate(whole), NewPrefix(testHead()).Append(m).Violations(nil, testParams, int64(len(whole)))); d != "" {
			t.Fatalf("%q\nValidate, Violations (-,+):\n%s", raw, d)
		}
	})
}

// FuzzToolInput: any valid input, white space and escapes included, comes
// through a message unchanged (B44, B45).
func FuzzToolInput(f *testing.F) {
	f.Add([]byte(`{"id":9007199254740993,"x":1.0,"y":1e2}`))
	f.Add([]byte("{\n\t\"a\" : \"<&>\u2028\\u003c\" , \"b\":[ { } ] }"))
	f.Add([]byte(" {} "))
	f.Fuzz(func(t *testing.T, input []byte) {
		if !ValidInput(input) {
			return
		}
		block := append([]byte(`{"type":"tool_use","id":"t","name":"n","input":`), input...)
		m, err := ParseMessage(EncodeMessage(RoleAssistant, append(block, '}'), AppendTextBlock(nil, "x")))
		if err != nil {
			t.Fatalf("%q: %v", input, err)
		}
		if got := m.ToolCalls()[0].Input; !bytes.Equal(got, bytes.TrimSpace(input)) {
			t.Fatalf("input %q came back as %q", input, got)
		}
		if len(m.Blocks) != 2 {
			t.Fatalf("%d blocks, want 2", len(m.Blocks))
		}
	})
}

// A key in another case is another key: a call is answered under the id and
// name that it has on the wire.
func TestParseMessageTakesExactKeys(t *testing.T) {
	m, err := ParseMessage(EncodeMessage(RoleAssistant, []byte(`{"type":"tool_use","id":"a","name":"Glob","input":{},"ID":"zz","NAME":"Bash","text":5}`)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ToolCall{{ID: "a", Name: "Glob", Input: []byte(`{}`)}}, m.ToolCalls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A fragment has one view, whether it is one plain text block, which is read without a copy, or anything else.
func TestFragmentsReadLikeMessages(t *testing.T) {
	for _, fragment := range []string{
		`{"type":"text","text":"plain <b> 漢"}`,
		`{"type":"text","text":""}`,
		`{"type":"text","text":" "}`,
		`{"type":"text","text":"a\n\"b\" \\ \u0041\ud83d\ude00"}`,
		`{"type":"text","text":"\"at the start"}`,
		`{"type":"text","text":"\\"}`,
		"{\"type\":\"text\",\"text\":\"\u2028\x7f\"}",
		`{"type":"text","text":"a"},{"type":"text","text":"b"}`,
		`{"type":"text","text":"a","text":"b"}`,
		`{"type":"text","text":"a","citations":null}`,
		`{"type":"text","text":"a" }`,
		`{"type":"text","text":5}`,
		`{"type":"text","text":null}`,
		`{"type":"tool_result","tool_use_id":"t","content":[]}`,
		"{\"type\":\"text\",\"text\":\"\xff\"}",
		// No JSON.
		"{\"type\":\"text\",\"text\":\"\n\"}",
		"{\"type\":\"text\",\"text\":\"a\x1f\"}",
		`{"type":"text","text":"a"]`,
		`{"type":"text","text":"}`,
		`{"type":"text","text":}`,
		`{"type":"text","text":"a}`,
		`{"type":"text","text":a"}`,
		`{"type":"text","text":"a"}}`,
	} {
		got, err := parseBlocks([]byte(fragment))
		want, wantErr := ParseMessage(EncodeMessage(RoleUser, []byte(fragment)))
		if d := cmp.Diff(want.Blocks, got); d != "" || (err == nil) != (wantErr == nil) {
			t.Errorf("%q: %v, as a message %v (-message +fragment):\n%s", fragment, err, wantErr, d)
		}
	}
}
