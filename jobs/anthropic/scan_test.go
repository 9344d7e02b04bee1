package anthropic

import (
	"encoding/json"
	"strings"
	"testing"
)

var scanSeeds = []string{
	`{}`, `[]`, `""`, `null`, `true`, `falsey`, `-0.5e+10`, `01`, `1.`, `-`, `1e`, `+1`, `.5`, `{"a":1,}`, `[1,]`, `{"a"}`, `{,}`, ` [ 1 , {"a" : [ ] } ] `,
	`"\u12g4"`, `"\u1234"`, `"\x"`, "\"\x01\"", "\"\x80\xff\"", `"a`, `"\`, `{"a":"b\"c"}`, `{"type":"x"} 1`, "\ufeff{}", "[1\v]", `tru`, `nul`, ``, ` `, `{"a":1}{`,
}

func TestValidJSONLikeEncodingJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, s := range append(scanSeeds, deep(10000), deep(10001), objects(10000), objects(10001)) {
		if got, want := validJSON([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("%.40q (%d bytes): %v, want %v", s, len(s), got, want)
		}
		var e streamEvent
		if got, want := e.parse(nil, []byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("event %.40q (%d bytes): %v, want %v", s, len(s), got, want)
		}
	}
}

// FuzzScan: the scanner takes what encoding/json takes, and the views that it gives are the values that the walk over
// members finds.
func FuzzScan(f *testing.F) {
	for _, s := range append(scanSeeds, msgStart, blockDelta("0", `{"type":"text_delta","text":"x"}`), msgDelta("end_turn")) {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		want := json.Valid(b)
		if validJSON(b) != want {
			t.Fatalf("%q: valid %v, want %v", b, !want, want)
		}
		var e streamEvent
		if e.parse(nil, b) != want {
			t.Fatalf("%q as an event: valid %v, want %v", b, !want, want)
		}
		if !want {
			return
		}
		for key, got := range map[string][]byte{"message": e.message, "content_block": e.content, "delta": e.delta, "usage": e.usage} {
			if strings.Contains(string(b), `\`) {
				continue // a key may be written with escapes, which no server does
			}
			if string(got) != string(member(b, key)) {
				t.Fatalf("%q: %s is %q, want %q", b, key, got, member(b, key))
			}
		}
	})
}

func TestEventKinds(t *testing.T) {
	for _, tt := range []struct {
		name, event, data string
		want              eventKind
	}{
		{"type alone", "", `{"type":"ping"}`, kindPing},
		{"name alone", "message_stop", `{}`, kindMessageStop},
		{"type before name", "ping", `{"type":"message_stop"}`, kindMessageStop},
		{"error by name, the type is that of the error", "error", `{"code":500,"message":"x","type":"server_error"}`, kindError},
		{"bare error object", "", `{"error":{"message":"x"}}`, kindError},
		{"bare error text", "", `{"error":"x"}`, kindError},
		{"bare detail", "", `{"detail":"x"}`, kindError},
		{"no error", "", `{"error":null}`, kindUnknown},
		{"unknown", "", `{"type":"future"}`, kindUnknown},
	} {
		var e streamEvent
		if !e.parse([]byte(tt.event), []byte(tt.data)) || e.kind != tt.want {
			t.Errorf("%s: kind %d, want %d", tt.name, e.kind, tt.want)
		}
	}
}
