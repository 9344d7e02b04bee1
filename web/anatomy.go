package web

import (
	"fmt"
	"strings"

	"forkyard/forkcore"
)

// anatomyView draws the marks on the bytes of a request.
type anatomyView struct {
	Total  string // bytes of the prefix material, without marks
	Bar    []barPiece
	Ticks  []barTick
	Groups []segmentGroup
	Marks  int
	// Boundary says how well the edge between what was read and what was written is known.
	Boundary string
	Legend   []legendItem
}

// barPiece is a rectangle of the bar, in thousandths of its width.
type barPiece struct{ X, Width, Class, Title string }

type barTick struct{ X, Label string }

type legendItem struct{ Class, Text string }

// segmentGroup is the settings, the tools, the system prompt, or one message.
type segmentGroup struct {
	Title, Bytes string
	Folded       bool // long and the same for everybody: the tools
	Segments     []segmentView
}

// segmentView is one box.
type segmentView struct {
	Kind, Path, Bytes, Headline string
	Class                       string // read, write, uncached, or nothing where nobody knows
	Text                        string
	Cut                         string // how much of the text is left out; empty: nothing
	Mark                        string // the line below the box; empty: no mark
	// Left is how many boxes are left out at this place; then nothing else is set but Bytes.
	Left int
}

const (
	// segmentTextLimit bounds the text in one box, anatomyTextLimit that of the page, in bytes.
	segmentTextLimit = 4 << 10
	anatomyTextLimit = 256 << 10
	// anatomyEdge is how many boxes are shown at the beginning and around marks, anatomyTail at the end.
	anatomyEdge = 4
	anatomyTail = 200
)

func newAnatomy(body []byte, row forkcore.RequestRow, writer *forkcore.RequestRow) (anatomyView, error) {
	list, end, err := segments(body, row.Marks)
	if err != nil {
		return anatomyView{}, err
	}
	read, cached, exact := readEnd(row, writer)
	class := func(s segment) string {
		switch {
		case row.Usage == nil:
			return ""
		case s.End <= read:
			return "read"
		case s.End <= cached:
			return "write"
		}
		return "uncached"
	}
	v := anatomyView{Total: grouped(end), Marks: len(row.Marks), Boundary: boundaryNote(row, read, exact), Legend: legend(row)}
	if end == 0 {
		return v, nil
	}
	v.draw(list, end, class)
	budget := anatomyTextLimit
	shown := shownSegments(list)
	for i, s := range list {
		title, folded := groupTitle(s)
		if n := len(v.Groups); n == 0 || v.Groups[n-1].Title != title {
			v.Groups = append(v.Groups, segmentGroup{Title: title, Folded: folded})
		}
		g := &v.Groups[len(v.Groups)-1]
		if !shown[i] {
			if n := len(g.Segments); n > 0 && g.Segments[n-1].Left > 0 {
				g.Segments[n-1].Left++
			} else {
				g.Segments = append(g.Segments, segmentView{Left: 1})
			}
			continue
		}
		box := segmentView{
			Kind: strings.ReplaceAll(s.Kind, "_", " "), Path: s.Path, Bytes: grouped(s.End - s.Start), Headline: segmentHeadline(s), Class: class(s),
		}
		text := segmentText(s)
		box.Text = forkcore.CutText(text, min(segmentTextLimit, budget))
		budget -= len(box.Text)
		if left := len(text) - len(box.Text); left > 0 {
			box.Cut = grouped(int64(left)) + " more bytes are in the raw body"
		}
		if s.Mark != nil {
			box.Mark = fmt.Sprintf("Mark %d: %s, %s, offset %s bytes", s.MarkNo, s.Mark.Block, ttlWords(s.Mark.TTL), grouped(s.Mark.Offset))
		}
		g.Segments = append(g.Segments, box)
	}
	v.Groups = mergeLeft(v.Groups)
	sizes(v.Groups, list)
	return v, nil
}

