package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// registry is a tool registry that is asked each time a prompt is built.
type registry struct {
	*fakeTools
	asked  atomic.Int64
	panics atomic.Bool
	more   atomic.Bool // another description, and a tool that came with an update
}

func (r *registry) Specs() []forkcore.ToolSpec {
	r.asked.Add(1)
	if r.panics.Load() {
		panic("the prompt is built for a fork")
	}
	specs := r.fakeTools.Specs()
	if r.more.Load() {
		specs = moreTools{r.fakeTools}.Specs()
		specs[0].Description = "reads, faster than before"
	}
	return specs
}

// The rendered prompt is stored, and it is what the model received: the writer is tested, not the reader alone.
func TestM02_StoredPromptIsWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("an answer") })
		y.ask("first")
		blobs, err := y.store.Blobs(y.ctx, y.session.ID, y.sessionNow().Head)
		if err != nil {
			t.Fatal(err)
		}
		sent, _, ok := bytes.Cut(unmarked(y.model.received()[0].body), []byte(`{"role":"user"`))
		if !ok {
			t.Fatalf("no message in %s", y.model.received()[0].body)
		}
		if d := cmp.Diff(string(sent), string(blobs[0])); d != "" || len(sent) == 0 {
			t.Errorf("stored prompt (-sent +stored):\n%s", d)
		}
		want(t, "prompts that were not found and rendered anew", y.engine.PromptsRecomputed(), 0)
		for _, part := range []string{`"tools":[{"name":"Agent"`, `the tool Bash`, forkcore.SystemPrompt(forkcore.ModeFork)[:20]} {
			if !bytes.Contains(sent, []byte(part)) {
				t.Errorf("the prompt has no %q", part)
			}
		}
	})
}

// The stored prompt reaches a child, in this process and in another, without any call of what builds prompts.
func TestM03_ChildBuildsNoPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{fakeTools: &fakeTools{}}
		y := newYard(t, func(c call) reply {
			switch _, fork := c.directive(); {
			case fork && c.answers() == 0:
				return useTools(use("toolu_r"+fmt.Sprint(c.n), "Read", `{}`))
			case fork:
				return say(reportText)
			}
			return say("an answer")
		}, func(o *engine.Options) { o.Tools = r })
		y.ask("first")
		want(t, "prompts built when the session was made", r.asked.Load(), 1)
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
		if err != nil {
			t.Fatal(err)
		}
		elsewhere, _ := y.start(y.options)
		before := r.asked.Load()
		for i, e := range []*engine.Engine{y.engine, elsewhere} {
			if err := e.Execute(y.ctx, engine.Wake{RunID: runs[i].ID, N: 1}); err != nil {
				t.Fatal(err)
			}
			want(t, "state of the child", y.ended(runs[i].ID).State, forkcore.Done)
			want(t, "requests of the child", y.run(runs[i].ID).Requests, 2)
			want(t, "prompts recomputed", e.PromptsRecomputed(), 0)
		}
		want(t, "prompts built for children", r.asked.Load()-before, 0)
	})
}

// Were anything rendered for a fork that a model starts and the next process runs, it would be seen.
func TestM04_NothingRendersForAFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{fakeTools: &fakeTools{}}
		y := newYard(t, fanOut(3), func(o *engine.Options) { o.Tools = r })
		y.queue.hold()
		y.ask("fan out")
		r.panics.Store(true)
		e, _ := y.start(y.options)
		for _, f := range y.forks() {
			if err := e.Execute(y.ctx, engine.Wake{RunID: f.ID, N: y.run(f.ID).Wake}); err != nil {
				t.Fatal(err)
			}
			want(t, "state of "+f.Title, y.ended(f.ID).State, forkcore.Done)
		}
	})
}

// Rendering is impure: what goes into the prompt may change between the parent's turn and a fork. A threaded child still
// sends the parent's bytes and reads its cache; one whose prompt is rendered anew misses all of it.
func TestM05_ThreadedHitsRecomputedMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{fakeTools: &fakeTools{}}
		y, sim := newSimulatedYard(t, modelsim.Options{}, func(c call) reply {
			if _, fork := c.directive(); fork {
				return say(reportText)
			}
			return say("an answer")
		}, func(o *engine.Options) { o.Tools = r })
		first := y.ask("first " + strings.Repeat("a long conversation ", 1_000))
		held := y.requests(first.ID)[0].Usage.Cached()
		head, err := y.store.Blobs(y.ctx, y.session.ID, y.session.Head)
		if err != nil {
			t.Fatal(err)
		}
		y.queue.hold()
		r.more.Store(true)
		o := y.options
		o.Store = &lossy{Store: y.store, lost: y.session.Head}
		recomputing, _ := y.start(o)
		threading, _ := y.start(y.options)
		for _, tt := range []struct {
			name string
			by   *engine.Engine
			same bool
			read int64
		}{{"threaded", threading, true, held}, {"recomputed", recomputing, false, 0}} {
			_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives(tt.name), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.by.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
				t.Fatal(err)
			}
			want(t, tt.name+": state", y.ended(runs[0].ID).State, forkcore.Done)
			calls := sim.Requests()
			got := calls[len(calls)-1]
			want(t, tt.name+": has the parent's head", bytes.HasPrefix(unmarked(got.Body), head[0]), tt.same)
			want(t, tt.name+": tokens read", int64(got.Usage.CacheReadInputTokens), tt.read)
			want(t, tt.name+": recomputed", y.requests(runs[0].ID)[0].AtRisk, !tt.same)
			want(t, tt.name+": has the new description", bytes.Contains(got.Body, []byte("faster than before")), !tt.same)
		}
	})
}
