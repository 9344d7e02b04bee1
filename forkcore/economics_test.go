package forkcore

import "testing"

// Every figure of the two accounts of fork agents that this program was built
// after, re-derived. Units are tokens at the input price, unless a price is
// named.

// intro is their opening: five children of 200 tokens over 80,000.
func intro(r Rates) FanOut {
	return FanOut{Children: 5, Delta: 80_000, Own: 5 * 200, Rates: r}
}

// scenario is their worked example: a parent of 4,000 + 12,000 + 30,000 tokens,
// 2,000 + 500 that are new and shared, five directives of 200.
func scenario(r Rates) FanOut {
	return FanOut{Children: 5, Held: 4_000 + 12_000 + 30_000, Delta: 2_000 + 500, Own: 5 * 200, Rates: r}
}

func TestEconomicsInTokens(t *testing.T) {
	r := tokenRates
	free := r.WithoutWriteSurcharge()
	hour := func(f FanOut) FanOut { f.TTL = "1h"; return f }
	alone := FanOut{Children: 1, Held: 46_000, Delta: 2_500, Own: 200, Rates: r}
	follower := FanOut{Children: 1, Held: 48_500, Own: 200, Rates: r}
	second := FanOut{Children: 3, Held: 100_000, Delta: 700, Own: 300, Rates: r}
	agents := FanOut{Children: 5, Delta: 4_000 + 12_000, Own: 5 * 200, Rates: r}
	tests := []struct {
		name string
		got  int64
		want int64
	}{
		// The opening.
		{"opening: no cache", intro(r).Unshared(), 401_000},
		{"opening: children 2 to 5 hit", intro(free).Gated(), 113_000},
		{"opening: and the first pays for writing", intro(r).Gated(), 133_000},
		{"opening: all five hit a warm parent", intro(r).Warm().Gated(), 41_000},
		{"opening: a warm parent has nothing to write", intro(free).Warm().Gated(), 41_000},

		// The worked example.
		{"example: what is shared", r.Input * (scenario(r).Held + scenario(r).Delta), 48_500},
		{"example: the first child", FanOut{Children: 1, Delta: 48_500, Own: 200, Rates: free}.Gated(), 48_700},
		{"example: each other", follower.Gated(), 5_050},
		{"example: no cache", scenario(r).Unshared(), 243_500},
		{"example: no surcharge on writes", scenario(free).Cold().Gated(), 68_900},
		{"example: cold, leader first", scenario(r).Cold().Gated(), 81_025},
		{"example: cold, leader first, 1 h write", hour(scenario(r)).Cold().Gated(), 117_400},
		{"example: cold, all at once", scenario(r).Cold().Ungated(), 304_125},
		{"example: cold, all at once, 1 h write", hour(scenario(r)).Cold().Ungated(), 486_000},
		{"example: warm, leader first", scenario(r).Gated(), 28_125},
		{"example: warm, all at once", scenario(r).Ungated(), 39_625},
		{"example: warm, leader first, 1 h write", hour(scenario(r)).Gated(), 30_000},
		{"example: warm, all at once, 1 h write", hour(scenario(r)).Ungated(), 49_000},
		{"example: a warm leader, term by term", r.Read*46_000 + r.Write5m*2_500 + r.Input*200, 7_925},
		{"example: a warm leader", alone.Gated(), 7_925},
		{"example: the gate saves, warm", scenario(r).GateSaving(), 11_500},
		{"example: the gate saves, cold", scenario(r).Cold().GateSaving(), 223_100},
		{"alone, a gate saves nothing", alone.GateSaving(), 0},
		{"example: the minimum, warm", scenario(r).Minimum(), 28_125},
		{"example: the minimum, cold", scenario(r).Cold().Minimum(), 81_025},

		// Fresh agents.
		{"fresh: five without a cache", agents.Unshared(), 81_000},
		{"fresh: one of them", FanOut{Children: 1, Delta: 16_000, Own: 200, Rates: r}.Unshared(), 16_200},
		{"fresh: five of one type, leader first", agents.Gated(), 27_400},
		{"fresh: what a fork carries at every further turn", FanOut{Children: 1, Held: 30_000 + 2_000 + 500, Rates: r}.Gated(), 3_250},

		// The other account.
		{"second: opening", FanOut{Children: 3, Delta: 100_000, Rates: free}.Gated(), 120_000},
		{"second: its sum, in which nobody reads what the first wrote", FanOut{Children: 3, Held: 100_000, Own: 800 + 200, Rates: r}.Gated(), 31_000},
		{"second: no cache", second.Unshared(), 302_400},
		{"second: gated", second.Gated(), 31_315},
		{"second: all at once", second.Ungated(), 32_925},

		// Edges of the arithmetic.
		{"nobody", FanOut{Held: 9, Delta: 9, Rates: r}.Gated(), 0},
		{"nobody, at once", FanOut{Held: 9, Delta: 9, Rates: r}.Ungated(), 0},
		{"nobody, at best", FanOut{Held: 9, Delta: 9, Rates: r}.Minimum(), 0},
		{"one child, at best, writes nothing", alone.Minimum(), 4_600 + 2_500 + 200},
		{"two children, at best, write once", FanOut{Children: 2, Delta: 1_000, Rates: r}.Minimum(), 1_350},
		{"two children, 1 h: paying twice is cheaper", FanOut{Children: 2, Delta: 1_000, TTL: "1h", Rates: r}.Minimum(), 2_000},
		{"three children, 1 h: writing once is cheaper", FanOut{Children: 3, Delta: 1_000, TTL: "1h", Rates: r}.Minimum(), 2_200},
	}
	for _, tt := range tests {
		if tt.got != tt.want*r.Input || r.TokenEquivalents(tt.got) != tt.want {
			t.Errorf("%s: %d, %d token-equivalents, want %d", tt.name, tt.got, r.TokenEquivalents(tt.got), tt.want)
		}
	}
}

