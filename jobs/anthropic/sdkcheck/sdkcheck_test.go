package sdkcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
	"forkyard/modelsim"
)

// oddInput has what decoding and encoding again would change.
const oddInput = `{"pattern": "**/*.go", "n":9007199254740993, "z":"<b>&é🙂", "a":1.0, "nested":{"b":[1,null,{"c":"\u2028"}],"a":{}}}`

const unknownBlock = `{"type":"future_block","payload":{"b":1,"a":[true,null]},"note":"kept"}`

// replies are what the model answers, by the first word of the last user text.
var replies = map[string]modelsim.Reply{
	"text": {Blocks: []modelsim.Block{modelsim.TextBlock("It has <4> files & \"no\" tests.\nSay 好🙂 twice: 好🙂.")}},
	"blocks": {Blocks: []modelsim.Block{
		modelsim.ThinkingBlock("I need to look at the files before I answer.", "c2lnbmF0dXJl"),
		{Type: "redacted_thinking", Raw: json.RawMessage(`{"type":"redacted_thinking","data":"RW5jcnlwdGVk"}`)},
		modelsim.TextBlock("I will look."),
		{Type: "future_block", Raw: json.RawMessage(unknownBlock)},
		modelsim.ToolUseBlock("toolu_check_1", "Glob", oddInput),
		modelsim.ToolUseBlock("toolu_check_2", "Now", `{}`),
	}},
	"thinking": {Blocks: []modelsim.Block{modelsim.ThinkingBlock("One and one and one.", ""), modelsim.TextBlock("Three.")}},
	"stop":     {Blocks: []modelsim.Block{modelsim.TextBlock("before END after")}},
	"long":     {Blocks: []modelsim.Block{modelsim.TextBlock(strings.Repeat("many words and more ", 20))}},
	"cuttool":  {Blocks: []modelsim.Block{modelsim.TextBlock("Writing."), modelsim.ToolUseBlock("toolu_cut", "Write", `{"path":"a.txt","text":"`+strings.Repeat("x", 400)+`"}`)}},
	"pause":    {Blocks: []modelsim.Block{modelsim.TextBlock("Still at it.")}, StopReason: "pause_turn"},
	"window":   {Blocks: []modelsim.Block{modelsim.TextBlock("No room for mo")}, StopReason: "model_context_window_exceeded"},
	"event":    {Blocks: []modelsim.Block{modelsim.TextBlock("half of an answer, no more")}, Fault: &modelsim.Fault{Kind: modelsim.FaultErrorEvent, AfterEvents: 3, Message: "Overloaded"}},
	"eof":      {Blocks: []modelsim.Block{modelsim.TextBlock("half of an answer, no more")}, Fault: &modelsim.Fault{Kind: modelsim.FaultEOF, AfterEvents: 3}},
	"eoftool":  {Blocks: []modelsim.Block{modelsim.ToolUseBlock("toolu_eof", "Write", oddInput)}, Fault: &modelsim.Fault{Kind: modelsim.FaultEOF, AfterEvents: 4}},
	"reset":    {Blocks: []modelsim.Block{modelsim.TextBlock("half of an answer, no more")}, Fault: &modelsim.Fault{Kind: modelsim.FaultReset, AfterEvents: 3}},
}

// statuses are the documented errors, with the class that the TypeScript SDK gives them.
// Source: https://platform.claude.com/docs/en/api/errors
var statuses = []struct {
	status      int
	kind, class string
	code        string // error.details.error_code
	ours        string
	retryable   bool
}{
	{400, "invalid_request_error", "BadRequestError", "", forkcore.CodeProviderError, false},
	{401, "authentication_error", "AuthenticationError", "", forkcore.CodeProviderAuth, false},
	{402, "billing_error", "PaymentRequiredError", "", forkcore.CodeProviderAuth, false},
	{403, "permission_error", "PermissionDeniedError", "", forkcore.CodeProviderAuth, false},
	{404, "not_found_error", "NotFoundError", "", forkcore.CodeProviderError, false},
	{409, "conflict_error", "ConflictError", "", forkcore.CodeProviderError, true},
	{413, "request_too_large", "ContentTooLargeError", "", forkcore.CodeContextWindow, false},
	{429, "rate_limit_error", "RampLimitExceededError", "ramp_limit_exceeded", forkcore.CodeRateLimited, true},
	{429, "rate_limit_error", "EnforcedSpendLimitReachedError", "enforced_spend_limit_reached", forkcore.CodeProviderAuth, false},
	{500, "api_error", "InternalServerError", "", forkcore.CodeProviderError, true},
	{504, "timeout_error", "GatewayTimeoutError", "", forkcore.CodeProviderError, true},
	{529, "overloaded_error", "OverloadedError", "", forkcore.CodeOverloaded, true},
}

