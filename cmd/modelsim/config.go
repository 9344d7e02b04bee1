package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"forkyard/modelsim"
)

// config is what the flags and their environment defaults say.
type config struct {
	addr     string
	scenario string // a file, or builtin:<name>; empty = the built-in player
	verbose  bool

	check        string
	schema, list bool

	startDelay, deltaDelay, visibilityLag time.Duration
	missRate                              float64
	seed                                  uint64
	credit                                int64
	keys                                  string

	// given are the settings that were named, as a flag or in the environment: they win over the scenario.
	given map[string]bool
}

// options are the server's settings without a scenario.
func (c *config) options() modelsim.Options {
	o := modelsim.Options{MessageStartDelay: c.startDelay, DeltaDelay: c.deltaDelay}
	c.override(&o)
	o.Override = c.override
	return o
}

// override puts what was named on the command line over what a scenario says.
func (c *config) override(o *modelsim.Options) {
	for name := range c.given {
		switch name {
		case "start-delay":
			o.MessageStartDelay = c.startDelay
		case "delta-delay":
			o.DeltaDelay = c.deltaDelay
		case "visibility-lag":
			o.VisibilityLag = c.visibilityLag
		case "miss-rate":
			o.MissRate = c.missRate
		case "seed":
			o.Seed = c.seed
		case "credit":
			o.Credit = c.credit
		case "keys":
			o.Keys = nil
			for key := range strings.SplitSeq(c.keys, ",") {
				if key = strings.TrimSpace(key); key != "" {
					o.Keys = append(o.Keys, key)
				}
			}
		}
	}
}

// envName is the variable of a flag: MODELSIM_START_DELAY for -start-delay.
func envName(name string) string {
	return "MODELSIM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func parseConfig(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	c := config{given: map[string]bool{}}
	flags := flag.NewFlagSet("modelsim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.addr, "addr", "127.0.0.1:8089", "address to listen on")
	flags.StringVar(&c.scenario, "scenario", "", "YAML file of rules that plays the model, or builtin:<name> (see -list); without one a built-in player answers")
	flags.DurationVar(&c.startDelay, "start-delay", 300*time.Millisecond, "wait before message_start")
	flags.DurationVar(&c.deltaDelay, "delta-delay", 15*time.Millisecond, "wait before each delta of a stream")
	flags.DurationVar(&c.visibilityLag, "visibility-lag", 0, "how long after its response began a cache entry becomes readable")
	flags.Float64Var(&c.missRate, "miss-rate", 0, "share of requests, 0 to 1, that find nothing in the cache although it is there")
	flags.Uint64Var(&c.seed, "seed", 0, "seed of what is drawn at random")
	flags.Int64Var(&c.credit, "credit", 0, "tokens that each key may use before requests are a 402; 0 = no bound")
	flags.StringVar(&c.keys, "keys", "", "comma-separated valid keys; empty = any")
	flags.BoolVar(&c.verbose, "v", false, "log each request and its answer")
	flags.StringVar(&c.check, "check", "", "read this scenario file, tell its mistakes and end: 0 without any, 1 with some")
	flags.BoolVar(&c.schema, "schema", false, "print the JSON Schema of scenario files and end")
	flags.BoolVar(&c.list, "list", false, "list the built-in scenarios and end")
	usage := flags.Usage
	flags.Usage = func() {
		usage()
		fmt.Fprintln(stderr, "Each flag may be given in the environment as well, -start-delay as MODELSIM_START_DELAY; flags win, and both win over a scenario's options.")
	}
	var bad []error
	flags.VisitAll(func(f *flag.Flag) {
		switch f.Name {
		case "check", "schema", "list": // these are commands, not settings
			return
		}
		if v := getenv(envName(f.Name)); v != "" {
			if err := flags.Set(f.Name, v); err != nil {
				bad = append(bad, fmt.Errorf("%s=%q (%s): %w", envName(f.Name), v, f.Usage, err))
			}
		}
	})
	if err := errors.Join(bad...); err != nil {
		return config{}, fmt.Errorf("reading the environment: %w", err)
	}
	if err := flags.Parse(args); err != nil {
		return config{}, fmt.Errorf("reading flags: %w", err)
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q: modelsim takes flags only", flags.Arg(0))
	}
	flags.Visit(func(f *flag.Flag) { c.given[f.Name] = true })
	switch {
	case c.missRate < 0 || c.missRate > 1:
		return config{}, fmt.Errorf("-miss-rate %v: want a share from 0 to 1", c.missRate)
	case c.startDelay < 0 || c.deltaDelay < 0 || c.visibilityLag < 0:
		return config{}, errors.New("delays must not be negative")
	case c.credit < 0:
		return config{}, errors.New("-credit must not be negative")
	}
	return c, nil
}
