package engine_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func TestTranscript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(2))
		turn := y.ask("fan out")
		y.idle()
		main, err := y.engine.Transcript(y.ctx, turn.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range main {
			want(t, "seq", l.Seq, int64(i+1))
			want(t, "message or marker", (l.Message != nil) != (l.Marker != nil), true)
		}
		rest, err := y.engine.Transcript(y.ctx, turn.ID, 2)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(main[2:], rest); diff != "" {
			t.Errorf("transcript after 2 (-want +got):\n%s", diff)
		}

		// A fork's first message is shown as it was sent.
		fork := y.forks()[1]
		lines, err := y.engine.Transcript(y.ctx, fork.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "lines of a fork", len(lines), 3)
		sent := ""
		for _, c := range y.model.received() {
			if i, d, ok := c.forkMessage(); ok && d == "d2" {
				sent = string(c.messages[i].Raw)
			}
		}
		want(t, "first message of a fork", string(lines[1].Message), sent)

		// The lines of events are the lines of the transcript.
		events, err := y.store.Events(y.ctx, y.session.ID, "0", 0)
		if err != nil {
			t.Fatal(err)
		}
		var assembled []forkcore.TranscriptLine
		for _, e := range events {
			if e.Type == forkcore.EventMessage && e.AgentID == fork.ID {
				l, err := y.engine.Assemble(y.ctx, y.session.ID, *e.Entry, e.AgentID)
				if err != nil {
					t.Fatal(err)
				}
				assembled = append(assembled, l)
			}
		}
		if diff := cmp.Diff(lines, assembled); diff != "" {
			t.Errorf("lines from events (-transcript +assembled):\n%s", diff)
		}

		unknown, err := forkcore.NewRunID(y.session.ID, forkcore.Entropy{7})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := y.engine.Transcript(y.ctx, unknown, 0); !errors.Is(err, forkcore.ErrNotFound) {
			t.Errorf("transcript of an unknown run: %v, want ErrNotFound", err)
		}
		for _, n := range []int64{0, -1, 99} {
			if _, err := y.engine.RequestBody(y.ctx, fork.ID, n); !errors.Is(err, forkcore.ErrNotFound) {
				t.Errorf("body of request %d: %v, want ErrNotFound", n, err)
			}
		}
	})
}

// TestRequestBody rebuilds what runs of every kind sent, tool rounds and retries included, in another process.
func TestRequestBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			_, fork := c.directive()
			switch {
			case c.n%7 == 3:
				return overloaded()
			case fork && c.answers() < 2:
				return useTools(use("r", "Read", `{ "n": 1.50, "s": "\u003c\/é" }`))
			case fork:
				return say(reportText)
			case c.answers() == 0:
				return agents(3)
			}
			return say("noted <&>\u2028")
		})
		y.ask("fan out")
		y.idle()
		y.ask("and on")
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d8", "d9"), ""); err != nil {
			t.Fatal(err)
		}
		y.idle()
		y.engine, _ = y.start(y.options) // with nothing cached
		y.wantBodies()
		rows := 0
		for _, r := range y.runs() {
			for _, row := range y.requests(r.ID) {
				rows++
				body, err := y.engine.RequestBody(y.ctx, r.ID, row.N)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "body digest", forkcore.DigestOf(body), row.Body)
				want(t, "body bytes", int64(len(body)), row.BodyBytes)
				want(t, "prefix digest", forkcore.DigestOf(unmarked(body)[:row.PrefixBytes]), row.Prefix)
				want(t, "marks", bytes.Count(body, []byte(`"cache_control"`)), len(row.Marks))
			}
		}
		want(t, "rows", rows, len(y.model.received()))
	})
}

// altered is a store that gives one log entry other bytes than it was given.
type altered struct {
	engine.Store
	alter func(e *forkcore.Entry)
}

func (s altered) Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	entries, err := s.Store.Log(ctx, sessionID, agentID, after, limit)
	for i := range entries {
		s.alter(&entries[i])
	}
	return entries, err
}

