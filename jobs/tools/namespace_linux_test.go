package tools

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needNamespace skips a test where the kernel refuses process namespaces.
func needNamespace(t *testing.T) {
	t.Helper()
	y := newYard(t, nil)
	y.ok("Bash", input("command", "true"))
	if y.set.namespace.refused.Load() {
		t.Skip("the kernel refuses process namespaces")
	}
}

func TestBashSetsidDoesNotSurvive(t *testing.T) {
	needNamespace(t)
	for _, tt := range []struct{ name, command, want string }{
		{"holds the output", "setsid sleep 300 & echo hi", "hi\n[processes left in the background were ended with the command]\n[exit code 0]"},
		{"holds nothing", "setsid sleep 300 >/dev/null 2>&1 & echo hi", "hi\n[exit code 0]"},
		{"twice forked", "(setsid sh -c 'sleep 300 & sleep 300' &) >/dev/null 2>&1; echo hi", "hi\n[exit code 0]"},
		{"job control", "set -m; sleep 300 >/dev/null 2>&1 & echo hi", "hi\n[exit code 0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := newYard(t, nil)
			if got := y.ok("Bash", input("command", tt.command)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if left := runningIn(t, y.env.Workspace); len(left) > 0 {
				t.Errorf("processes are left: %q", left)
			}
		})
	}
	t.Run("time limit", func(t *testing.T) {
		y := newYard(t, nil)
		y.fails("Bash", input("command", "setsid sleep 300 & sleep 300", "timeout", 300), "time limit")
		if left := runningIn(t, y.env.Workspace); len(left) > 0 {
			t.Errorf("processes are left: %q", left)
		}
	})
}

// A command finds the exit codes, signals and jobs of any shell, whether or not
// it has a namespace.
func TestBashJobControl(t *testing.T) {
	withAndWithoutNamespace(t, func(t *testing.T, newYard func(*testing.T) *yard) {
		for _, tt := range []struct{ name, command, want string }{
			{"exit code", "exit 7", "[exit code 7]"},
			{"code of a plain program", "false", "[exit code 1]"},
			{"highest code", "exit 255", "[exit code 255]"},
			{"wait for a job", "(exit 5) & wait $!; echo $?", "5\n[exit code 0]"},
			{"wait for all", "(sleep 0.1; echo a) & (sleep 0.2; echo a) & wait; echo c", "a\na\nc\n[exit code 0]"},
			{"wait for any", "sleep 5 >/dev/null 2>&1 & (exit 4) & wait -n; echo $?", "4\n[exit code 0]"},
			{"wait sees no strangers", "(sleep 0.1 &); wait -n; echo $?", "127\n[exit code 0]"},
			{"kill a job", "sleep 30 & kill $!; wait $!; echo $?", "143\n[exit code 0]"},
			{"kill -9 a job", "sleep 30 & kill -9 $!; wait $! 2>/dev/null; echo $?", "137\n[exit code 0]"},
			{"jobs", "sleep 30 & jobs -r | wc -l; kill %1", "1\n[exit code 0]"},
			{"trap of EXIT", "trap 'echo bye' EXIT; echo hi", "hi\nbye\n[exit code 0]"},
			{"trap of TERM", "trap 'echo term; exit 9' TERM; kill $$; echo on", "term\n[exit code 9]"},
			{"TERM to itself", "kill $$; echo on", "[exit code 143"},
			{"KILL to itself", "kill -9 $$; echo on", "[exit code 137"},
			{"INT to itself", "kill -INT $$; echo on", "[exit code 130"},
			{"TERM to the group", "kill 0; sleep 30", "[exit code 143"},
			{"INT to the group", "kill -INT 0; sleep 30", "[exit code 130"},
			{"abort of a plain program", "exec python3 -c 'import os; os.abort()'", "[exit code 134"},
			{"child killed", "(sh -c 'kill -9 $$'; exit $?) 2>/dev/null; echo $?", "137\n[exit code 0]"},
			{"pipefail", "set -o pipefail; yes | head -1; echo ${PIPESTATUS[0]}", "y\n141\n[exit code 0]"},
			{"timeout", "timeout 0.1 sleep 30", "[exit code 124]"},
			{"timeout -s KILL", "timeout -s KILL 0.1 sleep 30", "[exit code 137"},
			{"interrupt handler", "python3 -c 'import os, signal\ntry: os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt: print(1)'", "1\n[exit code 0]"},
			{"python's children", `python3 -c 'import subprocess as s; print(s.run(["sh", "-c", "exit 3"]).returncode)'`, "3\n[exit code 0]"},
			{"git", "git init -q . && git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m one && git log --format=%s", "one\n[exit code 0]"},
			{"substitution", "cat <(echo a) <(echo b); echo $(echo c | tr c d)", "a\nb\nd\n[exit code 0]"},
			{"late tail", "echo a > >(cat)", "a\n[exit code 0]"},
			{"no input", "cat; read -r x; echo $?", "1\n[exit code 0]"},
			{"/proc fits", "kill -0 $(cut -d' ' -f1 /proc/self/stat) 2>&1 | grep -c denied; [ /proc/$$/exe -ef $(type -P bash) ] && echo yes", "0\nyes\n[exit code 0]"},
			{"ps fits", "sleep 30 & kill $(ps -o pid= -C sleep --ppid $$ | grep -x \" *$!\"); wait $!; echo $?", "143\n[exit code 0]"},
			{"who it is", `[ "$(id -u) $(id -g)" = "` + fmt.Sprint(os.Getuid(), " ", os.Getgid()) + `" ] && touch x && stat -c %u x`, fmt.Sprint(os.Getuid()) + "\n[exit code 0]"},
			{"$0 and level", "echo ${0##*/} $SHLVL", "bash 1\n[exit code 0]"},
			{"long command", ": " + strings.Repeat("x", 100_000) + "; echo hi", "hi\n[exit code 0]"},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				y := newYard(t)
				if r := y.run("Bash", input("command", tt.command, "timeout", 10_000)); !strings.HasPrefix(r.Text, tt.want) {
					t.Errorf("got %q, want %q", r.Text, tt.want)
				}
			})
		}
	})
}