// mind answers by the first word of the last user text.
type mind struct {
	mu    sync.Mutex
	times map[string]int
}

func (m *mind) Reply(_ context.Context, req *modelsim.Request) (modelsim.Reply, error) {
	last := req.Messages[len(req.Messages)-1].Blocks
	b := last[len(last)-1]
	if b.Type == "tool_result" {
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("The sum is " + b.Text + ".")}}, nil
	}
	word, rest, _ := strings.Cut(b.Text, " ")
	switch word {
	case "add":
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("Adding."), modelsim.ToolUseBlock("", "add", `{"a":40,"b":2}`)}}, nil
	case "status":
		var f modelsim.Fault
		if _, err := fmt.Sscanf(rest, "%d %s", &f.Status, &f.Code); err != nil && err != io.EOF && f.Status == 0 {
			return modelsim.Reply{}, err
		}
		f.Kind, f.Message = modelsim.FaultStatus, "Acted out: "+rest
		return modelsim.Reply{Fault: &f}, nil
	case "once": // fails at every odd time
		m.mu.Lock()
		m.times[rest]++
		n := m.times[rest]
		m.mu.Unlock()
		if n%2 == 0 {
			return replies["text"], nil
		}
		f := &modelsim.Fault{Kind: modelsim.FaultStatus}
		if _, err := fmt.Sscanf(rest, "%d", &f.Status); err != nil {
			return modelsim.Reply{}, err
		}
		if f.Status == http.StatusTooManyRequests {
			f.RetryAfter = time.Second
		}
		return modelsim.Reply{Fault: f}, nil
	}
	r, ok := replies[word]
	if !ok {
		return modelsim.Reply{}, fmt.Errorf("no reply for %q", word)
	}
	return r, nil
}

// refusal is a stream that modelsim does not make: a refusal with its details, usage repeated in message_delta.
// Source: Messages API, streaming and stop reasons.
const refusal = `event: message_start
data: {"type":"message_start","message":{"id":"msg_refused","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":30,"cache_read_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"B"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":"cyber","explanation":"No."}},"usage":{"input_tokens":9,"cache_creation_input_tokens":30,"cache_read_input_tokens":7,"output_tokens":5}}

event: message_stop
data: {"type":"message_stop"}

`

// serve starts the simulator. Below /noisy every event has a ping and an event of an unknown type before it; below
// /refusal every answer is the stream above.
func serve(t testing.TB) (*modelsim.Server, string) {
	t.Helper()
	sim := modelsim.New(modelsim.Options{Mind: &mind{times: map[string]int{}}})
	mux := http.NewServeMux()
	mux.Handle("/", sim)
	mux.Handle("/noisy/", http.StripPrefix("/noisy", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sim.ServeHTTP(wire{w, "event: ping\ndata: {\"type\": \"ping\"}\n\n: comment\n\nevent: future_event\ndata: {\"type\":\"future_event\",\"index\":0,\"x\":[1]}\n\n"}, r)
	})))
	mux.HandleFunc("/refusal/v1/messages", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("content-type", "text/event-stream; charset=utf-8")
		w.Header().Set("request-id", "req_refused")
		_, _ = io.WriteString(w, refusal)
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return sim, srv.URL
}

func params(t testing.TB, text string, more map[string]any) json.RawMessage {
	t.Helper()
	p := map[string]any{
		"model": "claude-sonnet-5-5", "max_tokens": 1000,
		"messages": []any{map[string]any{"role": "user", "content": text}},
	}
	for k, v := range more {
		p[k] = v
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// marked is a text block with a cache mark.
func marked(text, ttl string) map[string]any {
	return map[string]any{"type": "text", "text": text, "cache_control": map[string]any{"type": "ephemeral", "ttl": ttl}}
}

// cached is a request with a 1-hour mark on the system text and a 5-minute mark after more messages than one.
func cached(t testing.TB, turns int) json.RawMessage {
	messages := []any{}
	for i := range turns {
		if i > 0 {
			messages = append(messages, map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "text", "text": "Noted."}}})
		}
		block := map[string]any{"type": "text", "text": fmt.Sprintf("text %d: %s", i, strings.Repeat("history ", 300))}
		if i == turns-1 {
			block["cache_control"] = map[string]any{"type": "ephemeral"}
		}
		messages = append(messages, map[string]any{"role": "user", "content": []any{block}})
	}
	last := messages[len(messages)-1].(map[string]any)
	last["content"] = append(last["content"].([]any), map[string]any{"type": "text", "text": "text uncached rest"})
	return params(t, "", map[string]any{
		"system":   []any{marked(strings.Repeat("rules ", 500), "1h")},
		"tools":    []any{map[string]any{"name": "Glob", "description": "Find files.", "input_schema": map[string]any{"type": "object"}}},
		"messages": messages,
	})
}

