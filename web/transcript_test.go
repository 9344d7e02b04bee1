package web

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/a-h/templ"
	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

const childID = "run_03cccccccccccccccc"

// numbered numbers lines and dates them a second apart.
func numbered(lines ...forkcore.TranscriptLine) []forkcore.TranscriptLine {
	for i := range lines {
		lines[i].Seq, lines[i].At = int64(i+1), noon.Add(time.Duration(i+1)*time.Second)
		if lines[i].RunID == "" {
			lines[i].RunID = mainID
		}
	}
	return lines
}

func said(role forkcore.Role, blocks ...string) forkcore.TranscriptLine {
	raw := make([][]byte, len(blocks))
	for i, b := range blocks {
		raw[i] = []byte(b)
	}
	return forkcore.TranscriptLine{Kind: forkcore.EntryMessage, Message: forkcore.EncodeMessage(role, raw...)}
}

func marked(m forkcore.Marker) forkcore.TranscriptLine {
	return forkcore.TranscriptLine{Kind: forkcore.EntryMarker, Marker: &m}
}

func textBlock(text string) string { return string(forkcore.AppendTextBlock(nil, text)) }

func resultBlock(id, text string, isError bool) string {
	return string(forkcore.AppendToolResult(nil, id, text, isError))
}

func callBlock(id, name, input string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, id, name, input)
}

