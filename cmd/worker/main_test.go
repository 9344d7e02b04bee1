package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// shop is a Redis with a dispatcher that executes nothing itself, and a workspace.
type shop struct {
	url        string
	client     *redis.Client
	store      *redisstore.Store
	dispatcher *engine.Engine
	dir        string
}

// newShop makes one whose simulated model is found through Redis, as with a dashboard without a key.
func newShop(t *testing.T, o modelsim.Options) *shop {
	t.Helper()
	sim := httptest.NewServer(modelsim.New(o))
	t.Cleanup(sim.Close)
	s := &shop{url: redistest.Start(t)}
	var err error
	if s.dir, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "README.md"), []byte("# ship\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(s.url)
	if err != nil {
		t.Fatal(err)
	}
	s.client = redis.NewClient(opts)
	t.Cleanup(func() { s.client.Close() })
	s.store = redisstore.New(s.client, redisstore.Options{})
	model, err := anthropic.New(anthropic.Options{BaseURL: sim.URL, APIKey: "sim"})
	if err != nil {
		t.Fatal(err)
	}
	prices, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	s.dispatcher, err = engine.New(engine.Options{
		Store: s.store, Model: model, Catalogue: prices, Tools: tools.Runner{Set: tools.NewSet(tools.Options{})},
		Enqueuer: jobs.NewClient(s.client, s.store, 0), Workspaces: []string{s.dir},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.PublishSimulator(t.Context(), sim.URL); err != nil {
		t.Fatal(err)
	}
	return s
}

// fork starts one in a session of its own.
func (s *shop) fork(t *testing.T) string {
	t.Helper()
	session, _, err := s.dispatcher.CreateSession(t.Context(), forkcore.SessionSpec{Workspace: s.dir}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, runs, err := s.dispatcher.Fork(t.Context(), session.ID, forkcore.ForkSpec{Directives: []forkcore.Directive{{Prompt: "What does the README say?"}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	return runs[0].ID
}

// work boots the real run(); it ends with the test, without an error.
func (s *shop) work(t *testing.T) (log *lockedBuffer) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	log = &lockedBuffer{}
	go func() {
		done <- run(ctx, []string{"-concurrency", "1"}, func(k string) string {
			if k == "FORKYARD_REDIS_URL" {
				return s.url
			}
			return ""
		}, &lockedBuffer{}, log)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return log
}

// until waits for a run to be as wanted.
func (s *shop) until(t *testing.T, id, what string, log *lockedBuffer, ok func(forkcore.Run) bool) forkcore.Run {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r, err := s.store.Run(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if ok(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s; the run is %s\n%s", what, r.State, log)
		}
	}
}

func (s *shop) done(t *testing.T, id string, log *lockedBuffer) {
	t.Helper()
	got := s.until(t, id, "the end", log, func(r forkcore.Run) bool { return r.State.Ended() })
	if got.State != forkcore.Done || got.Report == nil || len(got.Report.Missing) != 0 || !strings.Contains(got.Report.KeyFiles, "README.md") {
		t.Errorf("the fork ended %s (%v) with report %+v", got.State, got.Reason, got.Report)
	}
}

// TestOneFork sends one fork through the queue.
func TestOneFork(t *testing.T) {
	s := newShop(t, modelsim.Options{})
	fork := s.fork(t)
	s.done(t, fork, s.work(t))
}

// TestFullRedis: a run that is at work when Redis has no memory left waits for room and goes on, with every message once.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	s := newShop(t, modelsim.Options{MessageStartDelay: 300 * time.Millisecond})
	fork := s.fork(t)
	log := s.work(t)
	s.until(t, fork, "the second request", log, func(r forkcore.Run) bool { return r.Requests == 2 })
	limit := func(bytes string) {
		t.Helper()
		if err := s.client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	if _, _, err := s.dispatcher.CreateSession(t.Context(), forkcore.SessionSpec{Workspace: s.dir}, ""); !errors.Is(err, forkcore.ErrStoreFull) {
		t.Errorf("a session in a full Redis: %v", err)
	}
	s.until(t, fork, "the worker to find it full", log, func(forkcore.Run) bool { return strings.Contains(log.String(), "went away during a run") })
	time.Sleep(5 * time.Second) // longer than the silence after which an executor is taken for dead
	r, err := s.store.Run(t.Context(), fork)
	if err != nil || r.Requests != 2 {
		t.Errorf("it asked the model while nothing could be kept: %d requests, %v", r.Requests, err)
	}
	limit("0")
	s.done(t, fork, log)
	entries, err := s.store.Log(t.Context(), r.SessionID, fork, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[forkcore.Digest]int{}
	for _, e := range entries {
		if e.Kind == forkcore.EntryMessage {
			if seen[e.Blob]++; seen[e.Blob] > 1 {
				t.Errorf("message %d is there twice", e.Seq)
			}
		}
	}
	rows, err := s.store.Requests(t.Context(), fork)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Status == forkcore.RequestOpen {
			t.Errorf("request %d is open for ever", row.N)
		}
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
			if len(tc.errs) == 0 && (err != nil || !cmp.Equal(got, tc.want, cmp.AllowUnexported(config{}))) {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
