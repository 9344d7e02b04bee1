package web

import (
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func nano(n int64) *int64 { return &n }

// warmQuote is the quote of n forks over a prefix of 41,200 tokens, 40,000 of them held.
func warmQuote(n int) forkcore.Quote {
	return forkcore.Quote{
		Model: "claude-sonnet-5-5", Children: n, PrefixTokens: 40_000, SharedTokens: 41_200, DirectiveTokens: int64(20 * n), Exact: true, Warm: true,
		ColdNanoUSD: nano(120_000_000), WarmNanoUSD: nano(24_000_000), UngatedNanoUSD: nano(36_000_000), UnsharedNanoUSD: nano(412_000_000), SavingNanoUSD: nano(12_000_000),
		Gate: n > 1,
	}
}

func TestNewOffer(t *testing.T) {
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	warm := forkcore.Session{Warm: &forkcore.CacheEntry{TTL: "5m", UsedAt: noon}}
	ungated := warmQuote(5)
	ungated.Gate, ungated.SavingNanoUSD = false, nano(1_000)
	cold := warmQuote(5)
	cold.Warm, cold.WarmNanoUSD, cold.PrefixTokens, cold.Exact = false, nil, 0, false
	unpriced := forkcore.Quote{Model: "my-model", Children: 2, SharedTokens: 100, Gate: true}
	short := cold
	short.SharedTokens = 100
	for name, test := range map[string]struct {
		quote    forkcore.Quote
		wish     forkcore.GateMode
		session  forkcore.Session
		budget   int64
		expected string
		says     []string // in the gate's reason, the sentence, the price of one more and the warning
	}{
		"warm":              {warmQuote(5), forkcore.GateAuto, warm, 0, "$0.0240", []string{"saves $0.0120", "holds 40,000 of the 41,200", "the first writes the rest"}},
		"one":               {warmQuote(1), forkcore.GateAuto, warm, 0, "$0.0240", []string{"nobody to wait for"}},
		"ungated":           {ungated, forkcore.GateAuto, warm, 0, "$0.0360", []string{"All start at once: a gate would save < $0.0001, and under $0.0005", "each writes the rest itself"}},
		"gate off":          {ungated, forkcore.GateOff, warm, 0, "$0.0360", []string{"All start at once. A gate would save"}},
		"cold":              {cold, forkcore.GateAuto, forkcore.Session{}, 0, "$0.1200", []string{"the first fork writes the prefix once"}},
		"no price":          {unpriced, forkcore.GateAuto, forkcore.Session{BudgetNanoUSD: 1, Cost: forkcore.Cost{}}, 5, "no price", []string{"as soon as they can read"}},
		"too short":         {short, forkcore.GateAuto, forkcore.Session{}, 0, "$0.1200", []string{"too short to be cached", "from 512 tokens on"}},
		"budget used up":    {warmQuote(5), forkcore.GateAuto, forkcore.Session{BudgetNanoUSD: 9, Cost: forkcore.Cost{NanoUSD: 9}}, 0, "$0.0240", []string{"is used up: no fork will start"}},
		"session too small": {warmQuote(5), forkcore.GateAuto, forkcore.Session{BudgetNanoUSD: 20_000_000}, 0, "$0.0240", []string{"The session has $0.0200 left"}},
		"budget too small":  {warmQuote(5), forkcore.GateAuto, warm, 10_000_000, "$0.0240", []string{"The budget of $0.0100 is less"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newOffer(test.quote, test.quote.Children, test.wish, test.session, test.budget, catalogue, noon.Add(time.Minute))
			if v.Expected != test.expected {
				t.Errorf("expected %q, want %q", v.Expected, test.expected)
			}
			got := v.GateWhy + " " + v.Sentence + " " + v.Short
			for _, want := range test.says {
				if !strings.Contains(got, want) {
					t.Errorf("%q lacks %q", got, want)
				}
			}
			chosen := 0
			for _, b := range v.Bars {
				if b.Chosen {
					chosen++
					if b.Cost != v.Expected {
						t.Errorf("the bar of what is sent says %s", b.Cost)
					}
				}
			}
			if chosen != 1 {
				t.Errorf("%d bars are chosen", chosen)
			}
			if v.Until.IsZero() == (test.quote.Warm && test.session.Warm != nil) {
				t.Errorf("until %v", v.Until)
			}
		})
	}
	if v := newOffer(warmQuote(1), 0, forkcore.GateAuto, warm, 0, nil, noon); !v.Sample || v.Expected != "" || v.Extra != "no price" {
		t.Errorf("nothing typed, no price table: %+v", v)
	}
}

// One more fork costs what the quote of one fork more says.
func TestExtraFork(t *testing.T) {
	info := forkcore.ModelInfo{ID: "m", MinCacheable: 512, Rates: forkcore.Rates{Input: 2000, Output: 10_000, Write5m: 2500, Write1h: 4000, Read: 100}}
	directives := func(n int) [][]byte {
		d := make([][]byte, n)
		for i := range d {
			d[i] = make([]byte, 400)
		}
		return d
	}
	for _, bytes := range []int64{400, 160_000} {
		for _, best := range []*forkcore.CacheEntry{nil, {Tokens: 30_000, Bytes: 120_000}} {
			for _, mode := range []forkcore.GateMode{forkcore.GateAlways, forkcore.GateOff} {
				if best != nil && bytes < best.Bytes {
					continue
				}
				s := forkcore.Snapshot{Bytes: bytes}
				quote := func(n int) forkcore.Quote { return forkcore.NewQuote(info, true, s, best, directives(n), mode, forkcore.Jobs{}) }
				five, six := quote(5), quote(6)
				if got, want := extraFork(info, five), *six.Expected()-*five.Expected(); got != want {
					t.Errorf("%d bytes, held %t, gate %s: one more is %d, the quotes say %d", bytes, best != nil, mode, got, want)
				}
			}
		}
	}
}
