package jobs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/jobs/engine"
)

// BenchmarkEnqueueToStart is how long a run waits for an idle worker, and what idle workers ask of Redis. Ten workers are
// idle; one run comes at a time.
func BenchmarkEnqueueToStart(b *testing.B) {
	r := newReadyList(b, 0)
	started := make(chan time.Time, 1)
	for i := range 10 {
		r.start(&worker{id: fmt.Sprint("w", i), do: func(engine.Wake) { started <- time.Now() }}, 4)
	}
	commands := func() (n int) {
		info, err := r.redis.Info(r.ctx, "stats").Result()
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
				return n
			}
		}
		return 0
	}
	time.Sleep(time.Second) // they are idle
	before := commands()
	time.Sleep(3 * time.Second)
	idle := float64(commands()-before) / 3

	var waits []time.Duration
	n := 0
	for b.Loop() {
		n++
		at := time.Now()
		r.enqueue(engine.Wake{RunID: fmt.Sprint("run", n), N: 1, SessionID: fmt.Sprint("session", n%7)})
		waits = append(waits, (<-started).Sub(at))
		time.Sleep(time.Duration(n*7%20) * time.Millisecond) // whenever it comes within their rhythm
	}
	slices.Sort(waits)
	at := func(share float64) float64 { return waits[int(share*float64(len(waits)-1))].Seconds() * 1000 }
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(idle/10, "commands/s/idle-worker")
}
