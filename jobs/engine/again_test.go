package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

// TestResumeFork: a child that failed goes on under its id from where its log ends, with attempts of its own, and its
// parent hears of its latest end alone.
func TestResumeFork(t *testing.T) {
	tests := []struct {
		name   string
		fails  int // answers to d1 that fail, from its second request on
		broken reply
		code   string
		log    string // of d1
	}{
		{
			"provider down", 4, overloaded(), forkcore.CodeOverloaded,
			"fork_of directive assistant tool_started:Read tool_result:Read user resumed assistant",
		},
		{
			"cut answer", 1,
			reply{blocks: say("half").blocks, stop: "max_tokens"},
			forkcore.CodeTruncated,
			"fork_of directive assistant tool_started:Read tool_result:Read user assistant stop:max_tokens resumed user assistant",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := 0
				y := newYard(t, func(c call) reply {
					directive, fork := c.directive()
					switch {
					case !fork:
						return say("ok")
					case directive != "d1":
						return say(reportText)
					}
					if seen++; seen == 1 {
						return useTools(use("t1", "Read", `{}`))
					}
					if seen <= 1+tt.fails {
						return tt.broken
					}
					return say(reportText)
				})
				y.ask("go")
				d, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
				if err != nil {
					t.Fatal(err)
				}
				y.idle()
				y.wantReason(y.run(runs[0].ID), forkcore.Failed, tt.code)
				turns := strings.Count(y.log(y.session.ID), "turn_start")

				id, err := y.engine.Resume(y.ctx, runs[0].ID)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "id", id, runs[0].ID)
				y.idle()
				r := y.run(id)
				want(t, "state", r.State, forkcore.Done)
				want(t, "log", y.log(id), tt.log)
				want(t, "turns that read a notice", strings.Count(y.log(y.session.ID), "turn_start"), turns+1)
				want(t, "remaining", y.dispatch(d.ID).Remaining, 0)
				want(t, "executions of the tool", y.tools.times("t1"), 1)
				y.wantBodies()

				calls := y.model.received()
				last := calls[len(calls)-1].messages
				told := string(last[len(last)-1].Raw)
				if strings.Count(told, "<task-notification>") != 1 || !strings.Contains(told, "completed") {
					t.Errorf("the second turn was told %s", told)
				}
			})
		})
	}
}

// TestResumeTurn: a main turn that failed is taken up by a new turn, once.
func TestResumeTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if c.n <= 4 {
				return overloaded()
			}
			return say("now")
		})
		failed := y.ask("go")
		y.wantReason(failed, forkcore.Failed, forkcore.CodeOverloaded)
		id, err := y.engine.Resume(y.ctx, failed.ID)
		if err != nil {
			t.Fatal(err)
		}
		again, err := y.engine.Resume(y.ctx, failed.ID)
		if again != "" && again != id || err != nil && !errors.Is(err, forkcore.ErrConflict) {
			t.Errorf("resumed twice: %s, %v", again, err)
		}
		want(t, "state", y.ended(id).State, forkcore.Done)
		last := y.model.received()[4].messages
		want(t, "last message", last[len(last)-1].Text(), forkcore.ContinueText)
		_, err = y.engine.Resume(y.ctx, id)
		want(t, "resume of a turn that is done", errors.Is(err, forkcore.ErrConflict), true)
	})
}

// TestRaiseBudget: over budget is an end that can be raised and resumed; nothing is sent in between.
func TestRaiseBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); !fork {
				return say("ok")
			}
			if c.answers() == 0 {
				return useTools(use(fmt.Sprint("t", c.n), "Read", `{}`))
			}
			return say(reportText)
		})
		y.ask("go")
		spec := directives("d1", "d2", "d3")
		quote, err := y.engine.QuoteForks(y.ctx, y.session.ID, spec)
		if err != nil {
			t.Fatal(err)
		}
		budget := float64(*quote.ReserveNanoUSD) * 1.5 / 1e9
		spec.BudgetUSD = &budget
		d, runs, err := y.engine.Fork(y.ctx, y.session.ID, spec, "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		over := 0
		for _, r := range runs {
			if y.run(r.ID).State == forkcore.OverBudget {
				y.wantReason(y.run(r.ID), forkcore.OverBudget, "over_budget")
				over++
			}
		}
		if over == 0 {
			t.Fatalf("states %s, want runs over budget", y.states())
		}
		more := 100.0
		if err := y.engine.SetBudget(y.ctx, d.ID, &more); err != nil {
			t.Fatal(err)
		}
		resumed, err := y.engine.ResumeDispatch(y.ctx, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "resumed", len(resumed), over)
		y.idle()
		for _, r := range runs {
			want(t, "state", y.run(r.ID).State, forkcore.Done)
		}
		_, err = y.engine.ResumeDispatch(y.ctx, d.ID)
		want(t, "resume of a dispatch that is done", errors.Is(err, forkcore.ErrConflict), true)
		none := 0.0
		err = y.engine.SetBudget(y.ctx, d.ID, &none)
		var invalid *forkcore.InvalidError
		want(t, "budget of nothing", errors.As(err, &invalid), true)
		y.wantBodies()
	})
}

