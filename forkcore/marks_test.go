package forkcore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// provider is an oracle of the documented cache: every mark writes one entry,
// a mark reads the longest entry among the 20 positions that end with it, and
// what an earlier request wrote is there when the next one starts.
// Source: Messages API, prompt caching, "How automatic prefix checking works".
type provider struct{ entries map[Digest]bool }

const lookBack = 20

// serve gives the offset up to which a request is read from the cache.
func (p *provider) serve(t testing.TB, c Canonical, marks []Mark) (read int64) {
	t.Helper()
	all := joined(c.head, c.messages)
	ends := blockEnds(t, all)
	digests := c.DigestsAt(ends...)
	for _, m := range marks {
		i := slices.Index(ends, m.Offset)
		if i < 0 {
			t.Fatalf("mark %+v is on no block", m)
		}
		for k := i; k >= 0 && k > i-lookBack; k-- {
			if p.entries[digests[ends[k]]] {
				read = max(read, ends[k])
				break
			}
		}
	}
	for _, m := range marks {
		p.entries[digests[m.Offset]] = true
	}
	return read
}

// sender plans, splices, checks and serves requests, and keeps what the program
// would know of the entries afterwards.
type sender struct {
	t        *testing.T
	provider provider
	known    []CacheEntry
	dead     map[Digest]bool
}

func newSender(t *testing.T) *sender {
	return &sender{t: t, provider: provider{entries: map[Digest]bool{}}, dead: map[Digest]bool{}}
}

// expireAllBut lets every entry but those at the given offsets run out.
func (s *sender) expireAllBut(keep ...int64) {
	for _, e := range s.known {
		if !slices.Contains(keep, e.Bytes) {
			s.dead[e.Prefix] = true
			delete(s.provider.entries, e.Prefix)
		}
	}
}

func (s *sender) send(head []byte, p Plan) (Planned, int64) {
	s.t.Helper()
	p.Canonical = NewCanonical(head, raws(p.Messages), testParams)
	p.Entries = s.known
	p.Live = func(e CacheEntry) bool { return !s.dead[e.Prefix] }
	plan, err := PlanMarks(p)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := p.Canonical.Splice(plan.Marks)
	if err != nil {
		s.t.Fatal(err)
	}
	if n := countMarks(s.t, body.Bytes()); n != len(plan.Marks) || n > 4 || n < 1 || strings.Count(string(body.Bytes()), `"cache_control"`) != n {
		s.t.Fatalf("%d marks in the body, %d planned", n, len(plan.Marks))
	}
	read := s.provider.serve(s.t, p.Canonical, plan.Marks)
	if best := plan.Best; (best == nil) != (read == 0) || best != nil && best.Bytes != read {
		s.t.Fatalf("expected to read %+v, the provider reads %d bytes", best, read)
	}
	for _, m := range plan.Marks {
		d := p.Canonical.DigestAt(m.Offset)
		if plan.Digests[m.Offset] != d {
			s.t.Fatalf("Digests has no identity for the mark at %d", m.Offset)
		}
		delete(s.dead, d)
		s.known = append(s.known, CacheEntry{Prefix: d, Bytes: m.Offset})
	}
	return plan, read
}

// toolRound is an answer of n calls and the message that answers them.
func toolRound(t testing.TB, id string, n int) []Message {
	var calls, results [][]byte
	for i := range n {
		calls = append(calls, toolUse(fmt.Sprintf("%s_%d", id, i), "Read", `{}`))
		results = append(results, AppendToolResult(nil, fmt.Sprintf("%s_%d", id, i), "r", false))
	}
	return []Message{message(t, RoleAssistant, calls...), message(t, RoleUser, results...)}
}

