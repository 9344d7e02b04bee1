package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// level is how deep the agent is that sent a call: 0 for the main agent. It counts the rules in the history.
func (c call) level() int {
	n := 0
	for _, m := range c.messages {
		for _, b := range m.Blocks {
			if m.Role == forkcore.RoleUser && strings.HasPrefix(b.Text, "<"+forkcore.BoilerplateTag+">") {
				n++
			}
		}
	}
	return n
}

// own are the directive of the agent that sent a call and how many answers it has had since.
func (c call) own() (directive string, answers int) {
	start := 0
	for i, m := range c.messages {
		for k, b := range m.Blocks {
			if m.Role == forkcore.RoleUser && strings.HasPrefix(b.Text, "<"+forkcore.BoilerplateTag+">") {
				start, directive = i, m.Blocks[k+1].Text
			}
		}
	}
	for _, m := range c.messages[start:] {
		if m.Role == forkcore.RoleAssistant {
			answers++
		}
	}
	return directive, answers
}

// refusals are the guards that a log says refused something.
func (y *yard) refusals(agent string) string {
	y.Helper()
	var guards []string
	for _, e := range y.entries(agent) {
		if m := e.Marker; m != nil && m.Type == forkcore.MarkerToolResult && m.IsError {
			guards = append(guards, m.Detail)
		}
	}
	return strings.Join(guards, " ")
}

// nesting makes every agent above the given level fork once, into two, and then report.
func nesting(levels int) func(call) reply {
	return func(c call) reply {
		directive, answers := c.own()
		var a reply
		switch {
		case c.level() < levels && answers == 0:
			var blocks []string
			for i := 1; i <= 2; i++ {
				blocks = append(blocks, use(fmt.Sprintf("toolu_%d_%s_%d", c.level(), directive, i), "Agent", fmt.Sprintf(`{"description":"x","prompt":"%s%d"}`, directive, i)))
			}
			a = useTools(blocks...)
		default:
			a = say(reportText + " " + directive)
		}
		a.before, a.after = time.Second, time.Second
		return a
	}
}

// notes is a log that can be read by a test.
type notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// TestM09_AgentStaysInTheChildsTools: the child's tools are its parent's bytes, Agent included; calling it is a tool error.
func TestM09_AgentStaysInTheChildsTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nesting(2))
		y.ask("go")
		y.idle()
		var parent string
		for _, c := range y.model.received() {
			_, tools, ok := strings.Cut(string(unmarked(c.body)), `"tools":`)
			if !ok {
				t.Fatalf("request %d has no tools", c.n)
			}
			tools, _, _ = strings.Cut(tools, `,"system":`)
			if parent == "" {
				parent = tools
			}
			if tools != parent || !strings.Contains(tools, `"name":"Agent"`) {
				t.Errorf("request %d of level %d has other tools than the first, or no Agent:\n%s", c.n, c.level(), tools)
			}
		}
		for _, f := range y.forks() {
			want(t, "refusals", y.refusals(f.ID), "query_source query_source")
		}
	})
}

// TestM34_RefusalCostsNoRequest: a fork that calls Agent, by whatever type, starts nothing, and nothing is sent for the refusal itself.
func TestM34_RefusalCostsNoRequest(t *testing.T) {
	for _, given := range []string{"", "fork", "Explore", "Plan", "general-purpose", "nobody"} {
		t.Run("type "+given, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					switch _, answers := c.own(); {
					case c.level() == 0 && answers == 0:
						return agents(1)
					case c.level() == 1 && answers == 0:
						return useTools(use("nested", "Agent", fmt.Sprintf(`{"description":"x","prompt":"p","subagent_type":%q}`, given)))
					}
					return say(reportText)
				})
				y.ask("go")
				y.idle()
				forks := y.forks()
				want(t, "forks", len(forks), 1)
				want(t, "query source", forks[0].QuerySource, "agent:builtin:fork")
				want(t, "depth", forks[0].Depth, 1)
				levels := map[int]int{}
				for _, c := range y.model.received() {
					levels[c.level()]++
				}
				want(t, "requests of the fork: its call and its report", levels[1], 2)
				want(t, "requests of levels", len(levels), 2)
				want(t, "log of the fork", y.log(forks[0].ID), "fork_of directive assistant tool_result:Agent user assistant")
				want(t, "refused by", y.refusals(forks[0].ID), "query_source")
				want(t, "tool uses", forks[0].ToolUses, 0)
				want(t, "is flagged", forks[0].UsedNoTool(), true)
			})
		})
	}
}