// scenarios are those whose answers must be the same to every reader.
func scenarios(t testing.TB) []scenario {
	tools := map[string]any{"tools": []any{
		map[string]any{"name": "Glob", "input_schema": map[string]any{"type": "object"}},
		map[string]any{"name": "Now", "input_schema": map[string]any{"type": "object"}},
	}}
	shown := map[string]any{"thinking": map[string]any{"type": "adaptive", "display": "summarized"}}
	both := func(name string, p json.RawMessage) scenario {
		return scenario{Name: name, Calls: []call{{Op: "create", Params: p}, {Op: "stream", Params: p}}}
	}
	noisy := func(name, word string, more map[string]any) scenario {
		return scenario{Name: name, Path: "/noisy", Calls: []call{{Op: "stream", Params: params(t, word+" noisy", more)}}}
	}
	return []scenario{
		both("text", params(t, "text please", nil)),
		both("every block type", params(t, "blocks please", tools)),
		both("thinking shown", params(t, "thinking please", shown)),
		both("thinking omitted", params(t, "thinking please", nil)),
		both("stop sequence", params(t, "stop please", map[string]any{"stop_sequences": []any{"END"}})),
		both("output limit", params(t, "long please", map[string]any{"max_tokens": 12})),
		both("pause", params(t, "pause please", nil)),
		both("context window", params(t, "window please", nil)),
		{Name: "cache", Calls: []call{
			{Op: "create", Params: cached(t, 1)}, // cold: writes for an hour and for five minutes
			{Op: "stream", Params: cached(t, 1)}, // warm: reads both
			{Op: "stream", Params: cached(t, 3)}, // grown: reads and writes
			{Op: "create", Params: cached(t, 3)},
		}},
		noisy("pings and unknown events, text", "text", nil),
		noisy("pings and unknown events, blocks", "blocks", tools),
		{Name: "refusal", Path: "/refusal", Calls: []call{{Op: "stream", Params: params(t, "x", nil)}}},
	}
}

func TestReadersAgree(t *testing.T) {
	sim, url := serve(t)
	all := scenarios(t)
	lines := runTypescript(t, url, all)
	captured := sim.Requests()
	at := 0
	for _, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			var shape []string
			for i, c := range s.Calls {
				l := lines[at+i]
				if l.Error != nil {
					t.Fatalf("%s failed in the TypeScript SDK: %+v", c.Op, *l.Error)
				}
				// The TypeScript SDK's own bytes go through the other two.
				body, betas := streaming(c.Params), ""
				if s.Path != "/refusal" {
					got := byRequestID(t, captured, l.OK.RequestID)
					body, betas = got.Body, got.Header.Get("anthropic-beta")
					if l.OK.Message.ID != got.MessageID {
						t.Errorf("message id %q, the simulator sent %q", l.OK.Message.ID, got.MessageID)
					}
				}
				views := map[string]view{typescript: l.view(t)}
				texts := map[string]string{}
				if c.Op == "create" {
					views[golang] = golangPost(t.Context(), t, url+s.Path, body, betas, 0)
				} else {
					var stopped bool
					views[golang], texts[golang], stopped = golangStream(t.Context(), t, url+s.Path, body, betas, 0)
					texts[typescript] = l.OK.Text
					if !stopped {
						t.Error("the Go SDK saw no message_stop")
					}
				}
				var failed *forkcore.ModelError
				views[ours], texts[ours], failed = ourStream(t.Context(), t, url+s.Path, streaming(body), betas)
				if failed != nil {
					t.Errorf("this program: %v", failed)
				}
				agree(t, views)
				if s.Path == "/refusal" { // a block may start with text, of which only this program tells at once
					texts[ours] = strings.TrimPrefix(texts[ours], "B")
				}
				if c.Op == "stream" && (texts[typescript] != texts[ours] || texts[golang] != texts[ours]) {
					t.Errorf("text by events: %q", texts)
				}
				// JavaScript rounds numbers; the other two keep every digit.
				if diff := cmp.Diff(views[golang].Blocks, views[ours].Blocks); diff != "" {
					t.Errorf("blocks of the Go SDK (-) and of this program (+):\n%s", diff)
				}
				u := views[typescript].Usage
				if s.Name == "thinking shown" && u.Thinking == 0 {
					t.Error("no thinking tokens: the scenario no longer shows them")
				}
				shape = append(shape, fmt.Sprintf("%v/%v/%v", u.Read > 0, u.Write5m > 0, u.Write1h > 0))
			}
			if want := []string{"false/true/true", "true/false/false", "true/true/false", "true/false/false"}; s.Name == "cache" && !slices.Equal(shape, want) {
				t.Errorf("read/5m/1h = %v, want %v: the scenario no longer shows every class", shape, want)
			}
		})
		at += len(s.Calls)
	}
	if kinds := lines[at-2].OK.Events; kinds["message_start"] != 1 || kinds["message_stop"] != 1 {
		t.Errorf("the helper of the TypeScript SDK saw %v", kinds)
	}
	t.Run("by the simulator's record", func(t *testing.T) { recorded(t, sim) })
}

