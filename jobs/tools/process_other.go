//go:build !linux

package tools

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"time"
)

type namespace struct{}

func newNamespace(*slog.Logger) *namespace { return &namespace{} }

// runGroup needs what Linux alone offers: a signal at the parent's death.
func runGroup(context.Context, *namespace, *exec.Cmd, io.Writer, time.Duration) (ending, error) {
	return ending{}, errors.New("commands can be run on Linux only")
}
