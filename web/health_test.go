package web

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func TestReadiness(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	if res, body := s.ask(t, "GET", "/readyz", ""); res.StatusCode != 200 || body != "ready\n" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
	f.fail = forkcore.ErrStoreUnavailable
	if res, body := s.ask(t, "GET", "/readyz", ""); res.StatusCode != 503 || !strings.Contains(body, "FORKYARD_REDIS_URL") {
		t.Errorf("without the database: %d %q", res.StatusCode, body)
	}
	if res, _ := s.ask(t, "GET", "/healthz", ""); res.StatusCode != 200 {
		t.Errorf("healthz without the database: %d, want 200: the process itself is well", res.StatusCode)
	}
}

func TestMetrics(t *testing.T) {
	s := serve(t, newFake(), func(o *Options) { o.Version = `v"1"` })
	for range 3 {
		s.ask(t, "POST", "/api/v1/sessions/"+sessionID+"/messages", `{"text":"a"}`, "Content-Type", jsonType, "Authorization", bearer)
	}
	s.ask(t, "GET", "/api/v1/sessions", "")
	s.ask(t, "BREW", "/", "")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", bearer)
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_, body := s.ask(t, "GET", "/metrics", "")
	for _, want := range []string{
		`forkyard_build_info{version="v\"1\""} 1`,
		`forkyard_http_requests_total{method="POST",code="202"} 3`,
		`forkyard_http_requests_total{method="GET",code="401"} 1`,
		`forkyard_http_requests_total{method="other",code="401"} 1`,
		"forkyard_messages_accepted_total 3", "forkyard_forks_accepted_total 0", "forkyard_sse_clients 1", "forkyard_sse_clients_cut_total 0",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in\n%s", want, body)
		}
	}
	line := regexp.MustCompile(`^(# (HELP|TYPE) \w+ .+|\w+(\{\w+="([^"\\]|\\.)*"(,\w+="([^"\\]|\\.)*")*\})? \d+)$`)
	for _, l := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("not in the text format: %s", l)
		}
	}
	cancel()
	_ = stream.Body.Close()
	for deadline := time.Now().Add(5 * time.Second); ; {
		if _, body = s.ask(t, "GET", "/metrics", ""); strings.Contains(body, "forkyard_sse_clients 0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the client that left is still counted:\n%s", body)
		}
	}
}

// Streams end first, else Shutdown waits for them until its deadline.
func TestCloseLetsShutdownFinish(t *testing.T) {
	s := serve(t, newFake())
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", bearer)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	start := time.Now()
	s.web.Close()
	if err := s.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("shutdown took %v", took)
	}
	// The end may come as a cut connection; what matters is that it comes.
	_, _ = io.Copy(io.Discard, res.Body)
}
