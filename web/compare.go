package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// compareView shows where two requests first differ.
type compareView struct {
	// A and B are what the form shows; Fields has what is wrong with it, by name.
	A, B   string
	Fields map[string]string
	Left   compareSide
	Right  compareSide
	// Done is false while there is nothing to compare.
	Done      bool
	Identical bool
	// Contained is true when the shorter request is the beginning of the longer one.
	Contained bool
	Equal     string // bytes of the common prefix
	SHA       string // its SHA-256
	Path      string // where it ends
	Prefix    string // what it means for the dispatch's shared prefix
	MarksNote string
}

// compareSide is one of the two requests.
type compareSide struct {
	Name          string
	Request, Run  link
	Size          string // and how much of it is equal
	Before, After string // the text around the difference; an ellipsis where more is left out
	Char          string // the character that differs
	Ends          bool   // there is none: the request ends here
	Why           whyView
}

// compareForm chooses a sibling to compare with; without Options there is none.
type compareForm struct {
	A       string
	Options []compareOption
	// Alone is true for a run that has no siblings at all.
	Alone bool
}

type compareOption struct {
	Value, Text string
	Chosen      bool
}

const (
	compareBefore = 200 // bytes of context
	compareAfter  = 400
)

func requestKey(ref forkcore.RequestRef) string {
	return ref.RunID + ":" + strconv.FormatInt(ref.N, 10)
}

func comparePath(a, b forkcore.RequestRef) string {
	return pathCompare + "?" + url.Values{"a": {requestKey(a)}, "b": {requestKey(b)}}.Encode()
}

// newCompareForm offers the same request of each sibling that has sent one; the leader comes first, else the next one.
func newCompareForm(run forkcore.Run, n int64, siblings []forkcore.Run) compareForm {
	f := compareForm{A: requestKey(forkcore.RequestRef{RunID: run.ID, N: n}), Alone: true}
	best := -1
	for _, r := range siblings {
		if r.ID == run.ID || r.Kind != forkcore.KindFork {
			continue
		}
		f.Alone = false
		if r.Requests == 0 {
			continue
		}
		m := min(n, r.Requests)
		text := fmt.Sprintf("%s, request %d", runTitle(r), m)
		if r.Leader {
			text += " (leader)"
		}
		f.Options = append(f.Options, compareOption{Value: requestKey(forkcore.RequestRef{RunID: r.ID, N: m}), Text: text})
		switch i := len(f.Options) - 1; {
		case r.Leader, best < 0 && r.Index > run.Index:
			best = i
		}
	}
	if len(f.Options) > 0 {
		f.Options[max(best, 0)].Chosen = true
	}
	return f
}

// parseRequestKey reads "<run>:<n>".
func parseRequestKey(text string) (forkcore.RequestRef, string) {
	run, number, _ := strings.Cut(strings.TrimSpace(text), ":")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case text == "":
		return forkcore.RequestRef{}, "Name a request: the id of its run, a colon and its number, such as run_03abcdefghijklmnop:1."
	case err != nil || n < 1:
		return forkcore.RequestRef{}, "Write the id of the run, a colon and the number of the request from 1, such as run_03abcdefghijklmnop:1."
	}
	if _, err := forkcore.ShardOf(run); err != nil || !strings.HasPrefix(run, "run_") {
		return forkcore.RequestRef{}, "Before the colon stands no id of a run; such ids begin with run_ and are in the address of the run’s page."
	}
	return forkcore.RequestRef{RunID: run, N: n}, ""
}

func (s *Server) comparePage(c echo.Context) error {
	v := compareView{A: c.QueryParam("a"), B: c.QueryParam("b"), Fields: map[string]string{}}
	a, problem := parseRequestKey(v.A)
	if problem != "" {
		v.Fields["a"] = problem
	}
	b, problem := parseRequestKey(v.B)
	if problem != "" {
		v.Fields["b"] = problem
	}
	f := s.frame(c, "Compare two requests")
	f.Wide = true
	if len(v.Fields) > 0 {
		return s.render(c, http.StatusUnprocessableEntity, comparePage(f, v))
	}
	ctx := c.Request().Context()
	left, err := s.readCompared(ctx, a)
	if err != nil {
		return err
	}
	right, err := s.readCompared(ctx, b)
	if err != nil {
		return err
	}
	v.compare(left, right)
	return s.render(c, http.StatusOK, comparePage(f, v))
}

// compared is a request that is compared.
type compared struct {
	run       forkcore.Run
	row       forkcore.RequestRow
	canonical []byte
}

