package forkcore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The proofs of byte-identical prefixes (M1 to M17) and of how a fork's
// messages are built (M18 to M27) that need no engine and no provider. Others stand beside
// what they prove.

func passportOf(t testing.TB, parent, child *Prefix) map[string]bool {
	t.Helper()
	checks, err := Passport(parent, child)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	out := map[string]bool{}
	for _, c := range checks {
		order = append(order, c.Dimension)
		out[c.Dimension] = c.Equal
		if c.Equal != (c.Parent == c.Child) || c.Parent.IsZero() {
			t.Errorf("%s: equal %v with %s and %s", c.Dimension, c.Equal, c.Parent, c.Child)
		}
	}
	if d := cmp.Diff([]string{"tools", "system", "model", "thinking", "messages"}, order); d != "" {
		t.Errorf("dimensions (-want +got):\n%s", d)
	}
	return out
}

// thinkingParams has every part of a request's head.
var thinkingParams = Params{
	Model: "claude-opus-5-5", Thinking: json.RawMessage(`{"type":"adaptive"}`), Effort: "low",
	ToolChoice: json.RawMessage(`{"type":"auto"}`), Betas: []string{"a", "b"}, MaxTokens: 9000,
}

func TestM01_M15_ForkInheritsAllDimensions(t *testing.T) {
	history := dispatching(t, 3)
	parent := chain(EncodeHead(thinkingParams, []ToolSpec{AgentTool()}, "system"), history[:3]) // the request that the dispatching message answered
	snap, fresh, err := NewSnapshot("s", parent.Append(history[3]), thinkingParams, nil, 4, nil, testTime)
	if err != nil {
		t.Fatal(err)
	}
	_, segments := parent.Append(history[3]).Segments()
	base, err := LoadSnapshot(snap, append(segments, fresh...))
	if err != nil {
		t.Fatal(err)
	}
	child := mustComplete(t, base, "do it")
	for dimension, equal := range passportOf(t, parent, child) {
		if !equal {
			t.Errorf("the child's %s differ", dimension)
		}
	}
	// Each dimension alone turns its own check red, and no other.
	other := thinkingParams
	other.Model = "claude-sonnet-5-5"
	effort := thinkingParams
	effort.Effort = "high"
	choice := thinkingParams
	choice.ToolChoice = json.RawMessage(`{"type":"none"}`)
	thinking := thinkingParams
	thinking.Thinking = json.RawMessage(`{"type":"disabled"}`)
	agent := []ToolSpec{AgentTool()}
	changed := slices.Clone(history[:3])
	changed[1] = message(t, RoleAssistant, text("looking "), toolUse("toolu_r", "Read", `{"path":"a<b.go"}`))
	for _, tt := range []struct {
		dimension string
		child     *Prefix
	}{
		{"model", chain(EncodeHead(other, agent, "system"), history)},
		{"thinking", chain(EncodeHead(effort, agent, "system"), history)},
		{"thinking", chain(EncodeHead(choice, agent, "system"), history)},
		{"thinking", chain(EncodeHead(thinking, agent, "system"), history)},
		{"tools", chain(EncodeHead(thinkingParams, nil, "system"), history)},
		{"system", chain(EncodeHead(thinkingParams, agent, "system "), history)},
		{"messages", chain(EncodeHead(thinkingParams, agent, "system"), changed)},
		{"messages", chain(EncodeHead(thinkingParams, agent, "system"), history[:2])},
	} {
		for dimension, equal := range passportOf(t, parent, tt.child) {
			if equal != (dimension != tt.dimension) {
				t.Errorf("%s changed: %s equal %v", tt.dimension, dimension, equal)
			}
		}
	}
	if _, err := Passport(parent, NewPrefix([]byte("{"))); err == nil {
		t.Error("a head that is no JSON has a passport")
	}
	if _, err := Passport(NewPrefix([]byte("{")), parent); err == nil {
		t.Error("a parent's head that is no JSON has a passport")
	}
}

