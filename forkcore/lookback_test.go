package forkcore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The cut between what siblings share and what each has alone carries the last
// mark: one word more or less in a directive writes nothing.
func TestB12_OneWordOfADirectiveWritesNothing(t *testing.T) {
	history := []Message{
		message(t, RoleUser, text("look around, then split the work")),
		message(t, RoleAssistant, toolUse("toolu_r", "Read", `{}`)),
		message(t, RoleUser, AppendToolResult(nil, "toolu_r", "package a", false)),
		message(t, RoleAssistant, toolUse("toolu_a", AgentToolName, `{"prompt":"a"}`), toolUse("toolu_b", AgentToolName, `{"prompt":"b"}`)),
	}
	s := newSender(t)
	s.send(testHead(), history[:3], Plan{})
	f := newFanOut(t, history, s.known...)
	first := Plan{Snapshot: &f.snap, FirstRequest: true}
	a, _ := s.send(f.head, f.child(t, "a"), first)
	b, read := s.send(f.head, f.child(t, "b"), first)
	for name, plan := range map[string]Planned{"a": a, "b": b} {
		var blocks []string
		for _, m := range plan.Marks {
			blocks = append(blocks, m.Block)
		}
		// 4.0 and 4.1 are the placeholders, 4.2 the rules that all forks share, 4.3 the directive.
		if i := slices.Index(blocks, "messages.4.content.1"); i < 0 || !cmp.Equal(blocks[i:], []string{"messages.4.content.1", "messages.4.content.2"}) {
			t.Errorf("child %s is marked at %v: want the last placeholder, the end of what is shared and nothing behind it", name, blocks)
		}
	}
	// The last mark is what a request writes through, so equal offsets write nothing.
	if last := b.Marks[len(b.Marks)-1].Offset; read != f.snap.Bytes || last != read {
		t.Errorf("the second child reads %d bytes and marks %d, want both %d: everything before its directive", read, last, f.snap.Bytes)
	}
	one, other := f.request(t, "a").Bytes(), f.request(t, "b").Bytes()
	if at, _, _ := FirstDifference(one, other); at != read+int64(len(`,{"type":"text","text":"`)) {
		t.Errorf("the children part at byte %d, behind %d that are read", at, read)
	}
}

// wideTurn is one turn of 12 parallel calls: 26 blocks behind the question.
func wideTurn(t testing.TB) []Message {
	calls, results := [][]byte{[]byte(thinkingBlock)}, [][]byte(nil)
	for i := range 12 {
		id := fmt.Sprintf("toolu_%02d", i)
		calls = append(calls, toolUse(id, "Read", `{}`))
		results = append(results, AppendToolResult(nil, id, "r", false))
	}
	return []Message{
		message(t, RoleUser, text("read twelve files")),
		message(t, RoleAssistant, calls...),
		message(t, RoleUser, append(results, text("and be brief"))...),
	}
}

// More blocks than the look-back has positions lie between what is held and the
// new tail: a mark where the held entry ends reads it all the same.
func TestB24_TwentySixBlocksBetweenTwoTails(t *testing.T) {
	head := testHead()
	ms := wideTurn(t)
	if n := len(ms[1].Blocks) + len(ms[2].Blocks); n != 26 {
		t.Fatalf("the turn has %d blocks, want 26", n)
	}
	for _, known := range []bool{true, false} {
		s := newSender(t)
		first, _ := s.send(head, ms[:1], Plan{})
		if !known {
			// Another process sent it and died, so the ledger has nothing: the mark stands there all the same.
			s.known = nil
		}
		p := chain(head, ms)
		plan, err := PlanMarks(Plan{Prefix: p, Entries: s.known})
		if err != nil {
			t.Fatal(err)
		}
		var blocks []string
		for _, m := range plan.Marks {
			blocks = append(blocks, m.Block)
		}
		if d := cmp.Diff([]string{"system.1", "messages.0.content.0", "messages.2.content.12"}, blocks); d != "" {
			t.Errorf("known %v: marks (-want +got):\n%s", known, d)
		}
		if read := s.provider.serve(t, p, plan.Marks); read != first.Tail {
			t.Errorf("known %v: read %d bytes, want %d", known, read, first.Tail)
		}
	}
	// The newest tail ran out, and what is held ends more than a look-back before it.
	s := newSender(t)
	first, _ := s.send(head, ms[:1], Plan{})
	s.send(head, ms, Plan{})
	s.expireAllBut(first.Tail)
	if _, read := s.send(head, append(ms, toolRound(t, "more", 12)...), Plan{}); read != first.Tail {
		t.Errorf("with the newest tail run out: read %d bytes, want %d", read, first.Tail)
	}
	// Without that mark the look-back finds nothing of the conversation.
	s = newSender(t)
	s.send(head, ms[:1], Plan{})
	p := chain(head, ms)
	tail, _ := p.Tail()
	if read := s.provider.serve(t, p, []Mark{{Offset: tail}}); read != 0 {
		t.Errorf("a tail mark alone reads %d bytes: the oracle looks back too far", read)
	}
}

