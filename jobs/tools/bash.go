package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"forkyard/forkcore"
)

//go:embed bash.md
var bashDescription string

const bashSchema = `{"type":"object","properties":{` +
	`"command":{"type":"string","description":"The command line"},` +
	`"description":{"type":"string","description":"What the command does, in five to ten words"},` +
	`"timeout":{"type":"integer","minimum":1,"maximum":600000,"description":"Time limit in milliseconds, 120000 if not given"},` +
	`"run_in_background":{"type":"boolean","description":"Not available yet"}},` +
	`"required":["command"],"additionalProperties":false}`

// ending tells how a command came to its end.
type ending struct {
	timedOut, cancelled bool
	// leftBehind: something that the command started still held the output when
	// the command itself had ended.
	leftBehind bool
	// code is the command's exit code as a shell counts it, where reported. If
	// not, state tells.
	code     int
	reported bool
	// state is nil when the process could not be ended in time.
	state *os.ProcessState
}

func (s *Set) runBash(ctx context.Context, sc *scene, input json.RawMessage) forkcore.ToolResult {
	if sc.env.PermissionMode != ModeBypass {
		return failf("Bash needs permission, and nobody can be asked yet: start the session with permission_mode %s. "+
			"Glob, Grep and Read work without it.", ModeBypass)
	}
	command, description := "", ""
	millis, background := int(s.opts.BashTimeout.Milliseconds()), false
	err := decodeInput("Bash", input, []field{
		{"command", &command, true},
		{"description", &description, false},
		{"timeout", &millis, false},
		{"run_in_background", &background, false},
	})
	switch {
	case err != nil:
		return failf("%v", err)
	case background:
		return failf("run_in_background is not available yet: run the command without it, with a timeout it can keep")
	case millis < 1:
		return failf("timeout must be at least 1 millisecond, got %d", millis)
	case s.bash == "":
		return failf("bash is not installed where this session runs")
	}
	limit := min(time.Duration(millis)*time.Millisecond, s.opts.BashTimeoutMax)

	home, remove, err := s.home(sc.env.TempDir)
	if err != nil {
		return failf("%v", err)
	}
	defer remove()
	cmd := exec.Command(s.bash, "-c", command)
	cmd.Dir = sc.files.dir
	cmd.Env = bashEnv(s.opts.Path, home)
	out := newCapture(s.opts.BashOutput, sc.redact)
	end, err := runGroup(ctx, s.namespace, cmd, out, limit)
	if err != nil {
		return failf("starting the command: %v", err)
	}
	return end.result(out.text(), limit)
}

// bashEnv is all that a command sees of the environment: names are allowed one
// by one, as a list of forbidden ones always misses a secret.
func bashEnv(path, home string) []string {
	return []string{
		"PATH=" + path,
		"HOME=" + home,
		"LANG=C.UTF-8",
		"TERM=dumb",
		"PAGER=cat",
		// What would wait for a person fails instead.
		"GIT_TERMINAL_PROMPT=0",
		"GIT_EDITOR=false",
		"EDITOR=false",
	}
}

// home returns a private directory and what removes it.
func (s *Set) home(dir string) (string, func(), error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", nil, fmt.Errorf("making a home for the command: %w", err)
		}
		return dir, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "forkyard-home-")
	if err != nil {
		return "", nil, fmt.Errorf("making a home for the command: %w", err)
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			s.opts.Logger.Warn("removing the home of a command", "dir", dir, "err", err)
		}
	}, nil
}

// result puts how the command ended below its output.
func (e ending) result(output string, limit time.Duration) forkcore.ToolResult {
	var b strings.Builder
	b.WriteString(output)
	if output != "" && !strings.HasSuffix(output, "\n") {
		b.WriteByte('\n')
	}
	if e.leftBehind {
		b.WriteString("[processes left in the background were ended with the command]\n")
	}
	failed := true
	switch {
	case e.timedOut:
		fmt.Fprintf(&b, "[ended after its time limit of %v, with all it had started: give a longer timeout or split the work]", limit)
	case e.cancelled:
		b.WriteString("[cancelled, with all it had started]")
	default:
		code, signal := e.exit()
		failed = code != 0
		fmt.Fprintf(&b, "[exit code %d%s]", code, signal)
	}
	return forkcore.ToolResult{Text: b.String(), IsError: failed}
}

// exit returns the code as a shell counts it: 128 + n for a death by signal n.
func (e ending) exit() (code int, signal string) {
	if e.reported {
		return e.code, ""
	}
	if e.state == nil {
		return -1, ": unknown"
	}
	if ws, ok := e.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), ": " + ws.Signal().String()
	}
	return e.state.ExitCode(), ""
}
