package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func noEnv(string) string { return "" }

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		env  map[string]string
		want config
		bad  bool
	}{
		{name: "defaults", want: config{addr: "127.0.0.1:8089", startDelay: 300 * time.Millisecond, deltaDelay: 15 * time.Millisecond}},
		{name: "environment", env: map[string]string{"MODELSIM_ADDR": "127.0.0.1:1"}, want: config{addr: "127.0.0.1:1", startDelay: 300 * time.Millisecond, deltaDelay: 15 * time.Millisecond}},
		{name: "flags win", args: []string{"-addr", "127.0.0.1:2", "-start-delay", "0s", "-delta-delay", "1ms", "-v"}, env: map[string]string{"MODELSIM_ADDR": "127.0.0.1:1"}, want: config{addr: "127.0.0.1:2", deltaDelay: time.Millisecond, verbose: true}},
		{name: "unknown flag", args: []string{"-x"}, bad: true},
		{name: "argument", args: []string{"serve"}, bad: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseConfig(tc.args, func(name string) string { return tc.env[name] }, io.Discard)
			if (err != nil) != tc.bad || got != tc.want {
				t.Errorf("got %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
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
