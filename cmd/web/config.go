package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
)

// config is what flags and the environment say. A flag wins over its variable.
type config struct {
	addr           string
	redisURL       string
	dataDir        string
	workspaces     []string // absolute folders
	remotes        []string // git remotes
	adminToken     string
	concurrency    int
	maxConcurrent  int // runs of one session at a time; 0 = any number
	apiKey         string
	baseURL        string
	model          string
	publicURL      string
	autoBackground bool
	autoAfter      time.Duration
	forkOff        bool
	coordinator    bool
	gate           forkcore.GateMode
	guard          forkcore.Guard
	archiveAfter   time.Duration // 0 = age is no reason
	archiveAbove   float64       // part of the memory; 0 = memory is no reason
	betas          []string
	simulated      bool   // the endpoint at baseURL is a simulator
	endpoint       string // auto or a kind
	diagnostics    string // auto, on or off
	catalogue      string // file of models and prices over the embedded table; empty = none
	printCatalogue bool
}

// setting is one variable and the flag of the same name: FORKYARD_ADDR is
// -forkyard-addr, and -addr for short.
type setting struct{ env, fallback, usage string }

var settings = []setting{
	{"FORKYARD_ADDR", "127.0.0.1:8080", "address to listen on"},
	{"FORKYARD_REDIS_URL", "", "redis://… to share with workers; empty = everything in this process"},
	{"FORKYARD_DATA_DIR", ".forkyard", "folder for data, the admin token and the sample workspace"},
	{"FORKYARD_WORKSPACES", "", "comma-separated folders that sessions may use (git remotes are taken but cannot be used yet); empty = a sample"},
	{"FORKYARD_ADMIN_TOKEN", "", "API token; empty = one is made and kept in the data folder"},
	{"FORKYARD_CONCURRENCY", "32", "runs that the embedded worker advances at a time"},
	{"FORKYARD_MAX_CONCURRENT", "0", "runs of one session that workers advance at a time; 0 = any number"},
	{"ANTHROPIC_API_KEY", "", "key for the Messages API; empty without a base URL = simulated model"},
	{"ANTHROPIC_BASE_URL", "", "another Messages API endpoint"},
	{"FORKYARD_ENDPOINT", anthropic.EndpointAuto, "kind of that endpoint: " + strings.Join(anthropic.EndpointKinds(), ", ") + " (auto: by its address)"},
	{"FORKYARD_MODEL", "claude-sonnet-5-5", "model of sessions that name none"},
	{"FORKYARD_CATALOGUE", "", "JSON file of models and prices that lies over the built-in table; -print-catalogue shows the form"},
	{"FORKYARD_PUBLIC_URL", "", "URL that browsers use, when a proxy stands in front"},
	{"AGENT_AUTO_BACKGROUND_TASKS", "", "1 = a foreground turn moves to a worker after a while"},
	{"FORKYARD_AUTO_BACKGROUND_AFTER", "120s", "after how long"},
	{"FORKYARD_FORK_SUBAGENT", "on", "off = sessions without a mode do not fork"},
	{"AGENT_COORDINATOR_MODE", "", "1 = sessions without a mode are coordinators"},
	{"FORKYARD_GATE", "auto", "hold siblings until their prefix is readable: auto, always or off"},
	{"FORKYARD_BETAS", "", "comma-separated anthropic-beta values; a session keeps those that it was created with"},
	{"FORKYARD_DIAGNOSTICS", "auto", "ask the provider why its cache was missed: auto (the Anthropic API and simulators), on or off"},
	{"FORKYARD_FORK_DEPTH", strconv.Itoa(forkcore.DefaultForkDepth), "how deep forks may nest: 1 = a fork starts no agents"},
	{"FORKYARD_MAX_DESCENDANTS", strconv.Itoa(forkcore.DefaultMaxDescendants), "how many forks one session may start in all"},
	{"FORKYARD_ARCHIVE_AFTER", "30d", "for how long nobody changed or opened a session that moves to the archive in the data folder, such as 30d or 12h; off = age is no reason"},
	{"FORKYARD_ARCHIVE_ABOVE", "80%", "part of the memory of Redis above which the oldest sessions move there earlier; off = memory is no reason"},
	{"FORKYARD_SIMULATED", "", "1 = the endpoint at ANTHROPIC_BASE_URL is a simulator, and pages say so"},
}

