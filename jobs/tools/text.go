package tools

import (
	"strings"
	"unicode/utf8"

	"forkyard/forkcore"
)

// cutFront is forkcore.CutText from the other side: the longest suffix.
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
	p = forkcore.CleanText(p)
	if strings.IndexFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return p
	}
	return quote(p)
}
