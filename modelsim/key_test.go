package modelsim

import (
	"strings"
	"testing"
)

// What a change leaves readable, tier by tier: tools, system, messages each end with a mark.
func TestWhatMissesWhat(t *testing.T) {
	const tool = `{"name":"A","description":"DESCRIPTION","input_schema":{"type":"object"}`
	base := `{"model":"MODEL","max_tokens":2000,` + `"tools":[` + strings.Replace(tool, "DESCRIPTION", strings.Repeat("d", 8000), 1) + "," + marked("5m") + `}],` +
		`"system":[` + block("s", 2000, "5m") + `],"messages":[` + user(block("m", 2000, "5m"), block("q", 10, "")) + `]}`
	set := func(member string) func(string) string {
		return func(s string) string {
			return strings.Replace(s, `"max_tokens":2000,`, `"max_tokens":2000,`+member+",", 1)
		}
	}
	swap := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	const image = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`
	const source = `{"type":"document","source":{"type":"text","media_type":"text/plain","data":"x"},"citations":{"enabled":true}}`
	for _, tc := range []struct {
		name    string
		model   string // "" means claude-sonnet-4-6
		change  func(string) string
		headers []header
		keeps   string // tiers that are still read
	}{
		{name: "nothing", keeps: "tools system messages"},
		{name: "tool description", change: swap("dddd", "dddx"), keeps: ""},
		{name: "tool added in front", change: swap(`"tools":[`, `"tools":[{"name":"B","input_schema":{"type":"object"}},`), keeps: ""},
		{name: "tool added behind", change: swap(`}],"system"`, `},{"name":"B","input_schema":{"type":"object"}}],"system"`), keeps: "tools"},
		{name: "model", change: swap("MODEL", "claude-opus-4-8"), keeps: ""},
		{name: "speed", change: set(`"speed":"fast"`), keeps: ""},
		{name: "beta", headers: []header{with("anthropic-beta", "some-beta-2026-01-01")}, keeps: ""},
		{name: "workspace", headers: []header{with("anthropic-workspace-id", "w")}, keeps: ""},
		{name: "web search on", change: swap(`"tools":[`, `"tools":[{"type":"web_search_20250305","name":"web_search"},`), keeps: "tools"},
		{name: "web fetch on, behind", change: swap(`}],"system"`, `},{"type":"web_fetch_20250910","name":"web_fetch"}],"system"`), keeps: "tools"},
		{name: "citations on", change: swap(`{"type":"text","text":"q`, source+`,{"type":"text","text":"q`), keeps: "tools"},
		{name: "citations off", change: swap(`{"type":"text","text":"q`, strings.Replace(source, "true", "false", 1)+`,{"type":"text","text":"q`), keeps: "tools system messages"},
		{name: "system text", change: swap(`"text":"sx`, `"text":"sy`), keeps: "tools"},
		{name: "tool_choice", change: set(`"tool_choice":{"type":"none"}`), keeps: "tools system"},
		{name: "parallel tool use", change: set(`"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`), keeps: "tools system"},
		{name: "image at the end", change: swap(`{"type":"text","text":"q`, image+`,{"type":"text","text":"q`), keeps: "tools system"},
		{name: "thinking", change: set(`"thinking":{"type":"adaptive"}`), keeps: "tools system"},
		{name: "effort", change: set(`"output_config":{"effort":"low"}`), keeps: "tools system"},
		{name: "effort on Opus 5", model: "claude-opus-5", change: set(`"output_config":{"effort":"low"}`), keeps: "tools"},
		{name: "default effort", model: "claude-opus-5", change: set(`"output_config":{"effort":"high"}`), keeps: "tools system messages"},
		{name: "output format", change: set(`"output_config":{"format":{"type":"json_schema","schema":{}}}`), keeps: "tools system"},
		{name: "max_tokens", change: swap(`"max_tokens":2000`, `"max_tokens":5`), keeps: "tools system messages"},
		{name: "stream", change: set(`"stream":false`), keeps: "tools system messages"},
		{name: "metadata", change: set(`"metadata":{"user_id":"u"},"stop_sequences":["z"],"service_tier":"auto"`), keeps: "tools system messages"},
		{name: "later text", change: swap(`"text":"qx`, `"text":"qy`), keeps: "tools system messages"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: say(TextBlock("ok"))})
			model := tc.model
			if model == "" {
				model = "claude-sonnet-4-6"
			}
			first := strings.Replace(base, "MODEL", model, 1)
			cold := classesOf(usageOf(t, direct(sim, first)))
			body := base
			if tc.change != nil {
				body = tc.change(base)
			}
			if body == base && !strings.Contains("nothing beta workspace", tc.name) {
				t.Fatal("the change changes nothing")
			}
			got := classesOf(usageOf(t, direct(sim, strings.Replace(body, "MODEL", model, 1), tc.headers...)))
			toolTokens := cold.Write5m - 4000
			want := map[string][2]int{ // read, with room for a tool that is itself counted
				"": {0, 0}, "tools": {toolTokens, toolTokens + 30}, "tools system": {toolTokens + 2000, toolTokens + 2000}, "tools system messages": {cold.Write5m, cold.Write5m},
			}[tc.keeps]
			if got.Read < want[0] || got.Read > want[1] {
				t.Errorf("read %d of %+v, want %v (%q)", got.Read, cold, want, tc.keeps)
			}
		})
	}
	t.Run("thinking display", func(t *testing.T) {
		sim := New(Options{Mind: say(TextBlock("ok"))})
		first := set(`"thinking":{"type":"adaptive"}`)(strings.Replace(base, "MODEL", "claude-sonnet-5-5", 1))
		cold := classesOf(usageOf(t, direct(sim, first)))
		shown := strings.Replace(first, `"adaptive"`, `"adaptive","display":"summarized"`, 1)
		if got := classesOf(usageOf(t, direct(sim, shown))); got.Read != cold.Write5m {
			t.Errorf("read %d of %+v", got.Read, cold)
		}
	})
}

