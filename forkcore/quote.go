package forkcore

// FanOut is the arithmetic of one fan-out's first requests, in tokens.
type FanOut struct {
	Children int64
	// Held is what the longest live entry holds (P), Delta the rest of the
	// shared prefix (Δ), Own the sum of the children's own blocks.
	Held, Delta, Own int64
	Rates            Rates
}

// Gated is the price with one leader: everybody reads what is held, the leader
// writes the rest once, the others read it, each pays for its own block.
// N·r·P + w·Δ + (N−1)·r·Δ + own.
func (f FanOut) Gated() int64 {
	if f.Children == 0 {
		return 0
	}
	return f.Children*f.Rates.Read*f.Held + f.Rates.Write5m*f.Delta + (f.Children-1)*f.Rates.Read*f.Delta + f.Rates.Input*f.Own
}

// Ungated is the price when all start at once: each writes the rest itself.
func (f FanOut) Ungated() int64 {
	return f.Children*(f.Rates.Read*f.Held+f.Rates.Write5m*f.Delta) + f.Rates.Input*f.Own
}

// Unshared is the price of the same input with no cache at all.
func (f FanOut) Unshared() int64 {
	return f.Rates.Input * (f.Children*(f.Held+f.Delta) + f.Own)
}

// Cold is the same fan-out with nothing held.
func (f FanOut) Cold() FanOut {
	f.Held, f.Delta = 0, f.Held+f.Delta
	return f
}

// NewQuote prices a fan-out of these directives over a snapshot before it is
// sent. best is the longest live entry that prefixes the snapshot, nil when
// cold. Token counts come from the entry where the provider counted it, and from bytes (4 a
// token) for the rest.
func NewQuote(info ModelInfo, priced bool, s Snapshot, best *CacheEntry, directives [][]byte, mode GateMode) Quote {
	q := Quote{Model: s.Params.Model, Children: len(directives), Warm: best != nil}
	f := FanOut{Children: int64(len(directives))}
	if best != nil {
		f.Held = best.Tokens
		f.Delta = EstimateTokens(s.Bytes - best.Bytes)
		q.Exact = best.Exact && best.Bytes == s.Bytes
	} else {
		f.Delta = EstimateTokens(s.Bytes)
	}
	var longest int64
	for _, d := range directives {
		own := EstimateTokens(int64(len(d)))
		f.Own += own
		longest = max(longest, own)
	}
	q.PrefixTokens, q.SharedTokens, q.DirectiveTokens = f.Held, f.Held+f.Delta, f.Own
	if priced {
		f.Rates = info.RatesFor(q.SharedTokens + longest)
		if q.SharedTokens < info.MinCacheable {
			// Too short to be cached: nothing is written, nothing can be read.
			f.Rates.Write5m, f.Rates.Write1h, f.Rates.Read = f.Rates.Input, f.Rates.Input, f.Rates.Input
		}
		cold := f.Cold().Gated()
		ungated, unshared := f.Ungated(), f.Unshared()
		saving := ungated - f.Gated()
		q.ColdNanoUSD, q.UngatedNanoUSD, q.UnsharedNanoUSD, q.SavingNanoUSD = &cold, &ungated, &unshared, &saving
		if best != nil {
			warm := f.Gated()
			q.WarmNanoUSD = &warm
		}
	}
	q.Gate = gated(mode, q)
	return q
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
