package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// simulated is a yard in front of the simulator with its honest cache and its diagnostics. Its agents only talk.
type simulated struct {
	*yard
	sim *modelsim.Server
}

func newSimulated(t *testing.T, o modelsim.Options, set ...func(*engine.Options)) *simulated {
	t.Helper()
	y, sim := newSimulatedYard(t, o, func(call) reply { return say(reportText) },
		append([]func(*engine.Options){func(o *engine.Options) { o.Diagnostics = true }}, set...)...)
	return &simulated{y, sim}
}

// elsewhere lets a further engine execute from now on.
func (s *simulated) elsewhere(change func(*engine.Options)) *engine.Engine {
	s.Helper()
	s.engine = s.workerElsewhere(change)
	return s.engine
}

// workerElsewhere starts another engine beside the one that is spoken to: a worker.
func (s *simulated) workerElsewhere(change func(*engine.Options)) *engine.Engine {
	s.Helper()
	o := s.options
	change(&o)
	e, _ := s.start(o)
	s.queue.executor(e)
	return e
}

// row is the only request of a run.
func (s *simulated) row(r forkcore.Run) forkcore.RequestRow {
	s.Helper()
	rows := s.requests(r.ID)
	if len(rows) != 1 || rows[0].Status != forkcore.RequestOK {
		s.Fatalf("requests of a run: %+v, want one that went well; the run: %s %+v", rows, r.State, r.Reason)
	}
	return rows[0]
}

func (s *simulated) wantMiss(row forkcore.RequestRow, code, path, detail string) {
	s.Helper()
	if m := row.Miss; m == nil || m.Code != code || m.Path != path || !strings.Contains(m.Detail, detail) {
		s.Errorf("read %d of %d, explained as %+v; want %s at %q: %s", row.Usage.CacheRead, *row.ExpectedRead, m, code, path, detail)
	}
}

// wantBytes rebuilds every request from the log and finds it among what the simulator received.
func (s *simulated) wantBytes() {
	s.Helper()
	received := map[string]bool{}
	for _, c := range s.sim.Requests() {
		received[string(c.Body)] = true
	}
	for _, r := range s.runs() {
		for _, row := range s.requests(r.ID) {
			body, err := s.engine.RequestBody(s.ctx, r.ID, row.N)
			if err != nil || !received[string(body)] {
				s.Errorf("request %d of the %s run is not rebuilt to what was received: %v", row.N, r.Kind, err)
			}
		}
	}
}

// What is read as expected has no reason, asks the provider with the message that wrote the entry, and costs no read of the store beyond the usual.
func TestDiagnosticsNameTheMessageThatWroteTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{})
		counted := &entryReads{Store: s.store}
		s.elsewhere(func(o *engine.Options) { o.Store = counted })
		first := s.row(s.ask("first"))
		if first.Diagnostics == nil || first.Diagnostics.PreviousMessageID != "" || first.MessageID == "" {
			t.Errorf("the first request asks %+v, its answer is %q", first.Diagnostics, first.MessageID)
		}
		cold := counted.reads.Swap(0)
		second := s.row(s.ask("second"))
		want(t, "reads of entries by a turn that read all, beyond those of one that had nothing to read", counted.reads.Load()-cold, 0)
		if second.Miss != nil || second.Usage.CacheRead != first.Usage.Cached() {
			t.Errorf("read %d of %d, explained as %+v", second.Usage.CacheRead, first.Usage.Cached(), second.Miss)
		}
		want(t, "previous message of the second", second.Diagnostics.PreviousMessageID, first.MessageID)
		if second.Diagnosis != nil {
			t.Errorf("a conversation that only grew is diagnosed as %+v", second.Diagnosis)
		}
		if second.Scope.Workspace == "" || second.Scope.Key == "" || second.Scope != first.Scope {
			t.Errorf("scopes %+v and %+v", first.Scope, second.Scope)
		}

		// Forks: the leader compares with the parent's answer, followers with the leader's, whose directive is another one.
		_, runs, err := s.engine.Fork(s.ctx, s.session.ID, directives("d1", "d2"), "")
		if err != nil {
			t.Fatal(err)
		}
		lead, follow := s.row(s.ended(runs[0].ID)), s.row(s.ended(runs[1].ID))
		want(t, "previous message of the leader", lead.Diagnostics.PreviousMessageID, second.MessageID)
		want(t, "previous message of the follower", follow.Diagnostics.PreviousMessageID, lead.MessageID)
		if follow.Diagnosis == nil || follow.Diagnosis.Type != forkcore.DiagnosisMessages || follow.Miss != nil || follow.Usage.CacheRead != *follow.ExpectedRead {
			t.Errorf("the follower read %d of %d, is diagnosed as %+v and explained as %+v", follow.Usage.CacheRead, *follow.ExpectedRead, follow.Diagnosis, follow.Miss)
		}
		s.idle()
		s.wantBytes()

		quiet := s.elsewhere(func(o *engine.Options) { o.Diagnostics = false })
		third := s.row(s.ask("third"))
		body, err := quiet.RequestBody(t.Context(), third.RunID, 1)
		if err != nil || third.Diagnostics != nil || strings.Contains(string(body), "diagnostics") {
			t.Errorf("switched off, a request asks %+v (%v)", third.Diagnostics, err)
		}
	})
}

