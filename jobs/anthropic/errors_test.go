package anthropic

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func TestHTTPErrors(t *testing.T) {
	body := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_b"}`
	}
	const spend = `{"type":"error","error":{"type":"rate_limit_error","message":"limit","details":{"error_code":"enforced_spend_limit_reached"}}}`
	const ramp = `{"type":"error","error":{"type":"rate_limit_error","message":"ramp","details":{"error_code":"ramp_limit_exceeded"}}}`
	for _, tt := range []struct {
		name      string
		status    int
		header    map[string]string
		body      string
		code      string
		retryable bool
		after     time.Duration
		text      string
	}{
		{name: "401", status: 401, body: body("authentication_error", "invalid key "+testKey), code: forkcore.CodeProviderAuth, text: "invalid key [API key]; check the API key"},
		{name: "a full stop", status: 402, body: body("billing_error", "Please pay."), code: forkcore.CodeProviderAuth, text: "Please pay; check the billing of the account that owns the API key"},
		{name: "403", status: 403, body: body("permission_error", "no"), code: forkcore.CodeProviderAuth, text: "check the API key"},
		{name: "402", status: 402, body: body("billing_error", "no credit"), code: forkcore.CodeProviderAuth, text: "no credit; check the billing"},
		{name: "429 spend cap", status: 429, body: spend, code: forkcore.CodeProviderAuth, text: "raise the spend limit"},
		{name: "429", status: 429, body: body("rate_limit_error", "slow down"), header: map[string]string{"retry-after": "7"}, code: forkcore.CodeRateLimited, retryable: true, after: 7 * time.Second, text: "slow down"},
		{name: "429 ramp", status: 429, body: ramp, header: map[string]string{"retry-after": "2.5"}, code: forkcore.CodeRateLimited, retryable: true, after: 2500 * time.Millisecond},
		{name: "429 ms wins", status: 429, body: body("rate_limit_error", "x"), header: map[string]string{"retry-after": "7", "retry-after-ms": "120"}, code: forkcore.CodeRateLimited, retryable: true, after: 120 * time.Millisecond},
		{name: "429 with a past date", status: 429, body: "", header: map[string]string{"retry-after": "Mon, 02 Jan 2006 15:04:05 GMT"}, code: forkcore.CodeRateLimited, retryable: true},
		{name: "429 with nonsense", status: 429, body: "", header: map[string]string{"retry-after": "-1e300"}, code: forkcore.CodeRateLimited, retryable: true},
		{name: "429 for ever", status: 429, body: "", header: map[string]string{"retry-after": "1e300"}, code: forkcore.CodeRateLimited, retryable: true, after: 24 * time.Hour},
		{name: "529", status: 529, body: body("overloaded_error", "Overloaded"), code: forkcore.CodeOverloaded, retryable: true, text: "Overloaded"},
		{name: "503", status: 503, body: "upstream", code: forkcore.CodeOverloaded, retryable: true, text: "answered with status 503: upstream"},
		{name: "500", status: 500, body: body("api_error", "boom"), code: forkcore.CodeProviderError, retryable: true, text: "boom"},
		{name: "502 of a proxy", status: 502, body: "<html>Bad Gateway</html>", code: forkcore.CodeProviderError, retryable: true, text: "answered with status 502: Bad Gateway; that is a web page"},
		{name: "504", status: 504, body: body("timeout_error", "late"), code: forkcore.CodeProviderError, retryable: true, text: "late"},
		{name: "504 without a body", status: 504, code: forkcore.CodeProviderError, retryable: true, text: "Gateway Timeout"},
		{name: "408", status: 408, code: forkcore.CodeProviderError, retryable: true},
		{name: "409", status: 409, body: body("conflict_error", "x"), code: forkcore.CodeProviderError, retryable: true},
		{name: "413", status: 413, body: body("request_too_large", "too big"), code: forkcore.CodeContextWindow, text: "too big"},
		{name: "400 too long", status: 400, body: body("invalid_request_error", "prompt is too long: 1000001 tokens > 1000000 maximum"), code: forkcore.CodeContextWindow, text: "too long"},
		{name: "400 too long, llama.cpp", status: 400, body: `{"error":{"code":400,"type":"exceed_context_size_error","message":"x"}}`, code: forkcore.CodeContextWindow},
		{name: "400", status: 400, body: body("invalid_request_error", "max_tokens: Field required"), code: forkcore.CodeProviderError, text: "max_tokens: Field required"},
		{name: "400 that is not an object", status: 400, body: `"no"`, code: forkcore.CodeProviderError},
		{name: "400 with a long rune text", status: 400, body: strings.Repeat("好", 5000), code: forkcore.CodeProviderError, text: "好"},
		{name: "404 model", status: 404, body: body("not_found_error", "model: claude-nope"), code: forkcore.CodeProviderError, text: `the model "claude-x"`},
		{name: "418", status: 418, code: forkcore.CodeProviderError},
		{name: "x-should-retry true", status: 400, body: body("invalid_request_error", "x"), header: map[string]string{"x-should-retry": "true"}, code: forkcore.CodeProviderError, retryable: true},
		{name: "x-should-retry false", status: 529, body: body("overloaded_error", "x"), header: map[string]string{"x-should-retry": "false"}, code: forkcore.CodeOverloaded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				_, _ = io.Copy(io.Discard, r.Body)
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("request-id", "req_h")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{"model":"claude-x","messages":[]}`))
			e := modelError(t, err)
			if e.Code != tt.code || e.Retryable != tt.retryable || e.RetryAfter != tt.after || e.Status != tt.status || e.ProviderRequestID != "req_h" {
				t.Errorf("got %+v\nwant code %s, retryable %v, after %v, status %d, request req_h", e, tt.code, tt.retryable, tt.after, tt.status)
			}
			if !strings.Contains(e.Message, tt.text) || e.Message == "" || len(e.Message) > maxMessageBytes {
				t.Errorf("message %q, want one with %q", e.Message, tt.text)
			}
			if strings.ContainsRune(e.Message, '�') || strings.Contains(err.Error(), testKey) {
				t.Errorf("message has half a rune or the key: %q", e.Message)
			}
			if requests != 1 {
				t.Errorf("%d requests, want 1: retrying is the caller's", requests)
			}
		})
	}
}

func TestNoStreamIn200(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body, code, text string
		retryable                    bool
	}{
		{name: "web page", kind: "text/html", body: "<html>", code: forkcore.CodeProviderError, text: "text/html"},
		{name: "message without streaming", kind: "application/json", body: `{"type":"message"}`, code: forkcore.CodeProviderError, text: "application/json"},
		{name: "error of a gateway", kind: "application/json", body: `{"error":{"type":"overloaded_error","message":"busy"}}`, code: forkcore.CodeOverloaded, retryable: true, text: "busy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", tt.kind)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			if e := modelError(t, err); e.Code != tt.code || e.Retryable != tt.retryable || e.Status != 200 || !strings.Contains(e.Message, tt.text) {
				t.Errorf("got %+v, want %s, retryable %v, text %q", e, tt.code, tt.retryable, tt.text)
			}
		})
	}
}

func TestConnectionErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	_ = closed.Close()
	plain := serve(t, turn("end_turn"))
	selfSigned := httptest.NewUnstartedServer(http.NotFoundHandler())
	selfSigned.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	selfSigned.StartTLS()
	defer selfSigned.Close()
	hangUp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	defer hangUp.Close()
	// The name is refused here, so that the test asks no resolver.
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "no-such-host.invalid") {
			return nil, &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	for _, tt := range []struct{ name, base, text string }{
		{"refused", refused, "right port"},
		{"no such host", "http://no-such-host.invalid", "host name"},
		{"http server for https", strings.Replace(plain.URL, "http:", "https:", 1), "https"},
		{"unknown certificate", selfSigned.URL, "certificate"},
		{"closed without an answer", hangUp.URL, "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: tt.base, HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}}), t.Context(), request(`{}`))
			e := modelError(t, err)
			if e.Code != forkcore.CodeProviderError || !e.Retryable || e.Status != 0 {
				t.Errorf("got %+v, want a retryable provider_error without a status", e)
			}
			if !strings.Contains(e.Message, tt.base) || !strings.Contains(e.Message, tt.text) || strings.Contains(e.Message, testKey) {
				t.Errorf("message %q, want the base URL and %q", e.Message, tt.text)
			}
		})
	}
}
