package web

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
	held := func(reserve int64) forkcore.Quote {
		q := warmQuote(5)
		q.ReserveNanoUSD = &reserve
		return q
	}
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
		"session too small": {held(20_000_000), forkcore.GateAuto, forkcore.Session{BudgetNanoUSD: 20_000_000}, 0, "$0.0240", []string{"The session has $0.0200 left, less than the first requests cost: not all forks will start."}},
		"budget too small":  {held(10_000_000), forkcore.GateAuto, warm, 10_000_000, "$0.0240", []string{"The budget is $0.0100, less than the first requests cost"}},
		"nothing starts":    {held(30_000_001), forkcore.GateAuto, warm, 30_000_000, "$0.0240", []string{"The budget is $0.0300, and each request holds $0.0300 until its cost is known: no fork will start."}},
		"not all at once":   {held(30_000_000), forkcore.GateAuto, warm, 149_999_999, "$0.0240", []string{"forks in flight together may find too little left. $0.1500 are enough"}},
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
				quote := func(n int) forkcore.Quote {
					return forkcore.NewQuote(info, true, s, best, directives(n), mode, forkcore.Jobs{})
				}
				five, six := quote(5), quote(6)
				if got, want := extraFork(info, five), *six.Expected()-*five.Expected(); got != want {
					t.Errorf("%d bytes, held %t, gate %s: one more is %d, the quotes say %d", bytes, best != nil, mode, got, want)
				}
			}
		}
	}
}

// The panel says what the quote knows: the minimum, the cold start, the window, the advice and what is apart.
func TestOfferSaysWhatTheQuoteKnows(t *testing.T) {
	info := forkcore.ModelInfo{ID: "m", MinCacheable: 1024, Window: 60_000, MaxOutput: 5_000, Rates: forkcore.Rates{Input: 2000, Output: 10_000, Write5m: 2500, Write1h: 4000, Read: 100}}
	snapshot := func(tokens int64) forkcore.Snapshot {
		return forkcore.Snapshot{
			Bytes: 4 * tokens, Params: forkcore.Params{Model: "m", MaxTokens: 32_000},
			Segments: []forkcore.Segment{{Bytes: 4 * 16_000}, {Bytes: 4 * (tokens - 16_500)}, {Bytes: 4 * 500, Open: true}},
		}
	}
	blocks := [][]byte{make([]byte, 400), make([]byte, 800)}
	q := forkcore.NewQuote(info, true, snapshot(56_000), nil, blocks, forkcore.GateAuto, forkcore.Jobs{Turns: 2})
	v := newOffer(q, 2, forkcore.GateAuto, forkcore.Session{}, 0, nil, noon)
	if v.Least != "$0.1462" || v.TooShort || v.Cold != q.ColdNote || !strings.HasPrefix(v.Cold, "Cold, about $0.1462 before any answer") || v.Window != "56,200 of 60,000 tokens" || !strings.HasPrefix(v.WindowNote, "The window has 60,000 tokens") {
		t.Errorf("%+v", v)
	}
	if v.Advice != "Fork" || v.AdviceWhy != q.Advice.Reason || len(v.Turns) != 2 || v.Turns[1].Turn != "2" || !strings.Contains(v.Turns[1].Fresh, " to $") {
		t.Errorf("advice %q because %q, lines %+v", v.Advice, v.AdviceWhy, v.Turns)
	}
	if d := cmp.Diff([]uniqueView{{"1", "100", "400"}, {"2", "200", "800"}}, v.Unique); d != "" {
		t.Errorf("apart (-want +got):\n%s", d)
	}
	if v.Apart != "99.64 % of each first request is shared: 224,000 bytes are the same for all, at most 800 are a fork's own." {
		t.Errorf("apart: %q", v.Apart)
	}
	if d := cmp.Diff([]string{
		"A fork carries 40,000 tokens that a named agent does not: $0.0040 at every further request.",
		"It pays once gathering what a job needs anew would cost a named agent $0.0560.",
		"Writing a prefix pays from its 2nd use on, with a lifetime of an hour from the 3rd.",
	}, v.BreakEven); d != "" {
		t.Errorf("break-even (-want +got):\n%s", d)
	}

	needed := int64(0)
	q = forkcore.NewQuote(info, true, snapshot(56_000), nil, blocks, forkcore.GateAuto, forkcore.Jobs{Turns: 1, NeededTokens: &needed})
	if v = newOffer(q, 2, forkcore.GateAuto, forkcore.Session{}, 0, nil, noon); v.Advice != "A named agent" || strings.Contains(v.Turns[0].Fresh, "to") {
		t.Errorf("nothing needed: %q, %+v", v.Advice, v.Turns)
	}
	live := &forkcore.CacheEntry{Bytes: 4 * 56_000, Tokens: 56_000}
	q = forkcore.NewQuote(info, true, snapshot(56_000), live, blocks, forkcore.GateAuto, forkcore.Jobs{Turns: 1})
	if v = newOffer(q, 2, forkcore.GateAuto, forkcore.Session{}, 0, nil, noon); v.Cold != "" || v.BreakEven[1] != "It is cheaper even if a named agent has nothing to gather anew." {
		t.Errorf("warm: %q, %q", v.Cold, v.BreakEven)
	}
	q = forkcore.NewQuote(forkcore.ModelInfo{}, false, snapshot(56_000), nil, blocks[:1], forkcore.GateAuto, forkcore.Jobs{})
	v = newOffer(q, 1, forkcore.GateAuto, forkcore.Session{}, 0, nil, noon)
	if v.Window != "not known" || v.WindowNote != "" || v.Least != "no price" || v.Advice != "No fork" || v.Turns != nil || len(v.BreakEven) != 1 {
		t.Errorf("no price: %+v", v)
	}
}

// What is too short to cache is called that, and not cold or a miss.
func TestX06_TheQuoteSaysTooShort(t *testing.T) {
	info := forkcore.ModelInfo{ID: "m", MinCacheable: 1024, Rates: forkcore.Rates{Input: 2000, Write5m: 2500, Write1h: 4000, Read: 100}}
	for tokens, short := range map[int64]bool{900: true, 1024: false} {
		q := forkcore.NewQuote(info, true, forkcore.Snapshot{Bytes: 4 * tokens, Params: forkcore.Params{Model: "m"}}, nil, [][]byte{make([]byte, 40)}, forkcore.GateAuto, forkcore.Jobs{})
		var page strings.Builder
		if err := quoteBody(newOffer(q, 1, forkcore.GateAuto, forkcore.Session{}, 0, nil, noon)).Render(t.Context(), &page); err != nil {
			t.Fatal(err)
		}
		text := page.String()
		if strings.Contains(text, `<span class="badge">too short to cache</span>`) != short || strings.Contains(text, `<span class="badge">cold</span>`) == short ||
			strings.Contains(text, "m keeps prefixes from 1,024 tokens on") != short || strings.Contains(text, "miss") {
			t.Errorf("%d tokens: %s", tokens, text)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int64]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 10: "10th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 1111: "1,111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %q, want %q", n, got, want)
		}
	}
}
