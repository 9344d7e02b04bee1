package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestAppendString(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty", "", `""`},
		{"plain", "abc", `"abc"`},
		{"html is not escaped", "a<b&c>d", `"a<b&c>d"`},
		{"line separators are kept", "a\u2028b\u2029", "\"a\u2028b\u2029\""},
		{"quote and backslash", `a"b\c`, `"a\"b\\c"`},
		{"slash is kept", "a/b", `"a/b"`},
		{"short escapes", "\n\r\t", `"\n\r\t"`},
		{"other control characters", "\x00\x01\b\f\x1f\x7f", "\"\\u0000\\u0001\\u0008\\u000c\\u001f\x7f\""},
		{"multi-byte", "größe 漢字 🙂", `"größe 漢字 🙂"`},
		{"invalid bytes", "ok\xff\xe5\xa5", "\"ok\uFFFD\uFFFD\uFFFD\""},
		{"replacement character itself", "\uFFFD", "\"\uFFFD\""},
		{"invalid between escapes", "\n\xc3\n", "\"\\n\uFFFD\\n\""},
		{"the first byte beyond ASCII", "\x80", "\"\uFFFD\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendString([]byte("x"), tt.in)); got != "x"+tt.want {
				t.Errorf("AppendString(x, %q) = %s, want x%s", tt.in, got, tt.want)
			}
		})
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a<b&c>d\u2028", "\x00\x1f\x7f\"\\", "ok\xff\xe5\xa5", "🙂", "\\ud83d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := AppendString(nil, s)
		if !utf8.Valid(b) {
			t.Fatalf("%q: not UTF-8: %q", s, b)
		}
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v in %q", s, err, b)
		}
		// Go turns each bad byte into one U+FFFD when it walks runes.
		if want := string([]rune(s)); got != want {
			t.Fatalf("decoded %q, want %q", got, want)
		}
		if c := CleanText(s); !utf8.ValidString(c) || strings.Contains(c, "\x00") || CleanText(c) != c {
			t.Fatalf("CleanText(%q) = %q", s, c)
		}
	})
}