// sketchEntries says in one line a part what entries show.
func sketchEntries(entries []entryView) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s\n", strings.TrimPrefix(e.ID, "e-"+sessionID+"-"), e.Role)
		for _, p := range e.Parts {
			fmt.Fprintf(&b, "  %s", p.Kind)
			switch {
			case p.Tool != nil:
				fmt.Fprintf(&b, " %s(%s) %s %q", p.Tool.Name, p.Tool.Headline, p.Tool.mark(), p.Tool.Last)
				if p.Tool.RunID != "" {
					fmt.Fprintf(&b, " %s %s", p.Tool.RunID, p.Tool.RunState)
				}
			case p.Notice != nil:
				fmt.Fprintf(&b, " %s %s %q", p.Notice.RunID, p.Notice.State, p.Notice.Summary)
			case p.Title != "":
				fmt.Fprintf(&b, " %s", p.Title)
			default:
				fmt.Fprintf(&b, " %q", shorten(p.Text, 40))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func TestEntries(t *testing.T) {
	child := forkcore.Run{ID: childID, SessionID: sessionID, Kind: forkcore.KindFork, Title: "Docs", State: forkcore.Done, Report: &forkcore.Report{Text: "Scope: docs"}}
	bash := callBlock("t1", "Bash", `{"command":"go test","description":"Run the tests"}`)
	read := callBlock("t2", "Read", `{"file_path":"a.go"}`)
	agent := callBlock("t3", "Agent", `{"description":"Docs","prompt":"Read the docs"}`)
	for _, c := range []struct {
		name  string
		lines []forkcore.TranscriptLine
		want  string
	}{
		{
			"a person's text", numbered(marked(forkcore.Marker{Type: forkcore.MarkerTurnStart}), said(forkcore.RoleUser, textBlock("**Hello**"))),
			"2 user\n  person \"**Hello**\"\n",
		},
		{
			"calls wait, run, end", numbered(
				said(forkcore.RoleAssistant, textBlock("Looking."), bash, read),
				marked(forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: "t1"}),
			), "1 assistant\n  text \"Looking.\"\n  tool Bash(go test) running \"\"\n  tool Read(a.go) waiting \"\"\n",
		},
		{
			"results by marker, one of them without its bytes", numbered(
				said(forkcore.RoleAssistant, bash, read),
				marked(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: "t1", IsError: true, Bytes: []byte(resultBlock("t1", "a\n  exit 1\n\n", true))}),
				marked(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: "t2"}),
			), "1 assistant\n  tool Bash(go test) error \"exit 1\"\n  tool Read(a.go) done \"\"\n",
		},
		{
			"results in a message that is not shown by itself", numbered(
				said(forkcore.RoleAssistant, bash),
				marked(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: "t1"}),
				said(forkcore.RoleUser, resultBlock("t1", "ok", false)),
				said(forkcore.RoleAssistant, textBlock("Done.")),
			), "1 assistant\n  tool Bash(go test) done \"ok\"\n4 assistant\n  text \"Done.\"\n",
		},
		{
			"a result of which the model got the beginning", numbered(
				said(forkcore.RoleAssistant, bash),
				marked(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: "t1", Bytes: []byte(resultBlock("t1", "all of it", false))}),
				marked(forkcore.Marker{Type: forkcore.MarkerReplacement, ToolUseID: "t1"}),
				said(forkcore.RoleUser, resultBlock("t1", "<persisted-output>\na part\n</persisted-output>", false)),
			), "1 assistant\n  tool Bash(go test) done \"all of it\"\n",
		},
		{
			"a call that the end of the turn left open", numbered(
				said(forkcore.RoleAssistant, bash),
				marked(forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: forkcore.Cancelled, Reason: &forkcore.Reason{Message: "m", NextStep: "n"}}),
			), "1 assistant\n  tool Bash(go test) stopped \"\"\n2 marker\n  remark This turn ended\n",
		},
		{
			"a launch", numbered(
				said(forkcore.RoleAssistant, agent),
				marked(forkcore.Marker{Type: forkcore.MarkerLaunched, RunIDs: []string{childID}, ToolUseIDs: []string{"t3"}}),
				said(forkcore.RoleUser, resultBlock("t3", forkcore.Placeholder, false), textBlock("Forks started: …")),
			), "1 assistant\n  tool Agent(Docs) done \"" + forkcore.Placeholder + "\" " + childID + " done\n2 marker\n  remark Started 1 fork\n",
		},
		{
			"notices and a message together", numbered(said(forkcore.RoleUser, textBlock(forkcore.Notification(child)), textBlock("And now?"), textBlock(forkcore.Notification(child)))),
			"1 user\n  notice " + childID + " done \"Fork \\\"Docs\\\" finished\"\n  person \"And now?\"\n  notice " + childID + " done \"Fork \\\"Docs\\\" finished\"\n",
		},
		{
			"a fork's log", numbered(
				marked(forkcore.Marker{Type: forkcore.MarkerForkOf}),
				said(forkcore.RoleUser, resultBlock("t3", forkcore.Placeholder, false), textBlock(forkcore.Boilerplate()), textBlock("Read the docs")),
			), "1 marker\n  remark Inherits the conversation up to here\n2 user\n  rules \"You are now a fork: a copy of the agent…\"\n  directive \"Read the docs\"\n",
		},
		{
			"thinking, and what nobody knows", numbered(
				said(forkcore.RoleAssistant, `{"type":"thinking","thinking":"Hm.","signature":"s"}`, `{"type":"redacted_thinking","data":"d"}`, `{"type":"hologram","x":1}`),
				said(forkcore.RoleUser, `{"type":"image","source":{}}`),
			), "1 assistant\n  thinking \"Hm.\"\n  thinking \"\"\n  other hologram\n2 user\n  other image\n",
		},
		{
			"remarks", numbered(
				marked(forkcore.Marker{Type: forkcore.MarkerBackground}), marked(forkcore.Marker{Type: forkcore.MarkerStop, Name: "refusal"}),
				marked(forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: forkcore.Done}), marked(forkcore.Marker{Type: "new"}),
			), "1 marker\n  remark Went on in the background\n2 marker\n  remark The model declined to answer\n",
		},
		{"bytes that cannot be read", numbered(forkcore.TranscriptLine{Kind: forkcore.EntryMessage, Message: []byte("{}")}), "1 marker\n  other unreadable message\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sketchEntries(newEntries(sessionID, c.lines, map[string]forkcore.Run{childID: child}))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A live page redraws an entry when its key changes, and a page that comes back asks by time.
func TestEntriesChangeWithWhatIsDrawn(t *testing.T) {
	lines := numbered(
		said(forkcore.RoleAssistant, callBlock("t1", "Agent", `{"prompt":"a"}`), callBlock("t2", "Bash", `{"command":"a"}`)),
		marked(forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: "t2"}),
		marked(forkcore.Marker{Type: forkcore.MarkerLaunched, RunIDs: []string{childID}, ToolUseIDs: []string{"t1"}}),
		said(forkcore.RoleUser, resultBlock("t2", "ok", false)),
	)
	runs := map[string]forkcore.Run{}
	tr := newTranscript(sessionID)
	seen := map[string]bool{}
	step := func(what string, at time.Time) {
		t.Helper()
		e := tr.entries(runs)[0]
		if seen[e.Key] {
			t.Errorf("%s: the key stays %q", what, e.Key)
		}
		seen[e.Key] = true
		if !e.At.Equal(at) {
			t.Errorf("%s: changed at %v, want %v", what, e.At, at)
		}
		if again := tr.entries(runs)[0]; again.Key != e.Key || again.ID != "e-"+sessionID+"-1" {
			t.Errorf("%s: asked again, the entry is %q with key %q", what, again.ID, again.Key)
		}
	}
	for i, l := range lines {
		tr.add(l)
		tr.add(l) // an event that comes twice
		step(fmt.Sprintf("line %d", l.Seq), noon.Add(time.Duration(i+1)*time.Second))
	}
	for i, state := range []forkcore.State{forkcore.Queued, forkcore.Running, forkcore.Failed} {
		at := noon.Add(time.Duration(i+1) * time.Minute)
		runs[childID] = forkcore.Run{ID: childID, Kind: forkcore.KindFork, State: state, UpdatedAt: at}
		step(string(state), at)
	}
}

