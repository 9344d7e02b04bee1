package forkcore

// Usage counts tokens in disjoint classes, as the provider bills them.
// Source: Messages API usage object; input_tokens there is the uncached rest.
type Usage struct {
	Input        int64 `json:"input_tokens"`
	CacheWrite5m int64 `json:"cache_creation_5m_tokens"`
	CacheWrite1h int64 `json:"cache_creation_1h_tokens"`
	CacheRead    int64 `json:"cache_read_tokens"`
	Output       int64 `json:"output_tokens"`
}

// TotalInput is everything the model read: uncached, written and read.
func (u Usage) TotalInput() int64 {
	return u.Input + u.CacheWrite5m + u.CacheWrite1h + u.CacheRead
}

// Cached is the token count at the last mark of the request: what an entry
// now holds, read plus written.
func (u Usage) Cached() int64 { return u.CacheWrite5m + u.CacheWrite1h + u.CacheRead }

// Add returns the sum, class by class.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input:        u.Input + v.Input,
		CacheWrite5m: u.CacheWrite5m + v.CacheWrite5m,
		CacheWrite1h: u.CacheWrite1h + v.CacheWrite1h,
		CacheRead:    u.CacheRead + v.CacheRead,
		Output:       u.Output + v.Output,
	}
}

// Cost is money in integer nano-dollars (1e-9 USD), or partly unknown.
type Cost struct {
	NanoUSD int64
	// Unpriced counts the requests whose model has no price or whose usage is
	// unknown; above 0 the sum is shown as unknown, never as a smaller number.
	Unpriced int64
}

// Known returns the sum, or nil when a part of it has no price.
func (c Cost) Known() *int64 {
	if c.Unpriced > 0 {
		return nil
	}
	n := c.NanoUSD
	return &n
}

// Add returns the sum of both.
func (c Cost) Add(d Cost) Cost {
	return Cost{NanoUSD: c.NanoUSD + d.NanoUSD, Unpriced: c.Unpriced + d.Unpriced}
}

// EstimateTokens guesses the tokens of n bytes at 4 bytes a token, for use
// until a provider's count is seen; callers label it as an estimate.
func EstimateTokens(n int64) int64 { return (n + 3) / 4 }
