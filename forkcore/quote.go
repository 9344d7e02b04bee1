package forkcore

import "fmt"

// FanOut is the arithmetic of one fan-out's first requests, in tokens.
type FanOut struct {
	Children int64
	// Held is what the longest live entry holds (P), Delta the rest of the
	// shared prefix (Δ), Own the sum of the children's own blocks.
	Held, Delta, Own int64
	// TTL is the lifetime of what is written: "1h", or "5m" (also when empty).
	TTL   string
	Rates Rates
}

// Gated is the price with one leader: everybody reads what is held, the leader
// writes the rest once, the others read it, each pays for its own block.
// N·r·P + w·Δ + (N−1)·r·Δ + own.
func (f FanOut) Gated() int64 {
	if f.Children == 0 {
		return 0
	}
	return f.Children*f.Rates.Read*f.Held + f.writtenOnce() + f.Rates.Input*f.Own
}

// writtenOnce is the rest of the shared prefix with one writer.
func (f FanOut) writtenOnce() int64 {
	return f.Rates.Write(f.TTL)*f.Delta + (f.Children-1)*f.Rates.Read*f.Delta
}

// Ungated is the price when all start at once: each writes the rest itself.
func (f FanOut) Ungated() int64 {
	return f.Children*(f.Rates.Read*f.Held+f.Rates.Write(f.TTL)*f.Delta) + f.Rates.Input*f.Own
}

// Unshared is the price of the same input with no cache at all.
func (f FanOut) Unshared() int64 {
	return f.Rates.Input * (f.Children*(f.Held+f.Delta) + f.Own)
}

// GateSaving is what a gate saves: (N−1)·(w−r)·Δ.
func (f FanOut) GateSaving() int64 { return f.Ungated() - f.Gated() }

// Minimum is the theoretical minimum of the first requests: everything that an
// earlier or leading request wrote is read, everything else is written once or
// paid once, whichever is cheaper. A child alone writes nothing, as nobody
// would read it.
func (f FanOut) Minimum() int64 {
	rest := min(f.writtenOnce(), f.Children*f.Rates.Input*f.Delta)
	return f.Children*f.Rates.Read*f.Held + rest + f.Rates.Input*f.Own
}

// Cold is the same fan-out with nothing held: the leader reads nothing.
func (f FanOut) Cold() FanOut {
	f.Held, f.Delta = 0, f.Held+f.Delta
	return f
}

// Warm is the same fan-out with the whole shared prefix held.
func (f FanOut) Warm() FanOut {
	f.Held, f.Delta = f.Held+f.Delta, 0
	return f
}

// Quote is the price of a fan-out's first requests before it is sent, in
// integer nano-dollars; nil costs mean the model has no price.
type Quote struct {
	Model           string `json:"model"`
	Children        int    `json:"children"`
	PrefixTokens    int64  `json:"prefix_tokens"`    // already held by the longest live entry (0 when cold)
	SharedTokens    int64  `json:"shared_tokens"`    // the whole shared prefix, boilerplate included
	DirectiveTokens int64  `json:"directive_tokens"` // sum over children
	Exact           bool   `json:"exact"`            // false: token counts are estimated from bytes
	Warm            bool   `json:"warm"`             // an entry is alive now
	ColdNanoUSD     *int64 `json:"cold_nanousd"`     // leader writes all, followers read
	WarmNanoUSD     *int64 `json:"warm_nanousd"`     // leader reads the live entry
	UngatedNanoUSD  *int64 `json:"ungated_nanousd"`  // all at once, at the present temperature
	UnsharedNanoUSD *int64 `json:"unshared_nanousd"` // no cache at all
	SavingNanoUSD   *int64 `json:"saving_nanousd"`   // what the gate saves at the present temperature
	Gate            bool   `json:"gate"`             // whether the dispatch would be gated

	MinimumNanoUSD     *int64 `json:"minimum_nanousd"`      // FanOut.Minimum at the present temperature
	ColdHourNanoUSD    *int64 `json:"cold_1h_nanousd"`      // as cold, with writes that last an hour
	ColdUngatedNanoUSD *int64 `json:"cold_ungated_nanousd"` // all at once with nothing held
	// ReserveNanoUSD is what budgets must have left for each request in flight: it may cost that much at most, and
	// holds it until its cost is known.
	ReserveNanoUSD *int64 `json:"reserve_nanousd"`
	// TooShort says that the shared prefix is under the model's minimum, so that nothing is cached and nothing can miss.
	TooShort           bool  `json:"too_short"`
	MinCacheableTokens int64 `json:"min_cacheable_tokens"` // 0 = not known
	// ColdNote says, when nothing is held, about how many dollars that costs before anything is sent; empty when warm.
	ColdNote string `json:"cold_note,omitempty"`
	// SharedBytes is what all children have in common, Unique what each has alone, in order of the directives.
	SharedBytes int64    `json:"shared_bytes"`
	Unique      []Unique `json:"unique,omitempty"`
	Window      *Window  `json:"window,omitempty"`
	// BreakEven, Advice and PerTurn compare forks with named agents and with doing the work in the conversation itself.
	BreakEven *BreakEven `json:"break_even,omitempty"`
	Advice    *Advice    `json:"advice,omitempty"`
	PerTurn   []TurnCost `json:"per_turn,omitempty"`
}

// Unique is what makes one child's first request differ from its siblings'.
type Unique struct {
	Bytes  int64 `json:"bytes"`
	Tokens int64 `json:"tokens"`
}

// Expected is the price of the fan-out as it would be sent now; nil without a price.
func (q Quote) Expected() *int64 {
	if q.Children > 1 && !q.Gate {
		return q.UngatedNanoUSD
	}
	if q.Warm {
		return q.WarmNanoUSD
	}
	return q.ColdNanoUSD
}

