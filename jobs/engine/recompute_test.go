package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// lossy is a store that lost one blob: it comes back only when somebody stores it again.
type lossy struct {
	engine.Store
	lost forkcore.Digest
	back bool
}

func (s *lossy) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	for _, id := range ids {
		if id == s.lost && !s.back {
			return nil, fmt.Errorf("blob %s: %w", id, forkcore.ErrNotFound)
		}
	}
	return s.Store.Blobs(ctx, sessionID, ids...)
}

func (s *lossy) PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error {
	for _, b := range blobs {
		s.back = s.back || forkcore.DigestOf(b) == s.lost
	}
	return s.Store.PutBlobs(ctx, sessionID, blobs...)
}

// moreTools are tools of a later version of the program.
type moreTools struct{ *fakeTools }

func (m moreTools) Specs() []forkcore.ToolSpec {
	return append(m.fakeTools.Specs(), forkcore.ToolSpec{Name: "New", Description: "came with an update", InputSchema: json.RawMessage(`{"type":"object"}`)})
}

// Without the rendered prompt a fork and a turn still run. Where rendering it
// anew gives other bytes, every such request is labelled and counted; where it gives the
// same, nothing is at risk and the bytes are stored again.
func TestM06_RecomputedPromptIsLabelledAndCounted(t *testing.T) {
	for _, changed := range []bool{false, true} {
		t.Run(fmt.Sprintf("changed %v", changed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					if _, fork := c.directive(); fork {
						return say(reportText)
					}
					return say("an answer")
				})
				first := y.ask("first")
				y.queue.hold()
				_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
				if err != nil {
					t.Fatal(err)
				}
				o := y.options
				store := &lossy{Store: y.store, lost: y.session.Head}
				o.Store = store
				if changed {
					o.Tools = moreTools{y.tools}
				}
				e, _ := y.start(o)
				for _, r := range runs {
					if err := e.Execute(y.ctx, engine.Wake{RunID: r.ID, N: y.run(r.ID).Wake}); err != nil {
						t.Fatal(err)
					}
					y.until("a wake of "+r.ID, func() bool { return y.run(r.ID).State != forkcore.Running })
					if y.run(r.ID).State == forkcore.Parked {
						t.Fatalf("the second fork is parked behind a leader that ended")
					}
				}
				atRisk := int64(0)
				if changed {
					atRisk = 1
				}
				for _, r := range runs {
					got := y.run(r.ID)
					want(t, "state of a fork", got.State, forkcore.Done)
					want(t, "its requests at risk", got.AtRiskRequests, atRisk)
					row := y.requests(r.ID)[0]
					want(t, "label of its request", row.AtRisk, changed)
					want(t, "the prefix is the snapshot", row.Prefix == r.Snapshot, !changed)
				}
				want(t, "requests at risk in the session", y.sessionNow().AtRiskRequests, 2*atRisk)

				// A dispatch and a turn since then go on as well, under the same label.
				_, more, err := e.Fork(y.ctx, y.session.ID, directives("d3"), "")
				if err != nil {
					t.Fatal(err)
				}
				if err := e.Execute(y.ctx, engine.Wake{RunID: more[0].ID, N: 1}); err != nil {
					t.Fatal(err)
				}
				late := y.run(more[0].ID)
				want(t, "state of a late fork", late.State, forkcore.Done)
				want(t, "its requests at risk", late.AtRiskRequests, atRisk)
				want(t, "requests at risk of a turn before", y.run(first.ID).AtRiskRequests, 0)
				if n := e.PromptsRecomputed(); n == 0 || !changed && n != 1 {
					t.Errorf("%d prompts recomputed", n)
				}
				want(t, "found again", store.back, !changed)
			})
		})
	}
}

// A message that is lost cannot be made anew: the run ends and says so.
func TestM06_LostMessagesAreNotInvented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply { return say("an answer") })
		y.ask("first")
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		snap, err := y.store.Snapshot(y.ctx, y.session.ID, runs[0].Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		o := y.options
		o.Store = &lossy{Store: y.store, lost: snap.Segments[1].SHA256}
		e, _ := y.start(o)
		if err := e.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Fatal(err)
		}
		r := y.run(runs[0].ID)
		y.wantReason(r, forkcore.Failed, forkcore.CodeInternal)
		want(t, "requests", r.Requests, 0)
		want(t, "prompts recomputed", e.PromptsRecomputed(), 0)
	})
}
