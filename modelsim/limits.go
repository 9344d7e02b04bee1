package modelsim

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits are the rate limits of one organization; a zero field is off. Each key is an organization of its own here.
//
// The three per-minute limits are token buckets: they start full, hold one minute's worth and refill continuously. Tokens
// read from the cache do not count as input. Input is taken when a request is accepted and gives a 429 when the bucket
// holds less than the request needs, so a request that is larger than the bucket is refused for ever. Output is taken when
// the answer ends, may overdraw the bucket, and then holds up later requests.
type Limits struct {
	RequestsPerMinute     int
	InputTokensPerMinute  int
	OutputTokensPerMinute int
	// RampPerSecond is the acceleration limit: at most so many more requests are accepted in any second than were in the
	// second before it. The provider has such a limit and publishes no figures; this shape is the simulator's own.
	RampPerSecond int
}

func (l Limits) on() bool { return l != Limits{} }

// bucket is a token bucket; limit 0 means it is off.
type bucket struct {
	limit int     // tokens per minute, and the most it holds
	level float64 // may be negative
}

// refill adds what came in during d.
func (b *bucket) refill(d time.Duration) {
	b.level = min(float64(b.limit), b.level+d.Minutes()*float64(b.limit))
}

// has reports whether the bucket is off or holds n, give or take what refilling in small steps loses.
func (b *bucket) has(n float64) bool { return b.limit == 0 || b.level >= n-1e-6 }

// until is the time after which the bucket holds n.
func (b *bucket) until(n float64) time.Duration {
	if b.has(n) {
		return 0
	}
	return time.Duration(math.Round((n - b.level) / float64(b.limit) * float64(time.Minute)))
}

// account is what one key has used up.
type account struct {
	requests, input, output bucket
	at                      time.Time   // of the levels
	accepted                []time.Time // in the last two seconds
	credit, spend           int64       // tokens left
}

// accounts holds the keys: which may be used, and what is left of their limits.
type accounts struct {
	limits        Limits
	credit, spend int64

	mu      sync.Mutex
	listed  bool            // only known keys may be used
	known   map[string]bool // by fingerprint: true allowed, false revoked
	byPrint map[string]*account
}

func newAccounts(o *Options) *accounts {
	a := &accounts{
		limits: o.Limits, credit: o.Credit, spend: o.SpendLimit, listed: o.Keys != nil, known: map[string]bool{},
		byPrint: map[string]*account{},
	}
	for _, key := range o.Keys {
		a.known[fingerprint(key)] = true
	}
	return a
}

// allowed reports whether a key with that fingerprint may be used.
func (a *accounts) allowed(print string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok, known := a.known[print]
	return ok || !known && !a.listed
}

func (a *accounts) set(print string, allowed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[print] = allowed
}

// of returns the account of a key with its buckets as of now. a.mu is held.
func (a *accounts) of(print string, now time.Time) *account {
	acc := a.byPrint[print]
	if acc == nil {
		full := func(n int) bucket { return bucket{n, float64(n)} }
		acc = &account{
			requests: full(a.limits.RequestsPerMinute), input: full(a.limits.InputTokensPerMinute), output: full(a.limits.OutputTokensPerMinute),
			at: now, credit: a.credit, spend: a.spend,
		}
		a.byPrint[print] = acc
	}
	if d := now.Sub(acc.at); d > 0 {
		for _, b := range []*bucket{&acc.requests, &acc.input, &acc.output} {
			b.refill(d)
		}
		acc.at = now
	}
	return acc
}

// accept takes a request with that many uncached input tokens, or says why not. A refused request takes nothing.
func (a *accounts) accept(print string, input int, now time.Time) *apiError {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.of(print, now)
	switch {
	case a.credit > 0 && acc.credit <= 0:
		return &apiError{
			status: http.StatusPaymentRequired, kind: "billing_error",
			message: "Your credit balance is too low to access the API. Please go to Plans & Billing to upgrade or purchase credits.",
		}
	case a.spend > 0 && acc.spend <= 0: // no retry-after: time alone does not mend it
		return &apiError{
			status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "enforced_spend_limit_reached",
			message: "You have reached your specified API usage limits.",
		}
	}
	refused := func(limit int, what string, after time.Duration) *apiError {
		return &apiError{
			status: http.StatusTooManyRequests, kind: "rate_limit_error", retryAfter: max(after, time.Second),
			message: fmt.Sprintf("This request would exceed your organization's rate limit of %d %s per minute.", limit, what),
		}
	}
	if b := &acc.requests; !b.has(1) {
		return refused(b.limit, "requests", b.until(1))
	}
	if b := &acc.input; !b.has(float64(input)) {
		return refused(b.limit, "input tokens", b.until(float64(min(input, b.limit))))
	}
	if b := &acc.output; !b.has(1) {
		return refused(b.limit, "output tokens", b.until(1))
	}
	if ramp := a.limits.RampPerSecond; ramp > 0 {
		second, before := 0, 0
		kept := acc.accepted[:0]
		for _, t := range acc.accepted {
			switch age := now.Sub(t); {
			case age < time.Second:
				second++
			case age < 2*time.Second:
				before++
			default:
				continue
			}
			kept = append(kept, t)
		}
		acc.accepted = kept
		if second >= before+ramp {
			return &apiError{
				status: http.StatusTooManyRequests, kind: "rate_limit_error", code: "ramp_limit_exceeded", retryAfter: time.Second,
				message: "Your organization's usage increased too quickly. Ramp up gradually and try again after the time in the retry-after header.",
			}
		}
		acc.accepted = append(acc.accepted, now)
	}
	acc.requests.level--
	acc.input.level -= float64(input)
	return nil
}

// settle books the output of an answer, and all its tokens against credit and spend limit.
func (a *accounts) settle(print string, u Usage, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.of(print, now)
	acc.output.level -= float64(u.OutputTokens)
	n := int64(u.InputTokens + u.CacheCreationInputTokens + u.CacheReadInputTokens + u.OutputTokens)
	acc.credit -= n
	acc.spend -= n
}

// refund gives a key its whole credit and spend limit again.
func (a *accounts) refund(print string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if acc := a.byPrint[print]; acc != nil {
		acc.credit, acc.spend = a.credit, a.spend
	}
}

func (a *accounts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.byPrint)
}

// show sets the rate limit headers: for each limit that is on its size, what is left and when it is whole again. tokens
// are the input and output limits together.
func (a *accounts) show(h http.Header, print string, now time.Time) {
	a.mu.Lock()
	on, acc := a.limits.on(), *a.of(print, now)
	a.mu.Unlock()
	if !on {
		return
	}
	set := func(name string, limit int, left float64, after time.Duration) {
		if limit == 0 {
			return
		}
		h.Set("anthropic-ratelimit-"+name+"-limit", strconv.Itoa(limit))
		h.Set("anthropic-ratelimit-"+name+"-remaining", strconv.Itoa(int(left)))
		h.Set("anthropic-ratelimit-"+name+"-reset", now.Add(after+time.Second-1).UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	thousands := func(n float64) float64 { return 1000 * math.Round(max(0, n)/1000) }
	in, out := &acc.input, &acc.output
	untilIn, untilOut := in.until(float64(in.limit)), out.until(float64(out.limit))
	set("requests", acc.requests.limit, math.Floor(max(0, acc.requests.level)), acc.requests.until(float64(acc.requests.limit)))
	set("input-tokens", in.limit, thousands(in.level), untilIn)
	set("output-tokens", out.limit, thousands(out.level), untilOut)
	set("tokens", in.limit+out.limit, thousands(max(0, in.level)+max(0, out.level)), max(untilIn, untilOut))
}
