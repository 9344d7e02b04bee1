package web

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"forkyard/forkcore"
)

// The examples of the empty page are run by a real shell against a real server.
func TestExamplesRun(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl")
	}
	dir := filepath.Join(t.TempDir(), "it's here")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tokenPath := filepath.Join(dir, "admin-token")
	if err := os.WriteFile(tokenPath, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	s := serve(t, f, func(o *Options) { o.TokenPath, o.Workspaces = tokenPath, []string{`/srv/it's a "project"`} })
	examples := slices.DeleteFunc(all(page(t, s, "/", 200, "Cookie", s.signIn(t)), "pre"), func(n *html.Node) bool {
		return !strings.HasPrefix(attribute(n, "id"), "example-")
	})
	if len(examples) != 4 {
		t.Fatalf("%d examples, want 4", len(examples))
	}
	var script strings.Builder
	for _, e := range examples[:2] { // forking and watching need more than the fake has
		script.WriteString(e.FirstChild.Data + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e")
	cmd.Stdin = strings.NewReader(script.String())
	cmd.Env = []string{"PATH=" + filepath.Dir(curl) + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script.String(), out)
	}
	if want := sessionID + "\n{\"run_id\":\"" + mainID + "\"}\n"; string(out) != want {
		t.Errorf("printed %q, want %q", out, want)
	}
	if diff := cmp.Diff([]string{`create /srv/it's a "project"`, "message"}, f.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// sampleRunner makes sessions and remembers what it was asked for.
type sampleRunner struct {
	*fake
	specs []forkcore.SessionSpec
	keys  []string
	texts []string
	fail  error
}

func (r *sampleRunner) CreateSession(_ context.Context, spec forkcore.SessionSpec, key string) (forkcore.Session, bool, error) {
	r.specs, r.keys = append(r.specs, spec), append(r.keys, key)
	return forkcore.Session{ID: sessionID}, true, r.fail
}

func (r *sampleRunner) SendMessage(_ context.Context, _, text, key string) (string, error) {
	r.texts, r.keys = append(r.texts, text), append(r.keys, key)
	return mainID, r.fail
}

const formType = "application/x-www-form-urlencoded"

func TestSample(t *testing.T) {
	budget := float64(sampleBudgetUSD)
	tests := []struct {
		name      string
		change    func(*Options)
		fail      error
		form      string
		status    int
		workspace string
		budget    *float64
		says      string
	}{
		{"simulated", func(o *Options) { o.Sample = "/data/sample" }, nil, "key=abc", 303, "/data/sample", nil, ""},
		{"own workspace", nil, nil, "key=abc", 303, "/srv/project", nil, ""},
		{"real key, confirmed", func(o *Options) { o.Simulated = false }, nil, "key=abc&confirm=yes", 303, "/srv/project", &budget, ""},
		{"real key, not confirmed", func(o *Options) { o.Simulated = false }, nil, "key=abc", 422, "", nil, "Tick the box first"},
		{"no workspace", func(o *Options) { o.Workspaces = nil }, nil, "key=abc", 409, "", nil, "No folder is open"},
		{"folder is gone", nil, forkcore.Invalid("workspace", "is <gone>"), "key=abc", 422, "", nil, "workspace is <gone>."},
		{"shutting down", nil, &forkcore.ConflictError{Message: "It shuts down.", NextStep: "Send again."}, "key=abc", 409, "", nil, "It shuts down. Send again."},
		{"store away", nil, forkcore.ErrStoreUnavailable, "key=abc", 503, "", nil, "Check that Redis runs"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &sampleRunner{fake: newFake(), fail: test.fail}
			s := serve(t, r.fake, func(o *Options) {
				o.Runner = r
				if test.change != nil {
					test.change(o)
				}
			})
			res, body := s.ask(t, "POST", "/sample", test.form, "Cookie", s.signIn(t), "Sec-Fetch-Site", "same-origin", "Content-Type", formType)
			if res.StatusCode != test.status {
				t.Fatalf("status %d, want %d\n%s", res.StatusCode, test.status, body)
			}
			if test.status != http.StatusSeeOther {
				if got := text(parse(t, body)); !strings.Contains(got, test.says) {
					t.Errorf("page does not say %q: %s", test.says, got)
				}
				if len(r.texts) > 0 {
					t.Errorf("messages sent: %q", r.texts)
				}
				return
			}
			if got := res.Header.Get("Location"); got != "/sessions/"+sessionID {
				t.Errorf("leads to %s", got)
			}
			want := []forkcore.SessionSpec{{Title: "Sample fan-out", Workspace: test.workspace, Mode: forkcore.ModeFork, BudgetUSD: test.budget}}
			if diff := cmp.Diff(want, r.specs); diff != "" {
				t.Errorf("session (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{sampleText}, r.texts); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			// A double click sends the same key twice, and the runner knows it.
			if diff := cmp.Diff([]string{"sample-abc", "sample-abc"}, r.keys); diff != "" {
				t.Errorf("idempotency keys (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartPanel(t *testing.T) {
	tests := []struct {
		name      string
		sessions  bool
		change    func(*Options)
		says      []string
		forbidden string
	}{
		{
			"no session", false, func(o *Options) { o.Sample, o.Workspaces = "/data/sample", []string{"/data/sample"} },
			[]string{"Start here", "a small sample repository", "Costs nothing.", "Open now /data/sample New session here", "No session here yet."},
			"Get started",
		},
		{"with sessions", true, nil, []string{"Get started", "your folder project", "New session"}, "Start here"},
		{
			"real key", false, func(o *Options) {
				o.Simulated, o.Provider = false, Provider{BaseURL: "https://api.example.com/x", KeyEnd: lastFour, Model: "claude-sonnet-5-5"}
			},
			[]string{"Uses your key.", "a budget of $5", "Charge this to my key", "Endpoint api.example.com Key …wxyz Model claude-sonnet-5-5"},
			"Costs nothing",
		},
		{"no workspace", false, func(o *Options) { o.Workspaces = nil }, []string{"nothing to look at", "No folder is open now."}, "New session here"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			if test.sessions {
				f = withData()
			}
			changes := []func(*Options){}
			if test.change != nil {
				changes = append(changes, test.change)
			}
			s := serve(t, f, changes...)
			got := text(page(t, s, "/", 200, "Cookie", s.signIn(t)))
			for _, want := range test.says {
				if !strings.Contains(got, want) {
					t.Errorf("page does not say %q: %s", want, got)
				}
			}
			if strings.Contains(got, test.forbidden) {
				t.Errorf("page says %q: %s", test.forbidden, got)
			}
		})
	}
}

// Paths go into addresses and attributes.
func TestFoldersAreEscaped(t *testing.T) {
	s := serve(t, newFake(), func(o *Options) { o.Workspaces = []string{`/srv/a&b "<i>"?`} })
	root := page(t, s, "/", 200, "Cookie", s.signIn(t))
	found := false
	for _, a := range all(root, "a") {
		found = found || attribute(a, "href") == "/sessions/new?workspace=%2Fsrv%2Fa%26b+%22%3Ci%3E%22%3F"
	}
	if !found || len(all(root, "i")) > 0 {
		t.Error("no link with the whole path, or markup from a path")
	}
}

// sampleReader knows one dispatch.
type sampleReader struct {
	*fake
	dispatch forkcore.Dispatch
}

func (r sampleReader) Dispatch(_ context.Context, id string) (forkcore.Dispatch, error) {
	if id != r.dispatch.ID {
		return forkcore.Dispatch{}, forkcore.ErrNotFound
	}
	return r.dispatch, nil
}

func TestLastSample(t *testing.T) {
	const dispatchID = "dsp_03aaaaaaaaaaaaaaaa"
	fork := func(id, dispatch string) forkcore.Run {
		return forkcore.Run{ID: id, SessionID: sessionID, Kind: forkcore.KindFork, State: forkcore.Done, DispatchID: dispatch, Requests: 1}
	}
	sample := forkcore.Session{ID: sessionID, Title: sampleTitle, LastState: forkcore.Done, LastRunID: mainID}
	tests := []struct {
		name     string
		sessions []forkcore.Session
		runs     []forkcore.Run
		want     bool
		open     bool
	}{
		{"ended", []forkcore.Session{sample}, []forkcore.Run{{ID: mainID, Kind: forkcore.KindMain}, fork("run_03bbbbbbbbbbbbbbbb", dispatchID), fork("run_03cccccccccccccccc", "dsp_03bbbbbbbbbbbbbbbb")}, true, true},
		{"at work", []forkcore.Session{func() forkcore.Session { s := sample; s.ActiveRuns = 1; return s }()}, []forkcore.Run{fork("run_03bbbbbbbbbbbbbbbb", dispatchID)}, false, true},
		{"without a fan-out", []forkcore.Session{sample}, []forkcore.Run{{ID: mainID, Kind: forkcore.KindMain}}, false, true},
		{"beside the user's own", []forkcore.Session{{ID: "ses_03bbbbbbbbbbbbbbbb", Title: "Mine"}, sample}, []forkcore.Run{fork("run_03bbbbbbbbbbbbbbbb", dispatchID)}, true, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.sessions, f.runs[sessionID] = test.sessions, test.runs
			s := serve(t, f, func(o *Options) { o.Reader = sampleReader{f, forkcore.Dispatch{ID: dispatchID}} })
			root := page(t, s, "/", 200, "Cookie", s.signIn(t))
			got := text(root)
			if has := strings.Contains(got, "What the sample came to") && strings.Contains(got, "It cost nothing.") && strings.Contains(got, "Run it again"); has != test.want {
				t.Errorf("result shown: %t, want %t: %s", has, test.want, got)
			}
			for _, d := range all(root, "details") {
				_, open := attributes(d)["open"]
				if attribute(d, "class") == "start-again" && open != test.open {
					t.Errorf("panel open: %t, want %t", open, test.open)
				}
			}
		})
	}
}

func attributes(n *html.Node) map[string]string {
	m := map[string]string{}
	for _, a := range n.Attr {
		m[a.Key] = a.Val
	}
	return m
}
