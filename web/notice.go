package web

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"forkyard/forkcore"
)

// noticeView is what a parent is told when a fork ends, as forkcore.Notification wrote it.
type noticeView struct {
	RunID   string
	State   forkcore.State
	Summary string
	Result  string // markdown
	Tokens  int64
	Tools   int64
	Took    time.Duration
}

const (
	noticeOpening = "<task-notification>"
	noticeClosing = "</task-notification>"
)

// parseNotice reads the text of a notification. ok is false for any other text: the tag cannot come from a person, a
// model or a tool, in whose texts it is neutralised.
func parseNotice(text string) (v noticeView, ok bool) {
	rest, opened := strings.CutPrefix(text, noticeOpening)
	rest, closed := strings.CutSuffix(rest, noticeClosing)
	if !opened || !closed {
		return noticeView{}, false
	}
	// In the order of the text: what a field holds cannot close it, but may look like another field.
	field := func(tag string) string {
		_, after, found := strings.Cut(rest, "\n<"+tag+">")
		if !found {
			return ""
		}
		value, behind, found := strings.Cut(after, "</"+tag+">")
		if !found {
			return ""
		}
		rest = behind
		return value
	}
	v.RunID = field("task-id")
	_ = field("tool-use-id")
	v.State = notedState(field("status"))
	v.Summary = field("summary")
	// Figures come last, and a result may look like them.
	if i := strings.LastIndex(rest, "\n<usage>"); i >= 0 {
		usage := rest[i:]
		rest = rest[:i]
		v.Tokens, v.Tools = figure(usage, "total_tokens"), figure(usage, "tool_uses")
		v.Took = time.Duration(figure(usage, "duration_ms")) * time.Millisecond
	}
	v.Result = field("result")
	return v, v.RunID != ""
}

func figure(text, tag string) int64 {
	_, after, _ := strings.Cut(text, "<"+tag+">")
	digits, _, _ := strings.Cut(after, "<")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// notedState undoes forkcore.NotificationStatus.
func notedState(word string) forkcore.State {
	for _, s := range []forkcore.State{forkcore.Done, forkcore.Cancelled, forkcore.OverBudget} {
		if forkcore.NotificationStatus(s) == word {
			return s
		}
	}
	return forkcore.Failed
}

// longResult is from how many bytes on a report is folded.
const longResult = 240

// line is what a folded report comes to.
func (v noticeView) line() string {
	return shorten(cmp.Or(forkcore.ParseReport(v.Result).Result, v.Result), 160)
}

// figures says what the fork took.
func (v noticeView) figures() string {
	parts := []string{grouped(v.Tokens) + " tokens", counted(v.Tools, "tool call")}
	if v.Took > 0 {
		parts = append(parts, spanText(v.Took))
	}
	return strings.Join(parts, " · ")
}
