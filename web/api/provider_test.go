package api

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// provider answers every check alike.
type provider struct {
	account forkcore.ProviderAccount
	check   forkcore.ProviderCheck
	resumed int
	err     error
	asked   []string
}

func (p *provider) ProviderAccount(context.Context) (forkcore.ProviderAccount, error) {
	return p.account, p.err
}

func (p *provider) CheckProvider(_ context.Context, model string, probe bool) (forkcore.ProviderCheck, int, error) {
	what := "look "
	if probe {
		what = "probe "
	}
	p.asked = append(p.asked, what+model)
	return p.check, p.resumed, p.err
}

func (p *provider) ReplaceKey(_ context.Context, key string) (forkcore.ProviderCheck, int, error) {
	p.asked = append(p.asked, "key "+key)
	return p.check, p.resumed, p.err
}

var probed = forkcore.ProviderCheck{
	Outcome: forkcore.ProviderOK, Endpoint: "Anthropic API", Models: 17, Offered: true,
	Limits: []forkcore.RateLimit{{Name: "requests", Limit: 50, Remaining: 49, Reset: noon}},
	Probe: &forkcore.CacheProbe{
		First: forkcore.Usage{Input: 9, CacheWrite5m: 5123, Output: 1}, FirstKnown: true,
		Second: forkcore.Usage{Input: 9, CacheRead: 5123, Output: 1}, SecondKnown: true, PrefixTokens: 5123, Counted: true, Cost: new(int64(13_400_000)),
	},
}

func TestProviderCheckAsksForWhatIsWished(t *testing.T) {
	f, p := newFake(), &provider{check: probed, resumed: 2}
	f.provider = p
	server := serve(t, f)
	for _, ask := range []struct{ method, path, body string }{
		{"POST", "/provider/check", ""},
		{"POST", "/provider/check", `{}`},
		{"POST", "/provider/check", `{"model":"m","probe":false}`},
		{"GET", "/provider/check", ""},
		{"GET", "/provider/check?model=n", ""},
	} {
		if res, body := call(t, server, ask.method, ask.path, ask.body); res.StatusCode != 200 {
			t.Errorf("%s %s: %d %s", ask.method, ask.path, res.StatusCode, body)
		}
	}
	if d := cmp.Diff([]string{"probe ", "probe ", "look m", "look ", "look n"}, p.asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	_, body := call(t, server, "POST", "/provider/check", `{}`)
	var got providerCheck
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Outcome != "ok" || got.Resumed != 2 || got.Probe == nil || got.Probe.Read == nil || *got.Probe.Read != 1 || got.Probe.Outcome != ProbeRead || got.Detail != nil {
		t.Errorf("answer %s", body)
	}
}

func TestProbeOutcome(t *testing.T) {
	second := func(read int64, counted bool) forkcore.CacheProbe {
		return forkcore.CacheProbe{Second: forkcore.Usage{CacheRead: read}, SecondKnown: true, PrefixTokens: 1000, Counted: counted}
	}
	for _, tt := range []struct {
		probe forkcore.CacheProbe
		want  ProbeOutcome
	}{
		{second(1000, true), ProbeRead},
		{second(999, true), ProbePartly},
		{second(950, false), ProbeRead},
		{second(899, false), ProbePartly},
		{second(0, true), ProbeMissed},
		{forkcore.CacheProbe{PrefixTokens: 1000}, ProbeUnreported},
		{forkcore.CacheProbe{Err: &forkcore.ModelError{Message: "no"}}, ProbeFailed},
	} {
		if got := ProbeOutcomeOf(tt.probe); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.probe, got, tt.want)
		}
	}
}

func TestProviderState(t *testing.T) {
	f := newFake()
	f.provider = &provider{account: forkcore.ProviderAccount{
		Refused: &forkcore.Reason{Code: forkcore.WaitProvider, Message: "credit", NextStep: "pay"}, RefusedAt: noon, Waiting: 7, CoolUntil: noon,
	}}
	_, body := call(t, serve(t, f), "GET", "/provider", "")
	var got account
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.State != "refused" || got.Waiting != 7 || got.Reason == nil || *got.KeyEnd != "wxyz" || *got.Endpoint != "api.example.com" || got.CoolUntil != nil {
		t.Errorf("answer %s", body)
	}
}

// A key that does not work changes nothing, and no answer and no log has it.
func TestReplaceKeyTellsNobodyTheKey(t *testing.T) {
	const key = "sk-ant-very-secret-0123456789"
	for _, tt := range []struct {
		name   string
		check  forkcore.ProviderCheck
		err    error
		status int
		says   string
	}{
		{"works", probed, nil, 200, `"resumed":3`},
		{"refused", forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "invalid x-api-key " + key}, nil, 422, "is refused by the endpoint (invalid x-api-key [key]); the key in use stays"},
		{"no credit", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Probe: &forkcore.CacheProbe{Err: &forkcore.ModelError{KeyRefused: true, Message: "credit is low"}}}, nil, 422, "requests with it are refused (credit is low)"},
		{"unreachable", forkcore.ProviderCheck{Outcome: forkcore.ProviderUnreachable, Detail: "no route"}, nil, 409, "could not be checked (unreachable: no route)"},
		{"conflict", forkcore.ProviderCheck{}, &forkcore.ConflictError{Message: "There is no endpoint."}, 409, "There is no endpoint."},
		{"broken", forkcore.ProviderCheck{}, context.DeadlineExceeded, 503, "cannot be reached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			var log bytes.Buffer
			a := New(Options{
				Runner: f, Reader: f, Bytes: f, Events: f, Provider: &provider{check: tt.check, resumed: 3, err: tt.err},
				Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Now: func() time.Time { return noon },
			})
			defer a.Close()
			e := echo.New()
			e.HTTPErrorHandler = func(err error, c echo.Context) { _ = WriteProblem(c, ProblemOf(err)) }
			a.Mount(e.Group("/api/v1"))
			server := httptest.NewServer(e)
			defer server.Close()
			res, body := call(t, server, "PUT", "/provider/key", `{"api_key":" `+key+` "}`)
			if res.StatusCode != tt.status || !strings.Contains(body, tt.says) {
				t.Errorf("%d %s, want %d with %q", res.StatusCode, body, tt.status, tt.says)
			}
			checkAnswer(t, document(t), "PUT /provider/key", res.StatusCode, body)
			if strings.Contains(body, key) || strings.Contains(log.String(), key) {
				t.Errorf("the key came back: %s %s", body, log.String())
			}
		})
	}
}

func TestNoProvider(t *testing.T) {
	server := serve(t, newFake())
	for _, ask := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/provider", "", 200},
		{"GET", "/provider/check", "", 409},
		{"POST", "/provider/check", "", 409},
		{"PUT", "/provider/key", `{"api_key":"k"}`, 409},
		{"PUT", "/provider/key", `{"api_key":" "}`, 422},
		{"PUT", "/provider/key", `{"key":"k"}`, 422},
	} {
		if res, body := call(t, server, ask.method, ask.path, ask.body); res.StatusCode != ask.status {
			t.Errorf("%s %s %s: %d %s, want %d", ask.method, ask.path, ask.body, res.StatusCode, body, ask.status)
		}
	}
}
