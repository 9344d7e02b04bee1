package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs"
	"forkyard/jobs/anthropic"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
	"forkyard/jobs/tools"
	"forkyard/modelsim"
)

// TestOneFork boots the real run() and sends one fork through the queue.
func TestOneFork(t *testing.T) {
	sim := httptest.NewServer(modelsim.New(modelsim.Options{}))
	t.Cleanup(sim.Close)
	url := redistest.Start(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("# ship\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	store := redisstore.New(client, redisstore.Options{})
	model, err := anthropic.New(anthropic.Options{BaseURL: sim.URL, APIKey: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	prices, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	// A dispatcher that executes nothing itself.
	dispatcher, err := engine.New(engine.Options{
		Store: store, Model: model, Catalogue: prices, Tools: tools.Runner{Set: tools.NewSet(tools.Options{})},
		Enqueuer: jobs.NewClient(client), Workspaces: []string{dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	s, _, err := dispatcher.CreateSession(ctx, forkcore.SessionSpec{Workspace: dir}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, runs, err := dispatcher.Fork(ctx, s.ID, forkcore.ForkSpec{Directives: []forkcore.Directive{{Prompt: "What does the README say?"}}}, "")
	if err != nil {
		t.Fatal(err)
	}

	// The address of the simulated model is found through Redis, as with a dashboard without a key.
	if err := store.PublishSimulator(ctx, sim.URL); err != nil {
		t.Fatal(err)
	}
	wctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	var out, log lockedBuffer
	go func() {
		done <- run(wctx, []string{"-concurrency", "1"}, func(k string) string {
			if k == "FORKYARD_REDIS_URL" {
				return url
			}
			return ""
		}, &out, &log)
	}()
	var got forkcore.Run
	for deadline := time.Now().Add(30 * time.Second); !got.State.Ended(); time.Sleep(10 * time.Millisecond) {
		if got, err = store.Run(ctx, runs[0].ID); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the fork is still %s after 30 s\n%s", got.State, log.String())
		}
	}
	if got.State != forkcore.Done || got.Report == nil || len(got.Report.Missing) != 0 || !strings.Contains(got.Report.KeyFiles, "README.md") {
		t.Errorf("the fork ended %s (%v) with report %+v", got.State, got.Reason, got.Report)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestHealthcheck(t *testing.T) {
	server := redistest.NewServer(t)
	check := func() error {
		return run(context.Background(), []string{"-healthcheck", "-redis-url", server.URL()}, func(string) string { return "" }, &lockedBuffer{}, &lockedBuffer{})
	}
	if err := check(); err != nil {
		t.Errorf("with the database up: %v", err)
	}
	server.Kill()
	if err := check(); err == nil {
		t.Error("with the database down: no error")
	}
}

// A Redis that may evict keys would lose runs without a word.
func TestEvictingRedisIsRefused(t *testing.T) {
	url := redistest.Start(t)
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(opts)
	defer c.Close()
	if err := c.ConfigSet(context.Background(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	err = run(context.Background(), []string{"-redis-url", url}, func(string) string { return "" }, &lockedBuffer{}, &lockedBuffer{})
	if err == nil || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("got %v, want an error that names noeviction", err)
	}
}

func TestParseConfig(t *testing.T) {
	leaf := forkcore.Guard{MaxDepth: 1, MaxDescendants: 256}
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want config
		errs []string
	}{
		{name: "environment", env: map[string]string{"FORKYARD_REDIS_URL": "redis://h", "FORKYARD_CONCURRENCY": "7", "ANTHROPIC_API_KEY": "k"}, want: config{redisURL: "redis://h", concurrency: 7, apiKey: "k", diagnostics: "auto", endpoint: "auto", guard: leaf}},
		{name: "flags win", args: []string{"-redis-url", "redis://f", "-concurrency=2"}, env: map[string]string{"FORKYARD_REDIS_URL": "redis://h"}, want: config{redisURL: "redis://f", concurrency: 2, diagnostics: "auto", endpoint: "auto", guard: leaf}},
		{name: "long names", args: []string{"-forkyard-redis-url", "redis://f", "-forkyard-concurrency", "3"}, want: config{redisURL: "redis://f", concurrency: 3, diagnostics: "auto", endpoint: "auto", guard: leaf}},
		{name: "a simulator of one's own", args: []string{"-redis-url", "redis://f", "-diagnostics", "off"}, env: map[string]string{"FORKYARD_SIMULATED": "On", "FORKYARD_DIAGNOSTICS": "on"}, want: config{redisURL: "redis://f", concurrency: 32, diagnostics: "off", endpoint: "auto", simulated: true, guard: leaf}},
		{name: "all errors at once", args: []string{"-concurrency", "many", "-diagnostics", "1", "-endpoint", "llama"}, errs: []string{"FORKYARD_ENDPOINT", "FORKYARD_REDIS_URL", "FORKYARD_CONCURRENCY", "FORKYARD_DIAGNOSTICS"}},
		{name: "guards", args: []string{"-fork-depth", "2", "-forkyard-max-descendants", "9"}, env: map[string]string{"FORKYARD_REDIS_URL": "redis://h", "FORKYARD_FORK_DEPTH": "3"}, want: config{redisURL: "redis://h", concurrency: 32, diagnostics: "auto", endpoint: "auto", guard: forkcore.Guard{MaxDepth: 2, MaxDescendants: 9}}},
		{name: "guards of the environment", env: map[string]string{"FORKYARD_REDIS_URL": "redis://h", "FORKYARD_FORK_DEPTH": "3", "FORKYARD_MAX_DESCENDANTS": "8"}, want: config{redisURL: "redis://h", concurrency: 32, diagnostics: "auto", endpoint: "auto", guard: forkcore.Guard{MaxDepth: 3, MaxDescendants: 8}}},
		{name: "bad guards", env: map[string]string{"FORKYARD_REDIS_URL": "redis://h", "FORKYARD_FORK_DEPTH": "0", "FORKYARD_MAX_DESCENDANTS": "0"}, errs: []string{"FORKYARD_FORK_DEPTH", "FORKYARD_MAX_DESCENDANTS"}},
		{name: "stray argument", args: []string{"-redis-url", "redis://f", "start"}, errs: []string{`"start"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseConfig(tc.args, func(k string) string { return tc.env[k] }, &lockedBuffer{})
			for _, want := range tc.errs {
				if err == nil || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("error %v does not name %s", err, want)
				}
			}
			if len(tc.errs) == 0 && (err != nil || got != tc.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
