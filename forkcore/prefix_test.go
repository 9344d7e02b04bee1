package forkcore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// Appending never looks at earlier bytes again: a byte that changes in memory
// after it was hashed changes no later identity.
func TestPrefixHashesOnlyWhatItAdds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	history := randomHistory(t, r, 6)
	want := chain(testHead(), history)
	p := chain(testHead(), history[:5])
	for _, l := range p.chain() {
		for i := range l.piece {
			l.piece[i] ^= 0xff
		}
	}
	at, id := p.Append(history[5]).Tail()
	if wantAt, wantID := want.Tail(); at != wantAt || id != wantID {
		t.Errorf("identity %s at %d, want %s at %d", id, at, wantID, wantAt)
	}
}

// Bytes too few for a head have no block, and no place for a mark.
func TestPrefixOfNothing(t *testing.T) {
	for _, head := range []string{"", headClose} {
		p := NewPrefix([]byte(head))
		if at, id := p.Tail(); p.SystemEnd() != 0 || at != 0 || !id.IsZero() || p.Len() != int64(len(head)) {
			t.Errorf("%q: the system prompt ends at %d, the tail at %d, %d bytes", head, p.SystemEnd(), at, p.Len())
		}
	}
}

// Two continuations of one prefix know nothing of each other.
func TestPrefixBranches(t *testing.T) {
	base := chain(testHead(), []Message{message(t, RoleUser, text("q"))})
	a := base.Append(message(t, RoleAssistant, text("a")))
	b := base.Append(message(t, RoleAssistant, text("other")))
	for _, tt := range []struct {
		p    *Prefix
		last string
	}{{a, "a"}, {b, "other"}} {
		want := joined(testHead(), [][]byte{EncodeMessage(RoleUser, text("q")), EncodeMessage(RoleAssistant, text(tt.last))})
		at, id := tt.p.Tail()
		if !bytes.Equal(tt.p.Bytes(), want) || id != DigestOf(want[:at]) || tt.p.Len() != int64(len(want)) {
			t.Errorf("the branch %q has other bytes:\n%s\nwant\n%s", tt.last, tt.p.Bytes(), want)
		}
	}
	if base.Count() != 1 || a.Count() != 2 {
		t.Errorf("%d and %d messages, want 1 and 2", base.Count(), a.Count())
	}
}

func TestCompleteRefuses(t *testing.T) {
	f := newFanOut(t, dispatching(t, 1))
	for name, fragment := range map[string]string{
		"nothing":         "",
		"half a block":    `{"type":"text","text":"x"`,
		"no block":        `"x"`,
		"a closing brace": `{"type":"text","text":"x"}}`,
		"a bad string":    "{\"type\":\"text\",\"text\":\"x\ny\"}",
		"bad UTF-8":       "{\"type\":\"text\",\"text\":5}" + "\xff",
	} {
		_, _, err := f.base.Complete([]byte(fragment))
		if !errors.Is(err, ErrNotCanonical) {
			t.Errorf("%s: %v, want ErrNotCanonical", name, err)
		} else if none := strings.Contains(err.Error(), "without a block"); none != (fragment == "") {
			t.Errorf("%s is refused for another reason: %v", name, err)
		}
	}
	whole, _, err := f.base.Complete(text("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := whole.Complete(text("y")); err == nil {
		t.Error("a closed message was completed again")
	}
	two, blocks, err := f.base.Complete(bytes.Join([][]byte{text("x"), text("y \" \\ <z>")}, comma))
	if err != nil || len(blocks) != 2 || blocks[1].Text != `y " \ <z>` {
		t.Fatalf("two blocks: %+v, %v", blocks, err)
	}
	want := append(f.prefix(), `,{"type":"text","text":"x"},{"type":"text","text":"y \" \\ <z>"}]}`...)
	if !bytes.Equal(two.Bytes(), want) {
		t.Errorf("bytes\n%s\nwant\n%s", two.Bytes(), want)
	}
	at, id := two.Tail()
	e, _ := two.blockAt(at)
	if id != DigestOf(want[:at]) || two.path(e) != "messages.4.content.3" {
		t.Errorf("the tail is %s at %d", two.path(e), at)
	}
}

// A lost head that is rendered anew: the same bytes are the same snapshot,
// other bytes one of their own that claims no entry of the provider.
func TestM06_RecomputeSnapshot(t *testing.T) {
	history := dispatching(t, 2)
	plain := newFanOut(t, history)
	at := plain.snap.PlaceholderEnd
	f := newFanOut(t, history, CacheEntry{Prefix: DigestOf(plain.prefix()[:at]), Bytes: at})
	messages := f.segments()[1:]

	same, p, err := RecomputeSnapshot(f.snap, bytes.Clone(f.head), messages)
	if err != nil || same.ID != f.snap.ID || len(same.Entries) != 1 || !bytes.Equal(p.Bytes(), f.prefix()) {
		t.Fatalf("with the same head: %+v, %v", same, err)
	}

	head := EncodeHead(testParams, []ToolSpec{AgentTool()}, "another system prompt")
	other, p, err := RecomputeSnapshot(f.snap, head, messages)
	if err != nil {
		t.Fatal(err)
	}
	want := joined(head, messages)
	if other.ID != DigestOf(want) || other.Bytes != int64(len(want)) || other.Entries != nil || !bytes.Equal(p.Bytes(), want) {
		t.Errorf("with another head: %+v", other)
	}
	if e, ok := p.blockAt(other.PlaceholderEnd); !ok || p.path(e) != "messages.4.content.1" {
		t.Errorf("the last placeholder ends at %d", other.PlaceholderEnd)
	}
	if f.snap.Segments[0].SHA256 != DigestOf(f.head) {
		t.Error("the stored manifest was changed")
	}
	if err := Verify(other, mustComplete(t, p, "x"), nil); err != nil {
		t.Error(err)
	}
	person, _, err := RecomputeSnapshot(newFanOut(t, nil).snap, head, newFanOut(t, nil).segments()[1:])
	if err != nil || person.PlaceholderEnd != 0 {
		t.Errorf("without placeholders: %+v, %v", person, err)
	}
	for name, segments := range map[string][][]byte{"none": nil, "one missing": messages[1:], "no message": append([][]byte{[]byte("{}")}, messages[1:]...)} {
		if _, _, err := RecomputeSnapshot(f.snap, head, segments); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
	if _, _, err := RecomputeSnapshot(Snapshot{}, head, messages); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a manifest without segments: %v, want ErrCorrupt", err)
	}
}

func mustComplete(t testing.TB, p *Prefix, directive string) *Prefix {
	t.Helper()
	c, _, err := p.Complete(DirectiveBlock(directive))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A digest that the reader of a log knows is that of the segment: it is not computed again.
func TestSegmentsTakeTheKnownDigest(t *testing.T) {
	m := message(t, RoleUser, text("q"))
	segments, _ := NewPrefix(testHead()).Append(m).Segments()
	if segments[1].SHA256 != DigestOf(m.Raw) {
		t.Errorf("digest %s, want that of the bytes", segments[1].SHA256)
	}
	m.Sum = DigestOf([]byte("as the log says"))
	if segments, _ = NewPrefix(testHead()).Append(m).Segments(); segments[1].SHA256 != m.Sum {
		t.Errorf("digest %s, want the one given", segments[1].SHA256)
	}
}
