package tools

import (
	"strings"
	"testing"
)

func TestRedactor(t *testing.T) {
	for _, tt := range []struct {
		name    string
		secrets []string
		in      string
		want    string
	}{
		{"none", nil, "abc", "abc"},
		{"empty ones", []string{"", " \n"}, "abc", "abc"},
		{"every place", []string{"key1"}, "key1 and key1key1", secretRemoved + " and " + secretRemoved + secretRemoved},
		{"the longer of two", []string{"key", "key-long"}, "key-long key", secretRemoved + " " + secretRemoved},
		{"white space around it", []string{"key1\n"}, "key1", secretRemoved},
		{"one of many lines", []string{"line-one-long\nshort\nline-two-long"}, " 2\tline-two-long\n 3\tshort", " 2\t" + secretRemoved + "\n 3\tshort"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := newRedactor(tt.secrets).whole(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Wherever a text is cut, head and tail show no part of a secret that is long
// enough to tell it.
func TestRedactorAtEveryCut(t *testing.T) {
	const secret = "0123456789"
	r := newRedactor([]string{secret})
	text := "aaa" + secret + "bbb" + secret + secret + "ccc"
	for i := range len(text) {
		for _, got := range []string{r.head(text[:i]), r.tail(text[i:])} {
			if strings.Contains(got, "0") || strings.Contains(got, "9") || strings.Contains(got, "45") {
				t.Errorf("cut at %d: %q", i, got)
			}
		}
	}
}
