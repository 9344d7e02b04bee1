package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// Provider is what pages tell about the endpoint in use.
type Provider struct {
	// BaseURL is the endpoint; empty for the simulated model inside this program.
	BaseURL string
	// KeyEnd gives the last four characters of the key in use, "" without one or when it is too short to show any of it; nil: "".
	KeyEnd func() string
	// HasKey tells whether requests carry a key at all; nil: they do not.
	HasKey func() bool
	// AccountID gives Scope.Account of the key in use, "" when it is not known; nil: "".
	AccountID func() string
	// Model is that of sessions that name none.
	Model string
	// Account is asked about the key; nil: there is nothing to check.
	Account api.Provider
	// Setting gives the value of FORKYARD_ENDPOINT for a kind of endpoint by its name, such as "llama.cpp"; "" when there is none.
	Setting func(name string) string
}

func (p Provider) host() string {
	u, err := url.Parse(p.BaseURL)
	if err != nil {
		return ""
	}
	return u.Host
}

func (p Provider) accountID() string {
	if p.AccountID == nil {
		return ""
	}
	return p.AccountID()
}

// shownKey is what pages show of the key in use; empty when that is nothing.
func (p Provider) shownKey() string {
	if p.KeyEnd == nil {
		return ""
	}
	if end := p.KeyEnd(); end != "" {
		return "…" + end
	}
	return ""
}

// providerView is the card about the endpoint.
type providerView struct {
	Simulated bool
	Endpoint  string // host; empty: inside this program
	Key       string // "…last4", or that there is none
	Model     string
	CanCheck  bool
	// ProbeCost is about what a check with the probe costs.
	ProbeCost string
	Result    *checkView // nil: not asked
	Account   accountView
}

// accountView is what is known about the key in use.
type accountView struct {
	Refused   *forkcore.Reason // nil: as far as known it is taken
	RefusedAt time.Time
	CoolUntil time.Time // zero: requests are wanted now
	Limits    []forkcore.RateLimit
	LimitsAt  time.Time
	Waiting   string // "7 runs"; empty: none
}

// The states of a step of a check.
const (
	stepOK      = "ok"
	stepFailed  = "failed"
	stepUnsure  = "not known"
	stepNotDone = "not tried"
)

// stepView is one step of a check.
type stepView struct{ State, Name, Text string }

// checkView says what a check came to.
type checkView struct {
	Kind             string // of the notice
	Headline, Detail string
	NextStep         string
	Steps            []stepView
	Hint             string // that another kind of endpoint seems to answer
	Resumed          string // what goes on because of it
	Limits           []forkcore.RateLimit
}

func (s *Server) fillProvider(ctx context.Context, v providerView) providerView {
	p := s.o.Provider
	v.Simulated, v.Model, v.CanCheck, v.Key = s.o.Simulated, p.Model, p.Account != nil, "no key"
	v.Endpoint = p.host()
	if key := p.shownKey(); key != "" {
		v.Key = key
	} else if p.HasKey != nil && p.HasKey() {
		v.Key = "a short one, of which nothing is shown"
	}
	v.ProbeCost = s.probeCost()
	if known, err := s.account(ctx); err == nil {
		v.Account = s.accountView(known)
	}
	return v
}

// account is what is known about the key in use.
func (s *Server) account(ctx context.Context) (forkcore.ProviderAccount, error) {
	if s.o.Provider.Account == nil {
		return forkcore.ProviderAccount{}, nil
	}
	return s.o.Provider.Account.ProviderAccount(ctx)
}

func (s *Server) accountView(a forkcore.ProviderAccount) accountView {
	v := accountView{Refused: a.Refused, RefusedAt: a.RefusedAt, Limits: a.Limits, LimitsAt: a.LimitsAt}
	if a.CoolUntil.After(s.o.Now()) {
		v.CoolUntil = a.CoolUntil
	}
	if a.Waiting > 0 {
		v.Waiting = counted(a.Waiting, "run")
	}
	return v
}

