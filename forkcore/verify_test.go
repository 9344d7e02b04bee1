package forkcore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestVerifyAcceptsChildren(t *testing.T) {
	f := newFanOut(t, dispatching(t, 3))
	never := func() ([]byte, error) { t.Error("the prefix was asked for"); return nil, nil }
	child := f.child(t, "x")
	more := append(child, message(t, RoleAssistant, text("ok")), message(t, RoleUser, text("go")))
	for name, ms := range map[string][]Message{"first request": child, "later request": more} {
		if err := Verify(f.snap, NewCanonical(f.head, raws(ms), testParams), never); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Flip a byte anywhere in the prefix: the error names that very byte.
func TestVerifyFindsEveryFlippedByte(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	want := f.prefix()
	child := raws(f.child(t, "x"))
	prefix := func() ([]byte, error) { return want, nil }
	r := rand.New(rand.NewPCG(5, 5))
	for range 400 {
		at := r.IntN(len(want))
		// Flip the byte in a copy of the slice that holds it.
		head, ms := f.head, append([][]byte(nil), child...)
		rest := at - len(head)
		if rest < 0 {
			head = flipped(head, at)
		} else {
			k := 0
			for rest > len(ms[k]) {
				rest -= len(ms[k]) + 1
				k++
			}
			if rest == len(ms[k]) {
				continue // the comma between messages is not stored
			}
			ms[k] = flipped(ms[k], rest)
		}
		err := Verify(f.snap, NewCanonical(head, ms, testParams), prefix)
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
			all := joined(f.head, raws(f.child(t, "x")))
			changed := bytes.Replace(all, []byte(tt.old), []byte(tt.new), 1)
			if bytes.Equal(all, changed) {
				t.Fatalf("%q is not in the request", tt.old)
			}
			// One piece is enough: Canonical only joins.
			err := Verify(f.snap, NewCanonical(changed, nil, testParams), func() ([]byte, error) { return f.prefix(), nil })
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
	prefix := func() ([]byte, error) { return f.prefix(), nil }
	child := raws(f.child(t, "x"))

	var mismatch *MismatchError
	err := Verify(f.snap, NewCanonical(f.head, child[:2], testParams), prefix)
	cut := NewCanonical(f.head, child[:2], testParams).Len()
	if !errors.As(err, &mismatch) || mismatch.Offset != cut || mismatch.Got != "" || mismatch.Want == "" {
		t.Errorf("cut request: %v, want a mismatch at %d", err, cut)
	}
	if err := Verify(f.snap, NewCanonical(nil, nil, testParams), prefix); !errors.As(err, &mismatch) || mismatch.Offset != 0 {
		t.Errorf("empty request: %v", err)
	}

	damaged := f.snap
	damaged.ID[0] ^= 1
	if err := Verify(damaged, NewCanonical(f.head, child, testParams), prefix); !errors.Is(err, ErrCorrupt) {
		t.Errorf("snapshot with another digest than its bytes: %v, want ErrCorrupt", err)
	}
	lost := errors.New("blob is gone")
	if err := Verify(damaged, NewCanonical(f.head, child, testParams), func() ([]byte, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("prefix not readable: %v", err)
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
