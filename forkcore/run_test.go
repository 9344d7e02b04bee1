package forkcore

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTransitions(t *testing.T) {
	ends := []State{Done, Failed, Cancelled, OverBudget}
	want := map[State][]State{
		Queued:  {Running, Parked, Failed, Cancelled, OverBudget},
		Running: {Queued, Parked, Waiting, Done, Failed, Cancelled, OverBudget},
		Parked:  {Queued, Waiting, Failed, Cancelled, OverBudget},
		Waiting: {Queued, Failed, Cancelled, OverBudget},
		// Resumed.
		Failed: {Queued}, OverBudget: {Queued},
	}
	for _, from := range append(States, "", "nonsense") {
		for _, to := range append(States, "", "nonsense") {
			if got := from.CanBecome(to); got != slices.Contains(want[from], to) {
				t.Errorf("%q.CanBecome(%q) = %v", from, to, got)
			}
		}
		if got := from.Ended(); got != slices.Contains(ends, from) {
			t.Errorf("%q.Ended() = %v", from, got)
		}
		if got := from.Resumable(); got != (from == Failed || from == OverBudget) {
			t.Errorf("%q.Resumable() = %v", from, got)
		}
		if got := from.Valid(); got != slices.Contains(States, from) {
			t.Errorf("%q.Valid() = %v", from, got)
		}
	}
	if d := cmp.Diff([]State{"queued", "running", "parked", "waiting", "done", "failed", "cancelled", "over_budget"}, States); d != "" {
		t.Errorf("States (-want +got):\n%s", d)
	}
}

// Sums first, divides last, and says nothing without data.
func TestHitRate(t *testing.T) {
	fork := Run{Kind: KindFork, Usage: Usage{Input: 100, CacheWrite5m: 100, CacheRead: 800}, InheritedTokens: 500, InheritedRead: 500}
	main := fork
	main.Kind = KindMain
	own := fork
	own.InheritedTokens, own.InheritedRead = 1000, 800
	f := func(v float64) *float64 { return &v }
	tests := []struct {
		name string
		run  Run
		want HitRates
	}{
		{"a fork", fork, HitRates{Total: f(0.8), Inherited: f(1), Own: f(0.6)}},
		{"a main turn", main, HitRates{Total: f(0.8)}},
		{"nothing of its own yet", own, HitRates{Total: f(0.8), Inherited: f(0.8)}},
		{"no request yet", Run{Kind: KindFork}, HitRates{}},
		{"output is no input", Run{Kind: KindMain, Usage: Usage{Output: 5}}, HitRates{}},
		{"nothing read", Run{Kind: KindMain, Usage: Usage{Input: 5}}, HitRates{Total: f(0)}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, tt.run.HitRate()); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// B34: a fork that is done and used no tool is flagged; nobody else is.
func TestB34_UsedNoTool(t *testing.T) {
	for _, tt := range []struct {
		run  Run
		want bool
	}{
		{Run{Kind: KindFork, State: Done}, true},
		{Run{Kind: KindFork, State: Done, ToolUses: 1}, false},
		{Run{Kind: KindMain, State: Done}, false},
		{Run{Kind: KindFork, State: Running}, false},
		{Run{Kind: KindFork, State: Failed}, false},
	} {
		if got := tt.run.UsedNoTool(); got != tt.want {
			t.Errorf("%s %s with %d tool uses: %v, want %v", tt.run.Kind, tt.run.State, tt.run.ToolUses, got, tt.want)
		}
	}
}

func TestStopReasonSaysHowToGoOn(t *testing.T) {
	again, goOn := "Dispatch it again if its work is still wanted.", "Send a message to go on from here."
	for i, want := range []Reason{
		{"cancelled", "Somebody cancelled this run.", again},
		{"cancelled", "Somebody stopped this turn.", goOn},
		{"cancelled", "Somebody stopped the session with all its runs.", goOn},
	} {
		if got := StopReason(StopWishes[i]); got != want {
			t.Errorf("%s: %+v, want %+v", StopWishes[i], got, want)
		}
	}
}
