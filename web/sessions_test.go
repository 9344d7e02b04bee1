package web

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/web/api"
)

func TestSessionsPage(t *testing.T) {
	s := serve(t, withData())
	root := page(t, s, "/", 200, "Cookie", s.signIn(t))
	want := [][]string{
		{"Rewrite the parser failed The provider refused the key. Set ANTHROPIC_API_KEY to a valid key and send the message again.", "cold", "–", "no price", "project claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
		{"Audit <the> tests waiting 1 fork at work Waits for its forks. Wait, or stop the tree.", "4:00 41,200 tokens", "93.0 %", "$0.1235", "project claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
		{"Untitled not started", "cold", "–", "–", "project claude-sonnet-5-5", "2026-11-20 12:00:00 UTC"},
	}
	if diff := cmp.Diff(want, table(root)); diff != "" {
		t.Errorf("sessions (-want +got):\n%s", diff)
	}
	var headings []string
	for _, h := range all(root, "h2") {
		if attribute(h, "id") != "keys-title" {
			headings = append(headings, text(h))
		}
	}
	if diff := cmp.Diff([]string{"Needs you 1", "At work 1", "Idle 1", "See it work", "Use my repository", "Use my key"}, headings); diff != "" {
		t.Errorf("headings (-want +got):\n%s", diff)
	}
	if got := text(root); !strings.Contains(got, "Simulated model") || strings.Contains(got, "Nothing is kept.") || !strings.Contains(got, "Sign out") {
		t.Errorf("page: %s", got)
	}
}

func TestGroupSessions(t *testing.T) {
	row := func(id string, state forkcore.State, code string, created, changed int) sessionRow {
		r := sessionRow{ID: id, State: state, Created: noon.Add(time.Duration(created) * time.Minute), Changed: noon.Add(time.Duration(changed) * time.Minute)}
		if code != "" {
			r.Reason = &forkcore.Reason{Code: code}
		}
		return r
	}
	tests := []struct {
		name string
		rows []sessionRow
		want string
	}{
		{"none", nil, ""},
		{"idle by last change", []sessionRow{row("a", forkcore.Done, "", 1, 5), row("b", forkcore.Cancelled, "cancelled", 2, 9), row("c", forkcore.Done, "", 3, 7)}, "idle: b c a\n"},
		{"who waits for a person comes first", []sessionRow{
			row("done", forkcore.Done, "", 0, 9), row("children", forkcore.Waiting, "children", 0, 9), row("dear", forkcore.OverBudget, "over_budget", 0, 9),
			row("broken", forkcore.Failed, "internal", 0, 9), row("ask", forkcore.Waiting, "permission", 0, 1), row("away", forkcore.Waiting, "provider", 0, 2),
		}, "needs-you: away ask broken dear\nat-work: children\nidle: done\n"},
		{"work keeps its place", []sessionRow{
			row("old", forkcore.Running, "", 1, 99), row("new", forkcore.Queued, "", 2, 3), row("held", forkcore.Parked, "gate", 3, 3), row("limit", forkcore.Waiting, "rate_limited", 0, 50),
		}, "at-work: held new old limit\n"},
		{"no reason", []sessionRow{row("a", forkcore.Waiting, "", 0, 0)}, "at-work: a\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b strings.Builder
			for _, g := range groupSessions(test.rows) {
				b.WriteString(g.ID + ":")
				for _, r := range g.Rows {
					b.WriteString(" " + r.ID)
				}
				b.WriteString("\n")
			}
			if b.String() != test.want {
				t.Errorf("got %q, want %q", b.String(), test.want)
			}
		})
	}
}

// Every state has a place; a new one must be given one.
func TestNeedOfEveryState(t *testing.T) {
	want := map[forkcore.State]need{
		forkcore.Queued: atWork, forkcore.Running: atWork, forkcore.Parked: atWork, forkcore.Waiting: atWork,
		forkcore.Done: idle, forkcore.Cancelled: idle, forkcore.Failed: needLook, forkcore.OverBudget: needBudget,
	}
	for _, state := range forkcore.States {
		place, ok := want[state]
		if got := needOf(state, nil); !ok || got != place {
			t.Errorf("needOf(%s) = %d, want %d (known: %t)", state, got, place, ok)
		}
	}
}

func TestForksAtWork(t *testing.T) {
	tests := []struct {
		runs int64
		main string
		want string
	}{{0, "", ""}, {1, "run", ""}, {1, "", "1 fork at work"}, {6, "run", "5 forks at work"}, {6, "", "6 forks at work"}}
	for _, test := range tests {
		if got := forksAtWork(forkcore.Session{ActiveRuns: test.runs, ActiveRunID: test.main}); got != test.want {
			t.Errorf("%d runs, turn %q: %q, want %q", test.runs, test.main, got, test.want)
		}
	}
}

func TestWarmth(t *testing.T) {
	entry := &forkcore.CacheEntry{Tokens: 1_234_567, Exact: true, TTL: "5m", UsedAt: noon}
	guess := *entry
	guess.Exact, guess.TTL = false, "1h"
	own, foreign := *entry, *entry
	own.Scope, foreign.Scope = forkcore.Scope{Endpoint: "e", Key: "k"}, forkcore.Scope{Endpoint: "e", Key: "another"}
	tests := []struct {
		name  string
		entry *forkcore.CacheEntry
		after time.Duration
		want  *warmth
	}{
		{"none", nil, 0, nil},
		{"fresh", entry, 0, &warmth{noon.Add(5 * time.Minute), "5:00", "1,234,567 tokens", "cold", false}},
		{"last seconds", entry, 4*time.Minute + 55*time.Second, &warmth{noon.Add(5 * time.Minute), "0:05", "1,234,567 tokens", "cold", false}},
		{"over", entry, 5 * time.Minute, &warmth{noon.Add(5 * time.Minute), "cold", "1,234,567 tokens", "cold", false}},
		{"written with the key in use", &own, 0, &warmth{noon.Add(5 * time.Minute), "5:00", "1,234,567 tokens", "cold", false}},
		{"written with another key", &foreign, 0, &warmth{noon.Add(5 * time.Minute), "cold", "1,234,567 tokens", "cold", true}},
		{"over, and written with another key", &foreign, time.Hour, &warmth{noon.Add(5 * time.Minute), "cold", "1,234,567 tokens", "cold", false}},
		{"an hour, estimated", &guess, 0, &warmth{noon.Add(time.Hour), "60:00", "about 1,234,567 tokens", "cold", false}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, newWarmth(test.entry, "e-k", noon.Add(test.after))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Once the prefix has run out the page says what sending costs before anything is sent.
func TestB51_TheSessionSaysWhatColdCosts(t *testing.T) {
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	entry := &forkcore.CacheEntry{Tokens: 80_000, TTL: "5m", UsedAt: noon}
	for _, test := range []struct {
		name, model, left, over string
		after                   time.Duration
		prices                  api.Prices
	}{
		{"4 min 50 s", "claude-sonnet-5-5", "0:10", "cold, about $0.2000 before an answer", 290 * time.Second, catalogue},
		{"6 min", "claude-sonnet-5-5", "cold, about $0.2000 before an answer", "cold, about $0.2000 before an answer", 6 * time.Minute, catalogue},
		{"6 min, no price", "my-model", "cold", "cold", 6 * time.Minute, catalogue},
		{"6 min, no table", "claude-sonnet-5-5", "cold", "cold", 6 * time.Minute, nil},
	} {
		w := newWarmth(entry, "", noon.Add(test.after)).priced(entry, test.model, test.prices, noon.Add(test.after))
		if w.Left != test.left || w.Over != test.over {
			t.Errorf("%s: %q, then %q", test.name, w.Left, w.Over)
		}
		var page strings.Builder
		if err := prefixLeft(w).Render(t.Context(), &page); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), `data-until="`+test.over+`"`) {
			t.Errorf("%s: %s", test.name, page.String())
		}
	}
	if w := newWarmth(nil, "", noon).priced(nil, "m", catalogue, noon); w != nil {
		t.Errorf("nothing held: %+v", w)
	}
}

// changes lists the ids of the parts whose keys differ from those before, and renews them.
func changes(t *testing.T, p *sessionsPage, keys map[string]string) string {
	t.Helper()
	var ids []string
	for _, part := range p.parts() {
		if keys[part.id] != part.key {
			ids = append(ids, part.id)
		}
		keys[part.id] = part.key
	}
	return strings.Join(ids, " ")
}

func TestSessionsLive(t *testing.T) {
	load := func(t *testing.T, cursor string) (*sessionsPage, map[string]string) {
		t.Helper()
		p, last, err := serve(t, withData()).web.loadSessions(t.Context(), cursor)
		if err != nil {
			t.Fatal(err)
		}
		if want := uint64(noon.UnixMilli()); last.MS != want {
			t.Errorf("cursor %v, want %d", last, want)
		}
		keys := map[string]string{}
		changes(t, p, keys)
		return p, keys
	}
	session := func(id string, version int64, change func(*forkcore.Session)) forkcore.Event {
		e := forkcore.Session{ID: id, Title: "T", Version: version, CreatedAt: noon.Add(time.Hour), UpdatedAt: noon.Add(time.Hour)}
		if change != nil {
			change(&e)
		}
		return forkcore.Event{Type: forkcore.EventSession, SessionID: id, Session: &e}
	}
	turn := func(id, of string, version int64, state forkcore.State) forkcore.Event {
		return forkcore.Event{Type: forkcore.EventRun, SessionID: of, RunID: id, Run: &forkcore.Run{
			ID: id, SessionID: of, Kind: forkcore.KindMain, Version: version, State: state, CreatedAt: noon.Add(time.Duration(version) * time.Second),
		}}
	}
	running := func(run string) func(*forkcore.Session) {
		return func(s *forkcore.Session) { s.ActiveRunID, s.ActiveRuns = run, 1 }
	}
	const fresh, idleID, made = "ses_03dddddddddddddddd", "ses_03cccccccccccccccc", "run_03dddddddddddddddd"
	fork := turn("run_03eeeeeeeeeeeeeeee", idleID, 9, forkcore.Running)
	fork.Run.Kind = forkcore.KindFork
	old := session("ses_03eeeeeeeeeeeeeeee", 1, func(s *forkcore.Session) { s.CreatedAt = noon.Add(-time.Hour) })
	tests := []struct {
		name   string
		cursor string
		events []forkcore.Event
		want   string
	}{
		{"nothing", "", nil, ""},
		{"what the page has already", "", []forkcore.Event{session(idleID, 0, running(made))}, ""},
		{"other kinds", "", []forkcore.Event{{Type: forkcore.EventDelta, SessionID: idleID}, {Type: forkcore.EventGate, SessionID: idleID}, fork}, ""},
		{"a change in place", "", []forkcore.Event{session(idleID, 1, nil)}, idleID},
		{"a turn begins", "", []forkcore.Event{session(idleID, 1, running(made)), turn(made, idleID, 1, forkcore.Queued)}, "sessions " + idleID},
		{"the turn comes before its session", "", []forkcore.Event{turn(made, idleID, 1, forkcore.Queued), session(idleID, 1, running(made))}, "sessions " + idleID},
		{"an older turn does not matter", "", []forkcore.Event{turn("run_03ffffffffffffffff", idleID, 1, forkcore.Done)}, ""},
		{"a new session", "", []forkcore.Event{session(fresh, 1, nil)}, "sessions " + fresh},
		{"a new session, older page", "next", []forkcore.Event{session(fresh, 1, nil)}, ""},
		{"a session of an older page", "", []forkcore.Event{old}, ""},
		{"failed", "", []forkcore.Event{session(idleID, 1, func(s *forkcore.Session) { s.LastState = forkcore.Failed })}, "sessions " + idleID},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, keys := load(t, test.cursor)
			for _, e := range test.events {
				if err := p.apply(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			if got := changes(t, p, keys); got != test.want {
				t.Errorf("drawn: %q, want %q", got, test.want)
			}
		})
	}
}

// Whatever changes in a row changes its key, and what is drawn does not depend on the time of drawing.
func TestRowKey(t *testing.T) {
	s := withData().sessions[0]
	turn := forkcore.Run{ID: mainID, Version: 3}
	a := newSessionRow(s, &turn, "", noon)
	if b := newSessionRow(s, &turn, "", noon.Add(time.Minute)); a.Key != b.Key {
		t.Errorf("keys differ by the clock: %q, %q", a.Key, b.Key)
	}
	turn.Version++
	newer := s
	newer.Version++
	if b, c := newSessionRow(s, &turn, "", noon), newSessionRow(newer, &turn, "", noon); a.Key == b.Key || b.Key == c.Key {
		t.Errorf("keys %q, %q, %q", a.Key, b.Key, c.Key)
	}
}

// What agents and users wrote cannot become markup, whole or in a part of the stream.
func TestHostileTitles(t *testing.T) {
	f := withData()
	const hostile = `</tr><img src=x onerror=alert(1)><b hx-get="/logout" hx-trigger="load">`
	for i := range f.sessions {
		f.sessions[i].Title, f.sessions[i].Workspace, f.sessions[i].Model = hostile, "/srv/"+hostile, hostile
	}
	f.sessions[1].LastReason = &forkcore.Reason{Code: "internal", Message: hostile, NextStep: hostile}
	s := serve(t, f)
	root := page(t, s, "/", 200, "Cookie", s.signIn(t))
	if n := len(all(root, "b")); n > 0 || len(table(root)) != 3 {
		t.Errorf("%d elements from a title, %d rows", n, len(table(root)))
	}
	p, _, err := s.web.loadSessions(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range p.parts() {
		var b strings.Builder
		if err := part.draw.Render(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "<b ") || strings.Contains(b.String(), "<img") {
			t.Errorf("%s: %s", part.id, b.String())
		}
	}
}

func TestPagesOfSessions(t *testing.T) {
	f := &pagedSessions{fake: withData(), next: "17-ses_03aaaaaaaaaaaaaaaa"}
	s := serve(t, f.fake, func(o *Options) { o.Reader = f })
	links := func(path string) string {
		var out []string
		for _, a := range all(page(t, s, path, 200, "Cookie", s.signIn(t)), "a") {
			if name := text(a); strings.HasSuffix(name, " sessions") {
				out = append(out, name+" "+attribute(a, "href"))
			}
		}
		return strings.Join(out, ", ")
	}
	if got, want := links("/"), "Older sessions /?cursor=17-ses_03aaaaaaaaaaaaaaaa"; got != want {
		t.Errorf("first page: %q, want %q", got, want)
	}
	f.next = ""
	if got, want := links("/?cursor=x%26y"), "Newest sessions /"; got != want {
		t.Errorf("last page: %q, want %q", got, want)
	}
	if got, want := fmt.Sprint(f.cursors), "[ x&y]"; got != want {
		t.Errorf("cursors %q, want %q", got, want)
	}
}

// pagedSessions has another page.
type pagedSessions struct {
	*fake
	next    string
	cursors []string
}

func (p *pagedSessions) Sessions(_ context.Context, cursor string, _ int) ([]forkcore.Session, string, error) {
	p.cursors = append(p.cursors, cursor)
	return p.sessions, p.next, nil
}

func TestHomeLiveAnswers(t *testing.T) {
	s := serve(t, withData())
	cookie := s.signIn(t)
	connected := ""
	for _, div := range all(page(t, s, "/?cursor=a%26b", 200, "Cookie", cookie), "div") {
		connected += attribute(div, "hx-sse:connect")
	}
	if want := "/live?after=1795176000000-0&cursor=a%26b"; connected != want {
		t.Errorf("the page connects to %q, want %q", connected, want)
	}
	res, _ := s.ask(t, "HEAD", "/live?after=0-0", "", "Cookie", cookie)
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %s", res.StatusCode, res.Header.Get("Content-Type"))
	}
	if res, _ = s.ask(t, "HEAD", "/live?after=soon", "", "Cookie", cookie); res.StatusCode != 422 {
		t.Errorf("cursor that is none: %d, want 422", res.StatusCode)
	}
	if res, _ = s.ask(t, "HEAD", "/live", ""); res.StatusCode == 200 {
		t.Error("a stream for somebody who is not signed in")
	}
}
