package tools

import (
	"strings"
	"testing"
	"unicode/utf8"

	"forkyard/forkcore"
)

func TestB46_CleanText(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"fine", "añb\n", "añb\n"},
		{"bad bytes and a split rune", "ok\xff\xe5\xa5", "ok\uFFFD"},
		{"NUL", "a\x00b", "a\u2400b"},
		{"surrogate in UTF-8", "x\xed\xa0\xbdy", "x\uFFFDy"},
		{"both", "\x00\xff\x00", "\u2400\uFFFD\u2400"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := forkcore.CleanText(tt.in)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if again := forkcore.CleanText(got); again != got {
				t.Errorf("cleaning twice: got %q, want %q", again, got)
			}
		})
	}
}

func TestB46_CutText(t *testing.T) {
	const s = "a日b" // 1, 3 and 1 bytes
	for limit, want := range map[int][2]string{
		-1: {"", ""}, 0: {"", ""}, 1: {"a", "b"}, 2: {"a", "b"}, 3: {"a", "b"},
		4: {"a日", "日b"}, 5: {s, s}, 9: {s, s},
	} {
		if got := forkcore.CutText(s, limit); got != want[0] {
			t.Errorf("forkcore.CutText(%d): got %q, want %q", limit, got, want[0])
		}
		if got := cutFront(s, limit); got != want[1] {
			t.Errorf("cutFront(%d): got %q, want %q", limit, got, want[1])
		}
	}
}

func TestTrimPartial(t *testing.T) {
	for in, want := range map[string]string{"a日": "a日", "a\xe6": "a", "a\xe6\x97": "a", "": "", "a\xff": "a\xff", "é": "é"} {
		if got := trimPartialEnd(in); got != want {
			t.Errorf("trimPartialEnd(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"日a": "日a", "\x97\xa5a": "a", "\xa5a": "a", "": "", "a": "a"} {
		if got := trimPartialStart(in); got != want {
			t.Errorf("trimPartialStart(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestShowPath(t *testing.T) {
	for in, want := range map[string]string{"a b": "a b", "a\nb": `"a\nb"`, "a\xff": "a\uFFFD"} {
		if got := showPath(in); got != want {
			t.Errorf("showPath(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzCleanAndCut(f *testing.F) {
	f.Add("ok\xff\xe5\xa5\x00", 3)
	f.Add("日本", 4)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		clean := forkcore.CleanText(s)
		if !utf8.ValidString(clean) || strings.Contains(clean, "\x00") {
			t.Errorf("forkcore.CleanText(%q) = %q", s, clean)
		}
		for _, cut := range []string{forkcore.CutText(clean, limit), cutFront(clean, limit)} {
			if len(cut) > max(limit, 0) || !utf8.ValidString(cut) || !strings.Contains(clean, cut) {
				t.Errorf("cut of %q at %d = %q", clean, limit, cut)
			}
		}
	})
}