// entryReads counts reads of the cache entries.
type entryReads struct {
	engine.Store
	reads atomic.Int64
}

func (c *entryReads) CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	c.reads.Add(1)
	return c.Store.CacheEntries(ctx, sessionID)
}

func TestExplainExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{})
		first := s.row(s.ask("first"))
		time.Sleep(time.Until(first.StartedAt.Add(5*time.Minute + 30*time.Second)))
		s.wantMiss(s.row(s.ask("second")), "expired", "", "ran out 30s before")
	})
}

// A history that a summary replaced shares the tools and the system prompt with what was sent before, and no message.
func TestD8_CompactedHistoryLosesTheMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{})
		first := s.row(s.ask(strings.Repeat("a long first message ", 500)))
		s.compact("a summary")
		second := s.row(s.ask("go on"))
		s.wantMiss(second, "messages", "messages.0.content.0.text", "a summary")
		if r := second.Usage.CacheRead; r == 0 || r >= first.Usage.Cached() {
			t.Errorf("read %d of the %d tokens before, want the system prompt alone", r, first.Usage.Cached())
		}
		want(t, "asked about", second.Diagnostics.PreviousMessageID, first.MessageID)
		if d := second.Diagnosis; d == nil || d.Type != forkcore.DiagnosisMessages {
			t.Errorf("the provider's diagnosis: %+v", d)
		}
		if third := s.row(s.ask("and on")); third.Miss != nil {
			t.Errorf("the turn after it is explained as %+v", third.Miss)
		}
		s.wantBytes()
	})
}

