package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// fake is everything the API needs, one function each. Functions that a test does not expect are nil.
type fake struct {
	provider           Provider // nil: there is none
	storage            Storage
	queue              Queue
	createSession      func(forkcore.SessionSpec, string) (forkcore.Session, bool, error)
	sendMessage        func(sessionID, text, key string) (string, error)
	quoteForks         func(string, forkcore.ForkSpec) (forkcore.Quote, error)
	fork               func(string, forkcore.ForkSpec, string) (forkcore.Dispatch, []forkcore.Run, error)
	stop               func(sessionID, scope string) ([]string, error)
	cancel             func(string) error
	background         func(string) error
	resume             func(string) (string, error)
	resumeDispatch     func(string) ([]string, error)
	retry              func(string, forkcore.RetrySpec, string) (forkcore.Dispatch, []forkcore.Run, error)
	setBudget          func(string, *float64) error
	deliver            func(string) error
	session            func(string) (forkcore.Session, error)
	sessions           func(cursor string, limit int) ([]forkcore.Session, string, error)
	runsOf             func(sessionID, cursor string, limit int) ([]forkcore.Run, string, error)
	run                func(string) (forkcore.Run, error)
	requests           func(string) ([]forkcore.RequestRow, error)
	dispatch           func(string) (forkcore.Dispatch, error)
	snapshot           func(string, forkcore.Digest) (forkcore.Snapshot, error)
	sessionsOfSnapshot func(forkcore.Digest) ([]string, error)
	transcript         func(string, int64) ([]forkcore.TranscriptLine, error)
	requestBody        func(string, int64) ([]byte, error)
	snapshotBytes      func(string, forkcore.Digest) ([]byte, error)
	assemble           func(string, forkcore.Entry, string) (forkcore.TranscriptLine, error)
	events             func(sessionID, after string, limit int) ([]forkcore.Event, error)
	lastEventID        func(string) (string, error)
	live               func(context.Context, time.Time, func(forkcore.Event)) error
}

func (f *fake) CreateSession(_ context.Context, s forkcore.SessionSpec, key string) (forkcore.Session, bool, error) {
	return f.createSession(s, key)
}

func (f *fake) SendMessage(_ context.Context, id, text, key string) (string, error) {
	return f.sendMessage(id, text, key)
}

func (f *fake) QuoteForks(_ context.Context, id string, s forkcore.ForkSpec) (forkcore.Quote, error) {
	return f.quoteForks(id, s)
}

func (f *fake) Fork(_ context.Context, id string, s forkcore.ForkSpec, key string) (forkcore.Dispatch, []forkcore.Run, error) {
	return f.fork(id, s, key)
}

func (f *fake) Stop(_ context.Context, id, scope string) ([]string, error) { return f.stop(id, scope) }
func (f *fake) Cancel(_ context.Context, id string) error                  { return f.cancel(id) }
func (f *fake) Background(_ context.Context, id string) error              { return f.background(id) }

func (f *fake) Flags(context.Context) ([]forkcore.Flag, error) { return forkcore.Flags(), nil }

func (f *fake) SetFlag(_ context.Context, name string, value bool) (forkcore.Flag, error) {
	for _, flag := range forkcore.Flags() {
		if flag.Name == name {
			flag.Value, flag.Set = value, true
			return flag, nil
		}
	}
	return forkcore.Flag{}, forkcore.ErrNotFound
}

func (f *fake) Resume(_ context.Context, id string) (string, error) { return f.resume(id) }
func (f *fake) ResumeDispatch(_ context.Context, id string) ([]string, error) {
	return f.resumeDispatch(id)
}

func (f *fake) Retry(_ context.Context, id string, s forkcore.RetrySpec, key string) (forkcore.Dispatch, []forkcore.Run, error) {
	return f.retry(id, s, key)
}

func (f *fake) SetBudget(_ context.Context, id string, usd *float64) error {
	return f.setBudget(id, usd)
}
func (f *fake) DeliverNotices(_ context.Context, id string) error { return f.deliver(id) }

func (f *fake) Session(_ context.Context, id string) (forkcore.Session, error) {
	return f.session(id)
}

func (f *fake) Sessions(_ context.Context, cursor string, limit int) ([]forkcore.Session, string, error) {
	return f.sessions(cursor, limit)
}

func (f *fake) RunsOf(_ context.Context, id, cursor string, limit int) ([]forkcore.Run, string, error) {
	return f.runsOf(id, cursor, limit)
}
func (f *fake) Run(_ context.Context, id string) (forkcore.Run, error) { return f.run(id) }
func (f *fake) Requests(_ context.Context, id string) ([]forkcore.RequestRow, error) {
	return f.requests(id)
}

