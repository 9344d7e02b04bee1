package forkcore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tenDollars are the rates of a model of $10 a million tokens: a token-equivalent is 10,000 nano-dollars.
var tenDollars = Rates{Input: 10_000, Output: 50_000, Write5m: 12_500, Write1h: 20_000, Read: 1_000}

// compare is the worked example: 16,000 tokens of head, 32,000 of conversation, 500 of rules, warm and gated.
func compare(change ...func(*Comparison)) Comparison {
	c := Comparison{
		Info: ModelInfo{ID: "m", Rates: tenDollars, MinCacheable: 512}, Priced: true,
		FanOut: scenario(Rates{}), Gate: true, Longest: 200, Head: 16_000, Guards: 500,
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func turns(n int64) func(*Comparison) { return func(c *Comparison) { c.Jobs.Turns = n } }
func needs(n int64) func(*Comparison) { return func(c *Comparison) { c.Jobs.NeededTokens = &n } }
func head(n int64) func(*Comparison)  { return func(c *Comparison) { c.Head = n } }
func one(own int64) func(*Comparison) {
	return func(c *Comparison) { c.FanOut.Children, c.FanOut.Own = 1, own }
}
func unpriced(c *Comparison)             { c.Priced = false }
func coldAtOnce(c *Comparison)           { c.FanOut, c.Gate = c.FanOut.Cold(), false }
func least(n int64) func(*Comparison)    { return func(c *Comparison) { c.Info.MinCacheable = n } }
func inTokens(nano int64) (tokens int64) { return tenDollars.TokenEquivalents(nano) }

// What each way costs after so many requests of each job, in token-equivalents.
func TestM76_CalculatorPerTurn(t *testing.T) {
	tests := []struct {
		name                             string
		c                                Comparison
		turn, needed, fork, fresh, heres int64
	}{
		// 28,125 and 27,400 at first; then each fork reads 4,850 and each fresh agent 1,600, which differ by 3,250.
		{"the first requests", compare(), 1, 0, 28_125, 27_400, 27_300},
		{"the second", compare(), 2, 0, 28_125 + 5*4_850, 27_400 + 5*1_600, 27_300 + 5*4_800},
		{"the third", compare(), 3, 0, 28_125 + 10*4_850, 27_400 + 10*1_600, 27_300 + 10*4_800},
		// What is gathered anew is written once and read again.
		{"with something to gather", compare(), 3, 8_000, 76_625, 27_400 + 10*1_600 + 5*10_000 + 10*800, 75_300},
		{"all at once", compare(func(c *Comparison) { c.Gate = false }), 1, 0, 39_625, 27_400, 27_300},
		{"cold, all at once", compare(coldAtOnce), 2, 0, 304_125 + 5*4_850, 35_400, 48_000*5/4 + 1_000 + 9*4_800},
		{"one child", compare(one(200)), 2, 0, 7_925 + 4_850, 20_200 + 1_600, 4_600 + 2_500 + 200 + 4_800},
		{"more is held than the conversation has itself", compare(func(c *Comparison) { c.FanOut.Held, c.FanOut.Delta = 48_500, 0 }), 1, 0, 25_250, 27_400, 5*4_800 + 1_000},
		// Under the minimum nothing is cached; what is gathered on top is.
		{"a head too short to be cached", compare(least(16_001)), 2, 100, 28_125 + 5*4_850, 5*16_200 + 5*16_000 + 5*125 + 5*10, 27_300 + 5*4_800},
		{"a head just long enough", compare(least(16_000)), 1, 0, 28_125, 27_400, 27_300},
		{"nothing can be cached", compare(least(48_501)), 2, 0, 243_500 + 5*48_500, 5*16_200 + 5*16_000, 10*48_000 + 1_000},
	}
	for _, tt := range tests {
		if got := [3]int64{inTokens(tt.c.Fork(tt.turn)), inTokens(tt.c.Fresh(tt.turn, tt.needed)), inTokens(tt.c.Here(tt.turn))}; got != [3]int64{tt.fork, tt.fresh, tt.heres} {
			t.Errorf("%s: fork, fresh and here %v, want %v", tt.name, got, [3]int64{tt.fork, tt.fresh, tt.heres})
		}
	}
}

// A fresh agent's shorter request may be in a cheaper tier.
func TestM76_TierOfEachWay(t *testing.T) {
	c := compare(func(c *Comparison) {
		c.Info.AboveInput, c.Info.Above = 16_200, Rates{Input: 20_000, Write5m: 25_000, Read: 2_000}
	})
	// Over the edge all of it is dearer, five writes of one token at 2.5 included.
	for _, tt := range []struct{ needed, want int64 }{{0, 27_400}, {1, 2*27_400 + 12}} {
		if got := c.Fresh(1, tt.needed) / 10_000; got != tt.want {
			t.Errorf("needing %d: %d, want %d", tt.needed, got, tt.want)
		}
	}
	if got := c.Fork(1) / 10_000; got != 2*28_125 {
		t.Errorf("forks: %d", got)
	}
	if got := c.Here(1) / 10_000; got != 2*27_300 {
		t.Errorf("here: %d", got)
	}
	// A fork's request is what is shared and its directive; here the directives add up.
	for above, want := range map[int64][2]int64{
		48_999: {28_125, 2 * 27_300}, 49_000: {28_125, 27_300},
		48_699: {2 * 28_125, 2 * 27_300}, 48_700: {28_125, 2 * 27_300},
	} {
		d := c
		d.Info.AboveInput = above
		if got := [2]int64{d.Fork(1) / 10_000, d.Here(1) / 10_000}; got != want {
			t.Errorf("dearer above %d: forks and here %v, want %v", above, got, want)
		}
	}
	// The longest directive decides, not the sum.
	c.Longest = 0
	if got := c.Fresh(1, 200) / 10_000; got != 27_400+5*250 {
		t.Errorf("at the edge of the tier: %d", got)
	}
}

func TestM76_BreakEven(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	tests := []struct {
		name string
		c    Comparison
		want BreakEven
	}{
		{"nobody says how many turns", compare(), BreakEven{
			Turns: 5, Assumed: true, CarriedTokens: 32_500, CarriedNanoUSD: n(32_500_000), NeededTokens: n(8_270), RegatherNanoUSD: n(4*32_500_000 + 1_450_000), WriteUses5m: 2, WriteUses1h: 3,
		}},
		{"one turn", compare(turns(1)), BreakEven{
			Turns: 1, CarriedTokens: 32_500, CarriedNanoUSD: n(32_500_000), NeededTokens: n(206), RegatherNanoUSD: n(1_450_000), WriteUses5m: 2, WriteUses1h: 3,
		}},
		{"each further turn adds 3,250 token-equivalents", compare(turns(3)), BreakEven{
			Turns: 3, CarriedTokens: 32_500, CarriedNanoUSD: n(32_500_000), NeededTokens: n(4_795), RegatherNanoUSD: n(2*32_500_000 + 1_450_000), WriteUses5m: 2, WriteUses1h: 3,
		}},
		{"dearer even if all is needed", compare(turns(1), coldAtOnce, head(40_000)), BreakEven{
			Turns: 1, CarriedTokens: 8_500, CarriedNanoUSD: n(8_500_000), RegatherNanoUSD: n((304_125 - 67_000) * 2_000), WriteUses5m: 2, WriteUses1h: 3,
		}},
		{"always cheaper", compare(one(200), turns(1)), BreakEven{
			Turns: 1, CarriedTokens: 32_500, CarriedNanoUSD: n(32_500_000), NeededTokens: n(0), RegatherNanoUSD: n(0), WriteUses5m: 2, WriteUses1h: 3,
		}},
		{"nothing can be cached", compare(turns(1), least(48_501)), BreakEven{
			Turns: 1, CarriedTokens: 32_500, CarriedNanoUSD: n(325_000_000), RegatherNanoUSD: n(325_000_000), NeededTokens: n(26_780),
		}},
		{"no price", compare(unpriced, turns(3)), BreakEven{Turns: 3, CarriedTokens: 32_500, NeededTokens: n(4_795), WriteUses5m: 2, WriteUses1h: 3}},
		{"less than a head", compare(head(60_000), turns(1)), BreakEven{
			Turns: 1, CarriedTokens: 0, CarriedNanoUSD: n(0), NeededTokens: n(0), RegatherNanoUSD: n(0), WriteUses5m: 2, WriteUses1h: 3,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.c.BreakEven()); d != "" {
				t.Errorf("break-even (-want +got):\n%s", d)
			}
		})
	}
}

func TestM76_PerTurnTable(t *testing.T) {
	line := func(turn, fork, low, high, here int64) TurnCost {
		fork, low, high, here = fork*10_000, low*10_000, high*10_000, here*10_000
		return TurnCost{Turn: turn, ForkNanoUSD: &fork, FreshMinNanoUSD: &low, FreshMaxNanoUSD: &high, HereNanoUSD: &here}
	}
	want := []TurnCost{line(1, 28_125, 27_400, 227_400, 27_300), line(2, 52_375, 35_400, 251_400, 51_300)}
	if d := cmp.Diff(want, compare(turns(2)).PerTurn()); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
	known := []TurnCost{line(1, 28_125, 77_400, 77_400, 27_300)}
	if d := cmp.Diff(known, compare(turns(1), needs(8_000)).PerTurn()); d != "" {
		t.Errorf("lines of a known need (-want +got):\n%s", d)
	}
	for _, tt := range []struct{ turns, lines int64 }{{0, AssumedTurns}, {10, 10}, {11, 10}} {
		if got := len(compare(turns(tt.turns)).PerTurn()); got != int(tt.lines) {
			t.Errorf("%d turns: %d lines, want %d", tt.turns, got, tt.lines)
		}
	}
	if got := compare(unpriced).PerTurn(); got != nil {
		t.Errorf("without a price: %v", got)
	}
}

// Both sides of every threshold, and the figures in the reason.
func TestM76_Advice(t *testing.T) {
	tests := []struct {
		name   string
		c      Comparison
		choice Choice
		reason string
	}{
		{
			"nobody says what is needed", compare(), ChooseFork,
			"Fork if a job needs more than about 8,270 tokens of the conversation (assuming 5 requests each); else a named agent is cheaper, because a fork carries 32,500 tokens that a named agent does not, for $0.0325 at every further request.",
		},
		{
			"nor what the model costs", compare(unpriced, turns(3)), ChooseFork,
			"Fork if a job needs more than about 4,795 tokens of the conversation (over 3 requests each); else a named agent is cheaper, because a fork carries 32,500 tokens that a named agent does not, for the price of 3,250 plain tokens at every further request.",
		},
		{
			"no price and too short to be cached", compare(unpriced, least(48_501), turns(1)), ChooseFork,
			"Fork if a job needs more than about 26,780 tokens of the conversation (over 1 request each); else a named agent is cheaper, because a fork carries 32,500 tokens that a named agent does not, for the price of 32,500 plain tokens at every further request.",
		},
		{
			"forks are dearer whatever is needed", compare(turns(1), coldAtOnce, head(40_000)), ChooseNamedAgent,
			"Even if each job needs all of the conversation, forks cost $3.0413 and named agents $1.1700 (over 1 request each): a fork carries 8,500 tokens that a named agent does not, for $0.0085 at every further request.",
		},
		{
			"forks are cheaper whatever is needed", compare(one(501), turns(1)), ChooseFork,
			"Forks cost $0.0823 and named agents at least $0.2050 (over 1 request each), even if a job needs nothing of the conversation.",
		},
		{
			"needs nothing", compare(needs(0)), ChooseNamedAgent,
			"A job needs 0 tokens of the conversation, and a fork carries 32,000 more that it does not need: assuming 5 requests each, 5 forks cost $1.2513 and 5 named agents $0.5940.",
		},
		{
			"needs a little less than pays for the guards", compare(needs(8_269)), ChooseNamedAgent,
			"A job needs 8,269 tokens of the conversation: assuming 5 requests each, 5 forks cost $1.2513 and 5 named agents $1.2762, too little to pay for the guards that forks need.",
		},
		{
			"needs just enough", compare(needs(8_270)), ChooseFork,
			"A job needs 8,270 tokens of the conversation: assuming 5 requests each, 5 forks cost $1.2513 and 5 named agents $1.2763, as each agent would gather that anew.",
		},
		{
			"needs all, and forks are dearer", compare(turns(1), coldAtOnce, head(40_000), needs(8_000)), ChooseNamedAgent,
			"A job needs 8,000 tokens of the conversation, and gathering that anew is cheaper: over 1 request each, 5 forks cost $3.0413 and 5 named agents $1.1700.",
		},
		{
			"one long directive", compare(one(501), needs(9_000)), ChooseFork,
			"A job needs 9,000 tokens of the conversation: assuming 5 requests each, a fork costs $0.2763 and a named agent $0.4175, as each agent would gather that anew.",
		},
		{
			"one short directive", compare(one(500)), ChooseNoFork,
			"One directive of 500 tokens is shorter than the 500 of rules that a fork adds ($0.0063): send it as a message, unless its work should stay out of the conversation.",
		},
		{
			"one short directive of two turns", compare(one(500), turns(2)), ChooseNoFork,
			"One directive of 500 tokens is shorter than the 500 of rules that a fork adds ($0.0063): send it as a message, unless its work should stay out of the conversation.",
		},
		{
			"one short directive of three turns", compare(one(1), turns(3), needs(32_000)), ChooseFork,
			"A job needs 32,000 tokens of the conversation: over 3 requests each, a fork costs $0.1743 and a named agent $0.6960, as each agent would gather that anew.",
		},
		{
			"nothing to inherit", compare(head(48_000), coldAtOnce, func(c *Comparison) { c.Gate = true }), ChooseNamedAgent,
			"There is no conversation to inherit: a fork is a fresh agent that also carries 500 tokens of rules, for $0.0005 at every further request.",
		},
		{
			"nothing to inherit, and what the session has is warm", compare(head(48_000)), ChooseFork,
			"Forks cost $1.2513 and named agents at least $1.7620 (assuming 5 requests each), even if a job needs nothing of the conversation.",
		},
		{
			"one token to inherit", compare(head(47_999), coldAtOnce, func(c *Comparison) { c.Gate = true }, needs(1)), ChooseNamedAgent,
			"A job needs 1 token of the conversation, and gathering that anew is cheaper: assuming 5 requests each, 5 forks cost $1.7803 and 5 named agents $1.7620.",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(Advice{tt.choice, tt.reason}, Advise(tt.c)); d != "" {
				t.Errorf("advice (-want +got):\n%s", d)
			}
		})
	}
}

func TestJobsInvalid(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, tt := range []struct {
		jobs   Jobs
		fields []string
	}{
		{Jobs{}, nil},
		{Jobs{Turns: 1000, NeededTokens: n(100_000_000)}, nil},
		{Jobs{NeededTokens: n(0)}, nil},
		{Jobs{Turns: -1, NeededTokens: n(-1)}, []string{"jobs.turns", "jobs.needed_tokens"}},
		{Jobs{Turns: 1001, NeededTokens: n(100_000_001)}, []string{"jobs.turns", "jobs.needed_tokens"}},
	} {
		var fields []string
		for _, f := range tt.jobs.Invalid() {
			fields = append(fields, f.Field)
		}
		if d := cmp.Diff(tt.fields, fields); d != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.jobs, d)
		}
	}
}
