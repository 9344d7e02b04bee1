package web

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"forkyard/forkcore"
)

// forkCardView is what the card of a fork shows.
type forkCardView struct {
	ID, Key     string
	At          time.Time
	Path, Title string
	State       forkcore.State
	AtRisk      bool   // a request went out with a recomputed prompt
	Leader      string // what it did for its siblings; empty for the others
	Warnings    []warning
	Stopping    bool   // somebody wants it to end
	Wait        string // what it waits for, while it does
	WaitSince   time.Time
	Reason      forkcore.Reason // why it ended or waits; empty: no reason
	Doing       doingView
	Started     time.Time // while it goes on
	Took        string    // once it has ended
	Seen        time.Time // last sign of life, while it has not ended
	In, Out     string
	Classes     []tokenClass
	Calls       string
	Bar         hitBarView
	Cost        string
	CostNote    string
	Why         whyView
	WhyRequest  int64 // that Why is about
	Result      string
	ReportPath  string
	Directive   string
	CancelPath  string
	ResumePath  string
	Back        string
	WatchPath   string // of its messages in the conversation, while it goes on
}

// doingView is the one line that says what a fork does or did last.
type doingView struct{ Verb, Tool, Text string }

// tokenClass is a line of a bill.
type tokenClass struct{ Name, Tokens string }

const (
	cardLine   = 160 // characters of a line on a card
	cardResult = 280 // characters of a result on a card
)

// newForkCard shows a run that was forked from the session. w is what it is writing, when writing is true.
func newForkCard(r forkcore.Run, rows []forkcore.RequestRow, w draft, writing bool, s forkcore.Session, titles map[string]string) forkCardView {
	ended := r.State.Ended()
	writing = writing && r.State == forkcore.Running
	v := forkCardView{
		ID: "fork-" + r.ID, Path: pathRun + r.ID, Title: runTitle(r), State: r.State, Stopping: r.Stop != "" && !ended,
		Directive: r.Directive, Doing: doing(r, w, writing), Bar: newHitBar(r), In: "–", Out: "–", Cost: "–", At: r.UpdatedAt,
	}
	key := []any{r.Version, len(rows)}
	for _, row := range rows {
		for _, t := range []*time.Time{&row.StartedAt, row.FirstEventAt, row.EndedAt} {
			if t != nil && t.After(v.At) {
				v.At = *t
			}
		}
	}
	if n := len(rows); n > 0 {
		key = append(key, rows[n-1].Status, rows[n-1].Usage != nil)
	}
	if writing {
		key = append(key, w.Seq, w.Version)
		v.At = later(v.At, w.At)
	}
	v.Key = fmt.Sprint(key...)
	v.AtRisk = r.AtRiskRequests > 0
	v.Warnings = warningsOf(r)

	if r.Leader {
		v.Leader = "leads the gate"
		if ended {
			v.Leader = "led the gate"
		}
	}
	v.Wait, v.WaitSince = waitsFor(r), r.UpdatedAt
	if r.Reason != nil && (ended || r.State == forkcore.Waiting) {
		v.Reason = forkcore.Reason{Code: r.Reason.Code, Message: asSentence(r.Reason.Message), NextStep: asSentence(r.Reason.NextStep)}
	}
	switch {
	case ended && !r.StartedAt.IsZero():
		v.Took = spanText(r.EndedAt.Sub(r.StartedAt))
	case !ended:
		v.Started, v.Seen = r.StartedAt, v.At
		v.WatchPath = watchPath(s.ID, r.ID)
		v.CancelPath = v.Path + "/cancel"
	}
	// A request in flight has booked nothing yet, and what is not known is no zero.
	if r.Usage != (forkcore.Usage{}) || r.Cost != (forkcore.Cost{}) {
		v.In, v.Out = grouped(r.Usage.TotalInput()), grouped(r.Usage.Output)
		v.Classes = tokenClasses(r.Usage)
		v.Cost = dollars(r.Cost.Known())
		if r.Cost.Unpriced > 0 {
			v.CostNote = fmt.Sprintf("%s of model %s: no price, or no word on what was used", counted(r.Cost.Unpriced, "request"), s.Model)
		}
	}
	if r.CanResume() {
		v.ResumePath, v.Back = v.Path+"/resume", pathSession+s.ID
	}
	v.Calls = counted(r.Requests, "request") + ", " + counted(r.ToolUses, "tool call")
	if row, ok := telling(rows); ok {
		v.Why, v.WhyRequest = newNamedWhy(row, forkNames(row, r, s, titles)), row.N
	}
	if r.Report != nil {
		v.Result = shorten(cmp.Or(r.Report.Result, r.Report.Text), cardResult)
		v.ReportPath = v.Path + "#report"
	}
	return v
}

// warning is a badge beside a fork's state: what to look at before its report is believed.
type warning struct{ Text, Note string }

