package engine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/forkcore/forkcoretest"
	"forkyard/jobs/engine"
)

// keyParts are the parts of a request that belong to the provider's cache key beside the messages.
func keyParts(t *testing.T, r forkcoretest.Request) string {
	t.Helper()
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(unmarked(r.Body), &parts); err != nil {
		t.Fatal(err)
	}
	s := "betas " + strings.Join(r.Betas, ",")
	for _, key := range []string{"model", "thinking", "output_config", "tool_choice", "max_tokens", "tools", "system"} {
		s += fmt.Sprintf("\n%s %s", key, parts[key])
	}
	return s
}

// wantOneKey checks that all requests have the same key parts, and gives them.
func (y *yard) wantOneKey() string {
	y.Helper()
	requests := y.model.model.Requests()
	first := keyParts(y.T, requests[0])
	for _, r := range requests[1:] {
		if d := cmp.Diff(first, keyParts(y.T, r)); d != "" {
			y.Errorf("request %d has another cache key (-first +this):\n%s", r.N, d)
		}
	}
	return first
}

// B26: whatever a turn starts with, whoever goes on with it, and whatever a child wishes for, requests have one model, thinking, effort, tool
// choice and beta set. B25: and behind a restart they start with the very bytes from before.
func TestB26_OneCacheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			_, fork := c.directive()
			switch {
			case fork:
				return say(reportText)
			case c.answers() == 0: // (a) a turn that starts with tool_use and no thinking
				return useTools(use("t1", "Read", `{}`))
			case strings.Contains(c.last(), "split"): // (c) children with wishes of their own
				return useTools(
					use("a1", "Agent", `{"description":"plain","prompt":"d1"}`),
					use("a2", "Agent", `{"description":"model","prompt":"d2","model":"claude-haiku-4-5"}`),
					use("a3", "Agent", `{"description":"effort","prompt":"d3","effort":"max"}`))
			}
			return say("an answer")
		}, func(o *engine.Options) { o.Betas = []string{"b", "a"} })
		y.session = y.newSession(forkcore.SessionSpec{Thinking: []byte(`{"type": "adaptive"}`), Effort: "low"})
		y.ask("first")
		before := y.model.received()

		// (b) another process goes on, with other flags
		y.stop()
		o := y.options
		o.Betas, o.DefaultModel, o.Tools = nil, "claude-opus-5", moreTools{y.tools}
		y.engine, _ = y.start(o)
		y.queue.executor(y.engine)
		y.ask("second")
		after := y.model.received()
		end := bytes.LastIndex(unmarked(before[1].body), []byte(`],"max_tokens"`))
		if a, b := unmarked(before[1].body)[:end], unmarked(after[2].body); !bytes.HasPrefix(b, a) {
			at, path, _ := forkcore.FirstDifference(a, b)
			t.Errorf("after the restart the history differs at byte %d (%s)", at, path)
		}
		for _, m := range after[2].messages {
			if len(m.Blocks) == 0 {
				t.Errorf("a message without an array of blocks: %s", m.Raw)
			}
		}

		y.ask("split the work")
		y.idle()
		_, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("by a person"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		want(t, "forks", len(y.forks()), 2)
		refused := 0
		for _, c := range y.model.received() {
			if _, fork := c.directive(); fork {
				continue
			}
			for _, m := range c.messages {
				for _, b := range m.Blocks {
					if b.IsError && (b.ToolUseID == "a2" || b.ToolUseID == "a3") {
						refused++
					}
				}
			}
		}
		if refused == 0 || refused%2 != 0 {
			t.Errorf("%d refusals of a child's own model and effort in the requests, want both in each", refused)
		}
		key := y.wantOneKey()
		for _, part := range []string{"betas a,b\n", `model "claude-sonnet-5-5"`, `thinking {"type":"adaptive"}`, `output_config {"effort":"low"}`, "tool_choice \n", "max_tokens 32000"} {
			if !strings.Contains(key, part) {
				t.Errorf("the cache key has no %q:\n%s", part, key)
			}
		}
		y.wantBodies()
	})
}

// listedTools are tools whose list changes.
type listedTools struct {
	*fakeTools
	list *[]forkcore.ToolSpec
}

func (l listedTools) Specs() []forkcore.ToolSpec { return slices.Clone(*l.list) }

