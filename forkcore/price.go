package forkcore

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
)

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

// ModelInfo is a model's row in the catalogue.
type ModelInfo struct {
	ID    string
	Rates Rates
	// Above replaces Rates for requests whose total input is over AboveInput tokens; 0 = no such tier.
	AboveInput int64
	Above      Rates
	// MinCacheable is the fewest tokens a prefix needs to be cached; 0 = not known.
	MinCacheable int64
	// Window is how many tokens of input and output one request may have, MaxOutput the most output; 0 = not known.
	Window, MaxOutput int64
}

// RatesFor picks the tier for a request of total input tokens.
func (m ModelInfo) RatesFor(totalInput int64) Rates {
	if m.AboveInput > 0 && totalInput > m.AboveInput {
		return m.Above
	}
	return m.Rates
}

// Cost prices one request.
func (m ModelInfo) Cost(u Usage) int64 { return m.RatesFor(u.TotalInput()).Cost(u) }

// Catalogue knows models and their prices. An unknown model has no price; it
// is never free.
type Catalogue struct {
	AsOf   string
	models map[string]ModelInfo
	order  []string
}

//go:embed prices.json
var pricesJSON []byte

// EmbeddedCatalogue is the dated table that ships with the program.
// Source: the provider's model and pricing pages as of its AsOf date.
func EmbeddedCatalogue() (*Catalogue, error) { return ParseCatalogue(pricesJSON) }

type priceRow struct {
	Input   float64 `json:"input"`
	Output  float64 `json:"output"`
	Write5m float64 `json:"write_5m"`
	Write1h float64 `json:"write_1h"`
	Read    float64 `json:"read"`
}

// rates turns dollars per million tokens into nano-dollars per token: 1 $/M is
// 1,000 nano-dollars. Every published price is a whole number of them.
func (p priceRow) rates() (Rates, error) {
	var bad error
	n := func(usd float64) int64 {
		v := usd * 1000
		if r := math.Round(v); r > 0 && math.Abs(v-r) < 1e-6 {
			return int64(r)
		}
		bad = fmt.Errorf("price %v $/M is no whole number of nano-dollars a token above 0", usd)
		return 0
	}
	r := Rates{Input: n(p.Input), Output: n(p.Output), Write5m: n(p.Write5m), Write1h: n(p.Write1h), Read: n(p.Read)}
	return r, bad
}

// ParseCatalogue reads a price table in the form of prices.json.
func ParseCatalogue(b []byte) (*Catalogue, error) {
	var f struct {
		AsOf   string `json:"as_of"`
		Models []struct {
			ID string `json:"id"`
			priceRow
			MinCacheable int64 `json:"min_cacheable"`
			Window       int64 `json:"window"`
			MaxOutput    int64 `json:"max_output"`
			Above        *struct {
				TotalInput int64 `json:"total_input"`
				priceRow
			} `json:"above"`
		} `json:"models"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("price table: %w", err)
	}
	c := &Catalogue{AsOf: f.AsOf, models: map[string]ModelInfo{}}
	for _, m := range f.Models {
		info := ModelInfo{ID: m.ID, MinCacheable: m.MinCacheable, Window: m.Window, MaxOutput: m.MaxOutput}
		if m.MinCacheable < 0 || m.Window < 0 || m.MaxOutput < 0 || m.Window < m.MaxOutput {
			return nil, fmt.Errorf("price table: %s: min_cacheable, window and max_output are counts of tokens, and the window holds the output", m.ID)
		}
		var err error
		if info.Rates, err = m.rates(); err != nil {
			return nil, fmt.Errorf("price table: %s: %w", m.ID, err)
		}
		if m.Above != nil {
			info.AboveInput = m.Above.TotalInput
			if info.Above, err = m.Above.rates(); err != nil {
				return nil, fmt.Errorf("price table: %s above: %w", m.ID, err)
			}
		}
		if _, dup := c.models[m.ID]; dup || m.ID == "" {
			return nil, fmt.Errorf("price table: model %q is empty or listed twice", m.ID)
		}
		c.models[m.ID] = info
		c.order = append(c.order, m.ID)
	}
	return c, nil
}

// Model returns a model's row; ok is false for an unknown id.
func (c *Catalogue) Model(id string) (ModelInfo, bool) {
	m, ok := c.models[id]
	return m, ok
}

// IDs lists the known models in the table's order.
func (c *Catalogue) IDs() []string { return append([]string(nil), c.order...) }
