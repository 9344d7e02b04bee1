package forkcore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The scale of these tests: input 100, 5 m write 125, 1 h write 200, read 10.
// Divided by 100 the sums are token-equivalents at the input price.
var tokenRates = Rates{Input: 100, Output: 500, Write5m: 125, Write1h: 200, Read: 10}

func ptr(n int64) *int64 { return &n }

func directives(n, bytes int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, bytes)
	}
	return out
}

// shared is a snapshot of 48,500 tokens: 16,000 of tools and system prompt, 32,000 of conversation, 500 of rules.
func shared(bytes int64) Snapshot {
	return Snapshot{Bytes: bytes, Params: Params{Model: "m", MaxTokens: 1000}, Segments: []Segment{{Bytes: 4 * 16_000}, {Bytes: 4 * 32_000}, {Bytes: 4 * 500, Open: true}}}
}

func TestNewQuote(t *testing.T) {
	info := ModelInfo{ID: "m", Rates: tokenRates, MinCacheable: 512}
	snap := shared(4 * 48_500)
	held := &CacheEntry{Bytes: 4 * 46_000, Tokens: 46_000, Exact: true}
	whole := &CacheEntry{Bytes: snap.Bytes, Tokens: 50_000, Exact: true}
	opus := info
	opus.Rates = Rates{Input: 4000, Output: 20_000, Write5m: 5000, Write1h: 8000, Read: 200} // reads at 0.05
	fable := info
	fable.Rates = Rates{Input: 8000, Output: 40_000, Write5m: 10_000, Write1h: 16_000, Read: 200} // reads at 0.025
	tests := []struct {
		name   string
		info   ModelInfo
		priced bool
		best   *CacheEntry
		want   Quote
	}{
		{"warm", info, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true, MinCacheableTokens: 512,
			ColdNanoUSD: ptr(8_102_500), WarmNanoUSD: ptr(2_812_500), UngatedNanoUSD: ptr(3_962_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(1_150_000),
			MinimumNanoUSD: ptr(2_812_500), ColdHourNanoUSD: ptr(11_740_000), ColdUngatedNanoUSD: ptr(30_412_500),
		}},
		{"cold", info, true, nil, Quote{
			SharedTokens: 48_500, Gate: true, MinCacheableTokens: 512,
			ColdNanoUSD: ptr(8_102_500), UngatedNanoUSD: ptr(30_412_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(22_310_000),
			MinimumNanoUSD: ptr(8_102_500), ColdHourNanoUSD: ptr(11_740_000), ColdUngatedNanoUSD: ptr(30_412_500),
			ColdNote: "Cold, about $0.0081 before any answer: 48,500 tokens are written first. Were they held, it would be about $0.0025.",
		}},
		{"the whole prefix is held and counted", info, true, whole, Quote{
			PrefixTokens: 50_000, SharedTokens: 50_000, Warm: true, Exact: true, MinCacheableTokens: 512,
			ColdNanoUSD: ptr(125*50_000 + 4*10*50_000 + 100_000), WarmNanoUSD: ptr(5*10*50_000 + 100_000), UngatedNanoUSD: ptr(5*10*50_000 + 100_000), UnsharedNanoUSD: ptr(5*100*50_000 + 100_000), SavingNanoUSD: ptr(0),
			MinimumNanoUSD: ptr(5*10*50_000 + 100_000), ColdHourNanoUSD: ptr(200*50_000 + 4*10*50_000 + 100_000), ColdUngatedNanoUSD: ptr(5*125*50_000 + 100_000),
		}},
		{"no price", ModelInfo{}, false, held, Quote{PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true}},
		{"no price, cold", ModelInfo{}, false, nil, Quote{
			SharedTokens: 48_500, Gate: true,
			ColdNote: "Cold: 48,500 tokens are written before anything can be read. No price is known for m.",
		}},
		{"too short to be cached", ModelInfo{Rates: tokenRates, MinCacheable: 60_000}, true, nil, Quote{
			SharedTokens: 48_500, TooShort: true, MinCacheableTokens: 60_000,
			ColdNanoUSD: ptr(24_350_000), UngatedNanoUSD: ptr(24_350_000), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(0),
			MinimumNanoUSD: ptr(24_350_000), ColdHourNanoUSD: ptr(24_350_000), ColdUngatedNanoUSD: ptr(24_350_000),
			ColdNote: "Too short to cache, about $0.0244 before any answer: the forks share 48,500 tokens, and m keeps prefixes from 60,000 tokens on.",
		}},
		{"a dearer tier, reached with the directive", ModelInfo{Rates: Rates{Input: 1, Write5m: 1, Write1h: 1, Read: 1}, AboveInput: 48_699, Above: tokenRates}, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true,
			ColdNanoUSD: ptr(8_102_500), WarmNanoUSD: ptr(2_812_500), UngatedNanoUSD: ptr(3_962_500), UnsharedNanoUSD: ptr(24_350_000), SavingNanoUSD: ptr(1_150_000),
			MinimumNanoUSD: ptr(2_812_500), ColdHourNanoUSD: ptr(11_740_000), ColdUngatedNanoUSD: ptr(30_412_500),
		}},
		{"reads at a twentieth", opus, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true, MinCacheableTokens: 512,
			ColdNanoUSD: ptr(5000*48_500 + 4*200*48_500 + 4_000_000), WarmNanoUSD: ptr(5*200*46_000 + 5000*2_500 + 4*200*2_500 + 4_000_000), UngatedNanoUSD: ptr(5*200*46_000 + 5*5000*2_500 + 4_000_000),
			UnsharedNanoUSD: ptr(974_000_000), SavingNanoUSD: ptr(4 * 4800 * 2_500),
			MinimumNanoUSD: ptr(5*200*46_000 + 5000*2_500 + 4*200*2_500 + 4_000_000), ColdHourNanoUSD: ptr(8000*48_500 + 4*200*48_500 + 4_000_000), ColdUngatedNanoUSD: ptr(5*5000*48_500 + 4_000_000),
		}},
		{"reads at a fortieth", fable, true, held, Quote{
			PrefixTokens: 46_000, SharedTokens: 48_500, Warm: true, Gate: true, MinCacheableTokens: 512,
			ColdNanoUSD: ptr(10_000*48_500 + 4*200*48_500 + 8_000_000), WarmNanoUSD: ptr(5*200*46_000 + 10_000*2_500 + 4*200*2_500 + 8_000_000), UngatedNanoUSD: ptr(5*200*46_000 + 5*10_000*2_500 + 8_000_000),
			UnsharedNanoUSD: ptr(1_948_000_000), SavingNanoUSD: ptr(4 * 9800 * 2_500),
			MinimumNanoUSD: ptr(5*200*46_000 + 10_000*2_500 + 4*200*2_500 + 8_000_000), ColdHourNanoUSD: ptr(16_000*48_500 + 4*200*48_500 + 8_000_000), ColdUngatedNanoUSD: ptr(5*10_000*48_500 + 8_000_000),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Model, tt.want.Children, tt.want.DirectiveTokens, tt.want.SharedBytes = "m", 5, 1000, snap.Bytes
			for range 5 {
				tt.want.Unique = append(tt.want.Unique, Unique{Bytes: 800, Tokens: 200})
			}
			got := NewQuote(tt.info, tt.priced, snap, tt.best, directives(5, 800), GateAuto, Jobs{})
			if got.Window == nil || got.Advice == nil || got.BreakEven == nil || (len(got.PerTurn) == 5) != tt.priced {
				t.Errorf("window %v, advice %v, break-even %v, %d lines", got.Window, got.Advice, got.BreakEven, len(got.PerTurn))
			}
			got.Window, got.Advice, got.BreakEven, got.PerTurn = nil, nil, nil, nil
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("quote (-want +got):\n%s", d)
			}
			want := tt.want.ColdNanoUSD
			switch {
			case !tt.want.Gate:
				want = tt.want.UngatedNanoUSD
			case tt.best != nil:
				want = tt.want.WarmNanoUSD
			}
			if d := cmp.Diff(want, got.Expected()); d != "" {
				t.Errorf("expected (-want +got):\n%s", d)
			}
		})
	}
}

