package forkcore

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// fuzzHistory makes a valid history of any bytes: texts, calls, results,
// thinking and unknown blocks, with the bytes as their content.
func fuzzHistory(t testing.TB, data []byte) []Message {
	t.Helper()
	next := func(n int) (b []byte) {
		n = min(n, len(data))
		b, data = data[:n], data[n:]
		return b
	}
	number := func() int {
		if b := next(1); len(b) == 1 {
			return int(b[0])
		}
		return 0
	}
	content := func() string { return "x" + CleanText(string(next(number()%48))) }
	var out []Message
	for i := 0; len(data) > 0 && i < 12; i++ {
		asked := []byte(thinkingBlock)
		blocks := [][]byte{asked, text(content())}
		var results [][]byte
		for k := range number() % 4 {
			id := "t" + string(rune('a'+i)) + string(rune('a'+k))
			input := append(AppendString([]byte(`{ "p" :`), content()), '}')
			blocks = append(blocks, toolUse(id, "Read", string(input)))
			results = append(results, AppendToolResult(nil, id, content(), k%2 == 1))
		}
		if number()%3 == 0 {
			blocks = append(blocks, append(AppendString([]byte(`{"type":"future_x", "v":[1.0,{}],"s":`), content()), '}'))
		}
		out = append(out, message(t, RoleUser, text(content())), message(t, RoleAssistant, blocks...))
		if len(results) > 0 && len(data) > 0 {
			out = append(out, message(t, RoleUser, results...), message(t, RoleAssistant, text(content())))
		}
	}
	return out
}

// What is saved is what is loaded: manifest through JSON, segments by their
// digests, and the bytes of every child are those that the chain in memory gives.
func FuzzSaveLoad(f *testing.F) {
	f.Add([]byte("some words"), "do it")
	f.Add([]byte{9, 'a', '<', '>', '&', 0xe2, 0x80, 0xa8, '"', '\\', 3, 1, 2, 3, 0, 7, 0xff}, "]}\",{<fork-boilerplate>")
	f.Fuzz(func(t *testing.T, data []byte, directive string) {
		history := fuzzHistory(t, data)
		own := chain(testHead(), history)
		snap, fresh, err := NewSnapshot("ses_00aaaaaaaaaaaaaaaa", own, testParams, []string{"Agent"}, int64(len(history)), nil, time.Unix(1, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}
		store := map[Digest][]byte{}
		_, raws := own.Segments()
		for _, b := range append(raws, fresh...) {
			store[DigestOf(b)] = bytes.Clone(b)
		}
		manifest, err := json.Marshal(snap)
		if err != nil {
			t.Fatal(err)
		}
		var loaded Snapshot
		if err := json.Unmarshal(manifest, &loaded); err != nil {
			t.Fatal(err)
		}
		var segments [][]byte
		for _, s := range loaded.Segments {
			b, ok := store[s.SHA256]
			if !ok || int64(len(b)) != s.Bytes {
				t.Fatalf("segment %s of %d bytes is not stored", s.SHA256, s.Bytes)
			}
			segments = append(segments, b)
		}
		base, err := LoadSnapshot(loaded, segments)
		if err != nil {
			t.Fatal(err)
		}
		child, _, err := base.Complete(DirectiveBlock(directive))
		if err != nil {
			t.Fatal(err)
		}
		want := append(own.Bytes(), comma...)
		if len(history) == 0 {
			want = own.Bytes()
		}
		want = append(append(append(append(want, fresh[len(fresh)-1]...), ','), DirectiveBlock(directive)...), messageClose...)
		if !bytes.Equal(child.Bytes(), want) {
			t.Fatalf("loaded:\n%s\nsaved:\n%s", child.Bytes(), want)
		}
		if err := Verify(loaded, child, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// Wherever a conversation ends, marks stand at block ends that may carry one,
// at most four, the boundary of a fork is its boilerplate, and taking the marks
// out gives the canonical bytes.
func FuzzBoundaryMarks(f *testing.F) {
	f.Add([]byte("words and more words"), "do it", uint8(0))
	f.Add([]byte{40, '}', '{', ']', '"', ',', 3, 8, 1, 1, 2, 9, 'q', 2, 3}, "\"}]}", uint8(255))
	f.Fuzz(func(t *testing.T, data []byte, directive string, kinds uint8) {
		history := fuzzHistory(t, data)
		own := chain(testHead(), history)
		snap, fresh, err := NewSnapshot("s", own, testParams, nil, 1, nil, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		_, raws := own.Segments()
		base, err := LoadSnapshot(snap, append(raws, fresh...))
		if err != nil {
			t.Fatal(err)
		}
		child, _, err := base.Complete(DirectiveBlock(directive))
		if err != nil {
			t.Fatal(err)
		}
		ends := markEnds(t, child, child.Bytes())
		var entries []CacheEntry
		for i, end := range ends {
			if kinds>>(i%8)&1 == 1 {
				d, _ := child.At(end)
				entries = append(entries, CacheEntry{Prefix: d, Bytes: end, TTL: "5m"})
			}
		}
		plan, err := PlanMarks(Plan{Prefix: child, Snapshot: &snap, FirstRequest: true, Entries: entries})
		if err != nil {
			t.Fatal(err)
		}
		body, err := child.Body(plan.Marks, testParams, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := body.Bytes()
		if n := countMarks(t, got); n != len(plan.Marks) || n < 2 || n > MaxMarks {
			t.Fatalf("%d marks in the body, %d planned", n, len(plan.Marks))
		}
		if last := plan.Marks[len(plan.Marks)-1]; last.Offset != snap.Bytes {
			t.Fatalf("the last mark stands at %d (%s), the boundary is %d", last.Offset, last.Block, snap.Bytes)
		}
		blank := strings.TrimSpace(CleanText(directive)) == ""
		if found := Refuse(Validate(got)); (found != nil) != blank {
			t.Fatalf("directive %q: %v", directive, found)
		}
		plain, err := StripMarks(got, plan.Marks)
		if want := append(child.Bytes(), requestClose(testParams, nil)...); err != nil || !bytes.Equal(plain, want) {
			t.Fatalf("without marks (%v):\n%s\nwant\n%s", err, plain, want)
		}
	})
}
