package anthropic

import (
	"encoding/json"
	"strings"
	"testing"

	"forkyard/forkcore"
)

// FuzzBlock builds blocks from any start and any deltas. What is accepted must be
// one line of valid JSON, and the same bytes when it comes again whole.
func FuzzBlock(f *testing.F) {
	f.Add(`{"type":"text","text":""}`, "text_delta", "text", `a\ud83d`, `\ude42<`)
	f.Add(`{"type":"thinking","thinking":"","signature":"","x": 1}`, "signature_delta", "signature", `QUJD`, `==`)
	f.Add(`{"caller":{"b" : 1},"type":"tool_use","id":"t","name":"n","input":{}}`, "input_json_delta", "partial_json", `{\"a\" : 1e2,`, "\\n\\\"b\\\":\\\"\\\\ud83d\\\\ude42\\\"}")
	f.Add(`{"type":"text","text":"","citations":[ {"a":1} ]}`, "text_delta", "text", "x", "")
	f.Add(`{"type":"future","note":"", "k" :[1,"}"]}`, "text_delta", "text", "x", "")
	f.Fuzz(func(t *testing.T, start, kind, field, first, second string) {
		if !json.Valid([]byte(start)) {
			return
		}
		b, err := newBlock([]byte(start))
		if err != nil {
			return
		}
		for _, piece := range []string{first, second} {
			delta, _ := json.Marshal(map[string]json.RawMessage{"type": forkcore.AppendString(nil, kind), field: json.RawMessage(`"` + piece + `"`)})
			if delta == nil {
				continue // piece is no body of a JSON string
			}
			if _, _, err := b.add(delta); err != nil {
				return
			}
		}
		enc, err := b.encode()
		if err != nil || enc == nil {
			return
		}
		if !json.Valid(enc) || strings.ContainsAny(string(enc), "\r\n") {
			t.Fatalf("not one line of JSON: %q", enc)
		}
		again, err := newBlock(enc)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := again.encode(); err != nil || string(got) != string(enc) {
			t.Fatalf("%q came back as %q, %v", enc, got, err)
		}
	})
}

func TestEncodeKeepsTheStart(t *testing.T) {
	start := []byte(`{"type":"future_x","k":1}`)
	b, err := newBlock(start)
	if err != nil {
		t.Fatal(err)
	}
	clear(start) // the event's buffer is used for the next event
	if got, err := b.encode(); err != nil || string(got) != `{"type":"future_x","k":1}` {
		t.Errorf("got %q, %v", got, err)
	}
}
