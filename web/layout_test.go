package web

import (
	"strings"
	"testing"

	"forkyard/forkcore"
)

func TestNotices(t *testing.T) {
	tests := []struct {
		name            string
		change          func(*Options)
		want, forbidden string
	}{
		{"real and kept", func(o *Options) { o.Simulated = false }, "Sessions", "Simulated"},
		{"simulated", func(o *Options) { o.Simulated = true }, "Simulated model", "Nothing is kept."},
		{"lost", func(o *Options) { o.Kept, o.Notice = false, "Install redis-server to keep it." }, "Nothing is kept. Sessions are gone when the program ends. Install redis-server", "none"},
		{"kept with a word", func(o *Options) { o.Notice = "Kept in /data." }, "Kept in /data.", "Nothing is kept."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, newFake(), test.change)
			got := text(page(t, s, "/", 200, "Cookie", s.signIn(t)))
			if !strings.Contains(got, test.want) || strings.Contains(got, test.forbidden) {
				t.Errorf("page: %s", got)
			}
		})
	}
}

func TestErrorAndLoginPages(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	if got := text(page(t, s, "/login", 200)); !strings.Contains(got, "/data/admin-token") || strings.Contains(got, "Sign out") {
		t.Errorf("sign-in page: %s", got)
	}
	page(t, s, "/login?code=%22%3E%3Cscript%3E", 200)
	if got := text(page(t, s, "/nothing", 404, "Cookie", s.signIn(t))); !strings.Contains(got, "Go back to the sessions.") {
		t.Errorf("page of an unknown address: %s", got)
	}
	f.fail = forkcore.ErrStoreUnavailable
	if got := text(page(t, s, "/", 503, "Authorization", bearer)); !strings.Contains(got, "Check that Redis runs") || !strings.Contains(got, "Request") {
		t.Errorf("page without the database: %s", got)
	}
	hidden := serve(t, newFake(), func(o *Options) { o.PublicURL = "https://forkyard.example.org" })
	if got := text(page(t, hidden, "/login", 200, "Host", "forkyard.example.org")); strings.Contains(got, "/data/admin-token") {
		t.Errorf("the public sign-in page tells about the disk: %s", got)
	}
}
