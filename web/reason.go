package web

import (
	"regexp"
	"strings"
	"time"
)

// reasonPart is a stretch of a reason's text: a moment, the name of a page, or words.
type reasonPart struct {
	At         time.Time // zero: no moment
	Text, Path string
}

// What a reason may hold beside words. The programs that write reasons do not know the reader's zone, and the API gives the
// same text to people without pages.
var (
	keyAndLimits = "“Key and limits” (" + pathProvider + ")"
	reasonMark   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|` + regexp.QuoteMeta(keyAndLimits))
)

func splitReason(text string) (parts []reasonPart) {
	for {
		at := reasonMark.FindStringIndex(text)
		if at == nil {
			break
		}
		if at[0] > 0 {
			parts = append(parts, reasonPart{Text: text[:at[0]]})
		}
		mark := text[at[0]:at[1]]
		text = text[at[1]:]
		p := reasonPart{Text: mark}
		if mark == keyAndLimits {
			p.Text, p.Path = "Key and limits", pathProvider
		} else if t, err := time.Parse(time.RFC3339, mark); err == nil {
			p = reasonPart{At: t}
		}
		parts = append(parts, p)
	}
	if strings.TrimSpace(text) != "" || len(parts) == 0 {
		parts = append(parts, reasonPart{Text: text})
	}
	return parts
}
