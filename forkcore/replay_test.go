package forkcore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// logBuilder numbers entries as a store would.
type logBuilder struct {
	t       testing.TB
	entries []Entry
}

func (l *logBuilder) message(role Role, blocks ...[]byte) *logBuilder {
	l.entries = append(l.entries, Entry{Seq: int64(len(l.entries) + 1), Kind: EntryMessage, RunID: "run", Bytes: EncodeMessage(role, blocks...)})
	return l
}

func (l *logBuilder) marker(m Marker) *logBuilder {
	l.entries = append(l.entries, Entry{Seq: int64(len(l.entries) + 1), Kind: EntryMarker, RunID: "run", Marker: &m})
	return l
}

func (l *logBuilder) result(id, text string) *logBuilder {
	return l.marker(Marker{Type: MarkerToolResult, ToolUseID: id, Bytes: AppendToolResult(nil, id, text, false)})
}

func (l *logBuilder) view() *View {
	l.t.Helper()
	v := NewView(NewPrefix(testHead()))
	apply(l.t, v, l.entries...)
	return v
}

func newLog(t testing.TB) *logBuilder { return &logBuilder{t: t} }

// asked is a main turn whose model asks for two tool calls.
func asked(t testing.TB) *logBuilder {
	return newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q")).
		message(RoleAssistant, []byte(thinkingBlock), toolUse("t1", "Read", `{"a" : 1.0}`), toolUse("t2", "Bash", `{}`))
}

func TestReplayCrashPoints(t *testing.T) {
	tests := []struct {
		name    string
		log     *logBuilder
		pending []string // id:started-by:has-result
	}{
		{"nothing ran", asked(t), []string{"t1::false", "t2::false"}},
		{"started and cut (B04)", asked(t).marker(Marker{Type: MarkerToolStarted, ToolUseID: "t2", Holder: "h1"}), []string{"t1::false", "t2:h1:false"}},
		{"started again by another", asked(t).marker(Marker{Type: MarkerToolStarted, ToolUseID: "t1", Holder: "h1"}).marker(Marker{Type: MarkerToolStarted, ToolUseID: "t1", Holder: "h2"}), []string{"t1:h2:false", "t2::false"}},
		{"partial results", asked(t).marker(Marker{Type: MarkerToolStarted, ToolUseID: "t1", Holder: "h1"}).result("t1", "out"), []string{"t1:h1:true", "t2::false"}},
		{"all results, not delivered", asked(t).result("t2", "b").result("t1", "a"), []string{"t1::true", "t2::true"}},
		{"delivered", asked(t).result("t1", "a").result("t2", "b").message(RoleUser, AppendToolResult(nil, "t1", "a", false), AppendToolResult(nil, "t2", "b", false)), nil},
		{"markers of strangers change nothing", asked(t).result("t9", "x").marker(Marker{Type: MarkerToolStarted, ToolUseID: "t8"}).marker(Marker{Type: MarkerBackground}).marker(Marker{Type: "future"}).
			marker(Marker{Type: MarkerReplacement, ToolUseID: "t9", Bytes: []byte("x"), Replacement: &Replacement{ToolUseID: "t9"}}).marker(Marker{Type: MarkerReplacement, ToolUseID: "t1", Bytes: []byte("x")}).
			marker(Marker{Type: MarkerLaunched, DispatchID: "d", RunIDs: []string{"r"}, ToolUseIDs: []string{"t9"}}), []string{"t1::false", "t2::false"}},
		{"the turn ended with one call open (B05)", asked(t).result("t1", "a").marker(Marker{Type: MarkerTurnEnd, State: Cancelled}), []string{"t1::true", "t2::true"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.log.view()
			var got []string
			for _, p := range v.Pending {
				got = append(got, fmt.Sprintf("%s:%s:%v", p.Call.ID, p.StartedBy, p.Result != nil))
			}
			if d := cmp.Diff(tt.pending, got); d != "" {
				t.Errorf("pending (-want +got):\n%s", d)
			}
			if v.Len != int64(len(tt.log.entries)) {
				t.Errorf("Len = %d, want %d", v.Len, len(tt.log.entries))
			}
		})
	}
}

