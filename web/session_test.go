package web

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// logOf is a byte reader over one log in memory.
type logOf struct {
	fakeBytes
	lines []forkcore.TranscriptLine
	read  []int64 // what Transcript was asked for
}

// fakeBytes panics at what no test expects.
type fakeBytes struct{}

func (fakeBytes) RequestBody(context.Context, string, int64) ([]byte, error) { panic("not expected") }

func (fakeBytes) SnapshotBytes(context.Context, string, forkcore.Digest) ([]byte, error) {
	panic("not expected")
}

func (l *logOf) Transcript(_ context.Context, _ string, after int64) ([]forkcore.TranscriptLine, error) {
	l.read = append(l.read, after)
	return l.lines[min(after, int64(len(l.lines))):], nil
}

func (l *logOf) Assemble(_ context.Context, _ string, e forkcore.Entry, _ string) (forkcore.TranscriptLine, error) {
	return l.lines[e.Seq-1], nil
}

func userLine(seq int64, text string) forkcore.TranscriptLine {
	return forkcore.TranscriptLine{
		Seq: seq, At: noon, Kind: forkcore.EntryMessage, RunID: mainID,
		Message: forkcore.EncodeMessage(forkcore.RoleUser, forkcore.AppendTextBlock(nil, text)),
	}
}

func entryEvent(seq int64) forkcore.Event {
	return forkcore.Event{
		Type: forkcore.EventMessage, SessionID: sessionID, RunID: mainID, AgentID: sessionID,
		Entry: &forkcore.Entry{Seq: seq, Kind: forkcore.EntryMessage, RunID: mainID},
	}
}

