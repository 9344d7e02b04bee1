package web

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"

	"forkyard/forkcore"
)

const (
	forkID    = "run_03bbbbbbbbbbbbbbbb"
	siblingID = "run_03cccccccccccccccc"
)

// renderText renders a component and checks that it is well-formed, and that no style or script is in it.
func renderText(t *testing.T, c templ.Component) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	d.Strict = false // attributes without a value
	d.AutoClose, d.Entity = xml.HTMLAutoClose, xml.HTMLEntity
	ids := map[string]bool{}
	var open []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		switch e := token.(type) {
		case xml.StartElement:
			open = append(open, e.Name.Local)
			if e.Name.Local == "script" || e.Name.Local == "style" || e.Name.Local == "img" {
				t.Errorf("there is a %s in %s", e.Name.Local, b.String())
			}
			for _, a := range e.Attr {
				// These buttons are the requests of cards and of what stands above them.
				_, does, _ := strings.Cut(strings.TrimPrefix(a.Value, "/"), "/")
				_, does, _ = strings.Cut(does, "/")
				ours := e.Name.Local == "form" && (a.Name.Local == "hx-post" && slices.Contains([]string{"cancel", "resume", "retry", "deliver", "budget", "background"}, does) || a.Name.Local == "hx-swap")
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") || strings.HasPrefix(a.Name.Local, "hx-") && !ours {
					t.Errorf("there is an attribute %s=%q", a.Name.Local, a.Value)
				}
				if a.Name.Local == "id" {
					if ids[a.Value] {
						t.Errorf("id %s is there twice", a.Value)
					}
					ids[a.Value] = true
				}
			}
		case xml.EndElement:
			if len(open) == 0 || open[len(open)-1] != e.Name.Local {
				t.Fatalf("%s ends within %v", e.Name.Local, open)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		t.Errorf("%v are not closed in %s", open, b.String())
	}
	return b.String()
}

// sampleFork is a fork in a state, as the store would have it.
func sampleFork(state forkcore.State) forkcore.Run {
	r := forkcore.Run{
		ID: forkID, Kind: forkcore.KindFork, Title: "Check the tests", Directive: "Find what the tests leave out.", State: state,
		Version: 7, CreatedAt: noon, UpdatedAt: noon.Add(time.Minute),
	}
	if state == forkcore.Queued || state == forkcore.Parked {
		return r
	}
	r.StartedAt, r.Requests, r.ToolUses, r.LastTool, r.LastToolDetail = noon.Add(time.Second), 2, 1, "Bash", "go test ./..."
	r.Usage = forkcore.Usage{Input: 70, CacheRead: 930, Output: 50}
	r.InheritedTokens, r.InheritedRead, r.Cost.NanoUSD = 900, 900, 733_000
	if state.Ended() {
		r.EndedAt = noon.Add(66 * time.Second)
	}
	if state != forkcore.Running && state != forkcore.Done {
		r.Reason = &forkcore.Reason{Code: "code_of_" + string(state), Message: "what happened", NextStep: "do this"}
	}
	return r
}