// What each request of a fan-out reads, at every width, with a warm and a dead
// parent's entry, by the provider's own rule (B12, B24).
func TestFanOutReads(t *testing.T) {
	for n := 1; n <= 64; n++ {
		for _, warm := range []bool{true, false} {
			if !warm && n > 24 && n%8 != 0 {
				continue // without a parent's entry nothing lies beyond the look-back
			}
			t.Run(fmt.Sprintf("%d forks, warm %v", n, warm), func(t *testing.T) {
				s := newSender(t)
				history := dispatching(t, n)
				asking := history[:len(history)-1]
				head := testHead()
				parent, read := s.send(head, Plan{Messages: asking})
				if read != 0 {
					t.Fatalf("the very first request read %d", read)
				}
				if !warm {
					s.expireAllBut()
				}
				f := newFanOut(t, history, s.known...)
				first := func(i int) []Message { return f.child(t, fmt.Sprintf("task %d", i)) }

				leader, read := s.send(head, Plan{Messages: first(0), Snapshot: &f.snap, FirstRequest: true})
				if want := map[bool]int64{true: parent.Tail}[warm]; read != want {
					t.Errorf("the leader read %d bytes, want %d", read, want)
				}
				for _, i := range []int{1, n / 2, n - 1} {
					if i < 1 {
						continue
					}
					if _, read := s.send(head, Plan{Messages: first(i), Snapshot: &f.snap, FirstRequest: true}); read != f.snap.Bytes {
						t.Fatalf("follower %d read %d bytes, want the boilerplate entry at %d", i, read, f.snap.Bytes)
					}
				}
				if leader.Prefix != f.snap.ID || leader.PrefixBytes != f.snap.Bytes {
					t.Error("a fork's prefix is not its snapshot")
				}

				// The leader goes on, in rounds wider than the look-back.
				ms, previous, want := first(0), int64(0), f.snap.Bytes
				for round := range 3 {
					ms = append(ms, toolRound(t, fmt.Sprintf("r%d", round), 1+(n*7+round*25)%40)...)
					plan, read := s.send(head, Plan{Messages: ms, Snapshot: &f.snap, PreviousTail: previous})
					if read != want {
						t.Errorf("later request %d read %d bytes, want %d", round, read, want)
					}
					previous, want = plan.Tail, plan.Tail
				}

				// The parent's own next request starts with the same placeholders.
				v := NewView()
				v.Messages = append(v.Messages, history...)
				next := message(t, RoleUser, launchedAnswers(t, history, n)...)
				plan, read := s.send(head, Plan{Messages: append(v.Messages, next)})
				if read != f.snap.PlaceholderEnd {
					t.Errorf("the parent read %d bytes, want the placeholder entry at %d", read, f.snap.PlaceholderEnd)
				}
				if plan.Prefix != DigestOf(joined(head, raws(append(v.Messages, next)))[:plan.Tail]) || plan.PrefixBytes != plan.Tail {
					t.Error("a main turn's prefix does not end with its last block")
				}
				// And the one after reads its tail.
				more := append(append(v.Messages, next), message(t, RoleAssistant, text("they run")), message(t, RoleUser, text("thanks")))
				if _, read := s.send(head, Plan{Messages: more}); read != plan.Tail {
					t.Errorf("the parent's request after that read %d bytes, want %d", read, plan.Tail)
				}
			})
		}
	}
}

func launchedAnswers(t testing.TB, history []Message, n int) [][]byte {
	t.Helper()
	v := NewView()
	for i, m := range history {
		apply(t, v, Entry{Seq: int64(i + 1), Kind: EntryMessage, Bytes: m.Raw})
	}
	launched := &Marker{Type: MarkerLaunched, DispatchID: "dsp"}
	for i := range n {
		launched.RunIDs = append(launched.RunIDs, fmt.Sprintf("run_%d", i))
		launched.ToolUseIDs = append(launched.ToolUseIDs, fmt.Sprintf("toolu_%02d", i))
	}
	apply(t, v, Entry{Seq: v.Len + 1, Kind: EntryMarker, Marker: launched})
	return v.AnswerBlocks()
}

// When the shared entries ran out during a long tool call, a fork still reads
// the longest one alive, whatever lies between.
func TestLaterRequestReadsWhatIsAlive(t *testing.T) {
	for _, n := range []int{1, 5, 12, 40, 64} {
		s := newSender(t)
		history := dispatching(t, n)
		head := testHead()
		parent, _ := s.send(head, Plan{Messages: history[:len(history)-1]})
		f := newFanOut(t, history, s.known...)
		ms := f.child(t, "x")
		s.send(head, Plan{Messages: ms, Snapshot: &f.snap, FirstRequest: true})
		ms = append(ms, toolRound(t, "a", 30)...)
		second, _ := s.send(head, Plan{Messages: ms, Snapshot: &f.snap})
		ms = append(ms, toolRound(t, "b", 30)...)

		for _, alive := range []int64{parent.Tail, f.snap.PlaceholderEnd, f.snap.Bytes, second.Tail} {
			again := newSender(t)
			again.known = slices.Clone(s.known)
			for _, e := range s.known {
				again.provider.entries[e.Prefix] = true
			}
			again.expireAllBut(alive)
			_, read := again.send(head, Plan{Messages: ms, Snapshot: &f.snap, PreviousTail: second.Tail})
			if read != alive {
				t.Errorf("%d forks: read %d bytes, want %d, the one entry alive", n, read, alive)
			}
		}
	}
}

