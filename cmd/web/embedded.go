package main

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// database is the Redis that this process brings along.
type database struct {
	url    string
	kept   bool   // data outlives the process
	notice string // what to tell people about it
	stop   func()
	gone   <-chan struct{} // closed when it ended by itself; nil = cannot happen unseen
	log    string          // where it says why
}

// sentence is the notice as pages show it.
func (d *database) sentence() string {
	if d.kept {
		return "Data is " + d.notice + "."
	}
	return strings.ToUpper(d.notice[:1]) + d.notice[1:] + "."
}

// startDatabase starts a redis-server with its append-only file in dir, or,
// when none is installed, an in-process one that keeps nothing.
func startDatabase(ctx context.Context, dir string) (*database, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		m := miniredis.NewMiniRedis()
		if err := m.StartAddr("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("start the in-process Redis: %w", err)
		}
		return &database{
			url:    "redis://" + m.Addr(),
			notice: "redis-server is not installed, so everything is in memory: NOTHING IS KEPT when this program ends. Install redis-server and start again to keep data",
			stop:   m.Close,
		}, nil
	}
	dir = filepath.Join(dir, "redis")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	var last error
	for range 3 { // the free port may be taken between looking and listening
		db, err := startRedisServer(ctx, path, dir)
		if err == nil {
			return db, nil
		}
		last = err
	}
	return nil, last
}

func startRedisServer(ctx context.Context, path, dir string) (*database, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	password := rand.Text()
	logPath := filepath.Join(dir, "redis.log")

	// The configuration goes in through standard input, so that the password is in no argument list.
	cmd := exec.Command(path, "-")
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		"bind 127.0.0.1", "port " + strconv.Itoa(port), "requirepass " + password,
		"dir " + quote(dir), "logfile " + quote(logPath),
		"appendonly yes", "appendfsync everysec", `save ""`, "maxmemory-policy noeviction", "daemonize no", "",
	}, "\n"))
	// A group of its own: Ctrl+C must not reach the database before the runs are handed over. It dies with this process all the same.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, exited := make(chan error, 1), make(chan struct{})
	go func() {
		// The parent-death signal follows the thread that forks, so this thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
		}
	}
	url := fmt.Sprintf("redis://:%s@127.0.0.1:%d/0", password, port)
	opts, err := redis.ParseURL(url)
	if err != nil {
		stop()
		return nil, err
	}
	probe := redis.NewClient(opts)
	defer probe.Close()
	for deadline := time.Now().Add(30 * time.Second); ; {
		err := probe.Ping(ctx).Err()
		if err == nil {
			return &database{url: url, kept: true, notice: "kept in " + dir + " (append-only file, written to disk every second)", stop: stop, gone: exited, log: logPath}, nil
		}
		select {
		case <-exited:
			return nil, fmt.Errorf("redis-server ended at once; its log %s says why", logPath)
		case <-ctx.Done():
			stop()
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			stop()
			return nil, fmt.Errorf("redis-server does not answer (%w); its log is %s", err, logPath)
		}
	}
}

// quote writes a value as redis.conf reads it: strconv.Quote would escape
// characters that Redis does not unescape.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20:
			fmt.Fprintf(&b, "\\x%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// lockDataDir keeps two programs from writing one data folder.
func lockDataDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data folder's lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("the data folder %s is in use by another web process; stop that one, or set FORKYARD_DATA_DIR to another folder", dir)
	}
	return func() { f.Close() }, nil
}

//go:embed all:sample
var sampleFiles embed.FS

// sampleWorkspace makes the small repository that a newcomer can try things
// on, unless it is there already.
func sampleWorkspace(ctx context.Context, dataDir string) (string, error) {
	dir := filepath.Join(dataDir, "sample")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp := dir + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	files, err := fs.Sub(sampleFiles, "sample")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(tmp, files); err != nil {
		return "", fmt.Errorf("write the sample workspace: %w", err)
	}
	if git, err := exec.LookPath("git"); err == nil {
		for _, args := range [][]string{
			{"init", "-q", "-b", "main"},
			{"add", "-A"},
			{"-c", "user.name=Forkyard", "-c", "user.email=forkyard@localhost", "commit", "-q", "-m", "A small tide table"},
		} {
			cmd := exec.CommandContext(ctx, git, args...)
			cmd.Dir = tmp
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("git %s in the sample workspace: %w: %s", args[0], err, out)
			}
		}
	}
	return dir, os.Rename(tmp, dir)
}

// adminToken returns the configured API token, or the one in the data folder,
// which it makes on the first start. path is empty for a configured one.
func adminToken(configured, dataDir string) (token, path string, err error) {
	if configured != "" {
		return configured, "", nil
	}
	path = filepath.Join(dataDir, "admin-token")
	b, err := os.ReadFile(path)
	if token = strings.TrimSpace(string(b)); err == nil && token != "" {
		return token, path, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the admin token: %w", err)
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return "", "", fmt.Errorf("make the data folder: %w", err)
	}
	token = "fya_" + rand.Text() + rand.Text()
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		return "", "", fmt.Errorf("write the admin token: %w", err)
	}
	return token, path, nil
}
