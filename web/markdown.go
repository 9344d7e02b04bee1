package web

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/alecthomas/chroma/v2"
	chromahtml "github.com/alecthomas/chroma/v2/formatters/html"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	marktext "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

const (
	// maxMarkdown is the largest text that is read as markdown, in bytes; a longer one is shown as it was typed.
	maxMarkdown = 200_000
	// maxHighlighted is how many bytes of code one text may have coloured: the lexers are regular expressions that
	// backtrack, and who wrote the code is not known.
	maxHighlighted = 64 << 10
	// maxColouring is how long the lexer of one block may take: a rule is stopped after 250 ms, but may be tried at every byte.
	maxColouring = 100 * time.Millisecond
	// maxNesting is how deep the elements of a text may nest. Deeper trees make browsers and morphing slow.
	maxNesting = 40
	// maxMarkers is how many nesting signs one line may begin with: the parser takes quadratic time in them.
	maxMarkers = 60
	// maxCells is the largest number of cells that the tables of a text may have.
	maxCells = 50_000
	maxLinks = 2_000
	// markdownCache is how many bytes of texts and their HTML are kept.
	markdownCache = 16 << 20
	// codeClass precedes all class names of coloured code; static/chroma writes their colours.
	codeClass = "ch-"
)

// markdown draws text that models wrote. What it emits holds no markup of theirs: HTML is shown as it was typed,
// links lead to http, https and mailto only, and everything passes a list of what is allowed at the end.
// It is safe for concurrent use.
type markdown struct {
	engine    goldmark.Markdown
	policy    *bluemonday.Policy
	formatter *chromahtml.Formatter
	style     *chroma.Style
	cache     *textCache
}

func newMarkdown() *markdown {
	m := &markdown{
		policy:    markdownPolicy(),
		formatter: chromahtml.New(chromahtml.WithClasses(true), chromahtml.ClassPrefix(codeClass), chromahtml.WithPreWrapper(codeWrapper{})),
		style:     chroma.MustNewStyle("classes", chroma.StyleEntries{}),
		cache:     newTextCache(markdownCache),
	}
	// Without the parsers of HTML a tag is text like any other; without that of link references nothing is invisible.
	blocks := withoutParsers(parser.DefaultBlockParsers(), parser.NewHTMLBlockParser())
	inlines := withoutParsers(parser.DefaultInlineParsers(), parser.NewRawHTMLParser())
	inlines = append(withoutParsers(inlines, parser.NewEmphasisParser()), util.Prioritized(emphasis{parser.NewEmphasisParser()}, 500))
	m.engine = goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(blocks...),
			parser.WithInlineParsers(inlines...),
			parser.WithASTTransformers(util.Prioritized(outline{}, 100)),
		)),
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough,
			extension.NewLinkify(extension.WithLinkifyAllowedProtocols([]string{"http", "https"})),
		),
		// Models end lines where they want them to end.
		goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(&markdownNodes{m}, 100))),
	)
	return m
}

// emphasis takes stars alone, and none beside a slash: agents write __main__.py and **/*_test.go far more often than
// they stress a word with underscores, and a file name that lost its marks is wrong.
type emphasis struct{ parser.InlineParser }

func (emphasis) Trigger() []byte { return []byte{'*'} }

func (e emphasis) Parse(parent ast.Node, block marktext.Reader, pc parser.Context) ast.Node {
	line, segment := block.PeekLine()
	run := len(line) - len(bytes.TrimLeft(line, "*"))
	if block.PrecendingCharacter() != '/' && (run == len(line) || line[run] != '/') {
		return e.InlineParser.Parse(parent, block, pc)
	}
	block.Advance(run)
	return ast.NewTextSegment(segment.WithStop(segment.Start + run))
}

// withoutParsers leaves out the parser that has the type of another one.
func withoutParsers(all []util.PrioritizedValue, out any) []util.PrioritizedValue {
	kept := make([]util.PrioritizedValue, 0, len(all))
	for _, p := range all {
		if fmt.Sprintf("%T", p.Value) != fmt.Sprintf("%T", out) {
			kept = append(kept, p)
		}
	}
	return kept
}

