package web

import (
	"fmt"
	"time"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// offerView is what a fan-out will cost, before it is sent.
type offerView struct {
	// Version makes the element of a redrawn form a new one, so that an answer to an older question finds no place.
	Version int
	// Problem and NextStep replace everything else: there is no quote.
	Problem, NextStep string

	Forks   int  // as typed; the quote is for one when nothing is
	Sample  bool // the quote is for one short directive, because none is typed
	Prefix  string
	Warm    bool
	Until   time.Time // when the provider may forget what it holds; zero: not known
	Bars    []quoteBar
	Extra   string // one more fork
	Gate    bool
	GateWhy string
	// Sentence explains the price.
	Sentence string
	// Expected is the price of the first requests, empty without directives.
	Expected string
	// Short says that a budget does not reach.
	Short string

	// Least is the theoretical minimum.
	Least    string
	TooShort bool
	// Cold says what starting cold costs; empty when warm.
	Cold string
	// Window is how much of the model's window the longest first request takes, WindowNote a warning.
	Window, WindowNote string
	// Advice is the choice in words, AdviceWhy its reason; empty without any.
	Advice, AdviceWhy string
	Unique            []uniqueView
	// Apart is how much the forks have in common and apart, in one sentence.
	Apart string
	Turns []costView
	// BreakEven are the amounts that the advice rests on, one sentence each.
	BreakEven []string
}

// uniqueView is what one fork has alone.
type uniqueView struct{ Number, Tokens, Bytes string }

// costView is what the three ways cost up to a request of each job.
type costView struct{ Turn, Fork, Fresh, Here string }

// quoteBar is one price beside the others.
type quoteBar struct {
	Name, Cost, Class string
	Width             string // of 100, of the dearest; empty without a price
	Chosen            bool   // this is what the dispatch would cost
}

// extraFork is the price of the first request of one more fork with a directive of average length.
func extraFork(info forkcore.ModelInfo, q forkcore.Quote) int64 {
	own := q.DirectiveTokens / int64(max(q.Children, 1))
	rates := info.RatesFor(q.SharedTokens + own)
	if q.SharedTokens < info.MinCacheable {
		rates.Read, rates.Write5m = rates.Input, rates.Input
	}
	rest := rates.Read
	// The gate of a second fork comes with it.
	if q.Children > 1 && !q.Gate {
		rest = rates.Write5m
	}
	return rates.Read*q.PrefixTokens + rest*(q.SharedTokens-q.PrefixTokens) + rates.Input*own
}

// newOffer puts a quote in words. forks is how many directives are typed: with none, q is that of a sample. wish is the
// gate that was chosen, budget what the fan-out may cost in nano-dollars, 0 for no limit.
func newOffer(q forkcore.Quote, forks int, wish forkcore.GateMode, session forkcore.Session, budget int64, prices api.Prices, now time.Time) offerView {
	v := offerView{Forks: forks, Sample: forks == 0, Warm: q.Warm, Gate: q.Gate, Prefix: tokensText(q.SharedTokens, q.Exact)}
	var info forkcore.ModelInfo
	priced := false
	if prices != nil {
		info, priced = prices.ModelAt(q.Model, now)
	}
	if priced && q.ColdNanoUSD != nil {
		extra := extraFork(info, q)
		v.Extra = dollars(&extra)
	} else {
		v.Extra = dollars(nil)
	}
	if w := session.Warm; q.Warm && w != nil && w.ExpiresAt().After(now) {
		v.Until = w.ExpiresAt()
	}
	cost := q.Expected()
	if forks > 0 {
		v.Expected = dollars(cost)
	}
	v.Bars = quoteBars(q)
	v.GateWhy = gateWhy(q, wish)
	v.Sentence = quoteSentence(q, info.MinCacheable)
	v.Short = shortOf(session, budget, q)
	v.Least, v.TooShort, v.Cold = dollars(q.MinimumNanoUSD), q.TooShort, q.ColdNote
	if w := q.Window; w != nil {
		v.Window, v.WindowNote = "not known", ""
		if w.Tokens > 0 {
			v.Window, v.WindowNote = grouped(w.InputTokens())+" of "+tokens(w.Tokens), w.Note
		}
	}
	if forks > 0 { // nothing is advised about text that nobody wrote
		v.advise(q)
	}
	return v
}

// adviceNames are the choices in words.
var adviceNames = map[forkcore.Choice]string{forkcore.ChooseFork: "Fork", forkcore.ChooseNamedAgent: "A named agent", forkcore.ChooseNoFork: "No fork"}

// advise fills in what compares forks with the other ways to do the work.
func (v *offerView) advise(q forkcore.Quote) {
	if a := q.Advice; a != nil {
		v.Advice, v.AdviceWhy = adviceNames[a.Choice], a.Reason
	}
	var most int64
	for i, u := range q.Unique {
		v.Unique = append(v.Unique, uniqueView{fmt.Sprint(i + 1), grouped(u.Tokens), grouped(u.Bytes)})
		most = max(most, u.Bytes)
	}
	if most > 0 && q.SharedBytes > 0 {
		v.Apart = fmt.Sprintf("%s of each first request is shared: %s bytes are the same for all, at most %s are a fork's own.",
			forkcore.PercentText(forkcore.BasisPoints(q.SharedBytes, q.SharedBytes+most)), grouped(q.SharedBytes), grouped(most))
	}
	for _, t := range q.PerTurn {
		fresh := dollars(t.FreshMinNanoUSD)
		if high := dollars(t.FreshMaxNanoUSD); high != fresh {
			fresh += " to " + high
		}
		v.Turns = append(v.Turns, costView{grouped(t.Turn), dollars(t.ForkNanoUSD), fresh, dollars(t.HereNanoUSD)})
	}
	b := q.BreakEven
	if b == nil {
		return
	}
	say := func(format string, args ...any) { v.BreakEven = append(v.BreakEven, fmt.Sprintf(format, args...)) }
	if b.CarriedNanoUSD != nil {
		say("A fork carries %s that a named agent does not: %s at every further request.", tokens(b.CarriedTokens), dollars(b.CarriedNanoUSD))
	}
	switch cost := b.RegatherNanoUSD; {
	case cost != nil && *cost == 0:
		say("It is cheaper even if a named agent has nothing to gather anew.")
	case cost != nil:
		say("It pays once gathering what a job needs anew would cost a named agent %s.", dollars(b.RegatherNanoUSD))
	}
	if b.WriteUses5m > 0 {
		say("Writing a prefix pays from its %s use on, with a lifetime of an hour from the %s.", ordinal(b.WriteUses5m), ordinal(b.WriteUses1h))
	}
}

// ordinal is a place in an order, in figures.
func ordinal(n int64) string {
	ending := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			ending = "st"
		case 2:
			ending = "nd"
		case 3:
			ending = "rd"
		}
	}
	return grouped(n) + ending
}