// recorded checks that what the simulator counted for the three readers is the same, request by request.
func recorded(t *testing.T, sim *modelsim.Server) {
	byKey := map[string][]modelsim.Usage{}
	var keys []string
	for _, c := range sim.Requests() {
		if c.Usage == nil {
			t.Errorf("request %d has no usage: %s", c.N, c.Error)
			continue
		}
		if byKey[c.Key] == nil {
			keys = append(keys, c.Key)
		}
		byKey[c.Key] = append(byKey[c.Key], *c.Usage)
	}
	if len(keys) != 3 {
		t.Fatalf("%d keys", len(keys))
	}
	for _, k := range keys[1:] {
		if diff := cmp.Diff(byKey[keys[0]], byKey[k]); diff != "" {
			t.Errorf("usage of the first reader (-) and of another (+):\n%s", diff)
		}
	}
}

func byRequestID(t testing.TB, captured []modelsim.Captured, id string) modelsim.Captured {
	t.Helper()
	for _, c := range captured {
		if c.RequestID == id && id != "" {
			return c
		}
	}
	t.Fatalf("the simulator knows no request %q", id)
	return modelsim.Captured{}
}

// The exact bytes of a streamed tool input: the TypeScript SDK's event helper, the Go SDK and this program.
func TestToolInputBytes(t *testing.T) {
	sim, url := serve(t)
	p := params(t, "blocks please", nil)
	l := runTypescript(t, url, []scenario{{Name: "input", Calls: []call{{Op: "stream", Params: p}}}})[0]
	if l.Error != nil {
		t.Fatalf("%+v", *l.Error)
	}
	if len(l.OK.Inputs) < 5 || l.OK.Inputs[4] != oddInput {
		t.Errorf("the events of the TypeScript SDK gave %q", l.OK.Inputs)
	}
	body := sim.Requests()[0].Body
	client := golangClient(url)
	stream := client.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{}, option.WithRequestBody("application/json", body))
	var m sdk.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(m.Content[4].Input); got != oddInput {
		t.Errorf("the Go SDK has %s", got)
	}
	c, err := anthropic.New(anthropic.Options{APIKey: keyOurs, BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	for event, err := range c.Stream(t.Context(), forkcore.Request{Body: func() io.Reader { return strings.NewReader(string(body)) }, ContentLength: int64(len(body))}) {
		if err != nil {
			t.Fatal(err)
		}
		if end, ok := event.(*forkcore.ModelEnd); ok {
			want := `{"type":"tool_use","id":"toolu_check_1","name":"Glob","input":` + oddInput + `}`
			if got := string(end.Blocks[4]); got != want {
				t.Errorf("this program has\n%s, want\n%s", got, want)
			}
			if got := string(end.Blocks[3]); got != unknownBlock {
				t.Errorf("the unknown block became\n%s", got)
			}
		}
	}
}

func TestErrorsAgree(t *testing.T) {
	sim, url := serve(t)
	var all []scenario
	for _, s := range statuses {
		p := params(t, strings.TrimSpace(fmt.Sprintf("status %d %s", s.status, s.code)), nil)
		all = append(all, scenario{Name: fmt.Sprint(s.status, " ", s.code), Calls: []call{{Op: "create", Params: p}, {Op: "stream", Params: p}}})
	}
	// What the simulator itself refuses.
	all = append(all,
		scenario{Name: "unknown model", Calls: []call{{Op: "create", Params: params(t, "text", map[string]any{"model": "claude-nothing"})}, {Op: "stream", Params: params(t, "text", map[string]any{"model": "claude-nothing"})}}},
		scenario{Name: "extra field", Calls: []call{{Op: "create", Params: params(t, "text", map[string]any{"colour": "red"})}, {Op: "stream", Params: params(t, "text", map[string]any{"colour": "red"})}}},
	)
	lines := runTypescript(t, url, all)
	captured := sim.Requests()
	for i, s := range all {
		t.Run(s.Name, func(t *testing.T) {
			for j, c := range s.Calls {
				l := lines[2*i+j]
				if l.Error == nil || !l.Error.APIError {
					t.Fatalf("the TypeScript SDK threw no API error: %+v", l)
				}
				got := byRequestID(t, captured, l.Error.RequestID)
				views := map[string]view{typescript: l.view(t)}
				if c.Op == "create" {
					views[golang] = golangPost(t.Context(), t, url, got.Body, "", 0)
				} else {
					views[golang], _, _ = golangStream(t.Context(), t, url, got.Body, "", 0)
				}
				var e *forkcore.ModelError
				views[ours], _, e = ourStream(t.Context(), t, url, streaming(got.Body), "")
				if e == nil {
					t.Fatal("this program saw no error")
				}
				ts, gone, own := views[typescript].Err, views[golang].Err, views[ours].Err
				if gone == nil || ts.Status != gone.Status || ts.Type != gone.Type || ts.Code != gone.Code || ts.Message != gone.Message ||
					own.Status != ts.Status || own.Type != ts.Type || !strings.HasPrefix(own.Message, ts.Message) {
					t.Error(table(views))
				}
				for _, v := range views {
					if !strings.HasPrefix(v.Err.RequestID, "req_") {
						t.Errorf("no request id: %+v", *v.Err)
					}
				}
				if i >= len(statuses) {
					continue
				}
				want := statuses[i]
				if ts.Status != want.status || ts.Type != want.kind || ts.Class != want.class || ts.Code != want.code {
					t.Errorf("the TypeScript SDK threw %+v, want %+v", *ts, want)
				}
				if e.Code != want.ours || e.Retryable != want.retryable {
					t.Errorf("this program: code %s, retryable %v; want %s, %v", e.Code, e.Retryable, want.ours, want.retryable)
				}
			}
		})
	}
}

// Each SDK tries again by itself and says which attempt it is; this program leaves that to its caller and says how long
// to wait.
func TestRetriesAgree(t *testing.T) {
	sim, url := serve(t)
	all := []scenario{
		{Name: "429", Calls: []call{{Op: "create", Params: params(t, "once 429", nil), Retries: 2}}},
		{Name: "529", Calls: []call{{Op: "stream", Params: params(t, "once 529", nil), Retries: 2}}},
	}
	lines := runTypescript(t, url, all)
	for i, status := range []int{429, 529} {
		if lines[i].Error != nil {
			t.Fatalf("%+v", *lines[i].Error)
		}
		body := byRequestID(t, sim.Requests(), lines[i].OK.RequestID).Body
		before := len(sim.Requests())
		attempts := map[string][]modelsim.Captured{}
		views := map[string]view{typescript: lines[i].view(t)}
		if status == 429 {
			views[golang] = golangPost(t.Context(), t, url, body, "", 2)
		} else {
			views[golang], _, _ = golangStream(t.Context(), t, url, body, "", 2)
		}
		after := sim.Requests()
		attempts[typescript] = attemptsOf(after[:before], body)
		attempts[golang] = attemptsOf(after[before:], body)
		_, _, e := ourStream(t.Context(), t, url, streaming(body), "")
		if e == nil || !e.Retryable || e.Status != status {
			t.Errorf("this program: %+v", e)
		}
		if status == 429 && e.RetryAfter != time.Second {
			t.Errorf("this program shall wait %v, want what retry-after says", e.RetryAfter)
		}
		for name, tries := range attempts {
			if len(tries) != 2 || tries[0].Status != status || tries[1].Status != 200 {
				t.Errorf("%s: %d attempts", name, len(tries))
				continue
			}
			for n, c := range tries {
				if got := c.Header.Get("x-stainless-retry-count"); got != fmt.Sprint(n) {
					t.Errorf("%s, attempt %d: x-stainless-retry-count %q", name, n, got)
				}
			}
			if gap := tries[1].Started.Sub(tries[0].Started); status == 429 && gap < time.Second {
				t.Errorf("%s tried again after %v, before retry-after", name, gap)
			}
		}
		// The simulator fails every odd time; this program's single attempt was one.
		v, _, e := ourStream(t.Context(), t, url, streaming(body), "")
		if e != nil {
			t.Fatalf("the second attempt: %v", e)
		}
		views[ours] = v
		agree(t, views)
	}
}

func attemptsOf(captured []modelsim.Captured, body []byte) []modelsim.Captured {
	var out []modelsim.Captured
	for _, c := range captured {
		if string(c.Body) == string(body) {
			out = append(out, c)
		}
	}
	return out
}

// Streams that do not end as they should. What each SDK does is written down, since a caller that moved to another one
// would have to know; this program always fails the attempt.
func TestBrokenStreams(t *testing.T) {
	sim, url := serve(t)
	tests := []struct {
		name, word string
		ts         func(line) string // "" = as it was known
		silent     bool              // the TypeScript SDK without helpers sees no error
		golang     func(v view, stopped bool) string
		code, kind string // of this program
	}{
		{
			name: "error event", word: "event", code: forkcore.CodeOverloaded, kind: "overloaded_error",
			ts: func(l line) string {
				if l.Error == nil || !l.Error.APIError || l.Error.Type != "overloaded_error" || l.Error.Message != "Overloaded" {
					return "want a thrown API error of type overloaded_error"
				}
				return ""
			},
			golang: func(v view, _ bool) string {
				if v.Err == nil || v.Err.Type != "overloaded_error" || v.Err.Status != 200 || v.Err.Message != "Overloaded" {
					return "want an *Error with status 200 and type overloaded_error"
				}
				return ""
			},
		},
		{
			name: "no message_stop", word: "eof", silent: true, code: forkcore.CodeStreamCut,
			ts: thrown,
			golang: func(v view, stopped bool) string {
				if v.Err != nil || stopped || v.StopReason != "" || len(v.Blocks) == 0 {
					return "want no error, no message_stop and half an answer: the SDK is silent"
				}
				return ""
			},
		},
		{
			name: "no message_stop, inside a tool input", word: "eoftool", silent: true, code: forkcore.CodeStreamCut,
			ts: thrown,
			golang: func(v view, stopped bool) string {
				if v.Err != nil || stopped {
					return "want no error and no message_stop: the SDK is silent"
				}
				return ""
			},
		},
		{
			name: "connection reset", word: "reset", code: forkcore.CodeStreamCut,
			ts: thrown,
			golang: func(v view, _ bool) string {
				if v.Err == nil {
					return "want an error"
				}
				return ""
			},
		},
	}
	var all []scenario
	for _, tt := range tests {
		p := params(t, tt.word, nil)
		all = append(all, scenario{Name: tt.name, Calls: []call{{Op: "stream", Params: p}, {Op: "iterate", Params: p}}})
	}
	lines := runTypescript(t, url, all)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := streaming(attemptBody(t, sim, tt.word))
			views := map[string]view{}
			if l := lines[2*i]; l.Error != nil {
				views[typescript] = l.view(t)
			} else {
				views[typescript] = l.OK.Message.view(t)
			}
			if bad := tt.ts(lines[2*i]); bad != "" {
				t.Errorf("the TypeScript SDK's helper: %s", bad)
			}
			var stopped bool
			views[golang], _, stopped = golangStream(t.Context(), t, url, body, "", 0)
			if bad := tt.golang(views[golang], stopped); bad != "" {
				t.Errorf("the Go SDK: %s", bad)
			}
			var e *forkcore.ModelError
			views[ours], _, e = ourStream(t.Context(), t, url, body, "")
			if e == nil || e.Code != tt.code || !e.Retryable || e.Type != tt.kind {
				t.Errorf("this program: %+v, want %s", e, tt.code)
			}
			t.Log("\n" + table(views))
			plain := lines[2*i+1]
			if (plain.Error == nil) != tt.silent {
				t.Errorf("the TypeScript SDK without helpers: %+v, want it silent: %v", plain, tt.silent)
			}
		})
	}
}

