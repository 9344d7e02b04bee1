package engine_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// scopedModel is a scripted model that tells which key it sends with.
type scopedModel struct {
	forkcore.Model
	scope forkcore.Scope
	ramp  bool
}

func (m scopedModel) Scope() forkcore.Scope { return m.scope }

func (m scopedModel) Traits() forkcore.Traits {
	return forkcore.Traits{Name: "scripted", Caching: forkcore.CachingMarks, Ramp: m.ramp}
}

// scoped gives the yard's model a key, the same in every engine.
func scoped(ramp bool) func(*engine.Options) {
	return func(o *engine.Options) {
		o.Model = scopedModel{o.Model, forkcore.Scope{Endpoint: "e", Key: "k"}, ramp}
	}
}

// B52: children that get 429 with retry-after 10 together wait together, and come back one after the other.
func TestB52_OneCoolDownForAll(t *testing.T) {
	for _, refusal := range []forkcore.ModelError{
		{Code: forkcore.CodeRateLimited, Status: 429, Message: "slow down"},
		{Code: forkcore.CodeOverloaded, Status: 529, Message: "overloaded"}, // which may say when as well
	} {
		t.Run(refusal.Code, func(t *testing.T) { testOneCoolDown(t, refusal) })
	}
}

func testOneCoolDown(t *testing.T, refusal forkcore.ModelError) {
	refusal.Retryable, refusal.RetryAfter = true, 10*time.Second
	synctest.Test(t, func(t *testing.T) {
		var children atomic.Int32
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork && children.Add(1) <= 5 {
				return reply{before: 100 * time.Millisecond, err: &refusal}
			}
			return say(reportText)
		}, scoped(false), func(o *engine.Options) { o.Gate = forkcore.GateOff })
		y.ask("first")
		began := time.Now()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2", "d3", "d4", "d5"), "")
		if err != nil {
			t.Fatal(err)
		}
		waiting := 0
		time.Sleep(5 * time.Second)
		for _, r := range runs {
			if now := y.run(r.ID); now.State == forkcore.Waiting {
				y.wantReason(now, forkcore.Waiting, forkcore.WaitRateLimit)
				waiting++
			}
		}
		want(t, "children that wait, without a worker", waiting, 5)
		want(t, "runs held meanwhile", y.engine.HeldRuns(), 0)
		for _, r := range runs {
			want(t, "state", y.ended(r.ID).State, forkcore.Done)
		}
		var retries []time.Duration
		for _, c := range y.model.received() {
			if _, fork := c.directive(); !fork {
				continue
			}
			if at := c.at.Sub(began); at > time.Second {
				retries = append(retries, at)
			}
		}
		want(t, "retries", len(retries), 5)
		slices.Sort(retries)
		if retries[0] < 10*time.Second {
			t.Errorf("a request at %v, before the provider's pause of 10 s ended", retries[0])
		}
		if spread := retries[4] - retries[0]; spread < 2*time.Second || spread > 10*time.Second {
			t.Errorf("retries at %v lie within %v, want two seconds or some more", retries, spread)
		}
	})
}

// A fan-out of many starts by degrees where the endpoint refuses a sudden rise, and at once elsewhere.
func TestFanOutRamps(t *testing.T) {
	for _, ramp := range []bool{true, false} {
		t.Run(fmt.Sprint(ramp), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(call) reply { return say(reportText) }, scoped(ramp), func(o *engine.Options) { o.Gate = forkcore.GateOff })
				var jobs []string
				for i := range 40 {
					jobs = append(jobs, fmt.Sprint("d", i))
				}
				_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives(jobs...), "")
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range runs {
					want(t, "state", y.ended(r.ID).State, forkcore.Done)
				}
				var starts []time.Time
				for _, c := range y.model.received() {
					if _, fork := c.directive(); fork {
						starts = append(starts, c.at)
					}
				}
				slices.SortFunc(starts, time.Time.Compare)
				spread, burst := starts[39].Sub(starts[0]), starts[7].Sub(starts[0])
				switch {
				case ramp && (spread < 400*time.Millisecond || spread > 2*time.Second || burst > 50*time.Millisecond):
					t.Errorf("40 starts within %v, the first 8 within %v; want about a second, and at once", spread, burst)
				case !ramp && spread > 0:
					t.Errorf("40 starts within %v, want at once", spread)
				}
			})
		})
	}
}

