package forkcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// smallLimits are limits that short texts reach.
var smallLimits = ReplacementLimits{Result: 1000, Tools: map[string]int{"Bash": 600, "Grep": 2000, "Read": Unlimited}, Message: 3000, Preview: 20}

// full is the result of a call to a tool.
func full(id, tool, text string) FullResult {
	return FullResult{ToolUseID: id, Tool: tool, Text: text, Blob: DigestOf([]byte(id))}
}

// decided names what was decided: which results were replaced.
func decided(sent []SentResult) string {
	var s []string
	for _, r := range sent {
		if r.Replaced() {
			s = append(s, r.ToolUseID)
		}
	}
	return strings.Join(s, " ")
}

func TestReplacementLimits(t *testing.T) {
	of := func(tool string, size int) FullResult {
		return full(fmt.Sprintf("%s%d", tool, size), tool, strings.Repeat("x", size))
	}
	tests := []struct {
		name    string
		results []FullResult
		want    string
	}{
		{"a tool without a limit of its own", []FullResult{of("Glob", 1000), of("Glob", 1001)}, "Glob1001"},
		{"a tool with a lower one", []FullResult{of("Bash", 600), of("Bash", 601)}, "Bash601"},
		{"a higher one is lowered", []FullResult{of("Grep", 1000), of("Grep", 1001)}, "Grep1001"},
		{"an unlimited tool", []FullResult{of("Read", 2999)}, ""},
		{"a message at its limit", []FullResult{of("Glob", 1000), of("Read", 2000)}, ""},
		{"one above it: the largest goes", []FullResult{of("Glob", 1000), of("Read", 2001)}, "Read2001"},
		{"of equals the first goes", []FullResult{of("Read", 100), full("a", "Read", strings.Repeat("a", 1500)), full("b", "Read", strings.Repeat("b", 1500))}, "a"},
		{"as many as it takes", []FullResult{full("a", "Read", strings.Repeat("a", 1600)), full("b", "Read", strings.Repeat("b", 2500)), full("c", "Read", strings.Repeat("c", 2400))}, "b c"},
		{"what is replaced by itself makes room", []FullResult{of("Bash", 2500), of("Read", 2000)}, "Bash2500"},
		{"characters, not bytes", []FullResult{full("é", "Bash", strings.Repeat("é", 600)), full("éé", "Bash", strings.Repeat("é", 601))}, "éé"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sent, err := ReplacementState(nil).Decide(smallLimits, tt.results)
			if err != nil {
				t.Fatal(err)
			}
			if got := decided(sent); got != tt.want {
				t.Errorf("replaced %q, want %q", got, tt.want)
			}
			total := 0
			for i, s := range sent {
				if s.ToolUseID != tt.results[i].ToolUseID || (!s.Replaced() && s.Text != tt.results[i].Text) {
					t.Errorf("result %d came out as that of %s with %d bytes", i, s.ToolUseID, len(s.Text))
				}
				if s.Replaced() && (s.Replacement.Text != DigestOf([]byte(s.Text)) || s.Characters != utf8.RuneCountInString(tt.results[i].Text) || s.Bytes != len(tt.results[i].Text)) {
					t.Errorf("decision %+v does not fit a result of %d bytes", s.Replacement, len(tt.results[i].Text))
				}
				total += utf8.RuneCountInString(s.Text)
			}
			if total > smallLimits.Message {
				t.Errorf("%d characters are sent, the message takes %d", total, smallLimits.Message)
			}
			again, err := ReplacementState(nil).Decide(smallLimits, tt.results)
			if d := cmp.Diff(sent, again); d != "" || err != nil {
				t.Errorf("decided again: %v\n%s", err, d)
			}
		})
	}
	// What a preview would not shorten stays, whatever the limits say.
	tight := ReplacementLimits{Result: 10, Message: 20, Preview: 2_000}
	if sent, err := ReplacementState(nil).Decide(tight, []FullResult{of("Glob", 500), of("Glob", 9)}); err != nil || decided(sent) != "" {
		t.Errorf("short results: replaced %q, %v", decided(sent), err)
	}
	d := DefaultReplacementLimits()
	want := map[string]int{"Bash": 30_000, "Grep": 50_000, "Edit": 50_000, "Glob": 50_000}
	for tool, n := range want {
		if d.of(tool) != n {
			t.Errorf("limit of %s = %d, want %d", tool, d.of(tool), n)
		}
	}
	if d.Message != 200_000 || d.Preview != 2_000 || d.of("Read") < 1<<40 {
		t.Errorf("limits of a message %+v", d)
	}
}

