package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"forkyard/forkcore"
)

//go:embed grep.md
var grepDescription string

const grepSchema = `{"type":"object","properties":{` +
	`"pattern":{"type":"string","description":"The regular expression"},` +
	`"path":{"type":"string","description":"A file or directory; the workspace if not given"},` +
	`"glob":{"type":"string","description":"Search only files whose names match, for example *.go or src/**/*.ts"},` +
	`"type":{"type":"string","description":"Search only files of a language, for example go, py, js, ts, rust, java, md"},` +
	`"output_mode":{"type":"string","enum":["content","files_with_matches","count"],"description":"files_with_matches if not given"},` +
	`"-i":{"type":"boolean","description":"Ignore case"},` +
	`"-n":{"type":"boolean","description":"Line numbers in content mode, true if not given"},` +
	`"-A":{"type":"integer","minimum":0,"description":"Lines of context after each match"},` +
	`"-B":{"type":"integer","minimum":0,"description":"Lines of context before each match"},` +
	`"-C":{"type":"integer","minimum":0,"description":"Lines of context before and after each match"},` +
	`"multiline":{"type":"boolean","description":"Let . match line ends and a match span lines"},` +
	`"head_limit":{"type":"integer","minimum":1,"description":"How many lines or files to return, 200 if not given"}},` +
	`"required":["pattern"],"additionalProperties":false}`

const (
	grepEntries  = 200
	grepContext  = 100 // lines before or after a match
	grepLineSize = 500 // bytes shown of one line

	grepContent = "content"
	grepFiles   = "files_with_matches"
	grepCount   = "count"
)

// grepQuery is one search. rel is a clean path of the workspace.
type grepQuery struct {
	pattern, rel, glob, language, mode string
	ignoreCase, numbers, multiline     bool
	before, after, limit               int
	// file is open when rel is a file, nil when it is a directory.
	file *os.File
}

// searcher is a way to search. It reports in the order of names, until the
// printer is full.
type searcher interface {
	search(ctx context.Context, sc *scene, q grepQuery, p *grepPrinter) error
}

func (s *Set) runGrep(ctx context.Context, sc *scene, input json.RawMessage) forkcore.ToolResult {
	q := grepQuery{mode: grepFiles, numbers: true, limit: grepEntries}
	path, around := "", 0
	q.after, q.before = -1, -1
	err := decodeInput("Grep", input, []field{
		{"pattern", &q.pattern, true},
		{"path", &path, false},
		{"glob", &q.glob, false},
		{"type", &q.language, false},
		{"output_mode", &q.mode, false},
		{"-i", &q.ignoreCase, false},
		{"-n", &q.numbers, false},
		{"-A", &q.after, false},
		{"-B", &q.before, false},
		{"-C", &around, false},
		{"multiline", &q.multiline, false},
		{"head_limit", &q.limit, false},
	})
	if err != nil {
		return failf("%v", err)
	}
	if q.mode != grepContent && q.mode != grepFiles && q.mode != grepCount {
		return failf("output_mode must be content, files_with_matches or count, got %s", quote(q.mode))
	}
	if q.limit < 1 {
		return failf("head_limit must be at least 1, got %d", q.limit)
	}
	q.before, q.after = contextLines(q.before, around, q.mode), contextLines(q.after, around, q.mode)
	if q.rel, err = sc.files.rel(path); err != nil {
		return failf("%v", err)
	}
	info, err := sc.files.stat(q.rel)
	if err != nil {
		return failf("%v", err)
	}
	if !info.IsDir() {
		if q.file, _, err = sc.files.openText(q.rel); err != nil {
			return failf("%v", err)
		}
		defer q.file.Close()
	} else if q.rel, err = sc.files.realDir(q.rel); err != nil {
		return failf("%v", err)
	}

	ctx, cancel := context.WithTimeout(ctx, s.opts.SearchTimeout)
	defer cancel()
	p := &grepPrinter{q: q, redact: sc.redact, budget: s.opts.FileOutput}
	err = s.searcher().search(ctx, sc, q, p)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.note("[the search took longer than %v and is not complete: give a narrower path, glob or pattern]", s.opts.SearchTimeout)
		return forkcore.ToolResult{Text: p.b.String(), IsError: true}
	case err != nil:
		return failf("the search could not be made: %v", err)
	case p.entries == 0:
		return forkcore.ToolResult{Text: "No matches found"}
	case p.full:
		p.note("[only the first %d are shown, there are more: give a narrower path, glob or pattern, or a higher head_limit]", p.entries)
	}
	return forkcore.ToolResult{Text: p.b.String()}
}

// searcher prefers ripgrep, which is faster, knows more types and reads UTF-16;
// the built-in search needs nothing installed.
func (s *Set) searcher() searcher {
	if s.rg != "" {
		return ripgrep{program: s.rg}
	}
	return builtinSearch{}
}

// contextLines is -A or -B (-1 when absent) with -C as its default.
func contextLines(n, around int, mode string) int {
	if mode != grepContent {
		return 0
	}
	if n < 0 {
		n = around
	}
	return min(max(n, 0), grepContext)
}

// grepPrinter writes what a search finds, the same for every searcher. Its
// methods return false once it is full and nothing more is wanted.
type grepPrinter struct {
	q       grepQuery
	redact  *redactor
	budget  int // bytes
	b       strings.Builder
	entries int // lines, files or counts written
	full    bool

	path string // of the last line
	n    int    // its number
}

// lineMax is how much of a line a searcher must hand over.
func (p *grepPrinter) lineMax() int { return grepLineSize + p.redact.margin() }

func (p *grepPrinter) file(path string) bool { return p.entry("%s\n", showPath(path)) }

func (p *grepPrinter) count(path string, n int) bool { return p.entry("%s:%d\n", showPath(path), n) }

// line writes line n of a file, a match or its context.
func (p *grepPrinter) line(path string, n int, match bool, l line) bool {
	if p.room() && p.q.before+p.q.after > 0 && p.entries > 0 && (path != p.path || n != p.n+1) {
		p.b.WriteString("--\n")
	}
	p.path, p.n = path, n
	sep := "-"
	if match {
		sep = ":"
	}
	number := ""
	if p.q.numbers {
		number = fmt.Sprintf("%d%s", n, sep)
	}
	return p.entry("%s%s%s%s\n", showPath(path), sep, number, l.show(grepLineSize, p.redact))
}

// room marks the printer full when another entry would be one too many.
func (p *grepPrinter) room() bool {
	p.full = p.full || p.entries >= p.q.limit || p.b.Len() >= p.budget
	return !p.full
}

func (p *grepPrinter) entry(format string, args ...any) bool {
	if !p.room() {
		return false
	}
	fmt.Fprintf(&p.b, format, args...)
	p.entries++
	return true
}

func (p *grepPrinter) note(format string, args ...any) {
	fmt.Fprintf(&p.b, format+"\n", args...)
}

// endOf turns the end of a stream of lines into no error.
func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
