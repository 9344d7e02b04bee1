package chaos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
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

	"forkyard/jobs/redisstore/redistest"
	"forkyard/modelsim"
)

const token = "token-of-the-chaos"

type object = map[string]any

// binaries builds the programs once for all tests.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "forkyard-chaos-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"web", "worker"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, name), "forkyard/cmd/"+name).CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w: %s", name, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binaries(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// world is a Redis, a simulator and a workspace; processes come and go.
type world struct {
	*testing.T
	bin   string
	redis *redistest.Server
	sim   *modelsim.Server
	mind  *mind
	env   map[string]string
	dir   string // the workspace
	web   *process

	mu       sync.Mutex
	sessions []string
	accepted map[string][]string // texts that were acknowledged, by session
	acts     int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, bin: bin, redis: redistest.NewServer(t), mind: &mind{held: map[string]chan struct{}{}}, dir: dir, accepted: map[string][]string{}}
	w.sim = modelsim.New(modelsim.Options{Mind: w.mind, RecordLimit: 100_000, RecordBytes: 4 << 30})
	hs := httptest.NewServer(w.sim)
	t.Cleanup(hs.Close)
	t.Cleanup(w.mind.letAllGo)
	w.env = map[string]string{
		"FORKYARD_REDIS_URL": w.redis.URL(), "FORKYARD_WORKSPACES": dir, "FORKYARD_ADMIN_TOKEN": token, "FORKYARD_ADDR": freeAddress(t),
		"ANTHROPIC_BASE_URL": hs.URL, "ANTHROPIC_API_KEY": "sk-chaos", "FORKYARD_SIMULATED": "1", "FORKYARD_DATA_DIR": t.TempDir(),
	}
	return w
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// process is a running program.
type process struct {
	w      *world
	name   string
	env    map[string]string
	cmd    *exec.Cmd
	out    *syncBuffer
	exited chan struct{}
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

var ready = regexp.MustCompile(`is ready|worker: ready`)

// start starts a program with the world's environment and what is set beside it.
func (w *world) start(name string, set ...string) *process {
	w.Helper()
	p := &process{w: w, name: name, env: map[string]string{}}
	for k, v := range w.env {
		p.env[k] = v
	}
	for i := 0; i+1 < len(set); i += 2 {
		p.env[set[i]] = set[i+1]
	}
	p.run()
	w.Cleanup(func() {
		if p.running() {
			p.signal(syscall.SIGCONT)
			p.signal(syscall.SIGTERM)
			select {
			case <-p.exited:
			case <-time.After(30 * time.Second):
				w.Errorf("%s %d did not end within 30 s of SIGTERM", name, p.cmd.Process.Pid)
				p.kill()
			}
		}
		if w.Failed() {
			w.Logf("log of %s %d:\n%s", name, p.cmd.Process.Pid, p.out)
		}
	})
	return p
}

func (p *process) run() {
	p.w.Helper()
	p.out, p.exited = &syncBuffer{}, make(chan struct{})
	p.cmd = exec.Command(filepath.Join(p.w.bin, p.name))
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.w.TempDir()}
	for k, v := range p.env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		p.w.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(p.cmd, p.exited)
	p.w.until(p.name+" to be ready", func() bool {
		if !p.running() {
			p.w.Fatalf("%s ended early:\n%s", p.name, p.out)
		}
		return ready.MatchString(p.out.String())
	})
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails only when it has ended

// kill is kill -9 of the process alone: what it started has to end by itself.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// restart starts it again with the same environment.
func (p *process) restart() {
	p.w.Helper()
	p.run()
}

func (w *world) until(what string, done func() bool) {
	w.Helper()
	for deadline := time.Now().Add(90 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("waited 90 s for %s", what)
		}
	}
}

// call makes an API call at a dashboard; an error means that nobody answered.
func (w *world) call(p *process, method, path string, body any, header ...string) (int, []byte, error) {
	w.Helper()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			w.Fatal(err)
		}
		r = bytes.NewReader(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.env["FORKYARD_ADDR"]+"/api/v1"+path, r)
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}

