package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"forkyard/modelsim"
)

const testToken = "token-for-tests"

// program is the real run() of this command, booted.
type program struct {
	t    *testing.T
	base string
	out  *syncBuffer
	log  *syncBuffer
	stop func() // as Ctrl+C, and waits
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var linkPattern = regexp.MustCompile(`Sign in\s+(http://[^/]+)(/login\?code=\S+)`)

// startWeb boots run() with these variables and nothing of the real environment.
func startWeb(t *testing.T, env map[string]string) *program {
	t.Helper()
	vars := map[string]string{
		"FORKYARD_ADDR": "127.0.0.1:0", "FORKYARD_ADMIN_TOKEN": testToken, "FORKYARD_DATA_DIR": t.TempDir(),
	}
	for k, v := range env {
		vars[k] = v
	}
	p := &program{t: t, out: &syncBuffer{}, log: &syncBuffer{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, nil, func(k string) string { return vars[k] }, p.out, p.log) }()
	var once sync.Once
	p.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("log of the program:\n%s", p.log)
		}
	})
	eventually(t, "the sign-in link", func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("run ended early: %v\n%s", err, p.log)
		default:
		}
		m := linkPattern.FindStringSubmatch(p.out.String())
		if m != nil {
			p.base = m[1]
		}
		return m != nil
	})
	return p
}

// eventually polls, because real processes tell nobody when they are ready.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

type object = map[string]any

// call makes an API call and decodes the answer.
func (p *program) call(method, path string, body any, header ...string) (int, object) {
	p.t.Helper()
	status, raw := p.raw(method, path, body, header...)
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		p.t.Fatalf("%s %s: %d %.200q is no JSON object: %v", method, path, status, raw, err)
	}
	return status, o
}

func (p *program) raw(method, path string, body any, header ...string) (int, []byte) {
	p.t.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequest(method, p.base+"/api/v1"+path, r)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, b
}

// must is call with the expected status.
func (p *program) must(status int, method, path string, body any, header ...string) object {
	p.t.Helper()
	got, o := p.call(method, path, body, header...)
	if got != status {
		p.t.Fatalf("%s %s: status %d, want %d: %v", method, path, got, status, o)
	}
	return o
}

func (p *program) get(path string) object { p.t.Helper(); return p.must(200, "GET", path, nil) }

// session starts a session and returns its id.
func (p *program) session(spec object) string {
	p.t.Helper()
	return p.must(201, "POST", "/sessions", spec)["id"].(string)
}

// ended waits until a run has ended and returns it.
func (p *program) ended(runID string) object {
	p.t.Helper()
	var r object
	eventually(p.t, "the end of "+runID, func() bool {
		r = p.get("/runs/" + runID)
		switch r["state"] {
		case "done", "failed", "cancelled", "over_budget":
			return true
		}
		return false
	})
	return r
}

// line is one transcript line.
type line struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Kind    string          `json:"kind"`
	RunID   string          `json:"run_id"`
	Message json.RawMessage `json:"message"`
	Marker  object          `json:"marker"`
}

func (p *program) transcript(runID string) []line {
	p.t.Helper()
	status, raw := p.raw("GET", "/runs/"+runID+"/transcript", nil)
	if status != 200 {
		p.t.Fatalf("transcript of %s: %d %s", runID, status, raw)
	}
	var lines []line
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var l line
		if err := d.Decode(&l); err == io.EOF {
			return lines
		} else if err != nil {
			p.t.Fatalf("transcript of %s: %v", runID, err)
		}
		if l.Seq != int64(len(lines)+1) {
			p.t.Fatalf("transcript of %s: seq %d follows %d", runID, l.Seq, len(lines))
		}
		lines = append(lines, l)
	}
}

// frame is one SSE frame.
type frame struct {
	id, event string
	data      object
	at        time.Time
}

// follow reads a session's events from the beginning until the test ends.
func (p *program) follow(sessionID string) *follower {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", p.base+"/api/v1/sessions/"+sessionID+"/events?after=0", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	if ct := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		p.t.Fatalf("events: status %d, content type %q", res.StatusCode, ct)
	}
	f := &follower{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.read(res.Body)
	}()
	p.t.Cleanup(func() { cancel(); <-done; res.Body.Close() })
	return f
}

type follower struct {
	mu     sync.Mutex
	frames []frame
}

func (f *follower) read(r io.Reader) {
	var cur frame
	var data string
	for s := bufio.NewReader(r); ; {
		l, err := s.ReadString('\n')
		if err != nil {
			return
		}
		l = strings.TrimRight(l, "\n")
		name, value, _ := strings.Cut(l, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case l == "":
			if data != "" {
				_ = json.Unmarshal([]byte(data), &cur.data)
				cur.at = time.Now()
				f.mu.Lock()
				f.frames = append(f.frames, cur)
				f.mu.Unlock()
			}
			cur, data = frame{}, ""
		case name == "id":
			cur.id = value
		case name == "event":
			cur.event = value
		case name == "data":
			data += value
		}
	}
}

// all returns the frames so far that the filter takes.
func (f *follower) all(take func(frame) bool) []frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []frame
	for _, fr := range f.frames {
		if take(fr) {
			out = append(out, fr)
		}
	}
	return out
}

// simulator serves modelsim for a test.
func simulator(t *testing.T, o modelsim.Options) (*modelsim.Server, string) {
	t.Helper()
	s := modelsim.New(o)
	hs := httptest.NewServer(s)
	t.Cleanup(hs.Close)
	return s, hs.URL
}

// repository makes a git repository with a few files.
func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":       "module example.test/ship\n\ngo 1.26\n",
		"main.go":      "package main\n\n// TODO: flags\nfunc main() { sail() }\n",
		"sail.go":      "package main\n\nimport \"fmt\"\n\nfunc sail() { fmt.Println(\"sailing\") }\n",
		"sail_test.go": "package main\n\nimport \"testing\"\n\nfunc TestSail(t *testing.T) { sail() }\n",
		"README.md":    "# ship\n\nIt sails.\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "-m", "ship"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return dir
}

// binDir holds what tests build; TestMain makes and removes it.
var binDir string

func TestMain(m *testing.M) {
	var err error
	if binDir, err = os.MkdirTemp("", "forkyard-bin-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	stopBrowser()
	os.RemoveAll(binDir)
	os.Exit(code)
}

// workerBinary builds cmd/worker once for all tests.
var workerBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "worker")
	out, err := exec.Command("go", "build", "-o", path, "forkyard/cmd/worker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the worker: %w: %s", err, out)
	}
	return path, nil
})

// startWorker starts a worker process.
func startWorker(t *testing.T, env map[string]string) *exec.Cmd {
	t.Helper()
	path, err := workerBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, log := &syncBuffer{}, &syncBuffer{}
	cmd.Stdout, cmd.Stderr = out, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(20 * time.Second):
			t.Error("a worker did not end within 20 s of SIGTERM")
			_ = cmd.Process.Signal(syscall.SIGQUIT) // its stacks go to the log
			time.Sleep(time.Second)
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("log of worker %d:\n%s", cmd.Process.Pid, log)
		}
	})
	eventually(t, "a worker to be ready", func() bool { return strings.Contains(out.String(), "ready") })
	return cmd
}

// write adds a file to a folder.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
