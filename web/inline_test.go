package web

import (
	"strings"
	"testing"

	"forkyard/forkcore"
)

// agentRun is an agent that the turn of a busy session waits for.
func agentRun(awaited bool, state forkcore.State) forkcore.Run {
	return forkcore.Run{
		ID: forkID, SessionID: sessionID, AgentID: forkID, Kind: forkcore.KindAgent, AgentType: forkcore.AgentGeneralPurpose, Title: "Look around", DispatchID: dispatchID,
		ParentRunID: mainID, Awaited: awaited, State: state, Version: 5, CreatedAt: noon, UpdatedAt: noon,
	}
}

// TestInlineRuns: an agent that the turn waits for shows its messages within the conversation, and so does a run that is watched.
func TestInlineRuns(t *testing.T) {
	tests := []struct {
		name      string
		run       forkcore.Run
		watch     string
		want, not []string
	}{
		{"awaited", agentRun(true, forkcore.Running), "", []string{"Look around", "To the background", "as I see it"}, []string{"Stop watching"}},
		{"in the background", agentRun(false, forkcore.Running), "", nil, []string{"Look around"}},
		{"watched", agentRun(false, forkcore.Running), forkID, []string{"Look around", "Stop watching", "as I see it"}, []string{"To the background"}},
		{"ended", agentRun(true, forkcore.Done), "", nil, []string{"Look around"}},
		{"watched stranger", agentRun(false, forkcore.Running), "run_03zzzzzzzzzzzzzzzz", nil, []string{"Look around"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := idleSession()
			f.sessions[0].ActiveRunID, f.sessions[0].ActiveRuns = mainID, 2
			f.runs[sessionID] = append([]forkcore.Run{test.run}, f.runs[sessionID]...)
			f.dispatches = map[string]forkcore.Dispatch{dispatchID: {ID: dispatchID, SessionID: sessionID, RunIDs: []string{forkID}, Remaining: 1, Version: 1}}
			said := forkcore.EncodeMessage(forkcore.RoleAssistant, forkcore.AppendTextBlock(nil, "as I see it"))
			s := serve(t, f, func(o *Options) {
				o.Bytes = &logOf{lines: []forkcore.TranscriptLine{{Seq: 1, At: noon, Kind: forkcore.EntryMessage, RunID: forkID, Message: said}}}
			}).web
			p, _, err := s.loadSession(t.Context(), sessionID, -1, test.watch)
			if err != nil {
				t.Fatal(err)
			}
			html := renderText(t, inlineRuns(s.markdown, p.inlineRuns()))
			for _, want := range test.want {
				if !strings.Contains(html, want) {
					t.Errorf("no %q in %s", want, html)
				}
			}
			for _, not := range test.not {
				if strings.Contains(html, not) {
					t.Errorf("%q in %s", not, html)
				}
			}
			before := keysOf(p)["inline-runs"]
			r := test.run
			r.Version++
			r.LastTool = "Grep"
			if err := p.apply(t.Context(), forkcore.Event{Type: forkcore.EventRun, SessionID: sessionID, RunID: r.ID, Run: &r}); err != nil {
				t.Fatal(err)
			}
			if after := keysOf(p)["inline-runs"]; (after != before) != (len(test.want) > 0) {
				t.Errorf("key %q after %q", after, before)
			}
		})
	}
}

// TestAgentsHaveNoQuote: what agents with conversations of their own did is not compared with a quote.
func TestAgentsHaveNoQuote(t *testing.T) {
	d := forkcore.Dispatch{ID: dispatchID, RunIDs: []string{forkID}, ParentRunID: mainID}
	html := renderText(t, fanOutHeader(newFanOut(d, []forkcore.Run{agentRun(false, forkcore.Done)}, nil)))
	if !strings.Contains(html, "1 agent") || strings.Contains(html, "Gate") || strings.Contains(html, "quote") || strings.Contains(html, "first input") {
		t.Errorf("the header is %s", html)
	}
}
