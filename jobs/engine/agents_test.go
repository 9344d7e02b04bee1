package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// task is what an agent with a conversation of its own was told; ok is false for a main turn.
func (c call) task() (text string, ok bool) {
	if !bytes.Contains(c.body, []byte("You are an agent that the main agent")) {
		return "", false
	}
	return c.messages[0].Text(), true
}

// agentCall is an Agent call of a plain session.
func agentCall(id, prompt string, background bool) string {
	return use(id, "Agent", fmt.Sprintf(`{"description":"agent %s","prompt":%q,"run_in_background":%t}`, id, prompt, background))
}

// newPlainYard is a yard whose session does not fork.
func newPlainYard(t *testing.T, answer func(call) reply, auto float64, set ...func(*engine.Options)) *yard {
	t.Helper()
	y := newYard(t, answer, set...)
	y.session = y.newSession(forkcore.SessionSpec{Mode: forkcore.ModePlain, AutoBackgroundSeconds: &auto})
	return y
}

// agents lists the agents of the session.
func (y *yard) agents() (list []forkcore.Run) {
	y.Helper()
	for _, r := range y.runs() {
		if r.Kind == forkcore.KindAgent {
			list = append(list, r)
		}
	}
	return list
}

// oneAgent starts an agent whose first answer comes after so long, then calls a tool and reports.
func oneAgent(slow time.Duration) func(c call) reply {
	return func(c call) reply {
		if _, agent := c.task(); agent {
			if c.answers() == 0 {
				a := useTools(use("tool", "Bash", `{"n":1}`))
				a.before = slow
				return a
			}
			a := say("found it")
			a.before = time.Second
			return a
		}
		if c.answers() == 0 {
			return useTools(agentCall("a1", "look", false))
		}
		return say("over: " + c.last())
	}
}

// TestM38_ForegroundAgentBlocksTheTurn: its result is the call's result, no worker is used, and text typed meanwhile waits.
func TestM38_ForegroundAgentBlocksTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newPlainYard(t, oneAgent(time.Minute), 0)
		id := y.send("go")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		turn := y.run(id)
		want(t, "state of the turn", turn.State, forkcore.Waiting)
		want(t, "reason", turn.Reason.Code, forkcore.WaitChildren)
		want(t, "runs held", y.engine.HeldRuns(), 1)
		agent := y.agents()[0]
		want(t, "awaited", agent.Awaited, true)
		want(t, "background", agent.Background, false)
		want(t, "depth", agent.Depth, 1)
		want(t, "run of a text typed meanwhile", y.send("and now?"), id)

		turn = y.ended(id)
		want(t, "state", turn.State, forkcore.Done)
		want(t, "background of the turn", turn.Background, false)
		want(t, "wakes on the ready-list", len(y.queue.noted()), 0)
		want(t, "agent", y.agents()[0].State, forkcore.Done)
		want(t, "log of the turn", y.log(y.session.ID),
			"turn_start user assistant tool_started:Agent spawned tool_result:Agent user assistant turn_end")
		want(t, "log of the agent", y.log(agent.ID), "user assistant tool_started:Bash tool_result:Bash user assistant")
		calls := y.model.received()
		last := calls[len(calls)-1]
		if got := last.last(); got != "found it\nand now?" {
			t.Errorf("the turn was told %q", got)
		}
		for _, c := range calls {
			_, agent := c.task()
			if tools := bytes.Contains(c.body, []byte(`"name":"Agent"`)); agent && (tools || len(c.messages) > 3 || c.messages[0].Text() != "look") {
				t.Errorf("request of the agent: %s", c.body)
			}
		}
		y.wantBodies()
	})
}

// TestM46_AutoBackground: at 119.9 s in the foreground, at 120 s in the background under the same id, off never.
func TestM46_AutoBackground(t *testing.T) {
	tests := []struct {
		name  string
		auto  float64
		at    time.Duration
		moved bool
	}{
		{"119.9 s", 120, 119*time.Second + 900*time.Millisecond, false},
		{"120 s", 120, 120*time.Second + time.Millisecond, true},
		{"off", 0, time.Hour, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newPlainYard(t, oneAgent(2*time.Hour), tt.auto)
				worker, _ := y.start(y.options)
				y.queue.executor(worker)
				id := y.send("go")
				time.Sleep(tt.at)
				synctest.Wait()
				agent := y.agents()[0]
				want(t, "awaited", agent.Awaited, !tt.moved)
				want(t, "turn waits", y.run(id).State == forkcore.Waiting, !tt.moved)
				if !tt.moved {
					return
				}
				turn := y.ended(id)
				want(t, "turn ended within", turn.EndedAt.Sub(turn.StartedAt) < 121*time.Second, true)
				want(t, "answer of the call", strings.Contains(y.model.received()[2].last(), "async_launched: agent "+agent.ID), true)
				y.idle()
				r := y.run(agent.ID)
				want(t, "agent", r.State, forkcore.Done)
				want(t, "agent in the background", r.Background, true)
				want(t, "executions of the tool", y.tools.times("tool"), 1)
				want(t, "log of the agent", y.log(agent.ID), "user assistant background tool_started:Bash tool_result:Bash user assistant")
				// The end is told once, in a turn of its own.
				want(t, "turns", strings.Count(y.log(y.session.ID), "turn_start"), 2)
				calls := y.model.received()
				told := calls[len(calls)-1].last()
				if strings.Count(told, "<task-notification>") != 1 || !strings.Contains(told, "found it") {
					t.Errorf("told %s", told)
				}
				y.wantBodies()
			})
		})
	}
}