// must is call with the expected status; while the dashboard is away it tries again.
func (w *world) must(status int, method, path string, body any) object {
	w.Helper()
	var o object
	w.until(method+" "+path, func() bool {
		got, raw, err := w.call(w.web, method, path, body)
		if err != nil || got == 503 {
			return false
		}
		if got != status {
			w.Fatalf("%s %s: %d, want %d: %s", method, path, got, status, raw)
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			w.Fatalf("%s %s: %v in %s", method, path, err, raw)
		}
		return true
	})
	return o
}

func (w *world) session(mode string) string {
	w.Helper()
	id := w.must(201, "POST", "/sessions", object{"workspace": w.dir, "permission_mode": "bypassPermissions", "mode": mode})["id"].(string)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions = append(w.sessions, id)
	return id
}

// say sends a message until it is acknowledged and returns the run that gets it.
func (w *world) say(session, text string) string {
	w.Helper()
	run, ok := w.trySay(w.web, session, text)
	if !ok {
		w.Fatalf("the message %q was not taken", text)
	}
	return run
}

// trySay sends a message once, with a key; ok says that it was acknowledged.
func (w *world) trySay(p *process, session, text string) (run string, ok bool) {
	w.Helper()
	status, raw, err := w.call(p, "POST", "/sessions/"+session+"/messages", object{"text": text}, "Idempotency-Key", text)
	if err != nil || status != 202 {
		return "", false
	}
	var o struct {
		RunID string `json:"run_id"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted[session] = append(w.accepted[session], text)
	return o.RunID, true
}

// fork dispatches forks and returns their ids.
func (w *world) fork(session string, prompts ...string) (ids []string) {
	w.Helper()
	var list []object
	for _, p := range prompts {
		list = append(list, object{"prompt": p})
	}
	for _, r := range w.must(202, "POST", "/sessions/"+session+"/forks", object{"directives": list})["runs"].([]any) {
		ids = append(ids, r.(object)["id"].(string))
	}
	return ids
}

func (w *world) run(id string) object {
	w.Helper()
	return w.must(200, "GET", "/runs/"+id, nil)
}

func (w *world) state(id string) string { w.Helper(); return w.run(id)["state"].(string) }

// ended waits for the end of runs, all of which must be done.
func (w *world) ended(ids ...string) {
	w.Helper()
	for _, id := range ids {
		var r object
		w.until("the end of "+id, func() bool {
			r = w.run(id)
			return r["ended_at"] != nil
		})
		if r["state"] != "done" {
			w.Errorf("run %s ended as %v: %v", id, r["state"], r["reason"])
		}
	}
}

// act names a tool call with an effect: its command adds the name to a file, and waits for a word to go on where hold is set.
func (w *world) act(hold bool) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acts++
	name := fmt.Sprintf("act%d", w.acts)
	if hold {
		name += "-hold"
	}
	return name
}

func (w *world) acted(name string) int {
	text, _ := os.ReadFile(filepath.Join(w.dir, "acted")) // none yet
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) == name {
			n++
		}
	}
	return n
}

func (w *world) release(name string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, "go-"+name), nil, 0o644); err != nil {
		w.Fatal(err)
	}
}

// line is one transcript line.
type line struct {
	Seq     int64           `json:"seq"`
	Message json.RawMessage `json:"message"`
	Marker  *struct {
		Type      string `json:"type"`
		ToolUseID string `json:"tool_use_id"`
		Name      string `json:"name"`
	} `json:"marker"`
}

func (w *world) transcript(run string) (lines []line) {
	w.Helper()
	var raw []byte
	w.until("the transcript of "+run, func() bool {
		status, b, err := w.call(w.web, "GET", "/runs/"+run+"/transcript", nil)
		raw = b
		return err == nil && status == 200
	})
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		var l line
		if err := d.Decode(&l); err == io.EOF {
			return lines
		} else if err != nil {
			w.Fatalf("transcript of %s: %v", run, err)
		}
		if l.Seq != int64(len(lines)+1) {
			w.Errorf("transcript of %s: line %d follows line %d", run, l.Seq, len(lines))
		}
		lines = append(lines, l)
	}
}

// check looks for what must hold whatever happened. Nothing may be running any more.
func (w *world) check() {
	w.Helper()
	billed := map[string][]modelsim.Captured{} // by hash of the body
	for _, c := range w.sim.Requests() {
		if c.Status == 400 {
			w.Errorf("the provider refused a request: %s", c.Error)
		}
		sum := sha256.Sum256(c.Body)
		id := hex.EncodeToString(sum[:])
		billed[id] = append(billed[id], c)
	}
	for _, session := range w.sessions {
		w.checkSession(session, billed)
	}
	for i := 1; i <= w.acts; i++ {
		for _, name := range []string{fmt.Sprintf("act%d", i), fmt.Sprintf("act%d-hold", i)} {
			if n := w.acted(name); n > 1 {
				w.Errorf("%s was done %d times", name, n)
			}
		}
	}
}

func (w *world) checkSession(session string, billed map[string][]modelsim.Captured) {
	w.Helper()
	s := w.must(200, "GET", "/sessions/"+session, nil)
	var main string
	for _, r := range s["runs"].([]any) {
		run := r.(object)
		id := run["id"].(string)
		if run["ended_at"] == nil {
			w.Errorf("run %s has not ended: %v", id, run["state"])
		}
		if run["kind"] == "main" {
			main = id
		} else {
			w.checkResults(id)
		}
		w.checkLedger(id, billed)
	}
	if main == "" {
		return
	}
	w.checkResults(main)
	var said strings.Builder
	for _, l := range w.transcript(main) {
		if bytes.Contains(l.Message, []byte(`"role":"user"`)) {
			said.Write(l.Message)
		}
	}
	for _, text := range w.accepted[session] {
		if n := strings.Count(said.String(), `"`+text+`"`); n != 1 {
			w.Errorf("the acknowledged message %q is in the conversation %d times", text, n)
		}
	}
	for _, r := range s["runs"].([]any) {
		if run := r.(object); run["kind"] != "main" {
			if n := strings.Count(said.String(), "<task-id>"+run["id"].(string)+"</task-id>"); n > 1 {
				w.Errorf("the end of %v was told %d times", run["id"], n)
			}
		}
	}
}

// checkResults: each tool call that was started has one result, and is started once at most unless it only reads.
func (w *world) checkResults(run string) {
	w.Helper()
	started, results := map[string]int{}, map[string]int{}
	for _, l := range w.transcript(run) {
		if m := l.Marker; m != nil && m.Name == "Bash" {
			switch m.Type {
			case "tool_started":
				started[m.ToolUseID]++
			case "tool_result":
				results[m.ToolUseID]++
			}
		}
	}
	for id, n := range started {
		if n != 1 || results[id] != 1 {
			w.Errorf("run %s: call %s was started %d times and has %d results", run, id, n, results[id])
		}
	}
}

// checkLedger: a row that is settled as answered is a request that the provider answered, with the usage that it billed.
func (w *world) checkLedger(run string, billed map[string][]modelsim.Captured) {
	w.Helper()
	rows := w.must(200, "GET", "/runs/"+run+"/requests", nil)["items"].([]any)
	for _, r := range rows {
		row := r.(object)
		switch row["status"] {
		case "open":
			w.Errorf("run %s: request %v is still open", run, row["n"])
		case "ok":
			u := row["usage"].(object)
			match := false
			for _, c := range billed[row["body_sha256"].(string)] {
				if b := c.Usage; b != nil && u["input_tokens"] == float64(b.InputTokens) && u["cache_read_input_tokens"] == nil &&
					u["cache_read_tokens"] == float64(b.CacheReadInputTokens) && u["output_tokens"] == float64(b.OutputTokens) &&
					u["cache_creation_5m_tokens"] == float64(b.CacheCreationInputTokens) {
					match = true
				}
			}
			if !match {
				w.Errorf("run %s: request %v is booked with %v, which nobody billed", run, row["n"], u)
			}
		}
	}
}
