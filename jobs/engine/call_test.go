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
	"forkyard/jobs/engine"
)

func overloaded() reply {
	return reply{err: &forkcore.ModelError{Code: forkcore.CodeOverloaded, Status: 529, Type: "overloaded_error", Message: "Overloaded", Retryable: true, ProviderRequestID: "req_529"}}
}

func TestRetries(t *testing.T) {
	cut := func(before time.Duration) reply {
		return reply{
			err: &forkcore.ModelError{Code: forkcore.CodeStreamCut, Status: 200, Message: "connection reset", Retryable: true}, cut: true, before: before,
			deltas: []forkcore.ModelDelta{{Kind: "text", Text: "a partial answer"}},
		}
	}
	retryAfter := func(d time.Duration) reply {
		a := overloaded()
		a.err.RetryAfter = d
		return a
	}
	refused := func(code string, status int) reply {
		return reply{err: &forkcore.ModelError{Code: code, Status: status, Type: "some_error", Message: "no"}}
	}
	tests := []struct {
		name     string
		replies  []reply
		state    forkcore.State
		code     string // of the reason
		statuses string
		least    time.Duration // the turn takes at least this
		most     time.Duration
	}{
		{"overloaded thrice", []reply{overloaded(), overloaded(), overloaded(), say("yes")}, forkcore.Done, "", "error error error ok", 1750 * time.Millisecond, 3600 * time.Millisecond},
		{"overloaded for good", []reply{overloaded(), overloaded(), overloaded(), overloaded(), say("late")}, forkcore.Failed, forkcore.CodeOverloaded, "error error error error", 1750 * time.Millisecond, 3600 * time.Millisecond},
		{"bad key", []reply{refused(forkcore.CodeProviderAuth, 401)}, forkcore.Failed, forkcore.CodeProviderAuth, "error", 0, 0},
		{"context window", []reply{refused(forkcore.CodeContextWindow, 400)}, forkcore.Failed, forkcore.CodeContextWindow, "error", 0, 0},
		{"retry-after", []reply{retryAfter(7 * time.Second), say("yes")}, forkcore.Done, "", "error ok", 7 * time.Second, 7100 * time.Millisecond},
		{"stream cut", []reply{cut(0), cut(time.Second), say("yes")}, forkcore.Done, "", "error error ok", 0, 4 * time.Second},
		{"empty answer", []reply{{stop: "end_turn"}}, forkcore.Failed, forkcore.CodeNoOutput, "ok", 0, 0},
		{"refusal", []reply{{blocks: say("I will not").blocks, stop: "refusal"}}, forkcore.Failed, forkcore.CodeRefusal, "ok", 0, 0},
		{"cut at the output limit", []reply{{blocks: say("half of").blocks, stop: "max_tokens"}}, forkcore.Failed, forkcore.CodeTruncated, "ok", 0, 0},
		{"window full", []reply{{blocks: say("half of").blocks, stop: "model_context_window_exceeded"}}, forkcore.Failed, forkcore.CodeContextWindow, "ok", 0, 0},
		{"stop sequence", []reply{{blocks: say("yes").blocks, stop: "stop_sequence"}}, forkcore.Done, "", "ok", 0, 0},
		{"cut inside a tool call", []reply{{blocks: []string{use("t1", "Bash", `{}`)}, stop: "max_tokens"}}, forkcore.Failed, forkcore.CodeTruncated, "ok", 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply { return tt.replies[min(c.n, len(tt.replies))-1] })
				start := time.Now()
				r := y.ask("go")
				if took := time.Since(start); took < tt.least || took > tt.most+10*time.Millisecond {
					t.Errorf("took %v, want %v to %v", took, tt.least, tt.most)
				}
				want(t, "statuses", y.statuses(r.ID), tt.statuses)
				if tt.code == "" {
					want(t, "state", r.State, tt.state)
					log := "turn_start user assistant turn_end"
					if stop := tt.replies[len(tt.replies)-1].stop; stop == "stop_sequence" {
						log = "turn_start user assistant stop:" + stop + " turn_end"
					}
					want(t, "log", y.log(y.session.ID), log)
				} else {
					y.wantReason(r, tt.state, tt.code)
				}
				want(t, "tools", len(y.tools.runs()), 0)
				for i, row := range y.requests(r.ID) {
					want(t, "attempt", row.Attempt, i+1)
					want(t, "n", row.N, int64(i+1))
					if row.EndedAt == nil {
						t.Errorf("request %d has no end", row.N)
					}
				}
				for _, e := range y.entries(y.session.ID) {
					if strings.Contains(string(e.Bytes), "partial") {
						t.Error("a partial answer was stored")
					}
				}
				want(t, "reserved", y.sessionNow().ReservedNanoUSD, 0)
				y.wantBodies()

				// Whatever happened, the conversation goes on.
				y.model.answer = func(call) reply { return say("good again") }
				want(t, "next turn", y.ask("go on").State, forkcore.Done)
				y.wantBodies()
			})
		})
	}
}

