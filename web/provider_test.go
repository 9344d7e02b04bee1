package web

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// account is an endpoint that answers every check alike.
type account struct {
	known   forkcore.ProviderAccount
	check   forkcore.ProviderCheck
	resumed int
	err     error
	asked   []string
}

func (a *account) ProviderAccount(context.Context) (forkcore.ProviderAccount, error) {
	return a.known, a.err
}

func (a *account) CheckProvider(_ context.Context, model string, probe bool) (forkcore.ProviderCheck, int, error) {
	a.asked = append(a.asked, fmt.Sprint(model, " ", probe))
	return a.check, a.resumed, a.err
}

func (a *account) ReplaceKey(_ context.Context, key string) (forkcore.ProviderCheck, int, error) {
	a.asked = append(a.asked, "key "+key)
	return a.check, a.resumed, a.err
}

func lastFour() string { return "wxyz" }

func TestNewCheckView(t *testing.T) {
	tests := []struct {
		name     string
		check    forkcore.ProviderCheck
		kind     string
		headline string
	}{
		{"works", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 17, Offered: true}, "success", "It works: the endpoint offers 17 models, m among them."},
		{"one", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 1, Offered: true}, "success", "It works: the endpoint offers 1 model, m among them."},
		{"more", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 1000, More: true, Offered: true}, "success", "It works: the endpoint offers more than 1,000 models, m among them."},
		{"without the model", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 2}, "warning", "The endpoint answers, but m is not among the 2 models that it offers."},
		{"limited", forkcore.ProviderCheck{Outcome: forkcore.ProviderLimited}, "warning", "The endpoint takes no more requests for now: its rate limit is reached."},
		{"refused", forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused}, "error", "The endpoint refuses the key."},
		{"unreachable", forkcore.ProviderCheck{Outcome: forkcore.ProviderUnreachable}, "error", "The endpoint cannot be reached."},
		{"foreign", forkcore.ProviderCheck{Outcome: forkcore.ProviderForeign}, "error", "What answers there does not list models like a Messages API."},
		{"failing", forkcore.ProviderCheck{Outcome: forkcore.ProviderFailing}, "error", "The endpoint answers with an error of its own."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := new(Server).newCheckView(test.check, "m", false)
			if v.Kind != test.kind || v.Headline != test.headline {
				t.Errorf("%s: %q, want %s: %q", v.Kind, v.Headline, test.kind, test.headline)
			}
			if (v.NextStep == "") != (test.kind == "success") {
				t.Errorf("next step %q: there is one whenever something is wrong", v.NextStep)
			}
		})
	}
}

var worked = forkcore.ProviderCheck{
	Outcome: forkcore.ProviderOK, Endpoint: "Anthropic API", Models: 17, Offered: true,
	Limits: []forkcore.RateLimit{{Name: "input-tokens", Limit: 2_000_000, Remaining: 1_994_000, Reset: noon}},
	Probe: &forkcore.CacheProbe{
		First: forkcore.Usage{CacheWrite5m: 5123}, FirstKnown: true, Second: forkcore.Usage{CacheRead: 5123}, SecondKnown: true,
		PrefixTokens: 5123, Counted: true, Cost: new(int64(13_400_000)),
	},
}

func TestSteps(t *testing.T) {
	change := func(f func(*forkcore.ProviderCheck, *forkcore.CacheProbe)) forkcore.ProviderCheck {
		c, p := worked, *worked.Probe
		c.Probe = &p
		f(&c, &p)
		return c
	}
	tests := []struct {
		name   string
		check  forkcore.ProviderCheck
		probed bool
		kind   string
		want   []stepView
	}{
		{"all is well", worked, true, "success", []stepView{
			{stepOK, "Key", "accepted"}, {stepOK, "Models", "17 models, m among them"}, {stepOK, "Cache", "the second request read 5,123 of 5,123 tokens, 100 %; cost $0.0134"},
		}},
		{"a miss", change(func(_ *forkcore.ProviderCheck, p *forkcore.CacheProbe) { p.Second.CacheRead, p.Cost = 0, nil }), true, "warning", []stepView{
			{stepOK, "Key", "accepted"}, {stepOK, "Models", "17 models, m among them"}, {stepFailed, "Cache", "the second request read 0 of 5,123 tokens, 0 %; no price is known"},
		}},
		{"not reported", change(func(_ *forkcore.ProviderCheck, p *forkcore.CacheProbe) { p.SecondKnown = false }), true, "success", []stepView{
			{stepOK, "Key", "accepted"}, {stepOK, "Models", "17 models, m among them"}, {stepUnsure, "Cache", "the second response does not say what it read; cost $0.0134"},
		}},
		{"no credit", change(func(_ *forkcore.ProviderCheck, p *forkcore.CacheProbe) {
			p.Err = &forkcore.ModelError{KeyRefused: true, Message: "credit is low"}
		}), true, "error", []stepView{
			{stepFailed, "Key", "refused when a request was sent"}, {stepOK, "Models", "17 models, m among them"}, {stepFailed, "Cache", "a request was answered with an error: credit is low"},
		}},
		{"nothing spent", change(func(c *forkcore.ProviderCheck, _ *forkcore.CacheProbe) { c.Probe = nil }), false, "success", []stepView{
			{stepOK, "Key", "accepted"}, {stepOK, "Models", "17 models, m among them"}, {stepNotDone, "Cache", "nothing was to be spent"},
		}},
		{"refused", forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused}, true, "error", []stepView{
			{stepFailed, "Key", "refused"}, {stepNotDone, "Models", ""}, {stepNotDone, "Cache", ""},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := new(Server).newCheckView(test.check, "m", test.probed)
			got := v.Steps
			for i := range got {
				got[i].Text = strings.ReplaceAll(got[i].Text, "\u00a0", " ")
			}
			if d := cmp.Diff(test.want, got); d != "" || v.Kind != test.kind {
				t.Errorf("%s (-want +got):\n%s", v.Kind, d)
			}
		})
	}
}