// The tools of a fork are the parent's bytes, not an encoding of equal tools.
func TestM07_ToolsAreTheParentsBytes(t *testing.T) {
	tools := []ToolSpec{{Name: "Odd", Description: "<&>", InputSchema: json.RawMessage("{ \"type\":\"object\" , \"z\":1.0,\"a\":{}}")}, AgentTool()}
	head := EncodeHead(testParams, tools, "s")
	history := []Message{message(t, RoleUser, text("q")), message(t, RoleAssistant, text("a"))}
	snap, fresh, err := NewSnapshot("s", chain(head, history), testParams, nil, 1, nil, testTime)
	if err != nil {
		t.Fatal(err)
	}
	base, err := LoadSnapshot(snap, [][]byte{head, history[0].Raw, history[1].Raw, fresh[0]})
	if err != nil {
		t.Fatal(err)
	}
	if got := mustComplete(t, base, "x").Bytes(); !bytes.HasPrefix(got, head) || !bytes.Contains(head, tools[0].InputSchema) {
		t.Errorf("the child's head is\n%s\nwant\n%s", got[:len(head)], head)
	}
}

// The output limit is the parent's and stands behind the messages, so neither
// thinking's budget nor the prefix can follow a child's wish.
func TestM12_OutputLimitIsNoPartOfThePrefix(t *testing.T) {
	small, large := testParams, testParams
	small.MaxTokens, large.MaxTokens = 1, 128_000
	small.Thinking = json.RawMessage(`{"type":"enabled","budget_tokens":2048}`)
	large.Thinking = small.Thinking
	if !bytes.Equal(EncodeHead(small, nil, "s"), EncodeHead(large, nil, "s")) {
		t.Error("the output limit is in the head")
	}
	f := newFanOut(t, dispatching(t, 1))
	p := f.request(t, "x")
	body, err := p.Body(nil, f.snap.Params, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body.Bytes()[p.Len():]), `],"max_tokens":4096,"stream":true}`; got != want {
		t.Errorf("behind the messages: %s, want %s", got, want)
	}
}

// At its first request a child has what the parent has, and two messages more:
// the dispatching one and its own.
func TestM13_M18_TwoMessagesMoreThanTheParentSent(t *testing.T) {
	for _, n := range []int{1, 5, 64} {
		history := dispatching(t, n)
		child := newFanOut(t, history).child(t, "x")
		if got, want := len(child), len(history[:3])+2; got != want {
			t.Errorf("%d forks: %d messages, want %d", n, got, want)
		}
		if own := child[3:]; own[0].Role != RoleAssistant || own[1].Role != RoleUser {
			t.Errorf("%d forks: the last two are from %s and %s", n, own[0].Role, own[1].Role)
		}
	}
}

// A mark ends what may be cached: it stands at the end of a block, as the last
// member, and taking it out gives the canonical bytes.
func TestM17_MarksEndWhatMayBeCached(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	p := f.request(t, "x")
	plan, err := PlanMarks(Plan{Prefix: p, Snapshot: &f.snap, FirstRequest: true})
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.Body(plan.Marks, testParams, nil)
	if err != nil {
		t.Fatal(err)
	}
	const mark = `,"cache_control":{"type":"ephemeral"}`
	rest, at := string(body.Bytes()), int64(0)
	for _, m := range plan.Marks {
		before, after, ok := strings.Cut(rest, mark)
		if !ok || after[0] != '}' {
			t.Fatalf("no mark at the end of %s: …%s", m.Block, after[:min(20, len(after))])
		}
		at += int64(len(before))
		if at+1 != m.Offset {
			t.Errorf("the mark of %s stands at %d, want %d", m.Block, at+1, m.Offset)
		}
		rest = after
	}
	if strings.Contains(rest, "cache_control") {
		t.Error("a mark more than planned")
	}
}