// B05, B19: after a stopped turn the next user message answers every call, in
// tool_use order, before any text; a second replay gives the same bytes.
func TestAnswersAfterAStoppedTurn(t *testing.T) {
	log := asked(t).result("t1", "a").marker(Marker{Type: MarkerTurnEnd, State: Failed}).marker(Marker{Type: MarkerTurnStart})
	first, second := log.view().AnswerBlocks(), log.view().AnswerBlocks()
	want := []string{
		`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a"}]}`,
		`{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"not run: the turn was stopped before this call"}],"is_error":true}`,
	}
	if d := cmp.Diff(want, texts(first)); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
	if !cmp.Equal(first, second) {
		t.Error("a second replay gives other bytes")
	}
	// Delivered with the new text it is a history that a fork can be taken from.
	v := log.message(RoleUser, append(first, text("go on"))...).view()
	if _, _, err := NewSnapshot("s", v.Prefix, testParams, nil, v.Len, nil, testTime); err != nil {
		t.Error(err)
	}
}

func texts(blocks [][]byte) []string {
	var out []string
	for _, b := range blocks {
		out = append(out, string(b))
	}
	return out
}

// The parent's answer to an all-forks message starts with the very bytes of the
// forks' open segment, through the last placeholder.
func TestParentSharesThePlaceholdersWithItsForks(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64} {
		history := dispatching(t, n)
		f := newFanOut(t, history)
		blocks := launchedAnswers(t, history, n)
		if len(blocks) != n+1 {
			t.Fatalf("%d blocks, want %d results and one text", len(blocks), n)
		}
		request := joined(f.head, append(raws(history), EncodeMessage(RoleUser, blocks...)))
		end := f.snap.PlaceholderEnd
		if !bytes.Equal(request[:end], f.prefix()[:end]) {
			t.Errorf("%d forks: the parent's request leaves the forks' prefix before the last placeholder ends", n)
		}
		parents, _ := chain(f.head, append(history[:len(history):len(history)], message(t, RoleUser, blocks...))).At(end)
		if childs, ok := f.request(t, "x").At(end); !ok || parents != childs {
			t.Errorf("%d forks: the identities at the last placeholder differ", n)
		}
		last := message(t, RoleUser, blocks...).Blocks[n]
		for i := range n {
			if !strings.Contains(last.Text+"\n", fmt.Sprintf("\n- run_%d\n", i)) {
				t.Errorf("%d forks: the list does not name run_%d: %s", n, i, last.Text)
			}
		}
	}
}

func TestMixedAnswersNameTheForks(t *testing.T) {
	log := newLog(t).message(RoleUser, text("q")).
		message(RoleAssistant, toolUse("a1", "Agent", `{}`), toolUse("r1", "Read", `{}`), toolUse("a2", "Agent", `{}`)).
		marker(Marker{Type: MarkerToolResult, ToolUseID: "a2", IsError: true, Bytes: AppendToolResult(nil, "a2", "refused", true)}).
		marker(Marker{Type: MarkerLaunched, DispatchID: "dsp", RunIDs: []string{"run_x"}, ToolUseIDs: []string{"a1"}}).
		result("r1", "file")
	v := log.view()
	if v.AllLaunched() {
		t.Error("AllLaunched with other calls in the message")
	}
	want := []string{
		`{"type":"tool_result","tool_use_id":"a1","content":[{"type":"text","text":"async_launched: fork run_x runs in the background; its report will arrive as a task notification"}]}`,
		`{"type":"tool_result","tool_use_id":"r1","content":[{"type":"text","text":"file"}]}`,
		`{"type":"tool_result","tool_use_id":"a2","content":[{"type":"text","text":"refused"}],"is_error":true}`,
	}
	if d := cmp.Diff(want, texts(v.AnswerBlocks())); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
	if d := cmp.Diff(&Launch{DispatchID: "dsp", RunIDs: []string{"run_x"}}, v.Launch); d != "" {
		t.Errorf("launch (-want +got):\n%s", d)
	}
	v = log.message(RoleUser, v.AnswerBlocks()...).view()
	if v.Launch == nil || v.Launch.All || v.Pending != nil {
		t.Errorf("after delivery: launch %+v, pending %v", v.Launch, v.Pending)
	}
}

