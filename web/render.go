package web

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

//go:generate go tool templ generate

// frame is what surrounds every page.
type frame struct {
	Title string
	// Nav is which entry of the main navigation this page is.
	Nav string
	// Live is the address of the stream that keeps the page up to date, with the cursor it was read at; empty: it stays as it is.
	Live string
	// Wide pages use the whole window.
	Wide      bool
	SignedIn  bool
	Simulated bool
	Kept      bool
	Notice    string
	Version   string
	// Banner is what every page says while the key is refused.
	Banner bannerView
	// Memory warns while the database's memory is scarce; nil: it is not.
	Memory *memoryView
}

// The entries of the main navigation.
const (
	navHome   = "home"
	navNew    = "new"
	navChecks = "checks"
)

func (s *Server) frame(c echo.Context, title string) frame {
	signedIn, _ := c.Get(signedInKey).(bool)
	var banner bannerView
	var memory *memoryView
	if signedIn {
		banner = s.banner(c)
		if m := s.memory(c.Request().Context()); m != nil && m.Scarce() {
			memory = newMemoryView(m)
		}
	}
	return frame{
		Banner: banner, Memory: memory,
		Title: title, SignedIn: signedIn,
		Simulated: s.o.Simulated, Kept: s.o.Kept, Notice: s.o.Notice, Version: s.o.Version,
	}
}

// render writes a page. It is rendered whole first, so that an error in the middle can still become an error page.
func (s *Server) render(c echo.Context, status int, page templ.Component) error {
	var b bytes.Buffer
	if err := page.Render(c.Request().Context(), &b); err != nil {
		return fmt.Errorf("rendering a page: %w", err)
	}
	return c.HTMLBlob(status, b.Bytes())
}

// dollars shows nano-dollars with four decimals, rounded; nil has no price.
func dollars(nano *int64) string {
	if nano == nil {
		return "no price"
	}
	return forkcore.Dollars(*nano)
}

// percent shows a fraction with one decimal; nil is a dash.
func percent(f *float64) string {
	if f == nil {
		return "–"
	}
	return strconv.FormatFloat(100**f, 'f', 1, 64) + " %"
}

// moment is a time for people without a script, in UTC; app.js shows it in their own zone.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// machineMoment is the same for the datetime attribute.
func machineMoment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// grouped shows a number with a comma between thousands.
func grouped(n int64) string { return forkcore.Grouped(n) }

// shorten cuts a text to a number of characters, on one line.
func shorten(text string, limit int) string {
	r := []rune(strings.Join(strings.Fields(text), " "))
	if len(r) <= limit {
		return string(r)
	}
	return string(r[:limit-1]) + "…"
}
