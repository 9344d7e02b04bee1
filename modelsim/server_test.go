package modelsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// start serves a simulator on a loopback port.
func start(t *testing.T, opts Options) (*Server, string) {
	t.Helper()
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	sim := New(opts)
	web := httptest.NewServer(sim)
	t.Cleanup(web.Close)
	return sim, web.URL
}

// say is a mind that always answers with these blocks.
func say(blocks ...Block) Mind {
	return MindFunc(func(context.Context, *Request) (Reply, error) { return Reply{Blocks: blocks}, nil })
}

// header is a change to a request's headers.
type header func(http.Header)

func with(name, value string) header { return func(h http.Header) { h.Set(name, value) } }

func without(name string) header { return func(h http.Header) { h.Del(name) } }

func newRequest(ctx context.Context, method, url, body string, changes ...header) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("x-api-key", "sim")
	req.Header.Set("anthropic-version", versionNew)
	req.Header.Set("content-type", "application/json")
	for _, change := range changes {
		change(req.Header)
	}
	return req
}

// send sends one request and reads the whole answer.
func send(t *testing.T, method, url, body string, changes ...header) (*http.Response, []byte) {
	t.Helper()
	res, err := http.DefaultClient.Do(newRequest(t.Context(), method, url, body, changes...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, got
}

// direct sends one request without a network, for tests that run in a synctest bubble.
func direct(sim *Server, body string, changes ...header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	sim.ServeHTTP(w, newRequest(context.Background(), "POST", "/v1/messages", body, changes...))
	return w
}

// usageOf decodes the usage of an answer without streaming.
func usageOf(t *testing.T, w *httptest.ResponseRecorder) Usage {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	var m struct{ Usage Usage }
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		t.Fatal(err)
	}
	return m.Usage
}

func errorOf(t *testing.T, body []byte) errorBody {
	t.Helper()
	var e errorBody
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return e
}

const hello = `{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`

func TestAPIHeaders(t *testing.T) {
	_, url := start(t, Options{Mind: say(TextBlock("hi"))})
	for _, tc := range []struct {
		name    string
		method  string
		path    string
		body    string
		changes []header
		status  int
		kind    string
		message string
	}{
		{name: "x-api-key", method: "POST", path: "/v1/messages", body: hello, status: 200},
		{name: "bearer", method: "POST", path: "/v1/messages", body: hello, changes: []header{without("x-api-key"), with("authorization", "Bearer k")}, status: 200},
		{name: "old version", method: "POST", path: "/v1/messages", body: hello, changes: []header{with("anthropic-version", versionOld)}, status: 200},
		{name: "no key", method: "POST", path: "/v1/messages", body: hello, changes: []header{without("x-api-key")}, status: 401, kind: "authentication_error", message: "invalid x-api-key"},
		{name: "empty bearer", method: "POST", path: "/v1/messages", body: hello, changes: []header{without("x-api-key"), with("authorization", "Bearer ")}, status: 401, kind: "authentication_error", message: "invalid x-api-key"},
		{name: "no version", method: "POST", path: "/v1/messages", body: hello, changes: []header{without("anthropic-version")}, status: 400, kind: "invalid_request_error", message: "anthropic-version: header is required"},
		{name: "bad version", method: "POST", path: "/v1/messages", body: hello, changes: []header{with("anthropic-version", "1999-01-01")}, status: 400, kind: "invalid_request_error", message: `anthropic-version: "1999-01-01" is not a valid version`},
		{name: "unknown model", method: "POST", path: "/v1/messages", body: strings.Replace(hello, "sonnet-5-5", "none-1", 1), status: 404, kind: "not_found_error", message: "model: claude-none-1"},
		{name: "unknown path", method: "GET", path: "/v1/nothing", status: 404, kind: "not_found_error", message: "Not found"},
		{name: "models", method: "GET", path: "/v1/models", status: 200},
		{name: "model", method: "GET", path: "/v1/models/claude-haiku-4-5-20251001", status: 200},
		{name: "no such model", method: "GET", path: "/v1/models/x", status: 404, kind: "not_found_error", message: "model: x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			res, body := send(t, tc.method, url+tc.path, tc.body, tc.changes...)
			if res.StatusCode != tc.status {
				t.Fatalf("status = %d, want %d: %s", res.StatusCode, tc.status, body)
			}
			id := res.Header.Get("request-id")
			if !strings.HasPrefix(id, "req_") {
				t.Errorf("request-id = %q", id)
			}
			if tc.status == 200 {
				return
			}
			e := errorOf(t, body)
			if e.Type != "error" || e.Error.Type != tc.kind || e.Error.Message != tc.message || e.RequestID != id {
				t.Errorf("error = %s, want %s %q with id %s", body, tc.kind, tc.message, id)
			}
		})
	}
}