// The dispatching message is whole in every child: thinking with its signature, text and every call under its id.
func TestM19_M20_AssistantMessageIsWhole(t *testing.T) {
	unknown := []byte(`{"type":"future_x", "k" : [1.0, 1e2]}`)
	history := dispatching(t, 4, toolUse("toolu_x", "Bash", `{ "command":"ls" }`), unknown)
	f := newFanOut(t, history)
	for i := range 4 {
		got := f.child(t, fmt.Sprint(i))[3]
		if !bytes.Equal(got.Raw, history[3].Raw) {
			t.Errorf("child %d has another message:\n%s\nwant\n%s", i, got.Raw, history[3].Raw)
		}
		if !bytes.Contains(got.Raw, []byte(thinkingBlock)) || !bytes.Contains(got.Raw, unknown) {
			t.Errorf("child %d lost a block", i)
		}
		if ids := len(got.ToolCalls()); ids != 5 {
			t.Errorf("child %d has %d calls, want 5", i, ids)
		}
	}
	// A child that kept only its own call would share nothing from there on.
	fewer := slices.Clone(history)
	fewer[3] = message(t, RoleAssistant, history[3].Blocks[0].Raw, history[3].Blocks[1].Raw, history[3].Blocks[2].Raw)
	at, _, _ := FirstDifference(f.request(t, "x").Bytes(), newFanOut(t, fewer).request(t, "x").Bytes())
	if end, _ := chain(f.head, history[:3]).Tail(); at < end || at > end+int64(len(history[3].Raw)) {
		t.Errorf("they part at %d, want inside the message behind %d", at, end)
	}
}

func TestM21_OneResultForEachCallInOrder(t *testing.T) {
	history := dispatching(t, 3, toolUse("toolu_x", "Bash", `{}`), toolUse("toolu_a", "Read", `{}`))
	child := newFanOut(t, history).child(t, "x")
	var calls, results []string
	for _, c := range child[3].ToolCalls() {
		calls = append(calls, c.ID)
	}
	for _, b := range child[4].Blocks {
		if b.Type == "tool_result" {
			results = append(results, b.ToolUseID)
		}
	}
	if d := cmp.Diff(calls, results); d != "" || len(calls) != 5 {
		t.Errorf("results (-calls +results):\n%s", d)
	}
}

// One constant answers all calls of all children, in one shape: an array with one text block.
func TestM22_M23_OnePlaceholderForAll(t *testing.T) {
	const placeholder = `"content":[{"type":"text","text":"Fork started; processing in background"}]}`
	for _, n := range []int{1, 7} {
		f := newFanOut(t, dispatching(t, n, toolUse("toolu_x", "Bash", `{}`)))
		for i := range 3 {
			body := string(f.request(t, fmt.Sprint(i)).Bytes())
			if got := strings.Count(body, placeholder); got != n+1 {
				t.Errorf("%d forks: %d placeholders in child %d, want %d", n, got, i, n+1)
			}
			if got := strings.Count(body, Placeholder); got != n+1 {
				t.Errorf("%d forks: the text stands %d times, want %d", n, got, n+1)
			}
		}
	}
}

// The history is formally incoherent: every fork is told that it was started. The boilerplate says what to make of it.
func TestM24_BoilerplateExplainsThePlaceholders(t *testing.T) {
	if b := Boilerplate(); !strings.Contains(b, "results of the tool calls just above only say that forks were started") {
		t.Errorf("nothing explains the placeholders:\n%s", b)
	}
}

// Two children differ inside their last text block and nowhere before.
func TestM25_FirstDifferenceIsInTheLastBlock(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	a, b := f.request(t, "count .go files").Bytes(), f.request(t, "list the open questions").Bytes()
	at, path, equal := FirstDifference(a, b)
	if want := int64(len(f.prefix()) + len(`,{"type":"text","text":"`)); equal || at != want || path != "messages.4.content.3.text" {
		t.Errorf("they part at %d (%s), want %d", at, path, want)
	}
}

// The last shared mark stands on the boilerplate, and on the last placeholder
// as well: whoever shares the one or the other reads it.
func TestM27_BoundaryBeforeTheDirective(t *testing.T) {
	for _, n := range []int{1, 2, 9, 64} {
		f := newFanOut(t, dispatching(t, n))
		plan, err := PlanMarks(Plan{Prefix: f.request(t, "x"), Snapshot: &f.snap, FirstRequest: true})
		if err != nil {
			t.Fatal(err)
		}
		var blocks []string
		for _, m := range plan.Marks[len(plan.Marks)-2:] {
			blocks = append(blocks, m.Block)
		}
		if d := cmp.Diff([]string{fmt.Sprintf("messages.4.content.%d", n-1), fmt.Sprintf("messages.4.content.%d", n)}, blocks); d != "" {
			t.Errorf("%d forks: last marks (-want +got):\n%s", n, d)
		}
	}
}
