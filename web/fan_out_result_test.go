package web

import (
	"strings"
	"testing"

	"forkyard/forkcore"
)

func catalogue(t *testing.T) *forkcore.Catalogue {
	t.Helper()
	c, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sampleFanOut is a cold fan-out of three over a prefix of 10,000 tokens: the leader wrote it in the first of its two
// requests, the others read it. Rates of claude-sonnet-5-5 in nano-dollars: input 2000, write 2500, read 100, output 10000.
func sampleFanOut(t *testing.T) (forkcore.Dispatch, []forkcore.Run) {
	t.Helper()
	return fanOutOf(t, "claude-sonnet-5-5", []forkcore.Run{
		{Leader: true, Usage: forkcore.Usage{Input: 100, CacheWrite5m: 10_000}, InheritedTokens: 20_000, InheritedRead: 10_000},
		{Usage: forkcore.Usage{Input: 100, CacheRead: 10_000}, InheritedTokens: 10_000, InheritedRead: 10_000},
		{Usage: forkcore.Usage{Input: 100, CacheRead: 10_000}, InheritedTokens: 10_000, InheritedRead: 10_000},
	}, forkcore.Usage{Input: 500, CacheRead: 10_000, Output: 300})
}

// fanOutOf is a fan-out that has ended: the runs' usages are those of their first requests, more is what followed.
func fanOutOf(t *testing.T, model string, runs []forkcore.Run, more forkcore.Usage) (forkcore.Dispatch, []forkcore.Run) {
	t.Helper()
	info, priced := catalogue(t).Model(model)
	d := forkcore.Dispatch{ID: dispatchID, CreatedAt: noon, UpdatedAt: noon, Quote: forkcore.Quote{
		Model: model, Children: len(runs), SharedTokens: 10_000, Gate: true,
		ColdNanoUSD: new(int64(27_600_000)), UnsharedNanoUSD: new(int64(60_600_000)),
	}}
	for i := range runs {
		r := &runs[i]
		r.ID, r.Kind, r.Index, r.State, r.UpdatedAt = forkID[:len(forkID)-1]+string(rune('a'+i)), forkcore.KindFork, i, forkcore.Done, noon
		d.RunIDs = append(d.RunIDs, r.ID)
		d.FirstRequestUsage = d.FirstRequestUsage.Add(r.Usage)
	}
	runs[0].Usage = runs[0].Usage.Add(more)
	d.Usage = d.FirstRequestUsage.Add(more)
	d.FirstRequests.NanoUSD, d.Cost.NanoUSD = info.Cost(d.FirstRequestUsage), info.Cost(d.Usage)
	if !priced {
		d.FirstRequests.Unpriced, d.Cost.Unpriced = 3, 4
	}
	return d, runs
}

func TestFanOutResult(t *testing.T) {
	type change func(d *forkcore.Dispatch, runs []forkcore.Run)
	const shared = "3 forks shared a prefix of 10,000 tokens, and 75 % of it came from the cache over all requests: 2 read all of it each time, 1 wrote it for the others."
	tests := []struct {
		name    string
		change  change
		verdict string
		shared  string
		cost    string
		without string
	}{
		// Input: 800·2000 + 10000·2500 + 30000·100 = 29,600,000; uncached 40,800·2000 = 81,600,000; output 300·10000.
		{
			"saved", nil, "saved", shared,
			"It cost $0.0326: $0.0296 for 40,800 tokens of input and $0.0030 for 300 tokens of output.",
			"Without the cache the same input would have cost $0.0816 instead of $0.0296: the cache saved $0.0520, 64\u00a0%.",
		},
		{
			"cut off", func(_ *forkcore.Dispatch, runs []forkcore.Run) { runs[2].State = forkcore.Cancelled }, "saved", shared,
			"It cost $0.0326: $0.0296 for 40,800 tokens of input and $0.0030 for 300 tokens of output; where an answer was cut off, its output is an estimate.",
			"Without the cache the same input would have cost $0.0816 instead of $0.0296: the cache saved $0.0520, 64\u00a0%.",
		},
		{
			"no price", func(d *forkcore.Dispatch, _ []forkcore.Run) { d.Quote.Model, d.Cost.Unpriced = "odd-1", 4 }, "unknown", shared,
			"What it cost is not known: 40,800 tokens in and 300 out, but there is no price for the model odd-1.",
			"What it would have cost without the cache is not known either.",
		},
		{
			"unknown usage", func(d *forkcore.Dispatch, _ []forkcore.Run) { d.Cost.Unpriced = 1 }, "unknown", shared,
			"What it cost is not known: of 1 request nobody told what was used.",
			"What it would have cost without the cache is not known either.",
		},
		// First requests: 300·2000 + 10000·2500 + 20000·100 = 27,600,000, against the quote.
		{
			"prices changed", func(d *forkcore.Dispatch, _ []forkcore.Run) { d.Cost.NanoUSD++ }, "saved", shared,
			"It cost $0.0326 for 40,800 tokens of input and 300 tokens of output.",
			"Without the cache the input of the first requests would have cost $0.0606 instead of $0.0276: the cache saved $0.0330, 54\u00a0%.",
		},
		{
			"prices changed, one unanswered", func(d *forkcore.Dispatch, runs []forkcore.Run) {
				u := forkcore.Usage{Input: -100, CacheRead: -10_000}
				d.Cost.NanoUSD, d.Usage, d.FirstRequestUsage = 32_600_001, d.Usage.Add(u), d.FirstRequestUsage.Add(u)
				runs[2] = forkcore.Run{ID: runs[2].ID, State: forkcore.Failed}
			}, "unknown",
			"3 forks shared a prefix of 10,000 tokens, and 67 % of it came from the cache over all requests: 1 read all of it each time, 1 wrote it for the others, 1 got no answer.",
			"It cost $0.0326 for 30,700 tokens of input and 300 tokens of output.",
			"What it would have cost without the cache is not known either.",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d, runs := sampleFanOut(t)
			if test.change != nil {
				test.change(&d, runs)
			}
			r := newFanOutResult(d, runs, catalogue(t))
			for _, s := range [][3]string{{"verdict", r.Verdict, test.verdict}, {"shared", r.Shared, test.shared}, {"cost", r.Cost, test.cost}, {"without", r.Without, test.without}} {
				if s[1] != s[2] {
					t.Errorf("%s:\n%s, want\n%s", s[0], s[1], s[2])
				}
			}
			if (r.Basis == "") != (test.verdict == "unknown") {
				t.Errorf("basis %q of a result that is %s", r.Basis, r.Verdict)
			}
		})
	}
}