// What the quote expects is what its gate and the temperature say.
func TestQuoteExpected(t *testing.T) {
	q := Quote{Children: 2, ColdNanoUSD: ptr(1), WarmNanoUSD: ptr(2), UngatedNanoUSD: ptr(3)}
	for _, tt := range []struct {
		children   int
		warm, gate bool
		want       int64
	}{{1, false, false, 1}, {1, true, false, 2}, {2, false, true, 1}, {2, true, true, 2}, {2, true, false, 3}, {2, false, false, 3}} {
		q.Children, q.Warm, q.Gate = tt.children, tt.warm, tt.gate
		if got := *q.Expected(); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// Of directives of one length the first is named as the longest; only an open last message carries what forks alone have.
func TestQuoteNamesTheFirstOfTheLongest(t *testing.T) {
	s := Snapshot{Bytes: 4000, Segments: []Segment{{Bytes: 400}, {Bytes: 80}}}
	q := NewQuote(ModelInfo{}, false, s, nil, [][]byte{[]byte("short"), []byte("longest one"), []byte("another one")}, GateAuto, Jobs{})
	if q.Window.Index != 1 || q.Window.OwnTokens != 3 {
		t.Errorf("the longest is %d with %d tokens", q.Window.Index, q.Window.OwnTokens)
	}
	if head, guards := segmentTokens(s, false), segmentTokens(s, true); head != 100 || guards != 0 {
		t.Errorf("%d tokens of head and %d of guards, want 100 and none", head, guards)
	}
	s.Segments[1].Open = true
	if guards := segmentTokens(s, true); guards != 20 {
		t.Errorf("%d tokens of guards, want 20", guards)
	}
}

// What tells a child from its siblings is counted for each, in bytes and tokens.
func TestM31_UniqueBytesPerChild(t *testing.T) {
	blocks := [][]byte{DirectiveBlock("Check the parser."), DirectiveBlock("Read all of the documentation and list what is out of date."), DirectiveBlock("x")}
	q := NewQuote(ModelInfo{Rates: tokenRates}, true, shared(194_000), nil, blocks, GateAuto, Jobs{})
	want := []Unique{{42, 11}, {84, 21}, {26, 7}}
	if d := cmp.Diff(want, q.Unique); d != "" {
		t.Errorf("unique (-want +got):\n%s", d)
	}
	for i, b := range blocks {
		if q.Unique[i].Bytes != int64(len(b)) {
			t.Errorf("child %d: %d bytes, its block has %d", i, q.Unique[i].Bytes, len(b))
		}
	}
	if q.SharedBytes != 194_000 || q.DirectiveTokens != 39 || q.Window.Index != 1 || q.Window.OwnTokens != 21 {
		t.Errorf("%d shared bytes, %d tokens of directives, longest %+v", q.SharedBytes, q.DirectiveTokens, q.Window)
	}
	if points := BasisPoints(q.SharedBytes, q.SharedBytes+q.Unique[1].Bytes); points != 9996 {
		t.Errorf("shared is %s", PercentText(points))
	}
}

// The meter counts directives of about 200 and 100 tokens as such.
func TestM32_DirectiveSizes(t *testing.T) {
	for _, tt := range []struct{ bytes, tokens int64 }{{800, 200}, {797, 200}, {801, 201}, {400, 100}, {0, 0}, {1, 1}} {
		q := NewQuote(ModelInfo{}, false, shared(8), nil, directives(1, int(tt.bytes)), GateAuto, Jobs{})
		if d := cmp.Diff([]Unique{{tt.bytes, tt.tokens}}, q.Unique); d != "" {
			t.Errorf("%d bytes (-want +got):\n%s", tt.bytes, d)
		}
	}
}

// A prefix under the model's minimum is too short to cache: no miss, no write price, nothing that a gate could save.
func TestX06_TooShortToCache(t *testing.T) {
	for _, tt := range []struct {
		tokens int64
		short  bool
		note   string
	}{
		{900, true, "Too short to cache, about $0.0002 before any answer: the forks share 900 tokens, and m keeps prefixes from 1,024 tokens on."},
		{1023, true, "Too short to cache, about $0.0002 before any answer: the forks share 1,023 tokens, and m keeps prefixes from 1,024 tokens on."},
		{1024, false, "Cold, about $0.0001 before any answer: 1,024 tokens are written first. Were they held, it would be about < $0.0001."},
	} {
		q := NewQuote(ModelInfo{Rates: tokenRates, MinCacheable: 1024}, true, shared(4*tt.tokens), nil, directives(2, 40), GateAlways, Jobs{})
		if q.TooShort != tt.short || q.ColdNote != tt.note || q.MinCacheableTokens != 1024 {
			t.Errorf("%d tokens: too short %t, %q", tt.tokens, q.TooShort, q.ColdNote)
		}
		if same := *q.ColdNanoUSD == *q.UnsharedNanoUSD && *q.SavingNanoUSD == 0; same != tt.short {
			t.Errorf("%d tokens: cold %d, unshared %d, the gate saves %d", tt.tokens, *q.ColdNanoUSD, *q.UnsharedNanoUSD, *q.SavingNanoUSD)
		}
	}
	q := NewQuote(ModelInfo{MinCacheable: 1024}, false, shared(3600), nil, directives(1, 4), GateAuto, Jobs{})
	if want := "Too short to cache: the forks share 900 tokens, and m keeps prefixes from 1,024 tokens on."; q.ColdNote != want {
		t.Errorf("without a price: %q", q.ColdNote)
	}
}

func TestB51_ColdStartOfAConversation(t *testing.T) {
	info := ModelInfo{Rates: tokenRates, MinCacheable: 1024, AboveInput: 90_000, Above: Rates{Input: 1, Write5m: 2, Write1h: 3}}
	for _, tt := range []struct {
		tokens int64
		ttl    string
		want   int64
	}{{80_000, "5m", 10_000_000}, {80_000, "1h", 16_000_000}, {1023, "1h", 102_300}, {1024, "5m", 128_000}, {90_000, "5m", 11_250_000}, {90_001, "5m", 180_002}} {
		if got := ColdStart(info, CacheEntry{Tokens: tt.tokens, TTL: tt.ttl}); got != tt.want {
			t.Errorf("%d tokens for %s: %d, want %d", tt.tokens, tt.ttl, got, tt.want)
		}
	}
}

// Before anything is sent a cold fan-out says about what it costs; all at once that is what all of them write.
func TestB51_ColdSaysWhatItCosts(t *testing.T) {
	info := ModelInfo{Rates: Rates{Input: 2000, Output: 10_000, Write5m: 2500, Write1h: 4000, Read: 100}}
	for mode, want := range map[GateMode]string{
		GateAlways: "Cold, about $0.2161 before any answer: 80,000 tokens are written first. Were they held, it would be about $0.0241.",
		GateOff:    "Cold, about $0.6001 before any answer: 80,000 tokens are written first. Were they held, it would be about $0.0241.",
	} {
		if q := NewQuote(info, true, shared(320_000), nil, directives(3, 80), mode, Jobs{}); q.ColdNote != want {
			t.Errorf("gate %s: %q", mode, q.ColdNote)
		}
	}
	live := &CacheEntry{Bytes: 320_000, Tokens: 80_000}
	if q := NewQuote(info, true, shared(320_000), live, directives(3, 80), GateAuto, Jobs{}); q.ColdNote != "" {
		t.Errorf("warm: %q", q.ColdNote)
	}
	if q := NewQuote(info, true, shared(320_000), nil, nil, GateAuto, Jobs{}); q.ColdNote != "" || q.Advice != nil || q.Unique != nil {
		t.Errorf("nobody: %+v", q)
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
