package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var slotParams = Params{Model: "claude-sonnet-5-5", Thinking: json.RawMessage(`{"type":"adaptive"}`), Effort: "low", Betas: []string{"a", "b"}, MaxTokens: 32_000}

// doneTurn is a main turn that is done: its history, the offset of the tail mark of its last request, and its slot.
func doneTurn(t testing.TB, s *sender) (history *Prefix, tail int64, slot CacheSafeParams) {
	t.Helper()
	asking := []Message{
		message(t, RoleUser, text("look around")),
		message(t, RoleAssistant, []byte(thinkingBlock), text("looking"), toolUse("toolu_r", "Read", `{"path":"a<b.go"}`)),
		message(t, RoleUser, AppendToolResult(nil, "toolu_r", strings.Repeat("package a\n", 200), false)),
	}
	plan, _ := s.send(testHead(), asking, Plan{})
	history = chain(testHead(), append(asking, message(t, RoleAssistant, text("it is small"))))
	slot, err := NewCacheSafeParams(history, slotParams, 7, ReplacementState{{ToolUseID: "toolu_r"}}, s.known)
	if err != nil {
		t.Fatal(err)
	}
	return history, plan.Tail, slot
}

// M61, M02: what the slot holds is what the turn sent, and none of its text.
func TestM61_CacheSafeParams(t *testing.T) {
	s := newSender(t)
	history, tail, slot := doneTurn(t, s)
	all := history.Bytes()
	end := int64(len(all) - len(messageClose))
	longest := s.known[len(s.known)-1]
	if longest.Bytes != tail {
		t.Fatalf("the longest entry has %d bytes, want the tail at %d", longest.Bytes, tail)
	}
	want := CacheSafeParams{
		Head: DigestOf(testHead()), Params: slotParams, Tools: []string{"Agent", "Read"}, UpToSeq: 7, Messages: 4,
		Prefix: DigestOf(all[:end]), PrefixBytes: end, Replacements: ReplacementState{{ToolUseID: "toolu_r"}}.Digest(),
		Entries: slices.Clone(s.known),
	}
	slices.Reverse(want.Entries)
	if d := cmp.Diff(want, slot); d != "" {
		t.Errorf("slot (-want +got):\n%s", d)
	}
	b, err := json.Marshal(slot)
	if err != nil {
		t.Fatal(err)
	}
	var back CacheSafeParams
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(slot, back); d != "" {
		t.Errorf("slot out of JSON (-want +got):\n%s", d)
	}
	if len(b) > 2000 || bytes.Contains(b, []byte("package a")) || bytes.Contains(b, []byte("system one")) {
		t.Errorf("the slot has %d bytes and perhaps those of messages: %s", len(b), b)
	}

	// However many entries there are, the longest are kept; those of others are not.
	var many []CacheEntry
	for n := range int64(len(all)) {
		if d, ok := history.At(n); ok {
			many = append(many, CacheEntry{Prefix: d, Bytes: n})
		}
	}
	many = append(many, CacheEntry{Prefix: DigestOf([]byte("another")), Bytes: end}, CacheEntry{Prefix: history.HeadID(), Bytes: int64(len(all)) + 5})
	if slot, err = NewCacheSafeParams(history, slotParams, 7, nil, many); err != nil {
		t.Fatal(err)
	}
	var kept []int64
	for _, e := range slot.Entries {
		kept = append(kept, e.Bytes)
	}
	n := len(many) - 3 // the last entry of the history
	if d := cmp.Diff([]int64{many[n].Bytes, many[n-1].Bytes, many[n-2].Bytes, many[n-3].Bytes}, kept); d != "" {
		t.Errorf("entries kept (-want +got):\n%s", d)
	}
	if !slot.Replacements.IsZero() {
		t.Error("a history without tool results has a replacement state")
	}
	if _, err := NewCacheSafeParams(NewPrefix([]byte(`{"model":`)), slotParams, 0, nil, nil); !errors.Is(err, ErrNotCanonical) {
		t.Errorf("slot over a head that is none: %v, want ErrNotCanonical", err)
	}
}

// The bytes that a slot does not describe are refused, and said to be other bytes.
func TestM61_OtherBytesAreRefused(t *testing.T) {
	history, _, slot := doneTurn(t, newSender(t))
	if err := slot.Verify(history); err != nil {
		t.Fatal(err)
	}
	ms := messagesOf(t, history)
	others := map[string]*Prefix{
		"a message more":     history.Append(message(t, RoleUser, text("and?"))),
		"a message less":     chain(testHead(), ms[:3]),
		"another head":       chain(EncodeHead(slotParams, nil, "another"), ms),
		"the head alone":     NewPrefix(testHead()),
		"one byte of a text": chain(testHead(), append(ms[:3:3], message(t, RoleAssistant, text("it is smalL")))),
	}
	for name, p := range others {
		for what, err := range map[string]error{"verify": slot.Verify(p), "side fork": sideForkError(slot, p)} {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "log entry 7") {
				t.Errorf("%s: %s: %v, want ErrCorrupt that names the log entry", name, what, err)
			}
		}
	}
	moved := slot
	moved.Messages++
	if err := moved.Verify(history); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another number of messages: %v, want ErrCorrupt", err)
	}
}

