//go:build !linux

package tools

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"
)

// runGroup needs what Linux alone offers: a signal at the parent's death.
func runGroup(context.Context, *exec.Cmd, io.Writer, time.Duration) (ending, error) {
	return ending{}, errors.New("commands can be run on Linux only")
}