// TestMaxTokensKeepsText: a text cut at the limit is shown, one cut inside a tool call is not stored.
func TestMaxTokensKeepsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return reply{blocks: say("half of").blocks, stop: "max_tokens"} })
		y.ask("go")
		want(t, "log", y.log(y.session.ID), "turn_start user assistant stop:max_tokens turn_end")
	})
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return reply{blocks: []string{use("t1", "Bash", `{}`)}, stop: "max_tokens"} })
		y.ask("go")
		want(t, "log", y.log(y.session.ID), "turn_start user turn_end")
	})
}

// TestMoney: usage and price of answers, of streams that broke off and of refused requests.
func TestMoney(t *testing.T) {
	cut := reply{
		usage: forkcore.Usage{Input: 7, CacheRead: 100, Output: 1}, cut: true,
		err:    &forkcore.ModelError{Code: forkcore.CodeStreamCut, Status: 200, Message: "reset", Retryable: true},
		deltas: []forkcore.ModelDelta{{Kind: "text", Text: strings.Repeat("x", 400)}},
	}
	blind := say("no usage")
	blind.unknown = true
	silent := reply{err: &forkcore.ModelError{Code: forkcore.CodeStreamCut, Message: "no byte for 90 s", Retryable: true}}
	unsent := reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Message: "connection refused", Retryable: true, Unsent: true}}
	price := func(u forkcore.Usage) *int64 {
		n := u.Input*2000 + u.CacheWrite5m*2500 + u.CacheRead*200 + u.Output*10000 // claude-sonnet-5-5 at the date of the fake clock
		return &n
	}
	estimated := forkcore.Usage{Input: 7, CacheRead: 100, Output: 100} // 400 bytes at 4 a token
	free, guess := int64(0), int64(-1)                                 // the guess follows from the bytes of the body
	type row struct {
		Usage     *forkcore.Usage
		Estimated bool
		Cost      *int64
	}
	tests := []struct {
		name    string
		model   string
		replies []reply
		rows    []row
		usage   forkcore.Usage
		known   bool // whether the run's cost is
	}{
		{"answer", "", []reply{say("yes")}, []row{{&usual, false, price(usual)}}, usual, true},
		{"refused requests are free", "", []reply{overloaded(), say("yes")}, []row{{nil, false, &free}, {&usual, false, price(usual)}}, usual, true},
		{"a broken stream costs what was seen", "", []reply{cut, say("yes")}, []row{{&estimated, true, price(estimated)}, {&usual, false, price(usual)}}, usual.Add(estimated), true},
		{"no connection is free", "", []reply{unsent, say("yes")}, []row{{nil, false, &free}, {&usual, false, price(usual)}}, usual, true},
		{"no response costs what was to be expected", "", []reply{silent, say("yes")}, []row{{nil, true, &guess}, {&usual, false, price(usual)}}, usual, true},
		{"no usage, no price", "", []reply{blind}, []row{{nil, false, nil}}, forkcore.Usage{}, false},
		{"unknown model", "some-model-1", []reply{say("yes")}, []row{{&usual, false, nil}}, usual, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply { return tt.replies[c.n-1] })
				y.session = y.newSession(forkcore.SessionSpec{Model: tt.model})
				r := y.ask("go")
				want(t, "state", r.State, forkcore.Done)
				var got []row
				for _, q := range y.requests(r.ID) {
					if q.Estimated && q.Usage == nil {
						guess = *price(forkcore.Usage{CacheWrite5m: forkcore.EstimateTokens(q.BodyBytes)})
					}
					got = append(got, row{q.Usage, q.Estimated, q.Cost})
				}
				if diff := cmp.Diff(tt.rows, got); diff != "" {
					t.Errorf("rows (-want +got):\n%s", diff)
				}
				want(t, "usage of the run", r.Usage, tt.usage)
				s := y.sessionNow()
				want(t, "usage of the session", s.Usage, tt.usage)
				want(t, "cost of the session", s.Cost, r.Cost)
				want(t, "cost is known", r.Cost.Known() != nil, tt.known)
				if tt.known {
					var sum int64
					for _, q := range tt.rows {
						sum += *q.Cost
					}
					want(t, "cost", *r.Cost.Known(), sum)
				}
			})
		})
	}
}

func TestStopWhileStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply {
			a := say("never finished")
			a.deltas, a.after = []forkcore.ModelDelta{{Kind: "text", Text: strings.Repeat("y", 40)}}, time.Hour
			return a
		})
		id := y.send("go")
		time.Sleep(time.Second)
		if _, err := y.engine.Stop(y.ctx, y.session.ID, "turn"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // at once, without a heartbeat
		r := y.run(id)
		want(t, "state", r.State, forkcore.Cancelled)
		row := y.requests(id)[0]
		want(t, "status", row.Status, forkcore.RequestAborted)
		want(t, "estimated", row.Estimated, true)
		want(t, "usage", *row.Usage, forkcore.Usage{Input: usual.Input, CacheWrite5m: usual.CacheWrite5m, Output: 10})
		want(t, "log", y.log(y.session.ID), "turn_start user turn_end")
	})
}

// gated runs a fan-out whose leader answers as told; it returns when each
// fork's first request was sent, from the leader's, and when the parent's second was.
func gated(t *testing.T, y *yard, leader func(call) reply) (forks map[string]time.Duration, parent time.Duration) {
	script := fanOut(3)
	y.model.answer = func(c call) reply {
		if d, _ := c.directive(); d == "d1" {
			return leader(c)
		}
		return script(c)
	}
	y.ask("fan out")
	y.until("all forks to be sent", func() bool {
		n := map[string]bool{}
		for _, c := range y.model.received() {
			if d, fork := c.directive(); fork {
				n[d] = true
			}
		}
		return len(n) == 3
	})
	forks = map[string]time.Duration{}
	var start time.Time
	for _, c := range y.model.received() {
		d, fork := c.directive()
		if !fork {
			continue
		}
		if start.IsZero() {
			start = c.at
		}
		if _, known := forks[d]; !known {
			forks[d] = c.at.Sub(start)
		}
	}
	for _, c := range y.model.received() {
		if _, fork := c.directive(); !fork && c.answers() == 1 {
			parent = c.at.Sub(start)
		}
	}
	return forks, parent
}

func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want || got > want+1100*time.Millisecond { // sweeps come every second
		t.Errorf("%s after %v, want %v", what, got, want)
	}
}