// markdownPolicy allows what the renderer emits and nothing else.
func markdownPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "strong", "em", "del", "code",
		"table", "thead", "tbody", "tr", "th", "td", "pre", "div", "span", "a")
	// A bare span is dropped otherwise, and the text of a code line with it its place in the grid of lines.
	p.AllowNoAttrs().OnElements("span", "pre", "div")
	p.AllowAttrs("start").Matching(regexp.MustCompile(`^[0-9]{1,9}$`)).OnElements("ol")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|right|center)$`)).OnElements("th", "td")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^`+codeClass+`[a-z0-9]{1,12}$`)).OnElements("span", "pre")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^scroll$`)).OnElements("div")
	p.AllowAttrs("tabindex").Matching(regexp.MustCompile(`^0$`)).OnElements("pre", "div")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https", "mailto")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
}

// render draws a text as markdown.
func (m *markdown) render(text string) templ.Component {
	return m.component("markdown", text, m.html)
}

// renderFresh is render for a text that is drawn once or twice and then changes: keeping it would push out others.
func (m *markdown) renderFresh(text string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(m.html(text))
		return err
	})
}

// json draws JSON, formatted for people; the bytes it stands for are not touched.
func (m *markdown) json(raw string) templ.Component {
	return m.component("json", raw, func(raw string) []byte {
		var b bytes.Buffer
		e := newExcerpt(indented(raw))
		m.writeCode(&b, "json", e.Head, true)
		if e.Note != "" {
			fmt.Fprintf(&b, "<p>%s</p>", e.Note)
			m.writeCode(&b, "json", e.Tail, true)
		}
		return m.policy.SanitizeBytes(b.Bytes())
	})
}

func (m *markdown) component(kind, text string, draw func(string) []byte) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := w.Write(m.cache.get(kind, text, draw))
		return err
	})
}

func (m *markdown) html(source string) []byte {
	if len(source) > maxMarkdown || costly(source) {
		return asTyped(source)
	}
	var b bytes.Buffer
	src := []byte(source)
	document := m.engine.Parser().Parse(marktext.NewReader(src))
	if nesting(document) > maxNesting || m.engine.Renderer().Render(&b, src, document) != nil {
		return asTyped(source)
	}
	return m.policy.SanitizeBytes(b.Bytes())
}

func asTyped(source string) []byte {
	return []byte(`<pre tabindex="0">` + html.EscapeString(source) + "</pre>\n")
}

// costly reports whether a text would take long to read or grow a lot: a line that begins with very many signs of
// quotes and lists, very many links, each of which is looked for to the end of its paragraph, or a table whose short
// rows would be filled up with very many cells.
func costly(source string) bool {
	if strings.Count(source, "](") > maxLinks {
		return true
	}
	columns, lines := 0, 0
	for line := range strings.Lines(source) {
		lines++
		rest := strings.TrimLeft(line, "> \t-+*")
		if start := line[:len(line)-len(rest)]; strings.Count(start, ">")+strings.Count(start, " ") > maxMarkers && strings.ContainsAny(start, ">-+*") {
			return true
		}
		if strings.TrimRight(rest, "|:- \t\r\n") == "" {
			columns = max(columns, strings.Count(rest, "|"))
		}
	}
	return columns*lines > maxCells
}

// nesting is the depth of a tree, counted no further than is of interest.
func nesting(document ast.Node) int {
	deepest, depth := 0, 0
	_ = ast.Walk(document, func(_ ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			depth--
			return ast.WalkContinue, nil
		}
		depth++
		if deepest = max(deepest, depth); deepest > maxNesting {
			return ast.WalkStop, nil
		}
		return ast.WalkContinue, nil
	})
	return deepest
}

// outline renumbers headings: the first is an h3, below the headings of the page, and none skips a level.
type outline struct{}

func (outline) Transform(document *ast.Document, _ marktext.Reader, _ parser.Context) {
	var open []int // levels as written
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		h, ok := n.(*ast.Heading)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		for len(open) > 0 && open[len(open)-1] >= h.Level {
			open = open[:len(open)-1]
		}
		open = append(open, h.Level)
		h.Level = min(2+len(open), 6)
		return ast.WalkContinue, nil
	})
}

// markdownNodes renders what goldmark would render in another way.
type markdownNodes struct{ m *markdown }

func (r *markdownNodes) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindLink, r.link)
	reg.Register(ast.KindImage, r.image)
	reg.Register(ast.KindAutoLink, r.autoLink)
	reg.Register(ast.KindFencedCodeBlock, r.codeBlock)
	reg.Register(ast.KindCodeBlock, r.codeBlock)
	reg.Register(extast.KindTable, r.table)
}

// safeLink says whether a link may be followed. All others, such as paths of files, are shown as they were typed.
func safeLink(destination []byte) bool {
	u, err := url.Parse(string(destination))
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "http", "https":
		return u.Host != ""
	case "mailto":
		return u.Opaque != ""
	}
	return false
}

func (r *markdownNodes) link(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Link)
	r.ends(w, n.Destination, "[", entering)
	return ast.WalkContinue, nil
}

func (r *markdownNodes) image(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Image)
	if entering && n.ChildCount() == 0 && safeLink(n.Destination) {
		r.ends(w, n.Destination, "![", true)
		_, _ = w.Write(util.EscapeHTML(n.Destination))
		return ast.WalkContinue, nil
	}
	r.ends(w, n.Destination, "![", entering)
	return ast.WalkContinue, nil
}

func (r *markdownNodes) autoLink(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.AutoLink)
	address := n.URL(source)
	if n.AutoLinkType == ast.AutoLinkEmail && !bytes.HasPrefix(bytes.ToLower(address), []byte("mailto:")) {
		address = append([]byte("mailto:"), address...)
	}
	if !safeLink(address) {
		// Without brackets only http and https are links.
		_, _ = w.WriteString("&lt;" + html.EscapeString(string(n.Label(source))) + "&gt;")
		return ast.WalkContinue, nil
	}
	r.ends(w, address, "", true)
	_, _ = w.WriteString(html.EscapeString(string(n.Label(source))))
	r.ends(w, address, "", false)
	return ast.WalkContinue, nil
}

// ends writes what surrounds the text of a link.
func (r *markdownNodes) ends(w util.BufWriter, destination []byte, opening string, entering bool) {
	safe := safeLink(destination)
	switch {
	case entering && safe:
		_, _ = w.WriteString(`<a href="`)
		_, _ = w.Write(util.EscapeHTML(util.URLEscape(destination, true)))
		_, _ = w.WriteString(`">`)
	case entering:
		_, _ = w.WriteString(opening)
	case safe:
		_, _ = w.WriteString("</a>")
	default:
		_, _ = w.WriteString("](")
		_, _ = w.Write(util.EscapeHTML(destination))
		_, _ = w.WriteString(")")
	}
}