func TestCleanText(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"clean text is kept", "a\tb\u2028", "a\tb\u2028"},
		{"nul is shown", "a\x00b", "a\u2400b"},
		{"a run of bad bytes is one mark", "ok\xff\xe5\xa5", "ok\uFFFD"},
	}
	for _, tt := range tests {
		if got := CleanText(tt.in); got != tt.want {
			t.Errorf("%s: CleanText(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestCutText(t *testing.T) {
	long := strings.Repeat("a", 239) + "漢"
	tests := []struct {
		name, in string
		max      int
		want     string
	}{
		{"short", "abc", 3, "abc"},
		{"ascii", "abcd", 3, "abc"},
		{"rune edge", long, 240, strings.Repeat("a", 239)},
		{"whole rune fits", long, 242, long},
		{"zero", "ä", 0, ""},
		{"first rune too wide", "漢", 2, ""},
		{"no rune begins", "\x80\x80", 1, ""},
		{"less than nothing", "a", -1, ""},
	}
	for _, tt := range tests {
		if got := CutText(tt.in, tt.max); got != tt.want {
			t.Errorf("%s: CutText(%q, %d) = %q, want %q", tt.name, tt.in, tt.max, got, tt.want)
		}
	}
}

func TestAppendToolResult(t *testing.T) {
	tests := []struct {
		name, text string
		isError    bool
		want       string
	}{
		{"plain", "a<b", false, `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a<b"}]}`},
		{"error", "no", true, `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"no"}],"is_error":true}`},
		{"nothing", "", false, `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"(no output)"}]}`},
		{"white space alone", " \n\t", true, `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"(no output)"}],"is_error":true}`},
		{"inner white space is kept", "\n a \n", false, `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"\n a \n"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(AppendToolResult(nil, "t1", tt.text, tt.isError)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Tools, then system, then messages: the order in which the provider renders them.
func TestX10_KeyOrderOfARequest(t *testing.T) {
	full := Params{
		Model: "claude-sonnet-5-5", Thinking: json.RawMessage(`{"type":"adaptive"}`), Effort: "low",
		ToolChoice: json.RawMessage(`{"type":"auto"}`), Betas: []string{"b"}, MaxTokens: 77,
	}
	tools := []ToolSpec{
		{Name: "B", Description: "b <1>", InputSchema: json.RawMessage(`{"type": "object", "x":1.0}`)},
		{Name: "A", Description: "a", InputSchema: json.RawMessage(`{}`), ReadOnly: true},
	}
	tests := []struct {
		name   string
		params Params
		tools  []ToolSpec
		system []string
		want   string
	}{
		{
			"everything", full, tools,
			[]string{"one", "two"},
			`{"model":"claude-sonnet-5-5","thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"tool_choice":{"type":"auto"},` +
				`"tools":[{"name":"B","description":"b <1>","input_schema":{"type": "object", "x":1.0}},{"name":"A","description":"a","input_schema":{}}],` +
				`"system":[{"type":"text","text":"one"},{"type":"text","text":"two"}],"messages":[`,
		},
		{
			"the least",
			Params{Model: "m"},
			nil,
			[]string{"s"},
			`{"model":"m","tools":[],"system":[{"type":"text","text":"s"}],"messages":[`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, string(EncodeHead(tt.params, tt.tools, tt.system...))); d != "" {
				t.Errorf("head (-want +got):\n%s", d)
			}
		})
	}
	for want, d := range map[string]*Diagnostics{
		`],"max_tokens":77,"stream":true}`:                                                  nil,
		`],"max_tokens":77,"stream":true,"diagnostics":{"previous_message_id":null}}`:       {},
		`],"max_tokens":77,"stream":true,"diagnostics":{"previous_message_id":"msg_\"01"}}`: {PreviousMessageID: `msg_"01`},
	} {
		if got := string(requestClose(full, d)); got != want {
			t.Errorf("requestClose = %s, want %s", got, want)
		}
	}
}

// Two renders of one request are the same bytes, and two requests of one session differ only in their messages: nothing of a
// single request (an id, a hash, a time) stands in the head.
func TestX09_NothingOfOneRequestInTheHead(t *testing.T) {
	render := func(question string) []byte {
		m := message(t, RoleUser, text(question))
		p := chain(EncodeHead(testParams, []ToolSpec{AgentTool()}, SystemPrompt(ModeFork)), []Message{m})
		plan, err := PlanMarks(Plan{Prefix: p})
		if err != nil {
			t.Fatal(err)
		}
		body, err := p.Body(plan.Marks, testParams, nil)
		if err != nil {
			t.Fatal(err)
		}
		return body.Bytes()
	}
	a, b, other := render("one"), render("one"), render("two")
	if !bytes.Equal(a, b) {
		t.Error("two renders of one request differ")
	}
	start := bytes.Index(a, []byte(`"messages":[`))
	if at, path, _ := FirstDifference(a, other); start < 0 || at < int64(start) || path != "messages.0.content.0.text" {
		t.Errorf("two requests differ at byte %d (%s); their messages start at %d", at, path, start)
	}
}

// B13: the tools array is rendered from a slice in its order, every time.
func TestEncodeHeadIsStable(t *testing.T) {
	var tools []ToolSpec
	for i := range 12 {
		tools = append(tools, ToolSpec{Name: fmt.Sprintf("tool_%d", (i*7)%12), InputSchema: json.RawMessage(`{"b":1,"a":2}`)})
	}
	seen := map[Digest]bool{}
	for range 200 {
		seen[DigestOf(EncodeHead(Params{Model: "m"}, tools, "s"))] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d different heads in 200 renders, want 1", len(seen))
	}
}

func TestMarkJSON(t *testing.T) {
	for ttl, want := range map[string]string{
		"": `,"cache_control":{"type":"ephemeral"}`, "5m": `,"cache_control":{"type":"ephemeral"}`,
		"1h": `,"cache_control":{"type":"ephemeral","ttl":"1h"}`,
	} {
		if got := string(markJSON(ttl)); got != want {
			t.Errorf("markJSON(%q) = %s, want %s", ttl, got, want)
		}
	}
}

func TestValidInput(t *testing.T) {
	tests := []struct {
		name, in string
		want     bool
	}{
		{"empty object", `{}`, true},
		{"white space around", " \n\t\r{\"a\" : 1 } \n", true},
		{"numbers as they are (B44)", `{"id":9007199254740993,"x":1.0,"y":1e2}`, true},
		{"html and separators (B45)", "{\"c\":\"a<b&c>d\u2028\"}", true},
		{"surrogate pair", `{"c":"\ud83d\ude00"}`, true},
		{"pair in upper case", `{"c":"\uD83D\uDE00"}`, true},
		{"two pairs", `{"c":"\ud83d\ude00\ud83d\ude00"}`, true},
		{"escaped backslash before u", `{"c":"\\ud83d"}`, true},
		{"highest and lowest non-surrogates", `{"c":"\ud7ff\ue000"}`, true},
		{"pair in a key", `{"\ud83d\ude00":1}`, true},
		{"lone high (B46)", `{"c":"\ud83d"}`, false},
		{"lone low", `{"c":"\ude00"}`, false},
		{"low before high", `{"c":"\ude00\ud83d"}`, false},
		{"high, then text", `{"c":"\ud83dxxxxxxx"}`, false},
		{"high, then another escape", `{"c":"\ud83d\n\n\n\n\n\n"}`, false},
		{"high, then no surrogate", `{"c":"\ud83d\u0041"}`, false},
		{"two highs", `{"c":"\ud83d\ud83d\ude00"}`, false},
		{"pair, then lone low", `{"c":"\ud83d\ude00\ude00"}`, false},
		{"lowest pair", `{"c":"\ud800\udc00"}`, true},
		{"highest pair", `{"c":"\udbff\udfff"}`, true},
		{"lowest high alone", `{"c":"\ud800"}`, false},
		{"highest high alone", `{"c":"\udbff"}`, false},
		{"lowest low alone", `{"c":"\udc00"}`, false},
		{"highest low alone", `{"c":"\udfff"}`, false},
		{"lowest low twice", `{"c":"\udc00\udc00"}`, false},
		{"high, then one under the lows", `{"c":"\ud83d\udbff"}`, false},
		{"high, then one over the lows", `{"c":"\ud83d\ue000"}`, false},
		{"high, then digits after a letter u", `{"c":"\ud83dxudc00"}`, false},
		{"high, then digits after another escape", `{"c":"\ud83d\ndc00"}`, false},
		{"high at the end of a string, then another", `{"c":"\ud83d","d":"\ude00"}`, false},
		{"backslashes, then lone high", `{"c":"\\\\\ud83d"}`, false},
		{"lone high in a key", `{"\ud83d":1}`, false},
		{"bad UTF-8", "{\"c\":\"\xff\"}", false},
		{"surrogate in UTF-8", "{\"c\":\"\xed\xa0\xbd\"}", false},
		{"array", `[]`, false},
		{"string", `"{}"`, false},
		{"null", `null`, false},
		{"nothing", ``, false},
		{"white space alone", `  `, false},
		{"cut", `{"a":`, false},
		{"two values", `{}{}`, false},
		{"control character in a string", "{\"a\":\"\n\"}", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ValidInput([]byte(tt.in)); got != tt.want {
				t.Errorf("ValidInput(%s) = %v, want %v", tt.in, got, tt.want)
			}
		})
	}
}