func TestBodyOverLimit(t *testing.T) {
	sim, url := start(t, Options{MaxBody: 100, Mind: say(TextBlock("hi"))})
	res, body := send(t, "POST", url+"/v1/messages", strings.Replace(hello, "hello", strings.Repeat("x", 200), 1))
	if e := errorOf(t, body); res.StatusCode != 413 || e.Error.Type != "request_too_large" {
		t.Fatalf("got %d %s", res.StatusCode, body)
	}
	if res, body := send(t, "POST", url+"/v1/messages", hello); res.StatusCode != 200 {
		t.Errorf("a body of %d bytes: %d %s", len(hello), res.StatusCode, body)
	}
	if res, body := send(t, "POST", url+"/v1/messages/count_tokens", strings.Replace(hello, "hello", strings.Repeat("x", 200), 1)); res.StatusCode != 413 {
		t.Errorf("count_tokens of such a body: %d %s", res.StatusCode, body)
	}
	got := sim.Requests()
	if len(got) != 2 || got[0].Status != 413 || got[1].Status != 200 {
		t.Errorf("captured %+v", got)
	}
}

func TestRequestsAreKeptByteForByte(t *testing.T) {
	sim, url := start(t, Options{Mind: say(TextBlock("hi")), RecordLimit: 2})
	odd := `{ "max_tokens" : 10 , "model":"claude-sonnet-5-5","messages":[{"role":"user","content":"a<b>\u003c é \ud83d\ude42"}] }` + "\n"
	bad := "not json \xff"
	for _, body := range []string{hello, odd, bad} {
		send(t, "POST", url+"/v1/messages", body)
	}
	got := sim.Requests()
	if len(got) != 2 || got[0].N != 2 || got[1].N != 3 {
		t.Fatalf("kept %d requests, want the latest 2", len(got))
	}
	if string(got[0].Body) != odd || string(got[1].Body) != bad {
		t.Errorf("bodies = %q, %q", got[0].Body, got[1].Body)
	}
	if got[0].Status != 200 || got[0].Usage == nil || got[0].StopReason != "end_turn" || got[0].MessageID == "" || got[1].Status != 400 || got[1].Usage != nil {
		t.Errorf("captured %+v", got)
	}
	for _, c := range got {
		if c.Header.Get("x-api-key") != "" || c.Key == "" || c.Key == "sim" {
			t.Errorf("the key is kept: %v %q", c.Header, c.Key)
		}
	}
	_, page := send(t, "GET", url+"/_sim/requests", "")
	var list struct {
		Requests []struct {
			Body       string
			BodyBase64 []byte `json:"body_base64"`
		}
	}
	if err := json.Unmarshal(page, &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Requests) != 2 || list.Requests[0].Body != odd || !bytes.Equal(list.Requests[1].BodyBase64, []byte(bad)) {
		t.Errorf("page = %s", page)
	}
}

func TestRecorderBoundsBytes(t *testing.T) {
	sim := New(Options{Mind: say(TextBlock("hi")), RecordBytes: 2*len(hello) + 1})
	for range 5 {
		direct(sim, hello)
	}
	if got := sim.Requests(); len(got) != 2 || got[1].N != 5 {
		t.Errorf("kept %d requests", len(got))
	}
}