func TestGate(t *testing.T) {
	slow := func(before time.Duration) func(call) reply {
		return func(call) reply {
			a := say(reportText)
			a.before = before
			return a
		}
	}
	t.Run("opens at the leader's first event", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			forks, parent := gated(t, y, slow(3*time.Second))
			near(t, "d2", forks["d2"], 3*time.Second)
			near(t, "d3", forks["d3"], 3*time.Second)
			near(t, "the parent", parent, 3*time.Second)
			y.idle()
		})
	})
	t.Run("holds the parent for 5 s at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			forks, parent := gated(t, y, slow(12*time.Second))
			near(t, "d2", forks["d2"], 12*time.Second)
			if parent < 4900*time.Millisecond || parent > 5100*time.Millisecond {
				t.Errorf("the parent went after %v, want 5 s", parent)
			}
			y.idle()
		})
	})
	t.Run("opens after 20 s without an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			forks, _ := gated(t, y, slow(time.Hour/2))
			near(t, "d2", forks["d2"], 20*time.Second)
			near(t, "d3", forks["d3"], 20*time.Second)
			d := y.dispatch(y.forks()[0].DispatchID)
			want(t, "cause", d.GateHistory[1].Cause, "limit")
			y.idle()
			want(t, "gate events after the late answer", len(y.dispatch(d.ID).GateHistory), 2)
		})
	})
	t.Run("the next leads when the leader fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			forks, _ := gated(t, y, func(call) reply {
				return reply{before: 2 * time.Second, err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Status: 500, Message: "no"}}
			})
			near(t, "d2", forks["d2"], 2*time.Second)
			near(t, "d3", forks["d3"], 3*time.Second) // a second after d2, whose first event opens the gate
			y.idle()
			want(t, "states", y.states(), "main:done fork:failed fork:done fork:done main:done")
			d := y.dispatch(y.forks()[0].DispatchID)
			want(t, "leader", d.LeaderRunID, y.forks()[1].ID)
			want(t, "history", len(d.GateHistory), 3)
		})
	})
	t.Run("the next leads when the leader is cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			time.AfterFunc(4*time.Second, func() {
				if err := y.engine.Cancel(y.ctx, y.forks()[0].ID); err != nil {
					t.Error(err)
				}
			})
			forks, _ := gated(t, y, slow(time.Hour/2))
			near(t, "d2", forks["d2"], 3*time.Second)
			y.idle()
			want(t, "states", y.states(), "main:done fork:cancelled fork:done fork:done main:done")
		})
	})
	t.Run("a retrying leader keeps the lead", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil)
			attempts := 0
			forks, _ := gated(t, y, func(call) reply {
				if attempts++; attempts == 1 {
					a := overloaded()
					a.err.RetryAfter = 6 * time.Second
					return a
				}
				return say(reportText)
			})
			near(t, "d2", forks["d2"], 6*time.Second)
			y.idle()
			want(t, "leader", y.dispatch(y.forks()[0].DispatchID).LeaderRunID, y.forks()[0].ID)
		})
	})
	t.Run("off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, nil, func(o *engine.Options) { o.Gate = forkcore.GateOff })
			forks, parent := gated(t, y, slow(3*time.Second))
			want(t, "d2", forks["d2"], 0)
			want(t, "d3", forks["d3"], 0)
			want(t, "parent", parent, 0)
			y.idle()
			want(t, "gate", y.dispatch(y.forks()[0].DispatchID).Gate, forkcore.GateNone)
		})
	})
	t.Run("none for a fan-out of one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, fanOut(1))
			y.ask("go")
			y.idle()
			d := y.dispatch(y.forks()[0].DispatchID)
			want(t, "gate", d.Gate, forkcore.GateNone)
			want(t, "leader", d.LeaderRunID, "")
		})
	})
}

