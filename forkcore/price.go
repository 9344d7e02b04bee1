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
		info := ModelInfo{ID: m.ID, MinCacheable: m.MinCacheable}
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