func TestLaunchIsAllUntilTheNextAnswer(t *testing.T) {
	history := dispatching(t, 2)
	log := newLog(t)
	for _, m := range history {
		blocks := make([][]byte, len(m.Blocks))
		for i, b := range m.Blocks {
			blocks[i] = b.Raw
		}
		log.message(m.Role, blocks...)
	}
	// One run id more or less than calls must not break the replay.
	log.marker(Marker{Type: MarkerLaunched, DispatchID: "dsp", RunIDs: []string{"run_0", "run_1"}, ToolUseIDs: []string{"toolu_00", "toolu_01", "toolu_02"}})
	v := log.view()
	if !v.AllLaunched() || v.Launch.All {
		t.Errorf("before delivery: AllLaunched %v, Launch %+v", v.AllLaunched(), v.Launch)
	}
	v = log.message(RoleUser, v.AnswerBlocks()...).view()
	if v.Launch == nil || !v.Launch.All {
		t.Errorf("after delivery: Launch %+v", v.Launch)
	}
	if v = log.message(RoleUser, text("and more")).view(); v.Launch == nil || !v.Launch.All {
		t.Errorf("after another message of the user: Launch %+v", v.Launch)
	}
	if v = log.message(RoleAssistant, text("they run")).view(); v.Launch != nil {
		t.Errorf("after the next answer: Launch %+v", v.Launch)
	}
	if (&View{}).AllLaunched() || (&View{}).AnswerBlocks() != nil {
		t.Error("an empty view launched something")
	}
}

func TestReplayRefuses(t *testing.T) {
	good := Entry{Seq: 1, Kind: EntryMessage, Bytes: EncodeMessage(RoleUser, text("q"))}
	tests := []struct {
		name    string
		view    *View
		entries []Entry
		message string
	}{
		{"a gap", NewView(NewPrefix(testHead())), []Entry{good, {Seq: 3, Kind: EntryMarker, Marker: &Marker{}}}, "log entry 3 follows entry 1"},
		{"an entry twice", NewView(NewPrefix(testHead())), []Entry{good, good}, "log entry 1 follows entry 1"},
		{"a start behind 1", NewView(NewPrefix(testHead())), []Entry{{Seq: 2, Kind: EntryMarker, Marker: &Marker{}}}, "log entry 2 follows entry 0"},
		{"bytes that are not canonical", NewView(NewPrefix(testHead())), []Entry{{Seq: 1, Kind: EntryMessage, Bytes: []byte(`{"role": "user","content":[]}`)}}, "log entry 1: message bytes are not canonical"},
		{"a message without bytes", NewView(NewPrefix(testHead())), []Entry{{Seq: 1, Kind: EntryMessage}}, "not canonical"},
		{"a marker without content", NewView(NewPrefix(testHead())), []Entry{{Seq: 1, Kind: EntryMarker}}, "without content"},
		{"a fragment in a main log", NewView(NewPrefix(testHead())), []Entry{{Seq: 1, Kind: EntryMessage, Fragment: true, Bytes: text("x")}}, "without an open segment"},
		{"a second fragment", NewView(newFanOut(t, nil).base), []Entry{
			{Seq: 1, Kind: EntryMessage, Fragment: true, Bytes: text("x")}, {Seq: 2, Kind: EntryMessage, Fragment: true, Bytes: text("y")},
		}, "log entry 2: a fragment without an open segment"},
		{"a whole message where a fragment is due", NewView(newFanOut(t, nil).base), []Entry{good}, "log entry 1: a message follows an open segment"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			for i, e := range tt.entries {
				if err = tt.view.Apply(e); err != nil && i < len(tt.entries)-1 {
					t.Fatalf("entry %d: %v", i, err)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("error %v, want one with %q", err, tt.message)
			}
		})
	}
}