func TestEconomicsInPercent(t *testing.T) {
	r := tokenRates
	free := r.WithoutWriteSurcharge()
	hour := scenario(r)
	hour.TTL = "1h"
	eight := FanOut{Children: 8, Delta: 100_000, Rates: free}
	eightWarm := FanOut{Children: 8, Held: 100_000, Own: 8 * 200, Rates: r}
	second := FanOut{Children: 3, Held: 100_000, Delta: 700, Own: 300, Rates: r}
	none := scenario(r).Unshared()
	tests := []struct {
		name  string
		cost  int64
		base  int64
		want  int64 // hundredths of a percent more or less
		tenth int64 // tenths of a percent, as published
	}{
		{"example: no surcharge on writes", scenario(free).Cold().Gated(), none, -7170, -717},
		{"example: cold, leader first", scenario(r).Cold().Gated(), none, -6672, -667},
		{"example: cold, leader first, 1 h write", hour.Cold().Gated(), none, -5179, -518},
		{"example: cold, all at once, is dearer than no cache", scenario(r).Cold().Ungated(), none, 2490, 249},
		{"example: cold, all at once, 1 h write", hour.Cold().Ungated(), none, 9959, 996},
		{"example: warm, leader first", scenario(r).Gated(), none, -8845, -884},
		{"example: warm, all at once", scenario(r).Ungated(), none, -8373, -837},
		{"fresh: forks beside five uncached agents", 68_900, 81_000, -1494, -149},
		{"fresh: warm forks beside agents that share", 28_125, 27_400, 265, 26},
		{"eight forks, the first in full", eight.Gated(), eight.Unshared(), -7875, -787},
		{"eight forks, all warm", eightWarm.Gated(), eightWarm.Unshared(), -8982, -898},
		{"the limit", eight.Warm().Gated(), eight.Unshared(), -9000, -900},
		{"second: opening", 120_000, 300_000, -6000, -600},
		{"second: its sum", 31_000, 300_000, -8967, -897},
		{"second: gated", second.Gated(), second.Unshared(), -8964, -896},
		{"second: all at once", second.Ungated(), second.Unshared(), -8911, -891},
	}
	for _, tt := range tests {
		got := BasisPoints(tt.cost-tt.base, tt.base)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, PercentText(got), PercentText(tt.want))
		}
		if tt.tenth*10-got > 6 || got-tt.tenth*10 > 6 {
			t.Errorf("%s: %s is not %d tenths", tt.name, PercentText(got), tt.tenth)
		}
	}
	if got := PercentText(BasisPoints(80_000, 80_200)); got != "99.75 %" {
		t.Errorf("the overlap of a child's prompt is %s", got)
	}
}

// The table of dollars: four prices, three situations. A cent and a half is two cents.
func TestEconomicsInDollars(t *testing.T) {
	cents := func(nano int64) int64 { return (nano + 5_000_000) / 10_000_000 }
	for _, tt := range []struct{ usdPerMillion, none, mostHit, allHit int64 }{
		{15, 602, 170, 62},
		{10, 401, 113, 41},
		{5, 201, 57, 21},
		{3, 120, 34, 12},
	} {
		in := tt.usdPerMillion * 1000
		r := Rates{Input: in, Write5m: in * 5 / 4, Write1h: 2 * in, Read: in / 10}
		if got := cents(intro(r).Unshared()); got != tt.none {
			t.Errorf("$%d, no cache: %d cents, want %d", tt.usdPerMillion, got, tt.none)
		}
		if got := cents(intro(r.WithoutWriteSurcharge()).Gated()); got != tt.mostHit {
			t.Errorf("$%d, 2 to 5 hit: %d cents, want %d", tt.usdPerMillion, got, tt.mostHit)
		}
		if got := cents(intro(r).Warm().Gated()); got != tt.allHit {
			t.Errorf("$%d, all hit: %d cents, want %d", tt.usdPerMillion, got, tt.allHit)
		}
		if got := r.TokenEquivalents(intro(r).Gated()); got != 133_000 {
			t.Errorf("$%d: with the surcharge %d token-equivalents", tt.usdPerMillion, got)
		}
	}
}

