package forkcore

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// forkView is the view of a fork that has its first message.
func forkView(t *testing.T) (*View, fanOut) {
	t.Helper()
	f := newFanOut(t, dispatching(t, 2))
	v := NewView(f.base)
	apply(t, v,
		Entry{Seq: 1, Kind: EntryMarker, Marker: &Marker{Type: MarkerForkOf, Snapshot: &f.snap.ID}},
		Entry{Seq: 2, Kind: EntryMessage, Bytes: DirectiveBlock("d"), Fragment: true})
	return v, f
}

// compacted replaces a fork's history by a summary.
func compacted(t *testing.T, v *View) {
	t.Helper()
	apply(t, v,
		Entry{Seq: 3, Kind: EntryMessage, Bytes: EncodeMessage(RoleAssistant, text("seen"))},
		Entry{Seq: 4, Kind: EntryMarker, Marker: &Marker{Type: MarkerCompact}},
		Entry{Seq: 5, Kind: EntryMessage, Bytes: EncodeMessage(RoleUser, text("You were to do d. You saw it."))})
}

func TestGuard(t *testing.T) {
	leaf := Guard{MaxDepth: 1, MaxDescendants: 10}
	deep := Guard{MaxDepth: 2, MaxDescendants: 10}
	tests := []struct {
		name   string
		guard  Guard
		caller Caller
		want   string // empty: may
	}{
		{"main agent", leaf, Caller{}, ""},
		{"main agent, the last one", leaf, Caller{Descendants: 9}, ""},
		{"main agent at the cap", leaf, Caller{Descendants: 10}, GuardDescendants},
		{"main agent over the cap", leaf, Caller{Descendants: 11}, GuardDescendants},
		{"fork", leaf, Caller{QuerySource: QuerySourceFork, Tags: 1, Depth: 1}, GuardQuerySource},
		{"fork over the cap: the first guard speaks", leaf, Caller{QuerySource: QuerySourceFork, Descendants: 10}, GuardQuerySource},
		{"another source is no fork", leaf, Caller{QuerySource: "agent:builtin:forks"}, ""},
		{"tag alone", leaf, Caller{Tags: 1}, GuardTag},
		{"tag and depth", leaf, Caller{Tags: 1, Depth: 1}, GuardTag},
		{"depth alone", leaf, Caller{Depth: 1}, GuardDepth},
		{"fork that may fork", deep, Caller{QuerySource: QuerySourceFork, Tags: 1, Depth: 1}, ""},
		{"fork of a fork", deep, Caller{QuerySource: QuerySourceFork, Tags: 2, Depth: 2}, GuardTag},
		{"fork of a fork, compacted", deep, Caller{QuerySource: QuerySourceFork, Depth: 2}, GuardDepth},
		{"beyond the limit", deep, Caller{QuerySource: QuerySourceFork, Depth: 3}, GuardDepth},
		{"fork that may fork, at the cap", deep, Caller{QuerySource: QuerySourceFork, Tags: 1, Depth: 1, Descendants: 10}, GuardDescendants},
		{"a depth of none still lets the main agent fork", Guard{MaxDescendants: 1}, Caller{}, ""},
		{"a depth of none makes leaves", Guard{MaxDescendants: 1}, Caller{Depth: 1}, GuardDepth},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if r := tt.guard.Check(tt.caller); r != nil {
				got = r.Guard
				if r.Reason == "" || r.Error() != r.Reason {
					t.Errorf("refused without a reason: %+v", r)
				}
			}
			if got != tt.want {
				t.Errorf("refused by %q, want %q", got, tt.want)
			}
		})
	}
}

// A refusal says what to do instead.
func TestGuardReasons(t *testing.T) {
	tests := []struct {
		guard  Guard
		caller Caller
		want   string
	}{
		{Guard{MaxDepth: 1, MaxDescendants: 1}, Caller{Depth: 1}, "a fork cannot start agents: carry out the directive yourself and report"},
		{Guard{MaxDepth: 2, MaxDescendants: 1}, Caller{Depth: 2}, "forks may be nested 2 deep here, and this one is: carry out the directive yourself and report"},
		{Guard{MaxDepth: 1, MaxDescendants: 5}, Caller{Descendants: 5}, "this session has started 5 of at most 5 forks; 1 more would be too many. Do the rest of the work yourself"},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, tt.guard.Check(tt.caller).Error()); d != "" {
			t.Errorf("reason (-want +got):\n%s", d)
		}
	}
}

// M34: the source alone is enough, for it is one comparison and no text can change it.
func TestM34_QuerySourceRefuses(t *testing.T) {
	g := Guard{MaxDepth: DefaultForkDepth, MaxDescendants: DefaultMaxDescendants}
	if r := g.Check(Caller{QuerySource: "agent:builtin:fork"}); r == nil || r.Guard != GuardQuerySource {
		t.Errorf("a fork by its source alone is answered %+v", r)
	}
}