func TestRepeatsAndRounds(t *testing.T) {
	round := func(input string) func(*logBuilder) {
		return func(l *logBuilder) {
			id := fmt.Sprintf("t%d", len(l.entries))
			l.message(RoleAssistant, toolUse(id, "Read", input)).result(id, "r").message(RoleUser, AppendToolResult(nil, id, "r", false))
		}
	}
	words := func(l *logBuilder) { l.message(RoleAssistant, text("hm")).message(RoleUser, text("and?")) }
	turn := func(l *logBuilder) { l.marker(Marker{Type: MarkerTurnStart}) }
	a, b := round(`{"p":1}`), round(`{"p":2}`)
	tests := []struct {
		name            string
		steps           []func(*logBuilder)
		rounds, repeats int
	}{
		{"one call", []func(*logBuilder){a}, 1, 1},
		{"the same thrice, under new ids", []func(*logBuilder){a, a, a}, 3, 3},
		{"another between", []func(*logBuilder){a, a, b, a}, 4, 1},
		{"words between", []func(*logBuilder){a, words, a}, 3, 1},
		{"words alone never repeat", []func(*logBuilder){words, words, words}, 3, 1},
		{"a new turn starts over", []func(*logBuilder){a, a, turn}, 0, 0},
		{"and does not go on counting", []func(*logBuilder){a, a, turn, a}, 1, 1},
		{"white space in the input is another call", []func(*logBuilder){a, round(`{"p": 1}`)}, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog(t).message(RoleUser, text("q"))
			for _, s := range tt.steps {
				s(l)
			}
			v := l.view()
			if v.Rounds != tt.rounds || v.Repeats != tt.repeats {
				t.Errorf("rounds %d, repeats %d; want %d, %d", v.Rounds, v.Repeats, tt.rounds, tt.repeats)
			}
		})
	}
}

func TestTurnsAndCompletedHistory(t *testing.T) {
	l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q")).message(RoleAssistant, text("a"))
	if v := l.view(); v.TurnRunID != "run" || v.Completed.Count() != 0 || v.AssistantSeq != 3 {
		t.Errorf("in the first turn: %+v", v)
	}
	l.marker(Marker{Type: MarkerTurnEnd, State: Done})
	if v := l.view(); v.TurnRunID != "" || v.Completed.Count() != 2 || v.CompletedSeq != 4 {
		t.Errorf("after the first turn: turn %q, completed %d at %d", v.TurnRunID, v.Completed.Count(), v.CompletedSeq)
	}
	l.marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q2")).message(RoleAssistant, text("cut")).
		marker(Marker{Type: MarkerStop, Name: "max_tokens"})
	if v := l.view(); v.Stop != "max_tokens" {
		t.Errorf("stop %q", v.Stop)
	}
	l.marker(Marker{Type: MarkerTurnEnd, State: Failed})
	if v := l.view(); v.Completed.Count() != 2 || v.CompletedSeq != 4 {
		t.Errorf("a failed turn counts as completed: %d at %d", v.Completed.Count(), v.CompletedSeq)
	}
	l.marker(Marker{Type: MarkerTurnStart})
	if v := l.view(); v.Stop != "" {
		t.Errorf("a new turn keeps stop %q", v.Stop)
	}
	if last, ok := l.view().Last(); !ok || last.Text() != "cut" {
		t.Errorf("Last() = %q, %v", last.Text(), ok)
	}
	if got := messagesOf(t, l.view().Prefix); len(got) != 4 || !bytes.Equal(got[0].Raw, l.entries[1].Bytes) {
		t.Errorf("messages %q", raws(got))
	}
}

