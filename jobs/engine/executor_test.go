package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// scenario is a piece of work that must come to the same end whenever an executor dies.
type scenario struct {
	name   string
	answer func(call) reply
	forks  int
	acting []string // ids of tool calls that act
	depth  int      // how deep forks may nest; 0 = the default
}

var scenarios = []scenario{
	{
		name: "tools",
		answer: func(c call) reply {
			a := say("finished")
			if c.answers() == 0 {
				a = useTools(use("r1", "Read", `{}`), use("w1", "Write", `{}`), use("r2", "Read", `{}`), use("w2", "Bash", `{}`))
			}
			a.before, a.after = 100*time.Millisecond, 100*time.Millisecond
			return a
		},
		acting: []string{"w1", "w2"},
	},
	{
		name: "forks",
		answer: func(c call) reply {
			d, fork := c.directive()
			var a reply
			switch {
			case fork && c.answers() == 0:
				a = useTools(use("bash_"+d, "Bash", `{}`))
			case fork:
				a = say(reportText)
			case c.answers() == 0:
				a = agents(3)
			default:
				a = say("noted")
			}
			a.before, a.after = 100*time.Millisecond, 100*time.Millisecond
			return a
		},
		forks: 3, acting: []string{"bash_d1", "bash_d2", "bash_d3"},
	},
	{
		name: "forks of a fork",
		answer: func(c call) reply {
			directive, answers := c.own()
			a := say(reportText)
			switch level := c.level(); {
			case answers > 0:
			case level == 0:
				a = agents(1)
			case level == 1:
				a = agents(2)
				for i, b := range a.blocks {
					a.blocks[i] = strings.ReplaceAll(b, "toolu_agent", "toolu_nested_"+directive)
				}
			}
			a.before, a.after = 100*time.Millisecond, 100*time.Millisecond
			return a
		},
		forks: 3, depth: 2,
	},
}

// TestCrash kills an executor at every call it makes to the store, before and
// after the call took effect. Another one takes over and comes to the same end.
func TestCrash(t *testing.T) {
	faults := []struct {
		name  string
		after bool
		err   error
	}{
		{"before", false, forkcore.ErrStoreUnavailable},
		{"after", true, forkcore.ErrStoreUnavailable},
		{"lease lost", false, engine.ErrLeaseLost},
	}
	for _, sc := range scenarios {
		for _, fault := range faults {
			t.Run(sc.name+" "+fault.name, func(t *testing.T) {
				t.Parallel()
				for n, struck := 1, true; struck; n++ {
					synctest.Test(t, func(t *testing.T) {
						struck = crash(t, sc, &faulty{n: n, after: fault.after, err: fault.err, dead: true})
					})
					if t.Failed() {
						t.Fatalf("killed at call %d", n)
					}
				}
			})
		}
	}
}

// TestOutage lets calls fail while the executor lives on, alone: no run may be
// left behind in its hands.
func TestOutage(t *testing.T) {
	faults := []struct {
		span  int
		after bool
	}{{1, true}, {4, false}}
	for _, sc := range scenarios {
		for _, fault := range faults {
			t.Run(fmt.Sprintf("%s %d calls after=%v", sc.name, fault.span, fault.after), func(t *testing.T) {
				t.Parallel()
				for n, struck := 1, true; struck; n++ {
					synctest.Test(t, func(t *testing.T) {
						struck = crash(t, sc, &faulty{n: n, span: fault.span, after: fault.after, err: forkcore.ErrStoreUnavailable})
					})
					if t.Failed() {
						t.Fatalf("failed at call %d", n)
					}
				}
			})
		}
	}
}

// crash runs a scenario with a fault and checks its end. It reports whether the fault struck.
func crash(t *testing.T, sc scenario, f *faulty) (struck bool) {
	t.Helper()
	y := newYard(t, sc.answer, func(o *engine.Options) { o.Guard.MaxDepth = sc.depth })
	y.tools.do = func(ctx context.Context, _ forkcore.ToolCall) forkcore.ToolResult {
		pause(ctx, 100*time.Millisecond)
		return forkcore.ToolResult{Text: "done"}
	}
	// The executor that will die; the yard's own takes over what it leaves behind.
	f.Store = y.store
	o := y.options
	o.Store = f
	mortal, stop := y.start(o)
	y.queue.executor(mortal)
	if !f.dead {
		y.stop() // nobody else is there
	}
	_, err := mortal.SendMessage(y.ctx, y.session.ID, "go", "key")
	if err != nil {
		if at, down := f.failed(); !down {
			t.Fatalf("send: %v without a fault (%s)", err, at)
		}
		// The client tries again; the key makes it one message.
		again := mortal
		if f.dead {
			again = y.engine
			y.queue.executor(y.engine)
		}
		for range 5 {
			if _, err = again.SendMessage(y.ctx, y.session.ID, "go", "key"); err == nil {
				break
			}
		}
		if err != nil {
			t.Fatalf("send again: %v", err)
		}
	}
	if f.dead {
		y.until("the fault, or the end", func() bool {
			_, down := f.failed()
			return down || (y.sessionNow().ActiveRuns == 0 && len(y.runs()) > 0)
		})
		y.queue.executor(y.engine)
	}
	y.idle()
	at, struck := f.failed()
	defer func() {
		if t.Failed() {
			t.Logf("the fault struck at %s; main log: %s", at, y.log(y.session.ID))
		}
	}()
	checkCrash(t, y, sc)

	// Nothing of the dead one is left in this process either.
	stop()
	want(t, "runs held by the dead one", mortal.HeldRuns(), 0)
	return struck
}

