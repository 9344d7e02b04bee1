package modelsim

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// thinker answers with thinking, text, thinking and a call, as a model that thinks between its steps.
var thinker = say(ThinkingBlock("first", ""), TextBlock("I look."), ThinkingBlock("second", ""), ToolUseBlock("t1", "A", `{"a": "<\u00e9>"}`))

// contentOf is the content of an answer, as JSON blocks.
func contentOf(t *testing.T, w *httptest.ResponseRecorder) (blocks []string) {
	t.Helper()
	var m struct{ Content []json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != 200 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	for _, b := range m.Content {
		blocks = append(blocks, string(b))
	}
	return blocks
}

func said(role string, blocks ...string) string {
	return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
}

// bound builds a conversation of two turns whose thinking comes from the simulator itself.
type bound struct {
	system, tools, first, second string
	one, two                     []string // the answers' blocks
}

func (b bound) request(model, settings string) string {
	return `{"model":"` + model + `","max_tokens":100,` + settings + `"system":"` + b.system + `","tools":[` + b.tools + `],"messages":[` +
		said("user", b.first) + "," + said("assistant", b.one...) + "," + said("user", res1, b.second) + "," +
		said("assistant", b.two...) + "," + said("user", strings.Replace(res1, "t1", "t2", 1)) + `]}`
}

func newBound(t *testing.T, sim *Server, model string) bound {
	t.Helper()
	b := bound{system: "be kind", tools: `{"name":"A","input_schema":{"type":"object"}}`, first: note, second: `{"type":"text","text":"and now"}`}
	head := `{"model":"` + model + `","max_tokens":100,"system":"` + b.system + `","tools":[` + b.tools + `],"messages":[` + said("user", b.first)
	b.one = contentOf(t, direct(sim, head+`]}`))
	b.two = contentOf(t, direct(sim, head+","+said("assistant", b.one...)+","+said("user", res1, b.second)+`]}`))
	for i := range b.two {
		b.two[i] = strings.Replace(b.two[i], `"id":"t1"`, `"id":"t2"`, 1)
	}
	return b
}

func TestThinkingIsBoundToItsConversation(t *testing.T) {
	const other = "Invalid `signature` in `thinking` block. The block is bound to a different conversation."
	const latest = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
	edit := func(old, new string) func(*bound) {
		return func(b *bound) { b.first = strings.Replace(b.first, old, new, 1) }
	}
	for _, tc := range []struct {
		name     string
		from, to string // models; "" means claude-sonnet-5-5
		settings string
		change   func(*bound)
		want     string // what the message holds; "" means accepted
	}{
		{name: "as it was"},
		{name: "another first message", change: edit("note", "memo"), want: "messages.1.content.0: " + other},
		{name: "a message more", change: func(b *bound) { b.first += "," + note }, want: "messages.1.content.0: " + other},
		{name: "another system prompt", change: func(b *bound) { b.system = "be brief" }, want: "messages.1.content.0: " + other},
		{name: "another tool", change: func(b *bound) { b.tools = strings.Replace(b.tools, "A", "B", 1) }, want: "messages.1.content.0: " + other},
		{name: "an edit after the first answer", change: func(b *bound) { b.second = note }, want: "messages.3.content.0: " + other},
		{name: "text between two thoughts", change: func(b *bound) { b.one[1] = note }, want: "messages.1.content.2: " + other},
		{name: "a mark moved", change: func(b *bound) { b.first = textMarked("note", "") }},
		{name: "another effort", settings: `"output_config":{"effort":"low"},`},
		{name: "other white space, escapes and order", change: func(b *bound) {
			b.one[3] = `{"input":{ "a":"\u003cé\u003e" },"name":"A","id":"t1","type":"tool_use"}`
			b.first = `{ "text":"n\u006fte", "type":"text"}`
		}},
		{name: "the first thought removed", change: func(b *bound) { b.one = b.one[1:] }},
		{name: "a leading run removed", change: func(b *bound) { b.one = []string{b.one[1], b.one[3]} }},
		{name: "a thought inside removed", change: func(b *bound) { b.one = []string{b.one[0], b.one[1], b.one[3]} }, want: "messages.3.content.0: " + other},
		{name: "two thoughts exchanged", change: func(b *bound) { b.one[0], b.one[2] = b.one[2], b.one[0] }, want: "messages.1.content.0: " + other},
		{name: "a thought changed", change: func(b *bound) { b.one[0] = strings.Replace(b.one[0], `"thinking":""`, `"thinking":"x"`, 1) }, want: "messages.1.content.0: Invalid `signature` in `thinking` block"},
		{name: "a sibling model", to: "claude-opus-5-5"},
		{name: "a sibling model after an edit", to: "claude-opus-5-5", change: edit("note", "memo"), want: other},
		{name: "a model that does not check", from: "claude-mythos-5-1", to: "claude-mythos-5-1", change: edit("note", "memo")},
		{name: "an older model", to: "claude-opus-5", change: edit("note", "memo")},
		{name: "a model that does not bind", from: "claude-opus-5", to: "claude-opus-5", change: edit("note", "memo")},
		{name: "latest message: thought changed", from: "claude-opus-5", to: "claude-opus-5", change: func(b *bound) { b.two[0] = strings.Replace(b.two[0], `"thinking":""`, `"thinking":"x"`, 1) }, want: "messages.3.content.0: " + latest},
		{name: "latest message: thoughts exchanged", from: "claude-opus-5", to: "claude-opus-5", change: func(b *bound) { b.two[0], b.two[2] = b.two[2], b.two[0] }, want: "messages.3.content.0: " + latest},
		{name: "latest message: first thought removed", from: "claude-opus-5", to: "claude-opus-5", change: func(b *bound) { b.two = b.two[1:] }, want: "messages.3.content.1: " + latest},
		{name: "earlier message: first thought removed", from: "claude-opus-5", to: "claude-opus-5", change: func(b *bound) { b.one = b.one[1:] }},
		{name: "a newer model reads older thinking", from: "claude-opus-5", to: "claude-opus-5-5", change: edit("note", "memo")},
		{name: "controls without their beta", settings: `"thinking":{"type":"adaptive","block_binding":{}},`, want: "thinking.adaptive.block_binding: Extra inputs are not permitted"},
		{name: "unknown thinking field", settings: `"thinking":{"type":"adaptive","bdget":1},`, want: "thinking.adaptive.bdget: Extra inputs are not permitted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: thinker})
			from, to := "claude-sonnet-5-5", "claude-sonnet-5-5"
			if tc.from != "" {
				from = tc.from
			}
			if tc.to != "" {
				to = tc.to
			}
			b := newBound(t, sim, from)
			if tc.change != nil {
				tc.change(&b)
			}
			body := b.request(to, tc.settings)
			w := direct(sim, body)
			count := httptest.NewRecorder()
			sim.ServeHTTP(count, newRequest(t.Context(), "POST", "/v1/messages/count_tokens", strings.Replace(body, `"max_tokens":100,`, "", 1)))
			if tc.want == "" {
				if w.Code != 200 || count.Code != 200 {
					t.Fatalf("refused: %s, count %s", w.Body, count.Body)
				}
				return
			}
			if w.Code != 400 || count.Code != 400 {
				t.Fatalf("%d, count %d, want 400: %s", w.Code, count.Code, w.Body)
			}
			if e := errorOf(t, w.Body.Bytes()); !strings.Contains(e.Error.Message, tc.want) {
				t.Errorf("message %q, want %q", e.Error.Message, tc.want)
			}
		})
	}
}

