package forkcore

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// replayed appends an answer to a log, reads the log as a store would give it
// back, and returns the message that the next request has.
func replayed(t testing.TB, blocks ...[]byte) (Message, *View) {
	t.Helper()
	v := newLog(t).message(RoleUser, text("q")).message(RoleAssistant, blocks...).view()
	last, ok := v.Last()
	if !ok {
		t.Fatal("the log has no message")
	}
	return last, v
}

// B09: a thinking block that was cut has no signature, and no request with one is sent.
func TestB09_CutThinkingIsNotReplayed(t *testing.T) {
	cut := []byte(`{"type":"thinking","thinking":"abc","signature":""}`)
	got := Validate([]byte(requestOf(hello, said("assistant", string(cut), note), hello)))
	if d := cmp.Diff([]string{"messages.1.content.0.signature signature"}, broken(got)); d != "" {
		t.Errorf("a cut block (-want +got):\n%s", d)
	}
	// A completed one is sent byte for byte.
	m, v := replayed(t, []byte(thinkingBlock), text("a"))
	if !bytes.Equal(m.Blocks[0].Raw, []byte(thinkingBlock)) || !bytes.Contains(v.Prefix.Bytes(), []byte(thinkingBlock)) {
		t.Errorf("the signed block became %s", m.Blocks[0].Raw)
	}
}

// B18: blocks that nobody here knows are sent back unchanged and in order.
func TestB18_UnknownBlocksAreKept(t *testing.T) {
	blocks := [][]byte{[]byte(`{"type":"redacted_thinking","data":"EjQB"}`), []byte(thinkingBlock), toolUse("t1", "Read", `{}`), []byte(`{"type":"future_x","k":1}`)}
	m, v := replayed(t, blocks...)
	var got [][]byte
	for _, b := range m.Blocks {
		got = append(got, b.Raw)
	}
	if d := cmp.Diff(blocks, got); d != "" {
		t.Errorf("blocks (-want +got):\n%s", d)
	}
	if !bytes.HasSuffix(v.Prefix.Bytes(), append(bytes.Join(blocks, comma), "]}"...)) {
		t.Errorf("the request ends in %s", v.Prefix.Bytes()[v.Prefix.Len()-200:])
	}
}

// B44: numbers never pass through a float.
func TestB44_NumbersKeepTheirText(t *testing.T) {
	const input = `{"id":9007199254740993,"x":1.0,"y":1e2}`
	m, v := replayed(t, toolUse("t1", "Read", input))
	if got := string(m.ToolCalls()[0].Input); got != input {
		t.Errorf("the tool gets %s", got)
	}
	var read struct{ ID int64 }
	if err := json.Unmarshal(v.Pending[0].Call.Input, &read); err != nil || read.ID != 9007199254740993 {
		t.Errorf("the tool reads %d, %v", read.ID, err)
	}
	// What a store gives back is the same bytes, and so is what is sent after a replay.
	again, err := ParseMessage(bytes.Clone(m.Raw))
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"message": m.Raw, "request": v.Prefix.Bytes(), "second replay": NewPrefix(testHead()).Append(again).Bytes()} {
		if !bytes.Contains(raw, []byte(`"input":`+input+`}`)) {
			t.Errorf("the %s has no %s: %s", name, input, raw)
		}
	}
}

// B45: one encoder gives parent, child and a resumed run the same bytes for one text.
func TestB45_OneEncoder(t *testing.T) {
	const said = "a<b&c>d\u2028"
	const want = "{\"type\":\"text\",\"text\":\"a<b&c>d\u2028\"}"
	history := []Message{message(t, RoleUser, text(said)), message(t, RoleAssistant, text("a"))}
	parent := NewPrefix(testHead()).Append(history[0]).Append(history[1])
	child := newFanOut(t, history).request(t, "go on")
	resumed := NewPrefix(testHead())
	for _, m := range history {
		stored := bytes.Clone(m.Raw)
		again, err := ParseMessage(stored)
		if err != nil {
			t.Fatal(err)
		}
		resumed = resumed.Append(again)
	}
	offset, digest := parent.Tail()
	for name, p := range map[string]*Prefix{"child": child, "resumed": resumed} {
		if got, ok := p.At(offset); !ok || got != digest {
			t.Errorf("the %s has the identity %s there, the parent %s", name, got, digest)
		}
		if !bytes.Contains(p.Bytes(), []byte(want)) {
			t.Errorf("the %s has no %s", name, want)
		}
		if got := messagesOf(t, p)[0].Blocks[0].Text; got != said {
			t.Errorf("the %s decodes to %q", name, got)
		}
	}
}

// B46: text is valid UTF-8 once and for all, cut at a rune's edge, and half a
// character enters no body.
func TestB46_TextIsCleanedOnceOnArrival(t *testing.T) {
	printed := "\x6f\x6b\xff\xe5\xa5"
	clean := CleanText(printed)
	if clean != "ok\uFFFD" || CleanText(clean) != clean {
		t.Errorf("cleaned to %q, then to %q", clean, CleanText(clean))
	}
	if got := AppendString(nil, clean); !bytes.Equal(got, AppendString(nil, CleanText(clean))) || !utf8.Valid(got) {
		t.Errorf("encoded to %q", got)
	}
	wide := strings.Repeat("x", 29_999) + "漢"
	for limit, want := range map[int]int{29_998: 29_998, 29_999: 29_999, 30_000: 29_999, 30_001: 29_999, 30_002: 30_002} {
		if got := CutText(wide, limit); len(got) != want || !utf8.ValidString(got) {
			t.Errorf("cut at %d: %d bytes, want %d", limit, len(got), want)
		}
	}
	const half = `{"c":"\ud83d"}`
	if ValidInput([]byte(half)) {
		t.Errorf("%s is taken", half)
	}
	got := Validate([]byte(requestOf(hello, said("assistant", string(toolUse("t1", "Read", half))), said("user", result("t1")))))
	if d := cmp.Diff([]string{"messages.1.content.0 lone_surrogate"}, broken(got)); d != "" {
		t.Errorf("sent raw (-want +got):\n%s", d)
	}
}

// X04: an error text is cut between characters.
func TestX04_ErrorTextsAreCutAtARune(t *testing.T) {
	whole := strings.Repeat("a", 239) + "漢"
	for limit, want := range map[int]string{238: whole[:238], 239: whole[:239], 240: whole[:239], 241: whole[:239], 242: whole, 243: whole} {
		if got := CutText(whole, limit); got != want || !utf8.ValidString(got) {
			t.Errorf("cut at %d: %q", limit, got)
		}
	}
}

// What the wire may hold is taken and given back byte for byte.
func TestParseMessageTakesWhatTheWireMayHold(t *testing.T) {
	blocks := map[string]string{
		"white space":     "{ \"type\"\t:\r\"text\" , \"text\" : \"a\" }",
		"unknown type":    `{"type":"future_x","nested":[[{"a":null}]],"n":-0.0e-99}`,
		"unknown members": `{"type":"tool_use","id":"t","name":"n","input":{},"caller":{"type":"direct"}}`,
		"type last":       `{"k":1,"type":"z"}`,
		"escaped type":    `{"type":"\u0074ext","text":"\/"}`,
		"keys twice":      `{"type":"text","text":"a","text":"b","x":1,"x":1}`,
		"numbers":         `{"type":"n","n":[` + strings.Repeat("9", 400) + `,1E+400,0.10]}`,
		"deep":            `{"type":"d","d":` + strings.Repeat("[", maxBlockDepth-1) + strings.Repeat("]", maxBlockDepth-1) + `}`,
	}
	for name, block := range blocks {
		raw := EncodeMessage(RoleAssistant, []byte(block), text("after"))
		m, err := ParseMessage(raw)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := EncodeMessage(m.Role, m.Blocks[0].Raw, m.Blocks[1].Raw); !bytes.Equal(got, raw) || string(m.Blocks[0].Raw) != block {
			t.Errorf("%s: %s came back as %s", name, block, m.Blocks[0].Raw)
		}
	}
	for name, refused := range map[string]struct{ block, why string }{
		"too deep": {`{"type":"d","d":` + strings.Repeat("[", maxBlockDepth) + strings.Repeat("]", maxBlockDepth) + `}`, "nests deeper than 501 levels"},
		"no type":  {`{"k":1}`, "a block without a type"},
		"no JSON":  {`{"type":"text","text":}`, "invalid character"},
	} {
		if _, err := ParseMessage(EncodeMessage(RoleAssistant, []byte(refused.block))); err == nil || !strings.Contains(err.Error(), refused.why) {
			t.Errorf("%s: error %v, want %q", name, err, refused.why)
		}
	}
}
