package forkcore

// Rates are prices in nano-dollars per token, one for each usage class.
type Rates struct {
	Input, Output, Write5m, Write1h, Read int64
}

// Write is the price of a token written for a lifetime: "1h", or "5m" (also when empty).
func (r Rates) Write(ttl string) int64 {
	if ttl == "1h" {
		return r.Write1h
	}
	return r.Write5m
}

// WithoutWriteSurcharge prices writes like plain input, as some accounts of
// prompt caching do.
func (r Rates) WithoutWriteSurcharge() Rates {
	r.Write5m, r.Write1h = r.Input, r.Input
	return r
}

// Uncached prices every token of input like plain input: what a prefix costs
// that is too short to be cached, or that nobody caches.
func (r Rates) Uncached() Rates {
	r.Write5m, r.Write1h, r.Read = r.Input, r.Input, r.Input
	return r
}

// TokenRates counts in thousandths of a token at the input price, with the
// provider's usual multipliers: 1.25 and 2 for writes, 0.1 for reads. It serves
// where a model has no price, and to check arithmetic by hand.
var TokenRates = Rates{Input: 1000, Output: 5000, Write5m: 1250, Write1h: 2000, Read: 100}

// TokenEquivalents turns a price into tokens at the input price, rounded half up;
// 0 without an input price.
func (r Rates) TokenEquivalents(nanoUSD int64) int64 {
	if r.Input <= 0 {
		return 0
	}
	return (2*nanoUSD + r.Input) / (2 * r.Input)
}

// WriteBreakEven says how often a prefix must be used, the writing request
// included, before a cache pays for its write: more than (w−r)/(1−r) times.
// hundredths is that bound times 100, rounded half up, uses the first whole number
// above it. Both are 0 where reading is not cheaper than plain input.
func (r Rates) WriteBreakEven(ttl string) (uses, hundredths int64) {
	above, below := r.Write(ttl)-r.Read, r.Input-r.Read
	if below <= 0 {
		return 0, 0
	}
	return above/below + 1, (200*above + below) / (2 * below)
}

// Cost prices a usage. Reads and writes are classes of their own, so nothing
// is counted twice.
func (r Rates) Cost(u Usage) int64 {
	return u.Input*r.Input + u.CacheWrite5m*r.Write5m + u.CacheWrite1h*r.Write1h + u.CacheRead*r.Read + u.Output*r.Output
}
