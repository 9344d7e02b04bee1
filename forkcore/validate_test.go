package forkcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	short5m = `,"cache_control":{"type":"ephemeral"}`
	long1h  = `,"cache_control":{"type":"ephemeral","ttl":"1h"}`

	okTools  = `[{"name":"Read","input_schema":{"type":"object"}}]`
	okSystem = `[{"type":"text","text":"s"` + short5m + `}]`
	hello    = `{"role":"user","content":[{"type":"text","text":"hello"}]}`
)

// requestOf is a sound request of these messages.
func requestOf(messages ...string) string { return requestWith(okTools, okSystem, messages...) }

func requestWith(tools, system string, messages ...string) string {
	return `{"model":"m","tools":` + tools + `,"system":` + system + `,"messages":[` + strings.Join(messages, ",") + `],"max_tokens":1,"stream":true}`
}

func said(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

func call(id string) string {
	return `{"type":"tool_use","id":"` + id + `","name":"Read","input":{}}`
}

func result(id string) string {
	return `{"type":"tool_result","tool_use_id":"` + id + `","content":[{"type":"text","text":"ok"}]}`
}

const note = `{"type":"text","text":"note"}`

// broken lists "path rule" of each violation.
func broken(found []Violation) []string {
	var out []string
	for _, v := range found {
		out = append(out, strings.TrimSpace(v.Path+" "+v.Rule))
	}
	return out
}

func TestValidateEnvelope(t *testing.T) {
	long := strings.Repeat("n", maxToolName)
	tests := []struct {
		name, body string
		want       []string
	}{
		{"sound", requestOf(hello), nil},
		{"sound with white space", " \n" + strings.ReplaceAll(requestOf(hello), ":", " : ") + "\t\r\n", nil},
		{"nothing", "", []string{"json"}},
		{"cut", requestOf(hello)[:40], []string{"json"}},
		{"two values", requestOf(hello) + "{}", []string{"json"}},
		{"an array", " [1]", []string{"json"}},
		{"a string", `"a"`, []string{"json"}},
		{"cut, and no UTF-8", "{\"model\":\"\xff", []string{"json", "utf8"}},
		{"deeper than any reader", strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001), []string{"json"}},
		{"empty object", "{}", []string{"no_mark", "model required", "messages required", "max_tokens required"}},
		{"all fields", `{"model":"m","thinking":{"type":"adaptive"},"output_config":{"effort":"low"},"tool_choice":{"type":"auto"},"tools":[],"system":` + okSystem + `,"messages":[` + hello + `],"max_tokens":0,"stream":false,"diagnostics":{"previous_message_id":null},"metadata":{"user_id":"u"},"stop_sequences":["x"],"service_tier":"auto"}`, nil},
		{"wrong kinds", `{"model":1,"thinking":"on","output_config":[],"tool_choice":"auto","tools":{},"system":"s","messages":{},"max_tokens":"1","stream":1}`, []string{
			"no_mark", "model shape", "thinking shape", "output_config shape", "tool_choice shape", "tools shape", "system shape", "messages last_turn", "messages shape", "max_tokens shape", "stream shape",
		}},
		{"blank model", strings.Replace(requestOf(hello), `"m"`, `" "`, 1), []string{"model required"}},
		{"no model", strings.Replace(requestOf(hello), `"model":"m",`, ``, 1), []string{"model required"}},
		{"no max_tokens", strings.Replace(requestOf(hello), `"max_tokens":1,`, ``, 1), []string{"max_tokens required"}},
		{"no messages", requestOf(), []string{"messages last_turn"}},
		{"max_tokens below 0", strings.Replace(requestOf(hello), `"max_tokens":1`, `"max_tokens":-1`, 1), []string{"max_tokens shape"}},
		{"max_tokens with a fraction", strings.Replace(requestOf(hello), `"max_tokens":1`, `"max_tokens":1.0`, 1), []string{"max_tokens shape"}},
		{"max_tokens with an exponent", strings.Replace(requestOf(hello), `"max_tokens":1`, `"max_tokens":1e3`, 1), []string{"max_tokens shape"}},
		{"max_tokens of all digits", strings.Replace(requestOf(hello), `"max_tokens":1`, `"max_tokens":9081726354`, 1), nil},
		{"max_tokens 0 cannot be streamed", strings.Replace(requestOf(hello), `"max_tokens":1`, `"max_tokens":0`, 1), []string{"max_tokens forbidden_field"}},
		{"sampling and automatic caching", strings.Replace(requestOf(hello), `"stream"`, `"temperature":1,"top_p":1,"top_k":1,"cache_control":{"type":"ephemeral"},"stream"`, 1), []string{
			"cache_control forbidden_field", "temperature forbidden_field", "top_k forbidden_field", "top_p forbidden_field",
		}},
		{"unknown field", strings.Replace(requestOf(hello), `"stream"`, `"max_token":1,"stream"`, 1), []string{"max_token unknown_field"}},
		{"key twice", strings.Replace(requestOf(hello), `"stream"`, `"max_tokens":2,"stream"`, 1), []string{"max_tokens duplicate_key"}},
		{"key twice, the second of another kind", strings.Replace(requestOf(hello), `"stream":true`, `"stream":true,"stream":5`, 1), []string{"stream duplicate_key"}},
		{"key twice, once escaped", strings.Replace(requestOf(hello), `"stream"`, `"\u006dax_tokens":2,"stream"`, 1), []string{"max_tokens duplicate_key"}},
		{"messages before the system prompt", `{"model":"m","tools":[],"messages":[` + hello + `],"system":` + okSystem + `,"max_tokens":1}`, []string{"system key_order"}},
		{"every key in the wrong order", `{"stream":true,"max_tokens":1,"messages":[` + hello + `],"system":` + okSystem + `,"tools":[],"model":"m"}`, []string{
			"model key_order", "tools key_order", "system key_order", "messages key_order", "max_tokens key_order",
		}},
		{"text faults anywhere", `{"model":"m\ud83d","thinking":{"x":"\u0000"},"tools":[],"system":` + okSystem + `,"messages":[` + hello + "],\"max_tokens\":1,\"metadata\":{\"user_id\":\"\xff\"}}", []string{
			"model lone_surrogate", "thinking nul", "metadata utf8",
		}},
		{"tools", requestWith(`[1,{"name":"a b","input_schema":{}},{"name":"x","input_schema":[]},{"name":"x","input_schema":{}},{"input_schema":{}},{"name":"y","name":"z","input_schema":{"a":"\ud83d"}},{"type":"web_search_20250305","name":"web_search"},{"type":"custom","name":"c"}]`, okSystem, hello), []string{
			"tools.0 shape", "tools.1.name tool_name", "tools.2.input_schema shape", "tools.3.name tool_name", "tools.4.name tool_name", "tools.5 lone_surrogate", "tools.5.name duplicate_key", "tools.7.input_schema shape",
		}},
		{"tool names", requestWith(`[{"name":"azAZ09_-","input_schema":{}},{"name":"`+long+`","input_schema":{}},{"name":"`+long+`x","input_schema":{}},{"name":"","input_schema":{}},{"name":"a.b","input_schema":{}}]`, okSystem, hello), []string{
			"tools.2.name tool_name", "tools.3.name tool_name", "tools.4.name tool_name",
		}},
		{"system", requestWith(`[]`, `["s",{"type":"image"},{"type":"text"},{"type":"text","text":""},{"type":"text","text":"a","text":"b"},{"type":"text","text":"\u0000"},{"type":"text","text":"ok"`+short5m+`}]`, hello), []string{
			"system.0 shape", "system.1 shape", "system.2 shape", "system.3 blank_text", "system.4.text duplicate_key", "system.5 nul",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Validate([]byte(tt.body))
			if d := cmp.Diff(tt.want, broken(got)); d != "" {
				t.Errorf("violations of %s (-want +got):\n%s\n%+v", tt.body, d, got)
			}
		})
	}
}