// TestGateExpired: a follower that starts after the shared entry's life leads a new generation.
func TestGateExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(3))
		y.send("go")
		y.until("the leader's send", func() bool { return len(y.forks()) == 3 && y.forks()[0].Requests == 1 })
		y.queue.hold() // nobody has a worker for the followers
		y.until("an open gate", func() bool { return y.dispatch(y.forks()[0].DispatchID).Gate == forkcore.GateOpen })
		time.Sleep(6 * time.Minute)
		y.queue.mu.Lock()
		y.queue.closed = false
		y.queue.mu.Unlock()
		y.idle()
		d := y.dispatch(y.forks()[0].DispatchID)
		want(t, "generation", d.Generation, 2)
		var got []string
		for _, e := range d.GateHistory {
			got = append(got, e.Type+" "+e.Cause)
		}
		if diff := cmp.Diff([]string{"closed dispatch", "opened message_start", "closed expired", "opened message_start"}, got); diff != "" {
			t.Errorf("history (-want +got):\n%s", diff)
		}
	})
}

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			a := useTools(use(fmt.Sprintf("t%d", c.n), "Read", `{"n":`+strings.Repeat("1", c.n)+`}`))
			a.usage = forkcore.Usage{Input: 10_000, Output: 1000} // 0.03 USD
			return a
		})
		budget := 0.15
		y.session = y.newSession(forkcore.SessionSpec{BudgetUSD: &budget})
		r := y.ask("spend")
		y.wantReason(r, forkcore.OverBudget, "over_budget")
		s := y.sessionNow()
		if s.Cost.NanoUSD > s.BudgetNanoUSD || s.Cost.NanoUSD < s.BudgetNanoUSD/2 {
			t.Errorf("spent %d of %d", s.Cost.NanoUSD, s.BudgetNanoUSD)
		}
		want(t, "reserved", s.ReservedNanoUSD, 0)
		want(t, "requests", int64(len(y.model.received())), r.Requests)
		if _, err := y.engine.SendMessage(y.ctx, y.session.ID, "more", ""); !errors.Is(err, forkcore.ErrBudget) {
			t.Errorf("send with the budget spent: %v, want ErrBudget", err)
		}
		want(t, "runs", len(y.runs()), 1)
	})
}

// TestDispatchBudget: the children share what the fan-out may cost; the parent hears of it.
func TestDispatchBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); !fork {
				return say("noted")
			}
			a := say(reportText)
			a.before = time.Second
			return a
		})
		budget := 0.1
		d, runs, err := y.engine.Fork(y.ctx, y.session.ID, forkcore.ForkSpec{
			Directives: []forkcore.Directive{{Prompt: "d1"}, {Prompt: "d2"}, {Prompt: "d3"}}, Gate: forkcore.GateOff, BudgetUSD: &budget,
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		blocked := 0
		for _, r := range runs {
			if now := y.run(r.ID); now.State == forkcore.OverBudget {
				blocked++
				y.wantReason(now, forkcore.OverBudget, "over_budget")
			}
		}
		// One request reserves about 0.05 USD, most of it for its output.
		if blocked == 0 || blocked == 3 {
			t.Errorf("%d of 3 forks are over budget, want some", blocked)
		}
		if got := y.dispatch(d.ID).Cost.NanoUSD; got > d.BudgetNanoUSD {
			t.Errorf("cost %d of %d", got, d.BudgetNanoUSD)
		}
		last := y.model.received()[len(y.model.received())-1].last()
		want(t, "notices of blocked forks", strings.Count(last, "<status>blocked</status>"), blocked)
	})
}

// A long retry-after holds no worker: the run waits, says until when, and goes on by itself.
func TestLongRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if c.n == 1 {
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeRateLimited, Status: 429, Message: "slow down", Retryable: true, RetryAfter: time.Hour}}
			}
			return say("at last")
		})
		began := time.Now()
		id := y.send("go")
		y.until("the run waits", func() bool { return y.run(id).State == forkcore.Waiting })
		y.wantReason(y.run(id), forkcore.Waiting, forkcore.WaitRateLimit)
		want(t, "runs held meanwhile", y.engine.HeldRuns(), 0)
		time.Sleep(time.Hour)
		r := y.ended(id)
		want(t, "state", r.State, forkcore.Done)
		if r.Reason != nil {
			t.Errorf("the reason of waiting is still there: %+v", r.Reason)
		}
		second := y.model.received()[1]
		if d := second.at.Sub(began); d < time.Hour || d > time.Hour+5*time.Second {
			t.Errorf("the second request went out after %v, want an hour", d)
		}
	})
}

