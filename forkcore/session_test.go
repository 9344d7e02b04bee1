package forkcore

import (
	"testing"
	"time"
)

func TestSessionState(t *testing.T) {
	tests := []struct {
		name string
		s    Session
		want State
	}{
		{"new", Session{}, Done},
		{"a turn in progress", Session{ActiveRunID: "run", ActiveRuns: 3, LastState: Failed}, Running},
		{"children alone", Session{ActiveRuns: 2, LastState: Done}, Waiting},
		{"the last turn's end", Session{LastState: OverBudget}, OverBudget},
	}
	for _, tt := range tests {
		if got := tt.s.State(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// An entry's life counts from the start of its last use.
func TestCacheEntryExpiresAt(t *testing.T) {
	for ttl, want := range map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour, "": 5 * time.Minute} {
		e := CacheEntry{TTL: ttl, UsedAt: testTime}
		if got := e.ExpiresAt().Sub(testTime); got != want {
			t.Errorf("TTL %q lives %v, want %v", ttl, got, want)
		}
	}
}
