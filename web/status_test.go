package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"forkyard/forkcore"
)

// withData is a fake with sessions in several states.
func withData() *fake {
	f := newFake()
	usage := forkcore.Usage{Input: 70, CacheWrite5m: 0, CacheRead: 930, Output: 10}
	s := func(id, title string) forkcore.Session {
		return forkcore.Session{ID: id, Title: title, Workspace: "/srv/project", Model: "claude-sonnet-5-5", Mode: forkcore.ModeFork, CreatedAt: noon, UpdatedAt: noon}
	}
	busy, failed, fresh := s(sessionID, "Audit <the> tests"), s("ses_03bbbbbbbbbbbbbbbb", "Rewrite the parser"), s("ses_03cccccccccccccccc", "")
	busy.ActiveRunID, busy.ActiveRuns, busy.Usage, busy.Cost = mainID, 2, usage, forkcore.Cost{NanoUSD: 123_450_000}
	busy.Warm = &forkcore.CacheEntry{Tokens: 41_200, Exact: true, TTL: "5m", UsedAt: noon.Add(-time.Minute)}
	failed.LastState, failed.Cost = forkcore.Failed, forkcore.Cost{Unpriced: 1}
	failed.LastReason = &forkcore.Reason{Code: "provider_auth", Message: "The provider refused the key.", NextStep: "Set ANTHROPIC_API_KEY to a valid key and send the message again."}
	f.sessions = []forkcore.Session{busy, failed, fresh}
	fork := forkcore.Run{
		ID: "run_03bbbbbbbbbbbbbbbb", SessionID: sessionID, Kind: forkcore.KindFork, Title: "Docs", Directive: "Find what the documentation gets wrong.", State: forkcore.Done,
		Usage: usage, InheritedTokens: 900, InheritedRead: 900, Cost: forkcore.Cost{NanoUSD: 45_000_000}, Requests: 4, StartedAt: noon,
	}
	parked := fork
	parked.ID, parked.Title, parked.Index, parked.State, parked.Usage, parked.Cost, parked.InheritedTokens = "run_03cccccccccccccccc", "", 1, forkcore.Parked, forkcore.Usage{}, forkcore.Cost{}, 0
	parked.Reason, parked.StartedAt = &forkcore.Reason{Code: "gate", Message: "Held until the shared prefix can be read.", NextStep: "Wait a few seconds."}, time.Time{}
	f.runs[sessionID] = []forkcore.Run{parked, fork, {
		ID: mainID, SessionID: sessionID, Kind: forkcore.KindMain, State: forkcore.Waiting, Usage: usage, StartedAt: noon,
		Reason: &forkcore.Reason{Code: "children", Message: "Waits for its forks.", NextStep: "Wait, or stop the tree."},
	}}
	f.runs[failed.ID] = []forkcore.Run{{ID: "run_03dddddddddddddddd", Kind: forkcore.KindMain, State: forkcore.Failed, Reason: failed.LastReason}}
	return f
}

// page parses a page and checks what every page must have.
func page(t *testing.T, s *running, path string, status int, header ...string) *html.Node {
	t.Helper()
	res, body := s.ask(t, "GET", path, "", header...)
	if res.StatusCode != status || res.Header.Get("Content-Type") != "text/html; charset=UTF-8" {
		t.Fatalf("GET %s: %d %s\n%s", path, res.StatusCode, res.Header.Get("Content-Type"), body)
	}
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(all(root, "h1")); n != 1 {
		t.Errorf("%s: %d h1, want 1", path, n)
	}
	if got := attribute(all(root, "html")[0], "lang"); got != "en" {
		t.Errorf("%s: lang %q", path, got)
	}
	ids := map[string]bool{}
	for n := range root.Descendants() {
		if id := attribute(n, "id"); id != "" {
			if ids[id] {
				t.Errorf("%s: id %s twice", path, id)
			}
			ids[id] = true
		}
		// The content policy refuses both.
		if attribute(n, "style") != "" || n.Data == "style" || n.Data == "script" && attribute(n, "src") == "" {
			t.Errorf("%s: inline style or script in <%s>", path, n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") {
				t.Errorf("%s: inline handler %s", path, a.Key)
			}
		}
		if n.Data == "input" && attribute(n, "type") != "hidden" && (n.Parent == nil || n.Parent.Data != "label") {
			t.Errorf("%s: an input without a label", path)
		}
		for _, key := range []string{"href", "src"} {
			if v := attribute(n, key); strings.HasPrefix(v, "/static/") {
				if res, _ := s.ask(t, "GET", v, ""); res.StatusCode != 200 && !strings.Contains(v, "/missing/") {
					t.Errorf("%s: %s answers %d", path, v, res.StatusCode)
				}
			} else if strings.Contains(v, "//") {
				t.Errorf("%s: %s leads elsewhere", path, v)
			}
		}
	}
	return root
}

