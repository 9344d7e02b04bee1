package web

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"forkyard/forkcore"
)

const (
	leaderID   = "run_03llllllllllllllll"
	followerID = "run_03ffffffffffffffff"
	loneID     = "run_03mmmmmmmmmmmmmmmm"
	fanOutID   = "dsp_03dddddddddddddddd"
	villain    = `<script>alert(1)</script><b hx-get="/x" onclick="y">`
)

// yard is a dispatch of two forks with their requests and bytes.
type yard struct {
	*fake
	known  map[string]forkcore.Run
	rows   map[string][]forkcore.RequestRow
	bodies map[string][]byte // by run
	lines  map[string][]forkcore.TranscriptLine
	refuse error
}

func (y *yard) Run(_ context.Context, id string) (forkcore.Run, error) {
	if r, ok := y.known[id]; ok {
		return r, nil
	}
	return forkcore.Run{}, forkcore.ErrNotFound
}

func (y *yard) Requests(_ context.Context, id string) ([]forkcore.RequestRow, error) {
	return y.rows[id], nil
}

func (y *yard) Dispatch(context.Context, string) (forkcore.Dispatch, error) {
	return forkcore.Dispatch{ID: fanOutID, RunIDs: []string{leaderID, followerID}}, nil
}

func (y *yard) RunsOf(context.Context, string, string, int) ([]forkcore.Run, string, error) {
	return []forkcore.Run{y.known[loneID]}, "", nil
}

func (y *yard) Transcript(_ context.Context, id string, after int64) (lines []forkcore.TranscriptLine, err error) {
	for _, l := range y.lines[id] {
		if l.Seq > after {
			lines = append(lines, l)
		}
	}
	return lines, nil
}

func (y *yard) RequestBody(_ context.Context, id string, _ int64) ([]byte, error) {
	if body, ok := y.bodies[id]; ok {
		return body, nil
	}
	return nil, forkcore.ErrCorrupt
}

func (y *yard) Assemble(_ context.Context, _ string, e forkcore.Entry, _ string) (forkcore.TranscriptLine, error) {
	return forkcore.TranscriptLine{Seq: e.Seq, At: e.At, Kind: e.Kind, RunID: e.RunID, Message: spoken("assembled")}, nil
}

func (y *yard) Cancel(_ context.Context, id string) error { y.called("cancel " + id); return y.refuse }

func (y *yard) Background(_ context.Context, id string) error {
	y.called("background " + id)
	return y.refuse
}

func spoken(text string) []byte {
	return forkcore.EncodeMessage(forkcore.RoleAssistant, forkcore.AppendTextBlock(nil, text))
}

func newYard(t *testing.T) *yard {
	n := int64(3082)
	later := noon.Add(1500 * time.Millisecond)
	row := func(id string, u forkcore.Usage) forkcore.RequestRow {
		cost := int64(700_000)
		return forkcore.RequestRow{
			RunID: id, SessionID: sessionID, DispatchID: fanOutID, N: 1, StartedAt: noon, FirstEventAt: &later, EndedAt: &later, Attempt: 1, Model: "m",
			PrefixBytes: samplePrefixLength, Marks: sampleMarks(t), Usage: &u, Cost: &cost, Status: forkcore.RequestOK, StopReason: "end_turn", First: true,
			ExpectedRead: &n, ExpectedExact: true, ExpectedFrom: &forkcore.RequestRef{RunID: leaderID, N: 1},
		}
	}
	leader := row(leaderID, forkcore.Usage{CacheWrite5m: 3082, Input: 40, Output: 9})
	leader.ExpectedRead, leader.ExpectedFrom = new(int64), nil
	f := newFake()
	f.sessions = []forkcore.Session{{ID: sessionID, Title: "Audit " + villain}}
	run := func(id, title string, index int) forkcore.Run {
		return forkcore.Run{
			ID: id, SessionID: sessionID, AgentID: id, Kind: forkcore.KindFork, Title: title, Directive: "Look at " + villain, DispatchID: fanOutID, Index: index,
			State: forkcore.Running, Leader: index == 0, Requests: 1, Version: 5, CreatedAt: noon, StartedAt: noon,
		}
	}
	failed := run(followerID, "Follower "+villain, 1)
	failed.State, failed.EndedAt = forkcore.Failed, later
	failed.Reason = &forkcore.Reason{Code: "refusal", Message: "It said " + villain, NextStep: "Rephrase."}
	report := forkcore.ParseReport("Scope: all\nResult: found " + villain)
	failed.Report = &report
	lone := forkcore.Run{ID: loneID, SessionID: sessionID, AgentID: sessionID, Kind: forkcore.KindMain, State: forkcore.Running, Version: 1, CreatedAt: noon, StartedAt: noon}
	// As long as the sample, so that the marks stay where they are.
	body := string(sampleBody(t))
	at := strings.LastIndex(body, "Read the documentation: what")
	other := []byte(body[:at] + "Röd" + body[at+len("Read"):])
	return &yard{
		fake: f, known: map[string]forkcore.Run{leaderID: run(leaderID, "Leader", 0), followerID: failed, loneID: lone},
		rows:   map[string][]forkcore.RequestRow{leaderID: {leader}, followerID: {row(followerID, forkcore.Usage{CacheRead: 3082, Input: 46, Output: 3})}},
		bodies: map[string][]byte{leaderID: sampleBody(t), followerID: other},
		lines:  map[string][]forkcore.TranscriptLine{followerID: {{Seq: 1, At: noon, Kind: forkcore.EntryMessage, RunID: followerID, Message: spoken("I saw " + villain)}}},
	}
}