func TestCountTokens(t *testing.T) {
	sim, url := start(t, Options{Mind: say(TextBlock("hi"))})
	res, body := send(t, "POST", url+"/v1/messages/count_tokens", `{"model":"claude-sonnet-5-5","system":"be kind","messages":[{"role":"user","content":"hello"}]}`)
	want := fmt.Sprintf(`{"input_tokens":%d}`, (len(`{"type":"text","text":"be kind"}`)+3)/4+(len(`{"type":"text","text":"hello"}`)+3)/4)
	if got := strings.TrimSpace(string(body)); res.StatusCode != 200 || got != want {
		t.Errorf("got %d %s, want %s", res.StatusCode, got, want)
	}
	if n := len(sim.Requests()); n != 0 {
		t.Errorf("%d messages requests captured, want none", n)
	}
	// The checks of a message hold here as well.
	for _, tc := range []struct {
		body   string
		status int
		want   string
	}{
		{`{"model":"claude-sonnet-5-5","messages":[` + ask + "," + calls + `]}`, 400, "`tool_use` ids were found"},
		{`{"model":"claude-sonnet-5-5","messages":[` + ask + `],"tool_choice":{"type":"auto"}}`, 400, "tool_choice may only be specified"},
		{`{"model":"claude-sonnet-4-5","messages":[` + ask + `]}`, 404, "model: claude-sonnet-4-5"}, // retired
		// What is no part of the prompt is not taken.
		{`{"model":"claude-sonnet-5-5","max_tokens":5,"messages":[` + ask + `]}`, 400, "max_tokens: Extra inputs are not permitted"},
		{`{"model":"claude-sonnet-5-5","stream":true,"messages":[` + ask + `]}`, 400, "stream: Extra inputs are not permitted"},
	} {
		res, body := send(t, "POST", url+"/v1/messages/count_tokens", tc.body)
		if res.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s: %d %s", tc.body, res.StatusCode, body)
		}
	}
}

// A retired model is named when it is asked for, and answers nothing.
func TestLifecycle(t *testing.T) {
	_, url := start(t, Options{Mind: say(TextBlock("hi"))})
	retired := strings.Replace(hello, "sonnet-5-5", "sonnet-4-5", 1)
	if res, body := send(t, "POST", url+"/v1/messages", retired); res.StatusCode != 404 || errorOf(t, body).Error.Message != "model: claude-sonnet-4-5" {
		t.Errorf("a retired model: %d %s", res.StatusCode, body)
	}
	if res, body := send(t, "GET", url+"/v1/models/claude-sonnet-4-5", ""); res.StatusCode != 200 || !strings.Contains(string(body), `"lifecycle":"retired"`) {
		t.Errorf("what is told of it: %d %s", res.StatusCode, body)
	}
	for query, want := range map[string]struct {
		status       int
		has, without string
	}{
		"":                      {200, `"claude-opus-4-5"`, `"claude-sonnet-4-5"`},
		"?lifecycle=active":     {200, `"claude-sonnet-5-5"`, `"claude-opus-4-5"`},
		"?lifecycle=deprecated": {200, `"claude-opus-4-5"`, `"claude-sonnet-5-5"`},
		"?lifecycle[]=retired&lifecycle[]=active": {200, `"claude-sonnet-4-5"`, `"claude-opus-4-5"`},
		"?lifecycle=new": {400, "lifecycle: Input should be", `"data"`},
	} {
		res, body := send(t, "GET", url+"/v1/models"+query, "")
		if s := string(body); res.StatusCode != want.status || !strings.Contains(s, want.has) || strings.Contains(s, want.without) {
			t.Errorf("%s: %d %s; want %s and not %s", query, res.StatusCode, s, want.has, want.without)
		}
	}
}

func TestOtherOrigins(t *testing.T) {
	sim, url := start(t, Options{Mind: say(TextBlock("hi"))})
	send(t, "POST", url+"/v1/messages", hello)
	foreign := []header{with("origin", "https://other.test"), with("content-type", "text/plain")}
	for _, tc := range []struct{ method, path, body string }{
		{"POST", "/_sim/keys", `{"key":"sim","allowed":false}`},
		{"POST", "/_sim/scenario", "rules: [{answer: {text: x}}]"},
		{"DELETE", "/_sim/scenario", ""},
		{"DELETE", "/_sim", ""},
		{"POST", "/_sim/another", ""},
	} {
		if res, body := send(t, tc.method, url+tc.path, tc.body, foreign...); res.StatusCode != 403 {
			t.Errorf("%s %s from another origin: %d %s", tc.method, tc.path, res.StatusCode, body)
		}
	}
	if res, body := send(t, "POST", url+"/v1/messages", hello); res.StatusCode != 200 || len(sim.Requests()) != 2 {
		t.Errorf("afterwards: %d %s, %d requests", res.StatusCode, body, len(sim.Requests()))
	}
}

