package web

import (
	"net/http"
	"strings"
	"testing"
)

func TestSecurityHeaders(t *testing.T) {
	s := serve(t, newFake())
	for _, path := range []string{"/login", "/nothing", "/api/v1/sessions", "/healthz"} {
		res, _ := s.ask(t, "GET", path, "")
		h := res.Header
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: policy %q has no %s", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" ||
			h.Get("Cache-Control") != "no-store" || h.Get("X-Request-Id") == "" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestBodyLimit(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	path := "/api/v1/sessions/" + sessionID + "/messages"
	message := func(size int) string { return `{"text":"` + strings.Repeat("a", size-len(`{"text":""}`)) + `"}` }
	headers := []string{"Content-Type", jsonType, "Authorization", bearer}
	if res, body := s.ask(t, "POST", path, message(maxBody), headers...); res.StatusCode != 202 {
		t.Errorf("a body of the limit: %d %s", res.StatusCode, body)
	}
	if res, body := s.ask(t, "POST", path, message(maxBody+1), headers...); res.StatusCode != 413 || !strings.Contains(body, "4194304") {
		t.Errorf("a body over the limit: %d %s", res.StatusCode, body)
	}
	// Without an announced length.
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+path, struct{ *strings.Reader }{strings.NewReader(message(maxBody + 1))})
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = -1
	r.Header.Set("Content-Type", jsonType)
	r.Header.Set("Authorization", bearer)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 413 || len(f.calls) != 1 {
		t.Errorf("a body over the limit without a length: %d, calls %v", res.StatusCode, f.calls)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	s := serve(t, newFake())
	res, body := s.ask(t, "POST", "/api/v1/sessions/"+sessionID+"/messages", `{"text":"panic"}`, "Content-Type", jsonType, "Authorization", bearer)
	if res.StatusCode != 500 || res.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(body, "fake") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestErrorsArePagesForPeopleAndProblemsForPrograms(t *testing.T) {
	s := serve(t, newFake())
	tests := []struct {
		method, path string
		status       int
		contentType  string
	}{
		{"GET", "/api/v1/nothing", 404, "application/problem+json"},
		{"PUT", "/api/v1/sessions", 405, "application/problem+json"},
		{"GET", "/nothing", 404, "text/html; charset=UTF-8"},
		{"GET", "/sessions/unknown", 404, "text/html; charset=UTF-8"},
		{"DELETE", "/", 405, "text/html; charset=UTF-8"},
	}
	for _, test := range tests {
		res, body := s.ask(t, test.method, test.path, "", "Authorization", bearer)
		if res.StatusCode != test.status || res.Header.Get("Content-Type") != test.contentType {
			t.Errorf("%s %s: %d %s, want %d %s\n%s", test.method, test.path, res.StatusCode, res.Header.Get("Content-Type"), test.status, test.contentType, body)
		}
	}
}
