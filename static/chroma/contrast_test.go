package main

import (
	"math"
	"testing"

	"github.com/alecthomas/chroma/v2"
)

// The ratios are those that the Web Content Accessibility Guidelines and their checkers give.
func TestContrast(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want float64
	}{{"#000000", "#ffffff", 21}, {"#ffffff", "#ffffff", 1}, {"#777777", "#ffffff", 4.48}, {"#ffffff", "#0000ff", 8.59}} {
		if got := contrast(chroma.MustParseColour(c.a), chroma.MustParseColour(c.b)); math.Abs(got-c.want) > 0.01 {
			t.Errorf("contrast of %s and %s is %.3f, want %.2f", c.a, c.b, got, c.want)
		}
	}
}