func TestDroppedThinking(t *testing.T) {
	const drop = `"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}},`
	all := []transformation{}
	for _, path := range []string{"messages.1.content.0", "messages.1.content.2", "messages.3.content.0", "messages.3.content.2"} {
		all = append(all, transformation{"thinking_dropped", path, "model_binding_mismatch"})
	}
	with2 := func(kind, reason string) (out []transformation) {
		for _, tr := range all {
			out = append(out, transformation{kind, tr.Path, reason})
		}
		return out
	}
	for _, tc := range []struct {
		name, from, to, settings string
		edited                   bool
		want                     []transformation
		kept                     bool // the thinking is paid for
	}{
		{"nothing to tell", "claude-sonnet-5-5", "claude-sonnet-5-5", drop, false, []transformation{}, true},
		{"another conversation", "claude-sonnet-5-5", "claude-sonnet-5-5", drop, true, with2("thinking_dropped", "prefix_binding_mismatch"), false},
		{"an older model", "claude-sonnet-5-5", "claude-opus-5", "", false, all, false},
		{"told and let through", "claude-mythos-5-1", "claude-mythos-5-1", "", true, with2("thinking_mismatch_allowed", "prefix_binding_mismatch"), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: thinker})
			b := newBound(t, sim, tc.from)
			if tc.edited {
				b.first = strings.Replace(b.first, "note", "memo", 1)
			}
			for _, stream := range []bool{false, true} {
				body := b.request(tc.to, tc.settings)
				if stream {
					body = streaming(body)
				}
				w := direct(sim, body, with("anthropic-beta", betaBinding))
				raw := w.Body.Bytes()
				if stream {
					_, rest, _ := strings.Cut(w.Body.String(), "data: ")
					raw = []byte(strings.SplitN(rest, "\n", 2)[0])
				}
				var m struct {
					answerWithTransformations
					Message answerWithTransformations
				}
				if err := json.Unmarshal(raw, &m); err != nil || w.Code != 200 {
					t.Fatalf("%d %s: %v", w.Code, raw, err)
				}
				got := m.answerWithTransformations
				if stream {
					got = m.Message
				}
				if diff := cmp.Diff(tc.want, got.InputTransformations); diff != "" {
					t.Errorf("stream %v (-want +got):\n%s", stream, diff)
				}
				bare := b
				bare.one, bare.two = []string{b.one[1], b.one[3]}, []string{b.two[1], b.two[3]}
				without := usageOf(t, direct(sim, bare.request(tc.to, ""))).InputTokens
				if kept := got.Usage.InputTokens > without; kept != tc.kept || !kept && got.Usage.InputTokens != without {
					t.Errorf("%d input tokens, %d without the thinking", got.Usage.InputTokens, without)
				}
			}
			if w := direct(sim, b.request("claude-opus-5", "")); strings.Contains(w.Body.String(), "input_transformations") {
				t.Errorf("told without the beta: %s", w.Body)
			}
		})
	}
}

