package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// A stream that a person stops after 30 deltas keeps what its start said; the output is estimated from what was seen. Without
// a start nothing is known, which is not nothing.
func TestB60_CancelledStreams(t *testing.T) {
	start := forkcore.Usage{Input: 40, CacheRead: 9000, CacheWrite5m: 960, Output: 1}
	deltas := make([]forkcore.ModelDelta, 30)
	for i := range deltas {
		deltas[i] = forkcore.ModelDelta{Kind: "text", Text: "eight ch"}
	}
	streaming := say(strings.Repeat("eight ch", 30))
	streaming.usage, streaming.deltas, streaming.after = start, deltas, time.Hour
	silent := say("never begun")
	silent.before = time.Hour
	half := streaming
	half.every = 2 * time.Minute // 30 of them take an hour
	seen := start
	seen.Output = 60 // 240 bytes
	one := start     // one delta of 8 bytes is 2 tokens
	one.Output = 2
	for _, tt := range []struct {
		name   string
		answer reply
		usage  *forkcore.Usage
	}{
		{"after 30 deltas", streaming, &seen},
		{"after the first delta", half, &one},
		{"before message_start", silent, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(call) reply { return tt.answer })
				id := y.send("go")
				time.Sleep(time.Second)
				if err := y.engine.Cancel(y.ctx, id); err != nil {
					t.Fatal(err)
				}
				want(t, "state", y.ended(id).State, forkcore.Cancelled)
				rows := y.requests(id)
				want(t, "rows", len(rows), 1)
				row := rows[0]
				want(t, "status", row.Status, forkcore.RequestAborted)
				want(t, "estimated", row.Estimated, true)
				if d := cmp.Diff(tt.usage, row.Usage); d != "" {
					t.Errorf("usage (-want +got):\n%s", d)
				}
				// Even what is unknown is counted against the budget: it may have been billed.
				if row.Cost == nil || *row.Cost == 0 {
					t.Errorf("cost = %v", row.Cost)
				}
				if tt.usage != nil {
					want(t, "cost", *row.Cost, 40*2000+9000*200+960*2500+tt.usage.Output*10000) // claude-sonnet-5-5 at the date of the fake clock
				}
			})
		})
	}
}