// Pages lead through the whole list, forwards and backwards.
func TestModelsPages(t *testing.T) {
	_, url := start(t, Options{})
	var want []string
	for _, m := range models() {
		if !m.retired {
			want = append(want, m.id)
		}
	}
	for _, tc := range []struct {
		cursor   string
		from     string
		backward bool
		want     []string
	}{
		{cursor: "after_id", want: want},
		{cursor: "before_id", from: want[len(want)-1], backward: true, want: want[:len(want)-1]},
	} {
		var ids []string
		for at, more := tc.from, true; more; {
			_, body := send(t, "GET", url+"/v1/models?limit=5&"+tc.cursor+"="+at, "")
			var page struct {
				Data []struct {
					ID             string
					MaxInputTokens int `json:"max_input_tokens"`
				}
				HasMore bool   `json:"has_more"`
				FirstID string `json:"first_id"`
				LastID  string `json:"last_id"`
			}
			if err := json.Unmarshal(body, &page); err != nil || len(page.Data) == 0 {
				t.Fatalf("%s: %v", body, err)
			}
			var here []string
			for _, m := range page.Data {
				here = append(here, m.ID)
				if m.MaxInputTokens < 200_000 {
					t.Errorf("%s: max_input_tokens = %d", m.ID, m.MaxInputTokens)
				}
			}
			if tc.backward {
				at, ids = page.FirstID, append(here, ids...)
			} else {
				at, ids = page.LastID, append(ids, here...)
			}
			more = page.HasMore
		}
		if !slices.Equal(ids, tc.want) {
			t.Errorf("pages by %s gave %v", tc.cursor, ids)
		}
	}
}

// The first page names all calls, and is there without a key.
func TestHome(t *testing.T) {
	_, url := start(t, Options{})
	for _, path := range []string{"/", "/_sim", "/_sim/"} {
		for _, method := range []string{"GET", "HEAD"} {
			res, body := send(t, method, url+path, "", without("x-api-key"))
			if res.StatusCode != 200 || method == "GET" && !strings.Contains(string(body), "/_sim/requests?after=n") {
				t.Errorf("%s %s = %d %s", method, path, res.StatusCode, body)
			}
		}
	}
	_, body := send(t, "GET", url+"/", "")
	n := 0
	for line := range strings.Lines(string(body)) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[1], "/") {
			continue
		}
		n++
		if res, answer := send(t, f[0], url+f[1], ""); res.StatusCode == 405 || strings.Contains(string(answer), "ot found") {
			t.Errorf("%s %s: %d %s", f[0], f[1], res.StatusCode, answer)
		}
	}
	if n != 10 {
		t.Errorf("%d calls named, want 10:\n%s", n, body)
	}
}

// Each request leaves one line in the log, also one that is refused or goes to another endpoint than messages.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	sim := New(Options{Mind: say(TextBlock("hi")), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for _, tc := range []struct {
		method, path, body string
		change             header
		want               string
	}{
		{"POST", "/v1/messages", hello, without("x-none"), "msg=messages"},
		{"POST", "/v1/messages", "{}", without("x-none"), "model: Field required"},
		{"POST", "/v1/messages", hello, without("x-api-key"), "invalid x-api-key"},
		{"POST", "/v1/messages/count_tokens", "{}", without("x-none"), "path=/v1/messages/count_tokens error=\"400"},
		{"GET", "/v1/models", "", without("x-none"), "path=/v1/models"},
		{"GET", "/v1/batches", "", without("x-none"), "404 not_found_error"},
	} {
		log.Reset()
		sim.ServeHTTP(httptest.NewRecorder(), newRequest(t.Context(), tc.method, tc.path, tc.body, tc.change))
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, tc.want) {
			t.Errorf("%s %s: logged %q, want one line with %q", tc.method, tc.path, got, tc.want)
		}
	}
}