func (s altered) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	blobs, err := s.Store.Blobs(ctx, sessionID, ids...)
	for i := range blobs {
		e := forkcore.Entry{Bytes: blobs[i]}
		s.alter(&e)
		blobs[i] = e.Bytes
	}
	return blobs, err
}

// TestAlteredBytes: what no longer has the digest that was stored when it was sent is not shown as what was sent.
func TestAlteredBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(2))
		turn := y.ask("fan out")
		y.idle()
		o := y.options
		o.Store = altered{y.store, func(e *forkcore.Entry) { e.Bytes = bytes.Replace(e.Bytes, []byte("fan out"), []byte("fan OUT"), 1) }}
		e, _ := y.start(o)
		fork := y.forks()[0]
		if _, err := e.RequestBody(y.ctx, turn.ID, 1); !errors.Is(err, forkcore.ErrCorrupt) {
			t.Errorf("body of a main turn: %v, want ErrCorrupt", err)
		}
		if _, err := e.RequestBody(y.ctx, fork.ID, 1); !errors.Is(err, forkcore.ErrCorrupt) {
			t.Errorf("body of a fork: %v, want ErrCorrupt", err)
		}
		if _, err := e.SnapshotBytes(y.ctx, y.session.ID, fork.Snapshot); !errors.Is(err, forkcore.ErrCorrupt) {
			t.Errorf("bytes of a snapshot: %v, want ErrCorrupt", err)
		}
	})
}

// TestSnapshotShared: one blob for each message, however many forks and turns refer to it.
func TestSnapshotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork {
				return say(reportText)
			}
			return say("an answer")
		})
		y.ask("first")
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2", "d3"), "")
		if err != nil {
			t.Fatal(err)
		}
		ids := map[forkcore.Digest]bool{}
		for _, r := range runs {
			ids[r.Snapshot] = true
		}
		want(t, "snapshots", len(ids), 1)
		snap, err := y.store.Snapshot(y.ctx, y.session.ID, runs[0].Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		log := y.entries(y.session.ID)
		messages := slices.DeleteFunc(log, func(e forkcore.Entry) bool { return e.Marker != nil })
		for i, s := range snap.Segments[1 : len(snap.Segments)-1] {
			want(t, "segment", s.SHA256, messages[i].Blob)
		}
		if b, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, snap.ID); err != nil || int64(len(b)) != snap.Bytes || !strings.HasPrefix(string(b), `{"model":`) {
			t.Errorf("snapshot has %d bytes (%v), its manifest says %d", len(b), err, snap.Bytes)
		}
		y.idle()
	})
}

// TestAssembledToolResults: whoever follows the events sees each result as soon as it is there, as the transcript shows it.
func TestAssembledToolResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if c.answers() == 0 {
				return useTools(use("t1", "Read", `{"n":1}`), use("t2", "Bash", `{"n":2}`))
			}
			return say("all done")
		})
		y.tools.do = func(_ context.Context, c forkcore.ToolCall) forkcore.ToolResult {
			return forkcore.ToolResult{Text: "result " + c.ID}
		}
		turn := y.ask("look around")
		lines, err := y.engine.Transcript(y.ctx, turn.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		events, err := y.store.Events(y.ctx, y.session.ID, "0", 0)
		if err != nil {
			t.Fatal(err)
		}
		var assembled []forkcore.TranscriptLine
		results := 0
		for _, e := range events {
			if e.Type != forkcore.EventMessage {
				continue
			}
			line, err := y.engine.Assemble(y.ctx, y.session.ID, *e.Entry, e.AgentID)
			if err != nil {
				t.Fatal(err)
			}
			if line.Marker != nil && line.Marker.Type == forkcore.MarkerToolResult {
				results++
				if len(line.Marker.Bytes) == 0 || e.Entry.Marker.Bytes != nil {
					t.Errorf("result %q, and the event itself was changed: %t", line.Marker.Bytes, e.Entry.Marker.Bytes != nil)
				}
			}
			assembled = append(assembled, line)
		}
		want(t, "results", results, 2)
		if diff := cmp.Diff(lines, assembled); diff != "" {
			t.Errorf("lines from events (-transcript +assembled):\n%s", diff)
		}
	})
}