func all(root *html.Node, tag string) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == tag {
			found = append(found, n)
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// table is the text of the body's cells.
func table(root *html.Node) [][]string {
	var rows [][]string
	for _, body := range all(root, "tbody") {
		for _, tr := range all(body, "tr") {
			var row []string
			for cell := range tr.ChildNodes() {
				if cell.Type == html.ElementNode {
					row = append(row, text(cell))
				}
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func TestStatusPage(t *testing.T) {
	s := serve(t, withData())
	root := page(t, s, "/", 200, "Cookie", s.signIn(t))
	want := [][]string{
		{"Audit <the> tests waiting Waits for its forks. Wait, or stop the tree. 3 runs, 2 active", "93.0 %", "$0.1235", "claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
		{"Rewrite the parser failed The provider refused the key. Set ANTHROPIC_API_KEY to a valid key and send the message again. 1 run", "–", "no price", "claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
		{"Untitled done no runs", "–", "$0.0000", "claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
	}
	if diff := cmp.Diff(want, table(root)); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	if !strings.Contains(text(root), "Simulated model") || strings.Contains(text(root), "Nothing is kept.") || !strings.Contains(text(root), "Sign out") {
		t.Errorf("page: %s", text(root))
	}
}

func TestSessionPage(t *testing.T) {
	s := serve(t, withData())
	root := page(t, s, "/sessions/"+sessionID, 200, "Cookie", s.signIn(t))
	want := [][]string{
		{"Fork 2 parked Held until the shared prefix can be read. Wait a few seconds. Find what the documentation gets wrong.", "– inherited –", "$0.0000", "4", "", "Run Requests"},
		{"Docs done Find what the documentation gets wrong.", "93.0 % inherited 100.0 %", "$0.0450", "4", "2026-11-20 12:00:00 UTC", "Run Requests"},
		{"Main turn waiting Waits for its forks. Wait, or stop the tree.", "93.0 %", "$0.0000", "0", "2026-11-20 12:00:00 UTC", "Run Requests"},
	}
	if diff := cmp.Diff(want, table(root)); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	if !strings.Contains(text(root), "41,200 tokens, 4 min left") {
		t.Errorf("no cache clock in %s", text(root))
	}
	page(t, s, "/sessions/ses_03cccccccccccccccc", 200, "Cookie", s.signIn(t))
}

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
	examples := all(page(t, s, "/", 200, "Cookie", s.signIn(t)), "pre")
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

func TestDollars(t *testing.T) {
	for nano, want := range map[int64]string{
		0: "$0.0000", 1: "< $0.0001", 49_999: "< $0.0001", 50_000: "$0.0001", 123_450_000: "$0.1235", 1_999_999_999: "$2.0000", 12_345_678_900: "$12.3457", -150_000: "−$0.0002",
	} {
		if got := dollars(&nano); got != want {
			t.Errorf("dollars(%d) = %q, want %q", nano, got, want)
		}
	}
	if got := dollars(nil); got != "no price" {
		t.Errorf("dollars(nil) = %q", got)
	}
}

func TestCacheLine(t *testing.T) {
	entry := &forkcore.CacheEntry{Tokens: 1_234_567, Exact: true, TTL: "5m", UsedAt: noon}
	guess := *entry
	guess.Exact, guess.Tokens = false, 999
	tests := []struct {
		entry *forkcore.CacheEntry
		after time.Duration
		want  string
	}{
		{nil, 0, "nothing cached yet"},
		{entry, 0, "1,234,567 tokens, 5 min left"},
		{entry, 4*time.Minute + time.Millisecond, "1,234,567 tokens, 59 s left"},
		{&guess, 5 * time.Minute, "about 999 tokens, expired"},
	}
	for _, test := range tests {
		if got := cacheLine(test.entry, noon.Add(test.after)); got != test.want {
			t.Errorf("after %v: %q, want %q", test.after, got, test.want)
		}
	}
}

func TestCountRuns(t *testing.T) {
	tests := []struct {
		runs   int
		more   bool
		active int64
		want   string
	}{
		{0, false, 0, "no runs"}, {1, false, 1, "1 run, 1 active"}, {2, false, 0, "2 runs"}, {100, true, 7, "more than 100 runs, 7 active"},
	}
	for _, test := range tests {
		if got := countRuns(test.runs, test.more, test.active); got != test.want {
			t.Errorf("countRuns(%d, %t, %d) = %q, want %q", test.runs, test.more, test.active, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\n  b": "a b", "äöüßé": "äöüßé", "äöüßéx": "äöüß…"} {
		if got := shorten(text, 5); got != want {
			t.Errorf("shorten(%q) = %q, want %q", text, got, want)
		}
	}
}
