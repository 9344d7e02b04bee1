package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	// builtinLine is how much of a line is searched.
	builtinLine = 1 << 20
	// builtinMultiline is the largest file searched across its lines.
	builtinMultiline = 16 << 20
)

// builtinSearch is Grep where ripgrep is not installed: RE2 over os.Root.
type builtinSearch struct{}

func (builtinSearch) search(ctx context.Context, sc *scene, q grepQuery, p *grepPrinter) error {
	re, err := q.compile()
	if err != nil {
		return err
	}
	names, err := q.nameFilter()
	if err != nil {
		return err
	}
	if q.file != nil {
		return searchFile(ctx, q.file, q.rel, re, q, p)
	}
	return sc.files.walk(ctx, q.rel, func(name, _ string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || !names(name) {
			return nil
		}
		f, _, err := sc.files.openText(name)
		if err != nil {
			return nil // binary, unreadable or gone: passed over, as rg does
		}
		defer f.Close()
		if err := searchFile(ctx, f, name, re, q, p); err != nil {
			return err
		}
		if p.full {
			return fs.SkipAll
		}
		return nil
	})
}

func (q grepQuery) compile() (*regexp.Regexp, error) {
	if !q.multiline && namesLineEnd(q.pattern) {
		return nil, errors.New("the pattern names a line end: set multiline to search across lines")
	}
	flags := ""
	if q.ignoreCase {
		flags += "i"
	}
	if q.multiline {
		flags += "ms"
	}
	if flags != "" {
		flags = "(?" + flags + ")"
	}
	re, err := regexp.Compile(flags + q.pattern)
	if err != nil {
		return nil, fmt.Errorf("regex parse error: %w", err)
	}
	return re, nil
}

// namesLineEnd tells whether a pattern holds a line end or the escape \n.
func namesLineEnd(pattern string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\n':
			return true
		case '\\':
			if i++; i < len(pattern) && pattern[i] == 'n' {
				return true
			}
		}
	}
	return false
}

// languages are the file names of the types people ask for; rg knows more.
var languages = map[string][]string{
	"c":      {"*.c", "*.h"},
	"cpp":    {"*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.hxx", "*.h", "*.inl"},
	"cs":     {"*.cs"},
	"css":    {"*.css", "*.scss"},
	"go":     {"*.go"},
	"html":   {"*.html", "*.htm"},
	"java":   {"*.java", "*.jsp"},
	"js":     {"*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"},
	"json":   {"*.json"},
	"kotlin": {"*.kt", "*.kts"},
	"lua":    {"*.lua"},
	"md":     {"*.md", "*.markdown", "*.mdx"},
	"php":    {"*.php"},
	"proto":  {"*.proto"},
	"py":     {"*.py", "*.pyi"},
	"ruby":   {"*.rb", "Gemfile", "Rakefile", "*.gemspec"},
	"rust":   {"*.rs"},
	"sh":     {"*.sh", "*.bash", "*.zsh", ".bashrc", ".profile"},
	"sql":    {"*.sql"},
	"swift":  {"*.swift"},
	"toml":   {"*.toml", "Cargo.lock"},
	"ts":     {"*.ts", "*.tsx", "*.mts", "*.cts"},
	"txt":    {"*.txt"},
	"xml":    {"*.xml", "*.xsd", "*.xsl"},
	"yaml":   {"*.yaml", "*.yml"},
}

// nameFilter follows rg: a glob without a slash speaks of names, one with a
// slash of paths from the workspace, and ! turns it round.
func (q grepQuery) nameFilter() (func(name string) bool, error) {
	types, ok := languages[q.language]
	if !ok && q.language != "" {
		return nil, fmt.Errorf("unrecognized file type: %s", shorten(q.language))
	}
	glob, without := strings.CutPrefix(q.glob, "!")
	if !doublestar.ValidatePattern(glob) {
		return nil, fmt.Errorf("error parsing glob %s: check its brackets and braces", quote(q.glob))
	}
	anchored := strings.Contains(glob, "/")
	glob = strings.TrimPrefix(glob, "/")
	return func(name string) bool {
		base := path.Base(name)
		if types != nil && !slices.ContainsFunc(types, func(t string) bool { return doublestar.MatchUnvalidated(t, base) }) {
			return false
		}
		if glob == "" {
			return true
		}
		if !anchored {
			name = base
		}
		return doublestar.MatchUnvalidated(glob, name) != without
	}, nil
}

func searchFile(ctx context.Context, f io.Reader, name string, re *regexp.Regexp, q grepQuery, p *grepPrinter) error {
	src := io.Reader(ctxReader{ctx, f})
	matches := func(_ int, text []byte) bool { return re.Match(bytes.TrimSuffix(text, []byte("\n"))) }
	spans := 0
	if q.multiline {
		data, err := io.ReadAll(io.LimitReader(src, builtinMultiline+1))
		if err != nil {
			return fmt.Errorf("reading %s: %w", showPath(name), err)
		}
		if len(data) > builtinMultiline || bytes.IndexByte(data, 0) >= 0 {
			return nil
		}
		var in map[int]bool
		in, spans = matchedLines(data, re)
		matches = func(n int, _ []byte) bool { return in[n] }
		src = bytes.NewReader(data)
	}

	lines := newLineReader(src, '\n', builtinLine)
	var before []kept // the last q.before lines, not yet written
	n, count, after := 0, 0, 0
	for {
		l, err := lines.next()
		if err != nil || lines.nul {
			if err = endOf(err); err != nil {
				return fmt.Errorf("reading %s: %w", showPath(name), err)
			}
			break
		}
		n++
		match := matches(n, l.text)
		if match {
			count++
		}
		switch {
		case q.mode == grepFiles && match:
			p.file(name)
			return nil
		case q.mode != grepContent:
		case match:
			for _, k := range before {
				p.line(name, k.n, false, k.line)
			}
			before, after = before[:0], q.after
			if !p.line(name, n, true, l) {
				return nil
			}
		case after > 0:
			after--
			if !p.line(name, n, false, l) {
				return nil
			}
		case q.before > 0:
			l.text = slices.Clone(l.text[:min(len(l.text), p.lineMax())])
			before = append(before, kept{n, l})
			before = before[max(0, len(before)-q.before):]
		}
	}
	if q.multiline {
		count = spans
	}
	// A NUL beyond the beginning: binary after all, and not counted.
	if q.mode == grepCount && count > 0 && !lines.nul {
		p.count(name, count)
	}
	return nil
}

type kept struct {
	n int
	line
}

// matchedLines returns the numbers of the lines that matches touch, and how many
// matches there are.
func matchedLines(data []byte, re *regexp.Regexp) (map[int]bool, int) {
	in := map[int]bool{}
	spans := re.FindAllIndex(data, -1)
	n, at := 1, 0
	for _, span := range spans {
		n += bytes.Count(data[at:span[0]], []byte("\n"))
		at = span[0]
		last := n + bytes.Count(data[at:max(at, span[1]-1)], []byte("\n"))
		for i := n; i <= last; i++ {
			in[i] = true
		}
	}
	return in, len(spans)
}