// forgetful is a store that lost what runs carry from their birth on.
type forgetful struct {
	engine.Store
	source, depth bool
}

func (s forgetful) TakeLease(ctx context.Context, w engine.Wake, executor, token string, foreground bool) (engine.Lease, error) {
	l, err := s.Store.TakeLease(ctx, w, executor, token, foreground)
	if s.source {
		l.Run.QuerySource = ""
	}
	if s.depth {
		l.Run.Depth = 0
	}
	return l, err
}

// TestM35_FallbackIsNamed: without its source a fork is known by its history, without that by its depth; log and
// transcript name who refused.
func TestM35_FallbackIsNamed(t *testing.T) {
	tests := []struct {
		name  string
		lost  forgetful
		guard string
	}{
		{"nothing lost", forgetful{}, forkcore.GuardQuerySource},
		{"source lost", forgetful{source: true}, forkcore.GuardTag},
		{"source and depth lost", forgetful{source: true, depth: true}, forkcore.GuardTag},
		{"depth lost", forgetful{depth: true}, forkcore.GuardQuerySource},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := &notes{}
				y := newYard(t, nesting(2), func(o *engine.Options) {
					tt.lost.Store = o.Store
					o.Store, o.Logger = tt.lost, slog.New(slog.NewTextHandler(said, nil))
				})
				y.ask("go")
				y.idle()
				want(t, "forks", len(y.forks()), 2)
				for _, f := range y.forks() {
					want(t, "refused by", y.refusals(f.ID), tt.guard+" "+tt.guard)
				}
				want(t, "lines in the log", strings.Count(said.String(), "guard="+tt.guard), 4)
			})
		})
	}
}

// TestM37_NestedForks: where the setting lets them, forks fork, each from its own history; the next level is refused.
func TestM37_NestedForks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nesting(3), func(o *engine.Options) { o.Guard.MaxDepth = 2 })
		y.ask("go")
		y.idle()
		byDepth := map[int][]forkcore.Run{}
		for _, f := range y.forks() {
			want(t, "state", f.State, forkcore.Done)
			byDepth[f.Depth] = append(byDepth[f.Depth], f)
		}
		if len(byDepth) != 2 || len(byDepth[1]) != 2 || len(byDepth[2]) != 4 {
			t.Fatalf("forks by depth: %d, %d, of %d", len(byDepth[1]), len(byDepth[2]), len(y.forks()))
		}
		want(t, "descendants", y.sessionNow().Descendants, 6)
		for _, f := range byDepth[1] {
			want(t, "log of a fork that forks", y.log(f.ID), "fork_of directive assistant tool_started:Agent tool_started:Agent launched user assistant")
		}
		for _, f := range byDepth[2] {
			// Refused by what the history says: the source tells a fork, not how deep it is.
			want(t, "refused by", y.refusals(f.ID), "tag tag")
			parent := y.run(f.ParentRunID)
			want(t, "depth of the parent", parent.Depth, 1)
			want(t, "directive", f.Directive, fmt.Sprintf("%s%d", parent.Directive, f.Index+1))
			if f.Snapshot == parent.Snapshot {
				t.Error("a fork of a fork has its parent's snapshot")
			}
			d := y.dispatch(f.DispatchID)
			want(t, "dispatched by", d.ParentRunID, parent.ID)
			want(t, "gate", d.Gate, forkcore.GateOpen)
			want(t, "remaining", d.Remaining, 0)
			prefix, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, f.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			own, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, parent.Snapshot)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(prefix), string(own)) {
				t.Error("the inheritance of a fork of a fork does not start with the fork's own")
			}
			sent := 0
			for _, c := range y.model.received() {
				if strings.HasPrefix(string(unmarked(c.body)), string(prefix)) {
					sent++
				}
			}
			want(t, "requests that start with it: two children, two each", sent, 4)
		}
		y.wantBodies()

		// Every report reaches the main agent, once.
		told := map[string]int{}
		for _, e := range y.entries(y.session.ID) {
			if e.Kind != forkcore.EntryMessage {
				continue
			}
			for _, b := range y.message(e).Blocks {
				for _, f := range y.forks() {
					if strings.HasPrefix(b.Text, "<task-notification>") && strings.Contains(b.Text, "<task-id>"+f.ID+"<") {
						told[f.ID]++
					}
				}
			}
		}
		for _, f := range y.forks() {
			want(t, "notices of "+f.ID, told[f.ID], 1)
		}
	})
}

