package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// slotStore changes what of the slot gets into or out of a store.
type slotStore struct {
	engine.Store
	read   func(*forkcore.CacheSafeParams) *forkcore.CacheSafeParams
	ignore bool // as a version of the program did that knew no slot
}

func (s *slotStore) Session(ctx context.Context, id string) (forkcore.Session, error) {
	got, err := s.Store.Session(ctx, id)
	if err == nil && s.read != nil && got.CacheSafe != nil {
		c := *got.CacheSafe
		got.CacheSafe = s.read(&c)
	}
	return got, err
}

func (s *slotStore) EndRun(ctx context.Context, h engine.Holder, e engine.EndRun) ([]engine.Wake, error) {
	if s.ignore {
		e.CacheSafe = nil
	}
	return s.Store.EndRun(ctx, h, e)
}

// answering answers turns and forks after a second.
func answering(c call) reply {
	a := say("an answer")
	if _, fork := c.directive(); fork {
		a = say(reportText)
	}
	a.before = time.Second
	return a
}

// snapshotOf dispatches one fork and gives the prefix that it shares.
func (y *yard) snapshotOf(e *engine.Engine, prompt string) forkcore.Digest {
	y.Helper()
	d, _, err := e.Fork(y.ctx, y.session.ID, directives(prompt), "")
	if err != nil {
		y.Fatal(err)
	}
	return d.Snapshot
}

// M62, M63: the slot's version rises once with each main turn that is done; forks, however they end, and stopped turns leave it alone.
func TestM62_M63_OnlyMainTurnsWriteTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, answering)
		if c := y.sessionNow().CacheSafe; c != nil {
			t.Fatalf("slot before the first turn: %+v", c)
		}
		first := y.ask("first")
		slot := *y.sessionNow().CacheSafe
		want(t, "version", slot.Version, 1)
		want(t, "run", slot.RunID, first.ID)
		want(t, "head", slot.Head, y.session.Head)
		want(t, "messages", slot.Messages, 2)
		want(t, "last entry", slot.UpToSeq, 3) // turn_start, question, answer
		want(t, "tools", strings.Join(slot.Tools, " "), "Agent Bash Grep Read Write")
		want(t, "model", slot.Params.Model, y.session.Model)
		if len(slot.Entries) == 0 {
			t.Error("the slot knows no entry of the provider after a turn that wrote one")
		}

		second := y.ask("second")
		want(t, "version after another turn", y.sessionNow().CacheSafe.Version, 2)
		want(t, "run of another turn", y.sessionNow().CacheSafe.RunID, second.ID)
		before := y.sessionNow().CacheSafe

		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := y.engine.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Fatal(err)
		}
		want(t, "state of the fork", y.run(runs[0].ID).State, forkcore.Done)
		if err := y.engine.Cancel(y.ctx, runs[1].ID); err != nil {
			t.Fatal(err)
		}
		y.ended(runs[1].ID)
		stopped := y.sessionNow().ActiveRunID // the turn for the notices
		if _, err := y.engine.Stop(y.ctx, y.session.ID, "turn"); err != nil {
			t.Fatal(err)
		}
		want(t, "state of the stopped turn", y.ended(stopped).State, forkcore.Cancelled)
		if d := cmp.Diff(before, y.sessionNow().CacheSafe); d != "" {
			t.Errorf("slot after forks and a stopped turn (-before +after):\n%s", d)
		}
		events, err := y.store.Events(y.ctx, y.session.ID, "0", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Session != nil && e.Session.CacheSafe != nil {
				t.Fatalf("event %s carries the slot", e.ID)
			}
		}
	})
}

// M65: dispatches 100 ms and 200 ms after each other share the same bytes, though a turn is running and settings changed in between; so do
// those of a process that has to replay all, and of a store that knows no slots.
func TestM65_DispatchesReadTheSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, answering)
		y.ask("first")
		idle := y.snapshotOf(y.engine, "d0")
		y.idle()
		last := y.ask("second")
		slot := y.sessionNow().CacheSafe
		want(t, "the last turn's slot", slot.RunID, last.ID)
		y.queue.hold()
		y.send("a turn that goes on")
		time.Sleep(100 * time.Millisecond)
		early := y.snapshotOf(y.engine, "d1")
		o := y.options
		o.Tools, o.DefaultModel, o.Betas, o.Gate = moreTools{y.tools}, "claude-opus-5", []string{"changed"}, forkcore.GateOff
		changed, _ := y.start(o)
		time.Sleep(100 * time.Millisecond)
		late := y.snapshotOf(changed, "d2")
		want(t, "snapshot of the second dispatch", late, early)
		if idle == early {
			t.Error("dispatches after different turns share one snapshot")
		}
		snap, err := y.store.Snapshot(y.ctx, y.session.ID, early)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "last entry", snap.UpToSeq, slot.UpToSeq)
		if d := cmp.Diff(slot.Params, snap.Params); d != "" {
			t.Errorf("params (-slot +snapshot):\n%s", d)
		}
		if d := cmp.Diff(slot.Tools, snap.Tools); d != "" {
			t.Errorf("tools (-slot +snapshot):\n%s", d)
		}
		// The turn's bytes are all there, and nothing of the one that goes on.
		b, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, early)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "identity of the beginning", forkcore.DigestOf(b[:slot.PrefixBytes]), slot.Prefix)
		if strings.Contains(string(b), "a turn that goes on") {
			t.Error("the snapshot has something of the turn in progress")
		}

		o = y.options
		o.Store = &slotStore{Store: y.store, read: func(*forkcore.CacheSafeParams) *forkcore.CacheSafeParams { return nil }}
		old, _ := y.start(o)
		want(t, "snapshot by replay alone", y.snapshotOf(old, "d3"), early)
		want(t, "and by a view that went on", y.snapshotOf(y.engine, "d4"), early)
	})
}

