package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/chroma/v2"
)

func TestStyleSheetIsReadable(t *testing.T) {
	sheet := string(styleSheet())
	rules := regexp.MustCompile(`(?m)^(\.ch-.*) \{ color: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);`).FindAllStringSubmatch(sheet, -1)
	if len(rules) < 5 {
		t.Fatalf("only %d rules:\n%s", len(rules), sheet)
	}
	for _, rule := range rules {
		for i, background := range map[int]string{2: lightBackground, 3: darkBackground} {
			if got := contrast(chroma.MustParseColour(rule[i]), chroma.MustParseColour(background)); got < minContrast {
				t.Errorf("%s: %s on %s has a contrast of %.2f", rule[1], rule[i], background, got)
			}
		}
	}
	for _, class := range []string{".ch-k,", ".ch-s,", ".ch-c,"} {
		if !strings.Contains(sheet, class) {
			t.Errorf("no colour for %s", class)
		}
	}
	if again := string(styleSheet()); again != sheet {
		t.Error("made twice, the style sheet differs")
	}
}

func TestReadable(t *testing.T) {
	for _, c := range []struct {
		colour, background string
		direction          float64
	}{{"#999999", "#ffffff", -1}, {"#ffff00", "#eef0f2", -1}, {"#000080", "#0b0d0f", 1}, {"#000000", "#0b0d0f", 1}} {
		got := readable(chroma.MustParseColour(c.colour), chroma.MustParseColour(c.background), c.direction)
		if contrast(got, chroma.MustParseColour(c.background)) < minContrast {
			t.Errorf("%s became %s, which %s still swallows", c.colour, got, c.background)
		}
	}
	if got := readable(chroma.MustParseColour("#123456"), chroma.MustParseColour("#ffffff"), -1); got.String() != "#123456" {
		t.Errorf("a readable colour became %s", got)
	}
}