// M35: what the history says is counted in user messages' text blocks alone, and only where they begin with the rules.
func TestM35_TagScan(t *testing.T) {
	rules := text(Boilerplate())
	tests := []struct {
		name    string
		message Message
		want    int
	}{
		{"rules", message(t, RoleUser, rules), 1},
		{"rules behind results", message(t, RoleUser, AppendToolResult(nil, "t", Placeholder, false), rules, text("d")), 1},
		{"two of them", message(t, RoleUser, rules, text("d"), rules), 2},
		{"a text that quotes the tag", message(t, RoleUser, text("what is <fork-boilerplate>?")), 0},
		{"a text that begins with it, as it is stored", message(t, RoleUser, text(NeutralizeTags("<fork-boilerplate> is what?"))), 0},
		{"a tool result", message(t, RoleUser, AppendToolResult(nil, "t", Boilerplate(), false)), 0},
		{"an answer", message(t, RoleAssistant, rules), 0},
		{"another tag", message(t, RoleUser, text("<fork-boilerplates>")), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := NewPrefix(testHead()).Append(tt.message).ForkTags(); got != tt.want {
				t.Errorf("ForkTags = %d, want %d", got, tt.want)
			}
		})
	}
	v, _ := forkView(t)
	g := Guard{MaxDepth: 1, MaxDescendants: 1}
	if r := g.Check(Caller{Tags: v.Prefix.ForkTags()}); r == nil || r.Guard != GuardTag {
		t.Errorf("a fork by its history alone is answered %+v", r)
	}
}

// M36: whatever a fork loses, another guard holds.
func TestM36_QuerySourceSurvivesCompaction(t *testing.T) {
	v, _ := forkView(t)
	compacted(t, v)
	if n := v.Prefix.ForkTags(); n != 0 {
		t.Fatalf("the tag is still there %d times", n)
	}
	r := Guard{MaxDepth: 1, MaxDescendants: 1}.Check(Caller{QuerySource: QuerySourceFork, Tags: v.Prefix.ForkTags()})
	if r == nil || r.Guard != GuardQuerySource {
		t.Errorf("answered %+v, want a refusal by %s", r, GuardQuerySource)
	}
}

func TestM36_TagWithoutQuerySource(t *testing.T) {
	v, _ := forkView(t)
	r := Guard{MaxDepth: 1, MaxDescendants: 1}.Check(Caller{Tags: v.Prefix.ForkTags(), Depth: 1})
	if r == nil || r.Guard != GuardTag {
		t.Errorf("answered %+v, want a refusal by %s", r, GuardTag)
	}
}

func TestM36_DepthWithoutBoth(t *testing.T) {
	v, _ := forkView(t)
	compacted(t, v)
	r := Guard{MaxDepth: 1, MaxDescendants: 1}.Check(Caller{Tags: v.Prefix.ForkTags(), Depth: 1})
	if r == nil || r.Guard != GuardDepth {
		t.Errorf("answered %+v, want a refusal by %s", r, GuardDepth)
	}
}

func TestM37_Admit(t *testing.T) {
	tests := []struct {
		have, n, limit int64
		message, next  string // empty: admitted
	}{
		{0, 10, 10, "", ""},
		{3, 7, 10, "", ""},
		{0, 11, 10, "started 0 of at most 10 forks; 11 more", "Dispatch at most 10,"},
		{8, 3, 10, "started 8 of at most 10 forks; 3 more", "Dispatch at most 2,"},
		{9, 2, 10, "started 9 of at most 10", "Dispatch at most 1,"},
		{10, 1, 10, "started 10 of at most 10", "Start a new session"},
		{12, 1, 10, "started 12 of at most 10", "Start a new session"},
	}
	for _, tt := range tests {
		err := Guard{MaxDescendants: tt.limit}.Admit(tt.have, tt.n)
		switch {
		case tt.message == "":
			if err != nil {
				t.Errorf("%d and %d of %d: %v", tt.have, tt.n, tt.limit, err)
			}
		case err == nil || !errors.Is(err, ErrConflict) || !strings.Contains(err.Message, tt.message) || !strings.HasPrefix(err.NextStep, tt.next) || !strings.Contains(err.NextStep, "FORKYARD_MAX_DESCENDANTS"):
			t.Errorf("%d and %d of %d: %+v, want %q and %q", tt.have, tt.n, tt.limit, err, tt.message, tt.next)
		}
	}
}

