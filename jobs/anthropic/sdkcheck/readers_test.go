package sdkcheck

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
)

// Each reader has a key of its own, and with it a cache of its own: what one writes the others do not read.
const (
	keyTypescript = "sk-check-typescript"
	keyGolang     = "sk-check-golang"
	keyOurs       = "sk-check-ours"
)

// scenario is a list of calls that are made in order.
type scenario struct {
	Name string `json:"name"`
	// Path is put before /v1: the server there changes what goes over the wire.
	Path  string `json:"path,omitempty"`
	Calls []call `json:"calls"`
}

type call struct {
	Op      string          `json:"op"`
	Params  json.RawMessage `json:"params"`
	Retries int             `json:"retries"`
}

// line is what run.mjs says of one call.
type line struct {
	Case string `json:"case"`
	Op   string `json:"op"`
	OK   *struct {
		Message   wireMessage    `json:"message"`
		RequestID string         `json:"request_id"`
		Text      string         `json:"text"`
		Inputs    []string       `json:"inputs"`
		Events    map[string]int `json:"events"`
		List      []string       `json:"list"`
		Messages  []wireMessage  `json:"messages"`
		Calls     []struct {
			A, B float64
		} `json:"calls"`
		Count *struct {
			InputTokens int64 `json:"input_tokens"`
		} `json:"count"`
		IDs   []string        `json:"ids"`
		Model json.RawMessage `json:"model"`
	} `json:"ok"`
	Error *struct {
		Class     string `json:"class"`
		APIError  bool   `json:"is_api_error"`
		Status    int    `json:"status"`
		Type      string `json:"type"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	} `json:"error"`
	Seen *struct {
		Text string   `json:"text"`
		List []string `json:"list"`
	} `json:"seen"`
}

func (l line) view(t testing.TB) view {
	t.Helper()
	if e := l.Error; e != nil {
		return view{Err: &failure{Class: e.Class, Status: e.Status, Type: e.Type, Code: e.Code, Message: e.Message, RequestID: e.RequestID}}
	}
	return l.OK.Message.view(t)
}

// runTypescript performs all scenarios in one node process and returns its lines, one a call.
func runTypescript(t testing.TB, baseURL string, scenarios []scenario) []line {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is not installed, so the official TypeScript SDK cannot run: install Node.js 20 or later (Debian: apt-get install nodejs npm) and run \"make test\"")
	}
	job, err := json.Marshal(map[string]any{"base_url": baseURL, "key": keyTypescript, "cases": scenarios})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "run.mjs")
	cmd.Stdin = bytes.NewReader(job)
	// A profile or a base URL of the person who runs the tests must not count.
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "NO_PROXY=*"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if strings.Contains(stderr.String(), "ERR_MODULE_NOT_FOUND") {
		t.Fatal("@anthropic-ai/sdk is not installed here: run \"make test\", or \"npm ci\" in jobs/anthropic/sdkcheck")
	}
	if err != nil {
		t.Fatalf("run.mjs: %v\n%s", err, stderr.String())
	}
	var lines []line
	for raw := range bytes.Lines(out) {
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		lines = append(lines, l)
	}
	want := 0
	for _, s := range scenarios {
		want += len(s.Calls)
	}
	if len(lines) != want {
		t.Fatalf("run.mjs wrote %d lines for %d calls:\n%s\n%s", len(lines), want, out, stderr.String())
	}
	return lines
}

func golangClient(url string, opts ...option.RequestOption) sdk.Client {
	return sdk.NewClient(append([]option.RequestOption{
		option.WithoutEnvironmentDefaults(), option.WithBaseURL(url), option.WithAPIKey(keyGolang), option.WithMaxRetries(0),
	}, opts...)...)
}

// betaHeader sends the beta set that the captured request had.
func betaHeader(betas string) []option.RequestOption {
	if betas == "" {
		return nil
	}
	return []option.RequestOption{option.WithHeader("anthropic-beta", betas)}
}

// golangPost sends the bytes and reads one JSON answer.
func golangPost(ctx context.Context, t testing.TB, url string, body []byte, betas string, retries int) view {
	t.Helper()
	client := golangClient(url, option.WithMaxRetries(retries))
	var m sdk.Message
	if err := client.Post(ctx, "v1/messages", body, &m, betaHeader(betas)...); err != nil {
		return golangFailure(t, err)
	}
	return golangView(t, m)
}

// golangStream sends the bytes, which ask for a stream, and accumulates it. The second result is the text that came by
// events, the third says that message_stop was among them.
func golangStream(ctx context.Context, t testing.TB, url string, body []byte, betas string, retries int) (view, string, bool) {
	t.Helper()
	client := golangClient(url, option.WithMaxRetries(retries))
	stream := client.Messages.NewStreaming(ctx, sdk.MessageNewParams{}, append(betaHeader(betas), option.WithRequestBody("application/json", body))...)
	defer stream.Close()
	var m sdk.Message
	var text strings.Builder
	stopped := false
	for stream.Next() {
		event := stream.Current()
		if err := m.Accumulate(event); err != nil {
			return view{Err: &failure{Message: err.Error()}}, text.String(), stopped
		}
		if event.Type == "content_block_delta" && event.Delta.Type == "text_delta" {
			text.WriteString(event.Delta.Text)
		}
		stopped = stopped || event.Type == "message_stop"
	}
	if err := stream.Err(); err != nil {
		return golangFailure(t, err), text.String(), stopped
	}
	return golangView(t, m), text.String(), stopped
}

func golangView(t testing.TB, m sdk.Message) view {
	t.Helper()
	u := m.Usage
	v := view{
		ID: m.ID, StopReason: string(m.StopReason), StopDetails: canonical(t, []byte(m.StopDetails.RawJSON())),
		Usage: usage{
			Input: u.InputTokens, Write: u.CacheCreationInputTokens, Write5m: u.CacheCreation.Ephemeral5mInputTokens,
			Write1h: u.CacheCreation.Ephemeral1hInputTokens, Read: u.CacheReadInputTokens, Output: u.OutputTokens,
			Thinking: u.OutputTokensDetails.ThinkingTokens,
		},
	}
	for _, b := range m.Content {
		v.Blocks = append(v.Blocks, canonical(t, []byte(b.RawJSON())))
	}
	return v
}

func golangFailure(t testing.TB, err error) view {
	t.Helper()
	var api *sdk.Error
	if !errors.As(err, &api) {
		return view{Err: &failure{Message: err.Error()}}
	}
	return view{Err: &failure{Status: api.StatusCode, Type: string(api.Type()), Code: string(api.ErrorCode()), Message: api.Message, RequestID: api.RequestID}}
}

// ourStream sends the bytes with this program's client. The second result is the text that came by events.
func ourStream(ctx context.Context, t testing.TB, url string, body []byte, betas string) (view, string, *forkcore.ModelError) {
	t.Helper()
	client, err := anthropic.New(anthropic.Options{APIKey: keyOurs, BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	req := forkcore.Request{Body: func() io.Reader { return bytes.NewReader(body) }, ContentLength: int64(len(body))}
	if betas != "" {
		req.Betas = strings.Split(betas, ",")
	}
	var v view
	var text strings.Builder
	for event, err := range client.Stream(ctx, req) {
		if err != nil {
			var e *forkcore.ModelError
			if !errors.As(err, &e) {
				t.Fatalf("%T is no *ModelError: %v", err, err)
			}
			return view{Err: &failure{Status: e.Status, Type: e.Type, Message: e.Message, RequestID: e.ProviderRequestID}}, text.String(), e
		}
		switch e := event.(type) {
		case *forkcore.ModelStart:
			v.ID = e.MessageID
		case *forkcore.ModelDelta:
			if e.Kind == "text" {
				text.WriteString(e.Text)
			}
		case *forkcore.ModelEnd:
			u := e.Usage
			v.StopReason = e.StopReason
			if e.StopDetails != nil {
				v.StopDetails = canonical(t, []byte(encode(t, e.StopDetails)))
			}
			v.Usage = usage{
				Input: u.Input, Write: u.CacheWrite5m + u.CacheWrite1h, Write5m: u.CacheWrite5m, Write1h: u.CacheWrite1h,
				Read: u.CacheRead, Output: u.Output, Thinking: unknown,
			}
			for _, b := range e.Blocks {
				v.Blocks = append(v.Blocks, canonical(t, b))
			}
		}
	}
	return v, text.String(), nil
}

// streaming is the body with "stream":true, which changes nothing that the cache sees.
func streaming(body []byte) []byte {
	if bytes.Contains(body, []byte(`"stream":true`)) {
		return body
	}
	return fmt.Appendf(nil, `%s,"stream":true}`, bytes.TrimSuffix(bytes.TrimSpace(body), []byte("}")))
}

// wire changes what a handler writes: before is put before each event.
type wire struct {
	http.ResponseWriter
	before string
}

func (w wire) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("event: ")) {
		if _, err := io.WriteString(w.ResponseWriter, w.before); err != nil {
			return 0, err
		}
	}
	return w.ResponseWriter.Write(p)
}

func (w wire) Unwrap() http.ResponseWriter { return w.ResponseWriter }
