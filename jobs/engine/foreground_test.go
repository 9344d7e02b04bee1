package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// slowRound is a turn of 150 s: two answers with a tool between, 50 s each.
func slowRound(c call) reply {
	a := say("finished")
	if c.answers() == 0 {
		a = useTools(use("t1", "Bash", `{}`))
	}
	a.before = 50 * time.Second
	return a
}

func slowTool(ctx context.Context, _ forkcore.ToolCall) forkcore.ToolResult {
	if !pause(ctx, 50*time.Second) {
		return forkcore.ToolResult{Text: "cut", IsError: true}
	}
	return forkcore.ToolResult{Text: "slept"}
}

func TestAutoBackground(t *testing.T) {
	twoMinutes, never := 120.0, 0.0
	synctest.Test(t, func(t *testing.T) {
		// A turn that stays, to compare with.
		stayed := newYard(t, slowRound)
		stayed.tools.do = slowTool
		stayed.session = stayed.newSession(forkcore.SessionSpec{AutoBackgroundSeconds: &never})
		r := stayed.ask("work")
		want(t, "stayed in the foreground", r.Background, false)
		want(t, "log of the one that stayed", stayed.log(stayed.session.ID), "turn_start user assistant tool_started:Bash tool_result:Bash user assistant turn_end")

		y := newYard(t, slowRound)
		y.tools.do = slowTool
		y.session = y.newSession(forkcore.SessionSpec{AutoBackgroundSeconds: &twoMinutes})
		y.queue.hold()
		id := y.send("work")
		time.Sleep(119900 * time.Millisecond)
		synctest.Wait()
		want(t, "background after 119.9 s", y.run(id).Background, false)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		// The model call in flight ends where it is.
		want(t, "state at 120 s", y.run(id).State, forkcore.Running)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		r = y.run(id)
		want(t, "state at the boundary", r.State, forkcore.Queued)
		want(t, "background", r.Background, true)
		want(t, "runs held", y.engine.HeldRuns(), 0)
		if diff := cmp.Diff([]engine.Wake{{RunID: id, N: 1}}, y.queue.noted()); diff != "" {
			t.Errorf("wakes (-want +got):\n%s", diff)
		}
		worker, _ := y.start(y.options)
		if err := worker.Execute(y.ctx, engine.Wake{RunID: id, N: 1}); err != nil {
			t.Fatal(err)
		}
		want(t, "state", y.run(id).State, forkcore.Done)
		want(t, "log", y.log(y.session.ID), "turn_start user assistant tool_started:Bash tool_result:Bash user assistant background turn_end")
		wantOnce(t, y, stayed)
	})
}

// wantOnce: nothing was executed twice, and every request has the bytes of a turn that stayed.
func wantOnce(t *testing.T, y, stayed *yard) {
	t.Helper()
	got, wanted := y.model.received(), stayed.model.received()
	want(t, "requests", len(got), len(wanted))
	for i := range min(len(got), len(wanted)) {
		if diff := cmp.Diff(string(wanted[i].body), string(got[i].body)); diff != "" {
			t.Errorf("request %d differs from that of a turn that stayed (-stayed +moved):\n%s", i+1, diff)
		}
	}
	for _, r := range y.tools.runs() {
		want(t, "executions of "+r.id, y.tools.times(r.id), 1)
	}
	y.wantBodies()
}

// TestHandOver moves a turn at every stage, by the click and by shutdown.
func TestHandOver(t *testing.T) {
	for _, tt := range []struct {
		name  string
		at    time.Duration
		moved time.Duration // when the run is free
	}{
		{"first model call", 10 * time.Second, 50 * time.Second},
		{"tool", 60 * time.Second, 100 * time.Second},
		{"second model call", 110 * time.Second, 150 * time.Second},
	} {
		for _, by := range []string{"click", "drain"} {
			t.Run(tt.name+" by "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					stayed := newYard(t, slowRound)
					stayed.tools.do = slowTool
					stayed.ask("work")

					y := newYard(t, slowRound)
					y.tools.do = slowTool
					worker, _ := y.start(y.options)
					y.queue.executor(worker)
					start := time.Now()
					id := y.send("work")
					time.Sleep(tt.at)
					if by == "click" {
						if err := y.engine.Background(y.ctx, id); err != nil {
							t.Fatal(err)
						}
					} else {
						y.engine.Drain(time.Hour)
						want(t, "drained after", time.Since(start), tt.moved)
						if _, err := y.engine.SendMessage(y.ctx, y.session.ID, "x", ""); !errors.Is(err, forkcore.ErrConflict) {
							t.Errorf("send to a drained engine: %v, want ErrConflict", err)
						}
					}
					y.until("the hand-over", func() bool { return y.run(id).Background })
					want(t, "handed over after", time.Since(start).Truncate(time.Second), tt.moved)
					want(t, "runs held by the first engine", y.engine.HeldRuns(), 0)
					r := y.ended(id)
					want(t, "state", r.State, forkcore.Done)
					want(t, "ended after", r.EndedAt.Sub(start).Truncate(time.Second), 150*time.Second)
					want(t, "background markers", strings.Count(y.log(y.session.ID), "background"), 1)
					wantOnce(t, y, stayed)
					if err := y.engine.Background(y.ctx, id); !errors.Is(err, forkcore.ErrConflict) {
						t.Errorf("move an ended run: %v, want ErrConflict", err)
					}
				})
			})
		}
	}
}

// TestDrainCuts: when the grace has passed a request in flight is cut and sent again elsewhere, and a tool's
// result is kept.
func TestDrainCuts(t *testing.T) {
	for _, tt := range []struct {
		name     string
		at       time.Duration
		requests int
		tool     string
	}{{"request", 10 * time.Second, 3, "slept"}, {"tool", 60 * time.Second, 2, "cut"}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, slowRound)
				y.tools.do = slowTool
				worker, _ := y.start(y.options)
				y.queue.executor(worker)
				id := y.send("work")
				time.Sleep(tt.at)
				start := time.Now()
				y.engine.Drain(5 * time.Second)
				want(t, "drained after", time.Since(start), 5*time.Second)
				want(t, "state", y.ended(id).State, forkcore.Done)
				want(t, "requests", len(y.model.received()), tt.requests)
				want(t, "executions", y.tools.times("t1"), 1)
				calls := y.model.received()
				want(t, "result", calls[len(calls)-1].last(), tt.tool)
				y.wantBodies()
			})
		})
	}
}

// TestDrainFork: a fork in a worker that shuts down goes on in another.
func TestDrainFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); !fork {
				return say("noted")
			}
			if c.answers() == 0 {
				return useTools(use("t1", "Bash", `{}`))
			}
			return say(reportText)
		})
		y.tools.do = slowTool
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, forkcore.ForkSpec{Directives: []forkcore.Directive{{Prompt: "d1"}}}, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		worker, _ := y.start(y.options)
		y.queue.executor(worker)
		y.engine.Drain(time.Hour)
		want(t, "state", y.ended(runs[0].ID).State, forkcore.Done)
		want(t, "wakes", y.run(runs[0].ID).Wake, 2)
		want(t, "log", y.log(runs[0].ID), "fork_of directive assistant tool_started:Bash tool_result:Bash user assistant")
		want(t, "executions", y.tools.times("t1"), 1)
		y.wantBodies()
	})
}
