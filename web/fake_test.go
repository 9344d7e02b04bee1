package web

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/web/api"
)

const (
	adminToken = "correct-horse-battery-staple"
	sessionID  = "ses_03aaaaaaaaaaaaaaaa"
	mainID     = "run_03aaaaaaaaaaaaaaaa"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fake is the rest of the program. What a test does not set behaves as if there were nothing.
type fake struct {
	api.Runner     // nil: a call that no test expects panics
	api.ByteReader // nil

	mu         sync.Mutex
	calls      []string // of the runner
	secrets    map[string]time.Time
	now        func() time.Time
	sessions   []forkcore.Session
	runs       map[string][]forkcore.Run // by session
	inbox      []forkcore.InboxItem
	dispatches map[string]forkcore.Dispatch
	fail       error // of everything that reads
	refuse     error // of what is done to ended runs
}

func newFake() *fake {
	return &fake{secrets: map[string]time.Time{}, runs: map[string][]forkcore.Run{}, now: func() time.Time { return noon }}
}

func (f *fake) called(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
}

func (f *fake) CreateSession(_ context.Context, spec forkcore.SessionSpec, _ string) (forkcore.Session, bool, error) {
	f.called("create " + spec.Workspace)
	return forkcore.Session{ID: sessionID}, true, nil
}

func (f *fake) SendMessage(_ context.Context, _, text, _ string) (string, error) {
	f.called("message")
	if strings.HasPrefix(text, "panic") {
		panic("the fake was asked to panic")
	}
	return mainID, nil
}

func (f *fake) Stop(_ context.Context, _, scope string) ([]string, error) {
	f.called("stop " + scope)
	return nil, nil
}

func (f *fake) Cancel(context.Context, string) error { f.called("cancel"); return nil }

func (f *fake) Session(_ context.Context, id string) (forkcore.Session, error) {
	for _, s := range f.sessions {
		if s.ID == id {
			return s, f.fail
		}
	}
	return forkcore.Session{}, forkcore.ErrNotFound
}

func (f *fake) Sessions(context.Context, string, int) ([]forkcore.Session, string, error) {
	return f.sessions, "", f.fail
}

func (f *fake) RunsOf(_ context.Context, id, _ string, _ int) ([]forkcore.Run, string, error) {
	return f.runs[id], "", f.fail
}

func (f *fake) Run(_ context.Context, id string) (forkcore.Run, error) {
	for _, runs := range f.runs {
		for _, r := range runs {
			if r.ID == id {
				return r, f.fail
			}
		}
	}
	return forkcore.Run{ID: id}, f.fail
}

func (f *fake) Requests(context.Context, string) ([]forkcore.RequestRow, error) {
	return nil, f.fail
}

func (f *fake) Dispatch(_ context.Context, id string) (forkcore.Dispatch, error) {
	if d, known := f.dispatches[id]; known {
		return d, f.fail
	}
	return forkcore.Dispatch{}, forkcore.ErrNotFound
}

func (f *fake) Snapshot(context.Context, string, forkcore.Digest) (forkcore.Snapshot, error) {
	return forkcore.Snapshot{}, forkcore.ErrNotFound
}

func (f *fake) SessionsOfSnapshot(context.Context, forkcore.Digest) ([]string, error) {
	return nil, f.fail
}

func (f *fake) Events(context.Context, string, string, int) ([]forkcore.Event, error) {
	return nil, f.fail
}
func (f *fake) LastEventID(context.Context, string) (string, error) { return "0-0", f.fail }
func (f *fake) Live(ctx context.Context, _ time.Time, _ func(forkcore.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) Inbox(context.Context, string) ([]forkcore.InboxItem, error) { return f.inbox, f.fail }

func (f *fake) Ping(context.Context) error { return f.fail }

func (f *fake) SaveSecret(_ context.Context, kind, sum string, expires time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secrets[kind+sum] = expires
	return f.fail
}

func (f *fake) TakeSecret(ctx context.Context, kind, sum string) (bool, error) {
	ok, err := f.CheckSecret(ctx, kind, sum)
	return ok, errorOr(err, f.DropSecret(ctx, kind, sum))
}

func (f *fake) CheckSecret(_ context.Context, kind, sum string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	expires, ok := f.secrets[kind+sum]
	return ok && f.now().Before(expires), f.fail
}

func (f *fake) DropSecret(_ context.Context, kind, sum string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.secrets, kind+sum)
	return f.fail
}

func errorOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// running is a server on a port of its own.
type running struct {
	*httptest.Server
	web  *Server
	host string
}

func serve(t *testing.T, f *fake, change ...func(*Options)) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Runner: f, Reader: f, Bytes: f, Events: f, Inbox: f, Secrets: f, AdminToken: adminToken, Addr: listener.Addr().String(),
		Simulated: true, Kept: true, TokenPath: "/data/admin-token", Workspaces: []string{"/srv/project"}, Version: "test",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: f.now,
	}
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s.Handler())
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(s.Close)
	return &running{server, s, listener.Addr().String()}
}

// ask is one request; headers come in pairs, "Host" among them.
func (s *running) ask(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

const (
	bearer   = "Bearer " + adminToken
	jsonType = "application/json"
)

// signIn uses a link and returns the Cookie header.
func (s *running) signIn(t *testing.T) string {
	t.Helper()
	link, err := s.web.MakeLoginLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(link, "code=")
	res, body := s.ask(t, "POST", "/login", "code="+code, "Content-Type", "application/x-www-form-urlencoded")
	if res.StatusCode != http.StatusSeeOther || len(res.Cookies()) != 1 {
		t.Fatalf("signing in: %d %v %s", res.StatusCode, res.Cookies(), body)
	}
	c := res.Cookies()[0]
	return c.Name + "=" + c.Value
}
