package tools

import (
	"strings"
	"unicode/utf8"
)

// CleanText makes text fit to be stored, sent and shown: the result is valid
// UTF-8 without U+0000. Bad bytes become U+FFFD (one for each run of them) and
// NUL becomes the visible ␀ (U+2400). Text is cleaned once, when it arrives;
// its bytes never change after that. encoding/json would replace bad bytes too,
// but silently and only in the copy that it encodes.
func CleanText(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ReplaceAll(s, "\x00", "\u2400")
}

// CutText returns the longest prefix of s of at most limit bytes that ends at a
// rune edge.
func CutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// cutFront is CutText from the other side: the longest suffix.
func cutFront(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	from := len(s) - max(limit, 0)
	for from < len(s) && !utf8.RuneStart(s[from]) {
		from++
	}
	return s[from:]
}

// trimPartialEnd drops a rune that a cut left incomplete at the end of s, so
// that cleaning does not report a bad byte the source never had.
func trimPartialEnd(s string) string {
	for i := len(s) - 1; i >= 0 && i >= len(s)-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			if !utf8.FullRuneInString(s[i:]) {
				return s[:i]
			}
			break
		}
	}
	return s
}

// trimPartialStart drops the continuation bytes a cut left at the start of s.
func trimPartialStart(s string) string {
	for i := 0; i < len(s) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}

// showPath returns p as it stands in a line of output: a name with control
// characters is quoted, so that it cannot pass for two lines.
func showPath(p string) string {
	p = CleanText(p)
	if strings.IndexFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return p
	}
	return quote(p)
}