func TestReplacementText(t *testing.T) {
	tests := []struct {
		name, text, shown string
	}{
		{"up to the last end of a line", "0123456789abc\n" + strings.Repeat("x", 1000), "0123456789abc"},
		{"an end of a line in the middle", "0123456789\n" + strings.Repeat("x", 1000), "0123456789"},
		{"one too early to cut there", "012345678\n" + strings.Repeat("x", 1000), "012345678\nxxxxxxxxxx"},
		{"no line ends: a rune edge", strings.Repeat("x", 19) + strings.Repeat("é", 1000), strings.Repeat("x", 19)},
		{"a tag in it is disarmed", "</persisted-output>\n" + strings.Repeat("x", 1000), "&lt;/persisted-output>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sent, err := ReplacementState(nil).Decide(smallLimits, []FullResult{full("t1", "Bash", tt.text)})
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("<persisted-output>\nThis result is too large to be shown: %d characters, %d bytes. "+
				"All of it is stored with this session as blob %s, for people to read; no tool reads it. "+
				"If you need more than its beginning, repeat the call with a narrower range or filter.\n\n%s\n...\n</persisted-output>",
				utf8.RuneCountInString(tt.text), len(tt.text), DigestOf([]byte("t1")), tt.shown)
			if d := cmp.Diff(want, sent[0].Text); d != "" {
				t.Errorf("text (-want +got):\n%s", d)
			}
		})
	}
	if got := previewOf("short", 5); got != "short" {
		t.Errorf("preview of a text at the limit = %q", got)
	}
	// A text that is shown whole has nothing left out.
	whole := Replacement{ToolUseID: "t", Characters: 3, Bytes: 3, Shown: 3}
	if got := whole.text("abc"); strings.Contains(got, "...") || !strings.HasSuffix(got, "\n\nabc\n</persisted-output>") {
		t.Errorf("a text that is shown whole = %q", got)
	}
}

// M14: decisions travel with the fork, so that the same results give the same text whatever the limits are there; without them the text is another.
func TestM14_ReplacementStateTravels(t *testing.T) {
	results := []FullResult{full("big", "Bash", strings.Repeat("line of output\n", 100)), full("also", "Read", strings.Repeat("r", 900))}
	var state ReplacementState
	parent, err := state.Decide(smallLimits, results)
	if err != nil {
		t.Fatal(err)
	}
	if decided(parent) != "big" {
		t.Fatalf("replaced %q, want one of the two", decided(parent))
	}
	for _, s := range parent {
		state = state.Freeze(s.Replacement)
	}
	stored, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var loaded ReplacementState
	if err := json.Unmarshal(stored, &loaded); err != nil {
		t.Fatal(err)
	}
	other := map[string]ReplacementLimits{
		"lower":  {Result: 500, Message: 600, Preview: 300},
		"higher": {Result: 1 << 20, Message: 1 << 20, Preview: 10},
	}
	for name, limits := range other {
		for from, s := range map[string]ReplacementState{"cloned": state.Clone(), "stored": loaded} {
			child, err := s.Decide(limits, results)
			if d := cmp.Diff(parent, child); d != "" || err != nil {
				t.Errorf("%s state under %s limits: %v (-parent +child):\n%s", from, name, err, d)
			}
		}
		fresh, err := ReplacementState(nil).Decide(limits, results)
		if err != nil || (fresh[0].Text == parent[0].Text && fresh[1].Text == parent[1].Text) {
			t.Errorf("a fresh state under %s limits gives the parent's text, %v", name, err)
		}
	}
	// Another result under the same id can not stand for what was sent.
	for name, text := range map[string]string{"other": strings.Repeat("line of OUTPUT\n", 100), "longer": results[0].Text + "x", "shorter": "line", "none": ""} {
		if _, err := state.Decide(smallLimits, []FullResult{full("big", "Bash", text)}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s text under the id of a replaced result: %v, want ErrCorrupt", name, err)
		}
	}
}