// randomLog plays a plausible agent: rounds of calls, crashes, launches, stops.
func randomLog(t testing.TB, r *rand.Rand) []Entry {
	l := newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))
	for range 1 + r.IntN(12) {
		n := r.IntN(5)
		var blocks [][]byte
		if n == 0 || r.IntN(2) == 0 {
			blocks = append(blocks, text("words"))
		}
		var ids []string
		for i := range n {
			ids = append(ids, fmt.Sprintf("t%d_%d", len(l.entries), i))
			blocks = append(blocks, toolUse(ids[i], []string{"Agent", "Read"}[r.IntN(2)], []string{`{}`, `{"a" : 1}`}[r.IntN(2)]))
		}
		l.message(RoleAssistant, blocks...)
		if r.IntN(5) == 0 {
			l.marker(Marker{Type: MarkerStop, Name: "max_tokens"})
		}
		if n > 0 && r.IntN(2) == 0 {
			k := 1 + r.IntN(n)
			l.marker(Marker{Type: MarkerLaunched, DispatchID: "dsp", RunIDs: slices.Repeat([]string{"run_x"}, k), ToolUseIDs: ids[:k]})
		}
		for _, id := range ids {
			if r.IntN(2) == 0 {
				l.marker(Marker{Type: MarkerToolStarted, ToolUseID: id, Holder: "h"})
			}
			if r.IntN(2) == 0 {
				l.result(id, "r")
			}
		}
		if r.IntN(3) == 0 {
			l.marker(Marker{Type: MarkerTurnEnd, State: []State{Done, Failed}[r.IntN(2)]}).marker(Marker{Type: MarkerTurnStart})
		}
		v := l.view()
		if slices.ContainsFunc(v.Pending, func(p PendingCall) bool { return p.Result == nil }) {
			l.marker(Marker{Type: MarkerTurnEnd, State: Cancelled}).marker(Marker{Type: MarkerTurnStart})
			v = l.view()
		}
		l.message(RoleUser, append(v.AnswerBlocks(), text("go on"))...)
	}
	return l.entries
}

// Replaying any prefix of a log and then the rest gives what replaying it at
// once gives: continuing elsewhere is the same as never having stopped.
func TestReplayInPiecesEqualsReplayAtOnce(t *testing.T) {
	for seed := range uint64(5) {
		entries := randomLog(t, rand.New(rand.NewPCG(seed, 9)))
		whole := NewView(NewPrefix(testHead()))
		apply(t, whole, entries...)
		for cut := range len(entries) + 1 {
			prefix := NewView(NewPrefix(testHead()))
			apply(t, prefix, entries[:cut]...)
			before := Step(prefix, KindMain, 0)
			again := NewView(NewPrefix(testHead()))
			apply(t, again, entries[:cut]...)
			if after := Step(again, KindMain, 0); !reflect.DeepEqual(before, after) {
				t.Fatalf("seed %d: two replays of %d entries decide differently:\n%s", seed, cut, cmp.Diff(before, after))
			}
			apply(t, prefix, entries[cut:]...)
			if !reflect.DeepEqual(whole, prefix) {
				t.Fatalf("seed %d: cut at %d (-at once +in pieces):\n%s", seed, cut, cmp.Diff(whole, prefix, cmp.AllowUnexported(View{})))
			}
		}
	}
}

// Every history that replay and delivery make answers each call in the next
// user message, results first (B05, B19).
func TestDeliveredHistoriesAreAnswered(t *testing.T) {
	for seed := range uint64(15) {
		v := NewView(NewPrefix(testHead()))
		apply(t, v, randomLog(t, rand.New(rand.NewPCG(seed, 10)))...)
		messages := messagesOf(t, v.Prefix)
		for i, m := range messages {
			calls := m.ToolCalls()
			if m.Role != RoleAssistant || len(calls) == 0 {
				continue
			}
			next := messages[i+1]
			for k, c := range calls {
				if b := next.Blocks[k]; next.Role != RoleUser || b.Type != "tool_result" || b.ToolUseID != c.ID {
					t.Fatalf("seed %d: message %d block %d is %s %s, want the result of %s", seed, i+1, k, b.Type, b.ToolUseID, c.ID)
				}
			}
		}
	}
}

