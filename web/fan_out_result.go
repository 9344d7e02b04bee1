package web

import (
	"fmt"
	"strings"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// fanOutResult is what a fan-out whose forks have all ended came to, in three sentences.
type fanOutResult struct {
	Verdict string // saved, costlier, even or unknown
	Shared  string // what was shared
	Cost    string // what it cost
	Without string // what the same would have cost without the cache
	Basis   string // how that was computed
}

func newFanOutResult(d forkcore.Dispatch, runs []forkcore.Run, prices api.Prices) fanOutResult {
	info, priced := forkcore.ModelInfo{}, false
	if prices != nil {
		info, priced = prices.ModelAt(d.Quote.Model, d.CreatedAt)
	}
	r := fanOutResult{Verdict: "unknown", Shared: sharedSentence(d, runs, info.MinCacheable)}
	billed := d.Cost.Known()
	rates, exact := billedRates(info, d, billed)
	input := int64(0)
	if exact {
		input = *billed - d.Usage.Output*rates.Output
	}
	switch {
	case d.Usage.TotalInput() == 0 && d.Cost.Unpriced == 0:
		r.Cost, r.Without = "It cost nothing.", "There is nothing to compare."
		return r
	case !priced:
		r.Cost = fmt.Sprintf("What it cost is not known: %s in and %s out, but there is no price for the model %s.",
			tokens(d.Usage.TotalInput()), grouped(d.Usage.Output), d.Quote.Model)
	case billed == nil:
		r.Cost = fmt.Sprintf("What it cost is not known: of %s nobody told what was used.", counted(d.Cost.Unpriced, "request"))
	case exact:
		r.Cost = fmt.Sprintf("It cost %s: %s for %s of input and %s for %s of output.",
			dollars(billed), dollars(&input), tokens(d.Usage.TotalInput()), dollars(new(*billed-input)), tokens(d.Usage.Output))
	default:
		r.Cost = fmt.Sprintf("It cost %s for %s of input and %s of output.", dollars(billed), tokens(d.Usage.TotalInput()), tokens(d.Usage.Output))
	}
	if cutOff(runs) && billed != nil {
		r.Cost = strings.TrimSuffix(r.Cost, ".") + "; where an answer was cut off, its output is an estimate."
	}

	switch first := api.FirstInputCost(d, prices); {
	case exact:
		r.compare("the same input", input, d.Usage.TotalInput()*rates.Input)
		r.Basis = "Both figures are of the input of all requests: as billed, and every token at the price of input that is not cached."
	case billed != nil && first != nil && d.Quote.UnsharedNanoUSD != nil && answeredAll(d, runs):
		r.compare("the input of the first requests", *first, *d.Quote.UnsharedNanoUSD)
		r.Basis = "This is of the first requests alone, and the figure without the cache is the estimate of the quote: prices differed between requests."
	default:
		r.Without = "What it would have cost without the cache is not known either."
	}
	return r
}

// compare says what the cache did to a bill, also when it made it larger.
func (r *fanOutResult) compare(what string, with, without int64) {
	saved := without - with
	switch {
	case saved > 0:
		share := float64(saved) / float64(without)
		r.Verdict = "saved"
		r.Without = fmt.Sprintf("Without the cache %s would have cost %s instead of %s: the cache saved %s, %s.",
			what, dollars(&without), dollars(&with), dollars(&saved), strings.ReplaceAll(wholePercent(&share), " ", "\u00a0"))
	case saved < 0:
		r.Verdict = "costlier"
		r.Without = fmt.Sprintf("Without the cache %s would have cost %s instead of %s: with it, it cost %s MORE.",
			what, dollars(&without), dollars(&with), dollars(new(-saved)))
	default:
		r.Verdict = "even"
		r.Without = fmt.Sprintf("Without the cache %s would have cost just as much, %s.", what, dollars(&without))
	}
}

// billedRates finds the rates that a dispatch was billed with. A model with a dearer tier for long requests has two;
// when neither gives the bill, requests were of both, or prices have changed since.
func billedRates(info forkcore.ModelInfo, d forkcore.Dispatch, billed *int64) (rates forkcore.Rates, ok bool) {
	if billed == nil {
		return forkcore.Rates{}, false
	}
	for _, r := range []forkcore.Rates{info.Rates, info.Above} {
		if r != (forkcore.Rates{}) && r.Cost(d.Usage) == *billed {
			return r, true
		}
	}
	return forkcore.Rates{}, false
}

// answeredAll reports whether every fork got an answer, which a quote takes for granted.
func answeredAll(d forkcore.Dispatch, runs []forkcore.Run) bool {
	for _, r := range runs {
		if r.Usage.TotalInput() == 0 {
			return false
		}
	}
	return len(runs) == len(d.RunIDs)
}

// cutOff reports whether a run may have ended within an answer.
func cutOff(runs []forkcore.Run) bool {
	for _, r := range runs {
		if (r.State == forkcore.Cancelled || r.State == forkcore.Failed) && r.Usage.TotalInput() > 0 {
			return true
		}
	}
	return false
}

// sharedSentence says how large the shared prefix was and who read how much of it.
func sharedSentence(d forkcore.Dispatch, runs []forkcore.Run, minCacheable int64) string {
	var whole, part, none, wrote, silent, sent, read int64
	for _, r := range runs {
		sent, read = sent+r.InheritedTokens, read+r.InheritedRead
		switch {
		case r.Usage.TotalInput() == 0:
			silent++
		case r.InheritedTokens > 0 && r.InheritedRead >= r.InheritedTokens:
			whole++
		case r.Leader && r.InheritedTokens > 0:
			wrote++
		case r.InheritedRead > 0:
			part++
		default:
			none++
		}
	}
	answered := int64(len(runs)) - silent
	if answered == 0 {
		return "No fork got an answer, so nothing was shared."
	}
	forks := int64(len(d.RunIDs))
	text := fmt.Sprintf("%s shared a prefix of %s", counted(forks, "fork"), prefixSize(d, answered))
	if forks == 1 {
		text = "1 fork inherited a prefix of " + prefixSize(d, answered)
	}
	switch {
	case sent == 0 && d.Quote.SharedTokens < minCacheable:
		return fmt.Sprintf("%s, too short for the cache of this model, which takes prefixes from %s: nothing of it was read.", text, tokens(minCacheable))
	case sent == 0:
		return text + ", but nothing of it was cached."
	}
	fraction := float64(read) / float64(sent)
	text += fmt.Sprintf(", and %s of it came from the cache over all requests", wholePercent(&fraction))
	if forks == 1 {
		return text + "."
	}
	var who []string
	say := func(n int64, what string) {
		if n > 0 {
			who = append(who, fmt.Sprintf("%d %s", n, what))
		}
	}
	say(whole, "read all of it each time")
	if d.FirstRequestUsage.CacheRead > whole*(d.FirstRequestUsage.Cached()/answered) {
		say(wrote, "wrote what was missing") // and read the rest
	} else {
		say(wrote, "wrote it for the others")
	}
	say(part, "read a part of it")
	say(none, "read none of it")
	say(silent, "got no answer")
	return text + ": " + strings.Join(who, ", ") + "."
}

// prefixSize is the length of the shared prefix, as the first answers counted it where they did. They all end their
// cached part with it.
func prefixSize(d forkcore.Dispatch, answered int64) string {
	if cached := d.FirstRequestUsage.Cached(); cached > 0 && cached%answered == 0 {
		return tokens(cached / answered)
	}
	if d.Quote.Exact {
		return tokens(d.Quote.SharedTokens)
	}
	return "about " + tokens(d.Quote.SharedTokens)
}
