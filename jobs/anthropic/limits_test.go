package anthropic

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

var limitHeaders = map[string]string{
	"anthropic-ratelimit-requests-limit":          "4000",
	"anthropic-ratelimit-requests-remaining":      "3999",
	"anthropic-ratelimit-requests-reset":          "2026-11-30T12:00:01Z",
	"Anthropic-Ratelimit-Input-Tokens-Limit":      "2000000",
	"Anthropic-Ratelimit-Input-Tokens-Remaining":  "0",
	"Anthropic-Ratelimit-Input-Tokens-Reset":      "2026-11-30T13:00:01+01:00",
	"anthropic-priority-input-tokens-limit":       "10000",
	"anthropic-priority-input-tokens-remaining":   "9618",
	"anthropic-priority-input-tokens-reset":       "2026-11-30T12:00:30Z",
	"anthropic-fast-output-tokens-limit":          "8",
	"anthropic-fast-output-tokens-remaining":      "7",
	"anthropic-ratelimit-thoughts-limit":          "5", // nobody knows it yet
	"anthropic-ratelimit-thoughts-remaining":      "4",
	"anthropic-ratelimit-thoughts-reset":          "soon",
	"anthropic-ratelimit-tokens-limit":            "many",
	"anthropic-ratelimit-tokens-remaining":        "1",
	"anthropic-ratelimit-output-tokens-limit":     "1",
	"anthropic-ratelimit-output-tokens-remaining": "-1",
	"anthropic-ratelimit-half-limit":              "1",
	"anthropic-organization-size-limit":           "1",
	"anthropic-organization-size-remaining":       "1",
	"x-ratelimit-requests-limit":                  "1",
}

var wantLimits = []forkcore.RateLimit{
	{Name: "fast-output-tokens", Limit: 8, Remaining: 7},
	{Name: "input-tokens", Limit: 2000000, Reset: time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)},
	{Name: "priority-input-tokens", Limit: 10000, Remaining: 9618, Reset: time.Date(2026, 11, 30, 12, 0, 30, 0, time.UTC)},
	{Name: "requests", Limit: 4000, Remaining: 3999, Reset: time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)},
	{Name: "thoughts", Limit: 5, Remaining: 4},
}

// The limits reach the caller with an answer, with a refusal and with an error inside a stream.
func TestRateLimits(t *testing.T) {
	overloaded := sse("\n", msgStart, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`)
	for _, tt := range []struct {
		name   string
		status int
		body   string
	}{
		{"answer", 200, turn("end_turn")},
		{"error in the stream", 200, overloaded},
		{"429", 429, `{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				for k, v := range limitHeaders {
					w.Header().Set(k, v)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			start, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			var got []forkcore.RateLimit
			if err != nil {
				got = modelError(t, err).Limits
			} else {
				got = start.Limits
			}
			if diff := cmp.Diff(wantLimits, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRateLimitsAreBounded(t *testing.T) {
	h := http.Header{}
	for i := range 100 {
		name := "anthropic-ratelimit-x" + strconv.Itoa(i)
		h.Set(name+"-limit", "1")
		h.Set(name+"-remaining", "1")
	}
	if n := len(limitsOf(h)); n != maxLimits {
		t.Errorf("%d limits, want %d", n, maxLimits)
	}
	if got := limitsOf(http.Header{}); got != nil {
		t.Errorf("no headers: %v, want nil", got)
	}
}

func TestKeyRefused(t *testing.T) {
	apiError := func(kind, message string) string {
		return `{"type":"error","error":{"type":"` + kind + `","message":"` + message + `"}}`
	}
	withCode := func(code string) string {
		return `{"type":"error","error":{"type":"rate_limit_error","message":"x","details":{"error_code":"` + code + `"}}}`
	}
	const (
		credit = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."
		usage  = "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."
	)
	for _, tt := range []struct {
		name          string
		status        int
		body          string
		refused, ramp bool
		code          string
	}{
		{"wrong key", 401, apiError("authentication_error", "invalid x-api-key"), true, false, forkcore.CodeProviderAuth},
		{"wrong key, another server", 401, `{"error":"Unauthorized"}`, true, false, forkcore.CodeProviderAuth},
		{"billing", 402, apiError("billing_error", "pay"), true, false, forkcore.CodeProviderAuth},
		{"enforced spend limit", 429, withCode("enforced_spend_limit_reached"), true, false, forkcore.CodeProviderAuth},
		{"contract spend limit", 429, withCode("contract_spend_limit_reached"), true, false, forkcore.CodeProviderAuth},
		{"credit used up", 400, apiError("invalid_request_error", credit), true, false, forkcore.CodeProviderAuth},
		{"usage limit of one's own", 400, apiError("invalid_request_error", usage), true, false, forkcore.CodeProviderAuth},
		{"one model", 403, apiError("permission_error", "this key may not use that model"), false, false, forkcore.CodeProviderAuth},
		{"ramp", 429, withCode("ramp_limit_exceeded"), false, true, forkcore.CodeRateLimited},
		{"rate limit", 429, apiError("rate_limit_error", "slow down"), false, false, forkcore.CodeRateLimited},
		{"overloaded", 529, apiError("overloaded_error", "busy"), false, false, forkcore.CodeOverloaded},
		{"another 400", 400, apiError("invalid_request_error", "credit: Extra inputs are not permitted"), false, false, forkcore.CodeProviderError},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			e := modelError(t, err)
			if e.KeyRefused != tt.refused || e.Ramp != tt.ramp || e.Code != tt.code || e.KeyRefused && e.Retryable {
				t.Errorf("got %+v, want refused %v, ramp %v, code %s", e, tt.refused, tt.ramp, tt.code)
			}
		})
	}
	t.Run("inside a stream", func(t *testing.T) {
		srv := serve(t, sse("\n", msgStart, apiError("billing_error", "pay")))
		_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
		if e := modelError(t, err); !e.KeyRefused || e.Code != forkcore.CodeProviderAuth || e.Retryable {
			t.Errorf("got %+v", e)
		}
	})
}

// What a refusal with retry-after asks for reaches the caller whatever its kind.
func TestB52_RetryAfterOfEveryKind(t *testing.T) {
	for _, status := range []int{429, 503, 529} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Retry-After", "10")
				w.WriteHeader(status)
			}))
			defer srv.Close()
			_, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			if e := modelError(t, err); e.RetryAfter != 10*time.Second || !e.Retryable || e.KeyRefused {
				t.Errorf("got %+v, want a wait of 10 s", e)
			}
		})
	}
}

func TestStopDetails(t *testing.T) {
	for _, tt := range []struct {
		name, details string
		want          *forkcore.StopDetails
	}{
		{"absent", ``, nil},
		{"null", `,"stop_details":null`, nil},
		{"whole", `,"stop_details":{"type":"refusal","category":"cyber","explanation":"no \ud83d"}`, &forkcore.StopDetails{Type: "refusal", Category: "cyber", Explanation: "no \ufffd"}},
		{"without a category", `,"stop_details":{"type":"refusal","category":null,"explanation":null}`, &forkcore.StopDetails{Type: "refusal"}},
		{"another shape", `,"stop_details":[1]`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := serve(t, sse("\n", msgStart, `{"type":"message_delta","delta":{"stop_reason":"refusal"`+tt.details+`},"usage":{"output_tokens":1}}`, msgStop))
			_, end, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, end.StopDetails); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