func TestInputDepth(t *testing.T) {
	for raw, want := range map[string]int{
		`1`: 0, `"{["`: 0, `{}`: 1, `[[],[],{}]`: 2, `{"a":[{"b":"]}"}],"c":[]}`: 3, `{"a":"\"{[","b":"\\"}`: 1,
	} {
		if got := depth([]byte(raw)); got != want {
			t.Errorf("depth(%s) = %d, want %d", raw, got, want)
		}
	}
	for levels, want := range map[int]bool{maxInputDepth: true, maxInputDepth + 1: false} {
		if got := ValidInput([]byte(strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1))); got != want {
			t.Errorf("an input of %d levels is valid: %v, want %v", levels, got, want)
		}
	}
}

// FuzzValidInput checks the surrogate scan against the decoder of the standard
// library: a lone surrogate shows as U+FFFD that the text did not have.
func FuzzValidInput(f *testing.F) {
	f.Add([]byte(`{"c":"\ud83d\ude00","d":[{"e":"\\ud83d"}]}`))
	f.Add([]byte(`{"\ud83d":1.0}`))
	f.Add([]byte(` {"a":"\ude00\ud83d"} `))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var members map[string]any
		object := json.Unmarshal(raw, &members) == nil && members != nil && utf8.Valid(raw)
		// Neutral text in place of U+FFFD makes a decoded U+FFFD the trace of a lone surrogate.
		neutral := strings.NewReplacer("\uFFFD", "x", `\ufffd`, "x", `\uFFFD`, "x").Replace(string(raw))
		if strings.Contains(strings.ToLower(neutral), "fffd") || strings.Contains(string(raw), `\\u`) {
			return // mixed case or an escaped backslash: the replacement above is not exact
		}
		lone := false
		if object {
			// Token by token, because a member given twice hides its first value.
			d := json.NewDecoder(strings.NewReader(neutral))
			for {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return
				}
				text, _ := token.(string)
				lone = lone || strings.Contains(text, "\uFFFD")
			}
		}
		if got := ValidInput(raw); got != (object && !lone) {
			t.Fatalf("ValidInput(%q) = %v; object %v, lone surrogate %v", raw, got, object, lone)
		}
	})
}

func TestValidInputDepth(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(`{"a":"[[\"[","b":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if !ValidInput(nested(maxInputDepth - 1)) {
		t.Errorf("%d levels are refused", maxInputDepth)
	}
	if ValidInput(nested(maxInputDepth)) {
		t.Errorf("%d levels are taken", maxInputDepth+1)
	}
}

func TestHeadline(t *testing.T) {
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{
		{" two\n words ", 9, "two words"},
		{"two words", 8, "two…"},
		{"two words more", 12, "two words…"},
		{"two words more", 13, "two words…"},
		{"averylongword", 8, "avery…"},
		{"a verylongword", 10, "a veryl…"},
		{"ääää", 6, "ä…"},
		{"", 3, ""},
	} {
		if got := Headline(tt.text, tt.limit); got != tt.want || len(got) > tt.limit {
			t.Errorf("Headline(%q, %d) = %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
}
