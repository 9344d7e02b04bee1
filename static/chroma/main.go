// Chroma writes the style sheet of coloured code: the colours of two of chroma's styles, one for light pages and one
// for dark ones, chosen by the browser. Colours that would be hard to read on the background of code are made readable.
//
//	go run ./static/chroma static/dist/chroma.css
package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/styles"
)

const (
	// classPrefix is that of the classes in web/markdown.go.
	classPrefix = "ch-"
	lightStyle  = "modus-operandi"
	darkStyle   = "modus-vivendi"
	// The backgrounds are --sunken of app.css.
	lightBackground = "#eef0f2"
	darkBackground  = "#0b0d0f"
	// minContrast is that of WCAG 2.2, 1.4.3, level AA.
	minContrast = 4.5
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: chroma <file to write>")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], styleSheet(), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "writing the style sheet of code:", err)
		os.Exit(1)
	}
}

// styleSheet has one rule for every look, with all the classes that look like that.
func styleSheet() []byte {
	light, dark := styles.Get(lightStyle), styles.Get(darkStyle)
	plain := declarations(light.Get(chroma.Text), dark.Get(chroma.Text))
	byLook := map[string][]string{}
	for token, class := range chroma.StandardTypes {
		if class == "" || token <= 0 {
			continue // wrappers, lines and the like
		}
		if look := declarations(light.Get(token), dark.Get(token)); look != plain {
			byLook[look] = append(byLook[look], "."+classPrefix+class)
		}
	}
	rules := make([]string, 0, len(byLook))
	for look, classes := range byLook {
		slices.Sort(classes)
		rules = append(rules, strings.Join(classes, ", ")+" { "+look+" }\n")
	}
	slices.Sort(rules)
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* Made by static/chroma from the chroma styles %s and %s. */\n", lightStyle, darkStyle)
	for _, rule := range rules {
		b.WriteString(rule)
	}
	return b.Bytes()
}

func declarations(light, dark chroma.StyleEntry) string {
	out := fmt.Sprintf("color: light-dark(%s, %s);",
		readable(light.Colour, chroma.MustParseColour(lightBackground), -1), readable(dark.Colour, chroma.MustParseColour(darkBackground), +1))
	if light.Bold == chroma.Yes {
		out += " font-weight: 600;"
	}
	if light.Italic == chroma.Yes {
		out += " font-style: italic;"
	}
	return out
}

// readable moves a colour towards black (direction -1) or white (+1) until it stands out from the background.
func readable(c, background chroma.Colour, direction float64) chroma.Colour {
	for range 40 {
		if contrast(c, background) >= minContrast {
			break
		}
		c = c.Brighten(direction * 0.1)
	}
	return c
}
