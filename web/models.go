package web

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// notKnown stands for every value that nobody published.
const notKnown = "not known"

// modelsView is the page of the catalogue.
type modelsView struct {
	AsOf, File, FileAsOf string
	Models               []modelRow
}

// modelRow is a model as people read it.
type modelRow struct {
	ID, Name, Aliases string
	InUse             bool
	Price             priceLine
	Prices            []priceLine // others: of long requests, of other days
	Minimum           string
	Assumed           bool
	Window, Output    string
	Thinking, Effort  string
	ForcedTools, Ends string
	Sources           []sourceLine
	Changed           string // the fields that a file gave
}

// priceLine are prices in dollars per million tokens; What says of which requests.
type priceLine struct{ What, Input, Write5m, Write1h, Read, Output string }

// sourceLine says where a group of values is from.
type sourceLine struct{ Group, Text string }

func newPriceLine(what string, r forkcore.Rates, priced bool) priceLine {
	if !priced {
		return priceLine{what, notKnown, notKnown, notKnown, notKnown, notKnown}
	}
	return priceLine{what, perMillion(r.Input), perMillion(r.Write5m), perMillion(r.Write1h), perMillion(r.Read), perMillion(r.Output)}
}

// perMillion shows nano-dollars a token as dollars per million tokens, with two decimals or three.
func perMillion(nano int64) string {
	text := fmt.Sprintf("$%d.%03d", nano/1000, nano%1000)
	return strings.TrimSuffix(text, "0")
}

func orUnknown(n int64) string {
	if n == 0 {
		return notKnown
	}
	return grouped(n)
}

func newModelRow(c *forkcore.Catalogue, id, inUse string, now time.Time) modelRow {
	m, priced := c.ModelAt(id, now)
	used, _ := c.Model(inUse)
	v := modelRow{
		ID: m.ID, Name: m.Name, Aliases: strings.Join(m.Aliases, ", "), InUse: m.ID == used.ID, Price: newPriceLine("", m.Rates, priced),
		Minimum: orUnknown(m.MinCacheable), Assumed: m.MinCacheableAssumed, Window: orUnknown(m.Window), Output: orUnknown(m.MaxOutput),
		Thinking: notKnown, Effort: notKnown, ForcedTools: yesNo(m.ForcedToolChoice), Changed: strings.Join(m.Changed, ", "),
	}
	if len(m.Thinking) > 0 {
		v.Thinking = strings.ReplaceAll(strings.Join(m.Thinking, ", "), "_", " ")
		if m.AlwaysOn != nil && *m.AlwaysOn {
			v.Thinking += ", always on"
		}
		if m.DisabledMaxEffort != "" {
			v.Thinking += " up to effort " + m.DisabledMaxEffort
		}
	}
	switch {
	case m.Effort != nil && !*m.Effort:
		v.Effort = "none"
	case m.DefaultEffort != "":
		v.Effort = m.DefaultEffort + " by default"
	case m.Effort != nil:
		v.Effort = "yes"
	}
	if !m.EndOfLife.IsZero() {
		v.Ends = m.EndOfLife.Format(time.DateOnly)
	}
	if m.AboveInput > 0 {
		v.Prices = append(v.Prices, newPriceLine("over "+tokens(m.AboveInput)+" of input", m.Above, true))
	}
	for i, p := range m.Prices {
		last := i == len(m.Prices)-1
		switch {
		case p.From.After(now):
			v.Prices = append(v.Prices, newPriceLine("from "+p.From.Format(time.DateOnly), p.Rates, true))
		case !last && !m.Prices[i+1].From.After(now):
			v.Prices = append(v.Prices, newPriceLine("before "+m.Prices[i+1].From.Format(time.DateOnly), p.Rates, true))
		}
	}
	for _, group := range []string{"prices", "cache", "limits", "thinking", "lifecycle"} {
		if text := m.Sources[group]; text != "" {
			v.Sources = append(v.Sources, sourceLine{group, text})
		}
	}
	return v
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return notKnown
	case *b:
		return "yes"
	}
	return "no"
}

// modelsPage shows the catalogue: what is known of models, since when and from where.
func (s *Server) modelsPage(c echo.Context) error {
	var v modelsView
	if known := s.o.Catalogue; known != nil {
		v.AsOf, v.File, v.FileAsOf = known.AsOf, known.File, known.FileAsOf
		for _, id := range known.IDs() {
			v.Models = append(v.Models, newModelRow(known, id, s.o.DefaultModel, s.o.Now()))
		}
	}
	f := s.frame(c, "Models")
	f.Wide = true
	return s.render(c, http.StatusOK, modelsPage(f, v))
}