// TestM44_SameBytesInTheBackground: wherever an agent is moved, it sends what it would have sent in the foreground.
func TestM44_SameBytesInTheBackground(t *testing.T) {
	bodies := func(y *yard) (list []string) {
		for _, c := range y.model.received() {
			if _, agent := c.task(); agent {
				list = append(list, string(c.body))
			}
		}
		return list
	}
	var stayed []string
	synctest.Test(t, func(t *testing.T) {
		y := newPlainYard(t, oneAgent(time.Minute), 0)
		y.tools.do = slowTool
		y.ask("go")
		stayed = bodies(y)
	})
	for _, at := range []time.Duration{30 * time.Second, 80 * time.Second} {
		for _, what := range []string{"agent", "turn", "drain", "crash"} {
			t.Run(fmt.Sprintf("%s after %s", what, at), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					y := newPlainYard(t, oneAgent(time.Minute), 0)
					y.tools.do = slowTool
					worker, _ := y.start(y.options)
					y.queue.executor(worker)
					id := y.send("go")
					time.Sleep(at)
					synctest.Wait()
					agent := y.agents()[0]
					var err error
					switch what {
					case "agent":
						err = y.engine.Background(y.ctx, agent.ID)
						synctest.Wait()
						want(t, "the composer is free", y.run(id).State, forkcore.Done)
					case "turn":
						err = y.engine.Background(y.ctx, id)
						want(t, "background of the turn", y.run(id).Background, true)
					case "drain":
						y.engine.Drain(time.Hour)
					case "crash":
						y.stop() // cut off at once
					}
					if err != nil {
						t.Fatal(err)
					}
					y.idle()
					r := y.run(agent.ID)
					want(t, "state of the agent", r.State, forkcore.Done)
					want(t, "same id", len(y.agents()), 1)
					want(t, "executions of the tool", y.tools.times("tool"), 1)
					got := bodies(y)
					if what == "crash" {
						// What was cut is sent again, or its tool's outcome is unknown: the bytes before that are the same.
						got = got[len(got)-1:]
						if at > time.Minute {
							want(t, "result of the cut tool", strings.Contains(got[0], "cut"), true)
							return
						}
						got = []string{stayed[0], got[0]}
					}
					want(t, "requests", len(got), len(stayed))
					for i := range got {
						want(t, fmt.Sprint("request ", i+1), got[i] == stayed[i], true)
					}
					y.wantBodies()
				})
			})
		}
	}
}

// TestB33_AgentsThatFail: results are never invented, and a dead agent is an error of its call alone.
func TestB33_AgentsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newPlainYard(t, func(c call) reply {
			switch task, agent := c.task(); {
			case task == "dies":
				return overloaded()
			case task == "silent":
				return reply{blocks: say(" ").blocks, stop: "end_turn"}
			case agent:
				return say("all well")
			case c.answers() == 0:
				return useTools(agentCall("a1", "works", false), agentCall("a2", "dies", false), agentCall("a3", "silent", false))
			}
			return say("noted")
		}, 0)
		y.ask("go")
		calls := y.model.received()
		blocks := calls[len(calls)-1].messages[2].Blocks
		want(t, "results", len(blocks), 3)
		for i, expect := range []struct {
			text   string
			failed bool
		}{{"all well", false}, {"the agent ended as failed: ", true}, {"the agent ended as failed: ", true}} {
			if b := blocks[i]; !strings.HasPrefix(b.Text, expect.text) || b.IsError != expect.failed {
				t.Errorf("result %d is %q, error %v", i+1, b.Text, b.IsError)
			}
		}
		want(t, "states", y.states(), "main:done agent:done agent:failed agent:failed")
	})
}

// TestBackgroundAgents: run_in_background answers the call at once, and the parent never waits.
func TestBackgroundAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newPlainYard(t, func(c call) reply {
			a := say("found it")
			if task, agent := c.task(); agent {
				if task != "now" {
					a.before = time.Hour
				}
			} else if c.answers() == 0 {
				return useTools(agentCall("a1", "look", true), agentCall("a2", "see", true), agentCall("a3", "now", false))
			}
			return a
		}, 0)
		y.send("go")
		y.idle()
		// The one that is awaited ends first; the others are told together, once both have ended.
		want(t, "turns", strings.Count(y.log(y.session.ID), "turn_start"), 2)
		calls := y.model.received()
		want(t, "notices", strings.Count(calls[len(calls)-1].last(), "<task-notification>"), 2)
		for i, r := range y.agents() {
			want(t, "background", r.Background, i != 0)
		}
		y.wantBodies()
	})
}