// The formulas, with rows whose multipliers are not 0.1, 1.25 and 2.
func TestEconomicsWithAnyRow(t *testing.T) {
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.IDs() {
		m, _ := c.Model(id)
		for _, ttl := range []string{"", "5m", "1h"} {
			r := m.RatesFor(48_700)
			w := r.Write5m
			if ttl == "1h" {
				w = r.Write1h
			}
			f := scenario(r)
			f.TTL = ttl
			const n, p, delta, own = 5, 46_000, 2_500, 1_000
			for name, pair := range map[string][2]int64{
				"warm, gated":   {f.Gated(), n*r.Read*p + w*delta + (n-1)*r.Read*delta + r.Input*own},
				"warm, ungated": {f.Ungated(), n*(r.Read*p+w*delta) + r.Input*own},
				"cold, gated":   {f.Cold().Gated(), w*(p+delta) + (n-1)*r.Read*(p+delta) + r.Input*own},
				"cold, ungated": {f.Cold().Ungated(), n*w*(p+delta) + r.Input*own},
				"unshared":      {f.Unshared(), r.Input * (n*(p+delta) + own)},
				"gate":          {f.GateSaving(), (n - 1) * (w - r.Read) * delta},
				"cold gate":     {f.Cold().GateSaving(), (n - 1) * (w - r.Read) * (p + delta)},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s, %q, %s: %d, want %d", id, ttl, name, pair[0], pair[1])
				}
			}
		}
	}
}

func TestWriteBreakEven(t *testing.T) {
	for _, tt := range []struct {
		name             string
		r                Rates
		ttl              string
		uses, hundredths int64
	}{
		{"5 m", tokenRates, "5m", 2, 128},
		{"no lifetime is 5 m", tokenRates, "", 2, 128},
		{"1 h", tokenRates, "1h", 3, 211},
		{"reads at a fortieth", Rates{Input: 8000, Write5m: 10_000, Write1h: 16_000, Read: 200}, "1h", 3, 203},
		{"exactly two is a tie, three pay", Rates{Input: 100, Write5m: 200}, "5m", 3, 200},
		{"no surcharge pays at the second use", tokenRates.WithoutWriteSurcharge(), "1h", 2, 100},
		{"too short to be cached", tokenRates.Uncached(), "5m", 0, 0},
		{"reads dearer than input", Rates{Input: 1, Write5m: 5, Read: 2}, "5m", 0, 0},
	} {
		uses, hundredths := tt.r.WriteBreakEven(tt.ttl)
		if uses != tt.uses || hundredths != tt.hundredths {
			t.Errorf("%s: %d uses (%d hundredths), want %d (%d)", tt.name, uses, hundredths, tt.uses, tt.hundredths)
		}
	}
	// The bound is where the two ways cost the same: one use before it writing loses, at it writing wins.
	for ttl, uses := range map[string]int64{"5m": 2, "1h": 3} {
		cached := func(n int64) int64 {
			return FanOut{Children: n, Delta: 1000, TTL: ttl, Rates: tokenRates}.Gated()
		}
		plain := func(n int64) int64 { return FanOut{Children: n, Delta: 1000, Rates: tokenRates}.Unshared() }
		if cached(uses-1) <= plain(uses-1) || cached(uses) >= plain(uses) {
			t.Errorf("%s: %d uses do not pay first", ttl, uses)
		}
	}
}

func TestTokenEquivalents(t *testing.T) {
	for _, tt := range []struct{ input, nano, want int64 }{{100, 149, 1}, {100, 150, 2}, {100, 0, 0}, {3, 4, 1}, {3, 5, 2}, {0, 7, 0}, {-1, 7, 0}} {
		if got := (Rates{Input: tt.input}).TokenEquivalents(tt.nano); got != tt.want {
			t.Errorf("%d at %d: %d, want %d", tt.nano, tt.input, got, tt.want)
		}
	}
	if r := TokenRates; r.TokenEquivalents(scenario(r).Gated()) != 28_125 || r.TokenEquivalents(FanOut{Children: 1, Delta: 100, TTL: "1h", Rates: r}.Gated()) != 200 {
		t.Errorf("TokenRates %+v count something else than tokens", r)
	}
}
