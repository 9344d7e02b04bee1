package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forkyard/forkcore"
)

// groupMembers lists the processes of a group that still run. Zombies do not:
// whoever adopted them has yet to reap them.
func groupMembers(t *testing.T, pgid int) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	var members []string
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // ended meanwhile
		}
		// proc_pid_stat(5): pid (comm) state ppid pgrp ...
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 2 && f[0] != "Z" && f[0] != "X" && f[2] == strconv.Itoa(pgid) {
			members = append(members, string(b))
		}
	}
	return members
}

func TestB38_TheWholeGroupEnds(t *testing.T) {
	for _, tt := range []struct {
		name, command string
		want          string // in the text
		fails         bool
	}{
		{"shell waits", "sleep 30; true", "ended after its time limit of 400ms", true},
		{"shell is the program", "exec sleep 30", "time limit", true},
		{"grandchild in the background", "sleep 30 & echo hi", "hi\n[processes left in the background were ended", false},
		{"grandchild without the pipe", "sleep 30 >/dev/null 2>&1 & echo hi", "hi\n[exit code 0]", false},
		{"many", "for i in 1 2 3; do (sleep 30 & sleep 30) & done; wait", "time limit", true},
		{"who ignores SIGTERM", "trap '' TERM; while :; do sleep 0.1; done", "time limit", true},
		{"grandchild that ignores SIGTERM", "(trap '' TERM; sleep 30) & wait", "time limit", true},
		{"stopped", "kill -STOP $$", "time limit", true},
		{"who says goodbye", "trap 'echo bye; exit 0' TERM; sleep 30 & wait", "bye", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, nil)
			start := time.Now()
			r := y.run("Bash", input("command", "echo $$ > pid; "+tt.command, "timeout", 400))
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("took %v", took)
			}
			if r.IsError != tt.fails || !strings.Contains(r.Text, tt.want) {
				t.Errorf("got %+v, want %q and IsError %v", r, tt.want, tt.fails)
			}
			if left := groupMembers(t, readPID(t, filepath.Join(y.env.Workspace, "pid"))); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

func readPID(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	return pid
}

func TestB38_CancelEndsTheGroup(t *testing.T) {
	y := newYard(t, nil)
	pid := filepath.Join(y.env.Workspace, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); {
			if b, _ := os.ReadFile(pid); bytes.HasSuffix(b, []byte("\n")) {
				break
			}
			runtime.Gosched()
		}
		cancel()
	}()
	start := time.Now()
	r := y.set.Run(ctx, y.env, forkcore.ToolCall{Name: "Bash", Input: json.RawMessage(`{"command":"echo $$ > pid; sleep 30 & sleep 30; true"}`)})
	if took := time.Since(start); took > 3*time.Second || !r.IsError || !strings.Contains(r.Text, "[cancelled") {
		t.Errorf("after %v: %+v", took, r)
	}
	if left := groupMembers(t, readPID(t, pid)); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// A process that leaves the group is out of reach, but holds nobody up.
func TestB38_AnEscapedProcessDelaysNothing(t *testing.T) {
	y := newYard(t, nil)
	start := time.Now()
	text := y.ok("Bash", input("command", "setsid sh -c 'echo $$ > pid; exec sleep 20' & until [ -s pid ]; do :; done; echo hi"))
	took := time.Since(start)
	pid := readPID(t, filepath.Join(y.env.Workspace, "pid"))
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	if took > 3*time.Second || !strings.HasPrefix(text, "hi\n") {
		t.Errorf("after %v: %q", took, text)
	}
}

func TestB54_EndlessOutputIsBounded(t *testing.T) {
	y := newYard(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := y.run("Bash", input("command", "echo first; timeout 0.5 yes; echo last"))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
	if !strings.HasPrefix(r.Text, "first\ny\n") || !strings.HasSuffix(r.Text, "y\nlast\n[exit code 0]") || len(r.Text) > 30_200 {
		t.Errorf("%d bytes: %q ... %q", len(r.Text), CutText(r.Text, 20), cutFront(r.Text, 40))
	}
	_, size, _ := strings.Cut(r.Text, "the whole output has ")
	size, _, _ = strings.Cut(size, " ")
	if n, err := strconv.Atoi(size); err != nil || n < 100_000 {
		t.Errorf("size %q, %v", size, err)
	}
	// The reader of the output is still needed when nobody reads on: yes must
	// end by the limit too.
	start := time.Now()
	y.fails("Bash", input("command", "yes", "timeout", 300), "time limit")
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
}

const executorEnv = "TOOLS_TEST_EXECUTOR"

// TestBashDiesWithItsExecutor kills a process that runs a command.
func TestBashDiesWithItsExecutor(t *testing.T) {
	if dir := os.Getenv(executorEnv); dir != "" {
		call := forkcore.ToolCall{Name: "Bash", Input: json.RawMessage(`{"command":"echo $$ > pid; exec sleep 30"}`)}
		r := NewSet(Options{}).Run(t.Context(), Env{Workspace: dir, PermissionMode: ModeBypass, TempDir: dir}, call)
		t.Fatalf("the command ended before its executor: %+v", r)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^TestBashDiesWithItsExecutor$")
	cmd.Env = append(os.Environ(), executorEnv+"="+dir)
	must(t, cmd.Start())
	pid := filepath.Join(dir, "pid")
	waitFor(t, "the command to start", func() bool {
		b, _ := os.ReadFile(pid)
		return bytes.HasSuffix(b, []byte("\n"))
	})
	group := readPID(t, pid)
	if len(groupMembers(t, group)) == 0 {
		t.Fatal("the command does not run")
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	waitFor(t, "the command to end", func() bool { return len(groupMembers(t, group)) == 0 })
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// Commands that end at once, side by side, each get their own output: a group
// must not be mistaken for another whose number was used again.
func TestManyShortCommands(t *testing.T) {
	y := newYard(t, nil)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for j := range 15 {
				r := y.run("Bash", input("command", fmt.Sprintf("echo %d-%d", i, j)))
				if want := fmt.Sprintf("%d-%d\n[exit code 0]", i, j); r.Text != want {
					t.Errorf("got %q, want %q", r.Text, want)
				}
			}
		})
	}
}
