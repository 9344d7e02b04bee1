package forkcore

import (
	"testing"
	"time"
)

// M46: on by the variable or the flag, and 0 when off.
func TestM46_AutoBackgroundAfter(t *testing.T) {
	const after = 120 * time.Second
	for _, tt := range []struct {
		variable, flag bool
		want           time.Duration
	}{{false, false, 0}, {true, false, after}, {false, true, after}, {true, true, after}} {
		if got := AutoBackgroundAfter(tt.variable, tt.flag, after); got != tt.want {
			t.Errorf("variable %v, flag %v: %v, want %v", tt.variable, tt.flag, got, tt.want)
		}
	}
}

func TestFlags(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Flags() {
		if f.Name == "" || f.Description == "" || seen[f.Name] || f.Set {
			t.Errorf("flag %+v", f)
		}
		seen[f.Name] = true
	}
}