func (s *Server) readCompared(ctx context.Context, ref forkcore.RequestRef) (compared, error) {
	run, rows, err := s.runAndRequests(ctx, ref.RunID)
	if err != nil {
		return compared{}, err
	}
	row := findRequest(rows, ref.N)
	if row == nil {
		return compared{}, fmt.Errorf("request %d of run %s: %w", ref.N, ref.RunID, forkcore.ErrNotFound)
	}
	body, err := s.o.Bytes.RequestBody(ctx, ref.RunID, ref.N)
	if err != nil {
		return compared{}, err
	}
	canonical, err := canonicalOf(body, row.Marks)
	return compared{run, *row, canonical}, err
}

// compare fills in the result.
func (v *compareView) compare(a, b compared) {
	at, path, identical := forkcore.FirstDifference(a.canonical, b.canonical)
	v.Done, v.Identical, v.Path = true, identical, path
	v.Contained = !identical && (at == int64(len(a.canonical)) || at == int64(len(b.canonical)))
	v.Equal, v.SHA = grouped(at), forkcore.DigestOf(a.canonical[:at]).String()
	v.Left, v.Right = newCompareSide("A", a, at), newCompareSide("B", b, at)
	v.Prefix = prefixNote(a.row, b.row, at)
	v.MarksNote = marksNote(a.row.Marks, b.row.Marks)
}

func newCompareSide(name string, c compared, at int64) compareSide {
	s := compareSide{
		Name: name, Run: link{pathRun + c.run.ID, runTitle(c.run)},
		Request: link{requestPath(c.run.ID, c.row.N), fmt.Sprintf("Request %d", c.row.N)},
		Size:    grouped(int64(len(c.canonical))) + " bytes", Why: newWhy(c.row),
	}
	if len(c.canonical) > 0 {
		share := float64(at) / float64(len(c.canonical))
		equal := percent(&share)
		if at < int64(len(c.canonical)) && equal == "100.0 %" {
			equal = "almost 100 %" // all but the byte that this is about
		}
		s.Size += ", " + equal + " of them equal"
	}
	s.Before, s.Char, s.After = textAround(c.canonical, int(at))
	if s.Char == "" {
		s.Char, s.Ends = "ends here", true
	}
	return s
}

// textAround cuts the text around a byte, at edges of characters.
func textAround(text []byte, at int) (before, char, after string) {
	start := at
	for start > 0 && start < len(text) && !utf8.RuneStart(text[start]) {
		start--
	}
	from := max(start-compareBefore, 0)
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	end := start
	if start < len(text) {
		_, size := utf8.DecodeRune(text[start:])
		end += size
	}
	to := min(end+compareAfter, len(text))
	for to < len(text) && !utf8.RuneStart(text[to]) {
		to++
	}
	valid := func(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
	before, char, after = valid(text[from:start]), valid(text[start:end]), valid(text[end:to])
	if from > 0 {
		before = "…" + before
	}
	if to < len(text) {
		after += "…"
	}
	return before, char, after
}

// prefixNote says what the common bytes mean for the prefix that both were to share.
func prefixNote(a, b forkcore.RequestRow, equal int64) string {
	switch {
	case a.Model != b.Model:
		return "The models differ, and a cache serves one model alone."
	case a.Prefix == b.Prefix && a.PrefixBytes <= equal:
		return fmt.Sprintf("Both were meant to share the first %s bytes, and they do: the provider can serve them from one cache entry.", grouped(a.PrefixBytes))
	case a.PrefixBytes <= equal || b.PrefixBytes <= equal:
		return fmt.Sprintf("The prefix of one of them, %s bytes, is the beginning of the other.", grouped(min(a.PrefixBytes, b.PrefixBytes)))
	case a.DispatchID != "" && a.DispatchID == b.DispatchID:
		return "Siblings of one dispatch should be equal through their shared prefix, and these are not."
	}
	return "The prefix of neither is wholly contained in the other: only entries that end within the common bytes can serve both."
}

// marksNote says what was left out of the comparison.
func marksNote(a, b []forkcore.Mark) string {
	const rule = "Cache marks (cache_control) are no part of a prefix’s identity, so both requests are compared without them."
	if len(a) == len(b) {
		same := true
		for i := range a {
			same = same && a[i] == b[i]
		}
		if same {
			return rule + " They carry the same marks."
		}
	}
	return fmt.Sprintf("%s A carries %s, B %s.", rule, markList(a), markList(b))
}

func markList(marks []forkcore.Mark) string {
	if len(marks) == 0 {
		return "no mark"
	}
	var at []string
	for _, m := range marks {
		at = append(at, m.Block)
	}
	if len(marks) == 1 {
		return "one mark at " + at[0]
	}
	return fmt.Sprintf("%d marks at %s", len(marks), strings.Join(at, ", "))
}

// compareKind is the kind of the notice with the result.
func compareKind(v compareView) string {
	if v.Identical {
		return "success"
	}
	return ""
}
