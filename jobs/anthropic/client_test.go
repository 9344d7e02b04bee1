package anthropic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

const testKey = "sk-test-0123456789"

func newTestClient(t testing.TB, o Options) *Client {
	t.Helper()
	if o.APIKey == "" {
		o.APIKey = testKey
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request makes a request whose body is read from several parts, as the caller's is.
func request(body string, betas ...string) forkcore.Request {
	return forkcore.Request{
		Body: func() io.Reader {
			half := len(body) / 2
			return io.MultiReader(strings.NewReader(body[:half]), strings.NewReader(body[half:]))
		},
		ContentLength: int64(len(body)),
		Betas:         betas,
	}
}

// serve answers every request with a stream of the given bytes.
func serve(t testing.TB, raw string) *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("request-id", "req_1")
		_, _ = io.WriteString(w, raw)
	}))
	t.Cleanup(srv.Close)
	return srv
}

// collect runs one request to its end.
func collect(t testing.TB, c *Client, ctx context.Context, r forkcore.Request) (start *forkcore.ModelStart, end *forkcore.ModelEnd, err error) {
	t.Helper()
	for e, streamErr := range c.Stream(ctx, r) {
		if err != nil || end != nil {
			t.Fatalf("an event after the end: %v, %v", e, streamErr)
		}
		switch e := e.(type) {
		case *forkcore.ModelStart:
			start = e
		case *forkcore.ModelEnd:
			end = e
		}
		err = streamErr
	}
	if (err == nil) == (end == nil) {
		t.Fatalf("ended with error %v and end %v; want one of them", err, end)
	}
	return start, end, err
}

func modelError(t testing.TB, err error) *forkcore.ModelError {
	t.Helper()
	var e *forkcore.ModelError
	if !errors.As(err, &e) {
		t.Fatalf("got %T %v, want a *ModelError", err, err)
	}
	return e
}

// bigBody is a request of about 1.4 MB with everything that encoders like to touch.
func bigBody() string {
	var b strings.Builder
	b.WriteString(`{"model":"claude-sonnet-5-5","messages":[`)
	r := rand.New(rand.NewPCG(1, 2))
	for b.Len() < 1_400_000 {
		fmt.Fprintf(&b, `{"role":"assistant","content":[{"type":"tool_use","id":"t%d","name":"Bash","input":{ "z" :1.0,  "a":"<b>&`+"\u2028"+`\u003c\/ %d",`+"\t"+`"n":9007199254740993}}]}, `, r.Int(), r.Int())
	}
	b.WriteString(`{}],"max_tokens":1,"stream":true}`)
	return b.String()
}

func TestB45_BodyOnTheWireIsTheCallersBytes(t *testing.T) {
	body := bigBody()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			var got []byte
			var r *http.Request
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				got, _ = io.ReadAll(req.Body)
				r = req
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, turn("end_turn", textBlock("0", "x")...))
			}))
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			defer srv.Close()
			c := newTestClient(t, Options{BaseURL: srv.URL, HTTPClient: srv.Client()})
			if _, _, err := collect(t, c, t.Context(), request(body)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, []byte(body)) {
				t.Errorf("the server got %d bytes, want the same %d", len(got), len(body))
			}
			if r.ContentLength != int64(len(body)) || len(r.TransferEncoding) != 0 {
				t.Errorf("content length %d, transfer encoding %v; want %d and none", r.ContentLength, r.TransferEncoding, len(body))
			}
			if (r.ProtoMajor == 2) != http2 {
				t.Errorf("the request came over %s", r.Proto)
			}
		})
	}
}