// An effort set by a message inside the conversation keeps what stands before it and counts for what comes after.
func TestEffortInsideTheConversation(t *testing.T) {
	beta := with("anthropic-beta", betaTurnEffort)
	head := user(block("a", 1000, "5m"))
	low := `,{"role":"system","content":[],"output_config":{"effort":"low"}}`
	tail := `,{"role":"assistant","content":[` + block("b", 500, "") + `]},` + user(block("c", 100, "5m"))
	sim := New(Options{Mind: say(TextBlock("ok"))})
	for _, step := range []struct {
		body string
		want classes
	}{
		{conversation(head), classes{0, 1000, 0, 0}},
		{conversation(head + low), classes{0, 0, 0, 1000}},
		{conversation(head + tail), classes{0, 600, 0, 1000}},
		{conversation(head + low + tail), classes{0, 600, 0, 1000}},
		{conversation(head + low + tail), classes{0, 0, 0, 1600}},
	} {
		if got := classesOf(usageOf(t, direct(sim, step.body, beta))); got != step.want {
			t.Errorf("%+v, want %+v", got, step.want)
		}
	}
	w := direct(sim, conversation(head+low))
	if e := errorOf(t, w.Body.Bytes()); e.Error.Message != "messages.1.output_config: Extra inputs are not permitted" {
		t.Errorf("without the beta: %s", w.Body)
	}
}

func TestWindowOverflow(t *testing.T) {
	const model = "haiku-4-5"
	long := func(tokens int) string {
		return strings.Replace(strings.Replace(turnOf(block("a", tokens, "")), "sonnet-5-5", model, 1), `"max_tokens":100`, `"max_tokens":64000`, 1)
	}
	sim := New(Options{Mind: say(TextBlock(strings.Repeat("abcd", 50)))})
	for _, tc := range []struct {
		tokens, status int
		stop           string
		output         int
	}{
		{199_950, 200, "end_turn", 50},
		{199_951, 200, "model_context_window_exceeded", 49},
		{200_000, 200, "model_context_window_exceeded", 0},
		{200_001, 400, "", 0},
	} {
		w := direct(sim, long(tc.tokens))
		if w.Code != tc.status {
			t.Errorf("%d tokens: status %d: %.200s", tc.tokens, w.Code, w.Body)
			continue
		}
		if tc.status == 200 && (!strings.Contains(w.Body.String(), `"stop_reason":"`+tc.stop+`"`) || usageOf(t, w).OutputTokens != tc.output) {
			t.Errorf("%d tokens: %s", tc.tokens, w.Body)
		}
	}
}
