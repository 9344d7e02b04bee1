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

// config is what the flags and their environment defaults say.
type config struct {
	addr                   string
	startDelay, deltaDelay time.Duration
	verbose                bool
}

func parseConfig(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	c := config{addr: "127.0.0.1:8089"}
	if v := getenv("MODELSIM_ADDR"); v != "" {
		c.addr = v
	}
	flags := flag.NewFlagSet("modelsim", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.addr, "addr", c.addr, "address to listen on (MODELSIM_ADDR)")
	flags.DurationVar(&c.startDelay, "start-delay", 300*time.Millisecond, "wait before message_start")
	flags.DurationVar(&c.deltaDelay, "delta-delay", 15*time.Millisecond, "wait before each delta of a stream")
	flags.BoolVar(&c.verbose, "v", false, "log each request")
	if err := flags.Parse(args); err != nil {
		return config{}, fmt.Errorf("reading flags: %w", err)
	}
	if flags.NArg() > 0 {
		return config{}, fmt.Errorf("unexpected argument %q: modelsim takes flags only", flags.Arg(0))
	}
	return c, nil
}

// run serves until ctx is done. Open streams are cut then: a stand-in has nothing to finish for anybody.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, err := parseConfig(args, getenv, stderr)
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
	server := &http.Server{
		Handler:           modelsim.New(modelsim.Options{Logger: log, MessageStartDelay: c.startDelay, DeltaDelay: c.deltaDelay}),
		BaseContext:       func(net.Listener) context.Context { return streams },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	fmt.Fprintf(stdout, "Simulated Messages API on http://%[1]s\nPoint a client at it:\n\n  ANTHROPIC_BASE_URL=http://%[1]s ANTHROPIC_API_KEY=sim\n\n"+
		"Received requests: http://%[1]s/_sim/requests   Cache entries: http://%[1]s/_sim/cache\n", listener.Addr())
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
