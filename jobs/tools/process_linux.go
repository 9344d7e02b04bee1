package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainGrace is how long the output of a command that has ended may still
	// come, for example through tee in a process substitution.
	drainGrace = time.Second
	// termGrace lies between SIGTERM and SIGKILL.
	termGrace = 300 * time.Millisecond
	// killGrace is how long the kernel gets to end what was killed.
	killGrace = time.Second
	// groupGrace is the same for members that hold no pipe. It passes unused
	// only where nobody reaps orphans, as in a container without an init.
	groupGrace = 100 * time.Millisecond
)

// runGroup runs cmd in a process namespace and a session of its own and writes
// what it prints, on either stream, to out. When it returns nothing that cmd
// started runs any more: after cmd has ended by itself, after limit (timedOut) and
// after ctx (cancelled). All of it also ends when this process is killed.
//
// Where the kernel refuses namespaces this holds for the process group alone: a
// process that left it with setsid is out of reach, but cannot delay the return,
// and a death of this process ends cmd only.
//
// exec.Cmd's own means do not fit: Cancel kills one process, and WaitDelay waits
// for a grandchild that holds the pipe.
func runGroup(ctx context.Context, ns *namespace, cmd *exec.Cmd, out io.Writer, limit time.Duration) (ending, error) {
	if !ns.refused.Load() {
		end, err := runSession(ctx, ns, cmd, out, limit)
		if err == nil || !ns.refuses(err) {
			return end, err
		}
	}
	return runSession(ctx, nil, cmd, out, limit)
}

// runSession is runGroup with a namespace, or without one where ns is nil.
func runSession(ctx context.Context, ns *namespace, cmd *exec.Cmd, out io.Writer, limit time.Duration) (ending, error) {
	var pipes [3]struct{ r, w *os.File }
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			return ending{}, fmt.Errorf("making a pipe: %w", err)
		}
		defer r.Close()
		defer w.Close()
		pipes[i].r, pipes[i].w = r, w
	}
	output, stdin, report := pipes[0], pipes[1], pipes[2]

	// Stdin of the command stays nil, which is /dev/null. In a new session there
	// is no controlling terminal either, so that opening /dev/tty fails.
	cmd.Stdout, cmd.Stderr = output.w, output.w
	if ns != nil {
		cmd = ns.wrap(cmd, stdin.r, report.w)
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	}

	started := make(chan error, 1)
	exited, reap, reaped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		// The parent-death signal is sent when the *thread* that forked ends, not
		// the process (prctl(2), PR_SET_PDEATHSIG), and the Go runtime may end an
		// idle thread. This goroutine keeps its thread for the child's life.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		if ns != nil {
			err = ns.refusal
		}
		if err == nil {
			err = cmd.Start()
		}
		_, _, _ = output.w.Close(), stdin.r.Close(), report.w.Close()
		started <- err
		if err != nil {
			return
		}
		awaitExit(cmd.Process.Pid)
		close(exited)
		<-reap
		_ = cmd.Wait() // its error is in ProcessState
		close(reaped)
	}()
	if err := <-started; err != nil {
		return ending{}, err
	}

	drained := make(chan struct{})
	go func() {
		defer close(drained)
		buf := make([]byte, 32<<10)
		for {
			n, err := output.r.Read(buf)
			_, _ = out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()

	var end ending
	ended, others := exited, inGroup
	if ns != nil {
		ended, others = make(chan struct{}), holdsOthers
		go func() {
			defer close(ended)
			end.code, end.reported = ns.await(report.r)
		}()
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var leftBehind, timedOut, cancelled bool
	group := -cmd.Process.Pid
	select {
	case <-ended:
		await(drainGrace, drained)
		leftBehind = !closed(drained) && others(cmd.Process.Pid)
	case <-timer.C:
		timedOut = true
	case <-ctx.Done():
		cancelled = true
	}
	if timedOut || cancelled {
		_ = unix.Kill(group, unix.SIGTERM)
		await(termGrace, ended, drained)
	}
	// The leader is not reaped yet, so that its number, which is the group's,
	// cannot belong to anyone else. Pid 1 of a namespace has ended only when all
	// of the namespace has.
	_ = unix.Kill(group, unix.SIGKILL)
	await(killGrace, exited, drained)
	close(reap)
	if ns != nil {
		_ = report.r.Close()
		<-ended
	}
	end.leftBehind, end.timedOut, end.cancelled = leftBehind, timedOut, cancelled
	if closed(exited) {
		<-reaped
		end.state = cmd.ProcessState
		awaitGroup(group)
	}
	_ = output.r.Close() // ends the reader where an escaped process holds the pipe
	<-drained
	return end, nil
}

// awaitExit blocks until the child has ended and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// inGroup tells whether a process of the group still runs. A slow reader alone is
// no sign of one, and the text of a result should not depend on the load.
func inGroup(pgid int) bool {
	return anyRunning(func(_ string, f []string) bool { return f[2] == strconv.Itoa(pgid) })
}

// anyRunning tells whether a process that is not dead matches. It is given by
// its directory in /proc and the fields of its stat from the third on.
func anyRunning(match func(dir string, f []string) bool) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(stats, func(stat string) bool {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false // ended meanwhile
		}
		// pid (name) state parent group ..., see proc_pid_stat(5). The name may
		// hold anything. Z and X are dead.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		return len(f) > 2 && f[0] != "Z" && f[0] != "X" && match(filepath.Dir(stat), f)
	})
}

// awaitGroup waits for the members of a group that were killed but have not
// quite ended. Asking with signal 0 harms no one, whoever has the number now.
func awaitGroup(group int) {
	for end := time.Now().Add(groupGrace); unix.Kill(group, 0) == nil && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// await waits until all channels are closed, at most d.
func await(d time.Duration, all ...<-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, c := range all {
		select {
		case <-c:
		case <-timer.C:
			return
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
