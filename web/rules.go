package web

import (
	"context"
	"fmt"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// rulesView is what was seen of the five rules in a session.
type rulesView struct {
	Checks []forkcore.RuleCheck
	Scope  string
	// Problem says why nothing can be shown.
	Problem string
}

// broken counts the rules that do not hold.
func (v rulesView) broken() int {
	n := 0
	for _, c := range v.Checks {
		if c.Verdict == forkcore.Broken {
			n++
		}
	}
	return n
}

// rulesOf is how many of a session's newest fan-outs the rules are checked on, rulesRuns how many runs are looked
// through for them.
const (
	rulesOf   = 5
	rulesRuns = 100
)

// rules checks the five rules on what a session sent. It never fails: it is beside the point of the page it is on.
func (s *Server) rules(ctx context.Context, session forkcore.Session) rulesView {
	e, fanOuts, err := s.evidence(ctx, session)
	if err != nil {
		if ctx.Err() == nil {
			s.o.Log.Error("checking the five rules", "session", session.ID, "error", err)
		}
		return rulesView{Problem: "What this session sent could not be read, so the rules are not checked now. Reload the page to try again."}
	}
	v := rulesView{Checks: forkcore.CheckRules(e), Scope: "Nothing was fanned out in this session yet."}
	if fanOuts > 0 {
		v.Scope = "Seen in the newest " + counted(int64(fanOuts), "fan-out") + " of this session."
	}
	return v
}

// evidence collects what the newest fan-outs of a session sent.
func (s *Server) evidence(ctx context.Context, session forkcore.Session) (forkcore.Evidence, int, error) {
	var e forkcore.Evidence
	runs, _, err := s.o.Reader.RunsOf(ctx, session.ID, "", rulesRuns)
	if err != nil {
		return e, 0, fmt.Errorf("listing runs: %w", err)
	}
	seen := map[string]bool{}
	for _, r := range runs {
		e.Recomputed += r.AtRiskRequests
		if r.DispatchID == "" || seen[r.DispatchID] || len(seen) == rulesOf {
			continue
		}
		seen[r.DispatchID] = true
		if err := s.evidenceOf(ctx, session, r, &e); err != nil {
			return e, 0, err
		}
	}
	return e, len(seen), nil
}

// evidenceOf adds the fan-out that a fork belongs to.
func (s *Server) evidenceOf(ctx context.Context, session forkcore.Session, fork forkcore.Run, e *forkcore.Evidence) error {
	d, err := s.o.Reader.Dispatch(ctx, fork.DispatchID)
	if err != nil {
		return fmt.Errorf("reading dispatch %s: %w", fork.DispatchID, err)
	}
	snap, err := s.o.Reader.Snapshot(ctx, session.ID, d.Snapshot)
	if err != nil {
		return fmt.Errorf("reading snapshot %s: %w", d.Snapshot, err)
	}
	if len(snap.Segments) > 0 {
		e.Heads = append(e.Heads, snap.Segments[0].SHA256)
	}
	e.Tools = append(e.Tools, snap.Tools)
	for _, u := range d.Quote.Unique {
		e.SharedBytes += snap.Bytes
		e.UniqueBytes += u.Bytes
	}
	if snap.Placeholders > 0 {
		lines, err := s.o.Bytes.Transcript(ctx, fork.ID, 0)
		if err != nil {
			return fmt.Errorf("reading the first message of %s: %w", fork.ID, err)
		}
		e.Placeholders = append(e.Placeholders, placeholders(lines)...)
	}
	billed, quoted := api.FirstInputCost(d, s.o.Prices), d.Quote.Expected()
	switch {
	case d.Remaining > 0:
	case billed != nil && quoted != nil && d.Quote.UnsharedNanoUSD != nil && d.FirstRequestUsage.TotalInput() > 0:
		e.Bills = append(e.Bills, forkcore.Bill{Quoted: *quoted, Billed: *billed, Unshared: *d.Quote.UnsharedNanoUSD})
	default:
		e.Unbilled++
	}
	return nil
}

// placeholders are the texts of the results in a fork's first message.
func placeholders(lines []forkcore.TranscriptLine) []string {
	for _, line := range lines {
		if line.Kind != forkcore.EntryMessage {
			continue
		}
		m, err := forkcore.ParseMessage(line.Message)
		if err != nil {
			return nil
		}
		var texts []string
		for _, b := range m.Blocks {
			if b.Type == "tool_result" {
				texts = append(texts, b.Text)
			}
		}
		return texts
	}
	return nil
}