func (y *yard) serve(t *testing.T) *running {
	return serve(t, y.fake, func(o *Options) { o.Reader, o.Bytes, o.Runner = y, y, y })
}

func links(root *html.Node) map[string]string {
	found := map[string]string{}
	for _, a := range all(root, "a") {
		found[attribute(a, "href")] = text(a)
	}
	return found
}

// harmless fails when hostile text became markup.
func harmless(t *testing.T, root *html.Node) {
	t.Helper()
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if attribute(n, "hx-get") == "/x" || attribute(n, "onclick") != "" || n.Data == "script" && attribute(n, "src") == "" {
			t.Errorf("hostile text became <%s>", n.Data)
		}
	}
	if !strings.Contains(text(root), "alert(1)") {
		t.Error("the hostile text is not shown at all")
	}
}

func TestRunPage(t *testing.T) {
	s := newYard(t).serve(t)
	root := page(t, s, pathRun+followerID, http.StatusOK, "Authorization", bearer)
	harmless(t, root)
	shown := text(root)
	for _, want := range []string{
		"Read all 3,082 tokens that request 1 of “Leader” left in the cache.", "It said", "Rephrase.", "The report lacks: Key files, Files changed, Issues.",
		"Fork 2 of 2", "1.5 s", "I saw", "$0.0007", "end turn",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	l := links(root)
	for _, want := range []string{requestPath(followerID, 1), requestPath(leaderID, 1), pathRun + leaderID, pathSession + sessionID} {
		if _, ok := l[want]; !ok {
			t.Errorf("no link to %s", want)
		}
	}
	again := ""
	for path, words := range l {
		if words == "Dispatch again" {
			again = path
		}
	}
	if !strings.HasPrefix(again, pathSession+sessionID+"/dispatch?prompt=Look+at") {
		t.Errorf("dispatching again leads to %q", again)
	}
	for _, form := range all(root, "form") {
		if strings.HasSuffix(attribute(form, "action"), "/cancel") {
			t.Error("a run that ended can be cancelled")
		}
	}
}

func TestActionsOnRuns(t *testing.T) {
	ended := &forkcore.ConflictError{Message: "This run has ended.", NextStep: "Look at its report."}
	tests := []struct {
		name, path, body string
		header           []string
		refuse           error
		status           int
		location, call   string
	}{
		{"cancel", leaderID + "/cancel", "", nil, nil, 303, pathRun + leaderID, "cancel " + leaderID},
		{"back to where it came from", leaderID + "/cancel", "back=/sessions/" + sessionID, nil, nil, 303, "/sessions/" + sessionID, "cancel " + leaderID},
		{"not to another server", leaderID + "/cancel", "back=//evil.example", nil, nil, 303, pathHome, "cancel " + leaderID},
		{"background", loneID + "/background", "", nil, nil, 303, pathRun + loneID, "background " + loneID},
		{"by htmx", leaderID + "/cancel", "", []string{"HX-Request", "true"}, nil, 204, "", "cancel " + leaderID},
		{"too late", leaderID + "/cancel", "", nil, ended, 409, "", "cancel " + leaderID},
		{"too late by htmx", leaderID + "/cancel", "", []string{"HX-Request", "true"}, ended, 409, "", "cancel " + leaderID},
		{"unknown", "run_03zzzzzzzzzzzzzzzz/cancel", "", nil, forkcore.ErrNotFound, 404, "", "cancel run_03zzzzzzzzzzzzzzzz"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			y := newYard(t)
			y.refuse = tt.refuse
			header := append([]string{"Authorization", bearer, "Content-Type", "application/x-www-form-urlencoded"}, tt.header...)
			res, body := y.serve(t).ask(t, "POST", pathRun+tt.path, tt.body, header...)
			if res.StatusCode != tt.status || res.Header.Get("Location") != tt.location {
				t.Errorf("%d to %q, want %d to %q", res.StatusCode, res.Header.Get("Location"), tt.status, tt.location)
			}
			if tt.status == 409 && (!strings.Contains(body, ended.Message) || !strings.Contains(body, ended.NextStep)) {
				t.Errorf("the refusal is not readable: %s", body)
			}
			if len(y.calls) != 1 || y.calls[0] != tt.call {
				t.Errorf("calls %v, want %s", y.calls, tt.call)
			}
		})
	}
}

