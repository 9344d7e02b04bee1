package forkcore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestVerifyAcceptsChildren(t *testing.T) {
	f := newFanOut(t, dispatching(t, 3))
	never := func() ([][]byte, error) { t.Error("the prefix was asked for"); return nil, nil }
	child := f.child(t, "x")
	more := append(child, message(t, RoleAssistant, text("ok")), message(t, RoleUser, text("go")))
	for name, ms := range map[string][]Message{"first request": child, "later request": more} {
		if err := Verify(f.snap, chain(f.head, ms), never); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Verify(f.snap, f.request(t, "x"), never); err != nil {
		t.Errorf("over the shared inheritance: %v", err)
	}
}

// segmentOf finds the segment that holds a canonical offset; ok is false for a comma between messages.
func segmentOf(segments [][]byte, at int) (i, rest int, ok bool) {
	for i, s := range segments {
		if i > 1 {
			if at == 0 {
				return 0, 0, false
			}
			at--
		}
		if at < len(s) {
			return i, at, true
		}
		at -= len(s)
	}
	return 0, 0, false
}

// Flip a byte anywhere in the prefix: the error names that very byte, whether
// it is another slice or the memory that all children share, although that was
// hashed before.
func TestVerifyFindsEveryFlippedByte(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	want := f.prefix()
	child := f.child(t, "x")
	stored := func() ([][]byte, error) { return f.segments(), nil }
	check := func(t *testing.T, at int, err error) {
		t.Helper()
		var mismatch *MismatchError
		if !errors.As(err, &mismatch) {
			t.Fatalf("byte %d flipped: %v, want a MismatchError", at, err)
		}
		if mismatch.Offset != int64(at) || mismatch.Want == mismatch.Got || mismatch.Want[0] != want[at] || mismatch.Got[0] != want[at]^1 {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
		if len(mismatch.Want) > 40 || len(mismatch.Got) > 40 {
			t.Fatalf("values of %d and %d bytes", len(mismatch.Want), len(mismatch.Got))
		}
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 100 {
		at := r.IntN(len(want))
		i, rest, ok := segmentOf(f.segments(), at)
		if !ok || at == 0 {
			continue
		}
		// In a copy of the segment that holds it.
		p := NewPrefix(f.head)
		if i == 0 {
			p = NewPrefix(flipped(f.head, rest))
		}
		for k, m := range child {
			if k+1 == i {
				m.Raw = flipped(m.Raw, rest)
			}
			p = p.Append(m)
		}
		check(t, at, Verify(f.snap, p, stored))

		// In the shared memory itself, after a child passed.
		request := f.request(t, "x")
		if err := Verify(f.snap, request, stored); err != nil {
			t.Fatal(err)
		}
		f.base.piece[at] ^= 1
		err := Verify(f.snap, request, stored)
		f.base.piece[at] ^= 1
		check(t, at, err)

		// In the memory of a chain that was not loaded from a snapshot.
		own := chain(f.head, child)
		for _, l := range own.chain() {
			if int64(at) >= l.start && int64(at) < l.end {
				piece := l.piece
				l.piece = flipped(piece, at-int(l.start))
				check(t, at, Verify(f.snap, own, stored))
				l.piece = piece
			}
		}
	}
	// A segment as it was read is compared as well.
	for i := range f.base.shared.segments {
		kept := f.base.shared.segments[i]
		f.base.shared.segments[i] = flipped(kept, len(kept)-1)
		if err := Verify(f.snap, f.request(t, "x"), stored); err == nil {
			t.Errorf("a byte of segment %d changed in memory and nobody saw it", i)
		}
		f.base.shared.segments[i] = kept
	}
}

// A comma between two messages is shared memory too.
func TestVerifyFindsAFlippedComma(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	at := len(f.head) + len(f.history[0].Raw)
	if f.base.piece[at] != ',' {
		t.Fatalf("byte %d is %q", at, f.base.piece[at])
	}
	f.base.piece[at] = ';'
	var mismatch *MismatchError
	if err := Verify(f.snap, f.request(t, "x"), nil); !errors.As(err, &mismatch) || mismatch.Offset != int64(at) {
		t.Errorf("%v, want a mismatch at %d", err, at)
	}
	// Nor may anything be missing at the end.
	f = newFanOut(t, dispatching(t, 2))
	request := f.request(t, "x")
	for cut := range 3 {
		whole := f.base.piece
		f.base.piece = whole[:len(f.head)+len(f.history[0].Raw)+cut]
		if f.base.intact() {
			t.Errorf("what is shared is intact without all but %d bytes after its first message", cut)
		}
		f.base.piece = whole
	}
	if err := Verify(f.snap, request, nil); err != nil {
		t.Error(err)
	}
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func TestVerifyNamesThePath(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	tests := []struct{ name, old, new, path string }{
		{"model", "claude-sonnet-5-5", "claude-sonnet-5-6", "model"},
		{"tool description", "reads {}", "reads ()", "tools.1.description"},
		{"tool schema", `"input_schema":{"type":"object"}}]`, `"input_schema":{"type":"obiect"}}]`, "tools.1.input_schema.type"},
		{"second system block", "system two", "system zwo", "system.1.text"},
		{"first message", "look around", "look about!", "messages.0.content.0.text"},
		{"tool input", "a<b.go", "a<c.go", "messages.1.content.1.input.path"},
		{"tool result", "package a", "package b", "messages.2.content.0.content.0.text"},
		{"thinking signature", "QUJD", "QUJE", "messages.3.content.0.signature"},
		{"placeholder", "Fork started;", "Fork startet;", "messages.4.content.0.content.0.text"},
		{"boilerplate", "You are now a fork", "You are not a fork", "messages.4.content.2.text"},
		{"a key", `"thinking":"a<b`, `"thinkinG":"a<b`, "messages.3.content.0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, changed := NewPrefix(bytes.Replace(f.head, []byte(tt.old), []byte(tt.new), 1)), !bytes.Contains(f.head, []byte(tt.old))
			for _, m := range f.child(t, "x") {
				if changed && bytes.Contains(m.Raw, []byte(tt.old)) {
					m.Raw, changed = bytes.Replace(m.Raw, []byte(tt.old), []byte(tt.new), 1), false
				}
				p = p.Append(m)
			}
			if changed {
				t.Fatalf("%q is not in the request", tt.old)
			}
			err := Verify(f.snap, p, func() ([][]byte, error) { return f.segments(), nil })
			var mismatch *MismatchError
			if !errors.As(err, &mismatch) {
				t.Fatalf("%v, want a MismatchError", err)
			}
			if mismatch.Path != tt.path {
				t.Errorf("path %q, want %q (%v)", mismatch.Path, tt.path, err)
			}
			if !strings.Contains(err.Error(), tt.path) {
				t.Errorf("the message does not name the path: %v", err)
			}
		})
	}
}

func TestVerifyOtherFailures(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	stored := func() ([][]byte, error) { return f.segments(), nil }
	child := f.child(t, "x")

	var mismatch *MismatchError
	cut := chain(f.head, child[:2])
	if err := Verify(f.snap, cut, stored); !errors.As(err, &mismatch) || mismatch.Offset != cut.Len() || mismatch.Got != "" || mismatch.Want == "" {
		t.Errorf("cut request: %v, want a mismatch at %d", err, cut.Len())
	}
	if err := Verify(f.snap, NewPrefix(nil), stored); !errors.As(err, &mismatch) || mismatch.Offset != 0 {
		t.Errorf("empty request: %v", err)
	}
	other := newFanOut(t, dispatching(t, 3))
	if err := Verify(f.snap, other.request(t, "x"), stored); !errors.As(err, &mismatch) || mismatch.Offset == 0 {
		t.Errorf("a child of another snapshot: %v", err)
	}

	damaged := f.snap
	damaged.ID[0] ^= 1
	if err := Verify(damaged, chain(f.head, child), stored); !errors.Is(err, ErrCorrupt) {
		t.Errorf("snapshot with another digest than its bytes: %v, want ErrCorrupt", err)
	}
	lost := errors.New("blob is gone")
	if err := Verify(damaged, chain(f.head, child), func() ([][]byte, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("segments not readable: %v", err)
	}
}

func TestLoadSnapshotRefuses(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	good := f.segments()
	swap := slices.Clone(good)
	swap[1], swap[3] = swap[3], swap[1]
	closed := slices.Clone(f.snap.Segments)
	closed[len(closed)-1].Open = false
	tests := []struct {
		name     string
		manifest []Segment
		segments [][]byte
		why      string
	}{
		{"none", nil, nil, "0 of its 0 segments are there"},
		{"the head alone", f.snap.Segments[:1], good[:1], "1 of its 1 segments are there"},
		{"one missing", f.snap.Segments, good[:len(good)-1], "5 of its 6 segments are there"},
		{"two swapped", f.snap.Segments, swap, "its segments have the identity"},
		{"not open", closed, good, "its last message is not open"},
		{"no message", f.snap.Segments, append(append([][]byte{}, good[:len(good)-1]...), []byte(`{"role":"user"`)), "message 4"},
		{"another head", f.snap.Segments, append([][]byte{flipped(good[0], 12)}, good[1:]...), "its segments have the identity"},
		{"another byte at the end", f.snap.Segments, append(append([][]byte{}, good[:len(good)-1]...), flipped(f.open, len(f.open)-3)), "its segments have the identity"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := f.snap
			s.Segments = tt.manifest
			if _, err := LoadSnapshot(s, tt.segments); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.why) {
				t.Errorf("%v, want ErrCorrupt because of %q", err, tt.why)
			}
		})
	}
	if _, err := LoadSnapshot(f.snap, good); err != nil {
		t.Error(err)
	}
}

func TestJSONPath(t *testing.T) {
	tests := []struct{ name, cut, want string }{
		{"nothing", ``, ""},
		{"start of an object", `{`, ""},
		{"inside a key", `{"mod`, ""},
		{"after a key", `{"model"`, "model"},
		{"inside a value", `{"model":"cl`, "model"},
		{"second key cut", `{"model":"c","too`, ""},
		{"array", `{"a":[`, "a.0"},
		{"second element", `{"a":[{"b":1},{"c":"x`, "a.1.c"},
		{"after an element", `{"a":[{"b":1}`, "a.0"},
		{"number", `{"a":12`, "a"},
		{"brackets and commas in strings", `{"a":"[{,}]","b":["\",[",{"c":"x`, "b.1.c"},
		{"escaped quote in a key", `{"a\"b":"x`, `a\"b`},
		{"backslash at the end of a string", `{"a":"\\","b":1`, "b"},
		{"cut in an escape", `{"a":"x\`, "a"},
		{"after a value", `{"a":"b"`, "a"},
		{"after a text in an array", `{"a":["b"`, "a.0"},
		{"text alone", `"b"`, ""},
		{"more ends than beginnings", `}]`, ""},
		{"a comma in nothing", `,`, ""},
	}
	for _, tt := range tests {
		if got := jsonPath([]byte(tt.cut)); got != tt.want {
			t.Errorf("%s: jsonPath(%s) = %q, want %q", tt.name, tt.cut, got, tt.want)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	const a = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"one"}]}`
	tests := []struct {
		name, b, path string
		offset        int64
		equal         bool
	}{
		{"equal", a, "messages.0", int64(len(a)), true},
		{"in a text", strings.Replace(a, "one", "ono", 1), "messages.0.content.0.text", int64(strings.Index(a, "one") + 2), false},
		{"in the model", strings.Replace(a, `"m"`, `"n"`, 1), "model", 10, false},
		{"one goes on", a + `,{"role":"user"`, "messages.0", int64(len(a)), false},
		{"nothing", "", "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, pair := range [][2]string{{a, tt.b}, {tt.b, a}} {
				offset, path, equal := FirstDifference([]byte(pair[0]), []byte(pair[1]))
				if offset != tt.offset || path != tt.path || equal != tt.equal {
					t.Errorf("got %d %q %v, want %d %q %v", offset, path, equal, tt.offset, tt.path, tt.equal)
				}
			}
		})
	}
}