func tokensText(tokens int64, exact bool) string {
	if exact {
		return grouped(tokens) + " tokens"
	}
	return "about " + grouped(tokens) + " tokens"
}

func quoteBars(q forkcore.Quote) []quoteBar {
	gated := q.Children < 2 || q.Gate
	bars := []struct {
		name, class string
		cost        *int64
		chosen      bool
	}{
		{"Unshared", "uncached", q.UnsharedNanoUSD, false},
		{"Shared, cold", "write", q.ColdNanoUSD, gated && !q.Warm},
		{"Shared, warm", "read", q.WarmNanoUSD, gated && q.Warm},
	}
	if !gated {
		bars = append(bars, struct {
			name, class string
			cost        *int64
			chosen      bool
		}{"Shared, all at once", "write", q.UngatedNanoUSD, true})
	}
	var dearest int64
	for _, b := range bars {
		if b.cost != nil {
			dearest = max(dearest, *b.cost)
		}
	}
	var drawn []quoteBar
	for _, b := range bars {
		bar := quoteBar{Name: b.name, Cost: dollars(b.cost), Class: b.class, Chosen: b.chosen}
		switch {
		case b.cost != nil && dearest > 0:
			bar.Width = fmt.Sprintf("%.1f", 100*float64(*b.cost)/float64(dearest))
		case b.cost == nil && b.name == "Shared, warm" && !q.Warm:
			bar.Cost = "nothing is warm"
		}
		drawn = append(drawn, bar)
	}
	return drawn
}