// B28: tools that a server lists late or in another order change nothing in a session that has begun; the next session has them.
func TestB28_LateToolsWaitForTheNextSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []forkcore.ToolSpec
		y := newYard(t, answering, func(o *engine.Options) {
			list = o.Tools.Specs()
			o.Tools = listedTools{o.Tools.(*fakeTools), &list}
		})
		latched := y.session.Head
		time.Sleep(time.Second)
		y.send("a turn") // runs until second 2
		time.Sleep(2 * time.Second)
		for _, name := range []string{"mcp_b", "mcp_a"} {
			list = append(list, forkcore.ToolSpec{Name: name, Description: "late", InputSchema: json.RawMessage(`{"type":"object"}`)})
		}
		time.Sleep(500 * time.Millisecond)
		slices.Reverse(list) // it dropped and connected again
		time.Sleep(500 * time.Millisecond)
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("at second 4"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.idle()
		y.ask("another turn")
		y.wantOneKey()
		snap, err := y.store.Snapshot(y.ctx, y.session.ID, runs[0].Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "tools of the fork", strings.Join(snap.Tools, " "), "Agent Bash Grep Read Write")
		want(t, "head", snap.Segments[0].SHA256, latched)

		next := y.newSession(forkcore.SessionSpec{})
		if next.Head == latched {
			t.Error("the next session does not have the late tools")
		}
		slices.Reverse(list)
		want(t, "head of a session after another reconnect", y.newSession(forkcore.SessionSpec{}).Head, next.Head)
	})
}

// X08: the beta set of a session is sent in one order, by forks as by the main agent, whatever is configured meanwhile.
func TestX08_BetasAreLatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, answering, func(o *engine.Options) { o.Betas = []string{"a", "b"} })
		y.ask("first")
		for _, betas := range [][]string{{"b", "a"}, {"a"}, nil} {
			o := y.options
			o.Betas = betas
			e, _ := y.start(o)
			y.queue.executor(e)
			if _, _, err := e.Fork(y.ctx, y.session.ID, directives(fmt.Sprint(betas)), ""); err != nil {
				t.Fatal(err)
			}
			y.idle()
		}
		requests := y.model.model.Requests()
		want(t, "requests", len(requests), 7) // a turn, and a fork and a turn for its report each time
		for _, r := range requests {
			want(t, fmt.Sprint("betas of request ", r.N), strings.Join(r.Betas, ","), "a,b")
		}
		if d := cmp.Diff([]string{"a", "b"}, y.sessionNow().CacheSafe.Params.Betas); d != "" {
			t.Errorf("betas in the slot (-want +got):\n%s", d)
		}
	})
}

// B27: clock, folder, ids and the state of git are not in the bytes that a session's requests start with.
func TestB27_NothingThatChangesIsInTheHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, answering)
		heads := map[forkcore.Digest]bool{}
		ids := map[string]bool{}
		for _, folder := range []string{"w1", "w2"} {
			dir := filepath.Join(y.options.Workspaces[0], folder)
			if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Chdir(dir)
			for _, dirty := range []string{"", "changed.go"} {
				if dirty != "" {
					if err := os.WriteFile(filepath.Join(dir, dirty), []byte("package changed"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					s := y.newSession(forkcore.SessionSpec{Workspace: dir, Title: dir + dirty})
					heads[s.Head], ids[s.ID] = true, true
					y.session = s
					y.ask("first")
					time.Sleep(time.Second)
				}
			}
		}
		want(t, "sessions", len(ids), 8)
		want(t, "heads", len(heads), 1)
		sent := map[string]bool{}
		for _, c := range y.model.received() {
			b := unmarked(c.body)
			sent[string(b[:bytes.Index(b, []byte(`"messages":[`))])] = true
		}
		want(t, "heads as sent", len(sent), 1)
	})
}

// mapTools lists twelve tools with six properties each out of maps, in another order each time.
type mapTools struct {
	*fakeTools
	schemas map[string]map[string]any
}

func newMapTools() mapTools {
	m := mapTools{&fakeTools{}, map[string]map[string]any{}}
	for i := range 12 {
		properties := map[string]any{}
		for k := range 6 {
			properties[fmt.Sprint("property_", k)] = map[string]any{"type": "string", "description": fmt.Sprint("number ", k)}
		}
		m.schemas[fmt.Sprint("tool_", i)] = map[string]any{"type": "object", "properties": properties}
	}
	return m
}

func (m mapTools) Specs() []forkcore.ToolSpec {
	var specs []forkcore.ToolSpec
	for name, schema := range m.schemas {
		raw, err := json.Marshal(schema)
		if err != nil {
			panic(err)
		}
		specs = append(specs, forkcore.ToolSpec{Name: name, Description: "the tool " + name, InputSchema: raw})
	}
	return specs
}

const renderHeads = "FORKYARD_TEST_RENDER_HEADS"

// B13: 200 renders in 5 processes give one tools array.
func TestB13_OneToolsArrayInAllProcesses(t *testing.T) {
	if os.Getenv(renderHeads) != "" {
		synctest.Test(t, func(t *testing.T) {
			y := newYard(t, answering, func(o *engine.Options) { o.Tools = newMapTools() })
			for range 40 {
				fmt.Printf("head %s\n", y.newSession(forkcore.SessionSpec{}).Head)
			}
		})
		return
	}
	heads := map[string]int{}
	for range 5 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestB13_OneToolsArrayInAllProcesses$")
		cmd.Env = append(os.Environ(), renderHeads+"=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			if id, ok := strings.CutPrefix(line, "head "); ok {
				heads[id]++
			}
		}
	}
	renders := 0
	for _, n := range heads {
		renders += n
	}
	want(t, "renders", renders, 200)
	want(t, "heads", len(heads), 1)
}