func thrown(l line) string {
	if l.Error == nil {
		return "want a thrown error"
	}
	return ""
}

func attemptBody(t testing.TB, sim *modelsim.Server, word string) []byte {
	t.Helper()
	for _, c := range sim.Requests() {
		if strings.Contains(string(c.Body), `"`+word+`"`) {
			return c.Body
		}
	}
	t.Fatalf("no request with %q", word)
	return nil
}

// A tool call that runs into max_tokens: its input is no JSON. The TypeScript SDK makes a valid input of the part that came,
// the Go SDK an empty one; this program drops the call, since a tool that runs on half an input does what nobody asked for.
func TestCutToolInput(t *testing.T) {
	sim, url := serve(t)
	p := params(t, "cuttool please", map[string]any{"max_tokens": 40})
	l := runTypescript(t, url, []scenario{{Name: "cut", Calls: []call{{Op: "stream", Params: p}}}})[0]
	body := sim.Requests()[0].Body
	views := map[string]view{typescript: l.view(t)}
	v, _, e := ourStream(t.Context(), t, url, body, "")
	if e != nil {
		t.Fatal(e)
	}
	views[ours] = v
	if v.StopReason != "max_tokens" || !slices.Equal(v.Blocks, []string{`{"text":"Writing.","type":"text"}`}) {
		t.Errorf("this program has %q, stop reason %s", v.Blocks, v.StopReason)
	}
	if l.Error != nil {
		t.Errorf("the TypeScript SDK threw %+v", *l.Error)
	} else if m := views[typescript]; m.StopReason != "max_tokens" || len(m.Blocks) != 2 || m.Usage.Output != v.Usage.Output ||
		m.Blocks[1] != `{"id":"toolu_cut","input":{"path":"a.txt"},"name":"Write","type":"tool_use"}` {
		t.Errorf("the TypeScript SDK has %q, stop reason %s; it was known to make a valid input of what came", m.Blocks, m.StopReason)
	}
	views[golang], _, _ = golangStream(t.Context(), t, url, body, "", 0)
	if m := views[golang]; m.Err != nil || m.StopReason != "max_tokens" || len(m.Blocks) != 2 || m.Usage.Output != v.Usage.Output ||
		m.Blocks[1] != `{"id":"toolu_cut","input":{},"name":"Write","type":"tool_use"}` {
		t.Errorf("the Go SDK has %q, error %+v; it was known to make an empty input of it", m.Blocks, m.Err)
	}
	t.Log("\n" + table(views))
}