func warningsOf(r forkcore.Run) (list []warning) {
	if r.UsedNoTool() {
		list = append(list, warning{"used no tool", "It reports without having used a tool: what it says comes from the conversation, or was made up."})
	}
	if r.Report != nil && len(r.Report.Missing) > 0 {
		list = append(list, warning{"report incomplete", "The report lacks: " + strings.Join(r.Report.Missing, ", ") + "."})
	}
	return list
}

// runTitle is what pages call a run.
func runTitle(r forkcore.Run) string {
	if r.Kind == forkcore.KindMain {
		return cmp.Or(strings.TrimSpace(r.Title), "Main turn")
	}
	kind := "Fork"
	if r.Kind == forkcore.KindAgent {
		kind = "Agent"
	}
	return cmp.Or(strings.TrimSpace(r.Title), fmt.Sprintf("%s %d", kind, r.Index+1))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// waitsFor says what keeps a run from going on; empty when nothing does.
func waitsFor(r forkcore.Run) string {
	switch r.State {
	case forkcore.Queued:
		return "Waits for a free worker"
	case forkcore.Parked:
		return "Waits until the shared prefix can be read"
	case forkcore.Waiting:
		switch {
		case r.Reason == nil:
			return "Waits"
		case r.Reason.Code == forkcore.WaitRateLimit, r.Reason.Code == forkcore.CodeRateLimited:
			return "Waits for the provider's rate limit, and goes on by itself"
		case r.Reason.Code == forkcore.WaitProvider, r.Reason.Code == forkcore.CodeOverloaded, r.Reason.Code == forkcore.CodeProviderError, r.Reason.Code == forkcore.CodeStreamCut:
			return "Waits for the provider"
		case r.Reason.Code == forkcore.WaitChildren:
			return "Waits for the agents that it started"
		}
		return "Waits: " + strings.ReplaceAll(r.Reason.Code, "_", " ")
	}
	return ""
}

// doing says what a run does: what it is writing, else the tool it used last.
func doing(r forkcore.Run, w draft, writing bool) doingView {
	if writing {
		for i := len(w.Blocks) - 1; i >= 0; i-- {
			b := w.Blocks[i]
			line := lastLine(b.Text, cardLine)
			if line == "" {
				continue
			}
			switch b.Kind {
			case "thinking":
				return doingView{Verb: "thinks", Text: line}
			case "tool_input":
				return doingView{Verb: "calls", Tool: b.Tool, Text: line}
			}
			return doingView{Verb: "writes", Text: line}
		}
	}
	if r.LastTool == "" {
		return doingView{}
	}
	verb := "last tool"
	if r.State == forkcore.Running {
		verb = "tool"
	}
	return doingView{Verb: verb, Tool: r.LastTool, Text: shorten(r.LastToolDetail, cardLine)}
}

// lastLine is the end of the last line of a text that has more than blanks.
func lastLine(text string, limit int) string {
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text
	}
	return "…" + string([]rune(text)[n-limit+1:])
}

// telling is the row that says most about the cache: the first miss, else the first answer, which the siblings share.
func telling(rows []forkcore.RequestRow) (row forkcore.RequestRow, ok bool) {
	for _, r := range rows {
		if r.Miss != nil {
			return r, true
		}
		if r.Usage != nil && (!ok || row.Usage == nil) || !ok {
			row, ok = r, true
		}
	}
	return row, ok
}

// forkNames names the run whose request a row refers to; titles are what runs of the session are called, by id.
func forkNames(row forkcore.RequestRow, r forkcore.Run, s forkcore.Session, titles map[string]string) map[string]string {
	names := map[string]string{}
	for _, ref := range []*forkcore.RequestRef{row.ExpectedFrom, row.ReadFrom} {
		if ref != nil {
			names[ref.RunID] = cmp.Or(titles[ref.RunID], "another fork")
		}
	}
	mains := []string{s.LastRunID, s.ActiveRunID}
	if r.Depth < 2 {
		mains = append(mains, r.ParentRunID)
	}
	for _, main := range mains {
		if main != "" {
			names[main] = "the main turn"
		}
	}
	return names
}

// tokenClasses lists the classes of a usage that the provider bills apart.
func tokenClasses(u forkcore.Usage) []tokenClass {
	classes := []tokenClass{{"read from the cache", grouped(u.CacheRead)}, {"written to the cache", grouped(u.CacheWrite5m + u.CacheWrite1h)}}
	if u.CacheWrite1h > 0 {
		classes = append(classes, tokenClass{"of that for an hour", grouped(u.CacheWrite1h)})
	}
	return append(classes, tokenClass{"input, not cached", grouped(u.Input)}, tokenClass{"output", grouped(u.Output)})
}

// counted is a number with its noun, which takes an s.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(n) + " " + noun + "s"
}

// spanText is a length of time: app.js writes those that go on in the same form.
func spanText(d time.Duration) string {
	d = max(d, 0)
	switch s := int(d.Seconds()); {
	case s < 10:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case s < 3600:
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	default:
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
}

// asSentence gives a message its capital and its full stop.
func asSentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.ContainsRune(".!?…", []rune(text)[utf8.RuneCountInString(text)-1]) {
		text += "."
	}
	return text
}