// openSession loads the page of a session of a fake.
func openSession(t *testing.T, f *fake, log *logOf) *sessionPage {
	t.Helper()
	s := serve(t, f, func(o *Options) { o.Bytes = log }).web
	p, _, err := s.loadSession(t.Context(), sessionID, -1, "")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func idleSession() *fake {
	f := newFake()
	f.sessions = []forkcore.Session{{ID: sessionID, Title: "Audit", Mode: forkcore.ModeFork, Version: 3, CreatedAt: noon, UpdatedAt: noon, LastRunID: mainID, LastState: forkcore.Done}}
	f.runs[sessionID] = []forkcore.Run{{ID: mainID, SessionID: sessionID, AgentID: sessionID, Kind: forkcore.KindMain, State: forkcore.Done, Version: 2, CreatedAt: noon, UpdatedAt: noon}}
	return f
}

func keysOf(p *sessionPage) map[string]string {
	m := map[string]string{}
	for _, part := range p.parts() {
		m[part.id] = part.key
	}
	return m
}

// changed lists the parts whose keys an event changes.
func changed(t *testing.T, p *sessionPage, e forkcore.Event) []string {
	t.Helper()
	before := keysOf(p)
	p.s.drafts.Observe(e) // as the hub does first
	if err := p.apply(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, part := range p.parts() {
		if key, known := before[part.id]; !known || key != part.key {
			ids = append(ids, part.id)
		}
	}
	return ids
}

func TestSessionPageTakesInEvents(t *testing.T) {
	log := &logOf{lines: []forkcore.TranscriptLine{userLine(1, "one"), userLine(2, "two"), userLine(3, "three"), userLine(4, "four")}}
	all := log.lines
	log.lines = all[:1]
	f := idleSession()
	p := openSession(t, f, log)
	log.lines = all

	seqs := func() (list []int64) {
		for _, l := range p.log.lines {
			list = append(list, l.Seq)
		}
		return list
	}
	for _, step := range []struct {
		seq  int64
		want []int64
	}{{1, []int64{1}}, {2, []int64{1, 2}}, {2, []int64{1, 2}}, {4, []int64{1, 2, 3, 4}}, {3, []int64{1, 2, 3, 4}}} {
		if err := p.apply(t.Context(), entryEvent(step.seq)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, seqs()); diff != "" {
			t.Errorf("after entry %d (-want +got):\n%s", step.seq, diff)
		}
	}
	other := entryEvent(5)
	other.AgentID = "run_03bbbbbbbbbbbbbbbb"
	if ids := changed(t, p, other); len(ids) != 0 {
		t.Errorf("an entry of a fork's log changed %v", ids)
	}

	run := f.runs[sessionID][0]
	run.Version, run.State = 1, forkcore.Failed
	if ids := changed(t, p, forkcore.Event{Type: forkcore.EventRun, Run: &run}); len(ids) != 0 || p.runs[mainID].State != forkcore.Done {
		t.Errorf("an older version of a run changed %v", ids)
	}
	session := f.sessions[0]
	session.Version, session.Usage = 4, forkcore.Usage{Input: 5}
	if diff := cmp.Diff([]string{"session-head"}, changed(t, p, forkcore.Event{Type: forkcore.EventSession, Session: &session})); diff != "" {
		t.Errorf("parts changed by a session event (-want +got):\n%s", diff)
	}
	if ids := changed(t, p, forkcore.Event{Type: forkcore.EventSession, Session: &session}); len(ids) != 0 {
		t.Errorf("the same event again changed %v", ids)
	}
}

func TestSessionPageShowsNewForks(t *testing.T) {
	f := idleSession()
	p := openSession(t, f, &logOf{})
	fork := forkcore.Run{
		ID: "run_03bbbbbbbbbbbbbbbb", SessionID: sessionID, Kind: forkcore.KindFork, DispatchID: "dsp_03aaaaaaaaaaaaaaaa", State: forkcore.Queued, Version: 1,
		CreatedAt: noon.Add(time.Minute), UpdatedAt: noon.Add(time.Minute),
	}
	f.dispatches = map[string]forkcore.Dispatch{fork.DispatchID: {ID: fork.DispatchID, SessionID: sessionID, RunIDs: []string{fork.ID}, Version: 1, CreatedAt: fork.CreatedAt}}
	want := []string{"forks", "fanout-" + fork.DispatchID, "fork-" + fork.ID}
	if diff := cmp.Diff(want, changed(t, p, forkcore.Event{Type: forkcore.EventRun, Run: &fork})); diff != "" {
		t.Errorf("parts changed by a new fork (-want +got):\n%s", diff)
	}
	row := forkcore.RequestRow{RunID: fork.ID, N: 1, Status: forkcore.RequestOpen, StartedAt: noon}
	if diff := cmp.Diff([]string{"fork-" + fork.ID}, changed(t, p, forkcore.Event{Type: forkcore.EventRequest, Request: &row})); diff != "" {
		t.Errorf("parts changed by its request (-want +got):\n%s", diff)
	}
	ended := noon.Add(2 * time.Minute)
	settled := row
	settled.Status, settled.EndedAt = forkcore.RequestOK, &ended
	changed(t, p, forkcore.Event{Type: forkcore.EventRequest, Request: &settled})
	if ids := changed(t, p, forkcore.Event{Type: forkcore.EventRequest, Request: &row}); len(ids) != 0 {
		t.Errorf("the open row came after the settled one and changed %v", ids)
	}
	delta := piece{Seq: 2, Kind: "text", Text: "Looking"}.event(fork.ID)
	fork.State, fork.Version = forkcore.Running, 2
	changed(t, p, forkcore.Event{Type: forkcore.EventRun, Run: &fork})
	if diff := cmp.Diff([]string{"fork-" + fork.ID}, changed(t, p, delta)); diff != "" {
		t.Errorf("parts changed by a piece of text (-want +got):\n%s", diff)
	}
}

func TestTurnPart(t *testing.T) {
	busy := func(change func(*forkcore.Session, *forkcore.Run)) *fake {
		f := idleSession()
		s, r := &f.sessions[0], &f.runs[sessionID][0]
		s.ActiveRunID, s.ActiveRuns, s.AutoBackground = mainID, 1, 2*time.Minute
		r.State, r.StartedAt = forkcore.Running, noon
		if change != nil {
			change(s, r)
		}
		return f
	}
	item := func(id string, after time.Duration) forkcore.InboxItem {
		return forkcore.InboxItem{ID: id, Kind: "message", Text: "text of " + id, At: noon.Add(after)}
	}
	tests := []struct {
		name string
		fake *fake
		want string
	}{
		{"idle", idleSession(), "busy=false foreground=false moves=never tree=false queued=[]"},
		{"in the foreground", busy(nil), "busy=true foreground=true moves=12:02 tree=true queued=[]"},
		{"never moves", busy(func(s *forkcore.Session, _ *forkcore.Run) { s.AutoBackground = 0 }), "busy=true foreground=true moves=never tree=true queued=[]"},
		{"moved", busy(func(_ *forkcore.Session, r *forkcore.Run) { r.Background = true }), "busy=true foreground=false moves=never tree=true queued=[]"},
		{"waits", busy(func(_ *forkcore.Session, r *forkcore.Run) { r.State = forkcore.Waiting }), "busy=true foreground=false moves=never tree=true queued=[]"},
		{"typed during the turn", func() *fake {
			f := busy(nil)
			f.inbox = []forkcore.InboxItem{item("first", 0), item("second", time.Second), {ID: "n", Kind: "notification", At: noon.Add(time.Second)}}
			return f
		}(), "busy=true foreground=true moves=12:02 tree=true queued=[second]"},
		{"typed before a stop", func() *fake { f := idleSession(); f.inbox = []forkcore.InboxItem{item("late", 0)}; return f }(), "busy=false foreground=false moves=never tree=false queued=[late]"},
		{"only forks run", func() *fake { f := idleSession(); f.sessions[0].ActiveRuns = 2; return f }(), "busy=false foreground=false moves=never tree=true queued=[]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := openSession(t, test.fake, &logOf{}).turn(0)
			moves := "never"
			if !v.Moves.IsZero() {
				moves = v.Moves.Format("15:04")
			}
			queued := []string{}
			for _, q := range v.Queued {
				queued = append(queued, q.ID)
			}
			if got := fmt.Sprintf("busy=%t foreground=%t moves=%s tree=%t queued=%v", v.Busy, v.Foreground, moves, v.Tree, queued); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestComposer: a text is sent once, the form is emptied for the next one, and an error comes back as a notice beside it.
func TestComposer(t *testing.T) {
	f := idleSession()
	s := serve(t, f)
	cookie := s.signIn(t)
	form := []string{"Cookie", cookie, "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin"}
	path := pathSession + sessionID
	if res, _ := s.ask(t, "POST", path+"/messages", "text=hello&key=k1", form...); res.StatusCode != 303 || res.Header.Get("Location") != path {
		t.Errorf("without htmx: %d to %q", res.StatusCode, res.Header.Get("Location"))
	}
	res, body := s.ask(t, "POST", path+"/messages", "text=hello&key=k1", append(form, "HX-Request", "true")...)
	if res.StatusCode != 204 {
		t.Errorf("with htmx: %d %v %s", res.StatusCode, res.Header, body)
	}
	res, body = s.ask(t, "POST", path+"/messages", "text=panic&key=k2", append(form, "HX-Request", "true")...)
	if res.StatusCode != 500 || res.Header.Get("HX-Retarget") != "#toast" || len(body) == 0 {
		t.Errorf("an error: %d %v %s", res.StatusCode, res.Header, body)
	}
	if res, _ := s.ask(t, "POST", path+"/stop", "scope=turn", append(form, "HX-Request", "true")...); res.StatusCode != 204 {
		t.Errorf("stop: %d", res.StatusCode)
	}
	if diff := cmp.Diff([]string{"message", "message", "message", "stop turn"}, f.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
