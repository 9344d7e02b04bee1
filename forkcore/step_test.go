package forkcore

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestStep(t *testing.T) {
	answered := func(blocks ...[]byte) *logBuilder {
		return newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q")).message(RoleAssistant, blocks...)
	}
	stopped := func(reason string) *logBuilder {
		return answered(text("half")).marker(Marker{Type: MarkerStop, Name: reason})
	}
	rounds := func(n int, same bool) *logBuilder {
		l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))
		for i := range n {
			input := `{"same":1}`
			if !same {
				input = string(AppendString([]byte(`{"n":`), strings.Repeat("x", i))) + `}`
			}
			l.message(RoleAssistant, toolUse("t", "Read", input)).message(RoleUser, AppendToolResult(nil, "t", "r", false))
		}
		return l
	}
	fail := func(code, final string) Decision {
		return Finish{State: Failed, Reason: &Reason{Code: code}, Final: final}
	}
	t1 := ToolCall{ID: "t1", Name: "Read", Input: []byte(`{"a" : 1.0}`)}
	t2 := ToolCall{ID: "t2", Name: "Bash", Input: []byte(`{}`)}
	r1 := AppendToolResult(nil, "t1", "a", false)
	r2 := AppendToolResult(nil, "t2", "b", false)
	tests := []struct {
		name  string
		log   *logBuilder
		kind  RunKind
		inbox int
		want  Decision
	}{
		{"an empty log", newLog(t), KindMain, 0, fail(CodeInternal, "")},
		{"an empty log and a message", newLog(t), KindMain, 1, Deliver{}},
		{"a user message", newLog(t).message(RoleUser, text("q")), KindMain, 0, CallModel{}},
		{"a user message, and one more came", newLog(t).message(RoleUser, text("q")), KindMain, 2, Deliver{}},
		{"calls", asked(t), KindMain, 0, RunTools{Calls: []PendingCall{{Call: t1}, {Call: t2}}}},
		{"calls before the inbox", asked(t), KindMain, 3, RunTools{Calls: []PendingCall{{Call: t1}, {Call: t2}}}},
		{"a started call is still to be answered", asked(t).marker(Marker{Type: MarkerToolStarted, ToolUseID: "t1", Holder: "h"}).result("t2", "b"), KindFork, 0, RunTools{Calls: []PendingCall{{Call: t1, StartedBy: "h"}}}},
		{"all results", asked(t).result("t2", "b").result("t1", "a"), KindFork, 0, Deliver{Answers: [][]byte{r1, r2}}},
		{"all results and the inbox", asked(t).result("t2", "b").result("t1", "a"), KindMain, 1, Deliver{Answers: [][]byte{r1, r2}}},
		{"delivered", asked(t).result("t1", "a").result("t2", "b").message(RoleUser, r1, r2), KindMain, 0, CallModel{}},
		{"an answer", answered([]byte(thinkingBlock), text("one"), text("two")), KindMain, 0, Finish{State: Done, Final: "one\n\ntwo"}},
		{"an answer, but the inbox", answered(text("one")), KindMain, 1, Deliver{}},
		{"an empty answer of a main turn", answered(text(" \n")), KindMain, 0, Finish{State: Done, Final: " \n"}},
		{"a fork's report", answered(text("Scope: x")), KindFork, 0, Finish{State: Done, Final: "Scope: x"}},
		{"a fork without a report (B34)", answered([]byte(thinkingBlock), text(" \n")), KindFork, 0, fail(CodeNoOutput, "")},
		{"cut", stopped("max_tokens"), KindMain, 0, fail(CodeTruncated, "half")},
		{"a fork's cut report", stopped("max_tokens"), KindFork, 0, fail(CodeTruncated, "half")},
		{"cut, and a message came", stopped("max_tokens"), KindMain, 1, Deliver{}},
		{"refused", stopped("refusal"), KindMain, 0, fail(CodeRefusal, "")},
		{"window full", stopped("model_context_window_exceeded"), KindFork, 0, fail(CodeContextWindow, "half")},
		{"a stop sequence is an end", stopped("stop_sequence"), KindMain, 0, Finish{State: Done, Final: "half"}},
		{"an earlier cut is over", stopped("max_tokens").message(RoleUser, text("go on")).message(RoleAssistant, text("rest")), KindMain, 0, Finish{State: Done, Final: "rest"}},
		{"199 rounds", rounds(MaxRounds-1, false), KindMain, 0, CallModel{}},
		{"200 rounds", rounds(MaxRounds, false), KindMain, 0, fail(CodeTurnCap, "")},
		{"200 rounds and a message", rounds(MaxRounds, false), KindMain, 1, Deliver{}},
		{"200 rounds and an answer", rounds(MaxRounds-1, false).message(RoleAssistant, text("end")), KindFork, 0, Finish{State: Done, Final: "end"}},
		{"a new turn starts over", rounds(MaxRounds, false).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("go on")), KindMain, 0, CallModel{}},
		{"the same call seven times", rounds(MaxRepeats-1, true), KindFork, 0, CallModel{}},
		{"the same call eight times", rounds(MaxRepeats, true), KindFork, 0, fail(CodeLoop, "")},
		{
			"after a stopped turn", asked(t).result("t1", "a").marker(Marker{Type: MarkerTurnEnd, State: Cancelled}).marker(Marker{Type: MarkerTurnStart}), KindMain, 1,
			Deliver{Answers: [][]byte{r1, AppendToolResult(nil, "t2", turnEnded, true)}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Step(tt.log.view(), tt.kind, tt.inbox)
			if f, ok := got.(Finish); ok && f.State == Failed {
				if f.Reason.Message == "" || f.Reason.NextStep == "" {
					t.Errorf("a reason without words: %+v", f.Reason)
				}
				f.Reason = &Reason{Code: f.Reason.Code}
				got = f
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("decision (-want +got):\n%s", d)
			}
		})
	}
}

// A fork's own rounds count, not those it inherited.
func TestInheritedRoundsDoNotCount(t *testing.T) {
	var inherited []Message
	for range MaxRounds {
		inherited = append(inherited, message(t, RoleUser, text("q")), message(t, RoleAssistant, text("a")))
	}
	v := NewView(newFanOut(t, inherited).base)
	if _, ok := Step(v, KindFork, 0).(Finish); !ok {
		t.Error("a fork without its directive went on")
	}
	apply(t, v, Entry{Seq: 1, Kind: EntryMessage, Fragment: true, Bytes: DirectiveBlock("x")})
	if d := Step(v, KindFork, 0); d != (CallModel{}) {
		t.Errorf("decision %+v, want CallModel", d)
	}
}

// B50: a request never ends with an assistant message, wherever the log was cut,
// and stepping changes nothing.
func TestModelIsCalledAfterAUserMessageOnly(t *testing.T) {
	for seed := range uint64(20) {
		entries := randomLog(t, rand.New(rand.NewPCG(seed, 11)))
		v := NewView(NewPrefix(testHead()))
		for i, e := range entries {
			apply(t, v, e)
			for _, kind := range []RunKind{KindMain, KindFork} {
				before := Step(v, kind, 0)
				if after := Step(v, kind, 0); !reflect.DeepEqual(before, after) {
					t.Fatalf("seed %d, entry %d: a second step decides differently:\n%s", seed, i, cmp.Diff(before, after))
				}
				_, calls := before.(CallModel)
				if last, ok := v.Last(); calls && (!ok || last.Role != RoleUser || len(v.Pending) > 0) {
					t.Fatalf("seed %d, entry %d: the model is called after %s with %d pending", seed, i, last.Role, len(v.Pending))
				}
			}
		}
	}
}