func checkCrash(t *testing.T, y *yard, sc scenario) {
	t.Helper()
	for _, r := range y.runs() {
		want(t, "state of a "+string(r.Kind)+" run", r.State, forkcore.Done)
	}
	want(t, "forks", len(y.forks()), sc.forks)
	told := map[string]int{}  // what the main agent was told
	calls := map[string]int{} // results by tool call
	for _, agent := range append([]string{y.session.ID}, ids(y.forks())...) {
		for _, e := range y.entries(agent) {
			switch {
			case e.Marker != nil && e.Marker.Type == forkcore.MarkerToolResult:
				calls[e.Marker.ToolUseID]++
			case e.Kind == forkcore.EntryMessage && agent == y.session.ID:
				for _, b := range y.message(e).Blocks {
					told[b.Text]++
				}
			}
		}
	}
	want(t, "deliveries of the person's message", told["go"], 1)
	for _, r := range y.forks() {
		want(t, "deliveries of a notice", told[forkcore.Notification(r)], 1)
	}
	for id, n := range calls {
		want(t, "results of "+id, n, 1)
	}
	for _, id := range sc.acting {
		want(t, "results of "+id, calls[id], 1)
		if n := y.tools.times(id); n > 1 {
			t.Errorf("%s acted %d times", id, n)
		}
	}
	// Every row is closed, and the sums are the sums of the rows.
	var usage forkcore.Usage
	var cost forkcore.Cost
	answers := 0
	for _, r := range y.runs() {
		for _, row := range y.requests(r.ID) {
			switch row.Status {
			case forkcore.RequestOK:
				answers++
				want(t, "usage of an answer", *row.Usage, usual)
			case forkcore.RequestAborted, forkcore.RequestError:
			default:
				t.Errorf("request %d of the %s run is %s", row.N, r.Kind, row.Status)
			}
			if row.EndedAt == nil {
				t.Errorf("request %d of the %s run has no end", row.N, r.Kind)
			}
			if row.Usage != nil {
				usage = usage.Add(*row.Usage)
			}
			if row.Cost != nil {
				cost.NanoUSD += *row.Cost
			} else {
				cost.Unpriced++
			}
		}
	}
	s := y.sessionNow()
	want(t, "usage of the session", s.Usage, usage)
	want(t, "cost of the session", s.Cost, cost)
	want(t, "reserved", s.ReservedNanoUSD, 0)
	// Each answer that the conversation holds was paid for once as an answer.
	held := 0
	for _, agent := range append([]string{y.session.ID}, ids(y.forks())...) {
		for _, e := range y.entries(agent) {
			if e.Kind == forkcore.EntryMessage && !e.Fragment && y.message(e).Role == forkcore.RoleAssistant {
				held++
			}
		}
	}
	want(t, "answers paid for", answers, held)
	// A request that was settled with an answer was really sent; all can be rebuilt.
	for _, r := range y.runs() {
		for _, row := range y.requests(r.ID) {
			if _, err := y.engine.RequestBody(y.ctx, r.ID, row.N); err != nil {
				t.Errorf("rebuild request %d of the %s run: %v", row.N, r.Kind, err)
			}
		}
	}
}

func ids(runs []forkcore.Run) (list []string) {
	for _, r := range runs {
		list = append(list, r.ID)
	}
	return list
}

// TestOutcomeUnknown: an executor dies while two tools run: the one that reads runs again, the one that acts does not.
func TestOutcomeUnknown(t *testing.T) {
	for _, tt := range []struct {
		tool   string
		times  int
		result string
	}{{"Read", 2, "slept"}, {"Bash", 1, "outcome unknown: "}} {
		t.Run(tt.tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					if c.answers() == 0 {
						return useTools(use("t1", tt.tool, `{}`))
					}
					return say("done")
				})
				f := &faulty{Store: y.store, dead: true, err: forkcore.ErrStoreUnavailable}
				o := y.options
				o.Store = f
				mortal, _ := y.start(o)
				y.tools.do = func(ctx context.Context, _ forkcore.ToolCall) forkcore.ToolResult {
					if !pause(ctx, 10*time.Second) {
						return forkcore.ToolResult{Text: "cut"}
					}
					return forkcore.ToolResult{Text: "slept"}
				}
				id, err := mortal.SendMessage(y.ctx, y.session.ID, "go", "")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				f.mu.Lock()
				f.n, f.trigger = f.calls, "kill" // every call from now on fails
				f.mu.Unlock()
				want(t, "state", y.ended(id).State, forkcore.Done)
				want(t, "executions", y.tools.times("t1"), tt.times)
				calls := y.model.received()
				if got := calls[len(calls)-1].last(); !strings.HasPrefix(got, tt.result) {
					t.Errorf("result = %q, want %q", got, tt.result)
				}
				y.wantBodies()
			})
		})
	}
}