// compact replaces the main history by a summary, as a holder of the idle session's next turn would.
func (s *simulated) compact(summary string) {
	s.Helper()
	id, err := forkcore.NewRunID(s.session.ID, forkcore.Entropy{1, 2, 3})
	if err != nil {
		s.Fatal(err)
	}
	h := engine.Holder{SessionID: s.session.ID, RunID: id, Executor: "exe_compact", Epoch: 1, Token: "token"}
	run := forkcore.Run{ID: id, SessionID: s.session.ID, AgentID: s.session.ID, Kind: forkcore.KindMain, Title: "compact"}
	if _, err := s.store.Accept(s.ctx, engine.Accept{Run: run, Holder: h, ItemID: "itm_compact", Text: summary}); err != nil {
		s.Fatal(err)
	}
	entries := s.entries(s.session.ID)
	user := forkcore.EncodeMessage(forkcore.RoleUser, forkcore.AppendTextBlock(nil, summary))
	answer := forkcore.EncodeMessage(forkcore.RoleAssistant, forkcore.AppendTextBlock(nil, "understood"))
	if err := s.store.PutBlobs(s.ctx, s.session.ID, user, answer); err != nil {
		s.Fatal(err)
	}
	message := func(raw []byte) forkcore.Entry {
		return forkcore.Entry{Kind: forkcore.EntryMessage, RunID: id, Blob: forkcore.DigestOf(raw), Bytes: raw}
	}
	boundary := forkcore.Entry{Kind: forkcore.EntryMarker, RunID: id, Marker: &forkcore.Marker{Type: forkcore.MarkerCompact}}
	if _, err := s.store.Append(s.ctx, h, int64(len(entries)), []forkcore.Entry{boundary, message(user), message(answer)}, []string{"itm_compact"}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.store.EndRun(s.ctx, h, engine.EndRun{State: forkcore.Done}); err != nil {
		s.Fatal(err)
	}
}

// away is a store that cannot find a session's head for a while.
type away struct {
	engine.Store
	head forkcore.Digest
	gone atomic.Int64 // times yet
}

func (s *away) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	for _, id := range ids {
		if id == s.head && s.gone.Add(-1) >= 0 {
			return nil, forkcore.ErrNotFound
		}
	}
	return s.Store.Blobs(ctx, sessionID, ids...)
}

// Another head: while the bytes of the old one can be had they name the level; otherwise the provider does.
func TestM16_AnotherHeadIsNamedByItsBytesOrTheProvider(t *testing.T) {
	for _, tt := range []struct {
		name                string
		times               int64
		diagnostics         bool
		code, path, details string
	}{
		{"bytes", 2, true, "tools", "", `{"name":"New"`},
		{"provider", 1 << 40, true, "provider", "", "tools_changed, about "},
		{"neither", 1 << 40, false, "unknown", "", "could not be compared with it: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, modelsim.Options{})
				s.ask(strings.Repeat("a long first message ", 500))
				here := s.engine
				store := &away{Store: s.store, head: s.session.Head}
				store.gone.Store(tt.times)
				s.elsewhere(func(o *engine.Options) {
					o.Store, o.Tools, o.Diagnostics = store, moreTools{s.tools}, tt.diagnostics
				})
				_, runs, err := here.Fork(s.ctx, s.session.ID, directives("d1"), "")
				if err != nil {
					t.Fatal(err)
				}
				rows := []forkcore.RequestRow{s.row(s.ended(runs[0].ID))}
				s.idle()
				if tt.times > 2 { // the turn with the reports lost it as well
					all := s.runs()
					rows = append(rows, s.row(all[len(all)-1]))
				}
				for _, row := range rows {
					want(t, "at risk", row.AtRisk, true)
					if tt.path == "" && row.Miss != nil && strings.HasPrefix(row.Miss.Path, "tools.") {
						row.Miss.Path = ""
					}
					s.wantMiss(row, tt.code, tt.path, tt.details)
				}
			})
		})
	}
}

// X06: a conversation under the model's minimum is too short, turn for turn, and never a miss.
func TestX06_TooShortEndToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := forkcore.ParseCatalogue([]byte(`{"models":[{"id":"claude-sonnet-5-5","prices":[{"input":2,"output":10,"write_5m":2.5,"write_1h":4,"read":0.1}],"window":200000,"min_cacheable":100000}]}`))
		if err != nil {
			t.Fatal(err)
		}
		s := newSimulated(t, modelsim.Options{MinCacheable: map[string]int{"claude-sonnet-5-5": 100_000}}, func(o *engine.Options) { o.Catalogue = c })
		for range 2 {
			row := s.row(s.ask("short"))
			want(t, "cached", row.Usage.Cached(), 0)
			s.wantMiss(row, "too_short", "", "this model caches prefixes from 100000")
		}
	})
}

