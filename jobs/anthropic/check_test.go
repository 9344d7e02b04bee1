package anthropic

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/modelsim"
)

func TestCheckWithSimulator(t *testing.T) {
	sim := modelsim.New(modelsim.Options{})
	srv := httptest.NewServer(sim)
	defer srv.Close()
	tests := []struct {
		name, model string
		offered     bool
	}{
		{"listed", "claude-sonnet-5-5", true},
		{"dated name of a listed one", "claude-haiku-4-5-20251001", true},
		{"unknown", "claude-none-1", false},
		{"hostile", "../messages?x=1#", false},
		{"none asked for", "", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := newTestClient(t, Options{BaseURL: srv.URL}).Check(t.Context(), test.model, false)
			if err != nil {
				t.Fatal(err)
			}
			want := forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Endpoint: "Compatible server", LooksLike: "Anthropic API", Models: 17, Offered: test.offered}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if n := len(sim.Requests()); n != 0 {
		t.Errorf("%d requests to the messages endpoints, want none: a check spends no tokens", n)
	}
}

func TestCheckOfBrokenEndpoints(t *testing.T) {
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const json, html = "application/json", "text/html; charset=utf-8"
	apiError := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"},"request_id":"req_1"}`
	}
	tests := []struct {
		name   string
		answer http.HandlerFunc
		want   forkcore.ProviderOutcome
		detail string
	}{
		{"wrong key", answer(401, json, apiError("authentication_error", "invalid x-api-key")), forkcore.ProviderRefused, "status 401: invalid x-api-key"},
		{"key repeated", answer(401, json, apiError("authentication_error", "bad key "+testKey)), forkcore.ProviderRefused, "bad key [API key]"},
		{"not allowed", answer(403, json, apiError("permission_error", "no")), forkcore.ProviderRefused, "status 403: no"},
		{"refused by a proxy", answer(403, html, "<html>Forbidden</html>"), forkcore.ProviderRefused, "status 403"},
		{"no money", answer(402, json, apiError("billing_error", "pay")), forkcore.ProviderRefused, "status 402: pay"},
		{"rate limited", answer(429, json, apiError("rate_limit_error", "slow down")), forkcore.ProviderLimited, "status 429: slow down"},
		{"overloaded", answer(529, json, apiError("overloaded_error", "busy")), forkcore.ProviderFailing, "status 529: busy"},
		{"organisation on hold", answer(400, json, apiError("invalid_request_error", "on hold")), forkcore.ProviderFailing, "status 400: on hold"},
		{"gateway error page", answer(502, html, "<h1>Bad gateway</h1>"), forkcore.ProviderFailing, "status 502"},
		{"no such path", answer(404, html, "<!doctype html><title>Not found</title>"), forkcore.ProviderForeign, "status 404 and no list of models (text/html"},
		{"a web site", answer(200, html, "<!doctype html><title>Welcome</title>"), forkcore.ProviderForeign, "status 200 and no list of models (text/html"},
		{"another API", answer(200, json, `{"hello":"world"}`), forkcore.ProviderForeign, "no list of models (application/json)"},
		{"a list of others", answer(200, json, `[1,2]`), forkcore.ProviderForeign, "no list of models"},
		{"broken JSON", answer(200, json, `{"data":[{"id":`), forkcore.ProviderForeign, "no list of models"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, forkcore.ProviderForeign, "redirects to /login"},
		{"empty", answer(204, json, ""), forkcore.ProviderForeign, "status 204"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			srv := httptest.NewServer(test.answer)
			defer srv.Close()
			got, err := newTestClient(t, Options{BaseURL: srv.URL}).Check(t.Context(), "claude-sonnet-5-5", false)
			if err != nil {
				t.Fatal(err)
			}
			if got.Outcome != test.want || !strings.Contains(got.Detail, test.detail) || strings.Contains(got.Detail, testKey) || got.Offered {
				t.Errorf("got %+v, want %s with %q", got, test.want, test.detail)
			}
		})
	}
}

func TestCheckWithoutServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	_ = listener.Close()
	for name, base := range map[string]string{"refused": "http://" + addr, "no such host": "http://host.invalid"} {
		t.Run(name, func(t *testing.T) {
			got, err := newTestClient(t, Options{BaseURL: base}).Check(t.Context(), "m", false)
			if err != nil || got.Outcome != forkcore.ProviderUnreachable || !strings.Contains(got.Detail, "check ") {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// hanging never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestCheckEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := newTestClient(t, Options{HTTPClient: &http.Client{Transport: hanging{}}}).Check(t.Context(), "m", false)
		want := forkcore.ProviderCheck{Outcome: forkcore.ProviderUnreachable, Endpoint: "Anthropic API", Detail: "no answer from https://api.anthropic.com within 10s"}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		if took := time.Since(began); took != checkTimeout {
			t.Errorf("took %v, want %v", took, checkTimeout)
		}
	})
}

func TestCheckEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the browser went away")
	cancel(gone)
	_, err := newTestClient(t, Options{HTTPClient: &http.Client{Transport: hanging{}}}).Check(ctx, "m", false)
	if !errors.Is(err, gone) {
		t.Errorf("error %v, want %v", err, gone)
	}
}