func TestPanics(t *testing.T) {
	tests := []struct {
		name   string
		answer func(call) reply
		tool   bool
	}{
		{"model", func(call) reply { return reply{panics: true} }, false},
		{"tool that reads", func(call) reply { return useTools(use("a", "Grep", `{}`), use("b", "Read", `{}`)) }, true},
		{"tool that acts", func(call) reply { return useTools(use("b", "Bash", `{}`)) }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, tt.answer)
				y.tools.do = func(_ context.Context, c forkcore.ToolCall) forkcore.ToolResult {
					if c.ID == "b" {
						panic("the tool panics")
					}
					return forkcore.ToolResult{Text: "x"}
				}
				r := y.ask("go")
				y.wantReason(r, forkcore.Failed, forkcore.CodeInternal)
				if !strings.Contains(r.Reason.Message, "panics") {
					t.Errorf("message = %q does not name the fault", r.Reason.Message)
				}
				synctest.Wait()
				want(t, "runs held", y.engine.HeldRuns(), 0)
				want(t, "reserved", y.sessionNow().ReservedNanoUSD, 0)
				y.model.answer = func(call) reply { return say("fine") }
				want(t, "next turn", y.ask("go on").State, forkcore.Done)
			})
		})
	}
}

// TestPartialWork: what a fork had said before it was cancelled is its report.
func TestPartialWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); !fork {
				return say("noted")
			}
			return reply{blocks: append(say("Result: half of it").blocks, use("t1", "Bash", `{}`)), stop: "tool_use"}
		})
		y.tools.do = slowTool
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := y.engine.Cancel(y.ctx, runs[0].ID); err != nil {
			t.Fatal(err)
		}
		y.idle()
		r := y.run(runs[0].ID)
		y.wantReason(r, forkcore.Cancelled, "cancelled")
		if r.Report == nil || r.Report.Result != "half of it" {
			t.Errorf("report = %+v, want the partial one", r.Report)
		}
		want(t, "log", y.log(r.ID), "fork_of directive assistant tool_started:Bash tool_result:Bash")
	})
}

// TestForkWithoutReport: a fork that ends without a word has failed, and says so.
func TestForkWithoutReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork {
				return reply{blocks: []string{`{"type":"thinking","thinking":"done","signature":"QUJD"}`}, stop: "end_turn"}
			}
			return say("noted")
		})
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		y.wantReason(y.run(runs[0].ID), forkcore.Failed, forkcore.CodeNoOutput)
		calls := y.model.received()
		want(t, "status in the notice", strings.Count(calls[len(calls)-1].last(), "<status>failed</status>"), 1)
	})
}

// TestPrefixMismatch: a fork whose request would leave its snapshot's prefix is not sent.
func TestPrefixMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("x") })
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		o := y.options
		o.Store = otherManifest{y.store}
		e, _ := y.start(o)
		if err := e.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Fatal(err)
		}
		y.wantReason(y.run(runs[0].ID), forkcore.Failed, forkcore.CodePrefixMismatch)
		want(t, "requests of the fork", y.run(runs[0].ID).Requests, 0)
	})
}

// otherManifest gives a manifest that names another prefix than its segments make.
type otherManifest struct{ engine.Store }

func (s otherManifest) Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error) {
	snap, err := s.Store.Snapshot(ctx, sessionID, id)
	snap.ID = forkcore.DigestOf([]byte("something else"))
	return snap, err
}

// TestExecuteQuietEnds: wakes that were overtaken are no errors.
func TestExecuteQuietEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, slowRound)
		y.tools.do = slowTool
		id := y.send("go")
		time.Sleep(time.Second)
		unknown, err := forkcore.NewRunID(y.session.ID, forkcore.Entropy{9})
		if err != nil {
			t.Fatal(err)
		}
		for name, w := range map[string]engine.Wake{"running": {RunID: id, N: 0}, "future": {RunID: id, N: 7}, "unknown": {RunID: unknown, N: 1}} {
			if err := y.engine.Execute(y.ctx, w); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		// They do not come between a run and those who hold it.
		want(t, "runs held", y.engine.HeldRuns(), 1)
		if _, err := y.engine.Stop(y.ctx, y.session.ID, "turn"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want(t, "state", y.run(id).State, forkcore.Cancelled)

		f := &faulty{Store: y.store, n: 1, dead: true, err: forkcore.ErrStoreUnavailable}
		o := y.options
		o.Store = f
		e, _ := y.start(o)
		if err := e.Execute(y.ctx, engine.Wake{RunID: id, N: 1}); !errors.Is(err, forkcore.ErrStoreUnavailable) {
			t.Errorf("execute without a database: %v, want ErrStoreUnavailable", err)
		}
	})
}
