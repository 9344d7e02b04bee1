package forkcore

import (
	"bytes"
	"math/rand/v2"
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
		if _, _, err := f.base.Complete([]byte(fragment)); err == nil {
			t.Errorf("%s was accepted", name)
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
