package engine_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// What children spend is in the total of the session once: parent $1, two children $0.50 each.
func TestX25_ChildSpendIsInTheTotalOnce(t *testing.T) {
	// $10 a million tokens of output.
	spends := func(r reply, output int64) reply {
		r.usage = forkcore.Usage{Output: output}
		return r
	}
	script := func(c call) reply {
		if _, fork := c.directive(); fork {
			a := spends(say(reportText), 50_000)
			a.before = time.Second // the parent's turn is over by then: the reports start one of their own
			return a
		}
		switch c.answers() {
		case 0:
			return spends(agents(2), 60_000)
		case 1:
			return spends(say("waiting"), 30_000)
		}
		return spends(say("summed up"), 10_000)
	}
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, script)
		y.ask("go")
		y.idle()
		const dollar = int64(1_000_000_000)
		var main, children int64
		for _, r := range y.runs() {
			want(t, "unpriced requests of "+r.Title, r.Cost.Unpriced, 0)
			if r.Kind == forkcore.KindFork {
				want(t, "cost of a child", r.Cost.NanoUSD, dollar/2)
				children += r.Cost.NanoUSD
				continue
			}
			main += r.Cost.NanoUSD
		}
		want(t, "cost of the main turns", main, dollar)
		want(t, "cost of the children", children, dollar)
		s := y.sessionNow()
		want(t, "cost of the session", s.Cost, forkcore.Cost{NanoUSD: 2 * dollar})
		want(t, "reserved when all is over", s.ReservedNanoUSD, 0)
		want(t, "output of the session", s.Usage.Output, 200_000)
		d := y.dispatch(y.forks()[0].DispatchID)
		want(t, "cost of the fan-out", d.Cost, forkcore.Cost{NanoUSD: dollar})
		want(t, "requests", len(y.model.received()), 5)
	})
}

// narrow knows one model whose window takes so many tokens.
func narrow(t *testing.T, window string) func(*engine.Options) {
	t.Helper()
	c, err := forkcore.ParseCatalogue([]byte(`{"models":[{"id":"claude-sonnet-5-5","prices":[{"input":2,"output":10,"write_5m":2.5,"write_1h":4,"read":0.1}],"window":` + window + `}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return func(o *engine.Options) { o.Catalogue = c }
}

func TestForkOverTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		uncounted := say(reportText) // so that tokens are estimated from bytes
		uncounted.unknown = true
		y := newYard(t, func(call) reply { return uncounted }, narrow(t, "10000"))
		y.ask("first")
		wide := directives("d1", strings.Repeat("read ", 8_000))
		_, quoteErr := y.engine.QuoteForks(y.ctx, y.session.ID, wide)
		_, _, forkErr := y.engine.Fork(y.ctx, y.session.ID, wide, "key")
		for _, err := range []error{quoteErr, forkErr} {
			var conflict *forkcore.ConflictError
			if !errors.As(err, &conflict) {
				t.Fatalf("over the window: %v, want a conflict", err)
			}
			for _, figure := range []string{"window of claude-sonnet-5-5", "takes 10,000 of input", "directive 2", "10,007 of its own"} {
				if !strings.Contains(conflict.Message, figure) {
					t.Errorf("%q lacks %q", conflict.Message, figure)
				}
			}
			if !strings.HasPrefix(conflict.NextStep, "Shorten directive 2 by about ") {
				t.Errorf("next step %q", conflict.NextStep)
			}
		}
		want(t, "forks", len(y.forks()), 0)

		fits := directives("d1", strings.Repeat("read ", 4_000))
		q, err := y.engine.QuoteForks(y.ctx, y.session.ID, fits)
		if err != nil {
			t.Fatal(err)
		}
		// The default of 32,000 tokens of output does not fit as well: a warning, no refusal.
		if !strings.Contains(q.Window.Note, "an answer is cut after") {
			t.Errorf("note %q", q.Window.Note)
		}
		first, _, err := y.engine.Fork(y.ctx, y.session.ID, fits, "fits")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		// A repeat is answered though the conversation has outgrown the window since.
		for range 3 {
			y.ask(strings.Repeat("more ", 3_000))
		}
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, fits, ""); !errors.Is(err, forkcore.ErrConflict) {
			t.Errorf("a conversation over the window: %v, want a conflict", err)
		}
		if _, err := y.engine.QuoteForks(y.ctx, y.session.ID, fits); err == nil || !strings.Contains(err.Error(), "about ") {
			t.Errorf("its quote: %v, want the estimate to be called one", err)
		}
		again, _, err := y.engine.Fork(y.ctx, y.session.ID, fits, "fits")
		if err != nil || again.ID != first.ID {
			t.Errorf("the repeat: %s, %v; want %s", again.ID, err, first.ID)
		}
	})
}

// A model's own dispatch over the window gets the figures as tool errors and starts nothing.
func TestModelForksOverTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := func(c call) reply {
			if c.answers() == 0 {
				return useTools(
					use("toolu_short", "Agent", `{"description":"short","prompt":"d1"}`),
					use("toolu_long", "Agent", `{"description":"long","prompt":"`+strings.Repeat("read ", 8_000)+`"}`),
				)
			}
			return say("done")
		}
		y := newYard(t, script, narrow(t, "20000"))
		r := y.ask("go")
		want(t, "state", r.State, forkcore.Done)
		want(t, "forks", len(y.forks()), 0)
		calls := y.model.received()
		want(t, "requests", len(calls), 2)
		results := 0
		for _, b := range calls[1].messages[len(calls[1].messages)-1].Blocks {
			results++
			if !strings.Contains(b.Text, "would exceed the window of claude-sonnet-5-5") || !strings.Contains(b.Text, "takes 20,000 of input") || !strings.Contains(b.Text, ". Shorten directive 2 by about") || !b.IsError {
				t.Errorf("result %+v", b)
			}
		}
		want(t, "results", results, 2)
		y.wantBodies()
	})
}
