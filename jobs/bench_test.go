package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"forkyard/forkcore"
	"forkyard/forkcore/forkcoretest"
	"forkyard/jobs"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore/redistest"
)

// BenchmarkEnqueueToStart is how long a run waits for an idle worker, and what idle workers ask of Redis. Ten workers are
// idle; one run comes at a time.
func BenchmarkEnqueueToStart(b *testing.B) {
	r := openReadyList(b, redistest.Start(b), 0)
	started := make(chan time.Time, 1)
	for i := range 10 {
		r.start(&worker{id: fmt.Sprint("w", i), do: func(engine.Wake) { started <- time.Now() }}, 4)
	}
	time.Sleep(time.Second) // they are idle
	before := r.commands()
	time.Sleep(3 * time.Second)
	idle := float64(r.commands()-before) / 3

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

// oneTool is a registry with a tool that reads and costs nothing.
type oneTool struct{}

func (oneTool) Specs() []forkcore.ToolSpec {
	return []forkcore.ToolSpec{{Name: "Read", Description: "reads", InputSchema: json.RawMessage(`{"type":"object"}`), ReadOnly: true}}
}
func (oneTool) ReadOnly(string) bool { return true }
func (oneTool) Run(context.Context, string, forkcore.PermissionMode, forkcore.ToolCall) forkcore.ToolResult {
	return forkcore.ToolResult{Text: "read"}
}

// BenchmarkForks2000 is how many forks come to their end in a second, from their dispatch on: each sends two requests to a model
// that answers at once, and calls one tool. Beside it, on the same Redis, bare asynq does as many tasks with an empty handler at
// the same concurrency.
func BenchmarkForks2000(b *testing.B) {
	const forks, perDispatch, concurrency = 2000, 50, 64
	r := openReadyList(b, redistest.Start(b), 0)
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		b.Fatal(err)
	}
	call := []byte(`{"type":"tool_use","id":"t1","name":"Read","input":{}}`)
	report := forkcore.AppendTextBlock(nil, "Scope: s\nResult: r\nKey files: none\nFiles changed: none\nIssues: none")
	model := forkcoretest.NewModel(func(_ int, body []byte) forkcoretest.Answer {
		if bytes.Contains(body, []byte(`"tool_result"`)) {
			return forkcoretest.Answer{Blocks: [][]byte{report}, Usage: forkcore.Usage{CacheRead: 3000, Output: 20}}
		}
		return forkcoretest.Answer{Blocks: [][]byte{call}, Usage: forkcore.Usage{CacheRead: 3000, Output: 20}}
	})
	dir := b.TempDir()
	eng, err := engine.New(engine.Options{
		Store: r.store, Model: model, Tools: oneTool{}, Enqueuer: r.client, Catalogue: catalogue, Workspaces: []string{dir}, Gate: forkcore.GateOff,
		Guard: forkcore.Guard{MaxDescendants: 1_000_000},
	})
	if err != nil {
		b.Fatal(err)
	}
	stop, err := eng.Start(r.ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(stop)
	s := jobs.NewServer(r.redis, jobs.Options{Executor: eng, Ready: r.store, Concurrency: concurrency, Log: slog.New(slog.DiscardHandler)})
	if err := s.Start(r.ctx); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	var ours, bare, commands float64
	for b.Loop() {
		var dispatches []string
		before := r.commands()
		began := time.Now()
		for d := range forks / perDispatch {
			session, _, err := eng.CreateSession(r.ctx, forkcore.SessionSpec{Workspace: dir, PermissionMode: forkcore.PermissionDontAsk}, "")
			if err != nil {
				b.Fatal(err)
			}
			spec := forkcore.ForkSpec{Notify: forkcore.NotifyManual}
			for i := range perDispatch {
				spec.Directives = append(spec.Directives, forkcore.Directive{Prompt: fmt.Sprintf("do %d of %d", i, d)})
			}
			created, _, err := eng.Fork(r.ctx, session.ID, spec, "")
			if err != nil {
				b.Fatal(err)
			}
			dispatches = append(dispatches, created.ID)
		}
		for _, id := range dispatches {
			r.until("the end of a fan-out", func() bool {
				d, err := r.store.Dispatch(r.ctx, id)
				return err == nil && d.Remaining == 0
			})
		}
		ours += forks / time.Since(began).Seconds()
		commands += float64(r.commands()-before) / forks
		bare += bareAsynq(b, r, forks, concurrency)
	}
	n := float64(b.N)
	b.ReportMetric(ours/n, "forks/s")
	b.ReportMetric(bare/n, "asynq-tasks/s")
	b.ReportMetric(100*ours/bare, "%")
	b.ReportMetric(commands/n, "commands/fork")
}

// bareAsynq is how many tasks a second asynq enqueues and processes with an empty handler.
func bareAsynq(b *testing.B, r *readyList, tasks, concurrency int) float64 {
	var left sync.WaitGroup
	left.Add(tasks)
	mux := asynq.NewServeMux()
	mux.HandleFunc("empty", func(context.Context, *asynq.Task) error { left.Done(); return nil })
	server := asynq.NewServerFromRedisClient(r.redis, asynq.Config{
		Concurrency: concurrency, Queues: map[string]int{"bare": 1}, TaskCheckInterval: 15 * time.Millisecond, LogLevel: asynq.FatalLevel,
	})
	if err := server.Start(mux); err != nil {
		b.Fatal(err)
	}
	defer server.Shutdown()
	client := asynq.NewClientFromRedisClient(r.redis)
	began := time.Now()
	for range tasks {
		if _, err := client.Enqueue(asynq.NewTask("empty", nil, asynq.Queue("bare"))); err != nil {
			b.Fatal(err)
		}
	}
	left.Wait()
	return float64(tasks) / time.Since(began).Seconds()
}

// commands is how many commands Redis has processed.
func (r *readyList) commands() (n int) {
	r.Helper()
	info, err := r.redis.Info(r.ctx, "stats").Result()
	if err != nil {
		r.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
			return n
		}
	}
	r.Fatal("Redis does not tell how many commands it processed")
	return 0
}
