package tools

import (
	"bufio"
	_ "embed"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervisor is pid 1 of a command's namespace. The kernel ends the whole
// namespace with it, setsid or not.
//
//go:embed supervisor.sh
var supervisor string

// namespace tells how commands get a process namespace of their own.
type namespace struct {
	logger *slog.Logger
	// root: this process may make namespaces as it is. Others need a user
	// namespace around them.
	root bool
	// mount and setpriv are programs, or empty where a private /proc cannot be had.
	mount, setpriv string
	// refusal stands in for the kernel's answer in tests.
	refusal error

	refused atomic.Bool
	proc    sync.Once
}

func newNamespace(logger *slog.Logger) *namespace {
	n := &namespace{logger: logger, root: os.Geteuid() == 0}
	mount, err := exec.LookPath("mount")
	if err != nil {
		return n
	}
	if n.root {
		n.mount = mount
	} else if setpriv, err := exec.LookPath("setpriv"); err == nil {
		n.mount, n.setpriv = mount, setpriv
	}
	return n
}

// wrap returns cmd below a supervisor in new namespaces. The supervisor reads
// from stdin, which must stay open and silent, and reports on descriptor 3.
func (n *namespace) wrap(cmd *exec.Cmd, stdin, report *os.File) *exec.Cmd {
	args := []string{"-c", supervisor, "supervisor", n.mount}
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Cloneflags: unix.CLONE_NEWPID}
	if n.mount != "" {
		// Unlike Cloneflags this also keeps mounts from spreading to the parent.
		attr.Unshareflags = unix.CLONE_NEWNS
	}
	if !n.root {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		if n.mount != "" {
			// For mount, as whoever is not 0 loses the namespace's capabilities
			// with exec. The command itself must not be able to undo the mount.
			attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
			args = append(args, n.setpriv, "--ambient-caps=-all", "--inh-caps=-all")
		}
	}
	args = append(args, cmd.Path)
	args = append(args, cmd.Args[1:]...)
	wrapped := exec.Command(cmd.Path, args...)
	wrapped.Dir, wrapped.Env = cmd.Dir, cmd.Env
	wrapped.Stdin, wrapped.Stdout, wrapped.Stderr = stdin, cmd.Stdout, cmd.Stderr
	wrapped.ExtraFiles = []*os.File{report}
	wrapped.SysProcAttr = attr
	return wrapped
}

// refuses tells whether err, of a start, means that there are no namespaces
// here, and remembers it.
func (n *namespace) refuses(err error) bool {
	for _, refusal := range []error{unix.EPERM, unix.EINVAL, unix.ENOSPC, unix.ENOSYS} {
		if errors.Is(err, refusal) {
			if !n.refused.Swap(true) {
				// Commands see this process then. Its environment, with the keys, is
				// closed to them, unless they run as root. (Where namespaces work this
				// must not be done: the id maps of a new one could not be written.)
				_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
				n.logger.Warn("commands get no process namespace of their own: "+
					"what they start can outlive them when it leaves their process group, or when this process is killed, "+
					"and, as root, can read the environment of this process", "err", err)
			}
			return true
		}
	}
	return false
}

// await reads what the supervisor reports: the command's exit code. It returns
// not ok when the supervisor ended before.
func (n *namespace) await(report io.Reader) (code int, ok bool) {
	lines := bufio.NewScanner(report)
	for lines.Scan() {
		if lines.Text() == "no proc" {
			n.proc.Do(func() {
				n.logger.Warn("commands get no private /proc: in it they find process numbers that kill does not know, " +
					"and the environment of this process")
			})
			continue
		}
		code, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		return code, err == nil
	}
	return 0, false
}

// holdsOthers tells whether anything beside pid runs in its process namespace.
func holdsOthers(pid int) bool {
	own, err := os.Readlink(procDir(pid) + "/ns/pid")
	return err == nil && anyRunning(func(dir string, _ []string) bool {
		other, err := os.Readlink(dir + "/ns/pid")
		return err == nil && other == own && dir != procDir(pid)
	})
}

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }
