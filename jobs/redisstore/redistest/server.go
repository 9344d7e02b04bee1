// Package redistest starts real Redis servers for tests.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// startLimit is how long a server may take until it answers.
const startLimit = 20 * time.Second

// Server is a redis-server process with an append-only file in the test's
// temporary directory. It listens on 127.0.0.1 and ends with the test.
type Server struct {
	t    testing.TB
	path string
	dir  string
	// fsync is the server's appendfsync.
	fsync string
	port  int
	log   bytes.Buffer
	cmd   *exec.Cmd
}

// Start runs a redis-server until the test ends and returns its URL
// ("redis://127.0.0.1:<port>/0"). Without a redis-server on PATH the test fails.
func Start(t testing.TB) (url string) {
	t.Helper()
	return newServer(t, "everysec").URL()
}

// NewServer is Start for tests that kill and restart the server. It writes what
// it has acknowledged: with everysec a write is put off for up to two seconds while an earlier fsync is under way.
func NewServer(t testing.TB) *Server {
	t.Helper()
	return newServer(t, "always")
}

func newServer(t testing.TB, fsync string) *Server {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is not on PATH: install it (Debian: apt-get install redis-server), these tests do not run without: %v", err)
	}
	s := &Server{t: t, path: path, dir: t.TempDir(), fsync: fsync}
	t.Cleanup(s.stop)
	// Between choosing a free port and binding it another process may take it.
	for range 5 {
		s.port = freePort(t)
		if err = s.start(); err == nil {
			return s
		}
		s.stop()
	}
	t.Fatalf("start redis-server: %v\n%s", err, s.log.String())
	return nil
}

// URL is "redis://127.0.0.1:<port>/0"; it stays the same across restarts.
func (s *Server) URL() string { return fmt.Sprintf("redis://127.0.0.1:%d/0", s.port) }

// Kill ends the server with SIGKILL, as a crash would, and waits for its end.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		s.t.Fatal("kill redis-server: it is not running")
	}
	s.stop()
}

// Restart starts a killed server again on the same port with what its
// append-only file holds, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("restart redis-server: kill it first")
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("restart redis-server: %v\n%s", err, s.log.String())
	}
}

func (s *Server) start() error {
	s.log.Reset()
	s.cmd = exec.Command(s.path,
		"--bind", "127.0.0.1", "--port", fmt.Sprint(s.port), "--dir", s.dir,
		"--appendonly", "yes", "--appendfsync", s.fsync, "--save", "", "--daemonize", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", s.port), MaxRetries: -1})
	defer client.Close()
	for {
		// The answer must come from this very process, not from another that took the port.
		pid, err := serverPID(ctx, client)
		if err == nil && pid == s.cmd.Process.Pid {
			return nil
		}
		if err == nil {
			return fmt.Errorf("port %d is served by process %d", s.port, pid)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer on port %d within %s: %w", s.port, startLimit, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func serverPID(ctx context.Context, client *redis.Client) (pid int, err error) {
	info, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(info["Server"]["process_id"], &pid); err != nil {
		return 0, fmt.Errorf("read process_id: %w", err)
	}
	return pid, nil
}

func (s *Server) stop() {
	if s.cmd == nil {
		return
	}
	// Both fail only when the process has ended already.
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("find a free port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
