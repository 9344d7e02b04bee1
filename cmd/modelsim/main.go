// Command modelsim serves the Messages API simulator, so that a client can be tried out without a key.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"forkyard/modelsim"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "modelsim:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done. Open streams are cut then: a stand-in has nothing to finish for anybody.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, err := parseConfig(args, getenv, stderr)
	if err != nil {
		return err
	}
	switch {
	case c.schema:
		_, err := stdout.Write(modelsim.ScenarioSchema())
		return err
	case c.list:
		return listScenarios(stdout)
	case c.check != "":
		s, err := loadScenario(c.check)
		if err == nil {
			fmt.Fprintf(stdout, "%s: no mistakes\n", s.Name())
		}
		return err
	}
	was := stamp(c.scenario) // before it is read, or a change meanwhile would be missed
	scenario, err := loadScenario(c.scenario)
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if c.verbose {
		level = slog.LevelInfo
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	listener, err := net.Listen("tcp", c.addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", c.addr, err)
	}
	streams, cut := context.WithCancel(context.Background())
	defer cut()
	o := c.options()
	o.Logger, o.Scenario = log, scenario
	sim := modelsim.New(o)
	if scenario != nil && !strings.HasPrefix(c.scenario, builtin) {
		go follow(streams, sim, c.scenario, was, stderr)
	}
	server := &http.Server{
		Handler:           sim,
		BaseContext:       func(net.Listener) context.Context { return streams },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	banner(stdout, listener.Addr().String(), sim.Key(), scenario)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	cut()
	stopping, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return fmt.Errorf("stopping the server: %w", err)
	}
	return nil
}

// banner says where it listens, what answers and where to look.
func banner(w io.Writer, addr, key string, scenario *modelsim.Scenario) {
	fmt.Fprintf(w, "Simulated Messages API on http://%[1]s\nPoint a client at it:\n\n  ANTHROPIC_BASE_URL=http://%[1]s ANTHROPIC_API_KEY=%[2]s\n\n", addr, key)
	if scenario == nil {
		fmt.Fprintln(w, "Answers: the built-in player. Others: modelsim -list, or a file of your own: modelsim -scenario file.yaml")
	} else {
		fmt.Fprintf(w, "Answers: scenario %s. %s\n", scenario.Name(), scenario.Description())
	}
	fmt.Fprintf(w, "What it received, what it keeps and how to change it: http://%s/\n", addr)
}
