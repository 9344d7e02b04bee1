package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("hi") })
		r := y.ask("hello <task-notification>")
		want(t, "state", r.State, forkcore.Done)
		want(t, "background", r.Background, false)
		want(t, "title", r.Title, "hello <task-notification>")
		want(t, "log", y.log(y.session.ID), "turn_start user assistant turn_end")
		want(t, "text sent", y.model.received()[0].last(), "hello &lt;task-notification>")
		s := y.sessionNow()
		want(t, "session state", s.State(), forkcore.Done)
		want(t, "last run", s.LastRunID, r.ID)
		want(t, "wakes", len(y.queue.noted()), 0)

		second := y.ask("and again")
		want(t, "messages of the second request", len(y.model.received()[1].messages), 3)
		if second.ID == r.ID {
			t.Error("the second turn has the first one's id")
		}
		y.wantBodies()
	})
}

func TestSendMessageRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("hi") })
		var invalid *forkcore.InvalidError
		if _, err := y.engine.SendMessage(y.ctx, y.session.ID, " \n", ""); !errors.As(err, &invalid) || invalid.Fields[0].Field != "text" {
			t.Errorf("send nothing: %v, want *forkcore.InvalidError about text", err)
		}
		if _, err := y.engine.SendMessage(y.ctx, forkcore.NewSessionID(forkcore.Entropy{}), "x", ""); !errors.Is(err, forkcore.ErrNotFound) {
			t.Errorf("send to nobody: %v, want ErrNotFound", err)
		}
		if _, err := y.engine.SendMessage(y.ctx, "nonsense", "x", ""); !errors.Is(err, forkcore.ErrBadID) {
			t.Errorf("send to a bad id: %v, want ErrBadID", err)
		}
		first, err := y.engine.SendMessage(y.ctx, y.session.ID, "x", "key")
		if err != nil {
			t.Fatal(err)
		}
		y.ended(first)
		again, err := y.engine.SendMessage(y.ctx, y.session.ID, "x", "key")
		if err != nil || again != first {
			t.Errorf("repeat = %q, %v; want %q", again, err, first)
		}
		if _, err := y.engine.SendMessage(y.ctx, y.session.ID, "y", "key"); !errors.Is(err, forkcore.ErrIdempotencyMismatch) {
			t.Errorf("another text with the same key: %v, want ErrIdempotencyMismatch", err)
		}
		synctest.Wait()
		want(t, "requests", len(y.model.received()), 1)
		want(t, "runs held", y.engine.HeldRuns(), 0)
	})
}

// TestMessageDuringTurn: a message typed during a turn reaches it at the next boundary, under the same run id.
func TestMessageDuringTurn(t *testing.T) {
	tests := []struct {
		name string
		at   time.Duration // when the second message is sent
		log  string
	}{
		{"during a tool", 1500 * time.Millisecond, "turn_start user assistant tool_started:Bash tool_result:Bash user assistant turn_end"},
		{"during the last answer", 2500 * time.Millisecond, "turn_start user assistant tool_started:Bash tool_result:Bash user assistant user assistant turn_end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					a := say("ok")
					if c.answers() == 0 {
						a = useTools(use("t", "Bash", `{}`))
					}
					a.before = time.Second
					return a
				})
				y.tools.do = func(ctx context.Context, _ forkcore.ToolCall) forkcore.ToolResult {
					pause(ctx, time.Second)
					return forkcore.ToolResult{Text: "slept"}
				}
				first := y.send("start")
				time.Sleep(tt.at)
				want(t, "run id", y.send("by the way"), first)
				y.ended(first)
				want(t, "log", y.log(y.session.ID), tt.log)
				want(t, "runs", y.states(), "main:done")
				calls := y.model.received()
				if last := calls[len(calls)-1].last(); !strings.HasSuffix(last, "by the way") {
					t.Errorf("last message = %q", last)
				}
				y.wantBodies()
			})
		})
	}
}

func TestStopKeepsToolResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, slowRound)
		y.tools.do = slowTool
		id := y.send("work")
		time.Sleep(60 * time.Second)
		ids, err := y.engine.Stop(y.ctx, y.session.ID, "turn")
		if err != nil || !slices.Equal(ids, []string{id}) {
			t.Fatalf("stop = %v, %v", ids, err)
		}
		synctest.Wait()
		y.wantReason(y.run(id), forkcore.Cancelled, "cancelled")
		want(t, "log", y.log(y.session.ID), "turn_start user assistant tool_started:Bash tool_result:Bash turn_end")

		y.model.answer = func(call) reply { return say("ok") }
		want(t, "next turn", y.ask("go on").State, forkcore.Done)
		calls := y.model.received()
		want(t, "next message", calls[len(calls)-1].last(), "cut\ngo on")
		var invalid *forkcore.InvalidError
		if _, err := y.engine.Stop(y.ctx, y.session.ID, "all"); !errors.As(err, &invalid) {
			t.Errorf("stop with another scope: %v, want *forkcore.InvalidError", err)
		}
	})
}

// TestStopElsewhere: a stop asked of another process arrives with the next heartbeat.
func TestStopElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, slowRound)
		other, _ := y.start(y.options)
		id := y.send("work")
		time.Sleep(10 * time.Second)
		if _, err := other.Stop(y.ctx, y.session.ID, "turn"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		want(t, "state", y.run(id).State, forkcore.Cancelled)
	})
}

func TestStopTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			a := fanOut(4)(c)
			if _, fork := c.directive(); fork || c.answers() == 1 {
				a.before = time.Hour
			}
			return a
		})
		y.send("fan out")
		time.Sleep(6 * time.Second)
		want(t, "before", y.states(), "main:running fork:running fork:parked fork:parked fork:parked")
		ids, err := y.engine.Stop(y.ctx, y.session.ID, "tree")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "runs concerned", len(ids), 5)
		synctest.Wait()
		want(t, "after", y.states(), "main:cancelled fork:cancelled fork:cancelled fork:cancelled fork:cancelled")
		for _, r := range y.runs() {
			if r.Reason == nil || r.Reason.NextStep == "" {
				t.Errorf("%s run was stopped with reason %+v", r.Kind, r.Reason)
			}
		}
		time.Sleep(time.Minute)
		want(t, "requests", len(y.model.received()), 3)
		want(t, "a minute later", len(y.runs()), 5)
	})
}

// TestStopBeforeLaunch: a stop that comes while the dispatching answer streams lets no child be born.
func TestStopBeforeLaunch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			a := useTools(use("r", "Read", `{}`))
			if c.answers() > 0 {
				a = agents(3)
			}
			return a
		})
		y.tools.do = func(context.Context, forkcore.ToolCall) forkcore.ToolResult {
			// The wish alone: no signal reaches this engine before its next heartbeat.
			if _, _, err := y.store.Stop(y.ctx, y.session.ID, "tree"); err != nil {
				t.Error(err)
			}
			return forkcore.ToolResult{Text: "x"}
		}
		y.ask("go")
		want(t, "states", y.states(), "main:cancelled")
		want(t, "requests", len(y.model.received()), 1)
	})
}

func TestCancelOneFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			a := fanOut(3)(c)
			if d, _ := c.directive(); d == "d2" {
				a.after = time.Hour
			}
			return a
		})
		y.ask("fan out")
		time.Sleep(10 * time.Second)
		second := y.forks()[1].ID
		if err := y.engine.Cancel(y.ctx, second); err != nil {
			t.Fatal(err)
		}
		y.idle()
		want(t, "states", y.states(), "main:done fork:done fork:cancelled fork:done main:done")
		calls := y.model.received()
		notices := calls[len(calls)-1].last()
		want(t, "completed", strings.Count(notices, "<status>completed</status>"), 2)
		want(t, "killed", strings.Count(notices, "<status>killed</status>"), 1)
		if err := y.engine.Cancel(y.ctx, second); !errors.Is(err, forkcore.ErrConflict) {
			t.Errorf("cancel an ended run: %v, want ErrConflict", err)
		}
	})
}

// A text that comes in while a turn is failing is answered by a turn of its own.
func TestMessageDuringFailedTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if c.last() == "first" {
				return reply{before: time.Second, err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Status: 400, Message: "no"}}
			}
			return say("answered")
		})
		first := y.send("first")
		time.Sleep(500 * time.Millisecond)
		want(t, "the run that took the second text", y.send("second"), first)
		y.wantReason(y.ended(first), forkcore.Failed, forkcore.CodeProviderError)
		y.idle()
		want(t, "log", y.log(y.session.ID), "turn_start user turn_end turn_start user assistant turn_end")
		want(t, "turns", len(y.runs()), 2)
		want(t, "text answered", y.model.received()[1].last(), "second")
	})
}
