package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// spoilt gives an engine the real client in front of a simulator whose first answers are spoilt by fault.
func spoilt(t *testing.T, fault modelsim.Fault, times int32) *yard {
	t.Helper()
	var n atomic.Int32
	sim := modelsim.New(modelsim.Options{MessageStartDelay: 50 * time.Millisecond, Mind: modelsim.MindFunc(func(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		if last := r.Messages[len(r.Messages)-1]; last.Blocks[0].Type == "tool_result" {
			return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("all done")}}, nil
		}
		out := modelsim.Reply{Blocks: []modelsim.Block{
			modelsim.ThinkingBlock("a thought that is signed at its end", ""), modelsim.TextBlock("I look, 好🙂, and then"), modelsim.ToolUseBlock("", "Bash", `{"command":"echo x"}`),
		}}
		if n.Add(1) <= times {
			out.Fault = &fault
		}
		return out, nil
	})})
	client := simulatorClient(t, sim, "sim")
	return newYard(t, nil, func(o *engine.Options) { o.Model = client })
}

var breakages = []struct {
	name  string
	fault modelsim.Fault
	code  string
	said  string // in the row's error
	known bool   // the first event told the input
}{
	{"B15 clean end without message_stop", modelsim.Fault{Kind: modelsim.FaultEOF, AfterEvents: 6}, forkcore.CodeStreamCut, "message_stop", true},
	{"B16 overloaded inside a tool call", modelsim.Fault{Kind: modelsim.FaultErrorEvent, AfterEvents: 10}, forkcore.CodeOverloaded, "Overloaded", true},
	{"B09 reset inside thinking", modelsim.Fault{Kind: modelsim.FaultReset, AfterEvents: 3}, forkcore.CodeStreamCut, "", true},
	{"B49 end inside a rune", modelsim.Fault{Kind: modelsim.FaultEOF, AfterEvents: 2, InRune: true}, forkcore.CodeStreamCut, "", true},
	{"end before the first event", modelsim.Fault{Kind: modelsim.FaultEOF}, forkcore.CodeStreamCut, "", false},
	{"529", modelsim.Fault{Kind: modelsim.FaultStatus, Status: 529}, forkcore.CodeOverloaded, "Overloaded", false},
	{"500", modelsim.Fault{Kind: modelsim.FaultStatus, Status: 500}, forkcore.CodeProviderError, "", false},
}

// B15, B16, B09, B49: a turn that broke off is thrown away, no tool of it runs, the request is sent again, and the reason is kept.
func TestBrokenTurnsAreSentAgain(t *testing.T) {
	for _, tt := range breakages {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := spoilt(t, tt.fault, 2)
				r := y.ask("go")
				want(t, "state", r.State, forkcore.Done)
				want(t, "tools that ran", len(y.tools.runs()), 1)
				rows := y.requests(r.ID)
				if len(rows) != 4 {
					t.Fatalf("requests: %+v", rows)
				} // two that broke, one that called, one that ended
				for i, row := range rows[:2] {
					want(t, "status", row.Status, forkcore.RequestError)
					want(t, "attempt", row.Attempt, i+1)
					want(t, "body", row.Body, rows[2].Body)
					if row.Error == "" || !strings.Contains(row.Error, tt.said) {
						t.Errorf("request %d: error %q, want one with %q", i+1, row.Error, tt.said)
					}
					if (row.Usage != nil) != tt.known {
						t.Errorf("request %d: usage %+v", i+1, row.Usage)
					}
					if tt.known && (!row.Estimated || row.Usage.TotalInput() == 0 || row.Cost == nil || *row.Cost == 0) {
						t.Errorf("request %d was begun and is booked as %+v for %v", i+1, row.Usage, row.Cost)
					}
				}
				log, err := y.engine.Transcript(y.ctx, r.ID, 0)
				if err != nil {
					t.Fatal(err)
				}
				answers := 0
				for _, line := range log {
					if strings.Contains(string(line.Message), `"role":"assistant"`) {
						answers++
					}
				}
				want(t, "answers in the log", answers, 2)
			})
		})
	}
}

// When the budget of attempts is used up the run fails with the code, and the text of the last attempt.
func TestBrokenTurnsUseUpTheBudget(t *testing.T) {
	for _, tt := range breakages {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := spoilt(t, tt.fault, 100)
				r := y.ask("go")
				y.wantReason(r, forkcore.Failed, tt.code)
				want(t, "requests", len(y.requests(r.ID)), 4)
				want(t, "tools that ran", len(y.tools.runs()), 0)
				if !strings.Contains(r.Reason.Message, tt.said) {
					t.Errorf("reason %+v does not say %q", r.Reason, tt.said)
				}
			})
		})
	}
}

// B33: a child that died on the provider is failed, not silent, and the parent is told; one that recovered is done.
func TestB33_DeadChildrenAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var firsts atomic.Int32
		y := newYard(t, func(c call) reply {
			busy := reply{err: &forkcore.ModelError{Code: forkcore.CodeOverloaded, Status: 529, Type: "overloaded_error", Message: "Overloaded", Retryable: true}}
			switch directive, _ := c.directive(); {
			case strings.HasSuffix(directive, "d1"):
				if firsts.Add(1) == 1 {
					return busy
				}
				return say(reportText)
			case strings.HasSuffix(directive, "d2"):
				return busy
			case strings.HasSuffix(directive, "d3"):
				return reply{stop: "end_turn"}
			}
			return say("noted")
		})
		y.ask("first")
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2", "d3"), "")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the child that recovered", y.ended(runs[0].ID).State, forkcore.Done)
		y.wantReason(y.ended(runs[1].ID), forkcore.Failed, forkcore.CodeOverloaded)
		y.wantReason(y.ended(runs[2].ID), forkcore.Failed, forkcore.CodeNoOutput)
		y.idle()
		calls := y.model.received()
		notices := calls[len(calls)-1].last()
		want(t, "completed", strings.Count(notices, "<status>completed</status>"), 1)
		want(t, "failed", strings.Count(notices, "<status>failed</status>"), 2)
		if !strings.Contains(notices, "Overloaded") {
			t.Errorf("the parent is not told why: %s", notices)
		}
	})
}