func (f *fake) Dispatch(_ context.Context, id string) (forkcore.Dispatch, error) {
	return f.dispatch(id)
}

func (f *fake) Snapshot(_ context.Context, id string, d forkcore.Digest) (forkcore.Snapshot, error) {
	return f.snapshot(id, d)
}

func (f *fake) SessionsOfSnapshot(_ context.Context, d forkcore.Digest) ([]string, error) {
	return f.sessionsOfSnapshot(d)
}

func (f *fake) Transcript(_ context.Context, id string, after int64) ([]forkcore.TranscriptLine, error) {
	return f.transcript(id, after)
}

func (f *fake) RequestBody(_ context.Context, id string, n int64) ([]byte, error) {
	return f.requestBody(id, n)
}

func (f *fake) SnapshotBytes(_ context.Context, id string, d forkcore.Digest) ([]byte, error) {
	return f.snapshotBytes(id, d)
}

func (f *fake) Assemble(_ context.Context, id string, e forkcore.Entry, agent string) (forkcore.TranscriptLine, error) {
	return f.assemble(id, e, agent)
}

func (f *fake) Events(_ context.Context, id, after string, limit int) ([]forkcore.Event, error) {
	return f.events(id, after, limit)
}

func (f *fake) LastEventID(_ context.Context, id string) (string, error) { return f.lastEventID(id) }

func (f *fake) Live(ctx context.Context, since time.Time, fn func(forkcore.Event)) error {
	if f.live == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.live(ctx, since, fn)
}

const (
	sessionID  = "ses_03aaaaaaaaaaaaaaaa"
	mainID     = "run_03aaaaaaaaaaaaaaaa"
	forkID     = "run_03bbbbbbbbbbbbbbbb"
	otherFork  = "run_03cccccccccccccccc"
	dispatchID = "dsp_03aaaaaaaaaaaaaaaa"
)

var (
	noon     = time.Date(2026, 11, 20, 12, 0, 0, 123_456_789, time.UTC)
	snapID   = forkcore.DigestOf([]byte("prefix"))
	sample   = forkcore.Usage{Input: 10, CacheWrite5m: 20, CacheRead: 70, Output: 5}
	thousand = int64(1000)
)

