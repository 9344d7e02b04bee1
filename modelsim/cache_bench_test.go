package modelsim

import (
	"strings"
	"testing"
)

// A conversation of about 1.4 MB in 900 messages, as a long session sends it.
func BenchmarkLongRequest(b *testing.B) {
	var turns []string
	for range 450 {
		turns = append(turns, user(block("u", 400, "")), `{"role":"assistant","content":[`+block("a", 380, "")+`]}`)
	}
	turns = append(turns, user(block("z", 100, "5m")))
	body := conversation(strings.Join(turns, ","))
	sim := New(Options{Mind: say(TextBlock("ok")), RecordLimit: 1})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if w := direct(sim, body); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
