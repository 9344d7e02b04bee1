package anthropic

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func TestPrewarm(t *testing.T) {
	const body = `{"model":"m","messages":[],"max_tokens":0}`
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter)
		code   string // of the error; empty: none
	}{
		{"an answer without content", func(w http.ResponseWriter) {
			w.Header().Set("request-id", "req_1")
			w.Header().Set("anthropic-workspace-id", "wrkspc_1")
			_, _ = io.WriteString(w, `{"id":"msg_1","content":[],"stop_reason":"max_tokens","usage":{"input_tokens":3,"cache_read_input_tokens":900,"cache_creation_input_tokens":0,"output_tokens":0}}`)
		}, ""},
		{"a refusal", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slower"}}`)
		}, forkcore.CodeRateLimited},
		{"no JSON", func(w http.ResponseWriter) { _, _ = io.WriteString(w, `<html>`) }, forkcore.CodeInvalidResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got, betas string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				got, betas = string(b), r.Header.Get("anthropic-beta")
				tt.answer(w)
			}))
			defer server.Close()
			c, err := New(Options{BaseURL: server.URL, APIKey: "k"})
			if err != nil {
				t.Fatal(err)
			}
			start, err := c.Prewarm(t.Context(), forkcore.Request{Body: func() io.Reader { return strings.NewReader(body) }, ContentLength: int64(len(body)), Betas: []string{"a", "b"}})
			if got != body || betas != "a,b" {
				t.Errorf("sent %q with betas %q", got, betas)
			}
			var me *forkcore.ModelError
			switch {
			case tt.code != "":
				if !errors.As(err, &me) || me.Code != tt.code {
					t.Errorf("error %v, want code %s", err, tt.code)
				}
			case err != nil:
				t.Fatal(err)
			case !start.UsageKnown || start.Usage.CacheRead != 900 || start.MessageID != "msg_1" || start.ProviderRequestID != "req_1" || start.Workspace != "wrkspc_1":
				t.Errorf("start %+v", start)
			}
		})
	}

	// Whoever gives up is told so, and not that the endpoint failed.
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-held }))
	defer server.Close()
	defer close(held)
	c, err := New(Options{BaseURL: server.URL, APIKey: "k"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var me *forkcore.ModelError
	if _, err := c.Prewarm(ctx, forkcore.Request{Body: func() io.Reader { return strings.NewReader(body) }, ContentLength: int64(len(body))}); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &me) {
		t.Errorf("given up: %v", err)
	}
}