// draw fills the bar: one rectangle for each run of segments of one class, and a tick for each mark.
func (v *anatomyView) draw(list []segment, end int64, class func(segment) string) {
	at := int64(0)
	share := func(n int64) string { return fmt.Sprintf("%.2f", float64(n)*1000/float64(end)) }
	for i := 0; i < len(list); {
		c, from := class(list[i]), at
		for i < len(list) && class(list[i]) == c {
			at = list[i].End
			i++
		}
		v.Bar = append(v.Bar, barPiece{X: share(from), Width: share(at - from), Class: c, Title: fmt.Sprintf("%s: %s bytes", classWords(c), grouped(at-from))})
	}
	for _, s := range list {
		if s.Mark != nil {
			v.Ticks = append(v.Ticks, barTick{share(s.End), fmt.Sprintf("Mark %d at byte %s", s.MarkNo, grouped(s.End))})
		}
	}
}

func classWords(class string) string {
	switch class {
	case "read":
		return "read from the cache"
	case "write":
		return "written to the cache"
	case "uncached":
		return "not cached"
	}
	return "not known"
}

func boundaryNote(row forkcore.RequestRow, read int64, exact bool) string {
	switch {
	case row.Usage == nil:
		return "The provider has not said what it read, so nothing is coloured."
	case row.Usage.Cached() == 0:
		return "Nothing was read or written."
	case exact:
		return "The edges are exact: they lie at marks whose token counts are known."
	case read == 0:
		return "The provider counts tokens, not bytes: what it read ended before the first mark. Estimated."
	}
	return "The provider counts tokens, not bytes: where the read ended is estimated, at the mark whose share of the bytes comes nearest to its count."
}

func legend(row forkcore.RequestRow) []legendItem {
	u := row.Usage
	if u == nil {
		return nil
	}
	return []legendItem{
		{"read", "Read from the cache: " + tokens(u.CacheRead)},
		{"write", "Written to the cache: " + tokens(u.CacheWrite5m+u.CacheWrite1h)},
		{"uncached", "Not cached: " + tokens(u.Input)},
	}
}

func groupTitle(s segment) (title string, folded bool) {
	switch s.Kind {
	case segmentSettings:
		return "Settings", false
	case segmentTool:
		return "Tools", true
	case segmentSystem:
		return "System prompt", false
	}
	message, _, _ := strings.Cut(strings.TrimPrefix(s.Path, "messages."), ".")
	return "Message " + message + " · " + s.Role, false
}

// shownSegments chooses the boxes of a long request: the beginning, the end, and those around marks.
func shownSegments(list []segment) []bool {
	shown := make([]bool, len(list))
	for i, s := range list {
		if s.Kind == segmentSettings || s.Kind == segmentTool || s.Kind == segmentSystem || i >= len(list)-anatomyTail {
			shown[i] = true
		}
		if s.Mark == nil {
			continue
		}
		for k := max(0, i-anatomyEdge); k < min(len(list), i+anatomyEdge); k++ {
			shown[k] = true
		}
	}
	return shown
}

// mergeLeft joins groups of which nothing is shown.
func mergeLeft(groups []segmentGroup) []segmentGroup {
	var out []segmentGroup
	for _, g := range groups {
		hidden := len(g.Segments) == 1 && g.Segments[0].Left > 0
		if n := len(out); hidden && n > 0 && out[n-1].Title == "" {
			out[n-1].Segments[0].Left += g.Segments[0].Left
			continue
		}
		if hidden {
			g.Title = ""
		}
		out = append(out, g)
	}
	return out
}

// sizes fills in the bytes of each group; both lists have the same order.
func sizes(groups []segmentGroup, list []segment) {
	i := 0
	for k := range groups {
		var n int64
		for _, s := range groups[k].Segments {
			for range max(s.Left, 1) {
				n += list[i].End - list[i].Start
				i++
			}
		}
		groups[k].Bytes = grouped(n)
	}
}

func ttlWords(ttl string) string {
	if ttl == "1h" {
		return "1 h"
	}
	return "5 min"
}