// The tool runners of both SDKs call a local function and send its result; the conversation they make, sent by this
// program, gives the same answers.
func TestToolRunnersAgree(t *testing.T) {
	sim, url := serve(t)
	// Without a message thread: modelsim has none, and neither can a thread be forked.
	p := params(t, "add 40 and 2", map[string]any{"thread": false})
	lines := runTypescript(t, url, []scenario{{Name: "runner", Calls: []call{{Op: "toolRunner", Params: p}, {Op: "toolRunnerStream", Params: p}}}})
	for i, l := range lines {
		if l.Error != nil {
			t.Fatalf("%s: %+v", l.Op, *l.Error)
		}
		if len(l.OK.Messages) != 2 || len(l.OK.Calls) != 1 || l.OK.Calls[0].A != 40 || l.OK.Calls[0].B != 2 {
			t.Fatalf("%s: %d messages, calls %v", l.Op, len(l.OK.Messages), l.OK.Calls)
		}
		sent := sim.Requests()[2*i : 2*i+2]
		for n, m := range l.OK.Messages {
			if m.ID != sent[n].MessageID {
				t.Errorf("%s: message %d is %s, the simulator sent %s", l.Op, n, m.ID, sent[n].MessageID)
			}
			betas := sent[n].Header.Get("anthropic-beta")
			views := map[string]view{typescript: m.view(t)}
			views[golang], _, _ = golangStream(t.Context(), t, url, streaming(sent[n].Body), betas, 0)
			v, _, e := ourStream(t.Context(), t, url, streaming(sent[n].Body), betas)
			if e != nil {
				t.Fatal(e)
			}
			views[ours] = v
			if n == 0 { // the id is made from the bytes that were sent, and "stream" is one of them
				for name, v := range views {
					v.Blocks = withoutID(t, v.Blocks)
					views[name] = v
				}
			}
			agree(t, views)
		}
		last := l.OK.Messages[1].view(t)
		if want := []string{`{"text":"The sum is 42.","type":"text"}`}; !slices.Equal(last.Blocks, want) {
			t.Errorf("%s: the last message is %q", l.Op, last.Blocks)
		}
	}

	type numbers struct {
		A float64 `json:"a" jsonschema:"required"`
		B float64 `json:"b" jsonschema:"required"`
	}
	called := 0
	add, err := toolrunner.NewBetaToolFromJSONSchema("add", "Adds two numbers.", func(_ context.Context, in numbers) (sdk.BetaToolResultBlockParamContentUnion, error) {
		called++
		return sdk.BetaToolResultBlockParamContentUnion{OfText: &sdk.BetaTextBlockParam{Text: fmt.Sprint(in.A + in.B)}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	client := golangClient(url)
	m, err := client.Beta.Messages.NewToolRunner([]sdk.BetaTool{add}, sdk.BetaToolRunnerParams{DisableThread: true, BetaMessageNewParams: sdk.BetaMessageNewParams{
		Model: "claude-sonnet-5-5", MaxTokens: 1000,
		Messages: []sdk.BetaMessageParam{sdk.NewBetaUserMessage(sdk.NewBetaTextBlock("add 40 and 2"))},
	}}).RunToCompletion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if called != 1 || m.Content[0].Text != "The sum is 42." {
		t.Errorf("the Go SDK's runner called the tool %d times: %s", called, m.RawJSON())
	}
}

func withoutID(t testing.TB, blocks []string) []string {
	out := slices.Clone(blocks)
	for i, b := range out {
		m, ok := decode(t, []byte(b), false).(map[string]any)
		if !ok {
			t.Fatalf("%s is no object", b)
		}
		delete(m, "id")
		out[i] = encode(t, m)
	}
	return out
}

func TestCountsAndModelsAgree(t *testing.T) {
	_, url := serve(t)
	message := cached(t, 2)
	var count map[string]any
	if err := json.Unmarshal(message, &count); err != nil {
		t.Fatal(err)
	}
	delete(count, "max_tokens")
	countParams, err := json.Marshal(count)
	if err != nil {
		t.Fatal(err)
	}
	lines := runTypescript(t, url, []scenario{{Name: "rest", Calls: []call{
		{Op: "countTokens", Params: countParams},
		{Op: "models"},
		{Op: "model", Params: json.RawMessage(`{"id":"claude-opus-5-5"}`)},
		{Op: "model", Params: json.RawMessage(`{"id":"claude-nothing"}`)},
	}}})
	for _, l := range lines[:3] {
		if l.Error != nil {
			t.Fatalf("%s: %+v", l.Op, *l.Error)
		}
	}
	client := golangClient(url)

	var counted sdk.MessageTokensCount
	if err := client.Post(t.Context(), "v1/messages/count_tokens", []byte(countParams), &counted); err != nil {
		t.Fatal(err)
	}
	v, _, e := ourStream(t.Context(), t, url, streaming(message), "")
	if e != nil {
		t.Fatal(e)
	}
	own := v.Usage.Input + v.Usage.Write + v.Usage.Read
	if ts := lines[0].OK.Count.InputTokens; ts != counted.InputTokens || ts != own || own == 0 {
		t.Errorf("input tokens: TypeScript SDK %d, Go SDK %d, billed to this program %d", ts, counted.InputTokens, own)
	}

	var ids []string
	pages := client.Models.ListAutoPaging(t.Context(), sdk.ModelListParams{Limit: sdk.Int(5)})
	for pages.Next() {
		ids = append(ids, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lines[1].OK.IDs, ids); diff != "" || len(ids) < 6 {
		t.Errorf("models of the TypeScript SDK (-) and of the Go SDK (+):\n%s", diff)
	}
	c, err := anthropic.New(anthropic.Options{APIKey: keyOurs, BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	check, err := c.Check(t.Context(), "claude-opus-5-5", false)
	if err != nil || check.Outcome != forkcore.ProviderOK || check.Models != len(ids) || !check.Offered {
		t.Errorf("this program: %+v, %v; want %d models", check, err, len(ids))
	}

	one, err := client.Models.Get(t.Context(), "claude-opus-5-5", sdk.ModelGetParams{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(canonical(t, lines[2].OK.Model), canonical(t, []byte(one.RawJSON()))); diff != "" {
		t.Errorf("one model, TypeScript SDK (-) and Go SDK (+):\n%s", diff)
	}
	if e := lines[3].Error; e == nil || e.Class != "NotFoundError" || e.Type != "not_found_error" {
		t.Errorf("an unknown model: %+v", e)
	}
	if check, err := c.Check(t.Context(), "claude-nothing", false); err != nil || check.Offered {
		t.Errorf("this program offers an unknown model: %+v, %v", check, err)
	}
}