func TestValidateMessages(t *testing.T) {
	answer := said("assistant", note)
	deep := func(n int) string {
		return `{"type":"future_x","a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	tests := []struct {
		name     string
		messages []string
		want     []string
	}{
		{"a turn with calls", []string{hello, said("assistant", thinkingBlock, call("t1"), call("t2")), said("user", result("t1"), result("t2"), note)}, nil},
		{"users in a row are merged by the API", []string{hello, hello}, nil},
		{"unknown blocks pass", []string{said("user", `{"type":"future_x","k":1,"k":2,"text":7}`)}, nil},
		{"white space in a block", []string{"{ \"role\" : \"user\" , \"content\" : [ { \"type\" : \"text\" , \"text\" : \"a\" } ] }"}, nil},
		{"results as a string, with an image, without content", []string{hello, said("assistant", call("t1"), call("t2"), call("t3")), said("user",
			`{"type":"tool_result","tool_use_id":"t1","content":"out"}`, `{"type":"tool_result","tool_use_id":"t2","content":[{"type":"image","source":{}}]}`, `{"type":"tool_result","tool_use_id":"t3"}`)}, nil},
		{"the same id twice in the conversation", []string{hello, said("assistant", call("t1")), said("user", result("t1")), said("assistant", call("t1")), said("user", result("t1"))}, []string{"messages.3.content.0.id duplicate_id"}},
		{"the same id twice in a message", []string{hello, said("assistant", call("t1"), call("t1")), said("user", result("t1"))}, []string{"messages.1.content.1.id duplicate_id"}},
		{"ids", []string{hello, said("assistant", call(""), call("a.b"), call("azAZ09_-"), `{"type":"tool_use","name":"Read","input":{}}`), said("user", result(""), result("azAZ09_-"), `{"type":"tool_result"}`)}, []string{
			"messages.1.content.0 call_without_result", "messages.1.content.0.id bad_id", "messages.1.content.1 call_without_result", "messages.1.content.1.id bad_id",
			"messages.1.content.3 call_without_result", "messages.1.content.3.id bad_id", "messages.2.content.0.tool_use_id bad_id", "messages.2.content.2.tool_use_id bad_id",
		}},
		{"a call nobody answers", []string{hello, said("assistant", note, call("t1"), call("t2")), said("user", result("t2"))}, []string{"messages.1.content.1 call_without_result"}},
		{"a call answered too late", []string{hello, said("assistant", call("t1")), hello, said("user", result("t1"))}, []string{"messages.1.content.0 call_without_result", "messages.3.content.0 result_without_call"}},
		{"a call before an answer of the assistant", []string{hello, said("assistant", call("t1")), answer, hello}, []string{"messages.1.content.0 call_without_result"}},
		{"the request ends with a call", []string{hello, said("assistant", call("t1"))}, []string{"messages.1 last_turn", "messages.1.content.0 call_without_result"}},
		{"the request ends with the assistant", []string{hello, answer}, []string{"messages.1 last_turn"}},
		{"a result of no call", []string{hello, answer, said("user", result("t9"), note)}, []string{"messages.2.content.0 result_without_call"}},
		{"a result in the first message", []string{said("user", result("t1"))}, []string{"messages.0.content.0 result_without_call"}},
		{"two results", []string{hello, said("assistant", call("t1")), said("user", result("t1"), result("t1"))}, []string{"messages.2.content.1 duplicate_result"}},
		{"a second result in a later message", []string{hello, said("assistant", call("t1")), said("user", result("t1")), said("user", result("t1"))}, []string{"messages.3.content.0 result_without_call"}},
		{"results in another order", []string{hello, said("assistant", call("t1"), call("t2"), call("t3")), said("user", result("t2"), result("t1"), result("t3"))}, []string{"messages.2.content.1 result_order"}},
		{"text between results", []string{hello, said("assistant", call("t1"), call("t2")), said("user", result("t1"), note, result("t2"))}, []string{"messages.2.content.2 result_order"}},
		{"blocks of the other role", []string{said("user", thinkingBlock, `{"type":"redacted_thinking","data":"x"}`, call("t1")), said("assistant", result("t1"), `{"type":"document"}`), hello}, []string{
			"messages.0.content.0 role", "messages.0.content.1 role", "messages.0.content.2 role", "messages.1.content.0 role", "messages.1.content.1 role",
		}},
		{"thinking without what was signed", []string{hello, said("assistant", `{"type":"thinking","thinking":"a"}`, `{"type":"thinking","thinking":"a","signature":""}`, `{"type":"thinking","thinking":"a","signature":1}`, `{"type":"thinking","thinking":"","signature":"QUJD"}`, `{"type":"redacted_thinking"}`, `{"type":"redacted_thinking","data":" "}`), hello}, []string{
			"messages.1.content.0.signature signature", "messages.1.content.1.signature signature", "messages.1.content.2.signature signature", "messages.1.content.4.data signature", "messages.1.content.5.data signature",
		}},
		{"tool inputs", []string{hello, said("assistant",
			`{"type":"tool_use","id":"t1","name":"Read","input":[]}`, `{"type":"tool_use","id":"t2","name":"Read"}`, `{"type":"tool_use","id":"t3","name":"Read","input":{"c":"\ud83d"}}`,
			`{"type":"tool_use","id":"t4","name":"R d","input":{"n":"\u0000","n":1}}`, `{"type":"tool_use","id":"t5","input":{}}`), said("user", result("t1"), result("t2"), result("t3"), result("t4"), result("t5"))}, []string{
			"messages.1.content.0.input shape", "messages.1.content.1.input shape", "messages.1.content.2 lone_surrogate", "messages.1.content.3.name tool_name", "messages.1.content.4.name tool_name",
		}},
		{"blank text", []string{said("user", `{"type":"text","text":""}`, `{"type":"text","text":" \n\t\u0020"}`, "{\"type\":\"text\",\"text\":\"\u2003\u00a0\"}", `{"type":"text","text":"\n."}`, `{"type":"text"}`, `{"type":"text","text":1}`)}, []string{
			"messages.0.content.0 blank_text", "messages.0.content.1 blank_text", "messages.0.content.2 blank_text", "messages.0.content.4.text shape", "messages.0.content.5.text shape",
		}},
		{"blank text in a result", []string{hello, said("assistant", call("t1")), said("user", `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"},{"type":"text","text":" "}]}`)}, []string{"messages.2.content.0.content.1 blank_text"}},
		{"citations", []string{said("user", `{"type":"text","text":"a","citations":[{}]}`, `{"type":"text","text":"a","citations":[]}`), said("assistant", `{"type":"text","text":"a","citations":[{},{}]}`), hello}, []string{"messages.0.content.0.citations citations"}},
		{"text faults", []string{said("user", "{\"type\":\"text\",\"text\":\"\xff\"}", `{"type":"text","text":"a\u0000"}`, `{"type":"text","text":"a\\u0000"}`, `{"type":"text","text":"\\\u0000"}`)}, []string{"messages.0.content.0 utf8", "messages.0.content.1 nul", "messages.0.content.3 nul"}},
		{"depth", []string{said("user", deep(maxBlockDepth), deep(maxBlockDepth+1))}, []string{"messages.0.content.1 depth"}},
		{"no content", []string{said("user"), hello}, []string{"messages.0 empty_content"}},
		{"no content at the end", []string{hello, said("user")}, []string{"messages.1 empty_content"}},
		{"shapes", []string{`1`, `{"role":"user","content":"text"}`, `{"role":"user"}`, said("user", `1`, `{}`, `{"type":2}`)}, []string{
			"messages.0 shape", "messages.0.role role", "messages.1.content shape", "messages.2.content shape", "messages.3.content.0 shape", "messages.3.content.1.type shape", "messages.3.content.2.type shape",
		}},
		{"roles and keys", []string{said("tool", note), `{"content":[` + note + `],"id":"x","role":"user","role":"user"}`, `{"role":"user","content":[` + note + `],"output_config":{}}`}, []string{
			"messages.0.role role", "messages.1.id unknown_field", "messages.1.role duplicate_key", "messages.2.output_config unknown_field",
		}},
		{"keys of a block twice", []string{hello, said("assistant", `{"type":"tool_use","id":"t0","id":"t1","name":"a","name":"Read","input":[],"input":{},"x":1,"x":2}`), said("user", result("t1"))}, []string{
			"messages.1.content.0.id duplicate_key", "messages.1.content.0.input duplicate_key", "messages.1.content.0.name duplicate_key",
		}},
		{"a system message", []string{hello, said("system", note), answer, hello, `{"role":"system","content":[],"output_config":{"effort":"low"}}`}, nil},
		{"a system message that clears", []string{hello, `{"role":"system","content":[],"clear_at":1}`}, nil},
		{"a system message with another field", []string{hello, `{"role":"system","content":[` + note + `],"clear":1}`}, []string{"messages.1.clear unknown_field"}},
		{"a system message behind a server's result", []string{hello, said("assistant", `{"type":"web_search_tool_result","tool_use_id":"s"}`), said("system", note), answer, hello}, nil},
		{"system messages out of place", []string{said("system", note), hello, said("system", note), hello, answer, said("system", note), answer, hello}, []string{
			"messages.0 system_place", "messages.0 system_place", "messages.2 system_place", "messages.5 system_place",
		}},
		{"a system message between call and result", []string{hello, said("assistant", call("t1")), said("system", note), said("user", result("t1"))}, []string{
			"messages.1.content.0 call_without_result", "messages.2 system_place", "messages.2 system_place", "messages.3.content.0 result_without_call",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Validate([]byte(requestOf(tt.messages...)))
			if d := cmp.Diff(tt.want, broken(got)); d != "" {
				t.Errorf("violations (-want +got):\n%s\n%+v", d, got)
			}
		})
	}
}