// flagNames are the names a variable's flag answers to.
func flagNames(env string) []string {
	full := strings.ReplaceAll(strings.ToLower(env), "_", "-")
	if short, ok := strings.CutPrefix(full, "forkyard-"); ok {
		return []string{full, short}
	}
	return []string{full}
}

// parseConfig reads flags and the environment and reports every bad value at
// once. flag.ErrHelp means that help was asked for and written.
func parseConfig(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	values := map[string]*string{}
	var c config
	fs := flag.NewFlagSet("web", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintln(stderr, "web serves the dashboard and the API. Flags, each with its environment variable:")
		for _, s := range settings {
			names := flagNames(s.env)
			fallback := ""
			if s.fallback != "" {
				fallback = " (default " + s.fallback + ")"
			}
			fmt.Fprintf(stderr, "  -%s, %s\n    \t%s%s\n", names[len(names)-1], s.env, s.usage, fallback)
		}
		fmt.Fprintln(stderr, "  -print-catalogue\n    \twrite the models and prices in effect as JSON and end")
	}
	for _, s := range settings {
		v := getenv(s.env)
		if v == "" {
			v = s.fallback
		}
		values[s.env] = &v
		for _, name := range flagNames(s.env) {
			fs.StringVar(&v, name, v, s.usage)
		}
	}
	fs.BoolVar(&c.printCatalogue, "print-catalogue", false, "write the models and prices in effect as JSON and end")
	if err := fs.Parse(args); err != nil {
		return config{}, err
	}
	if fs.NArg() > 0 {
		return config{}, fmt.Errorf("unknown argument %q; settings are flags such as -addr", fs.Arg(0))
	}

	get := func(env string) string { return strings.TrimSpace(*values[env]) }
	var errs []error
	bad := func(env, format string, a ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", env, fmt.Sprintf(format, a...)))
	}
	boolean := func(env string) bool {
		switch strings.ToLower(get(env)) {
		case "1", "true", "on", "yes":
			return true
		case "", "0", "false", "off", "no":
			return false
		}
		bad(env, "%q is neither on nor off", get(env))
		return false
	}
	c = config{
		printCatalogue: c.printCatalogue, catalogue: get("FORKYARD_CATALOGUE"),
		addr: get("FORKYARD_ADDR"), redisURL: get("FORKYARD_REDIS_URL"), adminToken: get("FORKYARD_ADMIN_TOKEN"),
		apiKey: get("ANTHROPIC_API_KEY"), baseURL: get("ANTHROPIC_BASE_URL"), model: get("FORKYARD_MODEL"),
		publicURL: strings.TrimRight(get("FORKYARD_PUBLIC_URL"), "/"), gate: forkcore.GateMode(get("FORKYARD_GATE")),
		forkOff: !boolean("FORKYARD_FORK_SUBAGENT"), coordinator: boolean("AGENT_COORDINATOR_MODE"), simulated: boolean("FORKYARD_SIMULATED"),
		diagnostics: get("FORKYARD_DIAGNOSTICS"), endpoint: get("FORKYARD_ENDPOINT"),
	}
	c.betas = forkcore.LatchBetas(strings.Split(get("FORKYARD_BETAS"), ","))
	for _, b := range c.betas {
		if strings.ContainsFunc(b, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			bad("FORKYARD_BETAS", "%q is no name of a beta", b)
		}
	}
	if _, _, err := net.SplitHostPort(c.addr); err != nil {
		bad("FORKYARD_ADDR", "%q is no host:port such as 127.0.0.1:8080", c.addr)
	}
	var err error
	if c.dataDir, err = filepath.Abs(get("FORKYARD_DATA_DIR")); err != nil {
		bad("FORKYARD_DATA_DIR", "%v", err)
	}
	if c.concurrency, err = strconv.Atoi(get("FORKYARD_CONCURRENCY")); err != nil || c.concurrency < 1 || c.concurrency > 10_000 {
		bad("FORKYARD_CONCURRENCY", "%q is no number from 1 to 10000", get("FORKYARD_CONCURRENCY"))
	}
	if c.maxConcurrent, err = strconv.Atoi(get("FORKYARD_MAX_CONCURRENT")); err != nil || c.maxConcurrent < 0 {
		bad("FORKYARD_MAX_CONCURRENT", "%q is no number from 0", get("FORKYARD_MAX_CONCURRENT"))
	}
	after, err := time.ParseDuration(get("FORKYARD_AUTO_BACKGROUND_AFTER"))
	if err != nil || after < 0 {
		bad("FORKYARD_AUTO_BACKGROUND_AFTER", "%q is no duration such as 120s", get("FORKYARD_AUTO_BACKGROUND_AFTER"))
	}
	c.autoBackground, c.autoAfter = boolean("AGENT_AUTO_BACKGROUND_TASKS") && after > 0, after
	switch c.gate {
	case forkcore.GateAuto, forkcore.GateAlways, forkcore.GateOff:
	default:
		bad("FORKYARD_GATE", "%q is neither auto, always nor off", c.gate)
	}
	if err := anthropic.CheckEndpoint(c.endpoint); err != nil {
		bad("FORKYARD_ENDPOINT", "%v", err)
	}
	switch c.diagnostics {
	case "auto", "on", "off":
	default:
		bad("FORKYARD_DIAGNOSTICS", "%q is neither auto, on nor off", c.diagnostics)
	}
	if c.guard, err = forkcore.ParseGuard(get("FORKYARD_FORK_DEPTH"), get("FORKYARD_MAX_DESCENDANTS")); err != nil {
		errs = append(errs, err)
	}
	if c.archiveAfter, err = parseAge(get("FORKYARD_ARCHIVE_AFTER")); err != nil {
		bad("FORKYARD_ARCHIVE_AFTER", "%v", err)
	}
	if c.archiveAbove, err = parsePart(get("FORKYARD_ARCHIVE_ABOVE")); err != nil {
		bad("FORKYARD_ARCHIVE_ABOVE", "%v", err)
	}
	for _, w := range strings.Split(get("FORKYARD_WORKSPACES"), ",") {
		switch w = strings.TrimSpace(w); {
		case w == "":
		case filepath.IsAbs(w):
			if st, err := os.Stat(w); err != nil || !st.IsDir() {
				bad("FORKYARD_WORKSPACES", "%q is not a folder", w)
			}
			c.workspaces = append(c.workspaces, filepath.Clean(w))
		case strings.Contains(w, "://") || strings.Contains(w, "@"):
			c.remotes = append(c.remotes, w)
		default:
			bad("FORKYARD_WORKSPACES", "%q is neither an absolute folder nor a git remote", w)
		}
	}
	return c, errors.Join(errs...)
}

// parseAge reads a length of time, in days as well; off is 0.
func parseAge(text string) (time.Duration, error) {
	if strings.EqualFold(text, "off") {
		return 0, nil
	}
	hours := text
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n > 36_500 {
			return 0, fmt.Errorf("%q is no number of days such as 30d", text)
		}
		hours = strconv.Itoa(24*n) + "h"
	}
	d, err := time.ParseDuration(hours)
	if err != nil || d < time.Hour {
		return 0, fmt.Errorf("%q is neither off nor an hour or more, such as 30d or 12h", text)
	}
	return d, nil
}

// parsePart reads a percentage; off is 0.
func parsePart(text string) (float64, error) {
	if strings.EqualFold(text, "off") {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(text, "%")))
	if err != nil || n < 1 || n > 99 {
		return 0, fmt.Errorf("%q is neither off nor a percentage from 1%% to 99%%", text)
	}
	return float64(n) / 100, nil
}

// defaultMode is the mode of sessions that name none, as the engine has it.
func (c config) defaultMode() forkcore.Mode {
	switch {
	case c.coordinator:
		return forkcore.ModeCoordinator
	case c.forkOff:
		return forkcore.ModePlain
	}
	return forkcore.ModeFork
}
