// Command web serves the dashboard and the API, and executes foreground turns.
// Without FORKYARD_REDIS_URL it brings everything along in this one process: a
// Redis, the worker and, without a key, a simulated model and a sample workspace.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs"
	"forkyard/jobs/anthropic"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/tools"
	"forkyard/modelsim"
	"forkyard/web"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	redis.SetLogger(silent{}) // every failure comes back to its caller, who says it once
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// silent drops what the Redis client says of its connection pool.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// How long runs may take to their next step boundary at the end, before they are cut off there.
const (
	drainEmbedded = 3 * time.Second
	drainShared   = 25 * time.Second
)

// run starts everything in order, serves until ctx ends, and stops in reverse order.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, err := parseConfig(args, getenv, stderr)
	if err != nil {
		return err
	}
	catalogue, err := forkcore.LoadCatalogue(c.catalogue)
	if err != nil {
		return fmt.Errorf("FORKYARD_CATALOGUE: %w", err)
	}
	if c.printCatalogue {
		return printCatalogue(stdout, catalogue)
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	var closers stack
	defer closers.run()

	unlock, err := lockDataDir(c.dataDir)
	if err != nil {
		return err
	}
	closers.add(unlock)
	token, tokenPath, err := adminToken(c.adminToken, c.dataDir)
	if err != nil {
		return err
	}
	if len(token) < 16 {
		log.Warn("FORKYARD_ADMIN_TOKEN is short enough to be guessed; use 16 characters or more")
	}
	sample := ""
	if len(c.workspaces) == 0 && len(c.remotes) == 0 {
		if sample, err = sampleWorkspace(ctx, c.dataDir); err != nil {
			return fmt.Errorf("make the sample workspace: %w", err)
		}
		c.workspaces = []string{sample}
	}

	embedded := c.redisURL == ""
	db := &database{url: c.redisURL, kept: true, notice: "kept in the Redis at FORKYARD_REDIS_URL, as its append-only settings say"}
	if embedded {
		if db, err = startDatabase(ctx, c.dataDir); err != nil {
			return err
		}
		closers.add(db.stop)
	}
	opts, err := redis.ParseURL(db.url)
	if err != nil {
		return fmt.Errorf("FORKYARD_REDIS_URL: %w", err)
	}
	opts.PoolSize = max(40, 2*c.concurrency)
	client := redis.NewClient(opts)
	closers.add(func() { client.Close() })
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this machine in the archive: %w", err)
	}
	store := redisstore.New(client, redisstore.Options{
		Logger: log, InProcess: !db.kept,
		Archive: forkcore.ArchivePolicy{Host: host, Dir: filepath.Join(c.dataDir, "archive"), After: c.archiveAfter, Above: c.archiveAbove},
	})
	if err := store.CheckServer(ctx); err != nil {
		if embedded {
			return err
		}
		return fmt.Errorf("the Redis at FORKYARD_REDIS_URL: %w", err)
	}

	closers.add(inBackground(ctx, store.KeepStorage))

	simulated, provider := c.simulated, web.Provider{BaseURL: cmp.Or(c.baseURL, anthropic.DefaultBaseURL), Model: c.model}
	var cacheSince time.Time
	if c.apiKey == "" && c.baseURL == "" {
		url, stop, err := startSimulator()
		if err != nil {
			return err
		}
		closers.add(stop)
		c.baseURL, c.apiKey, simulated, cacheSince = url, "simulated", true, time.Now()
		provider.BaseURL = ""
		if !embedded {
			if err := store.PublishSimulator(ctx, url); err != nil {
				return err
			}
		}
	}
	if c.apiKey == "" {
		log.Warn("ANTHROPIC_API_KEY is not set: requests to ANTHROPIC_BASE_URL carry no key, which most endpoints refuse")
	}
	model, err := anthropic.New(anthropic.Options{APIKey: c.apiKey, BaseURL: c.baseURL, Endpoint: c.endpoint, Simulated: simulated, Catalogue: catalogue, Logger: log})
	if err != nil {
		return err
	}
	provider.HasKey, provider.KeyEnd, provider.Setting = model.HasKey, model.KeyEnd, anthropic.EndpointKind
	provider.AccountID = func() string { return model.Scope().Account() }
	if _, known := catalogue.Model(c.model); simulated && !known {
		return fmt.Errorf("FORKYARD_MODEL: %q is not a model the simulator knows; use one of %s", c.model, strings.Join(catalogue.IDs(), ", "))
	}
	queue := jobs.NewClient(client, store, c.maxConcurrent)
	if err := store.NamePools(ctx, append(slices.Clone(c.workspaces), c.remotes...)...); err != nil {
		return err
	}
	eng, err := engine.New(engine.Options{
		Store: store, Model: model, Catalogue: catalogue, Logger: log,
		Tools:      tools.Runner{Set: tools.NewSet(tools.Options{Logger: log}), Secrets: []string{token, getenv("ANTHROPIC_API_KEY"), opts.Password}},
		Enqueuer:   queue,
		Workspaces: c.workspaces, Remotes: c.remotes, DefaultModel: c.model, Simulated: simulated, CacheSince: cacheSince, Dashboard: true,
		Diagnostics:    c.diagnostics == "on" || c.diagnostics == "auto" && model.Traits().Diagnostics,
		AutoBackground: c.autoBackground, AutoBackgroundAfter: c.autoAfter, ForkOff: c.forkOff, Coordinator: c.coordinator, Gate: c.gate, Guard: c.guard, Betas: c.betas,
	})
	if err != nil {
		return err
	}
	stopEngine, err := eng.Start(ctx)
	if err != nil {
		return err
	}
	closers.add(stopEngine)
	closers.add(jobs.NewKeeper(client, queue, log).Start(ctx))
	quiet := func() {}
	if embedded {
		worker := jobs.NewServer(client, jobs.Options{
			Executor: eng, Ready: store, Concurrency: c.concurrency, Limit: c.maxConcurrent, Roots: c.workspaces, Log: log,
		})
		if err := worker.Start(ctx); err != nil {
			return err
		}
		closers.add(worker.Stop)
		quiet = worker.Quiet
	}

	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another with FORKYARD_ADDR or -addr", c.addr, err)
	}
	provider.Account = eng
	server, err := web.New(web.Options{
		Runner: eng, Reader: store, Bytes: eng, Events: store, Inbox: store, Secrets: store, Storage: store, Queue: store, Prices: catalogue, Catalogue: catalogue, PromptsRecomputed: eng.PromptsRecomputed,
		AdminToken: token, TokenPath: tokenPath, Addr: listener.Addr().String(), PublicURL: c.publicURL,
		Simulated: simulated, Kept: db.kept, Notice: db.sentence(), Workspaces: c.workspaces, Sample: sample, Provider: provider, Version: jobs.Version(), Log: log,
		Models: catalogue.IDs(), DefaultModel: c.model, DefaultMode: c.defaultMode(), Gate: c.gate,
	})
	if err != nil {
		listener.Close()
		return err
	}
	defer server.Close()
	hs := &http.Server{Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(listener) }()

	link, err := server.MakeLoginLink(ctx)
	if err != nil {
		return err
	}
	banner(stdout, link, simulated, c, db, tokenPath)

	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "\nStopping: runs are handed over or kept for the next start.")
	case err = <-served:
	case <-db.gone:
		log.Error("redis-server ended by itself: stopping", "log", db.log)
		err = fmt.Errorf("redis-server ended by itself; its log %s says why. Start again: what it had on disk is kept", db.log)
	}
	// Streams first, then requests, then runs, then everything they stand on.
	server.Close()
	sctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if serr := hs.Shutdown(sctx); serr != nil {
		hs.Close()
	}
	quiet()
	grace := drainShared
	if embedded {
		grace = drainEmbedded
	}
	eng.Drain(grace)
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// stack runs what was added, last first.
type stack []func()