// B19: text before results, and results spread over two messages.
func TestB19_ResultsStandTogetherAndFirst(t *testing.T) {
	got := Validate([]byte(requestOf(hello, said("assistant", thinkingBlock, call("t1"), call("t2")), said("user", note, result("t1")), said("user", result("t2")))))
	want := []string{"messages.1.content.2 call_without_result", "messages.2.content.1 result_order", "messages.3.content.0 result_without_call"}
	if d := cmp.Diff(want, broken(got)); d != "" {
		t.Errorf("violations (-want +got):\n%s", d)
	}
	// The program itself answers in the order of the calls, whichever result came first.
	v := newLog(t).message(RoleUser, text("q")).message(RoleAssistant, []byte(thinkingBlock), toolUse("t1", "Read", `{}`), toolUse("t2", "Read", `{}`)).result("t2", "two").result("t1", "one").view()
	answer := EncodeMessage(RoleUser, append(v.AnswerBlocks(), []byte(note))...)
	if got := Validate([]byte(requestOf(string(EncodeMessage(RoleUser, text("q"))), said("assistant", thinkingBlock, call("t1"), call("t2")), string(answer)))); got != nil {
		t.Errorf("one message with both results, then the note: %+v", got)
	}
}

// B21: marks are counted over tools, system and messages, those in results included.
func TestB21_AtMostFourMarks(t *testing.T) {
	marked := func(block string) string { return strings.TrimSuffix(block, "}") + short5m + "}" }
	conversation := func(results, tail string) []string {
		return []string{hello, said("assistant", call("t1"), call("t2"), call("t3")), said("user", results, tail)}
	}
	all := conversation(marked(result("t1"))+","+marked(result("t2"))+","+marked(result("t3")), marked(note))
	tools := `[` + marked(`{"name":"Read","input_schema":{}}`) + `]`
	got := Validate([]byte(requestWith(tools, okSystem, all...)))
	if d := cmp.Diff([]string{"messages.2.content.2.cache_control mark_count"}, broken(got)); d != "" {
		t.Fatalf("six marks (-want +got):\n%s", d)
	}
	if !strings.Contains(got[0].Message, "6 marks, the provider takes 4") {
		t.Errorf("message %q does not give the figures", got[0].Message)
	}
	four := conversation(result("t1")+","+result("t2")+","+marked(result("t3")), marked(note))
	if got := Validate([]byte(requestWith(tools, okSystem, four...))); got != nil {
		t.Errorf("four marks: %+v", got)
	}
	inner := strings.Replace(result("t1"), `"text":"ok"}`, `"text":"ok"`+short5m+`}`, 1)
	five := conversation(inner+","+result("t2")+","+marked(result("t3")), marked(note))
	if d := cmp.Diff([]string{"messages.2.content.3.cache_control mark_count"}, broken(Validate([]byte(requestWith(tools, okSystem, five...))))); d != "" {
		t.Errorf("a fifth within a result (-want +got):\n%s", d)
	}
}