func TestRequestHeaders(t *testing.T) {
	for _, tt := range []struct {
		name  string
		key   string
		base  string // path prefix
		betas []string
		path  string
		want  map[string]string
	}{
		{name: "plain", key: testKey, path: "/v1/messages", want: map[string]string{
			"Authorization": "Bearer " + testKey, "X-Api-Key": "", "Anthropic-Beta": "", "Content-Type": "application/json",
			"Accept": "text/event-stream", "Accept-Encoding": "identity", "X-From-Env": "", "X-Stainless-Retry-Count": "0", "Traceparent": "",
		}},
		{name: "betas in their order", key: testKey, betas: []string{"z-1", "a-2"}, path: "/v1/messages", want: map[string]string{"Anthropic-Beta": "z-1,a-2"}},
		{name: "path prefix", key: testKey, base: "/gateway/anthropic/", path: "/gateway/anthropic/v1/messages", want: map[string]string{"Authorization": "Bearer " + testKey}},
		{name: "no key", path: "/v1/messages", want: map[string]string{"Authorization": "", "X-Api-Key": ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request went to ANTHROPIC_BASE_URL") }))
			defer other.Close()
			for k, v := range map[string]string{
				"ANTHROPIC_API_KEY": "sk-env-1", "ANTHROPIC_AUTH_TOKEN": "tok-env", "ANTHROPIC_BASE_URL": other.URL, "ANTHROPIC_PROFILE": "nobody",
				"ANTHROPIC_CUSTOM_HEADERS": "X-From-Env: 1\nanthropic-beta: env-beta", "ANTHROPIC_WORKSPACE_ID": "wrkspc_env",
				"ANTHROPIC_OPEN_TELEMETRY": "true", "ANTHROPIC_FEDERATION_RULE_ID": "fdrl_env",
			} {
				t.Setenv(k, v)
			}
			var got *http.Request
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, turn("end_turn"))
			}))
			defer srv.Close()
			c, err := New(Options{APIKey: tt.key, BaseURL: srv.URL + tt.base})
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := collect(t, c, t.Context(), request(`{}`, tt.betas...)); err != nil {
				t.Fatal(err)
			}
			if got.URL.RequestURI() != tt.path || got.Method != http.MethodPost {
				t.Errorf("%s %s, want POST %s", got.Method, got.URL.RequestURI(), tt.path)
			}
			if v := got.Header.Get("anthropic-version"); v == "" {
				t.Error("no anthropic-version")
			}
			for k, v := range tt.want {
				if g := got.Header.Get(k); g != v {
					t.Errorf("%s: %q, want %q", k, g, v)
				}
			}
			for k, vs := range got.Header {
				if s := strings.Join(vs, " "); strings.Contains(s, "env") {
					t.Errorf("%s: %q comes from the environment", k, s)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	for name, o := range map[string]Options{
		"no key for the API":      {},
		"key with a line break":   {APIKey: "sk-secret\nx: y"},
		"user in the URL":         {APIKey: "k", BaseURL: "https://u:hunter2@host"},
		"URL that does not parse": {APIKey: "k", BaseURL: "https://u:hunter2@host:x"},
		"other scheme":            {APIKey: "k", BaseURL: "ftp://host"},
		"no host":                 {APIKey: "k", BaseURL: "host:80"},
		"query":                   {APIKey: "k", BaseURL: "https://host/?a=b"},
		"negative timeout":        {APIKey: "k", IdleTimeout: -1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(o)
			if err == nil {
				t.Fatal("accepted")
			}
			if s := err.Error(); strings.Contains(s, "hunter2") || strings.Contains(s, "sk-secret") {
				t.Errorf("the error repeats a secret: %s", s)
			}
		})
	}
}

func TestB42_UsageIsReplacedNotAdded(t *testing.T) {
	for name, usage := range map[string]string{
		"cumulative":        `{"input_tokens":9,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500,"output_tokens":16}`,
		"without the input": `{"output_tokens":16}`, // what message_start said stands
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t, sse("\n", msgStart, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+usage+`}`, msgStop))
			start, end, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			want := &forkcore.ModelStart{MessageID: "msg_1", ProviderRequestID: "req_1", UsageKnown: true, Usage: forkcore.Usage{Input: 9, CacheWrite5m: 500, CacheRead: 1000, Output: 1}}
			if diff := cmp.Diff(want, start); diff != "" {
				t.Errorf("start (-want +got):\n%s", diff)
			}
			wantEnd := &forkcore.ModelEnd{StopReason: "end_turn", UsageKnown: true, Usage: forkcore.Usage{Input: 9, CacheWrite5m: 500, CacheRead: 1000, Output: 16}}
			if diff := cmp.Diff(wantEnd, end); diff != "" {
				t.Errorf("end (-want +got):\n%s", diff)
			}
		})
	}
}

