package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func directives(prompts ...string) forkcore.ForkSpec {
	var spec forkcore.ForkSpec
	for _, p := range prompts {
		spec.Directives = append(spec.Directives, forkcore.Directive{Prompt: p})
	}
	return spec
}

// TestFork: what forks by a person or the API inherit.
func TestFork(t *testing.T) {
	script := func(c call) reply {
		a := say("an answer")
		if _, fork := c.directive(); fork {
			a = say(reportText)
		}
		a.before = 2 * time.Second
		return a
	}
	inherits := func(y *yard) (messages int) {
		for _, c := range y.model.received() {
			if at, _, fork := c.forkMessage(); fork {
				return at
			}
		}
		return -1
	}
	tests := []struct {
		name     string
		before   func(y *yard)
		messages int
	}{
		{"no turn yet", func(*yard) {}, 0},
		{"after a turn", func(y *yard) { y.ask("first") }, 2},
		{"during a turn", func(y *yard) {
			y.ask("first")
			y.send("second")
			time.Sleep(time.Second)
		}, 2},
		{"during the first turn", func(y *yard) {
			y.send("first")
			time.Sleep(time.Second)
		}, 0},
		{"after a stopped turn", func(y *yard) {
			y.ask("first")
			y.send("second")
			time.Sleep(time.Second)
			if _, err := y.engine.Stop(y.ctx, y.session.ID, "turn"); err != nil {
				y.Fatal(err)
			}
			synctest.Wait()
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, script)
				tt.before(y)
				quote, err := y.engine.QuoteForks(y.ctx, y.session.ID, directives("d1", "d2"))
				if err != nil {
					t.Fatal(err)
				}
				d, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(quote, d.Quote); diff != "" {
					t.Errorf("quote (-asked +dispatched):\n%s", diff)
				}
				want(t, "runs", len(runs), 2)
				want(t, "first leads", runs[0].Leader, true)
				want(t, "second state", runs[1].State, forkcore.Parked)
				want(t, "title", runs[0].Title, "d1")
				y.idle()
				want(t, "inherited messages", inherits(y), tt.messages)
				// The reports reach the main agent: as a turn of their own, or in the one that runs.
				said := 0
				for _, c := range y.model.received() {
					if _, fork := c.directive(); !fork {
						said += strings.Count(c.last(), "<task-notification>")
					}
				}
				want(t, "notices", said, 2)
				y.wantBodies()
			})
		})
	}
}

func TestForkIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			a := say(reportText)
			a.usage = forkcore.Usage{Input: 10_000, Output: 8_000}
			return a
		})
		budget := 0.2
		y.session = y.newSession(forkcore.SessionSpec{BudgetUSD: &budget})
		spec := directives("d1", "d2")
		first, _, err := y.engine.Fork(y.ctx, y.session.ID, spec, "key")
		if err != nil {
			t.Fatal(err)
		}
		same := func(when string) {
			t.Helper()
			again, runs, err := y.engine.Fork(y.ctx, y.session.ID, spec, "key")
			if err != nil || again.ID != first.ID || len(runs) != 2 {
				t.Errorf("repeat %s = %s with %d runs, %v; want %s", when, again.ID, len(runs), err, first.ID)
			}
		}
		same("at once")
		y.idle()
		same("later")
		off, dollar := spec, 1.0
		off.Gate = forkcore.GateOff
		dear := spec
		dear.BudgetUSD = &dollar
		for name, other := range map[string]forkcore.ForkSpec{"directives": directives("d1", "d3"), "gate": off, "budget": dear} {
			if _, _, err := y.engine.Fork(y.ctx, y.session.ID, other, "key"); !errors.Is(err, forkcore.ErrIdempotencyMismatch) {
				t.Errorf("same key, other %s: %v, want ErrIdempotencyMismatch", name, err)
			}
		}
		// Even when nothing more can be paid.
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, spec, ""); !errors.Is(err, forkcore.ErrBudget) {
			t.Fatalf("fork with %+v spent of %d: %v, want ErrBudget", y.sessionNow().Cost, y.sessionNow().BudgetNanoUSD, err)
		}
		same("with an exhausted budget")
		want(t, "forks", len(y.forks()), 2)
	})
}

func TestForkBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("x") })
		tiny := 0.000_001
		spec := directives("d1")
		spec.BudgetUSD = &tiny
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, spec, ""); !errors.Is(err, forkcore.ErrBudget) {
			t.Errorf("fork with a tiny budget: %v, want ErrBudget", err)
		}
		y.session = y.newSession(forkcore.SessionSpec{BudgetUSD: &tiny})
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), ""); !errors.Is(err, forkcore.ErrBudget) {
			t.Errorf("fork in a session with a tiny budget: %v, want ErrBudget", err)
		}
		want(t, "runs", len(y.runs()), 0)
		want(t, "wakes", len(y.queue.noted()), 0)
		events, err := y.store.Events(y.ctx, y.session.ID, "0", 0)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "events", len(events), 1) // the session's creation
	})
}

func TestBadForkSpecs(t *testing.T) {
	free, many := 0.0, make([]string, forkcore.MaxDirectives+1)
	for i := range many {
		many[i] = fmt.Sprint("d", i)
	}
	below := 1e-10
	tests := []struct {
		name   string
		spec   forkcore.ForkSpec
		fields []string
	}{
		{"nothing", forkcore.ForkSpec{}, []string{"directives"}},
		{"too many", directives(many...), []string{"directives"}},
		{"empty prompts", directives("d1", "", " "), []string{"directives[1].prompt", "directives[2].prompt"}},
		{
			"everything",
			forkcore.ForkSpec{Directives: directives("").Directives, Isolation: "moon", Gate: "ajar", BudgetUSD: &free},
			[]string{"directives[0].prompt", "isolation", "gate", "budget_usd"},
		},
		{
			"its own parameters",
			forkcore.ForkSpec{
				Directives: []forkcore.Directive{{Prompt: "a"}, {Prompt: "b", Overrides: forkcore.Overrides{Model: []byte(`"claude-haiku-5-5"`), Thinking: []byte(`null`)}}},
				Overrides:  forkcore.Overrides{Effort: []byte(`"low"`), Thinking: []byte(`{}`), MaxTokens: []byte(`1`), ToolChoice: []byte(`{}`)},
			},
			[]string{"effort", "thinking", "tool_choice", "max_tokens", "directives[1].model"},
		},
		{"worktree", forkcore.ForkSpec{Directives: directives("d").Directives, Isolation: "worktree"}, []string{"isolation"}},
		{"jobs of no turns", forkcore.ForkSpec{Directives: directives("d").Directives, Jobs: forkcore.Jobs{Turns: -1}}, []string{"jobs.turns"}},
		{"budget below the smallest unit", forkcore.ForkSpec{Directives: directives("d").Directives, BudgetUSD: &below}, []string{"budget_usd"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(call) reply { return say("x") })
				_, quoteErr := y.engine.QuoteForks(y.ctx, y.session.ID, tt.spec)
				_, _, forkErr := y.engine.Fork(y.ctx, y.session.ID, tt.spec, "")
				for _, err := range []error{quoteErr, forkErr} {
					if diff := cmp.Diff(tt.fields, badFields(err)); diff != "" {
						t.Errorf("fields of %v (-want +got):\n%s", err, diff)
					}
				}
				want(t, "runs", len(y.runs()), 0)
			})
		})
	}
}

// badFields names the fields of a *forkcore.InvalidError.
func badFields(err error) (fields []string) {
	var invalid *forkcore.InvalidError
	if errors.As(err, &invalid) {
		for _, f := range invalid.Fields {
			fields = append(fields, f.Field)
		}
	}
	return fields
}

func TestForkInCoordinatorMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("x") })
		y.session = y.newSession(forkcore.SessionSpec{Mode: forkcore.ModeCoordinator})
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d"), ""); !errors.Is(err, forkcore.ErrConflict) {
			t.Errorf("fork in coordinator mode: %v, want ErrConflict", err)
		}
	})
}