func TestForkCardStates(t *testing.T) {
	const reason, cancel, resume = "What happened. Next: Do this.", `action="/runs/` + forkID + `/cancel"`, `action="/runs/` + forkID + `/resume"`
	tests := []struct {
		state     forkcore.State
		want, not []string
	}{
		{forkcore.Queued, []string{"Waits for a free worker, for <time", cancel, "Seen", ">–<"}, []string{"Took", "Runs", "$"}},
		{forkcore.Running, []string{"$0.0007", "Runs", "data-since", "Seen", "data-ago", "go test ./...", cancel}, []string{"Waits", "Took"}},
		{forkcore.Parked, []string{"Waits until the shared prefix can be read, for <time", cancel}, []string{"Took"}},
		{forkcore.Waiting, []string{"Waits: code of waiting", reason, cancel}, []string{"Took"}},
		{forkcore.Done, []string{"Took", "1:05"}, []string{"Waits", "Seen", cancel, "data-since", resume}},
		{forkcore.Failed, []string{reason, "Took", resume}, []string{"Seen", cancel}},
		{forkcore.Cancelled, []string{reason, "Took"}, []string{"Seen", cancel, resume}},
		{forkcore.OverBudget, []string{reason, "Took", ">over budget<", resume}, []string{"Seen", cancel}},
	}
	if len(tests) != len(forkcore.States) {
		t.Errorf("%d states are tested of %d", len(tests), len(forkcore.States))
	}
	for _, test := range tests {
		t.Run(string(test.state), func(t *testing.T) {
			html := renderText(t, forkCard(newForkCard(sampleFork(test.state), nil, draft{}, false, forkcore.Session{}, nil)))
			text := strings.Join(strings.Fields(html), " ")
			always := []string{
				`id="fork-` + forkID + `"`, `<h4 id="fork-` + forkID + `-title"><a id="fork-` + forkID + `-link" href="/runs/` + forkID + `">Check the tests</a></h4>`, "data-step",
				`class="badge" data-state="` + string(test.state) + `"`, "Find what the tests leave out.",
			}
			for _, want := range append(always, test.want...) {
				if !strings.Contains(text, want) && !strings.Contains(withoutTags(text), want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
			for _, not := range test.not {
				if strings.Contains(text, not) {
					t.Errorf("%q in %s", not, text)
				}
			}
		})
	}
}

// withoutTags is the text of a piece of HTML.
func withoutTags(html string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(html, "<") {
		_, text, _ := strings.Cut(part, ">")
		b.WriteString(text)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestForkCardLeader(t *testing.T) {
	for state, want := range map[forkcore.State]string{forkcore.Running: "leads the gate", forkcore.Done: "led the gate"} {
		r := sampleFork(state)
		r.Leader = true
		if v := newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil); v.Leader != want {
			t.Errorf("%s: %q, want %q", state, v.Leader, want)
		}
	}
}

func TestForkCardStopping(t *testing.T) {
	r := sampleFork(forkcore.Running)
	r.Stop = "cancel"
	html := renderText(t, forkCard(newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil)))
	if !strings.Contains(html, "stopping") || strings.Contains(html, "/cancel") {
		t.Errorf("a fork that is being stopped can be stopped again: %s", html)
	}
}

func TestForkCardReport(t *testing.T) {
	r := sampleFork(forkcore.Done)
	report := forkcore.ParseReport("Scope: tests\nResult: Three functions\nhave no test.\nIssues: none")
	r.Report = &report
	v := newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil)
	if v.Result != "Three functions have no test." || v.ReportPath != "/runs/"+forkID+"#report" {
		t.Errorf("result %q at %q", v.Result, v.ReportPath)
	}
	r.Report = &forkcore.Report{Text: "No labels here."}
	if v := newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil); v.Result != "No labels here." {
		t.Errorf("a report without labels shows %q", v.Result)
	}
}

func TestForkCardUnknownPrice(t *testing.T) {
	r := sampleFork(forkcore.Done)
	r.Cost.Unpriced = 1
	v := newForkCard(r, nil, draft{}, false, forkcore.Session{Model: "odd-1"}, nil)
	if v.Cost != "no price" || !strings.Contains(v.CostNote, "1 request of model odd-1") {
		t.Errorf("cost %q, note %q", v.Cost, v.CostNote)
	}
}