// B23: what a tool printed enters no request with a NUL in it.
func TestB23_NoNULInText(t *testing.T) {
	for name, printed := range map[string]string{"printf": "a\x00b", "an ELF file": "\x7fELF\x00" + strings.Repeat("\x00", 4091)} {
		raw := string(AppendToolResult(nil, "t1", printed, false))
		clean := string(AppendToolResult(nil, "t1", CleanText(printed), false))
		ask := func(result string) []string {
			return broken(Validate([]byte(requestOf(hello, said("assistant", call("t1")), said("user", result)))))
		}
		if got := ask(raw); !cmp.Equal(got, []string{"messages.2.content.0 nul", "messages.2.content.0.content.0 nul"}) {
			t.Errorf("%s uncleaned: %q", name, got)
		}
		if got := ask(clean); got != nil {
			t.Errorf("%s: %q", name, got)
		}
		if strings.Contains(clean, `\u0000`) || !strings.Contains(clean, "\u2400") {
			t.Errorf("%s: the NUL has no visible stand-in in %q", name, clean[:60])
		}
	}
}

// B53: images make bodies too large while tokens look fine.
func TestB53_SizeIsCheckedBeforeSending(t *testing.T) {
	p := NewPrefix(testHead()).Append(message(t, RoleUser, text("hello")))
	marks := []Mark{{Block: "system.1", Offset: p.SystemEnd()}}
	for size, want := range map[int64][]string{MaxBodyBytes - 1: nil, MaxBodyBytes: nil, MaxBodyBytes + 1: {"size"}, 40 * 1_400_000: {"size"}} {
		got := p.Violations(marks, testParams, size)
		if d := cmp.Diff(want, broken(got)); d != "" {
			t.Errorf("%d bytes (-want +got):\n%s", size, d)
			continue
		}
		var refused *InvalidRequestError
		if err := Refuse(got); errors.As(err, &refused) != (want != nil) {
			t.Errorf("%d bytes: refused with %v", size, err)
		} else if want != nil && (!refused.TooLarge() || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes, the provider takes %d", size, 32<<20))) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	// A broken body is measured all the same.
	if got := broken(NewChecker([]byte("{")).Violations(nil, nil, MaxBodyBytes+1)); !cmp.Equal(got, []string{"json", "size"}) {
		t.Errorf("a large body that is no JSON: %q", got)
	}
}

// X01: the order is tools, system, messages; 1h marks come first.
func TestX01_LongMarksComeFirst(t *testing.T) {
	tool := func(mark string) string { return `[{"name":"Read","input_schema":{}` + mark + `}]` }
	system := func(mark string) string { return `[{"type":"text","text":"s"` + mark + `}]` }
	user := func(mark string) string { return said("user", `{"type":"text","text":"a"`+mark+`}`) }
	tests := []struct {
		name, tools, system, message string
		want                         []string
	}{
		{"5m, then 1h", short5m, long1h, "", []string{"system.0.cache_control mark_ttl_order"}},
		{"1h, then 5m", long1h, short5m, "", nil},
		{"all 1h", long1h, long1h, long1h, nil},
		{"all 5m", short5m, short5m, short5m, nil},
		{"1h, 5m, 1h", long1h, short5m, long1h, []string{"messages.0.content.0.cache_control mark_ttl_order"}},
		{"5m, 1h, 1h", short5m, long1h, long1h, []string{"system.0.cache_control mark_ttl_order", "messages.0.content.0.cache_control mark_ttl_order"}},
		{"a ttl of 5m that is said", `,"cache_control":{"type":"ephemeral","ttl":"5m"}`, long1h, "", []string{"system.0.cache_control mark_ttl_order"}},
	}
	for _, tt := range tests {
		got := Validate([]byte(requestWith(tool(tt.tools), system(tt.system), user(tt.message))))
		if d := cmp.Diff(tt.want, broken(got)); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// X11: a request without any mark is said to be one, and is no error.
func TestX11_ARequestHasAMark(t *testing.T) {
	bare := requestWith(okTools, `[{"type":"text","text":"s"}]`, hello)
	got := Validate([]byte(bare))
	if !cmp.Equal(broken(got), []string{"no_mark"}) || !got[0].Warning || Refuse(got) != nil {
		t.Errorf("no mark: %+v", got)
	}
	if got := Validate([]byte(strings.Replace(bare, `"text":"hello"`, `"text":"hello"`+short5m, 1))); got != nil {
		t.Errorf("one mark: %+v", got)
	}
	if got := broken(Validate([]byte(strings.Replace(bare, `"text":"hello"`, `"text":"hello","cache_control":null`, 1)))); !cmp.Equal(got, []string{"no_mark"}) {
		t.Errorf("a null is no mark: %q", got)
	}
	// What a fork sends first has one.
	f := newFanOut(t, dispatching(t, 2))
	p := f.request(t, "count .go files")
	plan, err := PlanMarks(Plan{Prefix: p, Snapshot: &f.snap, FirstRequest: true, Live: func(CacheEntry) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Body(plan.Marks, testParams, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := Validate(b.Bytes()); got != nil || len(plan.Marks) == 0 {
		t.Errorf("a fork's first request with %d marks: %+v", len(plan.Marks), got)
	}
}

func TestValidateMarks(t *testing.T) {
	at := func(mark string) []string {
		return []string{said("user", `{"type":"text","text":"a"`+mark+`}`)}
	}
	tests := []struct {
		name     string
		messages []string
		want     []string
	}{
		{"allowed on calls, results, their content, unknown blocks", []string{
			hello, said("assistant", `{"type":"tool_use","id":"t1","name":"Read","input":{"cache_control":1},"cache_control":{"type":"ephemeral"}}`),
			said("user", `{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"`+short5m+`}]}`, `{"type":"image","source":{}`+short5m+`}`),
		}, nil},
		{"on thinking", []string{hello, said("assistant", strings.TrimSuffix(thinkingBlock, "}")+short5m+"}", `{"type":"redacted_thinking","data":"x"`+short5m+`}`), hello}, []string{
			"messages.1.content.0.cache_control mark_place", "messages.1.content.1.cache_control mark_place",
		}},
		{"on blank text", []string{said("user", note, `{"type":"text","text":""`+short5m+`}`)}, []string{"messages.0.content.1 blank_text", "messages.0.content.1.cache_control mark_place"}},
		{"on inner blocks", []string{said("user", `{"type":"search_result","content":[{"type":"text","text":"a"`+short5m+`}]}`), said("assistant", `{"type":"text","text":"a","citations":[{"type":"x"`+short5m+`}]}`), hello}, []string{
			"messages.0.content.0.content.0.cache_control mark_place", "messages.1.content.0.citations.0.cache_control mark_place",
		}},
		{"another type", at(`,"cache_control":{"type":"persistent"}`), []string{"messages.0.content.0.cache_control mark_value"}},
		{"no type", at(`,"cache_control":{"ttl":"5m"}`), []string{"messages.0.content.0.cache_control mark_value"}},
		{"no object", at(`,"cache_control":true`), []string{"messages.0.content.0.cache_control mark_value"}},
		{"another ttl", at(`,"cache_control":{"type":"ephemeral","ttl":"2h"}`), []string{"messages.0.content.0.cache_control mark_value"}},
		{"another member", at(`,"cache_control":{"type":"ephemeral","scope":"x"}`), []string{"messages.0.content.0.cache_control mark_value"}},
		{"twice on a block", at(short5m + short5m), []string{"messages.0.content.0.cache_control duplicate_key"}},
		{"a mark of no value is none for the order", at(`,"cache_control":{"type":"x","ttl":"1h"}`), []string{"messages.0.content.0.cache_control mark_value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Validate([]byte(requestOf(tt.messages...)))
			if d := cmp.Diff(tt.want, broken(got)); d != "" {
				t.Errorf("violations (-want +got):\n%s\n%+v", d, got)
			}
		})
	}
}

// A verdict of a body that is all wrong stays one that can be held and read.
func TestValidateBoundsItsVerdict(t *testing.T) {
	blanks := func(n int) string {
		return requestOf(said("user", strings.Repeat(`{"type":"text","text":""},`, n-1)+`{"type":"text","text":""}`))
	}
	if got := Validate([]byte(blanks(maxViolations))); len(got) != maxViolations || got[maxViolations-1].Rule != RuleBlankText || got[10].Path != "messages.0.content.10" {
		t.Errorf("%d violations, the last %+v", len(got), got[len(got)-1])
	}
	for _, n := range []int{maxViolations + 1, 3 * maxViolations} {
		got := Validate([]byte(blanks(n)))
		if len(got) != maxViolations+1 || got[maxViolations].Rule != RuleMore || got[maxViolations-1].Path != fmt.Sprintf("messages.0.content.%d", maxViolations-1) {
			t.Errorf("%d blank texts: %d violations, the last %+v", n, len(got), got[len(got)-1])
		}
	}
	tools := `[` + strings.Repeat(`1,`, 3*maxViolations) + `1]`
	if got := Validate([]byte(requestWith(tools, okSystem, hello))); len(got) != maxViolations+1 || got[maxViolations].Rule != RuleMore {
		t.Errorf("broken tools: %d violations", len(got))
	}
}

func TestValidateMessageCount(t *testing.T) {
	c := NewChecker(testHead()).Message(RoleUser, message(t, RoleUser, text("a")).Blocks)
	marks := []Mark{{Block: "tools.1"}}
	for n, want := range map[int][]string{maxMessages: nil, maxMessages + 1: {"messages size"}} {
		c.count = n
		if got := broken(c.Violations(marks, requestClose(testParams, nil), 1)); !cmp.Equal(got, want) {
			t.Errorf("%d messages: %q", n, got)
		}
	}
}

func TestRefuse(t *testing.T) {
	v := func(path string) Violation { return Violation{Rule: "r", Path: path, Message: "bad"} }
	warning := Violation{Rule: "w", Message: "hm", Warning: true}
	tests := []struct {
		found []Violation
		want  string
	}{
		{[]Violation{warning, v("a.0")}, "the request breaks a rule and was not sent: a.0: bad"},
		{[]Violation{v(""), v("b"), v("c")}, "the request breaks 3 rules and was not sent: bad; b: bad; c: bad"},
		{[]Violation{v("a"), v("b"), v("c"), v("d"), v("e")}, "the request breaks 5 rules and was not sent: a: bad; b: bad; c: bad; and 2 more"},
	}
	for _, tt := range tests {
		err := Refuse(tt.found)
		if err == nil || err.Error() != tt.want {
			t.Errorf("error %v, want %s", err, tt.want)
		}
		var e *InvalidRequestError
		if errors.As(err, &e) && e.TooLarge() {
			t.Errorf("%v is called too large", err)
		}
	}
	if err := Refuse([]Violation{warning}); err != nil {
		t.Errorf("a warning refuses: %v", err)
	}
}

func TestComparePaths(t *testing.T) {
	sorted := []string{"", "model", "tools", "tools.0", "tools.2", "tools.10", "tools.2x", "system.0", "messages", "messages.2", "messages.2.content.9", "messages.2.content.9.id", "messages.2.content.10", "messages.10", "max_tokens", "stream", "temperature", "top_p"}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := comparePaths(a, b), min(max(i-j, -1), 1); got != want {
				t.Errorf("comparePaths(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}

// Messages say what is wrong and what to do.
func TestValidateMessagesText(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":`: "the body is no JSON after byte 9: unexpected end of JSON input; nothing else of it can be checked",
		strings.Replace(requestOf(hello), `"stream"`, `"top_k":1,"stream"`, 1):                                "API version 2026-10-21 refuses top_k; leave it out",
		requestOf(hello, said("assistant", call("t1")), hello):                                                "tool_use t1 has no tool_result in the message right after it; answer it there, be it with an error",
		requestWith(`[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}]`, okSystem, hello):       `tool 0 has the name "a" too; names must be unique`,
		requestOf(hello, said("assistant", call("t1"), call("t2")), said("user", result("t2"), result("t1"))): "the result of call 0 stands behind that of call 1; keep the order of the calls, so that siblings have the same bytes",
		requestWith(`[{"input_schema":{}}]`, okSystem, hello):                                                 "the name (missing) does not match ^[a-zA-Z0-9_-]{1,64}$; rename the tool",
	} {
		if got := Validate([]byte(body)); len(got) != 1 || got[0].Message != want {
			t.Errorf("%s: %+v, want %s", body, got, want)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add([]byte(requestOf(hello, said("assistant", thinkingBlock, call("t1")), said("user", result("t1"), note))))
	f.Add([]byte(`{"messages":[{"role":"\u0075ser","content":[{"type":"tool_result","content":[{"cache_control":{}}]},{"text":"\ud83d"}]}],"tools":[{"name":1}],"system":[[]]}`))
	f.Add([]byte("{\"model\":\"\xff\",\"cache_control\":null,\"max_tokens\":-0.5e+3,\"\":{}}"))
	f.Add([]byte(` [ { } ] `))
	f.Fuzz(func(t *testing.T, body []byte) {
		before := string(body)
		got := Validate(body)
		if string(body) != before {
			t.Fatal("the body was written to")
		}
		if !json.Valid(body) && (len(got) == 0 || got[0].Rule != RuleJSON) {
			t.Fatalf("%q is no JSON, and the verdict is %+v", body, got)
		}
		if len(got) > maxViolations+1 {
			t.Fatalf("%d violations", len(got))
		}
		for i, v := range got {
			if v.Rule == "" || v.Message == "" || i > 0 && comparePaths(got[i-1].Path, v.Path) > 0 && v.Rule != RuleMore {
				t.Fatalf("violation %d of %q: %+v", i, body, v)
			}
			if c := CleanText(v.Message + v.Path); c != v.Message+v.Path {
				t.Fatalf("unclean text in %+v", v)
			}
		}
	})
}
