package web

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestSessionPage(t *testing.T) {
	s := serve(t, withData())
	root := page(t, s, "/sessions/"+sessionID, 200, "Cookie", s.signIn(t))
	want := [][]string{
		{"Fork 2 parked Held until the shared prefix can be read. Wait a few seconds. Find what the documentation gets wrong.", "– inherited –", "$0.0000", "4", "", "Run Requests"},
		{"Docs done Find what the documentation gets wrong.", "93.0 % inherited 100.0 %", "$0.0450", "4", "2026-11-20 12:00:00 UTC", "Run Requests"},
		{"Main turn waiting Waits for its forks. Wait, or stop the tree.", "93.0 %", "$0.0000", "0", "2026-11-20 12:00:00 UTC", "Run Requests"},
	}
	if diff := cmp.Diff(want, table(root)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if !strings.Contains(text(root), "41,200 tokens, 4 min left") {
		t.Errorf("no cache clock in %s", text(root))
	}
	page(t, s, "/sessions/ses_03cccccccccccccccc", 200, "Cookie", s.signIn(t))
}

func TestCacheLine(t *testing.T) {
	entry := &forkcore.CacheEntry{Tokens: 1_234_567, Exact: true, TTL: "5m", UsedAt: noon}
	guess := *entry
	guess.Exact, guess.Tokens = false, 999
	tests := []struct {
		entry *forkcore.CacheEntry
		after time.Duration
		want  string
	}{
		{nil, 0, "nothing cached yet"},
		{entry, 0, "1,234,567 tokens, 5 min left"},
		{entry, 4*time.Minute + time.Millisecond, "1,234,567 tokens, 59 s left"},
		{&guess, 5 * time.Minute, "about 999 tokens, expired"},
	}
	for _, test := range tests {
		if got := cacheLine(test.entry, noon.Add(test.after)); got != test.want {
			t.Errorf("after %v: %q, want %q", test.after, got, test.want)
		}
	}
}

func TestCountRuns(t *testing.T) {
	tests := []struct {
		runs   int
		more   bool
		active int64
		want   string
	}{
		{0, false, 0, "no runs"}, {1, false, 1, "1 run, 1 active"}, {2, false, 0, "2 runs"}, {100, true, 7, "more than 100 runs, 7 active"},
	}
	for _, test := range tests {
		if got := countRuns(test.runs, test.more, test.active); got != test.want {
			t.Errorf("countRuns(%d, %t, %d) = %q, want %q", test.runs, test.more, test.active, got, test.want)
		}
	}
}