func TestCheckSaysWhatAnswers(t *testing.T) {
	s := &Server{o: Options{Provider: Provider{Setting: func(name string) string { return map[string]string{"llama.cpp": "llamacpp"}[name] }}}}
	for name, want := range map[string]string{"llama.cpp": "It answers like llama.cpp: set FORKYARD_ENDPOINT=llamacpp.", "Other": "It answers like Other.", "": ""} {
		if v := s.newCheckView(forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, LooksLike: name}, "m", false); v.Hint != want {
			t.Errorf("%q: %q, want %q", name, v.Hint, want)
		}
	}
}

// A key that is too short to show any of it is a key all the same.
func TestKeyInWords(t *testing.T) {
	yes := func() bool { return true }
	for _, tc := range []struct {
		p    Provider
		want string
	}{
		{Provider{}, "no key"},
		{Provider{HasKey: yes, KeyEnd: func() string { return "" }}, "a short one, of which nothing is shown"},
		{Provider{HasKey: yes, KeyEnd: lastFour}, "…wxyz"},
	} {
		s := &Server{o: Options{Provider: tc.p, Now: time.Now, Simulated: true}}
		if v := s.fillProvider(t.Context(), providerView{}); v.Key != tc.want {
			t.Errorf("%q, want %q", v.Key, tc.want)
		}
	}
}

func TestCheckProvider(t *testing.T) {
	a := &account{check: forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "status 401: <b>no</b>"}}
	s := serve(t, withData(), func(o *Options) {
		o.Provider = Provider{BaseURL: "https://api.example.com", KeyEnd: lastFour, Model: "claude-sonnet-5-5", Account: a}
	})
	cookie := s.signIn(t)
	const says = "The endpoint refuses the key."

	res, body := s.ask(t, "POST", "/provider/check", "probe=1", "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "HX-Request", "true", "Content-Type", "application/x-www-form-urlencoded")
	if res.StatusCode != 200 || !strings.HasPrefix(body, `<div id="provider-result"`) || !strings.Contains(text(parse(t, body)), says) || !strings.Contains(body, "status 401: &lt;b&gt;no&lt;/b&gt;") {
		t.Errorf("part of the page: %d %s", res.StatusCode, body)
	}
	res, body = s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
	if res.StatusCode != 200 || !strings.Contains(text(parse(t, body)), says) || !strings.Contains(body, "<h1>Key and limits</h1>") || !strings.Contains(body, "…wxyz") {
		t.Errorf("whole page: %d %s", res.StatusCode, body)
	}
	if d := cmp.Diff([]string{"claude-sonnet-5-5 true", "claude-sonnet-5-5 false"}, a.asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	if res, _ = s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
		t.Errorf("from another site: %d, want 403", res.StatusCode)
	}
	if res, _ = s.ask(t, "POST", "/provider/check", ""); res.StatusCode != 401 {
		t.Errorf("not signed in: %d, want 401", res.StatusCode)
	}
}

