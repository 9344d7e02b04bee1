package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var testParams = Params{Model: "claude-sonnet-5-5", MaxTokens: 4096}

func testHead() []byte {
	return EncodeHead(testParams, []ToolSpec{AgentTool(), {Name: "Read", Description: "reads {}", InputSchema: json.RawMessage(`{"type":"object"}`)}}, "system one }", "system two")
}

func text(s string) []byte { return AppendTextBlock(nil, s) }

func toolUse(id, name, input string) []byte {
	b := AppendString([]byte(`{"type":"tool_use","id":`), id)
	b = AppendString(append(b, `,"name":`...), name)
	return append(append(append(b, `,"input":`...), input...), '}')
}

func message(t testing.TB, role Role, blocks ...[]byte) Message {
	t.Helper()
	m, err := ParseMessage(EncodeMessage(role, blocks...))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// chain is the prefix of a head and messages.
func chain(head []byte, ms []Message) *Prefix {
	p := NewPrefix(head)
	for _, m := range ms {
		p = p.Append(m)
	}
	return p
}

// messagesOf views the messages of a prefix that ends with a whole one.
func messagesOf(t testing.TB, p *Prefix) []Message {
	t.Helper()
	_, segments := p.Segments()
	var out []Message
	for _, raw := range segments[1:] {
		m, err := ParseMessage(raw)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func raws(ms []Message) [][]byte {
	out := make([][]byte, len(ms))
	for i, m := range ms {
		out[i] = m.Raw
	}
	return out
}

// joined gives head + m1 + "," + m2 …, written down apart from the code under test.
func joined(head []byte, messages [][]byte) []byte {
	return append(bytes.Clone(head), bytes.Join(messages, []byte(","))...)
}

// blockEnds finds the offset behind every tool, system and content block of the
// canonical bytes, by way of encoding/json.
func blockEnds(t testing.TB, canonical []byte) []int64 {
	t.Helper()
	var v struct {
		Tools, System []json.RawMessage
		Messages      []struct{ Content []json.RawMessage }
	}
	if err := json.Unmarshal(append(bytes.Clone(canonical), "]}"...), &v); err != nil {
		t.Fatalf("%v in %s", err, canonical)
	}
	blocks := slices.Concat(v.Tools, v.System)
	for _, m := range v.Messages {
		blocks = append(blocks, m.Content...)
	}
	var ends []int64
	at := 0
	for _, b := range blocks {
		i := bytes.Index(canonical[at:], b)
		if i < 0 {
			t.Fatalf("block %s is not in the bytes", b)
		}
		at += i + len(b)
		ends = append(ends, int64(at))
	}
	return ends
}

// randomHistory makes messages of random blocks with traps for scanners in them.
func randomHistory(t testing.TB, r *rand.Rand, messages int) []Message {
	traps := []string{"}", "{", `"`, `\`, `\"}`, "]}", `},{`, "<&>", "\u2028", "a", "text ", "漢"}
	word := func() string {
		var s string
		for range 1 + r.IntN(12) {
			s += traps[r.IntN(len(traps))]
		}
		return s
	}
	var out []Message
	for i := range messages {
		var blocks [][]byte
		for k := range 1 + r.IntN(5) {
			switch r.IntN(3) {
			case 0:
				blocks = append(blocks, text(word()))
			case 1:
				blocks = append(blocks, toolUse(fmt.Sprintf("t%d_%d", i, k), "Read", `{"a" : {"b":[{}, `+string(AppendString(nil, word()))+`]}}`))
			default:
				blocks = append(blocks, AppendToolResult(nil, fmt.Sprintf("t%d_%d", i, k), word(), r.IntN(2) == 0))
			}
		}
		role := RoleUser
		if i%2 == 1 {
			role = RoleAssistant
		}
		out = append(out, message(t, role, blocks...))
	}
	return out
}

// The identity at every block end is the digest of the bytes cut there, and there is none anywhere else.
func TestPrefixKnowsTheIdentityAtEveryBlockEnd(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		head := testHead()
		history := randomHistory(t, r, r.IntN(9))
		want := joined(head, raws(history))
		p := chain(head, history)
		if p.Len() != int64(len(want)) || p.Count() != len(history) || !bytes.Equal(p.Bytes(), want) {
			t.Fatalf("seed %d: %d bytes, %d messages; want %d, %d", seed, p.Len(), p.Count(), len(want), len(history))
		}
		ends := markEnds(t, p, want)
		for off := int64(-1); off <= p.Len()+1; off++ {
			d, ok := p.At(off)
			if end := slices.Contains(ends, off); ok != end {
				t.Fatalf("seed %d: offset %d of %d has an identity: %v, a block ends there: %v", seed, off, p.Len(), ok, end)
			} else if end && d != DigestOf(want[:off]) {
				t.Fatalf("seed %d: wrong identity at %d of %d", seed, off, p.Len())
			}
		}
		if at, d := p.Tail(); at != ends[len(ends)-1] || d != DigestOf(want[:at]) {
			t.Fatalf("seed %d: the tail is at %d, want %d", seed, at, ends[len(ends)-1])
		}
	}
}

// markEnds lists the block ends that a prefix knows: the end of the system array and of every content block.
func markEnds(t testing.TB, p *Prefix, canonical []byte) []int64 {
	t.Helper()
	ends := blockEnds(t, canonical)
	i := slices.Index(ends, p.SystemEnd())
	if i < 0 {
		t.Fatalf("SystemEnd() = %d is no block end of %v", p.SystemEnd(), ends)
	}
	return ends[i:]
}

func TestBody(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 2))
		head, history := testHead(), randomHistory(t, r, 1+r.IntN(6))
		all := joined(head, raws(history))
		p := chain(head, history)
		ends := markEnds(t, p, all)
		r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
		var marks []Mark
		for i, off := range ends[:1+r.IntN(min(MaxMarks, len(ends)))] {
			marks = append(marks, Mark{Block: "b", TTL: []string{"5m", "1h", ""}[i%3], Offset: off})
		}
		before := slices.Clone(marks)
		body, err := p.Body(marks, testParams, nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if d := cmp.Diff(before, marks); d != "" {
			t.Fatalf("the caller's marks were changed:\n%s", d)
		}
		got := body.Bytes()
		if !json.Valid(got) {
			t.Fatalf("seed %d: no JSON: %s", seed, got)
		}
		if int64(len(got)) != body.Len() || DigestOf(got) != body.Digest() {
			t.Fatalf("seed %d: Len or Digest do not fit Bytes", seed)
		}
		if n := countMarks(t, got); n != len(marks) {
			t.Fatalf("seed %d: %d blocks carry a mark, want %d", seed, n, len(marks))
		}
		plain := strings.NewReplacer(string(mark5m), "", string(mark1h), "").Replace(string(got))
		if want := string(all) + string(requestClose(testParams, nil)); plain != want {
			t.Fatalf("seed %d: without marks:\n%s\nwant\n%s", seed, plain, want)
		}
		if !bytes.Equal(joined(head, raws(history)), all) {
			t.Fatal("splicing wrote into the shared bytes")
		}
	}
}

