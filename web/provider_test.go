package web

import (
	"context"
	"strings"
	"testing"

	"forkyard/forkcore"
)

// checker answers every check alike.
type checker struct {
	check forkcore.ProviderCheck
	err   error
	model string // that was asked for
}

func (c *checker) Check(_ context.Context, model string, _ bool) (forkcore.ProviderCheck, error) {
	c.model = model
	return c.check, c.err
}

func TestNewCheckView(t *testing.T) {
	tests := []struct {
		name     string
		check    forkcore.ProviderCheck
		kind     string
		headline string
	}{
		{"works", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 17, Offered: true}, "success", "It works: the endpoint offers 17 models, m among them."},
		{"one", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 1, Offered: true}, "success", "It works: the endpoint offers 1 model, m among them."},
		{"more", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 1000, More: true, Offered: true}, "success", "It works: the endpoint offers more than 1000 models, m among them."},
		{"without the model", forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: 2}, "warning", "The endpoint answers, but m is not among the 2 models that it offers."},
		{"limited", forkcore.ProviderCheck{Outcome: forkcore.ProviderLimited}, "warning", "The endpoint takes no more requests for now: its rate limit is reached."},
		{"refused", forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused}, "error", "The endpoint refuses the key."},
		{"unreachable", forkcore.ProviderCheck{Outcome: forkcore.ProviderUnreachable}, "error", "The endpoint cannot be reached."},
		{"foreign", forkcore.ProviderCheck{Outcome: forkcore.ProviderForeign}, "error", "What answers there does not list models like a Messages API."},
		{"failing", forkcore.ProviderCheck{Outcome: forkcore.ProviderFailing}, "error", "The endpoint answers with an error of its own."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newCheckView(test.check, "m")
			if v.Kind != test.kind || v.Headline != test.headline {
				t.Errorf("%s: %q, want %s: %q", v.Kind, v.Headline, test.kind, test.headline)
			}
			if (v.NextStep == "") != (test.kind == "success") {
				t.Errorf("next step %q: there is one whenever something is wrong", v.NextStep)
			}
		})
	}
}

func TestCheckProvider(t *testing.T) {
	c := &checker{check: forkcore.ProviderCheck{Outcome: forkcore.ProviderRefused, Detail: "status 401: <b>no</b>"}}
	s := serve(t, withData(), func(o *Options) {
		o.Provider = Provider{BaseURL: "https://api.example.com", KeyEnd: "wxyz", Model: "claude-sonnet-5-5", Checker: c}
	})
	cookie := s.signIn(t)
	const says = "The endpoint refuses the key. Check that ANTHROPIC_API_KEY is complete, not revoked, and made for this endpoint, and start again. status 401: <b>no</b>"

	res, body := s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin", "HX-Request", "true")
	if res.StatusCode != 200 || !strings.HasPrefix(body, `<div id="provider-result"`) || text(parse(t, body)) != says {
		t.Errorf("part of the page: %d %s", res.StatusCode, body)
	}
	res, body = s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "same-origin")
	if res.StatusCode != 200 || !strings.Contains(text(parse(t, body)), says) || !strings.Contains(body, "<h1>Sessions</h1>") {
		t.Errorf("whole page: %d %s", res.StatusCode, body)
	}
	if c.model != "claude-sonnet-5-5" {
		t.Errorf("asked for %q", c.model)
	}
	if res, _ = s.ask(t, "POST", "/provider/check", "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
		t.Errorf("from another site: %d, want 403", res.StatusCode)
	}
	if res, _ = s.ask(t, "POST", "/provider/check", ""); res.StatusCode != 401 {
		t.Errorf("not signed in: %d, want 401", res.StatusCode)
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