// A fork of a fork inherits from a fork: its snapshot stands on the fork's own history.
func TestM37_SnapshotOfAFork(t *testing.T) {
	v, f := forkView(t)
	apply(t, v, Entry{Seq: 3, Kind: EntryMessage, Bytes: EncodeMessage(RoleAssistant, toolUse("toolu_n", AgentToolName, `{"prompt":"n"}`))})
	snap, fresh, err := NewSnapshot(f.snap.SessionID, v.Prefix, testParams, f.snap.Tools, v.Len, nil, f.snap.CreatedAt)
	if err != nil {
		t.Fatal(err)
	}
	// What the store does not have yet: the fork's own first message, closed, and the open one.
	segments := append(append([][]byte{f.head}, raws(f.history)...), fresh[1], v.last.Raw, fresh[0])
	base, err := LoadSnapshot(snap, segments)
	if err != nil {
		t.Fatal(err)
	}
	if at, id := v.Prefix.Tail(); base.end <= at {
		t.Errorf("the nested prefix of %d bytes is no longer than the fork's of %d (%s)", base.end, at, id)
	}
	if !strings.HasPrefix(string(base.Bytes()), string(v.Prefix.Bytes())) {
		t.Error("the nested prefix does not start with the fork's bytes")
	}
	child, _, err := base.Complete(DirectiveBlock("n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := []int{v.Prefix.ForkTags(), base.ForkTags(), child.ForkTags()}; !cmp.Equal(got, []int{1, 2, 2}) {
		t.Errorf("ForkTags of fork, nested prefix and nested child are %v, want 1, 2, 2", got)
	}
}

// A fork that forks is told where the reports go.
func TestM37_ReportsGoToTheMainAgent(t *testing.T) {
	v, _ := forkView(t)
	apply(t, v,
		Entry{Seq: 3, Kind: EntryMessage, Bytes: EncodeMessage(RoleAssistant, toolUse("toolu_n", AgentToolName, `{"prompt":"n"}`), toolUse("toolu_m", AgentToolName, `{"prompt":""}`))},
		Entry{Seq: 4, Kind: EntryMarker, Marker: &Marker{Type: MarkerToolResult, ToolUseID: "toolu_m", Bytes: AppendToolResult(nil, "toolu_m", "no", true)}},
		Entry{Seq: 5, Kind: EntryMarker, Marker: &Marker{Type: MarkerLaunched, DispatchID: "dsp", RunIDs: []string{"run_1"}, ToolUseIDs: []string{"toolu_n"}}})
	blocks := message(t, RoleUser, v.AnswerBlocks()...).Blocks
	if got, want := blocks[0].Text, "async_launched: fork run_1 runs in the background; its report will go to the main agent, not to you"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}

	v, _ = forkView(t)
	apply(t, v,
		Entry{Seq: 3, Kind: EntryMessage, Bytes: EncodeMessage(RoleAssistant, toolUse("toolu_n", AgentToolName, `{"prompt":"n"}`))},
		Entry{Seq: 4, Kind: EntryMarker, Marker: &Marker{Type: MarkerLaunched, DispatchID: "dsp", RunIDs: []string{"run_1"}, ToolUseIDs: []string{"toolu_n"}}})
	blocks = message(t, RoleUser, v.AnswerBlocks()...).Blocks
	if got, want := blocks[1].Text, "Forks started in the background; their reports will go to the main agent, not to you:\n- run_1"; got != want {
		t.Errorf("list %q, want %q", got, want)
	}
}

func TestParseGuard(t *testing.T) {
	tests := []struct {
		depth, descendants string
		want               Guard
		bad                []string
	}{
		{"1", "256", Guard{MaxDepth: DefaultForkDepth, MaxDescendants: DefaultMaxDescendants}, nil},
		{"8", "1000000", Guard{MaxDepth: 8, MaxDescendants: 1_000_000}, nil},
		{"2", "1", Guard{MaxDepth: 2, MaxDescendants: 1}, nil},
		{"9", "1", Guard{}, []string{`FORKYARD_FORK_DEPTH: "9" is no number from 1 to 8`}},
		{"0", "1000001", Guard{}, []string{`FORKYARD_FORK_DEPTH: "0"`, `FORKYARD_MAX_DESCENDANTS: "1000001" is no number from 1 to 1000000`}},
		{"x", "0", Guard{}, []string{`FORKYARD_FORK_DEPTH: "x"`, `FORKYARD_MAX_DESCENDANTS: "0"`}},
		{"1", "1.5", Guard{}, []string{`FORKYARD_MAX_DESCENDANTS: "1.5"`}},
	}
	for _, tt := range tests {
		got, err := ParseGuard(tt.depth, tt.descendants)
		if tt.bad == nil {
			if err != nil || got != tt.want {
				t.Errorf("%q, %q: %+v, %v; want %+v", tt.depth, tt.descendants, got, err, tt.want)
			}
			continue
		}
		if err == nil || strings.Count(err.Error(), "\n") != len(tt.bad)-1 {
			t.Errorf("%q, %q: %v, want %d errors", tt.depth, tt.descendants, err, len(tt.bad))
			continue
		}
		for _, bad := range tt.bad {
			if !strings.Contains(err.Error(), bad) {
				t.Errorf("%q, %q: %v, want %q", tt.depth, tt.descendants, err, bad)
			}
		}
	}
}