// What comes twice, late or out of order leaves the page as a fresh load would show it.
func TestRunModelApplies(t *testing.T) {
	y := newYard(t)
	s := y.serve(t)
	m, _, err := s.web.readRun(t.Context(), followerID)
	if err != nil {
		t.Fatal(err)
	}
	run := y.known[followerID]
	old, next := run, run
	old.Version, old.Title = 4, "old"
	next.Version, next.Title = 6, "next"
	open := y.rows[followerID][0]
	open.EndedAt, open.Status, open.Usage = nil, forkcore.RequestOpen, nil
	second := open
	second.N = 2
	entry := func(seq int64) *forkcore.Entry {
		return &forkcore.Entry{Seq: seq, At: noon, Kind: forkcore.EntryMessage, RunID: followerID}
	}
	y.lines[followerID] = append(y.lines[followerID], forkcore.TranscriptLine{Seq: 2, At: noon, Kind: forkcore.EntryMessage, RunID: followerID, Message: spoken("two")},
		forkcore.TranscriptLine{Seq: 3, At: noon, Kind: forkcore.EntryMessage, RunID: followerID, Message: spoken("three")})
	for _, e := range []forkcore.Event{
		{Run: &next},
		{Run: &old},
		{Run: &next},
		{Request: &open},
		{Request: &second},
		{Request: &second},
		{Entry: entry(1), AgentID: followerID},
		{Entry: entry(3), AgentID: followerID},
		{Entry: entry(2), AgentID: followerID},
		{Entry: entry(4), AgentID: followerID},
		{Entry: entry(9), AgentID: leaderID},
	} {
		e.SessionID = sessionID
		if err := m.apply(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if m.run.Title != "next" || m.siblings[1].Title != "next" {
		t.Errorf("the run is %q, among its siblings %q", m.run.Title, m.siblings[1].Title)
	}
	if len(m.rows) != 2 || m.rows[0].Status != forkcore.RequestOK || m.rows[1].N != 2 {
		t.Errorf("rows %+v", m.rows)
	}
	if m.seq != 4 || m.log.last() != 4 {
		t.Errorf("the log was read through %d", m.seq)
	}
	ids := map[string]bool{}
	for _, p := range m.parts() {
		if ids[p.id] {
			t.Errorf("part %s twice", p.id)
		}
		ids[p.id] = true
	}
	for _, id := range []string{"run-head", "run-why", "report", "run-stats", "request-" + followerID + "-2", "e-" + followerID + "-4", "run-draft"} {
		if !ids[id] {
			t.Errorf("part %s is missing", id)
		}
	}
}

func TestUnknownRunsAndRequests(t *testing.T) {
	s := newYard(t).serve(t)
	for _, path := range []string{
		pathRun + "run_03zzzzzzzzzzzzzzzz", pathRun + "x/live", pathRun + leaderID + "/requests/2", pathRun + leaderID + "/requests/0", pathRun + leaderID + "/requests/one",
		pathCompare + "?a=" + leaderID + ":1&b=run_03zzzzzzzzzzzzzzzz:1", pathCompare + "?a=" + leaderID + ":1&b=" + leaderID + ":7",
	} {
		if res, _ := s.ask(t, "GET", path, "", "Authorization", bearer); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, res.StatusCode)
		}
	}
}
