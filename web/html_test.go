package web

import (
	"strings"
	"testing"
	"time"

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
	root := parse(t, body)
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

func parse(t *testing.T, body string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
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