// newFake serves one session with a main turn, two forks and their dispatch, and knows nothing else.
func newFake() *fake {
	f := &fake{}
	s := forkcore.Session{
		ID: sessionID, Title: "First", Workspace: "/srv/project", Model: "claude-sonnet-5-5", Mode: forkcore.ModeFork,
		PermissionMode: forkcore.PermissionDefault, Thinking: []byte(`{"type":"adaptive"}`), Interactive: true,
		AutoBackground: 90 * time.Second, BudgetNanoUSD: 5_000_000_000, CreatedAt: noon, UpdatedAt: noon, Version: 7,
		ActiveRunID: mainID, ActiveRuns: 2, Usage: sample, Cost: forkcore.Cost{NanoUSD: 1234},
		Warm: &forkcore.CacheEntry{Prefix: snapID, Bytes: 4000, Tokens: 1000, Exact: true, TTL: "5m", UsedAt: noon},
	}
	main := forkcore.Run{
		ID: mainID, SessionID: sessionID, AgentID: sessionID, Kind: forkcore.KindMain, State: forkcore.Waiting,
		Reason: &forkcore.Reason{Code: "rate_limit", Message: "m", NextStep: "n"}, CreatedAt: noon, UpdatedAt: noon, StartedAt: noon,
		Requests: 1, ToolUses: 1, LastTool: "Read", LastToolDetail: "README.md", Usage: sample, Cost: forkcore.Cost{NanoUSD: 1000}, Version: 3,
	}
	child := func(id, title string, index int) forkcore.Run {
		return forkcore.Run{
			ID: id, SessionID: sessionID, AgentID: id, Kind: forkcore.KindFork, Title: title, Directive: "Do " + title,
			DispatchID: dispatchID, ParentRunID: mainID, ToolUseID: "toolu_1", Index: index, Snapshot: snapID,
			State: forkcore.Done, Background: true, Leader: index == 0, CreatedAt: noon, UpdatedAt: noon, StartedAt: noon, EndedAt: noon,
			Requests: 2, Usage: sample, Cost: forkcore.Cost{NanoUSD: 117}, InheritedTokens: 80, InheritedRead: 70,
			Report: &forkcore.Report{Scope: "s", Result: "r " + title, KeyFiles: "k", FilesChanged: "- `a.go`: new\n- " + title + ".md", Issues: "none", Text: "t"},
		}
	}
	runs := map[string]forkcore.Run{mainID: main, forkID: child(forkID, "docs", 0), otherFork: child(otherFork, "tests", 1)}
	first := noon.Add(time.Second)
	rows := []forkcore.RequestRow{
		{
			RunID: forkID, SessionID: sessionID, N: 1, StartedAt: noon, FirstEventAt: &first, EndedAt: &first, Attempt: 1, Model: "claude-sonnet-5-5",
			Prefix: snapID, PrefixBytes: 6, Body: snapID, BodyBytes: 9, Marks: []forkcore.Mark{{Block: "system.0", TTL: "5m"}}, ExpectedRead: &thousand,
			Usage: &sample, Cost: &thousand, ReadFrom: &forkcore.RequestRef{RunID: mainID, N: 1},
			Miss: &forkcore.MissReason{Code: "race", Path: "messages.0"}, StopReason: "end_turn", Status: forkcore.RequestOK,
		},
		{RunID: forkID, SessionID: sessionID, N: 2, StartedAt: noon, Attempt: 1, Model: "x", Status: forkcore.RequestOpen},
	}
	quoted, zero := int64(1000), int64(0)
	quote := forkcore.Quote{
		Model: "claude-sonnet-5-5", Children: 2, Gate: true, ColdNanoUSD: &quoted, ColdNote: "Cold.", SharedBytes: 6, Unique: []forkcore.Unique{{Bytes: 5, Tokens: 2}, {Bytes: 4, Tokens: 1}},
		Window:    &forkcore.Window{Tokens: 9, SharedTokens: 2, OwnTokens: 2, Index: 0, OutputTokens: 9, Note: "An answer is cut."},
		BreakEven: &forkcore.BreakEven{Turns: 5, Assumed: true, NeededTokens: &zero, CarriedNanoUSD: &zero}, Advice: &forkcore.Advice{Choice: forkcore.ChooseNoFork, Reason: "Short."},
		PerTurn: []forkcore.TurnCost{{Turn: 1, ForkNanoUSD: &quoted}},
	}
	d := forkcore.Dispatch{
		ID: dispatchID, SessionID: sessionID, ParentRunID: mainID, Snapshot: snapID, RunIDs: []string{forkID, otherFork},
		Quote: quote, Notify: forkcore.NotifyAllDone,
		GateMode: forkcore.GateAuto, Gate: forkcore.GateOpen, Generation: 1, LeaderRunID: forkID,
		GateHistory: []forkcore.GateEvent{{At: noon, Generation: 1, Type: "closed", RunID: forkID, Cause: "dispatch"}},
		Usage:       sample, Cost: forkcore.Cost{NanoUSD: 234}, FirstRequests: forkcore.Cost{NanoUSD: 1500}, FirstRequestUsage: sample,
		CreatedAt: noon, UpdatedAt: noon, EndedAt: noon,
	}
	snap := forkcore.Snapshot{ID: snapID, SessionID: sessionID, Bytes: 6, Segments: []forkcore.Segment{{SHA256: snapID, Bytes: 6, Open: true}}, CreatedAt: noon}

	f.createSession = func(forkcore.SessionSpec, string) (forkcore.Session, bool, error) { return s, true, nil }
	f.session = func(id string) (forkcore.Session, error) { return only(id, sessionID, s) }
	f.sessions = func(string, int) ([]forkcore.Session, string, error) { return []forkcore.Session{s}, "", nil }
	f.runsOf = func(id, _ string, _ int) ([]forkcore.Run, string, error) {
		found, err := only(id, sessionID, []forkcore.Run{runs[otherFork], runs[forkID], runs[mainID]})
		return found, "", err
	}
	f.run = func(id string) (forkcore.Run, error) {
		if r, ok := runs[id]; ok {
			return r, nil
		}
		return only(id, "", forkcore.Run{})
	}
	f.requests = func(id string) ([]forkcore.RequestRow, error) { return only(id, forkID, rows) }
	f.dispatch = func(id string) (forkcore.Dispatch, error) { return only(id, dispatchID, d) }
	f.snapshot = func(id string, _ forkcore.Digest) (forkcore.Snapshot, error) { return only(id, sessionID, snap) }
	f.sessionsOfSnapshot = func(id forkcore.Digest) ([]string, error) {
		if id != snapID {
			return nil, nil
		}
		return []string{"ses_03zzzzzzzzzzzzzzzz", sessionID}, nil
	}
	f.sendMessage = func(id, _, _ string) (string, error) { return only(id, sessionID, mainID) }
	f.quoteForks = func(id string, _ forkcore.ForkSpec) (forkcore.Quote, error) { return only(id, sessionID, d.Quote) }
	f.fork = func(id string, _ forkcore.ForkSpec, _ string) (forkcore.Dispatch, []forkcore.Run, error) {
		_, err := only(id, sessionID, 0)
		return d, []forkcore.Run{runs[forkID], runs[otherFork]}, err
	}
	f.stop = func(id, _ string) ([]string, error) { return only(id, sessionID, []string{mainID, forkID}) }
	f.cancel = func(id string) error { _, err := f.run(id); return err }
	f.background = f.cancel
	f.resume = func(id string) (string, error) { return id, f.cancel(id) }
	f.resumeDispatch = func(id string) ([]string, error) { return only(id, dispatchID, []string{forkID}) }
	f.retry = func(id string, _ forkcore.RetrySpec, _ string) (forkcore.Dispatch, []forkcore.Run, error) {
		_, err := only(id, dispatchID, 0)
		return d, []forkcore.Run{runs[forkID]}, err
	}
	f.setBudget = func(id string, _ *float64) error {
		if id == sessionID {
			return nil
		}
		_, err := only(id, dispatchID, 0)
		return err
	}
	f.queue = &queue{}
	f.storage = &storage{known: forkcore.Storage{Sessions: []forkcore.StoredSession{{Session: s, Bytes: 70_000}}}}
	f.deliver = func(id string) error { _, err := only(id, dispatchID, 0); return err }
	f.transcript = func(id string, after int64) ([]forkcore.TranscriptLine, error) {
		if _, err := f.run(id); err != nil {
			return nil, err
		}
		return []forkcore.TranscriptLine{
			{Seq: 1, At: noon, Kind: forkcore.EntryMarker, RunID: mainID, Marker: &forkcore.Marker{Type: forkcore.MarkerTurnStart}},
			{Seq: 2, At: noon, Kind: forkcore.EntryMessage, RunID: mainID, Message: []byte(messageBytes)},
		}[min(after, 2):], nil
	}
	f.requestBody = func(id string, n int64) ([]byte, error) {
		if n > 2 {
			return nil, forkcore.ErrNotFound
		}
		return only(id, forkID, []byte(messageBytes))
	}
	f.snapshotBytes = func(id string, _ forkcore.Digest) ([]byte, error) { return only(id, sessionID, []byte("prefix")) }
	f.assemble = func(_ string, e forkcore.Entry, _ string) (forkcore.TranscriptLine, error) {
		return forkcore.TranscriptLine{Seq: e.Seq, At: e.At, Kind: e.Kind, RunID: e.RunID, Message: []byte(messageBytes)}, nil
	}
	f.events = func(string, string, int) ([]forkcore.Event, error) { return nil, nil }
	f.lastEventID = func(string) (string, error) { return "5-0", nil }
	return f
}

