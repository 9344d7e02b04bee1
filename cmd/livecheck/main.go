// Command livecheck asks the real Messages API what its documentation leaves open and writes the answers to a file.
// It spends money, up to a ceiling that it checks before each request.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
)

// Exit codes.
const (
	exitRan      = 0
	exitFailed   = 1 // it could not run, or was ended before its end
	exitExceeded = 2 // the price ceiling was reached
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], program{
		getenv: os.Getenv, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, terminal: isTerminal(os.Stdin), now: time.Now, wait: wait,
	})
	stop()
	os.Exit(code)
}

// program is what run has of the world.
type program struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool
	now            func() time.Time
	wait           func(context.Context, time.Duration) error
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type config struct {
	model, baseURL, out, only string
	maxUSD                    float64
	slow, yes                 bool
}

func parseConfig(args []string, stderr io.Writer) (config, error) {
	c := config{}
	flags := flag.NewFlagSet("livecheck", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.model, "model", "claude-sonnet-5-5", "the model to ask")
	flags.Float64Var(&c.maxUSD, "max-usd", 1, "the price ceiling in US dollars, checked before each request")
	flags.BoolVar(&c.slow, "slow", false, "also run the experiments that wait for minutes")
	flags.BoolVar(&c.yes, "yes", false, "do not ask before spending")
	flags.StringVar(&c.out, "out", "", "the file to write (default docs/live/<date>-<model>.json)")
	flags.StringVar(&c.only, "only", "", "experiments to run, separated by commas (default all)")
	flags.StringVar(&c.baseURL, "base-url", anthropic.DefaultBaseURL, "the endpoint; another one than the default answers for itself only")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q: livecheck takes flags only", flags.Arg(0))
	case !(c.maxUSD > 0 && c.maxUSD <= 1000):
		return c, fmt.Errorf("-max-usd %v: want more than 0 and at most 1000", c.maxUSD)
	}
	return c, nil
}

// choose picks the experiments that c asks for.
func choose(c config) ([]experiment, error) {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(c.only, ",") {
		if name = strings.TrimSpace(name); name != "" {
			wanted[name] = true
		}
	}
	all := len(wanted) == 0
	var out []experiment
	for _, e := range experiments() {
		if wanted[e.name] || all && (c.slow || !e.slow) {
			out = append(out, e)
		}
		delete(wanted, e.name)
	}
	for name := range wanted {
		return nil, fmt.Errorf("no experiment is named %q; docs/live-check.md lists them", name)
	}
	return out, nil
}

// run performs the program and returns its exit code.
func run(ctx context.Context, args []string, p program) int {
	c, err := parseConfig(args, p.stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitRan
	}
	var l *lab
	var chosen []experiment
	if err == nil {
		chosen, err = choose(c)
	}
	if err == nil {
		l, err = newLab(c, p)
	}
	if err != nil {
		fmt.Fprintln(p.stderr, "livecheck:", err)
		return exitFailed
	}
	var estimate int64
	for _, e := range chosen {
		estimate += e.estimate(l)
	}
	fmt.Fprintf(p.stdout, "%d experiments on %s at %s: about %.2f USD, at most %.2f USD.\n", len(chosen), c.model, c.baseURL, usd(estimate), c.maxUSD)
	if !c.yes {
		if !p.terminal {
			fmt.Fprintln(p.stderr, "livecheck: nobody can be asked here; say -yes to spend this")
			return exitFailed
		}
		fmt.Fprint(p.stdout, "Go on? [y/N] ")
		line, _ := bufio.NewReader(p.stdin).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
			fmt.Fprintln(p.stdout, "Nothing was sent.")
			return exitFailed
		}
	}
	out := c.out
	if out == "" {
		out = filepath.Join("docs", "live", p.now().UTC().Format(time.DateOnly)+"-"+c.model+".json")
	}
	// Found out now, not when the money is spent.
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		fmt.Fprintln(p.stderr, "livecheck:", err)
		return exitFailed
	}
	rep := report{Date: p.now().UTC().Format(time.RFC3339), Model: c.model, Endpoint: c.baseURL, CeilingUSD: c.maxUSD}
	code := rep.perform(ctx, l, chosen, p)
	if err := rep.write(out); err != nil {
		fmt.Fprintln(p.stderr, "livecheck:", err)
		return exitFailed
	}
	fmt.Fprintf(p.stdout, "%.4f USD; the answers are in %s\n", rep.SpentUSD, out)
	return code
}

func newLab(c config, p program) (*lab, error) {
	key := strings.TrimSpace(p.getenv("ANTHROPIC_API_KEY"))
	if key == "" {
		return nil, errors.New("ANTHROPIC_API_KEY is not set: the check needs a key of the real API")
	}
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		return nil, err
	}
	model, ok := catalogue.Model(c.model)
	if !ok {
		return nil, fmt.Errorf("the catalogue has no price for %q, so the ceiling could not be kept; it knows %s", c.model, strings.Join(catalogue.IDs(), ", "))
	}
	client, err := anthropic.New(anthropic.Options{APIKey: key, BaseURL: c.baseURL})
	if err != nil {
		return nil, err
	}
	l := &lab{
		client: client, plain: plainClient(key, c.baseURL), model: model, min: model.MinCacheable,
		ceiling: int64(c.maxUSD * 1e9), wait: p.wait,
	}
	if l.min == 0 {
		l.min = 4096 // the longest that any model has
	}
	return l, nil
}

// report is the file.
type report struct {
	Date       string  `json:"date"`
	Model      string  `json:"model"`
	Endpoint   string  `json:"endpoint"`
	CeilingUSD float64 `json:"ceiling_usd"`
	SpentUSD   float64 `json:"spent_usd"`
	Facts      []fact  `json:"facts"`
	// Missing are the experiments that did not come to an end.
	Missing []string `json:"missing,omitempty"`
	// Ended says why there are missing ones.
	Ended string `json:"ended,omitempty"`
}

type fact struct {
	Name     string `json:"name"`
	Question string `json:"question"`
	result
	Requests []evidence `json:"requests"`
}

// perform runs the experiments in order until one cannot go on.
func (rep *report) perform(ctx context.Context, l *lab, chosen []experiment, p program) int {
	code := exitRan
	rep.Facts = []fact{}
	for i, e := range chosen {
		l.evidence = []evidence{}
		r, err := e.run(ctx, l)
		rep.SpentUSD = usd(l.spent)
		if err != nil {
			rep.Ended, code = err.Error(), exitFailed
			if errors.Is(err, errCeiling) {
				code = exitExceeded
			}
			for _, left := range chosen[i:] {
				rep.Missing = append(rep.Missing, left.name)
			}
			// What was spent on half an experiment is told, its verdict is not.
			rep.Facts = append(rep.Facts, fact{e.name, e.question, result{Verdict: inconclusive, Note: "not finished"}, l.evidence})
			fmt.Fprintf(p.stderr, "livecheck: %s: %v\n", e.name, err)
			break
		}
		rep.Facts = append(rep.Facts, fact{e.name, e.question, r, l.evidence})
		fmt.Fprintf(p.stdout, "%-22s %-12s %s\n", e.name, r.Verdict, r.Note)
		for _, name := range slices.Sorted(maps.Keys(r.Numbers)) {
			fmt.Fprintf(p.stdout, "%22s   %s %d\n", "", name, r.Numbers[name])
		}
	}
	return code
}

func (rep *report) write(path string) error {
	raw, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(raw, '\n'), 0o644)
}
