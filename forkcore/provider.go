package forkcore

import "time"

// ProviderOutcome is what a look at a Messages API endpoint came to.
type ProviderOutcome string

// The outcomes of a look at an endpoint.
const (
	ProviderOK          ProviderOutcome = "ok"          // it takes the key
	ProviderRefused     ProviderOutcome = "refused"     // it does not take the key
	ProviderUnreachable ProviderOutcome = "unreachable" // no answer, or none in time
	ProviderForeign     ProviderOutcome = "foreign"     // what answered is not this API, or lists no models
	ProviderLimited     ProviderOutcome = "limited"     // it takes no more requests for now
	ProviderFailing     ProviderOutcome = "failing"     // it answered with an error of its own
)

// ProviderCheck is what an endpoint said when it was asked for its models, which costs no tokens, and, if that was
// wanted, what became of a cache probe.
type ProviderCheck struct {
	Outcome ProviderOutcome
	// Endpoint is the kind of endpoint it was taken for (Traits.Name); LooksLike is another kind that its answers look
	// like, "" = none: then the setting is probably wrong.
	Endpoint, LooksLike string
	// Models is how many models were listed; More: there are further ones.
	Models int
	More   bool
	// Offered reports whether the model that was asked for can be used. Only with ProviderOK.
	Offered bool
	// Probe is nil when none was asked for, or the check ended before it.
	Probe *CacheProbe
	// Limits are what the responses' headers told; nil = nothing.
	Limits []RateLimit
	// Detail is the endpoint's or the transport's own text, without the key; empty with ProviderOK.
	Detail string
}

// CacheProbe is what two small requests with one fresh marked prefix measured: the first writes it, the second should read it.
type CacheProbe struct {
	// Err is what the endpoint said against one of the requests; nil = both were answered.
	Err *ModelError
	// First and Second are their usage. FirstKnown and SecondKnown are false where none was reported.
	First, Second           Usage
	FirstKnown, SecondKnown bool
	// PrefixTokens is what the second could have read at most: counted when the first reported it, else estimated.
	PrefixTokens int64
	Counted      bool
	// Cost of both in nano-dollars; nil = no price.
	Cost *int64
}

// Read is the share of the prefix that the second request read, 0 to 1; nil when the endpoint did not say.
func (p CacheProbe) Read() *float64 {
	if p.Err != nil || !p.SecondKnown {
		return nil
	}
	return fraction(min(p.Second.CacheRead, p.PrefixTokens), p.PrefixTokens)
}

// Refusal is the error of a probe that says that the key is refused; nil = there is none, or no probe.
func (p *CacheProbe) Refusal() *ModelError {
	if p == nil || p.Err == nil || !p.Err.KeyRefused {
		return nil
	}
	return p.Err
}

// ProviderAccount is what all processes know together about one key at one endpoint. The key itself is not in it.
type ProviderAccount struct {
	// ID is Scope.Account.
	ID string
	// Refused says why no request with this key succeeds; nil = as far as known they do. RefusedAt is since when.
	Refused   *Reason
	RefusedAt time.Time
	// CoolUntil is when the provider wants requests again; zero or past = now.
	CoolUntil time.Time
	// Limits are the latest that a response told, at LimitsAt.
	Limits   []RateLimit
	LimitsAt time.Time
	// Waiting counts the runs that wait for the key.
	Waiting int64
	// Successor is the account that replaced this one; empty = none.
	Successor string
}