// Writing costs more than not caching, and that is said when nobody reads what was written.
func TestFanOutResultCostlier(t *testing.T) {
	d, runs := fanOutOf(t, "claude-sonnet-5-5", []forkcore.Run{
		{Usage: forkcore.Usage{Input: 100, CacheWrite5m: 10_000}, InheritedTokens: 10_000},
		{Usage: forkcore.Usage{Input: 100, CacheWrite5m: 10_000}, InheritedTokens: 10_000},
	}, forkcore.Usage{Output: 10})
	r := newFanOutResult(d, runs, catalogue(t))
	if want := "Without the cache the same input would have cost $0.0404 instead of $0.0504: with it, it cost $0.0100 MORE."; r.Verdict != "costlier" || r.Without != want {
		t.Errorf("%s: %s, want %s", r.Verdict, r.Without, want)
	}
	if want := "2 forks shared a prefix of 10,000 tokens, and 0 % of it came from the cache over all requests: 2 read none of it."; r.Shared != want {
		t.Errorf("%s, want %s", r.Shared, want)
	}
	html := renderText(t, fanOutSentences(r))
	for _, want := range []string{`data-verdict="costlier"`, r.Shared, r.Cost, r.Without, r.Basis} {
		if !strings.Contains(html, want) {
			t.Errorf("no %q in %s", want, html)
		}
	}
}

// A model with a dearer tier is judged by the rates that it was billed with.
func TestFanOutResultDearTier(t *testing.T) {
	d, runs := fanOutOf(t, "claude-haiku-5-5", []forkcore.Run{{Usage: forkcore.Usage{Input: 200_000}}}, forkcore.Usage{Output: 100})
	// All of it above 100,000 tokens: 200,000 · 500 + 100 · 2500.
	if r := newFanOutResult(d, runs, catalogue(t)); d.Cost.NanoUSD != 100_250_000 || r.Verdict != "even" || !strings.Contains(r.Without, "just as much, $0.1000") {
		t.Errorf("%d, %s: %s", d.Cost.NanoUSD, r.Verdict, r.Without)
	}
}

func TestSharedSentence(t *testing.T) {
	usage := forkcore.Usage{Input: 300}
	tests := []struct {
		name string
		d    forkcore.Dispatch
		runs []forkcore.Run
		want string
	}{
		{"no answer", forkcore.Dispatch{RunIDs: []string{"a"}}, []forkcore.Run{{}}, "No fork got an answer, so nothing was shared."},
		{
			"too short",
			forkcore.Dispatch{RunIDs: []string{"a", "b"}, Quote: forkcore.Quote{SharedTokens: 290}},
			[]forkcore.Run{{Usage: usage}, {Usage: usage}},
			"2 forks shared a prefix of about 290 tokens, too short for the cache of this model, which takes prefixes from 512 tokens: nothing of it was read.",
		},
		{
			"not cached",
			forkcore.Dispatch{RunIDs: []string{"a", "b"}, Quote: forkcore.Quote{SharedTokens: 900, Exact: true}},
			[]forkcore.Run{{Usage: usage}, {Usage: usage}},
			"2 forks shared a prefix of 900 tokens, but nothing of it was cached.",
		},
		{
			"one",
			forkcore.Dispatch{RunIDs: []string{"a"}, FirstRequestUsage: forkcore.Usage{CacheRead: 700, CacheWrite5m: 50}},
			[]forkcore.Run{{Usage: usage, InheritedTokens: 750, InheritedRead: 700}},
			"1 fork inherited a prefix of 750 tokens, and 93 % of it came from the cache over all requests.",
		},
		{
			"warm leader",
			forkcore.Dispatch{RunIDs: []string{"a", "b"}, FirstRequestUsage: forkcore.Usage{CacheRead: 1450, CacheWrite5m: 50}},
			[]forkcore.Run{{Leader: true, Usage: usage, InheritedTokens: 750, InheritedRead: 700}, {Usage: usage, InheritedTokens: 750, InheritedRead: 750}},
			"2 forks shared a prefix of 750 tokens, and 97 % of it came from the cache over all requests: 1 read all of it each time, 1 wrote what was missing.",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := sharedSentence(test.d, test.runs, 512); got != test.want {
				t.Errorf("%s, want\n%s", got, test.want)
			}
		})
	}
}
