package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/modelsim"
)

func noEnv(string) string { return "" }

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want modelsim.Options // after a scenario that says 1s for each delay and a seed of 9
		bad  string
	}{
		{name: "nothing named", want: modelsim.Options{MessageStartDelay: time.Second, DeltaDelay: time.Second, Seed: 9}},
		{name: "environment", env: map[string]string{"MODELSIM_START_DELAY": "2s"}, want: modelsim.Options{MessageStartDelay: 2 * time.Second, DeltaDelay: time.Second, Seed: 9}},
		{
			name: "flags win", args: []string{"-start-delay", "3s", "-seed", "0", "-keys", "a, b", "-miss-rate", "0.5", "-credit", "7", "-visibility-lag", "4s"},
			env:  map[string]string{"MODELSIM_START_DELAY": "2s", "MODELSIM_KEYS": "c"},
			want: modelsim.Options{MessageStartDelay: 3 * time.Second, DeltaDelay: time.Second, Keys: []string{"a", "b"}, MissRate: 0.5, Credit: 7, VisibilityLag: 4 * time.Second},
		},
		{name: "unknown flag", args: []string{"-x"}, bad: "-x"},
		{name: "argument", args: []string{"serve"}, bad: "serve"},
		{name: "bad variable", env: map[string]string{"MODELSIM_SEED": "many"}, bad: `MODELSIM_SEED="many" (seed of what is drawn at random)`},
		{name: "miss rate", args: []string{"-miss-rate", "2"}, bad: "0 to 1"},
		{name: "negative delay", args: []string{"-delta-delay", "-1s"}, bad: "negative"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parseConfig(tc.args, func(name string) string { return tc.env[name] }, io.Discard)
			if tc.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tc.bad) {
					t.Errorf("error %v, want one with %q", err, tc.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := modelsim.Options{MessageStartDelay: time.Second, DeltaDelay: time.Second, Seed: 9}
			c.override(&got)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("options (-want +got):\n%s", d)
			}
		})
	}
	c, err := parseConfig(nil, func(name string) string { return map[string]string{"MODELSIM_ADDR": "127.0.0.1:1"}[name] }, io.Discard)
	if err != nil || c.addr != "127.0.0.1:1" || c.options().MessageStartDelay != 300*time.Millisecond {
		t.Errorf("%+v (%v)", c, err)
	}
}

// The commands write and end.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := write("good.yaml", "rules:\n  - answer: {text: hi}\n"), write("bad.yaml", "rules:\n  - anwser: {text: hi}\n")
	for _, tc := range []struct {
		args      []string
		out, fail string
	}{
		{[]string{"-schema"}, "https://json-schema.org/draft/2020-12/schema", ""},
		{[]string{"-list"}, "builtin:overloaded-mid-stream", ""},
		{[]string{"-check", good}, "no mistakes", ""},
		{[]string{"-check", bad}, "", "bad.yaml:2:5"},
		{[]string{"-check", bad}, "", "answer"},
		{[]string{"-check", filepath.Join(dir, "none.yaml")}, "", "none.yaml"},
		{[]string{"-scenario", "builtin:overloaded-midstream"}, "", "overloaded-mid-stream"},
		{[]string{"-scenario", bad}, "", "mistakes:\n" + bad + ":2:5"},
		{[]string{"-check", "builtin:refusal"}, "builtin:refusal: no mistakes", ""},
		{[]string{"-scenario", "refusal"}, "", "the example of that name is builtin:refusal"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tc.args, noEnv, &out, io.Discard)
		switch {
		case tc.fail == "" && err != nil, tc.fail != "" && (err == nil || !strings.Contains(err.Error(), tc.fail)):
			t.Errorf("%v: error %v, want one with %q", tc.args, err, tc.fail)
		case !strings.Contains(out.String(), tc.out):
			t.Errorf("%v: wrote %.300q, want something with %q", tc.args, out.String(), tc.out)
		}
	}
}

// What the program says of itself holds a key that it takes.
func TestBanner(t *testing.T) {
	wrongKey, err := modelsim.BuiltinScenario("wrong-key")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		opts modelsim.Options
		want string
	}{
		{modelsim.Options{}, "ANTHROPIC_API_KEY=sim\n"},
		{modelsim.Options{Keys: []string{"one", "two"}}, "ANTHROPIC_API_KEY=one\n"},
		{modelsim.Options{Scenario: wrongKey}, "ANTHROPIC_API_KEY=sim-good\n"},
	} {
		var out strings.Builder
		banner(&out, "127.0.0.1:1", modelsim.New(tc.opts).Key(), tc.opts.Scenario)
		if !strings.Contains(out.String(), tc.want) {
			t.Errorf("no %q in %s", tc.want, out.String())
		}
	}
}

// A scenario plays the model, and its file can be changed while it does; a mistake in it changes nothing.
func TestScenarioIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path+".new", time.Time{}, time.Unix(1, 0)); err != nil { // as if written within one tick
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write("rules:\n  - answer: {text: first}\n")
	url, stderr := serve(t, "-scenario", path, "-start-delay", "0s")
	says := func(want string) func() bool {
		return func() bool { return strings.Contains(ask(t, url), `"text":"`+want+`"`) }
	}
	eventually(t, "the first answer", says("first"))
	write("rules:\n  - answer: {txt: second}\n")
	eventually(t, "the mistake to be told", func() bool { return strings.Contains(stderr.String(), "txt") })
	eventually(t, "the first answer still", says("first"))
	write("rules:\n  - answer: {text: second one}\n")
	eventually(t, "the second answer", says("second one"))
}

// ask sends a request without streaming and returns the body of its answer.
func ask(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/messages", strings.NewReader(
		`{"model":"claude-sonnet-5-5","max_tokens":100,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer sim")
	req.Header.Set("anthropic-version", "2026-10-21")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// serve runs the program until the test ends and returns its address.
func serve(t *testing.T, args ...string) (url string, stderr *lockedBuffer) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	stderr = &lockedBuffer{}
	go func() { done <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), noEnv, in, stderr) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "ANTHROPIC_BASE_URL="); ok {
			url = strings.Fields(after)[0]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return url, stderr
}

// eventually polls, because a file system tells nobody when it was looked at.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited half a minute for %s", what)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The program serves, says how to use it, and stops although a stream is open.
func TestRun(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error, 1)
	var stderr bytes.Buffer
	go func() {
		done <- run(ctx, []string{"-addr", "127.0.0.1:0", "-delta-delay", "1h", "-start-delay", "0s"}, noEnv, in, &stderr)
	}()
	url := ""
	lines := bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "ANTHROPIC_BASE_URL="); ok {
			url = strings.Fields(after)[0]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/messages", strings.NewReader(
		`{"model":"claude-sonnet-5-5","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer sim")
	req.Header.Set("anthropic-version", "2026-10-21")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: message_start\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("run = %v; log: %s", err, stderr.String())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("run does not end while a stream is open")
	}
}