// wantSound checks the rules of the API on a plan: at most four marks, in order
// of the bytes, only where one may stand, and one lifetime.
func wantSound(t *testing.T, p *Prefix, plan Planned, ttl string) {
	t.Helper()
	if len(plan.Marks) > 4 {
		t.Errorf("%d marks", len(plan.Marks))
	}
	blocks := map[string]Block{}
	for i, m := range messagesOf(t, p) {
		for k, b := range m.Blocks {
			blocks[fmt.Sprintf("messages.%d.content.%d", i, k)] = b
		}
	}
	last := int64(0)
	for _, m := range plan.Marks {
		if m.TTL != ttl || m.Offset <= last {
			t.Errorf("mark %+v behind %d, want TTL %s", m, last, ttl)
		}
		last = m.Offset
		b, ok := blocks[m.Block]
		if ok && b.Type != "text" && b.Type != "tool_use" && b.Type != "tool_result" || !ok && !strings.HasPrefix(m.Block, "system.") {
			t.Errorf("a mark on %s %q", b.Type, m.Block)
		}
	}
}

// However long rounds are and however wide fan-outs, a request reads the
// longest entry that is held of it (checked by send), whichever have run out.
func TestB24_WhateverIsHeldIsRead(t *testing.T) {
	head := testHead()
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 24))
		s := newSender(t)
		ttl := []string{"5m", "1h"}[r.IntN(2)]
		ms := []Message{message(t, RoleUser, text("start"))}
		forget := func() {
			var keep []int64
			for _, e := range s.known {
				if r.IntN(4) > 0 {
					keep = append(keep, e.Bytes)
				}
			}
			s.expireAllBut(keep...)
		}
		for round := range 4 {
			plan, _ := s.send(head, ms, Plan{TTL: ttl})
			wantSound(t, chain(head, ms), plan, ttl)
			ms = append(ms, toolRound(t, fmt.Sprintf("r%d", round), 1+r.IntN(100))...)
			if r.IntN(3) == 0 {
				forget()
			}
		}
		s.send(head, ms, Plan{TTL: ttl})
		n := 1 + r.IntN(64)
		history := append(ms, dispatching(t, n)[3])
		f := newFanOut(t, history, s.known...)
		var own []Message
		for i := range min(n, 3) {
			own = f.child(t, fmt.Sprint(i))
			plan, _ := s.send(head, own, Plan{Snapshot: &f.snap, FirstRequest: true, TTL: ttl})
			wantSound(t, chain(head, own), plan, ttl)
		}
		previous := int64(0)
		for round := range 2 {
			own = append(own, toolRound(t, fmt.Sprintf("c%d", round), 1+r.IntN(100))...)
			plan, _ := s.send(head, own, Plan{Snapshot: &f.snap, PreviousTail: previous, TTL: ttl})
			wantSound(t, chain(head, own), plan, ttl)
			previous = plan.Tail
			forget()
		}
		next := append(history, message(t, RoleUser, launchedAnswers(t, history, n)...))
		plan, _ := s.send(head, next, Plan{TTL: ttl})
		wantSound(t, chain(head, next), plan, ttl)
	}
}
