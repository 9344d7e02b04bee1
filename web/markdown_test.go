package web

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

func drawn(t testing.TB, m *markdown, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.render(text).Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestMarkdownElements(t *testing.T) {
	m := newMarkdown()
	for _, c := range []struct{ name, in, want string }{
		{"paragraphs and lines", "Scope: a\nResult: b\n\nnext", "<p>Scope: a<br>\nResult: b</p>\n<p>next</p>\n"},
		{"emphasis", "**b** *i* ~~s~~ `c<d>`", "<p><strong>b</strong> <em>i</em> <del>s</del> <code>c&lt;d&gt;</code></p>\n"},
		{"file names are no emphasis", "tides/__main__.py \"**/*test*\" __pycache__ **/*.go a_b_c", "<p>tides/__main__.py &#34;**/*test*&#34; __pycache__ **/*.go a_b_c</p>\n"},
		{"emphasis beside stars", "**Result:** see *a* and **/x", "<p><strong>Result:</strong> see <em>a</em> and **/x</p>\n"},
		{"lists", "- a\n- b\n\n3. c", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>\n<ol start=\"3\">\n<li>c</li>\n</ol>\n"},
		{"tasks are text", "- [ ] a", "<ul>\n<li>[ ] a</li>\n</ul>\n"},
		{"the first heading is an h3", "# a\n## b\n#### c\n# d", "<h3>a</h3>\n<h4>b</h4>\n<h5>c</h5>\n<h3>d</h3>\n"},
		{"no level is skipped", "### a\n# b\n###### c", "<h3>a</h3>\n<h3>b</h3>\n<h4>c</h4>\n"},
		{"no level after h6", "# a\n## b\n### c\n#### d\n##### e\n###### f", "<h3>a</h3>\n<h4>b</h4>\n<h5>c</h5>\n<h6>d</h6>\n<h6>e</h6>\n<h6>f</h6>\n"},
		{
			"table", "|a|b|\n|--|-:|\n|1|2|",
			"<div class=\"scroll\" tabindex=\"0\"><table>\n<thead>\n<tr>\n<th>a</th>\n<th align=\"right\">b</th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>1</td>\n<td align=\"right\">2</td>\n</tr>\n</tbody>\n</table></div>\n",
		},
		{
			"link", "[a](https://example.org/?a=1&b=%22)",
			"<p><a href=\"https://example.org/?a=1&amp;b=%22\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">a</a></p>\n",
		},
		{"mail", "<a@example.org>", "<p><a href=\"mailto:a@example.org\" rel=\"nofollow noreferrer\">a@example.org</a></p>\n"},
		{
			"address in text", "see http://example.org.",
			"<p>see <a href=\"http://example.org\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">http://example.org</a>.</p>\n",
		},
		{"an address without a host is no link", "[a](https://)", "<p>[a](https://)</p>\n"},
		{"a path is no link", "[main.go](cmd/main.go)", "<p>[main.go](cmd/main.go)</p>\n"},
		{
			"an image becomes a link", "![alt](https://example.org/a.png)",
			"<p><a href=\"https://example.org/a.png\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">alt</a></p>\n",
		},
		{
			"an image without a text too", "![](https://example.org/a.png)",
			"<p><a href=\"https://example.org/a.png\" rel=\"nofollow noreferrer noopener\" target=\"_blank\">https://example.org/a.png</a></p>\n",
		},
		{"an image of another kind does not", "![a](data:image/png;base64,AA)", "<p>![a](data:image/png;base64,AA)</p>\n"},
		{"code of an unknown language", "```nosuch\n<b>\n```", "<pre tabindex=\"0\"><code>&lt;b&gt;\n</code></pre>\n"},
		{"indented code", "    a", "<pre tabindex=\"0\"><code>a\n</code></pre>\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, drawn(t, m, c.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarkdownColoursCode(t *testing.T) {
	got := drawn(t, newMarkdown(), "```go\nfunc a() { return \"<b>\" }\n```\n")
	for _, want := range []string{`<pre tabindex="0" class="ch-chroma"><code>`, `<span class="ch-kd">func</span>`, `&lt;b&gt;`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "style=") {
		t.Errorf("inline style in\n%s", got)
	}
}

// What models and tools write must be visible as it was typed, and dead.
func TestMarkdownShowsMarkupAsTyped(t *testing.T) {
	m := newMarkdown()
	for _, in := range []string{
		`<img src=x onerror=alert(1)>`,
		`[a](javascript:alert(1))`,
		`[a](JaVaScRiPt:alert(1))`,
		`[a](data:text/html,x)`,
		`![a](javascript:alert(1))`,
		`<javascript:alert(1)>`,
		`</script><b>`,
		`<i hx-post=/runs/1/cancel hx-trigger=load>`,
		`<hx-partial hx-target="#main" hx-swap="innerHTML">gone</hx-partial>`,
		`<head><title>x</title></head>`,
		`<template><script>alert(1)</script></template>`,
		`<!-- a comment -->`,
		`<?php x ?>`,
		`<![CDATA[x]]>`,
		`<!DOCTYPE html>`,
		`<svg onload=alert(1)>`,
		`<a href="javascript:alert(1)" data-copy="x" id="main">a</a>`,
		`<style>body { display: none }</style>`,
	} {
		for name, source := range map[string]string{
			"alone": in, "in a sentence": "see " + in + " there", "in a list": "- " + in, "in a quote": "> " + in, "in a table": "|a|\n|-|\n|" + in + "|",
		} {
			got := drawn(t, m, source)
			checkDead(t, source, got)
			if text := textOf(t, got); !strings.Contains(text, in) {
				t.Errorf("%s: %q shows as %q", name, source, text)
			}
		}
		for _, source := range []string{"`" + in + "`", "```\n" + in + "\n```", "```html\n" + in + "\n```", "    " + in} {
			got := drawn(t, m, source)
			checkDead(t, source, got)
			if text := textOf(t, got); !strings.Contains(text, in) {
				t.Errorf("as code: %q shows as %q", source, text)
			}
		}
	}
}

// forbidden is what must never be in the HTML: htmx rewrites some tags by regular expressions before it is parsed.
var forbidden = regexp.MustCompile(`(?i)<(/?)(hx-|head\b|template|title|script|style|img|svg|i\b|b\b|input|form|!|\?)`)

// inside is the element that fragments are parsed in.
var inside = &html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div}

// checkDead parses what was drawn and looks at every element and attribute.
func checkDead(t testing.TB, source, got string) {
	t.Helper()
	if found := forbidden.FindString(got); found != "" {
		t.Errorf("%q has %q in\n%s", source, found, got)
	}
	nodes, err := html.ParseFragment(strings.NewReader(got), inside)
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range nodes {
		for n := range top.Descendants() {
			checkNode(t, source, n)
		}
		checkNode(t, source, top)
	}
}

func checkNode(t testing.TB, source string, n *html.Node) {
	t.Helper()
	for _, a := range n.Attr {
		switch a.Key {
		case "href":
			if !strings.HasPrefix(a.Val, "http://") && !strings.HasPrefix(a.Val, "https://") && !strings.HasPrefix(a.Val, "mailto:") {
				t.Errorf("%q links to %q", source, a.Val)
			}
		case "class", "rel", "target", "start", "align", "tabindex":
		default:
			t.Errorf("%q has the attribute %s=%q", source, a.Key, a.Val)
		}
	}
}

func textOf(t testing.TB, markup string) string {
	t.Helper()
	nodes, err := html.ParseFragment(strings.NewReader(markup), inside)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, top := range nodes {
		if top.Type == html.TextNode {
			b.WriteString(top.Data)
		}
		for n := range top.Descendants() {
			if n.Type == html.TextNode {
				b.WriteString(n.Data)
			}
		}
	}
	return b.String()
}

// No text may take long, whatever it is. The sizes are a tenth of the largest, so that quadratic time shows and a slow machine passes.
func TestMarkdownTakesLittleTime(t *testing.T) {
	const size = maxMarkdown / 10
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	m := newMarkdown()
	for _, c := range []struct{ name, text string }{
		{"brackets", fill("[")},
		{"code that lexers try again at every byte", "```lua\n" + fill("[") + "\n```\n```perl\n" + fill("<") + "\n```"},
		{"closed brackets", fill("[a](")},
		{"images", fill("![")},
		{"quotes", fill(">")},
		{"quotes on lines", fill("> > > > > > > > > >\n")},
		{"growing quotes", func() string {
			var b strings.Builder
			for i := 1; b.Len() < size-2000; i++ {
				b.WriteString(strings.Repeat(">", i%1000) + "a\n")
			}
			return b.String()
		}()},
		{"lists", fill("- ")},
		{"deep lists", func() string {
			var b strings.Builder
			for i := 0; b.Len() < size-2000; i = (i + 1) % 900 {
				b.WriteString(strings.Repeat(" ", 2*i) + "- a\n")
			}
			return b.String()
		}()},
		{"stars", fill("*")},
		{"stars and letters", fill("*a**b")},
		{"underscores", fill("_a ")},
		{"backticks", fill("`a``b```c")},
		{"angles", fill("<")},
		{"entities", fill("&")},
		{"table", "|" + strings.Repeat("a|", 2_000) + "\n|" + strings.Repeat("-|", 2_000) + "\n" + strings.Repeat("|\n", 5_000)},
		{"addresses", fill("http://a.b ")},
		{"mail", fill("a@")},
		{"dots", fill("www.a.")},
		{"references", fill("[a]: b\n")},
		{"tildes", fill("~~a")},
		{"go", "```go\n" + fill("/*")},
		{"json", "```json\n" + fill("[{\"a\":")},
		{"html", "```html\n" + fill("<a b='")},
		{"many blocks", fill("```go\nfunc a()\n```\n")},
		{"huge", strings.Repeat("# a\n", 1_000_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			got := m.html(c.text)
			took := time.Since(start)
			if took > 10*time.Second || len(got) > 50*len(c.text)+1000 {
				t.Errorf("%d bytes became %d bytes of HTML in %v", len(c.text), len(got), took)
			}
		})
	}
}

func TestCostlyTextIsShownAsTyped(t *testing.T) {
	m := newMarkdown()
	for name, text := range map[string]string{
		"long": strings.Repeat("**a** ", maxMarkdown/6+1), "quotes": strings.Repeat(">", maxMarkers+1) + " **a**", "links": strings.Repeat("[a](", maxLinks+1) + "**b**",
		"cells": strings.Repeat("|-", 300) + "|\n" + strings.Repeat("|**a**\n", 300), "nested": strings.Repeat("- ", 30) + strings.Repeat("> ", 30) + "**a**",
	} {
		got := string(m.html(text))
		if !strings.HasPrefix(got, "<pre") || textOf(t, got) != text+"\n" {
			t.Errorf("%s: %.200s", name, got)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{
		"# a\n\n- b\n  - c\n\n|a|\n|-|\n|b|\n", "```go\nfunc a() {}\n```", "[a](javascript:alert(1)) <hx-partial> <img src=x onerror=alert(1)>",
		"![a](https://example.org/\"onload=x) <https://example.org/'> www.example.org a@example.org", "&lt;b&gt; \\<b> &#60;b>", "> > - 1. a\n***\n~~b~~",
		"[a]: javascript:x 'y'\n\n[a] [a][] ![a]", "<a\nhref=x>", "[0](https://)", "\x00\xff\u202e",
	} {
		f.Add(seed)
	}
	m := newMarkdown()
	f.Fuzz(func(t *testing.T, text string) {
		checkDead(t, text, string(m.html(text)))
	})
}
