package forkcore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWalksStopWhenTold(t *testing.T) {
	var seen []string
	for key, value := range members([]byte(` { "a" : 1 , "\u0062":[2], "c":3}`)) {
		seen = append(seen, key+string(value))
		if key == "b" {
			break
		}
	}
	for i, value := range indexed(elements([]byte(`[ "x" , {"y":"]"}, 3]`))) {
		seen = append(seen, string(value))
		if i == 1 {
			break
		}
	}
	for value := range elements([]byte(`[true,false]`)) {
		seen = append(seen, string(value))
		break
	}
	if d := cmp.Diff([]string{"a1", "b[2]", `"x"`, `{"y":"]"}`, "true"}, seen); d != "" {
		t.Errorf("seen (-want +got):\n%s", d)
	}
}

func TestValueEnd(t *testing.T) {
	for raw, want := range map[string]int{
		`12`: 2, `12,`: 2, `null}`: 4, `-1e5 `: 4, "7\n": 1, "7\t": 1, "7\r": 1, `7]`: 1,
		`"a\"b"]`: 6, `"\\"x`: 4, `{"a":"}","b":[{}]},`: 18, `[[],["]"]]]`: 10,
	} {
		if got := valueEnd([]byte(raw), 0); got != want {
			t.Errorf("valueEnd(%q) = %d, want %d", raw, got, want)
		}
	}
}

func TestBlankStrings(t *testing.T) {
	for quoted, want := range map[string]bool{
		`""`: true, `" "`: true, "\" \u00a0\u2003\"": true, `"\n\t "`: true, `" \u00a0"`: true,
		`"a"`: false, `" a "`: false, `"\n a"`: false, `"\u200b"`: false, `"\\"`: false,
	} {
		if got := isBlank([]byte(quoted)); got != want {
			t.Errorf("isBlank(%s) = %v, want %v", quoted, got, want)
		}
	}
}

func TestNULEscapes(t *testing.T) {
	for raw, want := range map[string]bool{
		`"\u0000"`: true, `"a\u0000b"`: true, `{"\u0000":1}`: true, `"\\\u0000"`: true, `"u0000u0000\u0000"`: true, `"\\u0000\u0000"`: true,
		`"u0000"`: false, `"\\u0000"`: false, `"\\\\u0000"`: false, `"u0000u0000"`: false, `"\u0001"`: false, `""`: false,
	} {
		if got := hasNUL([]byte(raw)); got != want {
			t.Errorf("hasNUL(%s) = %v, want %v", raw, got, want)
		}
	}
}