// TestRetryFailedHalf: only the failed half is sent again, as a fan-out of its own over the same snapshot, whose first
// request reads what the first fan-out wrote.
func TestRetryFailedHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		y := newYard(t, func(c call) reply {
			directive, fork := c.directive()
			if fork && down && (directive == "d2" || directive == "d4") {
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Status: 500, Message: "no"}}
			}
			return say(reportText)
		})
		y.ask("go")
		d, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2", "d3", "d4"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		down = false
		sent := len(y.model.received())
		again, runs, err := y.engine.Retry(y.ctx, d.ID, forkcore.RetrySpec{}, "key")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "runs", len(runs), 2)
		want(t, "first directive", runs[0].Directive, "d2")
		want(t, "second directive", runs[1].Directive, "d4")
		want(t, "retry of", again.RetryOf, d.ID)
		want(t, "snapshot", again.Snapshot, d.Snapshot)
		want(t, "quoted as warm", again.Quote.Warm, true)
		repeat, _, err := y.engine.Retry(y.ctx, d.ID, forkcore.RetrySpec{}, "key")
		if err != nil || repeat.ID != again.ID {
			t.Errorf("the same key again: %s, %v, want %s", repeat.ID, err, again.ID)
		}
		y.idle()
		for _, r := range runs {
			rows := y.requests(r.ID)
			want(t, "state", y.run(r.ID).State, forkcore.Done)
			if rows[0].ExpectedFrom == nil || *rows[0].ExpectedRead == 0 {
				t.Errorf("request of %q expects nothing from the cache", r.Directive)
			}
		}
		for _, c := range y.model.received()[sent:] {
			if directive, fork := c.directive(); fork && directive != "d2" && directive != "d4" {
				t.Errorf("directive %q was sent again", directive)
			}
		}
		y.wantBodies()

		for name, spec := range map[string]forkcore.RetrySpec{
			"a stranger": {Runs: []string{runs[0].ID}}, "nothing failed": {},
		} {
			of := d.ID
			if name == "nothing failed" {
				of = again.ID
			}
			if _, _, err := y.engine.Retry(y.ctx, of, spec, ""); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		_, chosen, err := y.engine.Retry(y.ctx, d.ID, forkcore.RetrySpec{Runs: d.RunIDs[:1]}, "")
		if err != nil || len(chosen) != 1 || chosen[0].Directive != "d1" {
			t.Errorf("a run by name: %+v, %v", chosen, err)
		}
	})
}

// TestNotifyPolicies: when a parent that is idle hears of its forks.
func TestNotifyPolicies(t *testing.T) {
	for policy, turns := range map[forkcore.NotifyPolicy]int{"": 1, forkcore.NotifyAllDone: 1, forkcore.NotifyEach: 3, forkcore.NotifyManual: 0} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					a := say(reportText)
					if directive, fork := c.directive(); fork {
						a.before = time.Duration(directive[1]-'0') * time.Minute
					}
					return a
				})
				y.ask("go")
				spec := directives("d1", "d2", "d3")
				spec.Notify = policy
				d, _, err := y.engine.Fork(y.ctx, y.session.ID, spec, "")
				if err != nil {
					t.Fatal(err)
				}
				y.idle()
				want(t, "turns for notices", strings.Count(y.log(y.session.ID), "turn_start")-1, turns)
				err = y.engine.DeliverNotices(y.ctx, d.ID)
				if policy != forkcore.NotifyManual {
					want(t, "nothing left to deliver", errors.Is(err, forkcore.ErrConflict), true)
				} else if err != nil {
					t.Error(err)
				}
				y.idle()
				told := 0
				for _, e := range y.entries(y.session.ID) {
					if e.Kind == forkcore.EntryMessage && !e.Fragment {
						told += strings.Count(string(e.Bytes), "\\u003ctask-notification>") + strings.Count(string(e.Bytes), "<task-notification>")
					}
				}
				want(t, "notices told", told, 3)
			})
		})
	}
}

// TestDeadline: what has not ended when the time is up ends as failed, wherever it is, with its usage booked and its work kept.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			directive, fork := c.directive()
			a := say(reportText)
			if fork && directive != "quick" {
				if c.answers() == 0 {
					return useTools(use(fmt.Sprint("t", c.n), "Read", `{}`))
				}
				a.after = time.Hour
			}
			return a
		})
		y.ask("go")
		spec := directives("quick", "slow", "slow too")
		sec := 30.0
		spec.DeadlineSeconds = &sec
		began := time.Now()
		d, runs, err := y.engine.Fork(y.ctx, y.session.ID, spec, "")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "deadline", d.Deadline.Sub(d.CreatedAt), 30*time.Second)
		y.idle()
		if took := time.Since(began); took > 35*time.Second {
			t.Errorf("took %v", took)
		}
		want(t, "quick", y.run(runs[0].ID).State, forkcore.Done)
		for _, r := range runs[1:] {
			y.wantReason(y.run(r.ID), forkcore.Failed, forkcore.CodeDeadline)
			want(t, "statuses", y.statuses(r.ID), "ok aborted")
			if y.run(r.ID).Cost.NanoUSD == 0 {
				t.Error("the cut request costs nothing")
			}
		}
	})
}