const (
	// probePrefix is about how many tokens a probe writes and reads where the model's minimum is not known (it takes the
	// largest minimum there is, and half of it more), probeOutput how many the two answers have.
	probePrefix = 6_200
	probeOutput = 32
)

// probeCost is about what the two requests of a cache probe cost.
func (s *Server) probeCost() string {
	if s.o.Simulated {
		return "nothing: the model is simulated"
	}
	if s.o.Prices == nil {
		return "an amount that is not known"
	}
	info, priced := s.o.Prices.ModelAt(s.o.Provider.Model, s.o.Now())
	if !priced {
		return "an amount that is not known"
	}
	prefix := info.MinCacheable * 3 / 2
	if info.MinCacheable == 0 {
		prefix = probePrefix
	}
	return "about " + forkcore.Dollars(info.Cost(forkcore.Usage{CacheWrite5m: prefix, CacheRead: prefix, Output: probeOutput}))
}

func (s *Server) providerPage(c echo.Context) error {
	return s.drawProvider(c, http.StatusOK, providerPageView{})
}

// providerPageView is the page about the endpoint and its key.
type providerPageView struct {
	Provider providerView
	KeyError string // why the new key is not used
}

func (s *Server) drawProvider(c echo.Context, status int, v providerPageView) error {
	v.Provider = s.fillProvider(c.Request().Context(), v.Provider)
	if isHTMX(c) {
		return s.render(c, status, providerParts(v))
	}
	return s.render(c, status, providerPage(s.frame(c, "Key and limits"), v))
}