// M66: who clones goes on by itself; the parent sees nothing of it, and nothing is copied before.
func TestM66_ReplacementStateIsCloned(t *testing.T) {
	parent := make(ReplacementState, 0, 8).Freeze(Replacement{ToolUseID: "a"}).Freeze(Replacement{ToolUseID: "b"})
	before := parent.Digest()
	child := parent.Clone()
	if &child[0] != &parent[0] {
		t.Error("a clone copies the decisions")
	}
	child = child.Freeze(Replacement{ToolUseID: "c", Text: DigestOf([]byte("child"))})
	mine := parent.Freeze(Replacement{ToolUseID: "c"})
	if got, _ := child.Find("c"); !got.Replaced() {
		t.Error("the parent's decision took the place of the child's")
	}
	if got, known := mine.Find("c"); got.Replaced() || !known {
		t.Error("the child's decision took the place of the parent's")
	}
	if parent.Digest() != before || len(parent) != 2 {
		t.Errorf("the parent has %d decisions, want 2", len(parent))
	}
	if again := child.Freeze(Replacement{ToolUseID: "c"}); len(again) != 3 || again.Digest() != child.Digest() {
		t.Error("a second decision about a call changed the first")
	}
	if _, known := child.Find("d"); known {
		t.Error("a call that nobody decided about is known")
	}
	if !(ReplacementState{}).Digest().IsZero() || before.IsZero() || before == child.Digest() || child.Digest() == mine.Digest() {
		t.Error("states that differ have one digest")
	}
}

// round is a tool round of a main turn: the model's calls, their results as they were, the decisions, and the message that delivers them.
func round(t *testing.T, l *logBuilder, limits ReplacementLimits, results ...FullResult) *View {
	t.Helper()
	var calls [][]byte
	for _, r := range results {
		calls = append(calls, toolUse(r.ToolUseID, r.Tool, `{}`))
	}
	l.message(RoleAssistant, calls...)
	for _, r := range results {
		l.result(r.ToolUseID, r.Text)
	}
	v := l.view()
	markers, err := v.ReplaceResults(limits)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range markers {
		l.marker(m)
	}
	l.message(RoleUser, l.view().AnswerBlocks()...)
	return l.view()
}

// X05: five turns with one big result each rewrite nothing that was sent, though the limits go down meanwhile.
func TestX05_ResultsOnceSentAreNotRewritten(t *testing.T) {
	l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))
	var sent [][]byte
	for i := range 5 {
		limits := smallLimits
		limits.Result -= 100 * i
		v := round(t, l, limits, full(fmt.Sprint("t", i), "Glob", strings.Repeat("x", 750)))
		sent = append(sent, v.Prefix.Bytes())
	}
	rewrites := 0
	for i, b := range sent[1:] {
		if at, path, _ := FirstDifference(sent[i], b); at != int64(len(sent[i])) {
			t.Logf("request %d leaves the one before at byte %d (%s)", i+1, at, path)
			rewrites++
		}
	}
	if rewrites != 0 {
		t.Errorf("%d rewrites, want none", rewrites)
	}
	v := l.view()
	var got []string
	for _, r := range v.Replacements {
		got = append(got, fmt.Sprint(r.ToolUseID, " ", r.Replaced()))
	}
	if d := cmp.Diff([]string{"t0 false", "t1 false", "t2 false", "t3 true", "t4 true"}, got); d != "" {
		t.Errorf("decisions (-want +got):\n%s", d)
	}
}