// B06: children that are sent at the same time all write what they share; all but the one that was sent first say so.
func TestB06_RaceWithoutAGate(t *testing.T) {
	for _, gate := range []forkcore.GateMode{forkcore.GateOff, forkcore.GateAlways} {
		t.Run(string(gate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, modelsim.Options{MessageStartDelay: 800 * time.Millisecond}, func(o *engine.Options) { o.Gate = gate })
				s.ask("first")
				_, runs, err := s.engine.Fork(s.ctx, s.session.ID, directives("d1", "d2", "d3", "d4", "d5"), "")
				if err != nil {
					t.Fatal(err)
				}
				writes, races := 0, 0
				for _, r := range runs {
					row := s.row(s.ended(r.ID))
					if row.Usage.CacheWrite5m > 0 {
						writes++
					}
					if row.Miss != nil {
						if r.Index == 0 {
							t.Errorf("the first to be sent is told of a race: %+v", row.Miss)
						}
						s.wantMiss(row, "race", "", "its response had not begun when this one was sent")
						races++
					}
				}
				wantWrites := 1
				if gate == forkcore.GateOff {
					wantWrites = 5
				}
				want(t, "children that wrote", writes, wantWrites)
				want(t, "children that raced", races, wantWrites-1)
			})
		})
	}
}

// X07: a session is bound to one key. A process with another one does not take its runs; when the dashboard starts with
// another key the session moves to it, shares nothing with what was written before, and says so.
func TestX07_OneKeyForASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{}, func(o *engine.Options) { o.Dashboard = true })
		own := s.engine
		first := s.row(s.ask("first"))
		want(t, "account of the session", s.sessionNow().Account, first.Scope.Account())
		another := simulatorClient(t, s.sim, "another")
		s.elsewhere(func(o *engine.Options) { o.Model, o.Dashboard = another, false })
		id := s.send("second")
		s.until("the run waits", func() bool { return s.run(id).State == forkcore.Waiting })
		s.wantReason(s.run(id), forkcore.Waiting, forkcore.WaitProvider)
		s.queue.executor(own)
		second := s.row(s.ended(id))
		want(t, "read by the process with the session's key", second.Usage.CacheRead, first.Usage.Cached())
		want(t, "scope", second.Scope, first.Scope)

		s.elsewhere(func(o *engine.Options) { o.Model, o.Dashboard = another, true })
		third := s.row(s.ask("third"))
		want(t, "read with another key", third.Usage.CacheRead, 0)
		want(t, "read that was expected", *third.ExpectedRead, 0)
		s.wantMiss(third, "other_key", "", "it was written in workspace "+second.Scope.Workspace+", this request went to "+third.Scope.Workspace)
		want(t, "account of the session", s.sessionNow().Account, third.Scope.Account())
		fourth := s.row(s.ask("fourth"))
		if fourth.Miss != nil || fourth.Usage.CacheRead != third.Usage.Cached() || *fourth.ExpectedFrom != (forkcore.RequestRef{RunID: third.RunID, N: 1}) {
			t.Errorf("with the same key again: read %d of %d from %+v, explained as %+v", fourth.Usage.CacheRead, third.Usage.Cached(), fourth.ExpectedFrom, fourth.Miss)
		}
	})
}

// X08: all requests of a session and its children carry one beta set in one order, and their entries are keyed by it.
func TestX08_OneBetaSetForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, modelsim.Options{})
		rows := []forkcore.RequestRow{s.row(s.ask("first"))}
		_, runs, err := s.engine.Fork(s.ctx, s.session.ID, directives("d1", "d2"), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			rows = append(rows, s.row(s.ended(r.ID)))
		}
		s.idle()
		for _, row := range rows {
			want(t, "scope", row.Scope, rows[0].Scope)
		}
		entries, err := s.store.CacheEntries(s.ctx, s.session.ID)
		if err != nil || len(entries) == 0 {
			t.Fatal(errors.Join(err, errors.New("no entries")))
		}
		for _, e := range entries {
			want(t, "scope of an entry", e.Scope, rows[0].Scope)
		}
		var sent []string
		for _, c := range s.sim.Requests() {
			sent = append(sent, strings.Join(c.Header.Values("anthropic-beta"), ";"))
		}
		for _, b := range sent {
			want(t, "beta header", b, sent[0])
		}
	})
}
