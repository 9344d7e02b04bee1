// Command worker takes runs off the ready-list and advances them. Any number
// of workers share one Redis; each must see the workspaces of the sessions it runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	redis.SetLogger(silent{}) // every failure comes back to its caller, who says it once
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	default:
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// silent drops what the Redis client says of its connection pool.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// drain is how long runs may take to their next step boundary before they are cut off there.
const drain = 25 * time.Second

// run works until ctx ends, then hands its runs over.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, err := parseConfig(args, getenv, stderr)
	if err != nil {
		return err
	}
	catalogue, err := forkcore.LoadCatalogue(c.catalogue)
	if err != nil {
		return fmt.Errorf("FORKYARD_CATALOGUE: %w", err)
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	opts, err := redis.ParseURL(c.redisURL)
	if err != nil {
		return fmt.Errorf("FORKYARD_REDIS_URL: %w", err)
	}
	opts.PoolSize = max(40, 2*c.concurrency)
	client := redis.NewClient(opts)
	defer client.Close()
	store := redisstore.New(client, redisstore.Options{Logger: log})
	if c.healthcheck {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	if err := store.CheckServer(ctx); err != nil {
		return fmt.Errorf("the Redis at FORKYARD_REDIS_URL: %w", err)
	}
	if c.healthcheck {
		return nil
	}
	if c.apiKey == "" && c.baseURL == "" {
		if c.baseURL, err = simulator(ctx, store, stderr); err != nil || c.baseURL == "" {
			return err
		}
		c.apiKey, c.simulated = "simulated", true
	}
	model, err := anthropic.New(anthropic.Options{APIKey: c.apiKey, BaseURL: c.baseURL, Endpoint: c.endpoint, Simulated: c.simulated, Catalogue: catalogue, Logger: log})
	if err != nil {
		return err
	}
	queue := jobs.NewClient(client, store, c.maxConcurrent)
	eng, err := engine.New(engine.Options{
		Store: store, Model: model, Catalogue: catalogue, Logger: log,
		Tools:    tools.Runner{Set: tools.NewSet(tools.Options{Logger: log}), Secrets: []string{getenv("FORKYARD_ADMIN_TOKEN"), getenv("ANTHROPIC_API_KEY"), opts.Password}},
		Enqueuer: queue, Diagnostics: c.diagnostics == "on" || c.diagnostics == "auto" && model.Traits().Diagnostics,
		Guard: c.guard,
	})
	if err != nil {
		return err
	}
	// Any process may take the sample of a minute; a worker has no archive.
	go store.KeepStorage(ctx)
	stopEngine, err := eng.Start(ctx)
	if err != nil {
		return err
	}
	defer stopEngine()
	defer jobs.NewKeeper(client, queue, log).Start(ctx)()
	server := jobs.NewServer(client, jobs.Options{
		Executor: eng, Ready: store, Concurrency: c.concurrency, Limit: c.maxConcurrent, Roots: c.workspaces, Log: log,
	})
	if err := server.Start(ctx); err != nil {
		return err
	}
	defer server.Stop()
	serves := "every workspace that a dashboard names"
	if len(c.workspaces) > 0 {
		serves = strings.Join(c.workspaces, ", ")
	}
	fmt.Fprintf(stdout, "worker: ready for up to %d runs at a time, for %s\n", c.concurrency, serves)
	<-ctx.Done()
	server.Quiet()
	eng.Drain(drain)
	return nil
}

// simulator finds the simulated model that a dashboard without a key serves. It
// may start after this worker, so it is waited for a little. An empty address
// without an error means that ctx ended first.
func simulator(ctx context.Context, store *redisstore.Store, stderr io.Writer) (string, error) {
	const patience = 15 * time.Second
	for began := time.Now(); ; {
		url, err := store.Simulator(ctx)
		if ctx.Err() != nil {
			return "", nil
		}
		if err != nil || url != "" {
			return url, err
		}
		if time.Since(began) > patience {
			return "", errors.New("no model: no dashboard on this Redis serves a simulated one; set ANTHROPIC_API_KEY or ANTHROPIC_BASE_URL, the same as for the dashboard")
		}
		if time.Since(began) < time.Second/4 {
			fmt.Fprintln(stderr, "worker: neither ANTHROPIC_API_KEY nor ANTHROPIC_BASE_URL is set; waiting for a dashboard with a simulated model on this Redis")
		}
		select {
		case <-ctx.Done():
			return "", nil
		case <-time.After(time.Second / 4):
		}
	}
}
