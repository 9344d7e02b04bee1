package forkcore

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// controlTags are the tags this program gives meaning to. In data their "<" is
// replaced, so that no file, directive or tool output can open or close one.
var controlTags = []string{BoilerplateTag, "task-notification", "system-reminder", ReplacementTag}

// NeutralizeTags disarms control tags inside data by writing "&lt;" for their
// "<": those of this program, and more where the data is put into another element.
//
// The program itself knows a tag by its exact bytes. A model reads more
// kindly, so whatever it could take for the same tag is disarmed as well:
// any case, white space around the slash, invisible characters anywhere
// (Unicode Cf and the ignorable ones, such as a zero-width space), full-width
// forms (U+FF01 to U+FF5E), and any dash for the hyphen. Letters of other scripts that merely look alike are
// left alone: they are other words, and to fold them would damage honest text.
func NeutralizeTags(s string, more ...string) string {
	if !strings.ContainsAny(s, "<＜﹤") {
		return s
	}
	var out strings.Builder
	last := 0
	for i, r := range s {
		if fold(r) != '<' {
			continue
		}
		rest := s[i+utf8.RuneLen(r):]
		if !startsTag(rest, controlTags) && !startsTag(rest, more) {
			continue
		}
		out.WriteString(s[last:i])
		out.WriteString("&lt;")
		last = len(s) - len(rest)
	}
	if last == 0 {
		return s
	}
	out.WriteString(s[last:])
	return out.String()
}

// startsTag reports whether rest, which follows a "<", goes on with one of the
// names, a slash before it or not.
func startsTag(rest string, tags []string) bool {
	rest = skipBlank(rest)
	if r, n := utf8.DecodeRuneInString(rest); fold(r) == '/' {
		rest = skipBlank(rest[n:])
	}
	for _, tag := range tags {
		if startsName(rest, tag) {
			return true
		}
	}
	return false
}

func startsName(rest, name string) bool {
	for _, want := range name {
		rest = strings.TrimLeftFunc(rest, invisible)
		r, n := utf8.DecodeRuneInString(rest)
		if fold(r) != want {
			return false
		}
		rest = rest[n:]
	}
	return true
}

func skipBlank(s string) string {
	return strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) || invisible(r) })
}

func invisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// fold gives the ASCII character that a model may read a rune as, in lower case.
func fold(r rune) rune {
	switch {
	case r >= '！' && r <= '～': // full-width forms of "!" to "~"
		r -= '！' - '!'
	case r == '﹤':
		return '<'
	case unicode.Is(unicode.Pd, r), r == '−':
		return '-'
	}
	if r >= 'A' && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}