// A session whose turns were done before slots were written forks all the same.
func TestForkWithoutASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, answering, func(o *engine.Options) { o.Store = &slotStore{Store: o.Store, ignore: true} })
		y.ask("first")
		if y.sessionNow().CacheSafe != nil {
			t.Fatal("the session has a slot")
		}
		y.queue.hold()
		id := y.snapshotOf(y.engine, "d1")
		b, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, id)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "an answer") {
			t.Error("the fork does not inherit the completed turn")
		}
	})
}

// Bytes that are not those of the slot are never shared silently.
func TestForkOverOtherBytes(t *testing.T) {
	for name, change := range map[string]func(*forkcore.CacheSafeParams){
		"identity":     func(c *forkcore.CacheSafeParams) { c.Prefix = forkcore.DigestOf([]byte("another")) },
		"length":       func(c *forkcore.CacheSafeParams) { c.PrefixBytes-- },
		"last entry":   func(c *forkcore.CacheSafeParams) { c.UpToSeq-- },
		"replacements": func(c *forkcore.CacheSafeParams) { c.Replacements = forkcore.DigestOf([]byte("another")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, answering)
				y.ask("first")
				o := y.options
				o.Store = &slotStore{Store: y.store, read: func(c *forkcore.CacheSafeParams) *forkcore.CacheSafeParams {
					change(c)
					return c
				}}
				e, _ := y.start(o)
				_, quoteErr := e.QuoteForks(y.ctx, y.session.ID, directives("d1"))
				_, _, forkErr := e.Fork(y.ctx, y.session.ID, directives("d1"), "")
				for _, err := range []error{quoteErr, forkErr} {
					if !errors.Is(err, forkcore.ErrCorrupt) || !strings.Contains(err.Error(), "send a message") {
						t.Errorf("%v, want ErrCorrupt and what to do next", err)
					}
				}
				want(t, "forks", len(y.forks()), 0)
			})
		})
	}
}

// A big result is delivered as its beginning; all of it stays in the log, forks inherit the decision, and every request can be rebuilt.
func TestM14_BigResultsInTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork {
				return say(reportText)
			}
			if c.answers() == 0 {
				return useTools(use("t1", "Bash", `{}`), use("t2", "Read", `{}`))
			}
			return say("done")
		})
		big := strings.Repeat("a line of output\n", 2000)
		y.tools.do = func(_ context.Context, c forkcore.ToolCall) forkcore.ToolResult {
			return forkcore.ToolResult{Text: map[string]string{"t1": big, "t2": big}[c.ID]}
		}
		y.ask("look")
		want(t, "log", y.log(y.session.ID), "turn_start user assistant tool_started:Read tool_result:Read tool_started:Bash tool_result:Bash "+
			"replacement:Bash user assistant turn_end")
		calls := y.model.received()
		results := calls[1].messages[2].Blocks
		if !strings.HasPrefix(results[0].Text, "<persisted-output>\n") || len(results[0].Text) > 2500 || !strings.Contains(results[0].Text, "34000 characters, 34000 bytes") {
			t.Errorf("result of Bash as sent, %d bytes: %.200s", len(results[0].Text), results[0].Text)
		}
		want(t, "bytes of what Read gave", len(results[1].Text), len(big))
		var full, replacement *forkcore.Marker
		for _, e := range y.entries(y.session.ID) {
			if m := e.Marker; m != nil && m.ToolUseID == "t1" {
				switch m.Type {
				case forkcore.MarkerToolResult:
					full = m
				case forkcore.MarkerReplacement:
					replacement = m
				}
			}
		}
		blobs, err := y.store.Blobs(y.ctx, y.session.ID, replacement.Replacement.Blob)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "blob that the decision names", replacement.Replacement.Blob, *full.Blob)
		want(t, "its bytes", string(blobs[0]), string(forkcore.AppendToolResult(nil, "t1", big, false)))

		state := forkcore.ReplacementState{*replacement.Replacement, {ToolUseID: "t2"}}
		want(t, "state in the slot", y.sessionNow().CacheSafe.Replacements, state.Digest())
		// Elsewhere, with other limits, the conversation goes on with the very same bytes.
		o := y.options
		o.Replacements = forkcore.ReplacementLimits{Result: 100, Message: 200, Preview: 50}
		e, _ := y.start(o)
		snap, err := y.store.Snapshot(y.ctx, y.session.ID, y.snapshotOf(e, "d1"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(state, snap.Replacements); d != "" {
			t.Errorf("state in the snapshot (-want +got):\n%s", d)
		}
		y.idle()
		id, err := e.SendMessage(y.ctx, y.session.ID, "go on", "")
		if err != nil {
			t.Fatal(err)
		}
		y.ended(id)
		calls = y.model.received()
		sent := calls[len(calls)-1].messages[2].Blocks
		for i, b := range results {
			want(t, fmt.Sprint("result ", i, " as sent again"), string(sent[i].Raw), string(b.Raw))
		}
		y.wantBodies()
	})
}