// A key that is refused holds every run of it, however it came to be refused, and no run fails for it.
func TestRefusedKeyHoldsRuns(t *testing.T) {
	for name, refusal := range map[string]*forkcore.ModelError{
		"not valid": {Code: forkcore.CodeProviderAuth, Status: 401, Message: "invalid x-api-key", KeyRefused: true},
		"no credit": {Code: forkcore.CodeProviderAuth, Status: 402, Message: "credit balance is too low", KeyRefused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				refused := true
				y := newYard(t, func(call) reply {
					if refused {
						return reply{err: refusal}
					}
					return say("ok")
				}, scoped(false))
				for range 6 { // more than a model call has attempts
					id := y.send("go")
					y.until("the run waits", func() bool { return y.run(id).State == forkcore.Waiting })
					y.wantReason(y.run(id), forkcore.Waiting, forkcore.WaitProvider)
					want(t, "runs held meanwhile", y.engine.HeldRuns(), 0)
					account, err := y.engine.ProviderAccount(y.ctx)
					if err != nil || account.Refused == nil || account.Refused.Message != refusal.Message || account.Waiting != 1 {
						t.Fatalf("account %+v (%v), want the refusal, and one run that waits", account, err)
					}
					before := len(y.model.received())
					time.Sleep(time.Hour)
					want(t, "requests while the key is refused", len(y.model.received()), before)
					if _, err := y.store.WakeWaiting(y.ctx, account.ID, false); err != nil { // nothing is changed by waking it too early
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					y.wantReason(y.run(id), forkcore.Waiting, forkcore.WaitProvider)
					if err := y.store.AcceptKey(y.ctx, account.ID); err != nil {
						t.Fatal(err)
					}
					if _, err := y.store.WakeWaiting(y.ctx, account.ID, false); err != nil {
						t.Fatal(err)
					}
				}
				refused = false
				y.until("the end", func() bool { return y.sessionNow().ActiveRunID == "" })
			})
		})
	}
}

// A refusal does not use up the attempts of a model call.
func TestRefusalIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		y := newYard(t, func(call) reply {
			switch n++; {
			case n <= 5:
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderAuth, Status: 401, Message: "no", KeyRefused: true}}
			case n <= 8:
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeOverloaded, Status: 529, Message: "busy", Retryable: true}}
			}
			return say("ok")
		}, scoped(false))
		id := y.send("go")
		for range 5 {
			y.until("the run waits", func() bool { return y.run(id).State == forkcore.Waiting })
			if err := y.store.AcceptKey(y.ctx, "e-k"); err != nil {
				t.Fatal(err)
			}
			if _, err := y.store.WakeWaiting(y.ctx, "e-k", false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		want(t, "state after five refusals and three busy answers", y.ended(id).State, forkcore.Done)
		for i, row := range y.requests(id) {
			if row.KeyRefused != (i < 5) {
				t.Errorf("request %d: refused %t", i+1, row.KeyRefused)
			}
			if i < 5 && (row.Cost == nil || *row.Cost != 0) {
				t.Errorf("request %d costs %v, want nothing", i+1, row.Cost)
			}
		}
	})
}

