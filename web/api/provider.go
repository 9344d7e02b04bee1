package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// Provider is the endpoint in use and its key.
type Provider interface {
	// ProviderAccount is what is known about the key in use. The zero value: there is none to know about.
	ProviderAccount(ctx context.Context) (forkcore.ProviderAccount, error)
	// CheckProvider asks the endpoint, with probe by two small requests as well; resumed counts the runs that waited for
	// the key and go on because it works. Model "" is the default one.
	CheckProvider(ctx context.Context, model string, probe bool) (check forkcore.ProviderCheck, resumed int, err error)
	// ReplaceKey checks another key with a probe and uses it when it works; else nothing changes and check says why.
	ReplaceKey(ctx context.Context, key string) (check forkcore.ProviderCheck, resumed int, err error)
}

// Endpoint is what callers are told of the endpoint in use.
type Endpoint struct {
	Host string // empty: the simulated model inside this program
	// KeyEnd gives the last four characters of the key in use, "" without one or when it is too short; nil: "".
	KeyEnd func() string
	// AccountID gives Scope.Account of the key in use, "" when it is not known; nil: "".
	AccountID func() string
}

// providerCheck is a check in JSON.
type providerCheck struct {
	Outcome    forkcore.ProviderOutcome `json:"outcome"`
	Endpoint   *string                  `json:"endpoint"`
	LooksLike  *string                  `json:"looks_like"`
	Models     int                      `json:"models"`
	MoreModels bool                     `json:"more_models"`
	Offered    bool                     `json:"offered"`
	Detail     *string                  `json:"detail"`
	Probe      *cacheProbe              `json:"probe"`
	RateLimits []rateLimit              `json:"rate_limits"`
	Resumed    int                      `json:"resumed"`
}

// cacheProbe is what two requests with one fresh prefix measured.
type cacheProbe struct {
	Outcome      ProbeOutcome    `json:"outcome"`
	Read         *float64        `json:"read"`
	PrefixTokens int64           `json:"prefix_tokens"`
	Counted      bool            `json:"counted"`
	First        *forkcore.Usage `json:"first"`
	Second       *forkcore.Usage `json:"second"`
	CostNanoUSD  *int64          `json:"cost_nanousd"`
	Error        *string         `json:"error"`
}

// ProbeOutcome is what a cache probe came to, in one word.
type ProbeOutcome string

// The outcomes of a cache probe.
const (
	ProbeRead       ProbeOutcome = "read"       // the second request read the whole prefix
	ProbePartly     ProbeOutcome = "partly"     // it read a part
	ProbeMissed     ProbeOutcome = "missed"     // it read nothing
	ProbeUnreported ProbeOutcome = "unreported" // the endpoint did not say
	ProbeFailed     ProbeOutcome = "failed"     // a request was not answered
)

// ProbeOutcomeOf sums a probe up.
func ProbeOutcomeOf(p forkcore.CacheProbe) ProbeOutcome {
	switch read := p.Read(); {
	case p.Err != nil:
		return ProbeFailed
	case read == nil:
		return ProbeUnreported
	case *read <= 0:
		return ProbeMissed
	// A prefix length that was estimated from bytes may be off by a tenth.
	case *read < 1 && (p.Counted || *read < 0.9):
		return ProbePartly
	}
	return ProbeRead
}

// rateLimit is a limit as the provider told it.
type rateLimit struct {
	Name      string  `json:"name"`
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	ResetAt   *string `json:"reset_at"`
}

func rateLimits(limits []forkcore.RateLimit) []rateLimit {
	out := []rateLimit{}
	for _, l := range limits {
		out = append(out, rateLimit{Name: l.Name, Limit: l.Limit, Remaining: l.Remaining, ResetAt: stamp(l.Reset)})
	}
	return out
}

func checkView(c forkcore.ProviderCheck, resumed int) providerCheck {
	v := providerCheck{
		Outcome: c.Outcome, Endpoint: orNull(c.Endpoint), LooksLike: orNull(c.LooksLike), Models: c.Models, MoreModels: c.More,
		Offered: c.Offered, Detail: orNull(c.Detail), RateLimits: rateLimits(c.Limits), Resumed: resumed,
	}
	if p := c.Probe; p != nil {
		v.Probe = &cacheProbe{Outcome: ProbeOutcomeOf(*p), Read: p.Read(), PrefixTokens: p.PrefixTokens, Counted: p.Counted, CostNanoUSD: p.Cost}
		if p.FirstKnown {
			v.Probe.First = &p.First
		}
		if p.SecondKnown {
			v.Probe.Second = &p.Second
		}
		if p.Err != nil {
			v.Probe.Error = orNull(p.Err.Message)
		}
	}
	return v
}

