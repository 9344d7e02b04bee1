package modelsim

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// event is one server-sent event.
type event struct {
	name string
	data map[string]any
}

// readEvents reads a stream to its end; err is what ended it, nil for a clean end of the body.
func readEvents(t *testing.T, body io.Reader) (events []event, err error) {
	t.Helper()
	r := bufio.NewReader(body)
	var e event
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "":
			events = append(events, e)
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			if err := json.Unmarshal([]byte(line[len("data: "):]), &e.data); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if e.data["type"] != e.name {
				t.Errorf("event %s carries type %v", e.name, e.data["type"])
			}
		default:
			t.Errorf("unexpected line %q", line)
		}
	}
}

func names(events []event) (out []string) {
	for _, e := range events {
		if n := len(out); n > 0 && out[n-1] == e.name && e.name == "content_block_delta" {
			continue // any number of deltas
		}
		out = append(out, e.name)
	}
	return out
}

func streaming(body string) string {
	return strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)
}

func TestStreamOrder(t *testing.T) {
	const input = `{"pattern":"**/*.go", "path": "a/very/long/path/that/needs/some/pieces/é🙂"}`
	sim, url := start(t, Options{Mind: say(TextBlock("I will look for the files in several pieces now."), ToolUseBlock("", "Glob", input))})
	res, err := http.DefaultClient.Do(newRequest(t.Context(), "POST", url+"/v1/messages", streaming(hello)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if ct := res.Header.Get("content-type"); !strings.HasPrefix(ct, "text/event-stream") {
		t.Errorf("content-type = %q", ct)
	}
	events, err := readEvents(t, res.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"message_start", "ping",
		"content_block_start", "content_block_delta", "content_block_stop",
		"content_block_start", "content_block_delta", "content_block_stop",
		"message_delta", "message_stop",
	}
	if diff := cmp.Diff(want, names(events)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	var inputs, texts []string
	for _, e := range events {
		delta, _ := e.data["delta"].(map[string]any)
		switch delta["type"] {
		case "input_json_delta":
			inputs = append(inputs, delta["partial_json"].(string))
		case "text_delta":
			texts = append(texts, delta["text"].(string))
		}
	}
	if len(inputs) < 3 || inputs[0] != "" || strings.Join(inputs, "") != input {
		t.Errorf("input in pieces %q", inputs)
	}
	if len(texts) < 3 || strings.Join(texts, "") != "I will look for the files in several pieces now." {
		t.Errorf("text in pieces %q", texts)
	}
	message := events[0].data["message"].(map[string]any)
	if u := message["usage"].(map[string]any); u["output_tokens"] != 1.0 || message["stop_reason"] != nil || len(message["content"].([]any)) != 0 {
		t.Errorf("message_start = %v", message)
	}
	last := events[len(events)-2].data
	if u := last["usage"].(map[string]any); u["output_tokens"].(float64) < 20 || last["delta"].(map[string]any)["stop_reason"] != "tool_use" {
		t.Errorf("message_delta = %v", last)
	}
	if c := sim.Requests()[0]; c.StopReason != "tool_use" || !c.Stream || c.Usage.OutputTokens < 20 || c.MessageID != message["id"] {
		t.Errorf("captured %+v", c)
	}
}

func TestFaults(t *testing.T) {
	for _, tc := range []struct {
		name       string
		fault      Fault
		stream     bool
		status     int // 0: the connection ends without one
		kind       string
		retryAfter string
		events     []string
		broken     bool // reading the stream ends in an error
	}{
		{name: "401", fault: Fault{Kind: FaultStatus, Status: 401}, status: 401, kind: "authentication_error"},
		{name: "429", fault: Fault{Kind: FaultStatus, Status: 429, RetryAfter: 1500 * time.Millisecond, Code: "ramp_limit_exceeded"}, stream: true, status: 429, kind: "rate_limit_error", retryAfter: "2"},
		{name: "529", fault: Fault{Kind: FaultStatus, Status: 529}, stream: true, status: 529, kind: "overloaded_error"},
		{
			name: "error event mid-stream", fault: Fault{Kind: FaultErrorEvent, AfterEvents: 3}, stream: true, status: 200,
			events: []string{"message_start", "ping", "content_block_start", "content_block_delta", "error"},
		},
		{name: "error event first", fault: Fault{Kind: FaultErrorEvent}, stream: true, status: 200, events: []string{"error"}},
		{name: "error event without stream", fault: Fault{Kind: FaultErrorEvent}, status: 529, kind: "overloaded_error"},
		{name: "end without message_stop", fault: Fault{Kind: FaultEOF, AfterEvents: 2}, stream: true, status: 200, events: []string{"message_start", "ping", "content_block_start"}},
		{name: "reset mid-stream", fault: Fault{Kind: FaultReset, AfterEvents: 1}, stream: true, status: 200, broken: true},
		{name: "reset at once", fault: Fault{Kind: FaultReset}, stream: true},
		{name: "reset without stream", fault: Fault{Kind: FaultReset}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim, url := start(t, Options{Mind: MindFunc(func(context.Context, *Request) (Reply, error) {
				return Reply{Blocks: []Block{TextBlock("one two three four five six seven")}, Fault: &tc.fault}, nil
			})})
			body := hello
			if tc.stream {
				body = streaming(body)
			}
			res, err := http.DefaultClient.Do(newRequest(t.Context(), "POST", url+"/v1/messages", body))
			if tc.status == 0 {
				if err == nil {
					t.Fatalf("status %d, want a broken connection", res.StatusCode)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != tc.status || res.Header.Get("retry-after") != tc.retryAfter {
				t.Errorf("status %d retry-after %q", res.StatusCode, res.Header.Get("retry-after"))
			}
			if tc.kind != "" {
				got, _ := io.ReadAll(res.Body)
				if e := errorOf(t, got); e.Error.Type != tc.kind || e.Error.Details["error_code"] != tc.fault.Code {
					t.Errorf("body %s", got)
				}
				return
			}
			events, err := readEvents(t, res.Body)
			if (err != nil) != tc.broken {
				t.Errorf("the stream ended with %v", err)
			}
			if tc.events != nil {
				if diff := cmp.Diff(tc.events, names(events)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			if c := sim.Requests()[0]; tc.events != nil && (c.Error == "" || c.StopReason != "") {
				t.Errorf("captured %+v", c)
			}
		})
	}
}

func TestHangEndsWithTheClient(t *testing.T) {
	sim, url := start(t, Options{Mind: MindFunc(func(context.Context, *Request) (Reply, error) {
		return Reply{Blocks: []Block{TextBlock("one two")}, Fault: &Fault{Kind: FaultSilence, AfterEvents: 1}}, nil
	})})
	ctx, cancel := context.WithCancel(t.Context())
	res, err := http.DefaultClient.Do(newRequest(ctx, "POST", url+"/v1/messages", streaming(hello)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	cancel()
	deadline := time.Now().Add(10 * time.Second)
	for sim.Requests()[0].Ended.IsZero() {
		if time.Now().After(deadline) {
			t.Fatal("the handler still hangs after its client left")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if c := sim.Requests()[0]; c.Error == "" || c.Usage == nil || c.Usage.OutputTokens != 1 {
		t.Errorf("captured %+v", c)
	}
}

func TestAnswersAreCut(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		blocks     []Block
		content    string
		stop       string
		output     int
	}{
		{
			name: "stop sequence", body: extra(`"stop_sequences":["END"]`), blocks: []Block{TextBlock("abcdEND more"), TextBlock("never")},
			content: `[{"type":"text","text":"abcd"}]`, stop: "stop_sequence", output: 1,
		},
		{
			name: "max_tokens in text", body: strings.Replace(hello, "100", "2", 1), blocks: []Block{TextBlock("abcdefé and more")},
			content: `[{"type":"text","text":"abcdefé"}]`, stop: "max_tokens", output: 2,
		},
		{
			name: "max_tokens in a tool input", body: strings.Replace(hello, "100", "2", 1), blocks: []Block{ToolUseBlock("t1", "A", `{"a":"bcdefghijkl"}`)},
			content: `[{"type":"tool_use","id":"t1","name":"A","input":{}}]`, stop: "max_tokens", output: 2,
		},
		{name: "cache fill", body: strings.Replace(hello, "100", "0", 1), blocks: []Block{TextBlock("never")}, content: `[]`, stop: "max_tokens"},
		{
			name: "unknown block", body: hello, blocks: []Block{{Type: "future_x", Raw: json.RawMessage(`{"type":"future_x","k":1}`)}},
			content: `[{"type":"future_x","k":1}]`, stop: "end_turn", output: 7,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := direct(New(Options{Mind: say(tc.blocks...)}), tc.body)
			var m struct {
				Content    json.RawMessage
				StopReason string `json:"stop_reason"`
				Usage      Usage
			}
			if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
				t.Fatal(err)
			}
			if string(m.Content) != tc.content || m.StopReason != tc.stop || m.Usage.OutputTokens != tc.output {
				t.Errorf("got %s %s %d, want %s %s %d", m.Content, m.StopReason, m.Usage.OutputTokens, tc.content, tc.stop, tc.output)
			}
		})
	}
}

func TestPiecesJoin(t *testing.T) {
	for _, s := range []string{"", "a", "a b c d", "  lead", "trail  ", "line\nline\n\n", "one  two\n three"} {
		if got := strings.Join(pieces(s), ""); got != s {
			t.Errorf("pieces(%q) join to %q", s, got)
		}
	}
}