// With the real client: all runs of the key wait, another key that works lets all go on, and one fork writes anew what
// the others read.
func TestReplaceKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{MessageStartDelay: 100 * time.Millisecond}, func(o *engine.Options) { o.Dashboard = true })
		s.ask("first")
		worker := s.workerElsewhere(func(o *engine.Options) {
			o.Model, o.Dashboard = simulatorClient(t, s.sim, "sim"), false // a client of its own, with the same key
		})
		s.sim.RevokeKey("sim")
		_, runs, err := s.engine.Fork(s.ctx, s.session.ID, directives("d1", "d2", "d3"), "")
		if err != nil {
			t.Fatal(err)
		}
		turn := s.send("second")
		s.until("all wait", func() bool {
			return s.run(turn).State == forkcore.Waiting && s.run(runs[0].ID).State == forkcore.Waiting
		})
		time.Sleep(time.Hour) // the gate's limit passes, and nobody sends
		for _, r := range runs[1:] {
			s.wantReason(s.run(r.ID), forkcore.Waiting, forkcore.WaitProvider)
		}

		s.sim.RevokeKey("a-key-that-is-revoked")
		check, resumed, err := s.engine.ReplaceKey(s.ctx, "a-key-that-is-revoked")
		if err != nil || check.Outcome != forkcore.ProviderRefused || resumed != 0 {
			t.Fatalf("a key that does not work: %+v, %d resumed (%v)", check, resumed, err)
		}
		if strings.Contains(fmt.Sprintf("%+v", check), "a-key-that-is-revoked") {
			t.Errorf("the check repeats the key: %+v", check)
		}
		want(t, "state of the turn", s.run(turn).State, forkcore.Waiting)
		var invalid *forkcore.InvalidError
		if _, _, err := s.engine.ReplaceKey(s.ctx, " "); !errors.As(err, &invalid) {
			t.Errorf("a blank key: %v, want an InvalidError", err)
		}

		old := s.sessionNow().Account
		check, resumed, err = s.engine.ReplaceKey(s.ctx, "a-key-that-works")
		if err != nil || check.Outcome != forkcore.ProviderOK {
			t.Fatalf("a key that works: %+v (%v)", check, err)
		}
		want(t, "resumed runs", resumed, 4)
		want(t, "state of the turn", s.ended(turn).State, forkcore.Done)
		wrote, read := 0, 0
		for _, r := range runs {
			r = s.ended(r.ID)
			want(t, "state of a fork", r.State, forkcore.Done)
			for _, row := range s.requests(r.ID) {
				switch {
				case row.KeyRefused:
				case row.Usage.CacheWrite5m > 0:
					wrote++
				case row.Usage.CacheRead > 0:
					read++
				}
			}
		}
		want(t, "forks that wrote the prefix", wrote, 1)
		want(t, "forks that read it", read, 2)
		if now := s.sessionNow().Account; now == old || now == "" {
			t.Errorf("the session is still bound to %q", now)
		}
		account, err := worker.ProviderAccount(s.ctx)
		if err != nil || account.Refused != nil || account.ID != s.sessionNow().Account {
			t.Errorf("the worker's account: %+v (%v), want that of the session, %s", account, err, s.sessionNow().Account)
		}
		s.idle()
	})
}

// untilWaiting waits until so many runs wait for the key in use.
func (y *yard) untilWaiting(n int64) {
	y.Helper()
	y.until(fmt.Sprint(n, " runs to wait for the key"), func() bool {
		a, err := y.engine.ProviderAccount(y.ctx)
		return err == nil && a.Waiting == n
	})
}

// Forks that a refused key stopped in the middle of their work share their prefix again with another one.
func TestReplaceKeyInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sim *modelsim.Server
		var started atomic.Int64
		y, sim := newSimulatedYard(t, modelsim.Options{DeltaDelay: 5 * time.Second}, func(c call) reply {
			_, fork := c.directive()
			switch last := c.messages[len(c.messages)-1]; {
			case !fork:
				return say("hello")
			case last.Blocks[0].Type == "tool_result":
				return say(reportText)
			}
			if started.Add(1) == 3 {
				sim.RevokeKey("sim")
			}
			return useTools(use("t1", "Read", `{"file_path":"a.txt"}`))
		})
		y.ask("first " + strings.Repeat("a long conversation ", 1_000))
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2", "d3"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.untilWaiting(3)
		if check, resumed, err := y.engine.ReplaceKey(y.ctx, "another"); err != nil || resumed != 3 {
			t.Fatalf("%+v, %d resumed (%v)", check, resumed, err)
		}
		var shared int64
		for i, r := range runs {
			r = y.ended(r.ID)
			want(t, "state of a fork", r.State, forkcore.Done)
			rows := y.requests(r.ID)
			first, last := rows[0].Usage, rows[len(rows)-1].Usage
			shared = first.CacheRead + first.CacheWrite5m
			if leads := y.dispatch(r.DispatchID).LeaderRunID == r.ID; leads != (last.CacheRead == 0) || !leads && last.CacheRead < shared {
				t.Errorf("fork %d (leads: %v) read %d of %d and wrote %d", i, leads, last.CacheRead, shared, last.CacheWrite5m)
			}
		}
		y.idle()
	})
}