// A stream that breaks yields an error and no answer, whatever broke it.
func TestB09_B15_B16_BrokenStreams(t *testing.T) {
	half := []string{msgStart, blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"thinking_delta","thinking":"abc"}`), blockDelta("0", `{"type":"signature_delta","signature":"QUJD"}`)}
	tool := []string{msgStart, blockStart("0", `{"type":"tool_use","id":"t1","name":"Bash","input":{}}`), blockDelta("0", `{"type":"input_json_delta","partial_json":"{\"comm"}`)}
	for _, tt := range []struct {
		name   string
		events []string
		reset  bool
		code   string
	}{
		{"B09 thinking cut by a reset", half, true, forkcore.CodeStreamCut},
		{"B09 thinking cut by a clean end", half, false, forkcore.CodeStreamCut},
		{"B15 clean end without message_stop", append([]string{msgStart}, textBlock("0", "half")...), false, forkcore.CodeStreamCut},
		{"B16 overloaded after half a tool_use", append(tool, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), false, forkcore.CodeOverloaded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, sse("\n", tt.events...))
				if !tt.reset {
					return
				}
				conn, buf, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = buf.Flush()
				_ = conn.(*net.TCPConn).SetLinger(0) // close sends a reset
				_ = conn.Close()
			}))
			defer srv.Close()
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			if e := modelError(t, err); e.Code != tt.code || !e.Retryable {
				t.Errorf("got %+v, want retryable %s", e, tt.code)
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	defer other.Close()
	for _, status := range []int{301, 302, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(other.URL, status))
		_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL, HTTPClient: srv.Client()}), t.Context(), request(`{}`))
		srv.Close()
		if e := modelError(t, err); e.Retryable || e.Status != status || !strings.Contains(e.Message, other.URL) {
			t.Errorf("%d: got %+v, want a final error that names %s", status, e, other.URL)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

func TestCancelReturnsTheCause(t *testing.T) {
	waiting := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if r.Header.Get("anthropic-beta") == "answer" {
			_, _ = io.WriteString(w, sse("\n", msgStart))
			_ = http.NewResponseController(w).Flush()
		}
		waiting <- struct{}{}
		<-r.Context().Done()
	}))
	defer srv.Close()
	cause := errors.New("the session was stopped")
	c := newTestClient(t, Options{BaseURL: srv.URL})
	for name, r := range map[string]forkcore.Request{"before the header": request(`{}`), "in the stream": request(`{}`, "answer")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			<-waiting
			cancel(cause)
		}()
		if _, _, err := collect(t, c, ctx, r); !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want %v", name, err, cause)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, _, err := collect(t, c, ctx, request(`{}`)); !errors.Is(err, cause) {
		t.Errorf("cancelled before: got %v, want %v", err, cause)
	}
}

func TestBreakClosesTheConnection(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse("\n", msgStart))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	defer srv.Close()
	for _, err := range newTestClient(t, Options{BaseURL: srv.URL}).Stream(t.Context(), request(`{}`)) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	<-gone // the test's own time limit is the deadline
}

func TestConnectionIsUsedAgain(t *testing.T) {
	var conns atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, turn("end_turn", textBlock("0", "x")...))
		_ = http.NewResponseController(w).Flush() // the end of the body comes in a packet of its own
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	c := newTestClient(t, Options{BaseURL: srv.URL})
	for range 5 {
		if _, _, err := collect(t, c, t.Context(), request(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for 5 requests, want 1", n)
	}
}

func TestWrongContentLength(t *testing.T) {
	srv := serve(t, turn("end_turn"))
	c := newTestClient(t, Options{BaseURL: srv.URL})
	for name, r := range map[string]forkcore.Request{
		"too long":  {Body: func() io.Reader { return strings.NewReader("{} ") }, ContentLength: 2},
		"too short": {Body: func() io.Reader { return strings.NewReader("{") }, ContentLength: 2},
		"none":      {},
	} {
		_, _, err := collect(t, c, t.Context(), r)
		if e := modelError(t, err); e.Retryable || e.Status != 0 || !strings.Contains(e.Message, "body") {
			t.Errorf("%s: got %+v, want a final error about the body", name, e)
		}
	}
}