func TestForkCardHostileText(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)><b hx-get="/x" style="x">`
	r := sampleFork(forkcore.Failed)
	r.Title, r.Directive, r.LastTool, r.LastToolDetail = evil, evil, evil, evil
	r.Reason = &forkcore.Reason{Code: evil, Message: evil, NextStep: evil}
	r.Report = &forkcore.Report{Result: evil}
	html := renderText(t, forkCard(newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil)))
	if strings.Contains(html, "<script") || strings.Contains(html, "<b ") {
		t.Errorf("text became elements: %s", html)
	}
}

func TestForkCardDoing(t *testing.T) {
	long := strings.Repeat("x", 300)
	tests := []struct {
		name   string
		blocks []draftBlock
		want   doingView
	}{
		{"nothing written", nil, doingView{"tool", "Bash", "go test ./..."}},
		{"text", []draftBlock{{Kind: "text", Text: "One.\nTwo is begun\n"}}, doingView{"writes", "", "Two is begun"}},
		{"thinking", []draftBlock{{Kind: "text", Text: "a"}, {Kind: "thinking", Text: "why"}}, doingView{"thinks", "", "why"}},
		{"tool", []draftBlock{{Kind: "tool_input", Tool: "Read", Text: `{"file_path":`}}, doingView{"calls", "Read", `{"file_path":`}},
		{"empty block", []draftBlock{{Kind: "text", Text: "said"}, {Kind: "tool_input", Tool: "Read"}}, doingView{"writes", "", "said"}},
		{"long", []draftBlock{{Kind: "text", Text: long + "end"}}, doingView{"writes", "", "…" + strings.Repeat("x", cardLine-4) + "end"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newForkCard(sampleFork(forkcore.Running), nil, draft{Blocks: test.blocks, At: noon}, true, forkcore.Session{}, nil)
			if v.Doing != test.want {
				t.Errorf("%+v, want %+v", v.Doing, test.want)
			}
		})
	}
	if v := newForkCard(sampleFork(forkcore.Done), nil, draft{Blocks: tests[1].blocks}, true, forkcore.Session{}, nil); v.Doing.Verb != "last tool" {
		t.Errorf("a fork that has ended %s", v.Doing.Verb)
	}
}

// A card is drawn again when something on it changes, and what changed last is known by the clock of the store.
func TestForkCardKey(t *testing.T) {
	r := sampleFork(forkcore.Running)
	row := forkcore.RequestRow{N: 1, Status: forkcore.RequestOpen, StartedAt: noon.Add(2 * time.Minute)}
	known := row
	known.Usage, known.FirstEventAt = &forkcore.Usage{Input: 1}, new(noon.Add(3*time.Minute))
	settled := known
	settled.Status, settled.EndedAt = forkcore.RequestOK, new(noon.Add(4*time.Minute))
	newer := r
	newer.Version++
	cards := []forkCardView{
		newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil),
		newForkCard(newer, nil, draft{}, false, forkcore.Session{}, nil),
		newForkCard(r, []forkcore.RequestRow{row}, draft{}, false, forkcore.Session{}, nil),
		newForkCard(r, []forkcore.RequestRow{known}, draft{}, false, forkcore.Session{}, nil),
		newForkCard(r, []forkcore.RequestRow{settled}, draft{}, false, forkcore.Session{}, nil),
		newForkCard(r, nil, draft{Seq: 1, Version: 1, At: noon.Add(5 * time.Minute)}, true, forkcore.Session{}, nil),
		newForkCard(r, nil, draft{Seq: 1, Version: 2, At: noon.Add(6 * time.Minute)}, true, forkcore.Session{}, nil),
	}
	seen := map[string]int{}
	for i, c := range cards {
		if j, twice := seen[c.Key]; twice {
			t.Errorf("cards %d and %d have the key %s", j, i, c.Key)
		}
		seen[c.Key] = i
		if want := noon.Add([]time.Duration{1, 1, 2, 3, 4, 5, 6}[i] * time.Minute); !c.At.Equal(want) || !c.Seen.Equal(want) {
			t.Errorf("card %d changed at %v, seen %v, want %v", i, c.At, c.Seen, want)
		}
	}
}

func TestForkCardWhy(t *testing.T) {
	answer := forkcore.RequestRow{
		RunID: forkID, N: 1, Status: forkcore.RequestOK, Usage: &forkcore.Usage{CacheRead: 900, Input: 10},
		ExpectedRead: new(int64(900)), ExpectedExact: true, ExpectedFrom: &forkcore.RequestRef{RunID: siblingID, N: 1},
	}
	second := forkcore.RequestRow{RunID: forkID, N: 2, Status: forkcore.RequestOpen}
	missed := second
	missed.Usage, missed.Miss = &forkcore.Usage{Input: 1000}, &forkcore.MissReason{Code: "expired"}
	fromMain := answer
	fromMain.ExpectedFrom = &forkcore.RequestRef{RunID: mainID, N: 3}
	tests := []struct {
		name    string
		rows    []forkcore.RequestRow
		n       int64
		verdict string
		text    string
	}{
		{"no request", nil, 0, "", ""},
		{"sibling", []forkcore.RequestRow{answer, second}, 1, verdictHit, "another fork"},
		{"main turn", []forkcore.RequestRow{fromMain}, 1, verdictHit, "the main turn"},
		{"in flight", []forkcore.RequestRow{second}, 2, verdictUnknown, "In flight"},
		{"failed first", []forkcore.RequestRow{{RunID: forkID, N: 1, Status: forkcore.RequestError}, answer}, 1, verdictHit, "Read all 900 tokens"},
		{"later miss", []forkcore.RequestRow{answer, missed}, 2, verdictMiss, "run out"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			v := newForkCard(sampleFork(forkcore.Running), test.rows, draft{}, false, forkcore.Session{LastRunID: mainID}, nil)
			if v.WhyRequest != test.n || v.Why.Verdict != test.verdict || !strings.Contains(v.Why.Sentence, test.text) {
				t.Errorf("request %d, %q: %s", v.WhyRequest, v.Why.Verdict, v.Why.Sentence)
			}
			if strings.Contains(v.Why.Sentence, siblingID) {
				t.Errorf("an id for a person to read: %s", v.Why.Sentence)
			}
		})
	}
}

func TestSpanText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0 s", 340 * time.Millisecond: "0.3 s", 10 * time.Second: "0:10", 65 * time.Second: "1:05", time.Hour + 62*time.Second: "1:01:02",
	} {
		if got := spanText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestAsSentence(t *testing.T) {
	for text, want := range map[string]string{"": "", " send again ": "Send again.", "Done.": "Done.", "ärger?": "Ärger?"} {
		if got := asSentence(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// B34, M30: what to look at before a report is believed stands beside the state, on the card and on the run's page.
func TestB34_ForkWarnings(t *testing.T) {
	const noTool, lacks = ">used no tool<", ">report incomplete<"
	report := func(missing ...string) *forkcore.Report { return &forkcore.Report{Result: "r", Missing: missing} }
	tests := []struct {
		name      string
		state     forkcore.State
		tools     int64
		report    *forkcore.Report
		want, not []string
	}{
		{"all is well", forkcore.Done, 1, report(), nil, []string{noTool, lacks}},
		{"no tool", forkcore.Done, 0, report(), []string{noTool, "or was made up"}, []string{lacks}},
		{"no tool yet", forkcore.Running, 0, nil, nil, []string{noTool, lacks}},
		{"labels are missing", forkcore.Done, 1, report("Scope", "Issues"), []string{lacks, "The report lacks: Scope, Issues."}, []string{noTool}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := sampleFork(tt.state)
			r.ToolUses, r.Report = tt.tools, tt.report
			m := runModel{run: r, siblings: []forkcore.Run{r}}
			for where, html := range map[string]string{
				"card": renderText(t, forkCard(newForkCard(r, nil, draft{}, false, forkcore.Session{}, nil))),
				"head": renderText(t, runHead(m.head())),
			} {
				for _, want := range tt.want {
					if !strings.Contains(html, want) {
						t.Errorf("%s: no %q in %s", where, want, html)
					}
				}
				for _, not := range tt.not {
					if strings.Contains(html, not) {
						t.Errorf("%s: %q in %s", where, not, html)
					}
				}
			}
			said := strings.Contains(renderText(t, runReport(newMarkdown(), newRunReport(r))), "used no tool")
			if said != r.UsedNoTool() {
				t.Errorf("the report says that no tool was used: %v, want %v", said, r.UsedNoTool())
			}
		})
	}
}

// M37: pages say who started a fork of a fork, and do not call that fork the main turn.
func TestM37_ForkOfAForkOnPages(t *testing.T) {
	r := sampleFork(forkcore.Done)
	r.Depth, r.ParentRunID, r.DispatchID = 2, "run_parent", "dsp_x"
	m := runModel{run: r, siblings: []forkcore.Run{r}}
	if got, want := m.head().Kind, "Fork 1 of 1, started by a fork, at depth 2"; got != want {
		t.Errorf("kind %q, want %q", got, want)
	}
	if got := newFanOut(forkcore.Dispatch{ID: "dsp_x", ParentRunID: "run_parent"}, []forkcore.Run{r}, nil).By; got != "a fork" {
		t.Errorf("dispatched by %q, want a fork", got)
	}
	row := forkcore.RequestRow{ReadFrom: &forkcore.RequestRef{RunID: "run_parent", N: 1}}
	for depth, want := range map[int]string{1: "the main turn", 2: "its parent"} {
		r.Depth = depth
		if got := forkNames(row, r, forkcore.Session{}, map[string]string{"run_parent": "its parent"})["run_parent"]; got != want {
			t.Errorf("at depth %d the parent is called %q, want %q", depth, got, want)
		}
	}
}