// A turn and the forks that it launched go on with another key: one of them writes what all share.
func TestReplaceKeyUnderALaunch(t *testing.T) {
	for _, begun := range []bool{false, true} { // whether the forks had answers of their own by then
		t.Run(fmt.Sprint(begun), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sim *modelsim.Server
				var started atomic.Int64
				// The turn looks at the gate every 25 ms: between two looks the forks are first to send.
				o := modelsim.Options{MessageStartDelay: 1010 * time.Millisecond, DeltaDelay: time.Second}
				y, sim := newSimulatedYard(t, o, func(c call) reply {
					_, fork := c.directive()
					switch {
					case fork && c.answers() > 0:
						return say(reportText)
					case fork:
						if started.Add(1) == 3 {
							sim.RevokeKey("sim") // the turn's next request is on its way as well
						}
						return useTools(use("t1", "Read", `{"file_path":"a.txt"}`))
					case c.answers() == 0:
						if !begun {
							sim.RevokeKey("sim")
						}
						return agents(3)
					case c.answers() == 1:
						return useTools(use("t2", "Read", `{"file_path":"b.txt"}`))
					}
					return say("summed up")
				})
				turn := y.send("go " + strings.Repeat("over a long conversation ", 1_000))
				y.untilWaiting(4)
				if check, _, err := y.engine.ReplaceKey(y.ctx, "another"); err != nil || check.Outcome != forkcore.ProviderOK {
					t.Fatalf("%+v (%v)", check, err)
				}
				want(t, "state of the turn", y.ended(turn).State, forkcore.Done)
				y.idle()
				wrote := 0
				account := y.sessionNow().Account
				for _, r := range y.runs() {
					for _, row := range y.requests(r.ID) {
						if row.Scope.Account() == account && row.Usage != nil && row.Usage.CacheRead == 0 {
							wrote++
						}
					}
				}
				want(t, "requests with the new key that read nothing", wrote, 1)
			})
		})
	}
}

// A process that starts with the key that was replaced goes on with its successor.
func TestStartWithAReplacedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{}, func(o *engine.Options) { o.Dashboard = true })
		s.ask("first")
		if check, _, err := s.engine.ReplaceKey(s.ctx, "another-key"); err != nil || check.Outcome != forkcore.ProviderOK {
			t.Fatalf("%+v (%v)", check, err)
		}
		second := s.row(s.ask("second"))
		s.sim.RevokeKey("sim")
		s.elsewhere(func(o *engine.Options) { o.Model = simulatorClient(t, s.sim, "sim") })
		third := s.row(s.ask("third"))
		want(t, "scope", third.Scope, second.Scope)
		want(t, "read", third.Usage.CacheRead, second.Usage.Cached())
	})
}

// A mended account is checked, and its runs go on.
func TestCheckAgainResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{})
		s.ask("first")
		s.sim.RevokeKey("sim")
		id := s.send("second")
		s.until("the run waits", func() bool { return s.run(id).State == forkcore.Waiting })
		check, resumed, err := s.engine.CheckProvider(s.ctx, "", true)
		if err != nil || check.Outcome != forkcore.ProviderRefused || resumed != 0 {
			t.Fatalf("a check of a refused key: %+v, %d resumed (%v)", check, resumed, err)
		}
		s.sim.AllowKey("sim")
		check, resumed, err = s.engine.CheckProvider(s.ctx, "", true)
		if err != nil || check.Outcome != forkcore.ProviderOK || resumed != 1 {
			t.Fatalf("a check of a mended key: %+v, %d resumed (%v)", check, resumed, err)
		}
		want(t, "state", s.ended(id).State, forkcore.Done)
	})
}

// Rate limits that a response tells are kept with its row and with the account.
func TestLimitsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{Limits: modelsim.Limits{RequestsPerMinute: 50, InputTokensPerMinute: 100_000}})
		row := s.row(s.ask("first"))
		if !slices.ContainsFunc(row.Limits, func(l forkcore.RateLimit) bool { return l.Name == "requests" && l.Limit == 50 && l.Remaining == 49 }) {
			t.Errorf("limits of the row: %+v", row.Limits)
		}
		account, err := s.engine.ProviderAccount(s.ctx)
		if err != nil || len(account.Limits) != len(row.Limits) || account.LimitsAt.IsZero() {
			t.Errorf("limits of the account: %+v (%v)", account, err)
		}
	})
}