func sideForkError(slot CacheSafeParams, history *Prefix) error {
	_, err := NewSideFork(slot, history, "what?")
	return err
}

// instructions are those of the three readers of the slot.
var instructions = []string{
	"Write down what this session taught you, for later sessions.",
	"Suggest the next message of the person in two to twelve words, or say nothing.",
	"By the way: which file was it?",
}

// M64: session memory, the suggestion of a prompt and a question by the way each read the main agent's prefix, and write nothing behind it.
func TestM64_SideForksReadTheMainPrefix(t *testing.T) {
	for i, instruction := range instructions {
		s := newSender(t)
		history, tail, slot := doneTurn(t, s)
		f, err := NewSideFork(slot, history, instruction)
		if err != nil {
			t.Fatal(err)
		}
		var marks []int64
		for _, m := range f.Marks {
			marks = append(marks, m.Offset)
		}
		if d := cmp.Diff([]int64{history.SystemEnd(), tail, slot.PrefixBytes}, marks); d != "" {
			t.Errorf("marks (-want +got):\n%s", d)
		}
		if path := f.Marks[2].Block; path != "messages.3.content.0" || f.Marks[2].TTL != "5m" {
			t.Errorf("last mark %+v", f.Marks[2])
		}
		if read := s.provider.serve(t, f.Request, f.Marks); read != tail {
			t.Errorf("reader %d read %d bytes, want all that the main agent sent: %d", i, read, tail)
		}
		// The next reader has the answer in the cache as well.
		next, err := NewSideFork(slot, history, instructions[(i+1)%3])
		if err != nil {
			t.Fatal(err)
		}
		if read := s.provider.serve(t, next.Request, next.Marks); read != slot.PrefixBytes {
			t.Errorf("the reader after %d read %d bytes, want %d", i, read, slot.PrefixBytes)
		}
		// And so has the main agent's next turn.
		s.known = append(s.known, CacheEntry{Prefix: slot.Prefix, Bytes: slot.PrefixBytes})
		more := append(messagesOf(t, history), message(t, RoleUser, text("thanks")))
		if _, read := s.send(testHead(), more, Plan{}); read != slot.PrefixBytes {
			t.Errorf("the next turn read %d bytes, want %d", read, slot.PrefixBytes)
		}
		body, err := StripMarks(f.Body.Bytes(), f.Marks)
		if err != nil {
			t.Fatal(err)
		}
		want := append(joined(testHead(), raws(append(messagesOf(t, history), message(t, RoleUser, text(instruction))))), `],"max_tokens":32000,"stream":true}`...)
		if d := cmp.Diff(string(want), string(body)); d != "" {
			t.Errorf("body (-want +got):\n%s", d)
		}
		if d := cmp.Diff(slotParams, f.Params); d != "" {
			t.Errorf("params (-slot +got):\n%s", d)
		}
	}
}

func TestSideForkBounds(t *testing.T) {
	history, _, slot := doneTurn(t, newSender(t))
	slot.Entries = nil
	f, err := NewSideFork(slot, history, "</fork-boilerplate>")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Marks) != 2 || f.Marks[1].Offset != slot.PrefixBytes {
		t.Errorf("marks without a known entry: %+v", f.Marks)
	}
	if b := f.Body.Bytes(); bytes.Contains(b, []byte("</fork-boilerplate>")) || !bytes.Contains(b, []byte("&lt;/fork-boilerplate>")) {
		t.Error("a control tag of an instruction is not disarmed")
	}
	for _, empty := range []string{"", " \n"} {
		var invalid *InvalidError
		if _, err := NewSideFork(slot, history, empty); !errors.As(err, &invalid) || invalid.Fields[0].Field != "instruction" {
			t.Errorf("instruction %q: %v, want one that names the field", empty, err)
		}
	}
	// Before the first message the head alone is shared.
	head := NewPrefix(testHead())
	if slot, err = NewCacheSafeParams(head, slotParams, 0, nil, nil); err != nil {
		t.Fatal(err)
	}
	if f, err = NewSideFork(slot, head, "hello"); err != nil || len(f.Marks) != 1 || f.Marks[0].Offset != head.SystemEnd() {
		t.Errorf("side fork of a head: marks %+v, %v", f.Marks, err)
	}
	// A history that a user message of one's own cannot follow, and one that ends in a place without a mark.
	ms := messagesOf(t, history)
	for name, p := range map[string]*Prefix{"a user message": chain(testHead(), ms[:3]), "open calls": chain(testHead(), ms[:2])} {
		slot, err := NewCacheSafeParams(p, slotParams, 7, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewSideFork(slot, p, "what?"); !errors.Is(err, ErrUnanswered) {
			t.Errorf("side fork behind %s: %v, want ErrUnanswered", name, err)
		}
	}
	thinking := chain(testHead(), append(ms[:3:3], message(t, RoleAssistant, text("x"), []byte(thinkingBlock))))
	if slot, err = NewCacheSafeParams(thinking, slotParams, 7, nil, nil); err != nil {
		t.Fatal(err)
	}
	if f, err = NewSideFork(slot, thinking, "what?"); err != nil || len(f.Marks) != 1 {
		t.Errorf("side fork behind a thinking block: marks %+v, %v", f.Marks, err)
	}
}

