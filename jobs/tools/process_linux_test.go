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

// runningIn lists the processes that work in dir, which is how the processes of
// a test are known whatever namespace, session or group they are in. Zombies do
// not run: whoever adopted them has yet to reap them.
func runningIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	must(t, err)
	var found []string
	for _, link := range links {
		if cwd, err := os.Readlink(link); err != nil || cwd != dir {
			continue
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		// proc_pid_stat(5): pid (comm) state ...
		if f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]); len(f) > 0 && string(f[0]) != "Z" && string(f[0]) != "X" {
			found = append(found, string(b))
		}
	}
	return found
}

// withAndWithoutNamespace runs a test with what the kernel offers and where it
// refuses namespaces.
func withAndWithoutNamespace(t *testing.T, test func(t *testing.T, newYard func(*testing.T) *yard)) {
	for _, tt := range []struct {
		name    string
		refusal error
	}{{"namespace", nil}, {"refused", unix.EPERM}} {
		t.Run(tt.name, func(t *testing.T) {
			test(t, func(t *testing.T) *yard {
				y := newYard(t, nil)
				y.set.namespace.refusal = tt.refusal
				return y
			})
		})
	}
}

func TestB38_TheWholeGroupEnds(t *testing.T) { withAndWithoutNamespace(t, testTheWholeGroupEnds) }

func testTheWholeGroupEnds(t *testing.T, newYard func(*testing.T) *yard) {
	for _, tt := range []struct {
		name, command string
		limit         int    // milliseconds; what ends by itself has plenty, on a busy machine too
		want          string // in the text
		fails         bool
	}{
		{"shell waits", "sleep 30; true", 400, "ended after its time limit of 400ms", true},
		{"shell is the program", "exec sleep 30", 400, "time limit", true},
		{"grandchild in the background", "sleep 30 & echo hi", 20_000, "hi\n[processes left in the background were ended", false},
		{"grandchild without the pipe", "sleep 30 >/dev/null 2>&1 & echo hi", 20_000, "hi\n[exit code 0]", false},
		{"many", "for i in 1 2 3; do (sleep 30 & sleep 30) & done; wait", 400, "time limit", true},
		{"who ignores SIGTERM", "trap '' TERM; while :; do sleep 0.1; done", 400, "time limit", true},
		{"grandchild that ignores SIGTERM", "(trap '' TERM; sleep 30) & wait", 400, "time limit", true},
		{"stopped", "kill -STOP $$", 400, "time limit", true},
		{"plain program", "sleep 30", 400, "time limit", true},
		{"a group of its own", "set -m; sleep 30 & kill -0 -$! && kill -- -$! && wait $!; echo $?", 20_000, "143\n[exit code 0]", false},
		{"who says goodbye", "trap 'echo bye; exit 0' TERM; sleep 30 & wait", 3_000, "bye", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t)
			start := time.Now()
			r := y.run("Bash", input("command", tt.command, "timeout", tt.limit))
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if r.IsError != tt.fails || !strings.Contains(r.Text, tt.want) {
				t.Errorf("got %+v, want %q and IsError %v", r, tt.want, tt.fails)
			}
			if left := runningIn(t, y.env.Workspace); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}

func TestB38_CancelEndsTheGroup(t *testing.T) {
	y := newYard(t, nil)
	pid := filepath.Join(y.env.Workspace, "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if b, _ := os.ReadFile(pid); bytes.HasSuffix(b, []byte("\n")) {
				break
			}
			runtime.Gosched()
		}
		cancel()
	}()
	start := time.Now()
	r := y.set.Run(ctx, y.env, forkcore.ToolCall{Name: "Bash", Input: json.RawMessage(`{"command":"echo $$ > pid; sleep 30 & sleep 30; true"}`)})
	if took := time.Since(start); took > 20*time.Second || !r.IsError || !strings.Contains(r.Text, "[cancelled") {
		t.Errorf("after %v: %+v", took, r)
	}
	if left := runningIn(t, y.env.Workspace); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// Where there are no namespaces a process that leaves the group is out of reach,
// but holds nobody up.
func TestB38_AnEscapedProcessDelaysNothing(t *testing.T) {
	y := newYard(t, nil)
	y.set.namespace.refusal = unix.EPERM
	start := time.Now()
	text := y.ok("Bash", input("command", "setsid sh -c 'echo $$ > pid; exec sleep 60' & until [ -s pid ]; do :; done; echo hi"))
	took := time.Since(start)
	b, err := os.ReadFile(filepath.Join(y.env.Workspace, "pid"))
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	defer func() { _ = unix.Kill(pid, unix.SIGKILL) }()
	if took > 20*time.Second || !strings.HasPrefix(text, "hi\n") {
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
		t.Errorf("%d bytes: %q ... %q", len(r.Text), forkcore.CutText(r.Text, 20), cutFront(r.Text, 40))
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
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

const executorEnv = "TOOLS_TEST_EXECUTOR"

// runAsExecutor starts this test again in a process that runs command in a
// workspace, which it returns once the command has made the file ready. In that
// process it does not return.
func runAsExecutor(t *testing.T, command string, refusal error) (workspace string, kill func()) {
	t.Helper()
	if dir := os.Getenv(executorEnv); dir != "" {
		set := NewSet(Options{})
		set.namespace.refusal = refusal
		r := set.Run(t.Context(), Env{Workspace: dir, PermissionMode: ModeBypass, TempDir: dir},
			forkcore.ToolCall{Name: "Bash", Input: json.RawMessage(input("command", command))})
		t.Fatalf("the command ended before its executor: %+v", r)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), executorEnv+"="+dir)
	must(t, cmd.Start())
	waitFor(t, "the command to start", func() bool {
		_, err := os.Stat(filepath.Join(dir, "ready"))
		return err == nil
	})
	return dir, func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

// TestBashDescendantsDieWithTheirExecutor kills a process that runs a command.
func TestBashDescendantsDieWithTheirExecutor(t *testing.T) {
	needNamespace(t)
	dir, kill := runAsExecutor(t, "(sleep 30; echo > acted) & (sleep 30; echo > acted) & setsid sleep 30 & echo > ready; wait", nil)
	// The supervisor, bash, two subshells and three sleeps.
	waitFor(t, "the descendants to start", func() bool {
		return strings.Count(strings.Join(runningIn(t, dir), ""), "(sleep)") == 3
	})
	if running := runningIn(t, dir); len(running) != 7 {
		t.Errorf("%d processes run: %q", len(running), running)
	}
	kill()
	waitFor(t, "the descendants to end", func() bool { return len(runningIn(t, dir)) == 0 })
}

// Without namespaces at least the command itself ends.
func TestBashDiesWithItsExecutor(t *testing.T) {
	dir, kill := runAsExecutor(t, "echo > ready; exec sleep 30", unix.EPERM)
	if len(runningIn(t, dir)) == 0 {
		t.Fatal("the command does not run")
	}
	kill()
	waitFor(t, "the command to end", func() bool { return len(runningIn(t, dir)) == 0 })
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
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