// countMarks counts the tools, system and content blocks with cache_control.
func countMarks(t testing.TB, body []byte) int {
	t.Helper()
	type block struct {
		Mark json.RawMessage `json:"cache_control"`
	}
	var v struct {
		Tools, System []block
		Messages      []struct{ Content []block }
	}
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	blocks := slices.Concat(v.Tools, v.System)
	for _, m := range v.Messages {
		blocks = append(blocks, m.Content...)
	}
	n := 0
	for _, b := range blocks {
		if b.Mark != nil {
			n++
		}
	}
	return n
}

// What Body puts in, StripMarks takes out again.
func TestStripMarks(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 100 {
		history := randomHistory(t, r, 1+r.IntN(8))
		p := chain(testHead(), history)
		plain, err := p.Body(nil, testParams, nil)
		if err != nil {
			t.Fatal(err)
		}
		ends := markEnds(t, p, p.Bytes())
		r.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
		var marks []Mark
		for i, end := range ends[:min(len(ends), r.IntN(MaxMarks+1))] {
			marks = append(marks, Mark{Offset: end, TTL: []string{"5m", "1h", ""}[i%3]})
		}
		body, err := p.Body(marks, testParams, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := StripMarks(body.Bytes(), marks)
		if err != nil || !bytes.Equal(got, plain.Bytes()) {
			t.Fatalf("marks %v: %v", marks, err)
		}
		if len(marks) == 0 {
			continue
		}
		if _, err := StripMarks(plain.Bytes(), marks); err == nil {
			t.Fatalf("a body without the marks %v was accepted", marks)
		}
	}
	for _, offset := range []int64{-1, 0, 1 << 40} {
		if _, err := StripMarks([]byte("{}"), []Mark{{Offset: offset}}); err == nil {
			t.Errorf("a mark at %d was accepted", offset)
		}
	}
}

// A mark may stand behind a block and nowhere else: every other offset of a
// request full of braces is refused.
func TestBodyRefusesMisplacedMarks(t *testing.T) {
	head := EncodeHead(Params{Model: "m}", Thinking: json.RawMessage(`{"type":"adaptive","a":[{}],"o":{}}`), Effort: "}", ToolChoice: json.RawMessage(`{"type":"auto"}`)},
		[]ToolSpec{AgentTool()}, "}]},{")
	history := []Message{
		message(t, RoleUser, text(`a}b"}`), text(`\"}`)),
		message(t, RoleAssistant, text("]}"), toolUse("t1", "Read", `{"a":{"b":[{}]},"c":"}\\"}`)),
		message(t, RoleUser, AppendToolResult(nil, "t1", "}", true)),
	}
	thinking := chain(head, append(history[:3:3], message(t, RoleAssistant, []byte(thinkingBlock))))
	if end, _ := thinking.Tail(); end != 0 {
		if _, err := thinking.Body([]Mark{{Offset: end}}, testParams, nil); err == nil {
			t.Error("a mark on a thinking block was accepted")
		}
	}
	p := chain(head, history)
	ends := map[int64]bool{}
	for _, off := range markEnds(t, p, joined(head, raws(history))) {
		ends[off] = true
	}
	for off := int64(-1); off <= p.Len()+1; off++ {
		body, err := p.Body([]Mark{{Block: "x", Offset: off}}, testParams, nil)
		if (err == nil) != ends[off] {
			t.Errorf("offset %d: error %v, block end %v", off, err, ends[off])
		}
		if err == nil && !json.Valid(body.Bytes()) {
			t.Errorf("offset %d gives no JSON", off)
		}
	}
	end, _ := p.Tail()
	if _, err := p.Body([]Mark{{Offset: end}, {Offset: end}}, testParams, nil); err == nil {
		t.Error("two marks on one block were accepted")
	}
	five := make([]Mark, MaxMarks+1)
	for i, off := range markEnds(t, p, p.Bytes())[:MaxMarks+1] {
		five[i].Offset = off
	}
	if _, err := p.Body(five, testParams, nil); err == nil {
		t.Error("five marks were accepted")
	}
	if _, err := p.Body(five[:MaxMarks], testParams, nil); err != nil {
		t.Errorf("four marks: %v", err)
	}
}

func TestBodyReader(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	head, history := testHead(), randomHistory(t, r, 7)
	p := chain(head, history)
	tail, _ := p.Tail()
	third, _ := chain(head, history[:3]).Tail()
	body, err := p.Body([]Mark{{Offset: p.SystemEnd()}, {Offset: third}, {Offset: tail}}, testParams, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := body.Bytes()
	if err := iotest.TestReader(body.Reader(), want); err != nil {
		t.Error(err)
	}
	for _, size := range []int{1, 2, 3, 7, 64, 1000, len(want) - 1, len(want), len(want) + 1} {
		var got []byte
		rd, buf := body.Reader(), make([]byte, size)
		for {
			n, err := rd.Read(buf)
			got = append(got, buf[:n]...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n != size && len(got) != len(want) {
				t.Fatalf("buffer of %d: a read gave %d bytes before the end", size, n)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("buffer of %d: other bytes", size)
		}
	}
	if n, err := body.Reader().Read(nil); n != 0 || err != nil {
		t.Errorf("Read(nil) = %d, %v", n, err)
	}

	// WriteTo after a partial read gives the rest.
	rd := body.Reader()
	first := make([]byte, 101)
	if _, err := io.ReadFull(rd, first); err != nil {
		t.Fatal(err)
	}
	var rest bytes.Buffer
	n, err := rd.(io.WriterTo).WriteTo(&rest)
	if err != nil || n != int64(rest.Len()) || !bytes.Equal(append(first, rest.Bytes()...), want) {
		t.Errorf("WriteTo after a read: %d bytes, %v", n, err)
	}
	if n, err := rd.(io.WriterTo).WriteTo(&rest); n != 0 || err != nil {
		t.Errorf("WriteTo at the end = %d, %v", n, err)
	}
	failing := &limitedWriter{left: 150}
	n, err = body.Reader().(io.WriterTo).WriteTo(failing)
	if !errors.Is(err, io.ErrShortWrite) || n != 150 {
		t.Errorf("WriteTo a failing writer = %d, %v", n, err)
	}
}

type limitedWriter struct{ left int }

func (w *limitedWriter) Write(p []byte) (int, error) {
	n := min(w.left, len(p))
	w.left -= n
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestBodiesShareTheirPrefix(t *testing.T) {
	big := message(t, RoleUser, text(strings.Repeat("x", 1<<20)))
	head := testHead()
	body, err := chain(head, []Message{big}).Body(nil, testParams, nil)
	if err != nil {
		t.Fatal(err)
	}
	shared := slices.ContainsFunc(body.pieces, func(p []byte) bool { return len(p) == len(big.Raw) && &p[0] == &big.Raw[0] })
	if !shared {
		t.Error("the body holds a copy of the message")
	}
}

func TestEstimateTokens(t *testing.T) {
	for n, want := range map[int64]int64{0: 0, 1: 1, 4: 1, 5: 2, 4000: 1000} {
		if got := EstimateTokens(n); got != want {
			t.Errorf("EstimateTokens(%d) = %d, want %d", n, got, want)
		}
	}
}

// What siblings share is hashed once for each set of marks in it, whatever marks stand behind it; of many sets some are forgotten.
func TestSharedBytesAreHashedOnce(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	p := f.request(t, "x")
	tail, _ := p.Tail()
	system, shared := Mark{Offset: p.SystemEnd(), TTL: "5m"}, Mark{Offset: f.snap.Bytes, TTL: "5m"}
	digest := func(marks ...Mark) {
		t.Helper()
		b, err := p.Body(marks, testParams, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.Digest() != DigestOf(b.Bytes()) {
			t.Errorf("marks %v: the digest is not that of the bytes", marks)
		}
	}
	states := &f.base.shared.marked
	for i, marks := range [][]Mark{{system}, {system, {Offset: tail, TTL: "5m"}}, {system, {Offset: tail, TTL: "1h"}}} {
		digest(marks...)
		if len(states.states) != 1 {
			t.Fatalf("%d states after body %d, want 1", len(states.states), i)
		}
	}
	digest(system, shared, Mark{Offset: tail})
	if len(states.states) != 2 {
		t.Fatalf("%d states with another mark in what is shared, want 2", len(states.states))
	}
	for n := 3; n <= markedKept; n++ {
		digest(Mark{Offset: p.SystemEnd(), TTL: strings.Repeat("m", n)})
		if len(states.states) != n {
			t.Fatalf("%d states, want %d", len(states.states), n)
		}
	}
	digest(shared)
	if len(states.states) != 1 {
		t.Errorf("%d states after one more than are kept, want 1", len(states.states))
	}
}