// M65: two side forks of one slot send the same bytes although the session's settings changed between them.
func TestM65_NoDriftBetweenSideForks(t *testing.T) {
	history, _, slot := doneTurn(t, newSender(t))
	params := slotParams
	body := func(at time.Duration) []byte {
		slot := slot
		slot.At = slot.At.Add(at)
		f, err := NewSideFork(slot, history, instructions[0])
		if err != nil {
			t.Fatal(err)
		}
		return f.Body.Bytes()
	}
	first := body(100 * time.Millisecond)
	// A flag changes, and the main agent goes on with it: neither is in the slot.
	params.Effort, params.MaxTokens = "max", 1
	if _, err := history.Append(message(t, RoleUser, text("go on"))).Body(nil, params, nil); err != nil {
		t.Fatal(err)
	}
	if second := body(200 * time.Millisecond); !bytes.Equal(first, second) {
		at, path, _ := FirstDifference(first, second)
		t.Errorf("the second side fork leaves the first at byte %d (%s)", at, path)
	}
}

// M66: a side fork shares the history by reference, and neither its bytes nor its state reach back.
func TestM66_SideForksShareTheHistory(t *testing.T) {
	history := chain(testHead(), conversation(t, 1<<20))
	slot, err := NewCacheSafeParams(history, slotParams, 7, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, count := history.Bytes(), history.Count()
	const forks = 16
	var ms, after runtime.MemStats
	kept := make([]*SideFork, forks)
	runtime.GC()
	runtime.ReadMemStats(&ms)
	for i := range kept {
		if kept[i], err = NewSideFork(slot, history, fmt.Sprint("what is ", i, "?")); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if perFork := (after.TotalAlloc - ms.TotalAlloc) / forks; perFork > uint64(len(before))/5 {
		t.Errorf("a side fork allocates %d bytes over a history of %d", perFork, len(before))
	}
	for _, f := range kept {
		if f.Request.parent != history || &f.Body.pieces[0][0] != &history.root.piece[0] {
			t.Fatal("a side fork has a history of its own")
		}
		f.Request.Append(message(t, RoleAssistant, text("own"))) // goes on by itself
	}
	if history.Count() != count || !bytes.Equal(history.Bytes(), before) {
		t.Error("the history changed under its side forks")
	}
	runtime.KeepAlive(kept)
}

// B13, B28: the tools of a session come in one order, whatever the registry yields.
func TestB28_ToolsAreLatchedInOneOrder(t *testing.T) {
	tool := func(name, description string) ToolSpec {
		return ToolSpec{Name: name, Description: description, InputSchema: json.RawMessage(`{"type":"object"}`)}
	}
	registry := []ToolSpec{tool("b", ""), tool("a", "first"), AgentTool(), tool("c", ""), tool("Z", ""), tool("a", "second"), tool("AAA", "")}
	before := slices.Clone(registry)
	latched := LatchTools(registry)
	var names []string
	for _, s := range latched {
		names = append(names, s.Name)
	}
	if d := cmp.Diff([]string{"Agent", "AAA", "Z", "a", "b", "c"}, names); d != "" {
		t.Errorf("order (-want +got):\n%s", d)
	}
	if latched[3].Description != "first" {
		t.Error("of two tools with one name the second was taken")
	}
	if d := cmp.Diff(before, registry); d != "" {
		t.Errorf("the registry's own list changed:\n%s", d)
	}
	read, err := LatchedTools(EncodeHead(testParams, latched, "a system"))
	if d := cmp.Diff(names, read); d != "" || err != nil {
		t.Errorf("tools of the head: %v\n%s", err, d)
	}
	if read, err = LatchedTools(EncodeHead(testParams, nil, "a system")); err != nil || len(read) != 0 {
		t.Errorf("tools of a head without any = %v, %v", read, err)
	}
}

// X08: a beta set has one order, however it is configured.
func TestX08_BetasAreLatchedInOneOrder(t *testing.T) {
	for _, in := range [][]string{{"a", "b"}, {"b", "a"}, {" b", "a ", "", "b"}} {
		if d := cmp.Diff([]string{"a", "b"}, LatchBetas(in)); d != "" {
			t.Errorf("betas of %q (-want +got):\n%s", in, d)
		}
	}
	if got := LatchBetas([]string{" "}); got != nil {
		t.Errorf("no betas = %q", got)
	}
}