// The histories that a person's dispatch may find: what the fork inherits is
// always the last complete one, in the parent's own bytes, and no word is added but boilerplate and directive.
func TestM26_DispatchByAPersonOverAnyHistory(t *testing.T) {
	turn := func(l *logBuilder, q, a string) *logBuilder {
		return l.marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text(q)).message(RoleAssistant, text(a)).marker(Marker{Type: MarkerTurnEnd, State: Done})
	}
	results := func(l *logBuilder) *logBuilder {
		return l.message(RoleAssistant, toolUse("t1", "Read", `{}`)).result("t1", "r").message(RoleUser, AppendToolResult(nil, "t1", "r", false))
	}
	tests := []struct {
		name string
		log  *logBuilder
		want []string // texts or tool results of the inherited messages
		seq  int64
	}{
		{"no turn yet", newLog(t), nil, 0},
		{"the first turn runs", newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q")), nil, 0},
		{"a turn is complete", turn(newLog(t), "q", "a"), []string{"q", "a"}, 4},
		{"the second turn runs", turn(newLog(t), "q", "a").marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q2")).message(RoleAssistant, text("wait")), []string{"q", "a"}, 4},
		{"the second turn waits for a tool", turn(newLog(t), "q", "a").marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q2")).message(RoleAssistant, toolUse("t9", "Bash", `{}`)), []string{"q", "a"}, 4},
		{"the second turn was stopped after tool results", results(turn(newLog(t), "q", "a").marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q2"))).marker(Marker{Type: MarkerTurnEnd, State: Cancelled}), []string{"q", "a"}, 4},
		{"it ends in tool results", results(newLog(t).marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q"))).marker(Marker{Type: MarkerTurnEnd, State: Done}), []string{"q", "", "r"}, 6},
		{"compacted between turns", turn(newLog(t), "q", "a").marker(Marker{Type: MarkerCompact}).message(RoleUser, text("summary")), []string{"summary"}, 6},
		{"compacted, and a turn since", turn(turn(newLog(t), "q", "a").marker(Marker{Type: MarkerCompact}).message(RoleUser, text("summary")), "q2", "a2"), []string{"summary", "q2", "a2"}, 10},
		{"compacted while a turn runs", turn(newLog(t), "q", "a").marker(Marker{Type: MarkerTurnStart}).message(RoleUser, text("q2")).message(RoleAssistant, text("a2")).marker(Marker{Type: MarkerCompact}).message(RoleUser, text("summary")), []string{"q", "a"}, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.log.view()
			if v.CompletedSeq != tt.seq {
				t.Errorf("complete up to entry %d, want %d", v.CompletedSeq, tt.seq)
			}
			snap, fresh, err := NewSnapshot("s", v.Completed, testParams, nil, v.CompletedSeq, nil, testTime)
			if err != nil {
				t.Fatal(err)
			}
			_, segments := v.Completed.Segments()
			base, err := LoadSnapshot(snap, append(segments, fresh...))
			if err != nil {
				t.Fatal(err)
			}
			got := messagesOf(t, mustComplete(t, base, "do it"))
			last := got[len(got)-1]
			if last.Role != RoleUser || len(last.Blocks) != 2 || last.Blocks[0].Text != Boilerplate() || last.Blocks[1].Text != "do it" {
				t.Errorf("the last message is %s", last.Raw)
			}
			var inherited []string
			for _, m := range got[:len(got)-1] {
				inherited = append(inherited, m.Blocks[0].Text)
			}
			if d := cmp.Diff(tt.want, inherited); d != "" {
				t.Errorf("inherited (-want +got):\n%s", d)
			}
			if snap.Placeholders != 0 || snap.PlaceholderEnd != 0 {
				t.Errorf("placeholders for nobody: %+v", snap)
			}
		})
	}
}

// A snapshot that was taken before a compaction is untouched by it, and a fork
// that compacts goes on from its head alone.
func TestCompactionLeavesSnapshotsAlone(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	v := NewView(f.base)
	apply(t, v, Entry{Seq: 1, Kind: EntryMarker, Marker: &Marker{Type: MarkerForkOf}})
	compact := Entry{Kind: EntryMarker, Marker: &Marker{Type: MarkerCompact}}
	compact.Seq = 2
	if err := v.Apply(compact); err == nil || v.Len != 1 {
		t.Error("an open inheritance was compacted")
	}
	apply(t, v, Entry{Seq: 2, Kind: EntryMessage, Fragment: true, Bytes: DirectiveBlock("x")},
		Entry{Seq: 3, Kind: EntryMessage, Bytes: EncodeMessage(RoleAssistant, toolUse("t1", "Read", `{}`))})
	compact.Seq = 4
	if err := v.Apply(compact); err == nil || v.Len != 3 {
		t.Error("a call without its result was compacted away")
	}
	apply(t, v, Entry{Seq: 4, Kind: EntryMessage, Bytes: EncodeMessage(RoleUser, AppendToolResult(nil, "t1", "r", false))})
	before := v.Prefix
	compact.Seq = 5
	apply(t, v, compact)
	if _, ok := v.Last(); ok || !v.Compacted || !bytes.Equal(v.Prefix.Bytes(), f.head) {
		t.Errorf("after the boundary: %d messages", v.Prefix.Count())
	}
	apply(t, v, Entry{Seq: 6, Kind: EntryMessage, Bytes: EncodeMessage(RoleUser, text("summary"))})
	if got := messagesOf(t, v.Prefix); len(got) != 1 || got[0].Text() != "summary" {
		t.Errorf("messages %q", raws(got))
	}
	if d := Step(v, KindFork, 0); d != (CallModel{}) {
		t.Errorf("decision %+v, want CallModel", d)
	}
	if err := Verify(f.snap, before, nil); err != nil {
		t.Error(err)
	}
	var mismatch *MismatchError
	if err := Verify(f.snap, v.Prefix, func() ([][]byte, error) { return f.segments(), nil }); !errors.As(err, &mismatch) {
		t.Errorf("a compacted request passes for the snapshot: %v", err)
	}
}

// A launch that names fewer runs than calls leaves the calls behind them open.
func TestLaunchOfFewerRunsThanCalls(t *testing.T) {
	v := asked(t).marker(Marker{Type: MarkerLaunched, DispatchID: "d", RunIDs: []string{"r1"}, ToolUseIDs: []string{"t1", "t2"}}).view()
	if v.Pending[0].ChildRunID != "r1" || v.Pending[0].Result == nil || v.Pending[1].ChildRunID != "" || v.Pending[1].Result != nil {
		t.Errorf("pending %+v", v.Pending)
	}
}

// A clone and its view know of no launch of each other.
func TestCloneKeepsItsOwnLaunch(t *testing.T) {
	v := asked(t).marker(Marker{Type: MarkerLaunched, DispatchID: "d", RunIDs: []string{"r1", "r2"}, ToolUseIDs: []string{"t1", "t2"}}).view()
	c := v.Clone()
	apply(t, v, Entry{Seq: v.Len + 1, Kind: EntryMessage, Bytes: EncodeMessage(RoleUser, v.AnswerBlocks()...)})
	if !v.Launch.All || c.Launch.All || c.Launch.DispatchID != "d" || len(c.Pending) != 2 {
		t.Errorf("after delivery in the view: its launch %+v, the clone's %+v with %d pending", v.Launch, c.Launch, len(c.Pending))
	}
}
