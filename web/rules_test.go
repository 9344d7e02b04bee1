package web

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// sent is a session whose model fanned out once and a person twice.
type sent struct {
	*fake
	snapshots map[forkcore.Digest]forkcore.Snapshot
	first     []byte // first message of the model's forks
	lost      error
}

func (s *sent) Snapshot(_ context.Context, _ string, id forkcore.Digest) (forkcore.Snapshot, error) {
	snap, ok := s.snapshots[id]
	if !ok {
		return snap, forkcore.ErrNotFound
	}
	return snap, nil
}

func (s *sent) SessionsOfSnapshot(context.Context, forkcore.Digest) ([]string, error) {
	return nil, nil
}

func (s *sent) Dispatch(_ context.Context, id string) (forkcore.Dispatch, error) {
	d, ok := s.dispatches[id]
	if !ok {
		return d, forkcore.ErrNotFound
	}
	return d, nil
}

func (s *sent) Transcript(context.Context, string, int64) ([]forkcore.TranscriptLine, error) {
	return []forkcore.TranscriptLine{
		{Kind: forkcore.EntryMarker, Marker: &forkcore.Marker{Type: forkcore.MarkerForkOf}},
		{Kind: forkcore.EntryMessage, Message: s.first},
		{Kind: forkcore.EntryMessage, Message: forkcore.EncodeMessage(forkcore.RoleUser, forkcore.AppendToolResult(nil, "toolu_1", "a later result", false))},
	}, s.lost
}

func newSent(placeholder string) *sent {
	head := forkcore.DigestOf([]byte("head"))
	byModel, byPerson := forkcore.DigestOf([]byte("model")), forkcore.DigestOf([]byte("person"))
	fifty, hundred := int64(50), int64(100)
	unique := []forkcore.Unique{{Bytes: 10, Tokens: 3}, {Bytes: 20, Tokens: 5}}
	usage := forkcore.Usage{Input: 1}
	s := &sent{fake: newFake(), snapshots: map[forkcore.Digest]forkcore.Snapshot{
		byModel:  {ID: byModel, Bytes: 5000, Segments: []forkcore.Segment{{SHA256: head}}, Tools: []string{"Agent", "Bash"}, Placeholders: 2},
		byPerson: {ID: byPerson, Bytes: 2000, Segments: []forkcore.Segment{{SHA256: head}}, Tools: []string{"Agent", "Bash"}},
	}}
	s.sessions = []forkcore.Session{{ID: sessionID, Mode: forkcore.ModeFork}}
	s.dispatches = map[string]forkcore.Dispatch{
		"dis_1": {ID: "dis_1", Snapshot: byModel, RunIDs: []string{"a", "b"}, Quote: forkcore.Quote{Model: "claude-sonnet-5-5", Children: 2, Gate: true, ColdNanoUSD: &fifty, UnsharedNanoUSD: &hundred, Unique: unique}, FirstRequestUsage: usage, FirstRequests: forkcore.Cost{NanoUSD: 60}},
		"dis_2": {ID: "dis_2", Snapshot: byPerson, RunIDs: []string{"c", "d"}, Quote: forkcore.Quote{Model: "unheard-of", Unique: unique}},
		"dis_3": {ID: "dis_3", Snapshot: byPerson, RunIDs: []string{"e", "f"}, Remaining: 1, Quote: forkcore.Quote{Unique: unique}},
	}
	for _, id := range []string{"dis_3", "dis_3", "dis_2", "", "dis_1", "dis_1"} {
		s.runs[sessionID] = append(s.runs[sessionID], forkcore.Run{ID: "run", DispatchID: id, AtRiskRequests: 0})
	}
	s.first = forkcore.EncodeMessage(forkcore.RoleUser,
		forkcore.AppendToolResult(nil, "toolu_1", placeholder, false), forkcore.AppendToolResult(nil, "toolu_2", forkcore.Placeholder, false), forkcore.AppendTextBlock(nil, "rules"))
	return s
}

func (s *sent) check(t *testing.T) rulesView {
	t.Helper()
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	r := serve(t, s.fake, func(o *Options) { o.Reader, o.Bytes, o.Prices = s, s, catalogue })
	return r.web.rules(t.Context(), s.sessions[0])
}

func verdicts(v rulesView) (words []string) {
	for _, c := range v.Checks {
		words = append(words, string(c.Verdict))
	}
	return words
}

func TestM74_RulesOfASession(t *testing.T) {
	v := newSent(forkcore.Placeholder).check(t)
	if d := cmp.Diff([]string{"holds", "holds", "holds", "holds", "holds"}, verdicts(v)); d != "" {
		t.Fatalf("verdicts (-want +got):\n%s", d)
	}
	if v.Scope != "Seen in the newest 3 fan-outs of this session." || v.broken() != 0 {
		t.Errorf("%q, %d broken", v.Scope, v.broken())
	}
	for i, want := range []string{
		"3 fan-outs started from one rendered prompt", "in 3 fan-outs", "18,000 of 18,090 bytes", "2 calls were answered", "1 fan-out: quoted < $0.0001, billed < $0.0001, with no cache < $0.0001. 1 more has no price or no bill.",
	} {
		if !strings.Contains(v.Checks[i].Finding, want) {
			t.Errorf("%q lacks %q", v.Checks[i].Finding, want)
		}
	}

	s := newSent("Fork 17 started")
	other := s.snapshots[forkcore.DigestOf([]byte("person"))]
	other.Segments, other.Tools, other.Bytes = []forkcore.Segment{{SHA256: forkcore.DigestOf([]byte("another head"))}}, []string{"Bash"}, 10
	s.snapshots[other.ID] = other
	d := s.dispatches["dis_1"]
	d.FirstRequests.NanoUSD = 101
	s.dispatches["dis_1"] = d
	v = s.check(t)
	if diff := cmp.Diff([]string{"broken", "broken", "holds", "broken", "broken"}, verdicts(v)); diff != "" || v.broken() != 4 {
		t.Errorf("verdicts of a careless session (-want +got):\n%s", diff)
	}

	s = newSent(forkcore.Placeholder)
	s.runs[sessionID][2].AtRiskRequests = 2
	if v = s.check(t); v.Checks[0].Finding != "2 requests were sent with a prompt that was rendered anew because the stored one was lost." {
		t.Errorf("lost prompts: %q", v.Checks[0].Finding)
	}

	s = newSent(forkcore.Placeholder)
	s.runs[sessionID] = nil
	if v = s.check(t); v.Scope != "Nothing was fanned out in this session yet." || verdicts(v)[0] != "unknown" {
		t.Errorf("no fan-out: %+v", v)
	}

	s = newSent(forkcore.Placeholder)
	s.lost = errors.New("gone")
	if v = s.check(t); v.Problem == "" || v.Checks != nil {
		t.Errorf("what cannot be read: %+v", v)
	}
}

// Each tension stands beside its switch.
func TestM75_TensionsBesideTheirSwitches(t *testing.T) {
	f := newForking()
	s := serveForking(t, f)
	for path, switches := range map[string][]string{dispatchAt: {"gate", "isolation"}, "/sessions/new": {"permission_mode"}} {
		_, body := s.ask(t, "GET", path, "", "Authorization", bearer)
		for _, name := range switches {
			if !strings.Contains(body, `data-tension="`+name+`"`) || !strings.Contains(body, forkcore.TensionAt(name)[:40]) {
				t.Errorf("%s has no note on %s", path, name)
			}
		}
	}
}
