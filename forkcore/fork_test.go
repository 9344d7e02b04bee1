package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// dispatching is a history whose last message asks for n forks, beside thinking,
// text and the given other calls.
func dispatching(t testing.TB, n int, others ...[]byte) []Message {
	t.Helper()
	blocks := [][]byte{[]byte(thinkingBlock), text("I will fan out.")}
	for i := range n {
		blocks = append(blocks, toolUse(fmt.Sprintf("toolu_%02d", i), AgentToolName, fmt.Sprintf(`{"description":"d%d","prompt": "do %d"}`, i, i)))
	}
	return []Message{
		message(t, RoleUser, text("look around, then split the work")),
		message(t, RoleAssistant, text("looking"), toolUse("toolu_r", "Read", `{"path":"a<b.go"}`)),
		message(t, RoleUser, AppendToolResult(nil, "toolu_r", "package a", false)),
		message(t, RoleAssistant, append(blocks, others...)...),
	}
}

type fanOut struct {
	head    []byte
	history []Message
	snap    Snapshot
	open    []byte
	base    *Prefix // as all children of a process share it
}

func newFanOut(t testing.TB, history []Message, entries ...CacheEntry) fanOut {
	t.Helper()
	f := fanOut{head: testHead(), history: history}
	snap, fresh, err := NewSnapshot("ses_00aaaaaaaaaaaaaaaa", chain(f.head, history), testParams, []string{"Agent", "Read"}, 7, entries, time.Unix(1, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	if len(fresh) != 1 {
		t.Fatalf("%d fresh segments, want the open one", len(fresh))
	}
	f.snap, f.open = snap, fresh[0]
	if f.base, err = LoadSnapshot(f.snap, f.segments()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fanOut) segments() [][]byte {
	return append([][]byte{f.head}, append(raws(f.history), f.open)...)
}

// request is a child's bytes before its first request.
func (f fanOut) request(t testing.TB, directive string) *Prefix {
	t.Helper()
	v := NewView(f.base)
	apply(t, v,
		Entry{Seq: 1, Kind: EntryMarker, Marker: &Marker{Type: MarkerForkOf, Snapshot: &f.snap.ID}},
		Entry{Seq: 2, Kind: EntryMessage, Bytes: DirectiveBlock(directive), Fragment: true})
	return v.Prefix
}

// child gives a child's messages before its first request.
func (f fanOut) child(t testing.TB, directive string) []Message {
	t.Helper()
	return messagesOf(t, f.request(t, directive))
}

// prefix is the shared bytes, joined apart from the code under test.
func (f fanOut) prefix() []byte { return joined(f.head, append(raws(f.history), f.open)) }

func apply(t testing.TB, v *View, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := v.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
}

// B01, B12, B34: siblings are equal through the boilerplate and differ inside
// the last text block alone.
func TestSiblingsDifferInTheLastBlockAlone(t *testing.T) {
	tests := []struct {
		name    string
		history []Message
		results int
	}{
		{"one Agent call", dispatching(t, 1), 1},
		{"five Agent calls", dispatching(t, 5), 5},
		{"mixed calls", dispatching(t, 2, toolUse("toolu_x", "Bash", `{"command": "ls"}`)), 3},
		{"by a person, after a turn", []Message{message(t, RoleUser, text("q")), message(t, RoleAssistant, text("a"))}, 0},
		{"by a person, before any turn", nil, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFanOut(t, tt.history)
			a, b := f.child(t, "count .go files"), f.child(t, "list the open questions")
			if len(a) != len(tt.history)+1 {
				t.Fatalf("a child has %d messages, want the history's %d and one", len(a), len(tt.history))
			}
			for i := range tt.history {
				if !bytes.Equal(a[i].Raw, tt.history[i].Raw) {
					t.Errorf("message %d is not the parent's", i)
				}
			}
			la, lb := a[len(a)-1], b[len(b)-1]
			if la.Role != RoleUser || len(la.Blocks) != tt.results+2 || len(lb.Blocks) != len(la.Blocks) {
				t.Fatalf("last message: role %s, %d and %d blocks; want user, %d", la.Role, len(la.Blocks), len(lb.Blocks), tt.results+2)
			}
			for i := range tt.results + 1 {
				if !bytes.Equal(la.Blocks[i].Raw, lb.Blocks[i].Raw) {
					t.Errorf("block %d differs between siblings", i)
				}
			}
			if got := la.Blocks[tt.results].Text; got != Boilerplate() {
				t.Errorf("the block before the last is %q, want the boilerplate", got)
			}
			if la.Blocks[tt.results+1].Text != "count .go files" || lb.Blocks[tt.results+1].Text != "list the open questions" {
				t.Errorf("directives are %q and %q", la.Blocks[tt.results+1].Text, lb.Blocks[tt.results+1].Text)
			}
			pa, pb := f.request(t, "a"), f.request(t, "b")
			if &pa.root.piece[0] != &pb.root.piece[0] || pa.root != f.base {
				t.Error("siblings do not share their inheritance")
			}
			ba, bb := joined(f.head, raws(a)), joined(f.head, raws(b))
			if !bytes.HasPrefix(ba, f.prefix()) || !bytes.HasPrefix(bb, f.prefix()) {
				t.Error("a child's request does not start with the snapshot")
			}
			if f.snap.Placeholders != tt.results {
				t.Errorf("Placeholders = %d, want %d", f.snap.Placeholders, tt.results)
			}
		})
	}
}

func TestPlaceholdersAnswerEveryCallInOrder(t *testing.T) {
	history := dispatching(t, 3, toolUse("toolu_x", "Bash", `{}`))
	f := newFanOut(t, history)
	got := f.child(t, "x")[len(history)].Blocks[:4]
	calls := history[len(history)-1].ToolCalls()
	for i, b := range got {
		want := `{"type":"tool_result","tool_use_id":"` + calls[i].ID + `","content":[{"type":"text","text":"Fork started; processing in background"}]}`
		if string(b.Raw) != want {
			t.Errorf("placeholder %d:\n%s\nwant\n%s", i, b.Raw, want)
		}
	}
	prefix := f.prefix()[:f.snap.PlaceholderEnd]
	if !bytes.HasSuffix(prefix, got[3].Raw) {
		t.Errorf("PlaceholderEnd = %d, the bytes before it end in %s", f.snap.PlaceholderEnd, prefix[len(prefix)-60:])
	}
}

// A dispatch by a person puts no words into the model's mouth.
func TestDispatchByAPersonInventsNoMessage(t *testing.T) {
	history := []Message{message(t, RoleUser, text("q")), message(t, RoleAssistant, text("a"))}
	f := newFanOut(t, history)
	if got := f.child(t, "x")[:2]; !cmp.Equal(raws(got), raws(history)) {
		t.Errorf("history became %q", raws(got))
	}
	if f.snap.PlaceholderEnd != 0 || f.snap.Placeholders != 0 {
		t.Errorf("snapshot has placeholders: %+v", f.snap)
	}
	if none := newFanOut(t, nil); len(none.snap.Segments) != 2 || none.snap.Bytes != int64(len(none.head)+len(none.open)) {
		t.Errorf("before any turn: %+v", none.snap)
	}
}

func TestSnapshotIdentity(t *testing.T) {
	for _, n := range []int{0, 1, 4} {
		history := dispatching(t, n)
		if n == 0 {
			history = nil
		}
		f := newFanOut(t, history)
		segments := f.segments()
		want := f.prefix()
		if got := f.base.Bytes(); !bytes.Equal(got, want) {
			t.Errorf("%d calls: the inheritance is not head + messages", n)
		}
		if f.snap.ID != DigestOf(want) || f.snap.Bytes != int64(len(want)) {
			t.Errorf("%d calls: id %s over %d bytes, want %s over %d", n, f.snap.ID, f.snap.Bytes, DigestOf(want), len(want))
		}
		if len(f.snap.Segments) != len(segments) {
			t.Fatalf("%d segments, want %d", len(f.snap.Segments), len(segments))
		}
		for i, s := range f.snap.Segments {
			want := Segment{SHA256: DigestOf(segments[i]), Bytes: int64(len(segments[i])), Open: i == len(segments)-1}
			if s != want {
				t.Errorf("segment %d is %+v, want %+v", i, s, want)
			}
		}
		if f.snap.UpToSeq != 7 || !cmp.Equal(f.snap.Params, testParams) || !cmp.Equal(f.snap.Tools, []string{"Agent", "Read"}) {
			t.Errorf("what the snapshot was given is lost: %+v", f.snap)
		}
	}
}

func TestSnapshotKeepsTheEntriesThatPrefixIt(t *testing.T) {
	history := dispatching(t, 2)
	plain := newFanOut(t, history)
	all := plain.prefix()
	entry := func(n int64) CacheEntry { return CacheEntry{Bytes: n, Prefix: DigestOf(all[:n])} }
	cut := int64(len(plain.head) + len(history[0].Raw) - len(messageClose))
	good := []CacheEntry{entry(cut), entry(plain.snap.PlaceholderEnd), entry(plain.snap.Bytes)}
	bad := []CacheEntry{
		{},
		{Bytes: cut, Prefix: DigestOf([]byte("other"))},
		{Bytes: plain.snap.Bytes + 9, Prefix: plain.snap.ID},
		{Bytes: plain.snap.Bytes + 9},
		{Bytes: -1},
		{Bytes: cut},
	}
	f := newFanOut(t, history, append(bad, good...)...)
	if d := cmp.Diff(good, f.snap.Entries); d != "" {
		t.Errorf("entries (-want +got):\n%s", d)
	}
	if f.snap.ID != plain.snap.ID {
		t.Error("entries changed the identity")
	}
}

func TestSnapshotRefusesAnUnansweredHistory(t *testing.T) {
	call := message(t, RoleAssistant, toolUse("t1", "Read", `{}`), toolUse("t2", "Read", `{}`))
	tests := []struct {
		name string
		next Message
	}{
		{"no result", message(t, RoleUser, text("go on"))},
		{"one of two", message(t, RoleUser, AppendToolResult(nil, "t1", "x", false))},
		{"in the wrong role", message(t, RoleAssistant, AppendToolResult(nil, "t1", "x", false), AppendToolResult(nil, "t2", "x", false))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := NewSnapshot("s", chain(testHead(), []Message{call, tt.next}), testParams, nil, 1, nil, time.Time{})
			if !errors.Is(err, ErrUnanswered) {
				t.Errorf("error %v, want ErrUnanswered", err)
			}
			_, _, err = NewSnapshot("s", chain(testHead(), []Message{message(t, RoleUser, text("q")), call, tt.next, call, tt.next}), testParams, nil, 1, nil, time.Time{})
			if err == nil || !strings.Contains(err.Error(), "(message 1)") {
				t.Errorf("error %v, want one that names message 1, the first of two", err)
			}
		})
	}
	good := message(t, RoleUser, AppendToolResult(nil, "t2", "x", false), AppendToolResult(nil, "t1", "x", true), text("and"))
	if _, _, err := NewSnapshot("s", chain(testHead(), []Message{call, good}), testParams, nil, 1, nil, time.Time{}); err != nil {
		t.Errorf("answered in another order: %v", err)
	}
}

// Building children at once over slices with room behind them writes into
// nothing shared. The race detector watches.
func TestB34_ChildrenShareNoBackingArray(t *testing.T) {
	f := newFanOut(t, dispatching(t, 8))
	segments := f.segments()
	for i, s := range segments {
		segments[i] = append(make([]byte, 0, 2*len(s)), s...)
	}
	var err error
	if f.base, err = LoadSnapshot(f.snap, segments); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(f.prefix())
	var wg sync.WaitGroup
	children := make([][]Message, 8)
	for i := range children {
		wg.Go(func() { children[i] = f.child(t, fmt.Sprintf("task %d", i)) })
	}
	wg.Wait()
	for i, c := range children {
		last := c[len(c)-1].Blocks
		if got, want := last[len(last)-1].Text, fmt.Sprintf("task %d", i); got != want {
			t.Errorf("child %d has directive %q", i, got)
		}
	}
	if !bytes.Equal(before, f.base.Bytes()) {
		t.Error("the shared bytes changed")
	}
	for i, s := range segments {
		if rest := s[:cap(s)][len(s):]; !bytes.Equal(rest, make([]byte, len(rest))) {
			t.Errorf("a child was appended behind segment %d", i)
		}
	}
}

// Two children built at once over one history with room behind its last message: each ends in its own directive, and the
// parent's history stays what it was.
func TestB34_SiblingsSeeOnlyTheirOwnDirective(t *testing.T) {
	prompts := []string{"count .go files", "list TODOs"}
	history := []Message{
		message(t, RoleUser, text("split this")),
		message(t, RoleAssistant, toolUse("toolu_a", AgentToolName, `{}`), toolUse("toolu_b", AgentToolName, `{}`)),
	}
	for i, m := range history {
		history[i].Raw = append(make([]byte, 0, len(m.Raw)+4096), m.Raw...)
	}
	parent := chain(append(make([]byte, 0, 4096), testHead()...), history)
	before := parent.Bytes()
	snap, fresh, err := NewSnapshot("ses_00aaaaaaaaaaaaaaaa", parent, testParams, nil, 2, nil, testTime)
	if err != nil {
		t.Fatal(err)
	}
	// A child over the snapshot, as forks are built, and one over the parent's own chain, as its next turn is.
	open := append(make([]byte, 0, len(fresh[0])+4096), fresh[0]...)
	base, err := LoadSnapshot(snap, append([][]byte{testHead()}, append(raws(history), open)...))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	forks, turns := make([]*Prefix, 2), make([]*Prefix, 2)
	for i, prompt := range prompts {
		wg.Go(func() {
			p, _, err := base.Complete(DirectiveBlock(prompt))
			if err != nil {
				t.Error(err)
			}
			forks[i] = p
			p.Segments()
			if m := CloseSegment(open, DirectiveBlock(prompt)); !bytes.HasSuffix(p.Bytes(), m) {
				t.Errorf("fork %d closes its open segment as %s", i, m)
			}
		})
		wg.Go(func() {
			turns[i] = parent.Append(Message{Role: RoleUser, Raw: EncodeMessage(RoleUser, DirectiveBlock(prompt)), Blocks: []Block{{Type: "text", Text: prompt, Raw: DirectiveBlock(prompt)}}})
		})
	}
	wg.Wait()
	for i, prompt := range prompts {
		for name, p := range map[string]*Prefix{"fork": forks[i], "turn": turns[i]} {
			ms := messagesOf(t, p)
			last := ms[len(ms)-1].Blocks
			if got := last[len(last)-1].Text; got != prompt {
				t.Errorf("%s %d ends in %q, want %q", name, i, got, prompt)
			}
			if other := prompts[1-i]; strings.Contains(string(p.Bytes()), other) {
				t.Errorf("%s %d holds its sibling's directive %q", name, i, other)
			}
		}
	}
	if !bytes.Equal(parent.Bytes(), before) || !bytes.Equal(base.Bytes()[:snap.Bytes], forks[0].Bytes()[:snap.Bytes]) {
		t.Error("the parent's bytes changed")
	}
	for i, m := range history {
		if room := m.Raw[:cap(m.Raw)][len(m.Raw):]; !bytes.Equal(room, make([]byte, len(room))) {
			t.Errorf("something was written behind message %d", i)
		}
	}
	if room := open[:cap(open)][len(open):]; !bytes.Equal(room, make([]byte, len(room))) {
		t.Error("something was written behind the open segment")
	}
}

// B13, B27: one input has one prefix, at any time and for any session.
func TestRenderingIsDeterministic(t *testing.T) {
	history := dispatching(t, 3)
	ids, bodies := map[Digest]bool{}, map[Digest]bool{}
	for i := range 200 {
		snap, fresh, err := NewSnapshot(fmt.Sprintf("ses_%d", i), chain(testHead(), history), testParams, nil, int64(i), nil, time.Unix(int64(i), 0))
		if err != nil {
			t.Fatal(err)
		}
		ids[snap.ID] = true
		f := fanOut{head: testHead(), history: history, snap: snap, open: fresh[0]}
		if f.base, err = LoadSnapshot(snap, f.segments()); err != nil {
			t.Fatal(err)
		}
		bodies[DigestOf(joined(f.head, raws(f.child(t, "x"))))] = true
	}
	if len(ids) != 1 || len(bodies) != 1 {
		t.Errorf("200 renders gave %d prefixes and %d requests, want 1 and 1", len(ids), len(bodies))
	}
}

// The whole first request of a fork, byte for byte.
func TestM26_ForkRequestGolden(t *testing.T) {
	const golden = "testdata/fork_request.json"
	f := newFanOut(t, dispatching(t, 2))
	p := f.request(t, "Count <b> & \u2028.")
	plan, err := PlanMarks(Plan{Prefix: p, Snapshot: &f.snap, FirstRequest: true})
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.Body(plan.Marks, testParams, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := body.Bytes()
	if !json.Valid(got) {
		t.Fatal("no JSON")
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.SplitAfter(string(want), "},"), strings.SplitAfter(string(got), "},")); d != "" {
		t.Errorf("body (-want +got; -update rewrites it):\n%s", d)
	}
}

// A fork that dispatches: what its children share and its parent's manifest does not have is the message that its own
// directive completed, and all since.
func TestSnapshotOfAForkStoresItsOwnSegments(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	own := f.request(t, "split this again")
	answer := message(t, RoleAssistant, text("I will"), toolUse("toolu_n", AgentToolName, `{}`))
	snap, fresh, err := NewSnapshot(f.snap.SessionID, own.Append(answer), testParams, f.snap.Tools, 3, nil, testTime)
	if err != nil {
		t.Fatal(err)
	}
	completed := CloseSegment(f.open, DirectiveBlock("split this again"))
	if want := messagesOf(t, own); !bytes.Equal(completed, want[len(want)-1].Raw) {
		t.Errorf("the completed segment is\n%s\nwant\n%s", completed, want[len(want)-1].Raw)
	}
	if cap(completed) != len(completed) {
		t.Errorf("a completed segment of %d bytes takes %d", len(completed), cap(completed))
	}
	inherited := append([][]byte{f.head}, raws(f.history)...)
	if len(snap.Segments) != len(inherited)+3 {
		t.Fatalf("%d segments, want the %d inherited and three", len(snap.Segments), len(inherited))
	}
	stored := map[Digest][]byte{}
	for _, b := range append(append(inherited, answer.Raw), fresh...) {
		stored[DigestOf(b)] = b
	}
	var segments [][]byte
	for i, s := range snap.Segments {
		b, ok := stored[s.SHA256]
		if !ok {
			t.Fatalf("segment %d of %d is stored nowhere", i, len(snap.Segments))
		}
		segments = append(segments, b)
	}
	if p, err := LoadSnapshot(snap, segments); err != nil || p.Count() != len(snap.Segments)-1 {
		t.Errorf("the snapshot does not load: %v", err)
	}
	if len(fresh) != 2 || !bytes.Equal(fresh[1], completed) || !snap.Segments[len(snap.Segments)-1].Open {
		t.Errorf("%d fresh segments, want the open one and the completed one", len(fresh))
	}
}
