package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// ProviderChecker asks the provider's endpoint whether it takes the key and offers a model. It spends no tokens and
// answers within seconds. An error says only that ctx ended.
type ProviderChecker interface {
	Check(ctx context.Context, model string, probe bool) (forkcore.ProviderCheck, error)
}

// Provider is what pages tell about the endpoint in use.
type Provider struct {
	// BaseURL is the endpoint; empty for the simulated model inside this program.
	BaseURL string
	// KeyEnd is the last four characters of the key, "" without one or when it is too short to show any of it.
	KeyEnd string
	// Model is that of sessions that name none.
	Model   string
	Checker ProviderChecker // nil: there is nothing to check
}

// providerView is the card about the endpoint.
type providerView struct {
	Simulated bool
	Endpoint  string // host; empty: inside this program
	Key       string // "…last4", or that there is none
	Model     string
	CanCheck  bool
	Result    *checkView // nil: not asked
}

// checkView says what a check came to.
type checkView struct {
	Kind             string // of the notice
	Headline, Detail string
	NextStep         string
}

func (s *Server) fillProvider(v providerView) providerView {
	p := s.o.Provider
	v.Simulated, v.Model, v.CanCheck, v.Key = s.o.Simulated, p.Model, p.Checker != nil, "no key"
	if u, err := url.Parse(p.BaseURL); err == nil {
		v.Endpoint = u.Host
	}
	if p.KeyEnd != "" {
		v.Key = "…" + p.KeyEnd
	}
	return v
}

// checkProvider asks the endpoint and draws the answer in place, or the whole page for a browser without scripts.
func (s *Server) checkProvider(c echo.Context) error {
	if s.o.Provider.Checker == nil {
		return &forkcore.ConflictError{Message: "There is no endpoint to check.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
	}
	check, err := s.o.Provider.Checker.Check(c.Request().Context(), s.o.Provider.Model, false)
	if err != nil {
		return fmt.Errorf("checking the provider: %w", err)
	}
	v := providerView{Result: newCheckView(check, s.o.Provider.Model)}
	if s.o.Simulated && check.Outcome == forkcore.ProviderOK {
		v.Result.Kind, v.Result.NextStep = "", "It is the simulated model that answered: this says nothing about a key. Start with ANTHROPIC_API_KEY set, and check again."
	}
	if isHTMX(c) {
		return s.render(c, http.StatusOK, checkResult(v.Result))
	}
	return s.renderHome(c, http.StatusOK, startView{Open: true, Provider: v})
}

// newCheckView puts a check of the endpoint for a model into words.
func newCheckView(c forkcore.ProviderCheck, model string) *checkView {
	v := &checkView{Kind: "error", Detail: c.Detail}
	switch c.Outcome {
	case forkcore.ProviderOK:
		models := fmt.Sprintf("%d models", c.Models)
		switch {
		case c.More:
			models = "more than " + models
		case c.Models == 1:
			models = "1 model"
		}
		v.Kind, v.Headline = "success", fmt.Sprintf("It works: the endpoint offers %s, %s among them.", models, model)
		if !c.Offered {
			v.Kind, v.Headline = "warning", fmt.Sprintf("The endpoint answers, but %s is not among the %s that it offers.", model, models)
			v.NextStep = "Name one that it offers in FORKYARD_MODEL, or when you make a session."
		}
	case forkcore.ProviderRefused:
		v.Headline, v.NextStep = "The endpoint refuses the key.", "Check that ANTHROPIC_API_KEY is complete, not revoked, and made for this endpoint, and start again."
	case forkcore.ProviderUnreachable:
		v.Headline, v.NextStep = "The endpoint cannot be reached.", "Check ANTHROPIC_BASE_URL, the network and the proxy settings of this machine."
	case forkcore.ProviderForeign:
		v.Headline, v.NextStep = "What answers there does not list models like a Messages API.",
			"Check ANTHROPIC_BASE_URL. Some gateways leave the list out: then a message in a session tells whether the key works."
	case forkcore.ProviderLimited:
		v.Kind, v.Headline, v.NextStep = "warning", "The endpoint takes no more requests for now: its rate limit is reached.", "Try again in a minute."
	case forkcore.ProviderFailing:
		v.Headline, v.NextStep = "The endpoint answers with an error of its own.", "Try again in a moment; if it stays, ask whoever runs the endpoint."
	}
	return v
}