// Waiting does not renew the budget of four attempts.
func TestLongRetryAfterAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply {
			return reply{err: &forkcore.ModelError{Code: forkcore.CodeRateLimited, Status: 429, Message: "slow down", Retryable: true, RetryAfter: time.Minute}}
		})
		id := y.send("go")
		time.Sleep(4 * time.Minute)
		y.wantReason(y.ended(id), forkcore.Failed, forkcore.CodeRateLimited)
		for i, row := range y.requests(id) {
			want(t, "attempt", row.Attempt, i+1)
		}
		want(t, "requests", len(y.requests(id)), 4)
	})
}

func TestCancelWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply {
			return reply{err: &forkcore.ModelError{Code: forkcore.CodeOverloaded, Status: 529, Message: "later", Retryable: true, RetryAfter: time.Hour}}
		})
		id := y.send("go")
		y.until("the run waits", func() bool { return y.run(id).State == forkcore.Waiting })
		if err := y.engine.Cancel(y.ctx, id); err != nil {
			t.Fatal(err)
		}
		y.wantReason(y.run(id), forkcore.Cancelled, "cancelled")
		want(t, "active run", y.sessionNow().ActiveRunID, "")
	})
}

// What cannot be read back never enters the log: the session stays usable.
func TestUnreadableAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deep := `{"p":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`
		y := newYard(t, func(c call) reply {
			if c.n <= 4 {
				return useTools(use("t", "Read", deep))
			}
			return say("fine")
		})
		y.wantReason(y.ask("go"), forkcore.Failed, forkcore.CodeInvalidResponse)
		want(t, "log", y.log(y.session.ID), "turn_start user turn_end")
		want(t, "state of the next turn", y.ask("again").State, forkcore.Done)
	})
}

// An answer that could not be sent back is discarded and asked for again: in
// the log it would make every later request a refused one.
func TestAnswersThatCannotBeSentBack(t *testing.T) {
	for name, bad := range map[string]string{
		"an id of an earlier call":   use("t1", "Read", `{"n":2}`),
		"no id":                      use("", "Read", `{}`),
		"thinking without signature": `{"type":"thinking","thinking":"abc"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					switch c.n {
					case 1:
						return useTools(use("t1", "Read", `{"n":1}`))
					case 2:
						return useTools(`{"type":"text","text":"bad"}`, bad)
					}
					return say("done")
				})
				r := y.ask("go")
				want(t, "state", r.State, forkcore.Done)
				want(t, "statuses", y.statuses(r.ID), "ok error ok")
				want(t, "tools", len(y.tools.runs()), 1)
				want(t, "log", y.log(y.session.ID), "turn_start user assistant tool_started:Read tool_result:Read user assistant turn_end")
				for _, row := range y.requests(r.ID) {
					if row.Status == forkcore.RequestError && !strings.Contains(row.Error, "could not be sent back: messages.3.content.1") {
						t.Errorf("the row says %q", row.Error)
					}
				}
			})
		})
	}
}

// B53: what the provider would answer with 413 on this turn and every later
// one is not sent: no request, no cost, no retry, and nothing is lost.
func TestB53_OversizedRequestIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("yes") })
		r := y.ask(strings.Repeat("x", forkcore.MaxBodyBytes))
		y.wantReason(r, forkcore.Failed, forkcore.CodeContextWindow)
		if !strings.Contains(r.Reason.Message, "bytes, the provider takes 33554432") {
			t.Errorf("reason %q gives no figures", r.Reason.Message)
		}
		want(t, "requests", len(y.requests(r.ID)), 0)
		want(t, "requests received", len(y.model.received()), 0)
		want(t, "cost", r.Cost, forkcore.Cost{})
		want(t, "entries kept", len(y.entries(y.session.ID)), 3) // the turn's start, the message, the turn's end
	})
}
