package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"forkyard/forkcore"
)

// FlagStore keeps what flags were set to.
type FlagStore interface {
	// Flags are the flags that were set, by name.
	Flags(ctx context.Context) (map[string]bool, error)
	SetFlag(ctx context.Context, name string, value bool) error
}

// Flags lists all flags with their values.
func (e *Engine) Flags(ctx context.Context) ([]forkcore.Flag, error) {
	set, err := e.o.Store.Flags(ctx)
	if err != nil {
		return nil, fmt.Errorf("read flags: %w", err)
	}
	flags := forkcore.Flags()
	for i := range flags {
		f := &flags[i]
		if f.Value, f.Set = set[f.Name]; !f.Set {
			f.Value = f.Default
		}
	}
	return flags, nil
}

// SetFlag changes a flag and answers it. An unknown one is forkcore.ErrNotFound.
func (e *Engine) SetFlag(ctx context.Context, name string, value bool) (forkcore.Flag, error) {
	var names []string
	for _, f := range forkcore.Flags() {
		if f.Name == name {
			f.Value, f.Set = value, true
			return f, e.o.Store.SetFlag(ctx, name, value)
		}
		names = append(names, f.Name)
	}
	return forkcore.Flag{}, fmt.Errorf("flag %q (there are: %s): %w", name, strings.Join(names, ", "), forkcore.ErrNotFound)
}

// autoBackground is after how long foreground runs of a session move that is created now and says nothing of it.
func (e *Engine) autoBackground(ctx context.Context) (time.Duration, error) {
	set, err := e.o.Store.Flags(ctx)
	if err != nil {
		return 0, fmt.Errorf("read flags: %w", err)
	}
	return forkcore.AutoBackgroundAfter(e.o.AutoBackground, set[forkcore.FlagAutoBackground], e.o.AutoBackgroundAfter), nil
}
