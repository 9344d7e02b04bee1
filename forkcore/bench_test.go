package forkcore

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// conversation is a history of about size bytes: turns of a question, a tool
// call, its result and an answer.
func conversation(tb testing.TB, size int) []Message {
	tb.Helper()
	var ms []Message
	for n, i := 0, 0; n < size; i++ {
		id := fmt.Sprintf("toolu_%05d", i)
		turn := []Message{
			message(tb, RoleUser, text("What does part "+fmt.Sprint(i)+" do?")),
			message(tb, RoleAssistant, []byte(thinkingBlock), text("I read it."), toolUse(id, "Read", `{"file_path": "part.go"}`)),
			message(tb, RoleUser, AppendToolResult(nil, id, strings.Repeat("func part() error { return <nil> } // \"quoted\"\n", 80), false)),
			message(tb, RoleAssistant, text("It returns nothing, and says so.")),
		}
		for _, m := range turn {
			n += len(m.Raw) + 1
		}
		ms = append(ms, turn...)
	}
	return ms
}

// inherit loads the inheritance of a dispatch by a person over a conversation of about size bytes.
func inherit(tb testing.TB, size int) (Snapshot, *Prefix) {
	tb.Helper()
	history := chain(testHead(), conversation(tb, size))
	at, id := history.Tail()
	parents := CacheEntry{Prefix: id, Bytes: at, Tokens: at / 4, TTL: "5m"}
	snap, fresh, err := NewSnapshot("ses_00aaaaaaaaaaaaaaaa", history, testParams, []string{"Agent", "Read"}, 7, []CacheEntry{parents}, time.Unix(1, 0).UTC())
	if err != nil {
		tb.Fatal(err)
	}
	_, segments := history.Segments()
	base, err := LoadSnapshot(snap, append(segments, fresh...))
	if err != nil {
		tb.Fatal(err)
	}
	return snap, base
}

// childRequest does what is done for every child: its block is born, marks are
// planned, the prefix is verified, the body is put together and hashed.
func childRequest(tb testing.TB, snap *Snapshot, base *Prefix, directive string) *Body {
	request, _, err := base.Complete(DirectiveBlock(directive))
	if err != nil {
		tb.Fatal(err)
	}
	plan, err := PlanMarks(Plan{Prefix: request, Entries: snap.Entries, Snapshot: snap, FirstRequest: true})
	if err != nil {
		tb.Fatal(err)
	}
	if err := Verify(*snap, request, nil); err != nil {
		tb.Fatal(err)
	}
	body, err := request.Body(plan.Marks, snap.Params, nil)
	if err != nil {
		tb.Fatal(err)
	}
	body.Digest()
	return body
}

const benchDirective = "Find every place where an error is dropped, name file and line of each, and say which of them can hide a lost write."

// The price of one more child, beside a copy of the same bytes into memory that
// is there already and a copy as a program makes it that builds a body of its own.
func BenchmarkChildRequest(b *testing.B) {
	for _, size := range []int{100 << 10, 1 << 20, 10 << 20} {
		snap, base := inherit(b, size)
		body := childRequest(b, &snap, base, benchDirective)
		all := body.Bytes()
		name := func(what string) string { return fmt.Sprintf("prefix=%dKB/%s", size>>10, what) }
		b.Run(name("build+verify+write"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(all)))
			for b.Loop() {
				r := childRequest(b, &snap, base, benchDirective).Reader()
				if _, err := r.(io.WriterTo).WriteTo(io.Discard); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name("memcpy"), func(b *testing.B) {
			dst := make([]byte, len(all))
			b.SetBytes(int64(len(all)))
			for b.Loop() {
				copy(dst, all)
			}
		})
		b.Run(name("memcpy-fresh"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(all)))
			for b.Loop() {
				_ = append(make([]byte, 0, len(all)), all...)
			}
		})
		b.Run(name("hash-tail"), func(b *testing.B) {
			for b.Loop() {
				DigestOf(all[len(all)-len(benchDirective)-64:])
			}
		})
	}
}