// Secrets of the executor are in its environment, which /proc would show.
func TestBashDoesNotSeeItsExecutor(t *testing.T) {
	needNamespace(t)
	y := newYard(t, nil)
	text := y.ok("Bash", input("command", "for e in /proc/[0-9]*/exe; do readlink $e; done; echo end"))
	self, err := os.Executable()
	must(t, err)
	if strings.Contains(text, self) || !strings.Contains(text, "bash\n") {
		t.Errorf("in /proc: %s", text)
	}
	// Nor does a mount of the command's own show it again, or reach this process.
	before, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	y.run("Bash", input("command", "mount -t tmpfs none "+y.env.Workspace))
	after, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Errorf("a mount came out of the namespace:\n%s", after)
	}
	if os.Getuid() != 0 {
		y.ok("Bash", input("command", "grep CapEff:.0000000000000000 /proc/self/status && ! umount /proc"))
	}
}

func TestBashWhereNamespacesAreRefused(t *testing.T) {
	for _, refusal := range []error{unix.EPERM, unix.EINVAL, unix.ENOSPC, fmt.Errorf("fork/exec: %w", unix.EPERM)} {
		var log bytes.Buffer
		y := newYard(t, nil)
		y.set.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		y.set.namespace.logger = y.set.opts.Logger
		y.set.namespace.refusal = refusal
		for range 2 {
			if got := y.ok("Bash", input("command", "echo hi")); got != "hi\n[exit code 0]" {
				t.Errorf("got %q", got)
			}
		}
		// Once refused, it is not tried again.
		y.set.namespace.refusal = os.ErrInvalid
		y.ok("Bash", input("command", "true"))
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "can outlive") {
			t.Errorf("%v: logged %d lines: %s", refusal, n, &log)
		}
	}
	t.Run("another error", func(t *testing.T) {
		y := newYard(t, nil)
		y.set.namespace.refusal = unix.EAGAIN
		y.fails("Bash", input("command", "echo hi"), "starting the command", unix.EAGAIN.Error())
		if y.set.namespace.refused.Load() {
			t.Error("taken for a refusal")
		}
	})
}