// checkProvider asks the endpoint and draws the answer in place, or the page about it for a browser without scripts.
func (s *Server) checkProvider(c echo.Context) error {
	if s.o.Provider.Account == nil {
		return &forkcore.ConflictError{Message: "There is no endpoint to check.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
	}
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	probe := sent.Get("probe") != ""
	check, resumed, err := s.o.Provider.Account.CheckProvider(c.Request().Context(), s.o.Provider.Model, probe)
	if err != nil {
		return fmt.Errorf("checking the provider: %w", err)
	}
	v := s.newCheckView(check, s.o.Provider.Model, probe)
	v.Resumed = resumedSentence(resumed, false)
	if s.o.Simulated && check.Outcome == forkcore.ProviderOK {
		v.NextStep = "It is the simulated model that answered: this says nothing about a key."
		if v.Kind == "success" {
			v.Kind = ""
		}
	}
	if isHTMX(c) && sent.Get("banner") != "" {
		return s.render(c, http.StatusOK, providerBanner(s.checkedBanner(c, v)))
	}
	c.Response().Header().Set("HX-Trigger", providerChanged)
	if isHTMX(c) && sent.Get("page") == "" {
		return s.render(c, http.StatusOK, checkResult(v))
	}
	return s.drawProvider(c, http.StatusOK, providerPageView{Provider: providerView{Result: v}})
}

// replaceKey checks another key and uses it when it works. The key is in no answer.
func (s *Server) replaceKey(c echo.Context) error {
	if s.o.Provider.Account == nil {
		return &forkcore.ConflictError{Message: "There is no endpoint whose key could be replaced.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
	}
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	key := strings.TrimSpace(sent.Get("api_key"))
	if key == "" {
		return s.drawProvider(c, http.StatusUnprocessableEntity, providerPageView{KeyError: "Paste a key first."})
	}
	check, resumed, err := s.o.Provider.Account.ReplaceKey(c.Request().Context(), key)
	if err == nil {
		err = api.KeyProblem(check, key)
	}
	if err != nil {
		p := api.ProblemOf(err)
		if p.Status >= http.StatusInternalServerError {
			return err
		}
		text := p.Detail + " " + p.NextStep
		if len(p.Errors) > 0 {
			text = "The key " + p.Errors[0].Message + "."
		}
		return s.drawProvider(c, p.Status, providerPageView{KeyError: text})
	}
	c.Response().Header().Set("HX-Trigger", providerChanged+", key-replaced")
	v := s.newCheckView(check, s.o.Provider.Model, true)
	v.Headline, v.Resumed = "The new key is in use.", resumedSentence(resumed, true)
	return s.drawProvider(c, http.StatusOK, providerPageView{Provider: providerView{Result: v}})
}

// resumedSentence says what goes on; fresh: with another key, for which nothing is cached.
func resumedSentence(resumed int, fresh bool) string {
	var text string
	switch {
	case resumed == 1:
		text = "1 run goes on."
	case resumed > 1:
		text = fmt.Sprintf("%d runs go on.", resumed)
	}
	if fresh {
		text = strings.TrimSpace(text + " Caches are cold: the first request of each conversation writes its prefix anew.")
	}
	return text
}

// bannerView is the one banner of every page while the key is refused.
type bannerView struct {
	// State differs whenever the banner does; empty: there is none.
	State   string
	Key     string
	Account accountView
	// ProbeCost is about what a check costs.
	ProbeCost string
	// Checked is what a check from the banner came to: that it is over, or why not.
	Checked string
}

// bannerOver is the state of a banner that says only that it is over: the next look takes it away.
const bannerOver = "over"

// checkedBanner is the banner after a check that somebody asked for in it.
func (s *Server) checkedBanner(c echo.Context, check *checkView) bannerView {
	v := s.banner(c)
	if v.State == "" {
		v.State = bannerOver
	}
	v.Checked = strings.Join(slices.DeleteFunc([]string{check.Headline, check.Resumed, check.NextStep}, func(s string) bool { return s == "" }), " ")
	return v
}

// providerChanged is the event upon which a page asks for its banner at once.
const providerChanged = "provider-changed"

// bannerPatience is how long a page waits for the state of the key: a page without its banner is better than none.
const bannerPatience = 300 * time.Millisecond

// banner is the state of the key for people who are signed in.
func (s *Server) banner(c echo.Context) bannerView {
	ctx, cancel := context.WithTimeout(c.Request().Context(), bannerPatience)
	defer cancel()
	known, err := s.account(ctx)
	if err != nil || known.Refused == nil {
		return bannerView{}
	}
	v := bannerView{State: fmt.Sprintf("%d-%d", known.RefusedAt.UnixMilli(), known.Waiting), Account: s.accountView(known)}
	v.Key, v.ProbeCost = s.o.Provider.shownKey(), s.probeCost()
	return v
}

// bannerPart draws the banner anew when it differs from what the page has. Pages ask every ten seconds while they are
// seen: the key belongs to no session, so no stream of a page tells about it, and most pages have none.
func (s *Server) bannerPart(c echo.Context) error {
	v := s.banner(c)
	if v.State == c.QueryParam("state") {
		return c.NoContent(http.StatusNoContent)
	}
	return s.render(c, http.StatusOK, providerBanner(v))
}

// newCheckView puts a check of the endpoint for a model into words.
func (s *Server) newCheckView(c forkcore.ProviderCheck, model string, probed bool) *checkView {
	v := &checkView{Kind: "error", Detail: c.Detail, Limits: c.Limits}
	switch c.Outcome {
	case forkcore.ProviderOK:
		models := modelsText(c)
		v.Kind, v.Headline = "success", fmt.Sprintf("It works: the endpoint offers %s, %s among them.", models, model)
		if !c.Offered {
			v.Kind, v.Headline = "warning", fmt.Sprintf("The endpoint answers, but %s is not among the %s that it offers.", model, models)
			v.NextStep = "Name one that it offers in FORKYARD_MODEL, or when you make a session."
		}
		if p := c.Probe; p != nil && v.Kind == "success" {
			switch api.ProbeOutcomeOf(*p) {
			case api.ProbeFailed:
				v.Kind, v.Headline, v.NextStep = "error", "The key is taken, but a request is refused.", "What the endpoint said stands at the cache probe."
			case api.ProbeMissed, api.ProbePartly:
				v.Kind, v.Headline = "warning", "It works, but the cache was not read as it should be."
				v.NextStep = "Check again; if it stays, forks pay for their whole prefix at this endpoint."
			case api.ProbeUnreported:
				v.Headline = "It works; what its cache does is not reported."
			}
		}
	case forkcore.ProviderRefused:
		v.Headline, v.NextStep = "The endpoint refuses the key.", "Check that it is complete, not revoked, made for this endpoint, and has credit; then give another key, or check again."
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
	v.Steps = []stepView{keyStep(c), listStep(c, model), probeStep(c, probed)}
	if c.LooksLike != "" {
		v.Hint = "It answers like " + c.LooksLike
		if s.o.Provider.Setting != nil && s.o.Provider.Setting(c.LooksLike) != "" {
			v.Hint += ": set FORKYARD_ENDPOINT=" + s.o.Provider.Setting(c.LooksLike)
		}
		v.Hint += "."
	}
	return v
}

func modelsText(c forkcore.ProviderCheck) string {
	models := counted(int64(c.Models), "model")
	if c.More {
		return "more than " + models
	}
	return models
}

func keyStep(c forkcore.ProviderCheck) stepView {
	const name = "Key"
	switch c.Outcome {
	case forkcore.ProviderOK:
		if c.Probe.Refusal() != nil {
			return stepView{stepFailed, name, "refused when a request was sent"}
		}
		return stepView{stepOK, name, "accepted"}
	case forkcore.ProviderRefused:
		return stepView{stepFailed, name, "refused"}
	case forkcore.ProviderForeign:
		if c.Probe != nil && c.Probe.Err == nil {
			return stepView{stepOK, name, "accepted"}
		}
	}
	return stepView{stepUnsure, name, "the endpoint did not say"}
}

func listStep(c forkcore.ProviderCheck, model string) stepView {
	const name = "Models"
	switch {
	case c.Outcome == forkcore.ProviderForeign:
		return stepView{stepFailed, name, "no list of models"}
	case c.Outcome != forkcore.ProviderOK:
		return stepView{stepNotDone, name, ""}
	case c.Models == 0 && c.Offered:
		return stepView{stepUnsure, name, "no list; " + model + " answers"}
	case !c.Offered:
		return stepView{stepFailed, name, modelsText(c) + ", " + model + " not among them"}
	}
	return stepView{stepOK, name, modelsText(c) + ", " + model + " among them"}
}

func probeStep(c forkcore.ProviderCheck, probed bool) stepView {
	const name = "Cache"
	p := c.Probe
	if p == nil {
		if !probed {
			return stepView{stepNotDone, name, "nothing was to be spent"}
		}
		return stepView{stepNotDone, name, ""}
	}
	cost := "; no price is known"
	if p.Cost != nil {
		cost = "; cost " + forkcore.Dollars(*p.Cost)
	}
	switch outcome := api.ProbeOutcomeOf(*p); outcome {
	case api.ProbeFailed:
		return stepView{stepFailed, name, "a request was answered with an error: " + p.Err.Message}
	case api.ProbeUnreported:
		missing := "the second response does not say what it read"
		if !p.FirstKnown {
			missing = "responses do not say what they used"
		}
		return stepView{stepUnsure, name, missing + cost}
	default:
		prefix := grouped(p.PrefixTokens)
		if !p.Counted {
			prefix = "about " + prefix
		}
		state := stepOK
		if outcome != api.ProbeRead {
			state = stepFailed
		}
		return stepView{state, name, fmt.Sprintf("the second request read %s of %s tokens, %s%s", grouped(p.Second.CacheRead), prefix, wholePercent(p.Read()), cost)}
	}
}