func (r *markdownNodes) table(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<div class=\"scroll\" tabindex=\"0\"><table>\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func (r *markdownNodes) codeBlock(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if fenced, ok := node.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(source))
	}
	var code strings.Builder
	lines := node.Lines()
	for i := range lines.Len() {
		line := lines.At(i)
		code.Write(line.Value(source))
	}
	r.m.writeCode(w, language, code.String(), r.allowed(node, code.Len()))
	_, _ = w.WriteString("\n")
	return ast.WalkSkipChildren, nil
}

// allowed takes the bytes of a code block from what its document may have coloured.
func (r *markdownNodes) allowed(node ast.Node, size int) bool {
	document := node.OwnerDocument()
	if document == nil {
		return size <= maxHighlighted
	}
	const key = "coloured"
	used, _ := document.Meta()[key].(int)
	if used+size > maxHighlighted {
		return false
	}
	document.AddMeta(key, used+size)
	return true
}

// writeCode writes a block of code, coloured when that is wanted and its language is known.
func (m *markdown) writeCode(w io.Writer, language, code string, coloured bool) {
	var lexer chroma.Lexer
	if coloured && language != "" {
		lexer = lexers.Get(language)
	}
	if lexer == nil || !m.highlight(w, lexer, code) {
		_, _ = io.WriteString(w, `<pre tabindex="0"><code>`+html.EscapeString(code)+`</code></pre>`)
	}
}

// highlight writes code in colours. It reports false, and has written nothing, when the lexer did not take the code.
func (m *markdown) highlight(w io.Writer, lexer chroma.Lexer, code string) (ok bool) {
	// A rule of a lexer that does not get along with some text panics.
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	tokens, err := chroma.Coalesce(hurried{lexer, time.Now().Add(maxColouring)}).Tokenise(nil, code)
	if err != nil {
		return false
	}
	var b bytes.Buffer
	if m.formatter.Format(&b, m.style, tokens) != nil {
		return false
	}
	_, err = w.Write(b.Bytes())
	return err == nil
}

// hurried is a lexer that gives up, by the panic that highlight recovers, when its time is over.
type hurried struct {
	chroma.Lexer
	until time.Time
}

func (h hurried) Tokenise(o *chroma.TokeniseOptions, text string) (chroma.Iterator, error) {
	next, err := h.Lexer.Tokenise(o, text)
	if err != nil {
		return nil, err
	}
	return func() chroma.Token {
		if time.Now().After(h.until) {
			panic("the lexer takes too long")
		}
		return next()
	}, nil
}

// codeWrapper is what surrounds coloured code: an element that can be scrolled with keys.
type codeWrapper struct{}

func (codeWrapper) Start(_ bool, class string) string { return `<pre tabindex="0"` + class + `><code>` }
func (codeWrapper) End(bool) string                   { return `</code></pre>` }
