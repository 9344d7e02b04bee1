package web

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestHitBar(t *testing.T) {
	fork := func(u forkcore.Usage, inherited, read int64) forkcore.Run {
		return forkcore.Run{Kind: forkcore.KindFork, Usage: u, InheritedTokens: inherited, InheritedRead: read}
	}
	tests := []struct {
		name string
		run  forkcore.Run
		want hitBarView
	}{
		{"nothing sent", fork(forkcore.Usage{Output: 5}, 0, 0), hitBarView{Text: "–", Label: "Hit rate: nothing known yet"}},
		{"all inherited read, own in part", fork(forkcore.Usage{Input: 570, CacheRead: 9000 + 430}, 9000, 9000), hitBarView{
			Known: true, Inherited: 900, InheritedRead: 900, Own: 100, OwnRead: 43,
			Text: "inherited 100 % · own 43 %", Label: "Read from the cache: 9,000 of 9,000 inherited tokens, 430 of 1,000 own tokens",
		}},
		{"leader wrote", fork(forkcore.Usage{Input: 100, CacheWrite5m: 900}, 900, 0), hitBarView{
			Known: true, Inherited: 900, Own: 100,
			Text: "inherited 0 % · own 0 %", Label: "Read from the cache: 0 of 900 inherited tokens, 0 of 100 own tokens",
		}},
		{"nothing cached", fork(forkcore.Usage{Input: 100}, 0, 0), hitBarView{
			Known: true, Own: 1000, Text: "inherited – · own 0 %", Label: "Read from the cache: 0 of 0 inherited tokens, 0 of 100 own tokens",
		}},
		{"more inherited than sent", fork(forkcore.Usage{CacheRead: 100}, 300, 200), hitBarView{
			Known: true, Inherited: 1000, InheritedRead: 1000,
			Text: "inherited 67 % · own –", Label: "Read from the cache: 100 of 100 inherited tokens, 0 of 0 own tokens",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := newHitBar(test.run)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			html := renderText(t, hitBar(got))
			if !strings.Contains(html, `role="img" aria-label="`+test.want.Label+`"`) {
				t.Errorf("no words for who does not see it: %s", html)
			}
		})
	}
}

func TestWholePercent(t *testing.T) {
	for f, want := range map[float64]string{0: "0 %", 0.0001: "1 %", 0.4251: "43 %", 0.9999: "99 %", 1: "100 %"} {
		if got := wholePercent(&f); got != want {
			t.Errorf("%v is %q, want %q", f, got, want)
		}
	}
	if got := wholePercent(nil); got != "–" {
		t.Errorf("nothing is %q", got)
	}
}