// account is the state of the key in use in JSON.
type account struct {
	State      string           `json:"state"` // ok or refused
	Reason     *forkcore.Reason `json:"reason"`
	RefusedAt  *string          `json:"refused_at"`
	CoolUntil  *string          `json:"cool_until"` // null unless it is to come
	RateLimits []rateLimit      `json:"rate_limits"`
	LimitsAt   *string          `json:"rate_limits_at"`
	Waiting    int64            `json:"waiting"`
	Endpoint   *string          `json:"endpoint"`
	KeyEnd     *string          `json:"key_end"`
	Simulated  bool             `json:"simulated"`
}

func (a *API) getProvider(c echo.Context) error {
	known, err := a.account(c.Request().Context())
	if err != nil {
		return err
	}
	v := account{
		State: "ok", Reason: known.Refused, RefusedAt: stamp(known.RefusedAt), RateLimits: rateLimits(known.Limits), LimitsAt: stamp(known.LimitsAt),
		Waiting: known.Waiting, Endpoint: orNull(a.endpoint.Host), Simulated: a.simulated,
	}
	if known.Refused != nil {
		v.State = "refused"
	}
	if known.CoolUntil.After(a.now()) {
		v.CoolUntil = stamp(known.CoolUntil)
	}
	if a.endpoint.KeyEnd != nil {
		v.KeyEnd = orNull(a.endpoint.KeyEnd())
	}
	return c.JSON(http.StatusOK, v)
}

// accountID is Scope.Account of the key in use, empty when it is not known.
func (a *API) accountID() string {
	if a.endpoint.AccountID == nil {
		return ""
	}
	return a.endpoint.AccountID()
}

func (a *API) account(ctx context.Context) (forkcore.ProviderAccount, error) {
	if a.provider == nil {
		return forkcore.ProviderAccount{}, nil
	}
	return a.provider.ProviderAccount(ctx)
}

// noProvider is the answer where there is no endpoint to ask.
func noProvider() error {
	return &forkcore.ConflictError{Message: "There is no endpoint to check.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
}

// lookAtProvider checks without spending anything.
func (a *API) lookAtProvider(c echo.Context) error {
	return a.answerCheck(c, strings.TrimSpace(c.QueryParam("model")), false)
}

func (a *API) checkProvider(c echo.Context) error {
	wish := struct {
		Model string `json:"model"`
		Probe *bool  `json:"probe"`
	}{}
	if c.Request().ContentLength != 0 {
		if err := decode(c, &wish); err != nil {
			return err
		}
	}
	return a.answerCheck(c, strings.TrimSpace(wish.Model), wish.Probe == nil || *wish.Probe)
}

func (a *API) answerCheck(c echo.Context, model string, probe bool) error {
	if a.provider == nil {
		return noProvider()
	}
	check, resumed, err := a.provider.CheckProvider(c.Request().Context(), model, probe)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, checkView(check, resumed))
}

// replaceKey takes another key. Neither an answer nor an error has it.
func (a *API) replaceKey(c echo.Context) error {
	var wish struct {
		APIKey string `json:"api_key"`
	}
	if err := decode(c, &wish); err != nil {
		return err
	}
	key := strings.TrimSpace(wish.APIKey)
	if key == "" {
		return forkcore.Invalid("api_key", "is missing; give the key that is to be used from now on")
	}
	if a.provider == nil {
		return noProvider()
	}
	check, resumed, err := a.provider.ReplaceKey(c.Request().Context(), key)
	if err != nil {
		return err
	}
	if err := KeyProblem(check, key); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, struct {
		Check   providerCheck `json:"check"`
		Resumed int           `json:"resumed"`
	}{checkView(check, resumed), resumed})
}

// shortKey is a length that no provider's key falls below: those of the Anthropic API have more than 100 characters.
const shortKey = 16

// KeyProblem is why a key that was to replace another one is not used: a *forkcore.InvalidError when the endpoint refuses
// it, a *forkcore.ConflictError when that could not be found out; nil: it is in use. key is left out of what endpoints say.
func KeyProblem(check forkcore.ProviderCheck, key string) error {
	const unchanged = "; the key in use stays"
	short, said := "", func(text string) string { return strings.ReplaceAll(text, key, "[key]") }
	if len(key) < shortKey { // taking its few letters out would leave no readable text
		short = fmt.Sprintf("; what was given has only %d characters, so look whether all of the key was copied", len(key))
		said = func(text string) string { return text }
	}
	switch {
	case check.Outcome == forkcore.ProviderRefused:
		return forkcore.Invalid("api_key", "is refused by the endpoint ("+said(check.Detail)+")"+unchanged+short)
	case check.Probe.Refusal() != nil:
		return forkcore.Invalid("api_key", "is taken, but requests with it are refused ("+said(check.Probe.Refusal().Message)+")"+unchanged)
	case check.Outcome != forkcore.ProviderOK:
		return &forkcore.ConflictError{
			Message:  "The new key could not be checked (" + string(check.Outcome) + ": " + said(check.Detail) + ")" + unchanged + ".",
			NextStep: "Try again when the endpoint answers.",
		}
	}
	return nil
}