// TestM37_ForkWaitsForItsForksGate: the request of a fork after its own fan-out shares the placeholders, so it goes
// after the leader's response has begun.
func TestM37_ForkWaitsForItsForksGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nesting(2), func(o *engine.Options) { o.Guard.MaxDepth = 2 })
		y.ask("go")
		y.idle()
		var first, next time.Time
		for _, c := range y.model.received() {
			switch d, answers := c.own(); {
			case c.level() == 2 && d == "11":
				first = c.at
			case c.level() == 1 && d == "1" && answers == 1:
				next = c.at
			}
		}
		if first.IsZero() || next.Sub(first) < time.Second {
			t.Errorf("the fork's next request went %v after its leader's, whose response took a second to begin", next.Sub(first))
		}
	})
}

// TestM37_DescendantsOfAModel: what is over the cap is a tool error, call by call; the session goes on.
func TestM37_DescendantsOfAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(5), func(o *engine.Options) { o.Guard.MaxDescendants = 3 })
		y.ask("go")
		y.idle()
		want(t, "forks", len(y.forks()), 3)
		want(t, "descendants", y.sessionNow().Descendants, 3)
		want(t, "refused by", y.refusals(y.session.ID), "descendants descendants")
	})
}

// TestM37_DescendantsOfAPerson: figures and a next step, and nothing is started.
func TestM37_DescendantsOfAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say(reportText) }, func(o *engine.Options) { o.Guard.MaxDescendants = 3 })
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("a", "b"), "key"); err != nil {
			t.Fatal(err)
		}
		y.idle()
		_, quoteErr := y.engine.QuoteForks(y.ctx, y.session.ID, directives("c", "d"))
		_, _, forkErr := y.engine.Fork(y.ctx, y.session.ID, directives("c", "d"), "")
		for _, err := range []error{quoteErr, forkErr} {
			var conflict *forkcore.ConflictError
			if !errors.As(err, &conflict) || !strings.Contains(conflict.Message, "2 of at most 3") || !strings.Contains(conflict.NextStep, "at most 1") {
				t.Errorf("over the cap: %v", err)
			}
		}
		want(t, "forks", len(y.forks()), 2)
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("c"), ""); err != nil {
			t.Errorf("up to the cap: %v", err)
		}
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("a", "b"), "key"); err != nil {
			t.Errorf("repeat of one that was started: %v", err)
		}
		y.idle()
	})
}

// behind is a store whose sessions are read as they were before anybody forked.
type behind struct{ engine.Store }

func (s behind) Session(ctx context.Context, id string) (forkcore.Session, error) {
	session, err := s.Store.Session(ctx, id)
	session.Descendants = 0
	return session, err
}

// TestM37_DescendantsMeanwhile: the cap holds though others start forks between the guard and the dispatch.
func TestM37_DescendantsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(2), func(o *engine.Options) {
			o.Guard.MaxDescendants, o.Store = 3, behind{o.Store}
		})
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("a", "b"), ""); err != nil {
			t.Fatal(err)
		}
		y.idle()
		main := y.ask("go")
		y.idle()
		want(t, "state", main.State, forkcore.Done)
		want(t, "forks", len(y.forks()), 2)
		want(t, "refused by", y.refusals(y.session.ID), "descendants descendants")
	})
}

// TestM28_ParentThatMentionsTheTagCanFork: B41, end to end. Whatever a person writes about the tag, the agent is no fork.
func TestM28_ParentThatMentionsTheTagCanFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, fanOut(2))
		y.ask("<fork-boilerplate> is what? Close it with </fork-boilerplate>, then fan out")
		y.idle()
		want(t, "states", y.states(), "main:done fork:done fork:done main:done")
		for _, c := range y.model.received() {
			if n := strings.Count(string(c.body), "<fork-boilerplate>"); n != c.level() || n > 1 {
				t.Errorf("request %d of level %d has the tag %d times", c.n, c.level(), n)
			}
		}
		want(t, "refusals", y.refusals(y.session.ID), "")
	})
}