func gateWhy(q forkcore.Quote, wish forkcore.GateMode) string {
	saves := ""
	if q.SavingNanoUSD != nil {
		saves = dollars(q.SavingNanoUSD)
		if *q.SavingNanoUSD == 0 {
			saves = "nothing"
		}
	}
	switch {
	case q.Children < 2:
		return "A single fork has nobody to wait for."
	case q.Gate && saves != "":
		return "The first fork leads, the others follow as soon as they can read what it wrote. That saves " + saves + "."
	case q.Gate:
		return "The first fork leads, the others follow as soon as they can read what it wrote."
	case wish == forkcore.GateOff && saves != "" && saves != "nothing":
		return "All start at once. A gate would save " + saves + "."
	case saves != "" && wish != forkcore.GateOff:
		least := int64(forkcore.GateMinSaving)
		return "All start at once: a gate would save " + saves + ", and under " + dollars(&least) + " waiting does not pay."
	}
	return "All start at once."
}

// quoteSentence says in one sentence where the price comes from. least is the fewest tokens that the model caches.
func quoteSentence(q forkcore.Quote, least int64) string {
	switch {
	case q.SharedTokens < least && q.ColdNote != "":
		return "" // it says so
	case q.SharedTokens < least:
		return fmt.Sprintf("What the forks share is too short to be cached: %s keeps prefixes from %s tokens on.", q.Model, grouped(least))
	case q.Warm && q.PrefixTokens >= q.SharedTokens:
		return "The provider still holds all that the forks share, so each of them reads it at the price of a cache hit."
	case q.Warm && q.Children > 1 && !q.Gate:
		return fmt.Sprintf("The provider still holds %s of the %s shared tokens, which each fork reads; each writes the rest itself.", grouped(q.PrefixTokens), grouped(q.SharedTokens))
	case q.Warm:
		return fmt.Sprintf("The provider still holds %s of the %s shared tokens, which each fork reads; the first writes the rest.", grouped(q.PrefixTokens), grouped(q.SharedTokens))
	case q.Children < 2:
		return "Nothing is held yet, so the fork writes the prefix; forks that follow soon read it."
	case q.Gate:
		return "Nothing is held yet: the first fork writes the prefix once, and all others read it."
	}
	return "Nothing is held yet, and all forks start at once, so each writes the prefix itself."
}

// shortOf compares what a fan-out costs and reserves with what is left of the budgets, in nano-dollars.
func shortOf(session forkcore.Session, budget int64, q forkcore.Quote) string {
	if session.BudgetNanoUSD > 0 {
		left := session.BudgetNanoUSD - session.Cost.NanoUSD - session.ReservedNanoUSD
		if left <= 0 {
			return "The budget of the session is used up: no fork will start."
		}
		if s := reaches("The session has "+dollars(&left)+" left", left, q); s != "" {
			return s
		}
	}
	if budget > 0 {
		return reaches("The budget is "+dollars(&budget), budget, q)
	}
	return ""
}

// reaches says which forks an amount does not reach for; empty: it reaches for all.
func reaches(what string, left int64, q forkcore.Quote) string {
	cost, reserve := q.Expected(), q.ReserveNanoUSD
	if cost == nil || reserve == nil {
		return ""
	}
	all := int64(q.Children) * *reserve
	switch {
	case *reserve > left:
		return what + ", and each request holds " + dollars(reserve) + " until its cost is known: no fork will start."
	case *cost > left:
		return what + ", less than the first requests cost: not all forks will start."
	case all > left:
		return what + ", and each request holds " + dollars(reserve) + " until its cost is known: forks in flight together may find too little left. " + dollars(&all) + " are enough for all first requests at once."
	}
	return ""
}
