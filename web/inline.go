package web

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"forkyard/forkcore"
)

// inlineEntries is how many of the last entries of a run show within the conversation; its own page has all.
const inlineEntries = 12

// inlineView is what other runs say, shown within the conversation: agents that the turn waits for, and a run that
// somebody watches.
type inlineView struct {
	ID, key string
	at      time.Time
	pace    time.Duration
	Runs    []inlineRun
}

type inlineRun struct {
	ID, Title, Path string
	State           forkcore.State
	Awaited         bool // the turn waits for it
	Entries         []entryView
	More            int // entries before those
	Draft           draft
	Leave           string // page without it; empty: it is there because the turn waits for it
}

func watchPath(sessionID, runID string) string {
	return pathSession + sessionID + "?watch=" + url.QueryEscape(runID) + "#inline-runs"
}

// shownInline lists the runs to show, in order.
func (p *sessionPage) shownInline() []forkcore.Run {
	var list []forkcore.Run
	for _, r := range p.runs {
		if r.Awaited && r.ParentRunID == p.session.ActiveRunID && r.ParentRunID != "" && !r.State.Ended() {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b forkcore.Run) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Index, b.Index))
	})
	if r, ok := p.runs[p.watch]; ok && r.DispatchID != "" && !slices.ContainsFunc(list, func(a forkcore.Run) bool { return a.ID == r.ID }) {
		list = append(list, r)
	}
	return list
}

// readInline reads what the logs of the runs that are shown have after the last line that is known.
func (p *sessionPage) readInline(ctx context.Context) error {
	for _, r := range p.shownInline() {
		t := p.inline[r.ID]
		if t == nil {
			t = newTranscript(r.ID)
			p.inline[r.ID] = t
		}
		lines, err := p.s.o.Bytes.Transcript(ctx, r.ID, t.last())
		if err != nil {
			return err
		}
		t.add(lines...)
	}
	return nil
}

func (p *sessionPage) inlineRuns() inlineView {
	v := inlineView{ID: "inline-runs"}
	for _, r := range p.shownInline() {
		t := p.inline[r.ID]
		if t == nil {
			continue // its event comes next
		}
		run := inlineRun{ID: "inline-" + r.ID, Title: runTitle(r), Path: pathRun + r.ID, State: r.State, Awaited: r.Awaited && !r.State.Ended(), Entries: t.entries(p.runs)}
		for i := range run.Entries {
			run.Entries[i].ID = "inline-" + run.Entries[i].ID
		}
		if n := len(run.Entries) - inlineEntries; n > 0 {
			run.Entries, run.More = run.Entries[n:], n
		}
		run.Draft, _ = p.s.drafts.of(r.ID)
		if !run.Awaited {
			run.Leave = pathSession + p.session.ID
		}
		v.Runs = append(v.Runs, run)
		v.key += fmt.Sprint(r.ID, r.Version, " ", t.last(), " ", run.Draft.Seq, " ", run.Draft.Version, ";")
		v.at = later(v.at, r.UpdatedAt)
		v.pace = max(v.pace, run.Draft.pace())
	}
	return v
}