// A replay takes the decisions out of the log: the blocks that were sent, and the state.
func TestReplayRestoresReplacements(t *testing.T) {
	l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))
	big := full("big", "Bash", strings.Repeat("x", 700))
	l.message(RoleAssistant, toolUse("big", "Bash", `{}`), toolUse("err", "Bash", `{}`), toolUse("small", "Read", `{}`), toolUse("fork", AgentToolName, `{}`))
	l.result("big", big.Text)
	l.marker(Marker{Type: MarkerToolResult, ToolUseID: "err", Bytes: AppendToolResult(nil, "err", strings.Repeat("e", 700), true)})
	l.marker(Marker{Type: MarkerLaunched, DispatchID: "d", RunIDs: []string{"r"}, ToolUseIDs: []string{"fork"}})
	if markers, err := l.view().ReplaceResults(smallLimits); len(markers) != 0 || err != nil {
		t.Fatalf("decided about %d results before all are there, %v", len(markers), err)
	}
	l.result("small", "ok")
	v := l.view()
	if markers, err := v.ReplaceResults(ReplacementLimits{Result: 10_000, Message: 10_000}); len(markers) != 0 || err != nil {
		t.Errorf("%d replacements under high limits, %v", len(markers), err)
	}
	markers, err := v.ReplaceResults(smallLimits)
	if err != nil {
		t.Fatal(err)
	}
	if len(markers) != 2 || len(v.Replacements) != 0 {
		t.Fatalf("%d replacements, %d decisions in the view; want 2 and none", len(markers), len(v.Replacements))
	}
	for i, m := range markers {
		id, isError := []string{"big", "err"}[i], i == 1
		b, err := parseBlock(m.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != MarkerReplacement || m.ToolUseID != id || m.Name != "Bash" || *m.Blob != DigestOf(m.Bytes) || m.IsError != isError ||
			b.ToolUseID != id || b.IsError != isError || DigestOf([]byte(b.Text)) != m.Replacement.Text || m.Replacement.Blob != DigestOf(v.pending(id).Result) {
			t.Errorf("marker %+v with the block %s", m, m.Bytes)
		}
		l.marker(m)
	}
	v = l.view()
	if again, err := v.ReplaceResults(smallLimits); len(again) != 0 || err != nil {
		t.Errorf("%d replacements after they are decided, %v", len(again), err)
	}
	answers := v.AnswerBlocks()
	if string(answers[0]) != string(markers[0].Bytes) || string(answers[1]) != string(markers[1].Bytes) {
		t.Error("the answers are not the blocks of the markers")
	}
	l.message(RoleUser, answers...).message(RoleAssistant, text("done"))
	v = l.view()
	want := ReplacementState{*markers[0].Replacement, *markers[1].Replacement, {ToolUseID: "small"}}
	if d := cmp.Diff(want, v.Replacements); d != "" {
		t.Errorf("state (-want +got):\n%s", d)
	}
	if v.CompletedReplacements != nil {
		t.Errorf("%d decisions in the completed history, want none yet", len(v.CompletedReplacements))
	}
	l.marker(Marker{Type: MarkerTurnEnd, State: Done})
	v = l.view()
	c := v.Clone()
	c.Replacements = c.Replacements.Freeze(Replacement{ToolUseID: "later"})
	v.Replacements = v.Replacements.Freeze(Replacement{ToolUseID: "mine"})
	if d := cmp.Diff(want, v.CompletedReplacements); d != "" {
		t.Errorf("state of the completed history (-want +got):\n%s", d)
	}
	if c.Replacements[3].ToolUseID != "later" || v.Replacements[3].ToolUseID != "mine" {
		t.Errorf("a view and its clone decide for each other: %v and %v", c.Replacements[3], v.Replacements[3])
	}
	l.marker(Marker{Type: MarkerCompact})
	if v = l.view(); len(v.Replacements) != 0 || len(v.CompletedReplacements) != 3 {
		t.Errorf("after compaction %d decisions, and %d in the completed history", len(v.Replacements), len(v.CompletedReplacements))
	}
	if slices.ContainsFunc(v.CompletedReplacements, func(r Replacement) bool { return r.ToolUseID == "fork" }) {
		t.Error("the start of a fork counts as a result")
	}
}

