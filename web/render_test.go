package web

import (
	"testing"
)

func TestDollars(t *testing.T) {
	for nano, want := range map[int64]string{
		0: "$0.0000", 1: "< $0.0001", 49_999: "< $0.0001", 50_000: "$0.0001", 123_450_000: "$0.1235", 1_999_999_999: "$2.0000", 12_345_678_900: "$12.3457", -150_000: "−$0.0002",
	} {
		if got := dollars(&nano); got != want {
			t.Errorf("dollars(%d) = %q, want %q", nano, got, want)
		}
	}
	if got := dollars(nil); got != "no price" {
		t.Errorf("dollars(nil) = %q", got)
	}
}

func TestShorten(t *testing.T) {
	for text, want := range map[string]string{"": "", "a\n  b": "a b", "äöüßé": "äöüßé", "äöüßéx": "äöüß…"} {
		if got := shorten(text, 5); got != want {
			t.Errorf("shorten(%q) = %q, want %q", text, got, want)
		}
	}
}
