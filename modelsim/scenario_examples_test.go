package modelsim

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Each example scenario does what its description says to a client that streams, with the thinking that a model has by
// default and with thinking that is shown.
func TestExamplesDoWhatTheySay(t *testing.T) {
	type step struct {
		messages string        // of the request, after the fields that all have
		fields   string        // more fields, each with a comma behind it
		key      string        // "" for sim
		pause    time.Duration // before the request
		status   int
		has      []string // in this order
		lacks    string
	}
	const (
		stop     = "event: message_stop"
		offering = `"tools":[{"name":"Agent","input_schema":{"type":"object"}},{"name":"Read","input_schema":{"type":"object"}},{"name":"Grep","input_schema":{"type":"object"}}],`
		reads    = `"cache_read_input_tokens":7`
		misses   = `"cache_read_input_tokens":0`
	)
	short := user(textMarked("ok", ""))
	paused := ask + `,{"role":"assistant","content":[{"type":"text","text":"Searching."},` + search + `,{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}]}`
	answered := func(calls string, results ...string) string {
		return ask + `,{"role":"assistant","content":[` + calls + `]},` + user(results...)
	}
	looked := `{"type":"tool_use","id":"t1","name":"Read","input":{}},{"type":"tool_use","id":"t2","name":"Grep","input":{}}`
	steps := map[string][]step{
		"context-overflow": {{status: 200, has: []string{"As far as ", `"stop_reason":"model_context_window_exceeded"`, stop}}},
		"credit-exhausted": {{status: 200, has: []string{stop}}, {status: 402, has: []string{"billing_error"}}, {key: "other", status: 200, has: []string{stop}}},
		"cut-thinking":     {{status: 200, has: []string{`"type":"thinking"`, "content_block_delta"}, lacks: "content_block_stop"}},
		"cut-without-message-stop": {
			{status: 200, has: []string{"half", "content_block_stop"}, lacks: "message_delta"},
		},
		"fan-out": {
			{status: 400, has: []string{"no rule matches (turn 1, attempt 1, last text \\\"go\\\", tools offered: none; results: none)"}},
			{fields: offering, status: 200, has: []string{"Agent", "Agent", "Agent", `"stop_reason":"tool_use"`, stop}},
			{messages: answered(`{"type":"tool_use","id":"t1","name":"Agent","input":{}}`, res1), fields: offering, status: 200, has: []string{"Three forks are ", stop}},
		},
		"jitter": {{messages: short, status: 200, has: []string{misses}}, {messages: short, status: 200, has: []string{reads}}, {messages: short, status: 200, has: []string{misses}}},
		"max-tokens-inside-a-tool-call": {
			{status: 200, has: []string{"tool_use", "begi", `"stop_reason":"max_tokens"`, stop}},
		},
		"overloaded-mid-stream": {{status: 200, has: []string{"tool_use", "event: error", "overloaded_error"}, lacks: stop}, {status: 200, has: []string{stop}}},
		"parallel-tools": {
			{fields: offering, status: 200, has: []string{"Looking.", `"name":"Read"`, `"name":"Grep"`, stop}},
			{messages: answered(looked, res1, res2), fields: offering, status: 200, has: []string{"Both came back", stop}},
			{messages: answered(looked, strings.Replace(res1, "{", `{"is_error":true,`, 1), res2), fields: offering, status: 200, has: []string{"Reading failed", stop}},
		},
		"pause-turn":         {{status: 200, has: []string{"server_tool_use", `"stop_reason":"pause_turn"`, stop}}, {messages: paused, status: 200, has: []string{"Found it.", stop}}},
		"pings-only":         {{status: 200, has: []string{"message_start", "event: ping", "event: ping"}, lacks: "content_block"}},
		"pings-then-text":    {{status: 200, has: append(slices.Repeat([]string{"event: ping"}, 16), "Here it is.", stop)}},
		"rate-limit-then-ok": append(slices.Repeat([]step{{status: 429, has: []string{"retry-after: 10", "rate_limit_error"}}}, 5), step{status: 200, has: []string{stop}}),
		"refusal":            {{status: 200, has: []string{`"stop_reason":"refusal"`, `"category":"cyber"`, stop}}},
		"reset-inside-a-rune": {
			{status: 200, has: []string{"Gr\xc3"}, lacks: "Gr\xc3\xbc"},
		},
		"silence":    {{status: 200, has: []string{"message_start"}, lacks: "ping"}},
		"slow-loris": {{status: 200, has: []string{"slow", stop}}},
		"unknown-block": {
			{status: 200, has: []string{"redacted_thinking", `"type":"thinking"`, "future_x", `"type":"tool_use"`, stop}},
		},
		"visibility-lag": {
			{messages: short, status: 200, has: []string{misses}},
			{messages: short, status: 200, has: []string{misses}},
			{messages: short, pause: 2 * time.Second, status: 200, has: []string{reads}},
		},
		"wrong-key": {{status: 401, has: []string{"authentication_error"}}, {key: "sim-good", status: 200, has: []string{stop}}},
	}
	for _, name := range BuiltinScenarios() {
		if steps[name] == nil {
			t.Errorf("nothing is expected of the example %s", name)
		}
		for how, thinking := range map[string]string{"by default": "", "shown": `"thinking":{"type":"adaptive","display":"summarized"},`} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					scenario, err := BuiltinScenario(name)
					if err != nil {
						t.Fatal(err)
					}
					sim := New(Options{Scenario: scenario})
					for i, s := range steps[name] {
						time.Sleep(s.pause)
						messages, key := ask, "sim"
						if s.messages != "" {
							messages = s.messages
						}
						if s.key != "" {
							key = s.key
						}
						got := sent(sim, `{"model":"claude-sonnet-5-5","max_tokens":200,"stream":true,`+thinking+s.fields+`"messages":[`+messages+`]}`, with("x-api-key", key))
						if got.Code != s.status {
							t.Errorf("request %d: status %d, want %d: %s", i+1, got.Code, s.status, got.Body)
						}
						rest := "retry-after: " + got.Header().Get("retry-after") + "\n" + got.Body.String()
						for _, want := range s.has {
							_, after, ok := strings.Cut(rest, want)
							if !ok {
								t.Errorf("request %d: no %q in %s", i+1, want, rest)
								break
							}
							rest = after
						}
						if s.lacks != "" && strings.Contains(got.Body.String(), s.lacks) {
							t.Errorf("request %d: %q is in %s", i+1, s.lacks, got.Body)
						}
					}
				})
			})
		}
	}
}

// sent sends a request, gives up after ten minutes and returns what had come till then, or till the connection was reset.
func sent(sim *Server, body string, changes ...header) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if r := recover(); r != nil && r != http.ErrAbortHandler { // a recorder has no connection to reset
				panic(r)
			}
		}()
		sim.ServeHTTP(w, newRequest(ctx, "POST", "/v1/messages", body, changes...))
	}()
	return w
}
