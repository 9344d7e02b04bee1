package forkcore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The scale of these tests: input 100, 5 m write 125, 1 h write 200, read 10.
// Divided by 100 the sums are token-equivalents at the input price.
var tokenRates = Rates{Input: 100, Output: 500, Write5m: 125, Write1h: 200, Read: 10}

// The worked example of the seeds: 46,000 tokens held by the parent, 2,500 new
// and shared, five directives of 200.
func TestFanOutArithmetic(t *testing.T) {
	warm := FanOut{Children: 5, Held: 46_000, Delta: 2_500, Own: 5 * 200, Rates: tokenRates}
	hour := warm
	hour.Rates.Write5m = tokenRates.Write1h
	free := warm
	free.Rates.Write5m = tokenRates.Input // no surcharge on writes
	lone := FanOut{Children: 1, Held: 46_000, Delta: 2_500, Own: 200, Rates: tokenRates}
	tests := []struct {
		name string
		got  int64
		want int64 // token-equivalents
	}{
		{"no cache", warm.Unshared(), 243_500},
		{"cold, leader first, writes at the input price", free.Cold().Gated(), 68_900},
		{"cold, leader first", warm.Cold().Gated(), 81_025},
		{"cold, leader first, 1 h write", hour.Cold().Gated(), 117_400},
		{"cold, all at once", warm.Cold().Ungated(), 304_125},
		{"cold, all at once, 1 h write", hour.Cold().Ungated(), 486_000},
		{"warm, leader first", warm.Gated(), 28_125},
		{"warm, all at once", warm.Ungated(), 39_625},
		{"the gate saves, warm", warm.Ungated() - warm.Gated(), 11_500},
		{"the gate saves, cold", warm.Cold().Ungated() - warm.Cold().Gated(), 223_100},
		{"a warm leader alone", lone.Gated(), 7_925},
		{"alone, a gate changes nothing", lone.Ungated() - lone.Gated(), 0},
		{"nobody", FanOut{Held: 9, Delta: 9, Rates: tokenRates}.Gated(), 0},
		{"nobody, at once", FanOut{Held: 9, Delta: 9, Rates: tokenRates}.Ungated(), 0},
		{"all read a warm parent (3.1)", FanOut{Children: 5, Held: 80_000, Own: 1000, Rates: tokenRates}.Gated(), 41_000},
		{"no cache (3.1)", FanOut{Children: 5, Held: 80_000, Own: 1000, Rates: tokenRates}.Unshared(), 401_000},
		{"2 to 5 hit, with the surcharge (3.1)", FanOut{Children: 5, Delta: 80_000, Own: 1000, Rates: tokenRates}.Gated(), 133_000},
		{"second worked example (3.5)", FanOut{Children: 3, Held: 100_000, Delta: 700, Own: 300, Rates: tokenRates}.Gated(), 31_315},
		{"second worked example, at once (3.5)", FanOut{Children: 3, Held: 100_000, Delta: 700, Own: 300, Rates: tokenRates}.Ungated(), 32_925},
	}
	for _, tt := range tests {
		if tt.got != tt.want*100 {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want*100)
		}
	}
}

func ptr(n int64) *int64 { return &n }

func directives(n, bytes int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, bytes)
	}
	return out
}

func TestNewQuote(t *testing.T) {
	info := ModelInfo{ID: "m", Rates: tokenRates, MinCacheable: 512}
	snap := Snapshot{Bytes: 4 * 48_500, Params: Params{Model: "m"}}
	held := &CacheEntry{Bytes: 4 * 46_000, Tokens: 46_000, Exact: true}
	whole := &CacheEntry{Bytes: snap.Bytes, Tokens: 50_000, Exact: true}
	tests := []struct {
		name   string
		info   ModelInfo
		priced bool
		best   *CacheEntry
		want   Quote
	}{
		{"warm", info, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true,
			ColdNanoUSD: ptr(8_102_500), WarmNanoUSD: ptr(2_812_500), UngatedNanoUSD: ptr(3_962_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(1_150_000),
		}},
		{"cold", info, true, nil, Quote{
			SharedTokens: 48_500, Gate: true,
			ColdNanoUSD: ptr(8_102_500), UngatedNanoUSD: ptr(30_412_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(22_310_000),
		}},
		{"the whole prefix is held and counted", info, true, whole, Quote{
			PrefixTokens: 50_000, SharedTokens: 50_000, Warm: true, Exact: true,
			ColdNanoUSD: ptr(125*50_000 + 4*10*50_000 + 100_000), WarmNanoUSD: ptr(5*10*50_000 + 100_000), UngatedNanoUSD: ptr(5*10*50_000 + 100_000), UnsharedNanoUSD: ptr(5*100*50_000 + 100_000), SavingNanoUSD: ptr(0),
		}},
		{"no price", ModelInfo{}, false, held, Quote{PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true}},
		{"too short to be cached", ModelInfo{Rates: tokenRates, MinCacheable: 60_000}, true, nil, Quote{
			SharedTokens: 48_500,
			ColdNanoUSD:  ptr(24_350_000), UngatedNanoUSD: ptr(24_350_000), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(0),
		}},
		{"a dearer tier, reached with the directive", ModelInfo{Rates: Rates{Input: 1, Write5m: 1, Write1h: 1, Read: 1}, AboveInput: 48_600, Above: tokenRates}, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true,
			ColdNanoUSD: ptr(8_102_500), WarmNanoUSD: ptr(2_812_500), UngatedNanoUSD: ptr(3_962_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(1_150_000),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Model, tt.want.Children, tt.want.DirectiveTokens = "m", 5, 1000
			got := NewQuote(tt.info, tt.priced, snap, tt.best, directives(5, 800), GateAuto)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("quote (-want +got):\n%s", d)
			}
		})
	}
}

func TestGateDecision(t *testing.T) {
	tests := []struct {
		name     string
		mode     GateMode
		children int
		saving   *int64
		want     bool
	}{
		{"auto, saves just enough", GateAuto, 2, ptr(GateMinSaving), true},
		{"auto, saves too little", GateAuto, 64, ptr(GateMinSaving - 1), false},
		{"auto, saves nothing", GateAuto, 2, ptr(0), false},
		{"auto, no price", GateAuto, 2, nil, true},
		{"auto, one child", GateAuto, 1, ptr(1 << 40), false},
		{"always, saves nothing", GateAlways, 2, ptr(0), true},
		{"always, one child", GateAlways, 1, ptr(1 << 40), false},
		{"always, no price", GateAlways, 2, nil, true},
		{"off, saves a lot", GateOff, 64, ptr(1 << 40), false},
		{"off, no price", GateOff, 2, nil, false},
		{"nobody", GateAlways, 0, nil, false},
	}
	for _, tt := range tests {
		if got := gated(tt.mode, Quote{Children: tt.children, SavingNanoUSD: tt.saving}); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