// messageBytes is what an encoder would change: key order, a space, HTML characters, an escape.
const messageBytes = `{"role":"user", "content":[{"type":"text","text":"a<b>&\u00e9\u2028"}],"a":1.0}`

// only is a reader that knows one id.
func only[T any](id, known string, v T) (T, error) {
	var none T
	if id == known {
		return v, nil
	}
	if _, err := forkcore.ShardOf(id); err != nil {
		return none, err
	}
	return none, forkcore.ErrNotFound
}

// serve mounts the API over a fake as package web does, without its middleware.
func serve(t *testing.T, f *fake) *httptest.Server {
	t.Helper()
	prices, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{
		Runner: f, Reader: f, Bytes: f, Events: f, Prices: prices, Simulated: true,
		Storage: f.storage, Queue: f.queue, Provider: f.provider, Endpoint: Endpoint{Host: "api.example.com", KeyEnd: func() string { return "wxyz" }},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return noon.Add(time.Minute) },
	})
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if err := WriteProblem(c, ProblemOf(err)); err != nil {
			t.Error(err)
		}
	}
	a.Mount(e.Group("/api/v1"))
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	t.Cleanup(a.Close)
	return server
}

// call sends a request and reads the whole answer.
func call(t *testing.T, server *httptest.Server, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := server.Client().Do(r)
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
