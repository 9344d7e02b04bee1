package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/forkcore/forkcoretest"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
)

// noTools is an agent's set of tools without any but Agent.
type noTools struct{}

func (noTools) Specs() []forkcore.ToolSpec { return nil }
func (noTools) ReadOnly(string) bool       { return false }
func (noTools) Run(context.Context, string, forkcore.PermissionMode, forkcore.ToolCall) forkcore.ToolResult {
	return forkcore.ToolResult{IsError: true}
}

// atOnce is a ready-list that hands out every wake at once.
type atOnce struct{ worker *engine.Engine }

func (q *atOnce) Enqueue(ctx context.Context, wakes ...engine.Wake) error {
	for _, w := range wakes {
		go func() { _ = q.worker.Execute(context.WithoutCancel(ctx), w) }()
	}
	return nil
}

// TestM37_NestedForks: a tree of forks of forks comes to its end on the database as it does in memory; the level
// below and what is over the cap are refused.
func TestM37_NestedForks(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			const tag = "<" + forkcore.BoilerplateTag + ">"
			var calls atomic.Int64
			model := forkcoretest.NewModel(func(n int, body []byte) forkcoretest.Answer {
				level := bytes.Count(body, []byte(tag))
				own := body[max(bytes.LastIndex(body, []byte(tag)), 0):]
				if bytes.Contains(own, []byte(`"role":"assistant"`)) {
					return forkcoretest.Text("Scope: s\nResult: r\nKey files: none\nFiles changed: none\nIssues: none")
				}
				var a forkcoretest.Answer
				for range 2 {
					a.Blocks = append(a.Blocks, forkcoretest.ToolUseBlock(fmt.Sprint("toolu_", calls.Add(1)), "Agent", fmt.Sprintf(`{"description":"x","prompt":"level %d"}`, level+1)))
				}
				return a
			})
			catalogue, err := forkcore.EmbeddedCatalogue()
			if err != nil {
				t.Fatal(err)
			}
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			store, queue := newStore(b.open(t), redisstore.Options{}), &atOnce{}
			e, err := engine.New(engine.Options{
				Store: store, Model: model, Tools: noTools{}, Enqueuer: queue, Catalogue: catalogue,
				Workspaces: []string{root}, Gate: forkcore.GateAlways, Guard: forkcore.Guard{MaxDepth: 2, MaxDescendants: 5},
			})
			if err != nil {
				t.Fatal(err)
			}
			queue.worker = e
			stop, err := e.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				e.Drain(0)
				stop()
			})
			s, _, err := e.CreateSession(t.Context(), forkcore.SessionSpec{Workspace: root}, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.SendMessage(t.Context(), s.ID, "go", ""); err != nil {
				t.Fatal(err)
			}
			deadline := time.Now().Add(20 * time.Second)
			for s.ActiveRuns = 1; s.ActiveRuns > 0; time.Sleep(5 * time.Millisecond) {
				if s, err = store.Session(t.Context(), s.ID); err != nil {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatalf("%d runs are still active", s.ActiveRuns)
				}
			}
			runs, _, err := store.RunsOf(t.Context(), s.ID, "", 0)
			if err != nil {
				t.Fatal(err)
			}
			depths, refused := map[int]int{}, map[string]int{}
			for _, r := range runs {
				if r.State != forkcore.Done {
					t.Errorf("%s at depth %d ended as %s: %+v", r.Kind, r.Depth, r.State, r.Reason)
				}
				if r.Kind != forkcore.KindFork {
					continue
				}
				depths[r.Depth]++
				log, err := store.Log(t.Context(), s.ID, r.ID, 0, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, en := range log {
					if en.Marker != nil && en.Marker.IsError {
						refused[en.Marker.Detail]++
					}
				}
			}
			// Two forks want two each, and three may still be started. When both ask at the same time the later gets none at all.
			if depths[1] != 2 || (depths[2] != 2 && depths[2] != 3) || len(depths) != 2 || s.Descendants != int64(2+depths[2]) {
				t.Errorf("forks by depth are %v with %d descendants, want 2 and then 2 or 3", depths, s.Descendants)
			}
			if refused[forkcore.GuardTag] != 2*depths[2] || refused[forkcore.GuardDescendants] != 4-depths[2] {
				t.Errorf("refusals are %v, want %d by %s and %d by %s", refused, 2*depths[2], forkcore.GuardTag, 4-depths[2], forkcore.GuardDescendants)
			}
			told := 0
			main, err := store.Log(t.Context(), s.ID, s.ID, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, en := range main {
				told += strings.Count(string(en.Bytes), "\"<task-notification>")
			}
			if int64(told) != s.Descendants {
				t.Errorf("%d reports reached the main agent, want %d", told, s.Descendants)
			}
		})
	}
}