// cacheRates picks the rates of a request of total tokens whose first prefix
// tokens are to be cached. Under the model's minimum nothing is written and
// nothing can be read.
func cacheRates(info ModelInfo, prefix, total int64) Rates {
	r := info.RatesFor(total)
	if prefix < info.MinCacheable {
		return r.Uncached()
	}
	return r
}

// ColdStart is what the next request of a conversation pays for writing a prefix
// again whose entry has run out, for the same lifetime.
func ColdStart(info ModelInfo, e CacheEntry) int64 {
	return cacheRates(info, e.Tokens, e.Tokens).Write(e.TTL) * e.Tokens
}

// NewQuote prices a fan-out of these directives over a snapshot before it is
// sent. best is the longest live entry that prefixes the snapshot, nil when
// cold. Token counts come from the entry where the provider counted it, and from bytes (4 a
// token) for the rest.
func NewQuote(info ModelInfo, priced bool, s Snapshot, best *CacheEntry, directives [][]byte, mode GateMode, jobs Jobs) Quote {
	q := Quote{Model: s.Params.Model, Children: len(directives), Warm: best != nil, SharedBytes: s.Bytes}
	f := FanOut{Children: int64(len(directives))}
	if best != nil {
		f.Held = best.Tokens
		f.Delta = EstimateTokens(s.Bytes - best.Bytes)
		q.Exact = best.Exact && best.Bytes == s.Bytes
	} else {
		f.Delta = EstimateTokens(s.Bytes)
	}
	longest := 0
	for i, d := range directives {
		u := Unique{Bytes: int64(len(d)), Tokens: EstimateTokens(int64(len(d)))}
		f.Own += u.Tokens
		q.Unique = append(q.Unique, u)
		if u.Tokens > q.Unique[longest].Tokens {
			longest = i
		}
	}
	q.PrefixTokens, q.SharedTokens, q.DirectiveTokens = f.Held, f.Held+f.Delta, f.Own
	q.MinCacheableTokens, q.TooShort = info.MinCacheable, q.SharedTokens < info.MinCacheable
	var most int64
	if len(directives) > 0 {
		most = q.Unique[longest].Tokens
	}
	q.Window = newWindow(info, q, longest, most, s.Params.MaxTokens)
	if priced {
		f.Rates = cacheRates(info, q.SharedTokens, q.SharedTokens+most)
		hour := f.Cold()
		hour.TTL = "1h"
		cold, coldUngated, coldHour := f.Cold().Gated(), f.Cold().Ungated(), hour.Gated()
		ungated, unshared, saving, minimum := f.Ungated(), f.Unshared(), f.GateSaving(), f.Minimum()
		q.ColdNanoUSD, q.UngatedNanoUSD, q.UnsharedNanoUSD, q.SavingNanoUSD = &cold, &ungated, &unshared, &saving
		q.MinimumNanoUSD, q.ColdHourNanoUSD, q.ColdUngatedNanoUSD = &minimum, &coldHour, &coldUngated
		if best != nil {
			warm := f.Gated()
			q.WarmNanoUSD = &warm
		}
	}
	q.Gate = gated(mode, q)
	q.ColdNote = coldNote(q, f)
	if q.Children > 0 {
		c := Comparison{
			Info: info, Priced: priced, FanOut: f, Gate: q.Gate, Longest: most, Jobs: jobs,
			Head: segmentTokens(s, false), Guards: segmentTokens(s, true),
		}
		b, a := c.BreakEven(), Advise(c)
		q.BreakEven, q.Advice, q.PerTurn = &b, &a, c.PerTurn()
	}
	return q
}

// segmentTokens estimates the request head (tools and system prompt), or what
// only forks carry: the placeholders and rules of the open last segment.
func segmentTokens(s Snapshot, open bool) int64 {
	if len(s.Segments) == 0 {
		return 0
	}
	seg := s.Segments[0]
	if open {
		if seg = s.Segments[len(s.Segments)-1]; !seg.Open {
			return 0
		}
	}
	return EstimateTokens(seg.Bytes)
}

// coldNote says what a cold start costs.
func coldNote(q Quote, f FanOut) string {
	if q.Warm || q.Children == 0 {
		return ""
	}
	cost := q.Expected()
	switch {
	case q.TooShort && cost != nil:
		return fmt.Sprintf("Too short to cache, about %s before any answer: the forks share %s, and %s keeps prefixes from %s on.",
			Dollars(*cost), tokensText(q.SharedTokens), q.Model, tokensText(q.MinCacheableTokens))
	case q.TooShort:
		return fmt.Sprintf("Too short to cache: the forks share %s, and %s keeps prefixes from %s on.", tokensText(q.SharedTokens), q.Model, tokensText(q.MinCacheableTokens))
	case cost == nil:
		return fmt.Sprintf("Cold: %s are written before anything can be read. No price is known for %s.", tokensText(q.SharedTokens), q.Model)
	}
	return fmt.Sprintf("Cold, about %s before any answer: %s are written first. Were they held, it would be about %s.",
		Dollars(*cost), tokensText(q.SharedTokens), Dollars(f.Warm().Gated()))
}

// gated decides whether a dispatch gets a gate. A fan-out of one has none;
// auto gates when it saves at least GateMinSaving, and when no price is known.
func gated(mode GateMode, q Quote) bool {
	if q.Children < 2 {
		return false
	}
	switch mode {
	case GateOff:
		return false
	case GateAlways:
		return true
	}
	return q.SavingNanoUSD == nil || *q.SavingNanoUSD >= GateMinSaving
}