// The key is checked, used, and in no answer.
func TestReplaceKey(t *testing.T) {
	const key = "sk-ant-secret-0123456789"
	a := &account{}
	s := serve(t, withData(), func(o *Options) { o.Provider = Provider{BaseURL: "https://api.example.com", Model: "m", Account: a} })
	cookie := s.signIn(t)
	for _, tt := range []struct {
		name   string
		sent   string
		check  forkcore.ProviderCheck
		err    error
		status int
		says   string
	}{
		{"works", key, worked, nil, 200, "12 runs go on. Caches are cold: the first request of each conversation writes its prefix anew."},
		{"refused", key, forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "bad " + key}, nil, 422, "The key is refused by the endpoint (bad [key]); the key in use stays."},
		{"unreachable", key, forkcore.ProviderCheck{Outcome: forkcore.ProviderUnreachable, Detail: "no route"}, nil, 409, "The new key could not be checked (unreachable: no route); the key in use stays. Try again when the endpoint answers."},
		{"cut", "sk", forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "asks for a key"}, nil, 422, "The key is refused by the endpoint (asks for a key); the key in use stays; what was given has only 2 characters, so look whether all of the key was copied."},
		{"none", " ", worked, nil, 422, "Paste a key first."},
		{"conflict", key, worked, &forkcore.ConflictError{Message: "Not now."}, 409, "Not now."},
	} {
		a.check, a.resumed, a.err = tt.check, 12, nil
		known := a.known
		if tt.err != nil {
			a.err = tt.err
		}
		res, body := s.ask(t, "POST", "/provider/key", url.Values{"api_key": {tt.sent}}.Encode(), "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded")
		if res.StatusCode != tt.status || !strings.Contains(text(parse(t, body)), tt.says) || strings.Contains(body, key) {
			t.Errorf("%s: %d, want %d with %q and without the key: %s", tt.name, res.StatusCode, tt.status, tt.says, text(parse(t, body)))
		}
		a.known, a.err = known, nil
	}
}

func TestBanner(t *testing.T) {
	a := &account{known: forkcore.ProviderAccount{
		Refused: &forkcore.Reason{Code: forkcore.WaitProvider, Message: "invalid <x-api-key>", NextStep: "pay"}, RefusedAt: noon, Waiting: 7,
	}}
	s := serve(t, withData(), func(o *Options) { o.Provider = Provider{KeyEnd: lastFour, Account: a} })
	cookie := s.signIn(t)
	for _, path := range []string{"/", "/sessions/new", "/checks", "/provider", "/models", "/nowhere"} {
		_, body := s.ask(t, "GET", path, "", "Cookie", cookie)
		said := text(parse(t, body))
		if strings.Count(said, "The provider refuses the key …wxyz: invalid <x-api-key>") != 1 || !strings.Contains(said, "7 runs waiting; nothing is lost.") {
			t.Errorf("%s: %s", path, said)
		}
		for _, to := range []string{`<a href="/provider">Key and limits</a>`, `<a href="/models">Models</a>`} {
			if !strings.Contains(body, to) {
				t.Errorf("%s has no way to %s", path, to)
			}
		}
	}
	if _, body := s.ask(t, "GET", "/login", ""); strings.Contains(body, "refuses the key") || strings.Contains(body, "provider-banner") {
		t.Errorf("who is not signed in is told: %s", body)
	}

	press := func() string {
		_, body := s.ask(t, "POST", "/provider/check", "banner=1&probe=1", "Cookie", cookie, "Sec-Fetch-Site", "same-origin",
			"Content-Type", "application/x-www-form-urlencoded", "HX-Request", "true")
		return text(parse(t, body))
	}
	a.check = forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "no"}
	if said := press(); !strings.Contains(said, "Checked just now. The endpoint refuses the key.") || !strings.Contains(said, "7 runs waiting") {
		t.Errorf("checked from the banner: %s", said)
	}
	known := a.known
	a.known, a.check, a.resumed = forkcore.ProviderAccount{}, forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Offered: true, Models: 3}, 7
	if said := press(); !strings.Contains(said, "It works") || !strings.Contains(said, "7 runs go on.") || strings.Contains(said, "refuses") {
		t.Errorf("checked from the banner when it works again: %s", said)
	}
	if res, body := s.ask(t, "GET", "/provider/banner?state=over", "", "Cookie", cookie); res.StatusCode != 200 || text(parse(t, body)) != "" {
		t.Errorf("the next look: %d %s", res.StatusCode, body)
	}
	a.known = known

	state := fmt.Sprintf("%d-7", noon.UnixMilli())
	if res, _ := s.ask(t, "GET", "/provider/banner?state="+state, "", "Cookie", cookie); res.StatusCode != 204 {
		t.Errorf("nothing changed: %d", res.StatusCode)
	}
	a.known = forkcore.ProviderAccount{}
	res, body := s.ask(t, "GET", "/provider/banner?state="+state, "", "Cookie", cookie)
	if res.StatusCode != 200 || !strings.Contains(body, `id="provider-banner"`) || text(parse(t, body)) != "" {
		t.Errorf("the key works again: %d %s", res.StatusCode, body)
	}
	a.err = context.DeadlineExceeded
	if res, _ := s.ask(t, "GET", "/checks", "", "Cookie", cookie); res.StatusCode != 200 {
		t.Errorf("a page whose banner cannot be read: %d", res.StatusCode)
	}
}

func TestNothingToCheck(t *testing.T) {
	s := serve(t, newFake())
	cookie := s.signIn(t)
	for _, f := range all(page(t, s, "/", 200, "Cookie", cookie), "form") {
		if attribute(f, "action") == "/provider/check" {
			t.Error("a button for a check that there is not")
		}
	}
	if res, _ := s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin"); res.StatusCode != 409 {
		t.Errorf("status %d, want 409", res.StatusCode)
	}
}
