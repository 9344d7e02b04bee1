package forkcore

import "testing"

func TestUsageSums(t *testing.T) {
	a := Usage{Input: 1, CacheWrite5m: 20, CacheWrite1h: 300, CacheRead: 4000, Output: 50000}
	b := Usage{Input: 2, CacheWrite5m: 20, CacheWrite1h: 200, CacheRead: 2000, Output: 20000}
	if got := a.TotalInput(); got != 4321 {
		t.Errorf("TotalInput() = %d, want 4321", got)
	}
	if got := a.Cached(); got != 4320 {
		t.Errorf("Cached() = %d, want 4320", got)
	}
	if got, want := a.Add(b), (Usage{Input: 3, CacheWrite5m: 40, CacheWrite1h: 500, CacheRead: 6000, Output: 70000}); got != want {
		t.Errorf("Add = %+v, want %+v", got, want)
	}
}

// A sum with an unpriced part is unknown, never a smaller number.
func TestCostKnown(t *testing.T) {
	known, unknown := Cost{NanoUSD: 5}, Cost{NanoUSD: 7, Unpriced: 1}
	if got := known.Add(known).Known(); got == nil || *got != 10 {
		t.Errorf("5 + 5 is %v", got)
	}
	if got := known.Add(unknown); got.Known() != nil || got != (Cost{NanoUSD: 12, Unpriced: 1}) {
		t.Errorf("5 + unknown is %+v, known %v", got, got.Known())
	}
	if got := (Cost{}).Known(); got == nil || *got != 0 {
		t.Errorf("nothing spent is %v, want 0", got)
	}
}