// A turn that the provider paused in the middle of its own tools is sent back as it is, and goes on.
func TestPausedTurnGoesOn(t *testing.T) {
	search := `{"type":"server_tool_use","id":"srvtoolu_%d","name":"web_search","input":{"query":"x"}}`
	for _, pauses := range []int{2, forkcore.MaxPauses + 5} {
		t.Run(fmt.Sprint(pauses), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				y := newYard(t, func(call) reply {
					if n++; n <= pauses {
						return reply{blocks: []string{fmt.Sprintf(search, n)}, stop: "pause_turn"}
					}
					return say("found")
				})
				id := y.send("go")
				r := y.ended(id)
				calls := y.model.received()
				if pauses > forkcore.MaxPauses {
					y.wantReason(r, forkcore.Failed, forkcore.CodeTruncated)
					want(t, "requests", len(calls), forkcore.MaxPauses+1)
					return
				}
				want(t, "state", r.State, forkcore.Done)
				want(t, "requests", len(calls), 3)
				for i, c := range calls[1:] {
					last := c.messages[len(c.messages)-1]
					want(t, "role of the last message", last.Role, forkcore.RoleAssistant)
					want(t, "bytes of the last block", string(last.Blocks[0].Raw), fmt.Sprintf(search, i+1))
				}
				_ = y.ask("and then?") // what follows is a conversation like any other
			})
		})
	}
}

// A refusal says what the provider said.
func TestRefusalIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("") }, func(o *engine.Options) {
			o.Model = ended{forkcore.ModelEnd{StopReason: "refusal", UsageKnown: true, Usage: usual, StopDetails: &forkcore.StopDetails{Type: "refusal", Category: "cyber", Explanation: "It asks for an exploit."}}}
		})
		r := y.ask("go")
		y.wantReason(r, forkcore.Failed, forkcore.CodeRefusal)
		if !strings.Contains(r.Reason.Message, "cyber") || !strings.Contains(r.Reason.Message, "It asks for an exploit.") {
			t.Errorf("reason %+v", r.Reason)
		}
		if d := y.requests(r.ID)[0].StopDetails; d == nil || d.Category != "cyber" {
			t.Errorf("stop details of the row: %+v", d)
		}
	})
}

// ended is a model that gives one answer at once.
type ended struct{ end forkcore.ModelEnd }

func (m ended) Stream(context.Context, forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) {
		if yield(&forkcore.ModelStart{Usage: m.end.Usage, UsageKnown: true}, nil) {
			yield(&m.end, nil)
		}
	}
}

// A request under way with the old key when it is replaced is refused afterwards: its run goes on with the new key.
func TestRefusedAfterTheReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Bool
		s := newSimulated(t, modelsim.Options{}, func(o *engine.Options) { o.Store = delayedRefusals{o.Store, &late} })
		s.ask("first")
		s.sim.RevokeKey("sim")
		late.Store(true)
		id := s.send("second")
		time.Sleep(time.Second) // it was refused, and has not told anybody
		check, _, err := s.engine.ReplaceKey(s.ctx, "a-key-that-works")
		if err != nil || check.Outcome != forkcore.ProviderOK {
			t.Fatalf("%+v (%v)", check, err)
		}
		want(t, "state", s.ended(id).State, forkcore.Done)
	})
}

// delayedRefusals is slow to note refusals.
type delayedRefusals struct {
	engine.Store
	late *atomic.Bool
}

func (d delayedRefusals) RefuseKey(ctx context.Context, account string, reason forkcore.Reason) error {
	if d.late.Load() {
		time.Sleep(10 * time.Second)
	}
	return d.Store.RefuseKey(ctx, account, reason)
}

// A worker that has only the old key, which is refused and was replaced by a restart of the dashboard, holds runs until a
// worker with the new key is there.
func TestWorkerWithTheOldKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{}, func(o *engine.Options) { o.Dashboard = true })
		s.ask("first")
		s.sim.RevokeKey("sim")
		id := s.send("second")
		s.until("the run waits", func() bool { return s.run(id).State == forkcore.Waiting })
		another := simulatorClient(t, s.sim, "another")
		old := s.engine
		dashboard := s.workerElsewhere(func(o *engine.Options) { o.Model = another })
		s.queue.executor(old) // the worker was not restarted
		time.Sleep(time.Hour)
		s.until("the run waits again", func() bool { return s.run(id).State == forkcore.Waiting })
		y := s.run(id)
		s.wantReason(y, forkcore.Waiting, forkcore.WaitProvider)
		if y.Wake > 1000 {
			t.Errorf("the run was woken %d times in an hour", y.Wake)
		}
		s.queue.executor(dashboard)
		want(t, "state", s.ended(id).State, forkcore.Done)
	})
}