type answerWithTransformations struct {
	InputTransformations []transformation `json:"input_transformations"`
	Usage                Usage
}

// Models that keep the thinking of the last turn alone lose the cache behind it when a user message comes; others keep it.
func TestThinkingOfEarlierTurns(t *testing.T) {
	for model, keeps := range map[string]bool{"claude-haiku-4-5": false, "claude-opus-4-5": true, "claude-sonnet-5-5": true} {
		sim := New(Options{Mind: say(TextBlock("ok")), MinCacheable: map[string]int{model: 100}})
		head := `{"model":"` + model + `","max_tokens":100,"messages":[` + user(block("a", 300, "5m")) + "," +
			said("assistant", `{"type":"thinking","thinking":"`+strings.Repeat("x", 400)+`","signature":"abc"}`, `{"type":"tool_use","id":"t1","name":"A","input":{}}`) + ","
		tools := classesOf(usageOf(t, direct(sim, head+user(strings.TrimSuffix(res1, "}")+","+marked("5m")+"}")+`]}`)))
		after := classesOf(usageOf(t, direct(sim, head+user(strings.TrimSuffix(res1, "}")+","+marked("5m")+"}", note)+`]}`)))
		if tools.Read != 0 || tools.Write5m < 400 {
			t.Errorf("%s: first %+v", model, tools)
		}
		if keeps && after.Read != tools.Write5m || !keeps && (after.Read != 300 || after.Write5m > 50) {
			t.Errorf("%s: before the message %+v, with it %+v", model, tools, after)
		}
	}
}

func TestGeneration(t *testing.T) {
	for id, want := range map[string]int{"claude-fable-5-2": 52, "claude-opus-5": 50, "claude-opus-4-8": 48, "claude-haiku-4-5": 45, "x": 0, "claude-none": 0, "": 0} {
		if got := generation(id); got != want {
			t.Errorf("generation(%q) = %d, want %d", id, got, want)
		}
	}
}

func FuzzSeal(f *testing.F) {
	f.Add(seal{model: "claude-sonnet-5-5", ordinal: 3, before: thoughtID("a"), text: thinkingText("b"), said: thinkingText("c")}.signature())
	f.Add("")
	f.Add("bW9kZWxzaW0yOg==")
	f.Fuzz(func(t *testing.T, signature string) {
		s, ok := parseSeal(signature)
		if !ok {
			return
		}
		if back, ok := parseSeal(s.signature()); !ok || back != s {
			t.Errorf("%+v came back as %+v", s, back)
		}
	})
}