// TestStopWithAgents: stopping the turn stops what it waits for, within moments, and books what was used.
func TestStopWithAgents(t *testing.T) {
	for _, scope := range []string{"turn", "tree"} {
		t.Run(scope, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newPlainYard(t, func(c call) reply {
					a := say("found it")
					if _, agent := c.task(); agent {
						a.after = time.Hour
					} else if c.answers() == 0 {
						return useTools(agentCall("a1", "look", false), agentCall("a2", "see", false))
					}
					return a
				}, 0)
				id := y.send("go")
				time.Sleep(time.Minute)
				synctest.Wait()
				sent := len(y.model.received())
				stopped := time.Now()
				if _, err := y.engine.Stop(y.ctx, y.session.ID, scope); err != nil {
					t.Fatal(err)
				}
				y.idle()
				want(t, "within two seconds", time.Since(stopped) <= 2*time.Second, true)
				time.Sleep(time.Hour)
				want(t, "requests", len(y.model.received()), sent)
				want(t, "turn", y.run(id).State, forkcore.Cancelled)
				for _, r := range y.agents() {
					want(t, "agent", r.State, forkcore.Cancelled)
					want(t, "usage booked", r.Usage.TotalInput() > 0, true)
				}
				want(t, "turns", strings.Count(y.log(y.session.ID), "turn_start"), 1)

				// What they have to tell is read by the next turn.
				y.ask("what became of them?")
				calls := y.model.received()
				want(t, "notices", strings.Count(calls[len(calls)-1].last(), "killed"), 2)
			})
		})
	}
}

// TestAgentsAreLeaves: an agent cannot start agents, whatever it calls.
func TestAgentsAreLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newPlainYard(t, func(c call) reply {
			if _, agent := c.task(); agent && c.answers() > 0 {
				return say("I said: " + c.last())
			}
			if c.answers() == 0 {
				return useTools(agentCall(fmt.Sprint("a", c.n), "look", false))
			}
			return say("over")
		}, 0, func(o *engine.Options) { o.Guard.MaxDepth = 3 })
		y.ask("go")
		want(t, "agents", len(y.agents()), 1)
		calls := y.model.received()
		if got := calls[len(calls)-1].last(); !strings.Contains(got, forkcore.RefuseNestedAgent) {
			t.Errorf("the turn was told %q", got)
		}
	})
}

// pool is a ready-list with workers: no more wakes than that are executed at a time.
type pool struct {
	mu     sync.Mutex
	slots  chan struct{}
	worker *engine.Engine
}

func (q *pool) Enqueue(ctx context.Context, wakes ...engine.Wake) error {
	for _, w := range wakes {
		go func() {
			q.slots <- struct{}{}
			defer func() { <-q.slots }()
			q.mu.Lock()
			e := q.worker
			q.mu.Unlock()
			_ = e.Execute(context.WithoutCancel(ctx), w)
		}()
	}
	return nil
}

// TestB11_PoolOfOne: parents that wait for agents hold no worker, so a pool of one finishes any tree.
func TestB11_PoolOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &pool{slots: make(chan struct{}, 1)}
		y := newPlainYard(t, oneAgent(time.Minute), 0, func(o *engine.Options) { o.Enqueuer = q })
		q.worker = y.engine
		ids := []string{y.send("go")}
		for range 3 {
			y.session = y.newSession(forkcore.SessionSpec{Mode: forkcore.ModePlain})
			ids = append(ids, y.send("go"))
		}
		for _, id := range ids { // all of them into the pool of one
			if err := y.engine.Background(y.ctx, id); err != nil && !errors.Is(err, forkcore.ErrConflict) {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			want(t, "state", y.ended(id).State, forkcore.Done)
		}
	})
}

// TestFlagAutoBackground: the flag holds for sessions that are created from now on, and the variable is no condition.
func TestFlagAutoBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("ok") })
		want(t, "before", y.newSession(forkcore.SessionSpec{}).AutoBackground, 0)
		f, err := y.engine.SetFlag(y.ctx, forkcore.FlagAutoBackground, true)
		if err != nil || !f.Value || !f.Set {
			t.Fatalf("flag %+v, %v", f, err)
		}
		want(t, "with the flag", y.newSession(forkcore.SessionSpec{}).AutoBackground, 120*time.Second)
		want(t, "the session before", y.sessionNow().AutoBackground, 0)
		never := 0.0
		want(t, "a session that says so itself", y.newSession(forkcore.SessionSpec{AutoBackgroundSeconds: &never}).AutoBackground, 0)
		if _, err := y.engine.SetFlag(y.ctx, "nonsense", true); !errors.Is(err, forkcore.ErrNotFound) {
			t.Errorf("an unknown flag: %v", err)
		}
		flags, err := y.engine.Flags(y.ctx)
		if err != nil || len(flags) != len(forkcore.Flags()) || !flags[0].Value {
			t.Errorf("flags %+v, %v", flags, err)
		}
	})
}
