package main

import (
	"math"

	"github.com/alecthomas/chroma/v2"
)

// contrast is the contrast ratio of two colours, from 1 to 21 (WCAG 2.2).
func contrast(a, b chroma.Colour) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is the relative luminance of a colour, from 0 to 1 (WCAG 2.2).
func luminance(c chroma.Colour) float64 {
	return 0.2126*linear(c.Red()) + 0.7152*linear(c.Green()) + 0.0722*linear(c.Blue())
}

func linear(channel uint8) float64 {
	v := float64(channel) / 255
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}
