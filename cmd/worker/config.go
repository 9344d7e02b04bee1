package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
)

// config is what flags and the environment say. A flag wins over its variable.
type config struct {
	redisURL    string
	concurrency int
	// maxConcurrent is how many runs of one session all workers advance at a time; 0 = any number.
	maxConcurrent int
	workspaces    []string // that this host has; none: it serves all
	apiKey        string
	baseURL       string
	healthcheck   bool
	catalogue     string // file of models and prices over the embedded table; empty = none
	diagnostics   string // auto, on or off
	simulated     bool   // the endpoint at baseURL is a simulator
	endpoint      string // auto or a kind
	guard         forkcore.Guard
}

// parseConfig reads flags and the environment and reports every bad value at
// once. flag.ErrHelp means that help was asked for and written.
func parseConfig(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	env := func(name, fallback string) string {
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return v
		}
		return fallback
	}
	c := config{}
	switch strings.ToLower(env("FORKYARD_SIMULATED", "")) { // as the dashboard reads it
	case "1", "true", "on", "yes":
		c.simulated = true
	}
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&c.redisURL, "redis-url", env("FORKYARD_REDIS_URL", ""), "redis://… shared with the dashboard (FORKYARD_REDIS_URL)")
	concurrency := fs.String("concurrency", env("FORKYARD_CONCURRENCY", "32"), "runs to advance at a time (FORKYARD_CONCURRENCY)")
	limit := fs.String("max-concurrent", env("FORKYARD_MAX_CONCURRENT", "0"), "runs of one session that workers advance at a time, as in the dashboard; 0 = any number (FORKYARD_MAX_CONCURRENT)")
	workspaces := fs.String("workspaces", env("FORKYARD_WORKSPACES", ""), "comma-separated workspaces that this host has, named as in the dashboard; empty = all (FORKYARD_WORKSPACES)")
	fs.StringVar(&c.apiKey, "anthropic-api-key", env("ANTHROPIC_API_KEY", ""), "key for the Messages API (ANTHROPIC_API_KEY)")
	fs.StringVar(&c.baseURL, "anthropic-base-url", env("ANTHROPIC_BASE_URL", ""), "another Messages API endpoint (ANTHROPIC_BASE_URL)")
	fs.StringVar(&c.diagnostics, "diagnostics", env("FORKYARD_DIAGNOSTICS", "auto"), "ask the provider why its cache was missed: auto (the Anthropic API and the dashboard's simulated model), on or off (FORKYARD_DIAGNOSTICS)")
	fs.StringVar(&c.catalogue, "catalogue", env("FORKYARD_CATALOGUE", ""), "JSON file of models and prices that lies over the built-in table, as in the dashboard (FORKYARD_CATALOGUE)")
	fs.StringVar(&c.endpoint, "endpoint", env("FORKYARD_ENDPOINT", anthropic.EndpointAuto), "kind of that endpoint, as in the dashboard: "+strings.Join(anthropic.EndpointKinds(), ", ")+" (FORKYARD_ENDPOINT)")
	depth := fs.String("fork-depth", env("FORKYARD_FORK_DEPTH", strconv.Itoa(forkcore.DefaultForkDepth)), "how deep forks may nest, as in the dashboard (FORKYARD_FORK_DEPTH)")
	descendants := fs.String("max-descendants", env("FORKYARD_MAX_DESCENDANTS", strconv.Itoa(forkcore.DefaultMaxDescendants)), "how many forks one session may start in all, as in the dashboard (FORKYARD_MAX_DESCENDANTS)")
	fs.BoolVar(&c.healthcheck, "healthcheck", false, "exit 0 when the database can be reached, else 1")
	fs.StringVar(&c.redisURL, "forkyard-redis-url", c.redisURL, "same as -redis-url")
	fs.StringVar(&c.endpoint, "forkyard-endpoint", c.endpoint, "same as -endpoint")
	fs.StringVar(&c.diagnostics, "forkyard-diagnostics", c.diagnostics, "same as -diagnostics")
	fs.StringVar(&c.catalogue, "forkyard-catalogue", c.catalogue, "same as -catalogue")
	fs.StringVar(limit, "forkyard-max-concurrent", *limit, "same as -max-concurrent")
	fs.StringVar(workspaces, "forkyard-workspaces", *workspaces, "same as -workspaces")
	fs.StringVar(concurrency, "forkyard-concurrency", *concurrency, "same as -concurrency")
	fs.StringVar(depth, "forkyard-fork-depth", *depth, "same as -fork-depth")
	fs.StringVar(descendants, "forkyard-max-descendants", *descendants, "same as -max-descendants")
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q; settings are flags such as -redis-url", fs.Arg(0)))
	}
	if c.redisURL == "" {
		errs = append(errs, errors.New("FORKYARD_REDIS_URL: a worker shares a Redis with the dashboard; give its redis://… URL. (The dashboard without one brings its own worker along.)"))
	}
	if c.diagnostics != "auto" && c.diagnostics != "on" && c.diagnostics != "off" {
		errs = append(errs, fmt.Errorf("FORKYARD_DIAGNOSTICS: %q is neither auto, on nor off", c.diagnostics))
	}
	if err := anthropic.CheckEndpoint(c.endpoint); err != nil {
		errs = append(errs, fmt.Errorf("FORKYARD_ENDPOINT: %w", err))
	}
	for w := range strings.SplitSeq(*workspaces, ",") {
		if w = strings.TrimSpace(w); w != "" {
			if !strings.Contains(w, ":") { // else a git remote
				if abs, err := filepath.Abs(w); err == nil {
					w = abs
				}
			}
			c.workspaces = append(c.workspaces, w)
		}
	}
	var err error
	if c.maxConcurrent, err = strconv.Atoi(*limit); err != nil || c.maxConcurrent < 0 {
		errs = append(errs, fmt.Errorf("FORKYARD_MAX_CONCURRENT: %q is no number from 0", *limit))
	}
	if c.concurrency, err = strconv.Atoi(*concurrency); err != nil || c.concurrency < 1 || c.concurrency > 10_000 {
		errs = append(errs, fmt.Errorf("FORKYARD_CONCURRENCY: %q is no number from 1 to 10000", *concurrency))
	}
	if c.guard, err = forkcore.ParseGuard(*depth, *descendants); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}