func TestMarkPlaces(t *testing.T) {
	history := dispatching(t, 2)
	f := newFanOut(t, history)
	first := f.child(t, "x")
	later := append(f.child(t, "x"), toolRound(t, "r", 2)...)
	all := joined(f.head, raws(later))
	tail := func(ms []Message) int64 { return NewCanonical(f.head, raws(ms), testParams).BlockEnd(len(ms) - 1) }
	entry := func(n int64) CacheEntry { return CacheEntry{Prefix: DigestOf(all[:n]), Bytes: n, TTL: "5m"} }
	parentTail := tail(history[:3])
	person := newFanOut(t, history[:3])
	tests := []struct {
		name string
		plan Plan
		want []string
	}{
		{"main, cold", Plan{Messages: history[:3]}, []string{"system.1", "messages.2.content.0"}},
		{"main, warm", Plan{Messages: append(history[:3:3], toolRound(t, "m", 1)...), Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.2.content.0", "messages.4.content.0"}},
		{"main, retried: the best entry is the tail", Plan{Messages: history[:3], Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.2.content.0"}},
		{"fork, first, cold", Plan{Messages: first, Snapshot: &f.snap, FirstRequest: true}, []string{"system.1", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, first, warm", Plan{Messages: first, Snapshot: &f.snap, FirstRequest: true, Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.2.content.0", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, first, after its leader", Plan{Messages: first, Snapshot: &f.snap, FirstRequest: true, Entries: []CacheEntry{entry(parentTail), entry(f.snap.Bytes)}}, []string{"system.1", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, second", Plan{Messages: later, Snapshot: &f.snap}, []string{"system.1", "messages.4.content.2", "messages.6.content.1"}},
		{"fork, third", Plan{Messages: later, Snapshot: &f.snap, PreviousTail: tail(first)}, []string{"system.1", "messages.4.content.2", "messages.4.content.3", "messages.6.content.1"}},
		{"fork of a person, first", Plan{Messages: person.child(t, "x"), Snapshot: &person.snap, FirstRequest: true}, []string{"system.1", "messages.3.content.0"}},
	}
	for _, tt := range tests {
		for _, ttl := range []string{"", "5m", "1h"} {
			t.Run(tt.name+" "+ttl, func(t *testing.T) {
				p := tt.plan
				p.Canonical, p.TTL = NewCanonical(f.head, raws(p.Messages), testParams), ttl
				got, err := PlanMarks(p)
				if err != nil {
					t.Fatal(err)
				}
				var blocks []string
				var last int64
				for _, m := range got.Marks {
					blocks = append(blocks, m.Block)
					if want := map[string]string{"": "5m", "5m": "5m", "1h": "1h"}[ttl]; m.TTL != want {
						t.Errorf("mark at %s has TTL %q, want %q", m.Block, m.TTL, want)
					}
					if m.Offset <= last {
						t.Errorf("marks are not in order: %+v", got.Marks)
					}
					last = m.Offset
				}
				if d := cmp.Diff(tt.want, blocks); d != "" {
					t.Errorf("marks (-want +got):\n%s", d)
				}
			})
		}
	}
}

func TestMarksAvoidBlocksThatTakeNone(t *testing.T) {
	tests := []struct {
		name string
		last []byte
		want bool
	}{
		{"text", text("a"), true},
		{"tool result", AppendToolResult(nil, "t", "x", false), true},
		{"tool use", toolUse("t", "n", `{}`), true},
		{"image", []byte(`{"type":"image","source":{"type":"url","url":"u"}}`), true},
		{"empty text", text(""), false},
		{"thinking", []byte(thinkingBlock), false},
		{"redacted thinking", []byte(`{"type":"redacted_thinking","data":"EjQB"}`), false},
		{"unknown", []byte(`{"type":"future_x"}`), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ms := []Message{message(t, RoleUser, text("q"), tt.last)}
			head := testHead()
			all := joined(head, raws(ms))
			got, err := PlanMarks(Plan{
				Canonical: NewCanonical(head, raws(ms), testParams), Messages: ms,
				Entries: []CacheEntry{{Bytes: int64(len(all) - 2), Prefix: DigestOf(all[:len(all)-2])}},
			})
			if err != nil {
				t.Fatal(err)
			}
			marked := slices.ContainsFunc(got.Marks, func(m Mark) bool { return m.Block == "messages.0.content.1" })
			if marked != tt.want {
				t.Errorf("marks %+v; the last block is marked: %v, want %v", got.Marks, marked, tt.want)
			}
		})
	}
}

func TestBestEntry(t *testing.T) {
	history := dispatching(t, 1)
	head := testHead()
	all := joined(head, raws(history[:3]))
	c := NewCanonical(head, raws(history[:3]), testParams)
	entry := func(n int64) CacheEntry { return CacheEntry{Prefix: DigestOf(all[:n]), Bytes: n} }
	short, long := entry(c.BlockEnd(0)), entry(c.BlockEnd(1))
	foreign := CacheEntry{Prefix: DigestOf([]byte("x")), Bytes: c.BlockEnd(2)}
	tests := []struct {
		name    string
		entries []CacheEntry
		live    func(CacheEntry) bool
		want    int64
	}{
		{"none", nil, nil, 0},
		{"the longest", []CacheEntry{short, long, short}, nil, long.Bytes},
		{"another prefix of that length", []CacheEntry{foreign, short}, nil, short.Bytes},
		{"longer than the request", []CacheEntry{{Bytes: c.Len() + 1}, short}, nil, short.Bytes},
		{"an empty row", []CacheEntry{{}}, nil, 0},
		{"a dead one", []CacheEntry{short, long}, func(e CacheEntry) bool { return e.Bytes != long.Bytes }, short.Bytes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PlanMarks(Plan{Canonical: c, Messages: history[:3], Entries: tt.entries, Live: tt.live})
			if err != nil {
				t.Fatal(err)
			}
			var bytes int64
			if got.Best != nil {
				bytes = got.Best.Bytes
			}
			if bytes != tt.want {
				t.Errorf("best entry has %d bytes, want %d", bytes, tt.want)
			}
		})
	}
}

// An entry behind a first request's last mark cannot be read: nothing looks there.
func TestFirstRequestExpectsNothingBehindItsLastMark(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	ms := f.child(t, "x")
	all := joined(f.head, raws(ms))
	own := int64(len(all) - 2)
	got, err := PlanMarks(Plan{
		Canonical: NewCanonical(f.head, raws(ms), testParams), Messages: ms, Snapshot: &f.snap, FirstRequest: true,
		Entries: []CacheEntry{{Bytes: own, Prefix: DigestOf(all[:own])}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Best != nil {
		t.Errorf("expects to read %+v", got.Best)
	}
}

func TestPlanMarksNeedsMessages(t *testing.T) {
	if _, err := PlanMarks(Plan{Canonical: NewCanonical(testHead(), nil, testParams)}); err == nil {
		t.Error("a request without messages was planned")
	}
}

func TestHeadWithoutSystemGetsNoMarkThere(t *testing.T) {
	head := EncodeHead(testParams, []ToolSpec{{Name: "A", InputSchema: json.RawMessage(`{}`)}})
	ms := []Message{message(t, RoleUser, text("q"))}
	c := NewCanonical(head, raws(ms), testParams)
	got, err := PlanMarks(Plan{Canonical: c, Messages: ms})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Marks) != 1 || got.Marks[0].Block != "messages.0.content.0" {
		t.Errorf("marks %+v", got.Marks)
	}
	if _, err := c.Splice(got.Marks); err != nil {
		t.Error(err)
	}
}

// An entry that ran out is no longer marked, but it is named, so that a later
// miss can be explained.
func TestPlanMarksNamesTheExpiredEntry(t *testing.T) {
	m, err := ParseMessage(EncodeMessage(RoleUser, AppendTextBlock(nil, "hello")))
	if err != nil {
		t.Fatal(err)
	}
	c := NewCanonical(EncodeHead(Params{Model: "m"}, nil, "system"), [][]byte{m.Raw}, Params{Model: "m"})
	tail, system := c.BlockEnd(0), c.SystemEnd()
	long := CacheEntry{Prefix: c.DigestAt(tail), Bytes: tail, Tokens: 20}
	short := CacheEntry{Prefix: c.DigestAt(system), Bytes: system, Tokens: 10}
	for _, tt := range []struct {
		name          string
		live          func(CacheEntry) bool
		best, expired int64
	}{
		{"both alive", func(CacheEntry) bool { return true }, tail, 0},
		{"the long one ran out", func(e CacheEntry) bool { return e.Bytes == system }, system, tail},
		{"the short one ran out", func(e CacheEntry) bool { return e.Bytes == tail }, tail, 0},
		{"both ran out", func(CacheEntry) bool { return false }, 0, tail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PlanMarks(Plan{Canonical: c, Messages: []Message{m}, Entries: []CacheEntry{short, long}, Live: tt.live})
			if err != nil {
				t.Fatal(err)
			}
			length := func(e *CacheEntry) int64 {
				if e == nil {
					return 0
				}
				return e.Bytes
			}
			if length(got.Best) != tt.best || length(got.Expired) != tt.expired {
				t.Errorf("best %d, expired %d; want %d, %d", length(got.Best), length(got.Expired), tt.best, tt.expired)
			}
		})
	}
}