// A replacement has to be shorter; and each one that was not enough is followed by another.
func TestReplacementBounds(t *testing.T) {
	limits := ReplacementLimits{Result: 5000, Tools: map[string]int{"Tiny": 1}, Message: 1000, Preview: 20}
	if limits.of("Tiny") != 1 {
		t.Errorf("a limit of 1 counts as %d", limits.of("Tiny"))
	}
	// Under a thousand characters a replacement of a preview of 20 has one length, whatever it replaces.
	equal := len(Replacement{Characters: 100, Bytes: 100, Shown: 20}.text(strings.Repeat("x", 100)))
	for size, want := range map[int]string{equal: "", equal + 1: "a"} {
		sent, err := ReplacementState(nil).Decide(limits, []FullResult{full("a", "Tiny", strings.Repeat("x", size))})
		if err != nil || decided(sent) != want {
			t.Errorf("%d characters: replaced %q, %v; a replacement has %d", size, decided(sent), err, equal)
		}
	}
	// The first replacement leaves the message at its limit, or one character over it.
	left := equal + 2 + 900 + 600 // numbers of four digits take two characters more
	for over, want := range map[int]string{1: "a b", 0: "a"} {
		limits.Message = left - over
		sent, err := ReplacementState(nil).Decide(limits, []FullResult{
			full("a", "Read", strings.Repeat("a", 1200)), full("b", "Read", strings.Repeat("b", 900)), full("c", "Read", strings.Repeat("c", 600)),
		})
		if err != nil || decided(sent) != want {
			t.Errorf("%d over the limit: replaced %q, %v, want %q", over, decided(sent), err, want)
		}
	}
	// A preview that holds all of a text cuts nothing off.
	lines := strings.Repeat("x", 700) + "\n" + strings.Repeat("y", 500)
	if got := previewOf(lines, len(lines)); got != lines {
		t.Errorf("a preview of %d bytes shows %d", len(lines), len(got))
	}
	// What was shown whole can be made again; more than there is cannot.
	d := Replacement{ToolUseID: "t", Characters: 3, Bytes: 3, Shown: 3}
	d.Text = DigestOf([]byte(d.text("abc")))
	if got, err := d.render("abc"); err != nil || got != d.text("abc") {
		t.Errorf("shown whole: %q, %v", got, err)
	}
	d.Shown = 4
	if _, err := d.render("abc"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more shown than there is: %v, want ErrCorrupt", err)
	}
}

// Results that are small each may be too much together; the placeholder of a fork is never replaced.
func TestReplaceResultsOfAMessage(t *testing.T) {
	l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))
	l.message(RoleAssistant, toolUse("a", "Glob", `{}`), toolUse("b", "Glob", `{}`), toolUse("c", "Glob", `{}`), toolUse("f", AgentToolName, `{}`))
	l.result("a", strings.Repeat("a", 800)).result("b", strings.Repeat("b", 900)).result("c", strings.Repeat("c", 700))
	v := l.marker(Marker{Type: MarkerLaunched, DispatchID: "d", RunIDs: []string{"r"}, ToolUseIDs: []string{"f"}}).view()
	replaced := func(limits ReplacementLimits) string {
		t.Helper()
		markers, err := v.ReplaceResults(limits)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range markers {
			ids = append(ids, m.ToolUseID)
		}
		return strings.Join(ids, " ")
	}
	for total, want := range map[int]string{2400: "", 2399: "b", 1600: "a b"} {
		if got := replaced(ReplacementLimits{Result: 2000, Message: total, Preview: 20}); got != want {
			t.Errorf("a message of at most %d: replaced %q, want %q", total, got, want)
		}
	}
	v.pending("f").Result = AppendToolResult(nil, "f", strings.Repeat("f", 1000), false)
	if got := replaced(ReplacementLimits{Result: 750, Message: 5000, Preview: 20}); got != "a b" {
		t.Errorf("replaced %q, want what the tools gave", got)
	}
	v.pending("b").Result = []byte("no block")
	if _, err := v.ReplaceResults(smallLimits); !errors.Is(err, ErrNotCanonical) || !strings.Contains(err.Error(), "call b") {
		t.Errorf("a result that is no block: %v", err)
	}
}