func (s *stack) add(f func()) { *s = append(*s, f) }

func (s *stack) run() {
	for i := len(*s) - 1; i >= 0; i-- {
		(*s)[i]()
	}
}

// inBackground runs f until it is stopped; stop waits for its end. It outlives ctx: what it stands on ends later.
func inBackground(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// startSimulator serves the simulated model on a loopback port.
func startSimulator() (url string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for the simulated model: %w", err)
	}
	// Paced like a quick model, so that people can watch.
	hs := &http.Server{
		Handler:           modelsim.New(modelsim.Options{MessageStartDelay: 150 * time.Millisecond, DeltaDelay: 12 * time.Millisecond}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = hs.Serve(l) }() // ends when it is closed
	return "http://" + l.Addr().String(), func() { hs.Close() }, nil
}

func banner(w io.Writer, link string, simulated bool, c config, db *database, tokenPath string) {
	fmt.Fprintf(w, "\nForkyard is ready.\n\n  Sign in     %s\n              (works once, for 15 minutes)\n", link)
	switch {
	case simulated && c.simulated:
		fmt.Fprintf(w, "  Model       SIMULATED by %s, as FORKYARD_SIMULATED says: nothing counts as billed\n", c.baseURL)
	case simulated:
		fmt.Fprintln(w, "  Model       SIMULATED: no key is used, nothing is billed. Set ANTHROPIC_API_KEY for the real one")
	case c.baseURL != "":
		fmt.Fprintf(w, "  Model       %s at %s\n", c.model, c.baseURL)
	default:
		fmt.Fprintf(w, "  Model       %s\n", c.model)
	}
	fmt.Fprintf(w, "  Data        %s\n", db.notice)
	for _, dir := range c.workspaces {
		fmt.Fprintf(w, "  Workspace   %s\n", dir)
	}
	for _, url := range c.remotes {
		fmt.Fprintf(w, "  Not used    %s (git remotes cannot be used yet)\n", url)
	}
	if tokenPath != "" {
		fmt.Fprintf(w, "  API token   in %s\n", tokenPath)
	}
	if c.redisURL != "" {
		fmt.Fprintln(w, "  Workers     start cmd/worker with the same FORKYARD_REDIS_URL, key and base URL; forks wait in the queue until one runs")
	}
	fmt.Fprintln(w)
}

// printCatalogue writes the table in the form of a catalogue file.
func printCatalogue(w io.Writer, c *forkcore.Catalogue) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the catalogue: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}
