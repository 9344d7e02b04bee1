package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"forkyard/modelsim"
)

// builtin is the prefix of the names of the scenarios that come with the program.
const builtin = "builtin:"

// loadScenario reads a file or a built-in scenario; nil for an empty name.
func loadScenario(name string) (*modelsim.Scenario, error) {
	if name == "" {
		return nil, nil
	}
	if example, ok := strings.CutPrefix(name, builtin); ok {
		return modelsim.BuiltinScenario(example)
	}
	s, err := modelsim.LoadScenario(name)
	if errors.Is(err, fs.ErrNotExist) && slices.Contains(modelsim.BuiltinScenarios(), name) {
		return nil, fmt.Errorf("%w: the example of that name is %s%s", err, builtin, name)
	}
	return s, mistakes(err)
}

// mistakes puts those of a scenario on lines of their own, where editors find file:line:column.
func mistakes(err error) error {
	var list modelsim.ScenarioErrors
	if errors.As(err, &list) {
		return fmt.Errorf("the scenario has mistakes:\n%w", err)
	}
	return err
}

// listScenarios writes the built-in scenarios with what they say about themselves.
func listScenarios(w io.Writer) error {
	for _, name := range modelsim.BuiltinScenarios() {
		s, err := modelsim.BuiltinScenario(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s%-34s %s\n", builtin, name, s.Description())
	}
	return nil
}

// lookEvery is how often a scenario's file is looked at.
const lookEvery = 500 * time.Millisecond

// follow swaps the scenario when its file is no longer the one of the stamp last, or a SIGHUP comes, until ctx is done. A
// file with mistakes changes nothing; they are written to w.
func follow(ctx context.Context, server *modelsim.Server, path, last string, w io.Writer) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-tick.C:
			if now := stamp(path); now == last || now == "" { // "": an editor is between two names
				continue
			}
		}
		last = stamp(path)
		s, err := loadScenario(path)
		if err != nil {
			fmt.Fprintf(w, "modelsim: %v\nmodelsim: the one before stays in use\n", err)
			continue
		}
		server.UseScenario(s)
		fmt.Fprintf(w, "modelsim: read %s anew\n", path)
	}
}

// stamp tells versions of a file apart by what is in them: size and time are the same for two that are written within a tick
// of the file system's clock. It is empty when the file cannot be read.
func stamp(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return string(sum[:])
}