func TestEntryItemShowsTextAsTyped(t *testing.T) {
	nasty := `<img src=x onerror=alert(1)><i hx-post=/runs/1/cancel hx-trigger=load></script><hx-partial>`
	quoted := strings.ReplaceAll(nasty, `"`, `\"`)
	child := forkcore.Run{ID: childID, Kind: forkcore.KindFork, Title: nasty, State: forkcore.Done, Report: &forkcore.Report{Text: nasty + strings.Repeat(" long", longResult)}}
	lines := numbered(
		said(forkcore.RoleUser, textBlock(nasty)),
		said(forkcore.RoleAssistant, textBlock(nasty), `{"type":"thinking","thinking":"`+quoted+`"}`, `{"type":"`+quoted+`"}`, callBlock("t1", nasty, `{"command":"`+quoted+`"}`)),
		said(forkcore.RoleUser, resultBlock("t1", nasty, true), textBlock(forkcore.Notification(child))),
		said(forkcore.RoleUser, textBlock(forkcore.Boilerplate()), textBlock(nasty)),
		marked(forkcore.Marker{Type: forkcore.MarkerStop, Name: nasty}),
		marked(forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: forkcore.Failed, Reason: &forkcore.Reason{Message: nasty, NextStep: nasty}}),
	)
	md := newMarkdown()
	for _, e := range newEntries(sessionID, lines, map[string]forkcore.Run{}) {
		got := component(t, entryItem(md, e))
		if found := forbidden.FindString(got); found != "" || strings.Contains(got, "<hx-") {
			t.Errorf("%s: %q in\n%s", e.ID, found, got)
		}
		if !strings.Contains(textOf(t, got), nasty) {
			t.Errorf("%s: not as typed in\n%s", e.ID, got)
		}
	}
	got := component(t, draftItem(md, "draft", draft{Blocks: []draftBlock{{Kind: "text", Text: nasty, Lost: 3}, {Kind: "thinking", Text: nasty}, {Kind: "tool_input", Tool: nasty, Text: nasty}}}))
	if found := forbidden.FindString(got); found != "" || !strings.Contains(textOf(t, got), "…"+nasty) {
		t.Errorf("draft: %q in\n%s", found, got)
	}
}

func component(t testing.TB, c templ.Component) string {
	t.Helper()
	var b bytes.Buffer
	if err := c.Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEmptyDraftKeepsItsPlace(t *testing.T) {
	got := component(t, draftItem(newMarkdown(), "draft-1", draft{}))
	if got != `<article id="draft-1" class="entry draft" data-role="assistant" hidden></article>` {
		t.Error(got)
	}
}

func BenchmarkEntries(b *testing.B) {
	var lines []forkcore.TranscriptLine
	for i := range 50 {
		id := fmt.Sprint("t", i)
		lines = append(lines, said(forkcore.RoleAssistant, textBlock("Looking."), callBlock(id, "Read", `{"file_path":"a.go"}`)),
			marked(forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: id}), marked(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: id}),
			said(forkcore.RoleUser, resultBlock(id, strings.Repeat("a line of a file\n", 1_000), false)))
	}
	tr := newTranscript(sessionID)
	tr.add(numbered(lines...)...)
	for b.Loop() {
		tr.entries(nil)
	}
}

// newEntries folds a whole log.
func newEntries(agentID string, lines []forkcore.TranscriptLine, runs map[string]forkcore.Run) []entryView {
	t := newTranscript(agentID)
	t.add(lines...)
	return t.entries(runs)
}
