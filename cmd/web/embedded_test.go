package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"forkyard/modelsim"
)

// TestEmbedded boots the default: no Redis, no key. Everything runs in one
// process, stops within ten seconds, and data is there again afterwards.
func TestEmbedded(t *testing.T) {
	data := t.TempDir()
	env := map[string]string{"FORKYARD_DATA_DIR": data}
	p := startWeb(t, env)
	if out := p.out.String(); !strings.Contains(out, "SIMULATED") || !strings.Contains(out, "kept in") {
		t.Errorf("the banner says neither that the model is simulated nor that data is kept:\n%s", out)
	}
	dir := filepath.Join(data, "sample")
	id := p.session(object{"workspace": dir})
	turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Survey this repository with 3 forks."})["run_id"].(string)
	p.ended(turn)
	eventually(t, "the summing-up turn", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == 5 && s["state"] == "done"
	})
	before := p.transcript(turn)

	began := time.Now()
	p.stop()
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("stopping took %v", d)
	}
	p = startWeb(t, env)
	after := p.transcript(turn)
	if len(after) != len(before) {
		t.Errorf("%d lines after a restart, %d before", len(after), len(before))
	}
}

// TestStopInMidTurn: stopping the embedded default while runs are in progress keeps
// them, and the next start finishes them.
func TestStopInMidTurn(t *testing.T) {
	data := t.TempDir()
	mind := modelsim.MindFunc(func(ctx context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		if len(r.Messages) == 1 {
			return modelsim.Reply{Delay: 1500 * time.Millisecond, Blocks: []modelsim.Block{modelsim.ToolUseBlock("", "Glob", `{"pattern":"*"}`)}}, nil
		}
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("fine")}}, nil
	})
	_, simURL := simulator(t, modelsim.Options{Mind: mind})
	env := map[string]string{"FORKYARD_DATA_DIR": data, "ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim"}
	p := startWeb(t, env)
	id := p.session(object{"workspace": filepath.Join(data, "sample")})
	turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "look"})["run_id"].(string)
	eventually(t, "the first request", func() bool { return p.get("/runs/" + turn)["requests"] == 1.0 })
	p.stop()
	p = startWeb(t, env)
	if r := p.ended(turn); r["state"] != "done" || r["requests"] != 2.0 {
		t.Errorf("after the restart the run ended %v with %v requests", r["state"], r["requests"])
	}
}

// TestWithoutRedisServer: with no redis-server on PATH the in-process one serves
// the same job, and the banner says that nothing is kept.
func TestWithoutRedisServer(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(git, filepath.Join(bin, "git")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	data := t.TempDir()
	p := startWeb(t, map[string]string{"FORKYARD_DATA_DIR": data})
	if out := p.out.String(); !strings.Contains(out, "NOTHING IS KEPT") {
		t.Errorf("the banner does not say that nothing is kept:\n%s", out)
	}
	id := p.session(object{"workspace": filepath.Join(data, "sample")})
	p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Survey this repository with 4 forks."})
	eventually(t, "four forks and the summing-up turn", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == 6 && s["state"] == "done"
	})
}

// TestDatabaseDies: when the embedded Redis ends by itself the program ends too
// and says where to look; the next start has the data.
func TestDatabaseDies(t *testing.T) {
	data := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	vars := map[string]string{"FORKYARD_ADDR": "127.0.0.1:0", "FORKYARD_ADMIN_TOKEN": testToken, "FORKYARD_DATA_DIR": data}
	out, done := &syncBuffer{}, make(chan error, 1)
	go func() {
		done <- run(ctx, nil, func(k string) string { return vars[k] }, out, &syncBuffer{})
	}()
	eventually(t, "the sign-in link", func() bool { return linkPattern.MatchString(out.String()) })
	killChildren(t, "redis-server", data)
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "redis.log") {
			t.Errorf("ended with %v, want an error that names the log", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the program lives on without its database")
	}
	startWeb(t, map[string]string{"FORKYARD_DATA_DIR": data})
}

// killChildren kills this process's children of that name that work in dir.
func killChildren(t *testing.T, name, dir string) {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, p := range dirs {
		cwd, _ := os.Readlink(p + "/cwd")
		comm, _ := os.ReadFile(p + "/comm")
		status, _ := os.ReadFile(p + "/status")
		if strings.TrimSpace(string(comm)) != name || !strings.HasPrefix(cwd, dir) || !strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", os.Getpid())) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		killed++
	}
	if killed != 1 {
		t.Fatalf("%d processes killed, want 1", killed)
	}
}
