package tools

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCapture(t *testing.T) {
	const note = "\n[... the middle is left out: the whole output has %d bytes ...]\n"
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"all that fits", "0123456789", "0123456789"},
		{"one too many", "0123456789x", "01234" + fmt.Sprintf(note, 11) + "6789x"},
		{"much more", strings.Repeat("a", 1000) + "vwxyz", "aaaaa" + fmt.Sprintf(note, 1005) + "vwxyz"},
		{"runes at both cuts", "日本日本" + strings.Repeat(".", 50) + "日本日本", "日" + fmt.Sprintf(note, 74) + "本"},
		{"cleaned text that grew", strings.Repeat("\x00", 10), "\u2400" + fmt.Sprintf(note, 10) + "\u2400"},
	} {
		for _, chunk := range []int{1, 3, 7, 5000} {
			t.Run(fmt.Sprintf("%s by %d", tt.name, chunk), func(t *testing.T) {
				c := newCapture(10, newRedactor(nil))
				for rest := []byte(tt.in); len(rest) > 0; {
					n := min(chunk, len(rest))
					_, _ = c.Write(rest[:n])
					rest = rest[n:]
				}
				if got := c.text(); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// The limit falls inside a rune at each of its places.
func TestB46_CutInsideARune(t *testing.T) {
	for _, r := range []string{"é", "日", "🍴"} {
		for shift := range len(r) {
			c := newCapture(30_000, newRedactor(nil))
			_, _ = io.WriteString(c, strings.Repeat("x", shift)+strings.Repeat(r, 20_000))
			text := c.text()
			if !utf8.ValidString(text) || strings.Contains(text, "\uFFFD") {
				t.Errorf("%s, shift %d: the cut broke a rune", r, shift)
			}
			if want := fmt.Sprintf("the whole output has %d bytes", 20_000*len(r)+shift); !strings.Contains(text, want) {
				t.Errorf("%s, shift %d: the text does not say %q", r, shift, want)
			}
		}
	}
}

func TestCaptureSecretAtTheCut(t *testing.T) {
	const secret = "0123456789"
	for at := range 60 {
		c := newCapture(40, newRedactor([]string{secret}))
		text := strings.Repeat("a", at) + secret + strings.Repeat("b", 60-at)
		_, _ = io.WriteString(c, text)
		if got := c.text(); strings.Contains(strings.Replace(got, "has 70 bytes", "", 1), "0") || strings.Contains(got, "9") {
			t.Errorf("secret at %d: %q", at, got)
		}
	}
}

func TestB54_CaptureIsBounded(t *testing.T) {
	c := newCapture(30_000, newRedactor(nil))
	chunk := bytes.Repeat([]byte("y\n"), 16<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		_, _ = c.Write(chunk)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes allocated for %d written", got, c.total)
	}
	if _, ok := any(c).(io.ReaderFrom); ok {
		t.Error("capture has ReadFrom, which io.Copy would use")
	}
}
