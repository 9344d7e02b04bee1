package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

// The count of the shared prefix is exact after a child's first request. Its later requests must not replace it by a
// share of the bytes, or whoever forks from the same snapshot next is said to have missed what it read.
func TestExactCountIsOverwrittenByAnEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			d, fork := c.directive()
			switch {
			case fork && d == "d1" && c.answers() == 0:
				r := useTools(use("t1", "Bash", `{"command":"`+strings.Repeat("x", 30_000)+`"}`))
				r.usage = forkcore.Usage{CacheWrite5m: 2000, Input: 10, Output: 20}
				return r
			case fork && d == "d1" && c.answers() == 1:
				r := useTools(use("t2", "Bash", `{}`))
				r.usage = forkcore.Usage{CacheRead: 2000, CacheWrite5m: 40_000, Output: 20} // a dense tail
				return r
			case fork && d == "d1":
				r := say(reportText)
				r.usage = forkcore.Usage{CacheRead: 42_000, CacheWrite5m: 100, Output: 20}
				r.after = time.Minute
				return r
			case fork:
				r := say(reportText)
				r.usage = forkcore.Usage{CacheRead: 2000, Input: 10, Output: 20} // the whole shared prefix was read
				return r
			}
			r := say("ok")
			r.usage = forkcore.Usage{CacheWrite5m: 1500, Output: 20}
			return r
		})
		y.ask("go")
		first, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		d, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d2"), "b")
		if err != nil {
			t.Fatal(err)
		}
		if d.Snapshot != first.Snapshot {
			t.Fatal("another snapshot")
		}
		y.idle()
		row := y.requests(runs[0].ID)[0]
		t.Logf("quote: held %d, exact %v; expected %d exact %v, read %d", d.Quote.PrefixTokens, d.Quote.Exact, *row.ExpectedRead, row.ExpectedExact, row.Usage.CacheRead)
		if *row.ExpectedRead != 2000 {
			t.Errorf("expected read %d, counted was 2000; miss %+v", *row.ExpectedRead, row.Miss)
		}
	})
}
