package forkcore

import (
	"crypto/sha256"
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
func (p *provider) serve(t testing.TB, request *Prefix, marks []Mark) (read int64) {
	t.Helper()
	all := request.Bytes()
	ends := blockEnds(t, all)
	digests := map[int64]Digest{}
	h, at := sha256.New(), int64(0)
	for _, end := range ends {
		h.Write(all[at:end])
		at = end
		digests[end] = Digest(h.Sum(nil))
	}
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

func (s *sender) send(head []byte, ms []Message, p Plan) (Planned, int64) {
	s.t.Helper()
	p.Prefix = chain(head, ms)
	p.Entries = s.known
	p.Live = func(e CacheEntry) bool { return !s.dead[e.Prefix] }
	plan, err := PlanMarks(p)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := p.Prefix.Body(plan.Marks, testParams, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if n := countMarks(s.t, body.Bytes()); n != len(plan.Marks) || n > 4 || n < 1 || strings.Count(string(body.Bytes()), `"cache_control"`) != n {
		s.t.Fatalf("%d marks in the body, %d planned", n, len(plan.Marks))
	}
	read := s.provider.serve(s.t, p.Prefix, plan.Marks)
	if best := plan.Best; (best == nil) != (read == 0) || best != nil && best.Bytes != read {
		s.t.Fatalf("expected to read %+v, the provider reads %d bytes", best, read)
	}
	for _, m := range plan.Marks {
		d, ok := p.Prefix.At(m.Offset)
		if !ok {
			s.t.Fatalf("the mark at %d has no identity", m.Offset)
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
		if n > 12 && n%13 != 0 && n < 63 {
			continue // the look-back of 20 positions is passed at 8 to 10 forks
		}
		for _, warm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d forks, warm %v", n, warm), func(t *testing.T) {
				s := newSender(t)
				history := dispatching(t, n)
				asking := history[:len(history)-1]
				head := testHead()
				parent, read := s.send(head, asking, Plan{})
				if read != 0 {
					t.Fatalf("the very first request read %d", read)
				}
				if !warm {
					s.expireAllBut()
				}
				f := newFanOut(t, history, s.known...)
				first := func(i int) []Message { return f.child(t, fmt.Sprintf("task %d", i)) }

				leader, read := s.send(head, first(0), Plan{Snapshot: &f.snap, FirstRequest: true})
				if want := map[bool]int64{true: parent.Tail}[warm]; read != want {
					t.Errorf("the leader read %d bytes, want %d", read, want)
				}
				for _, i := range []int{1, n / 2, n - 1} {
					if i < 1 {
						continue
					}
					if _, read := s.send(head, first(i), Plan{Snapshot: &f.snap, FirstRequest: true}); read != f.snap.Bytes {
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
					plan, read := s.send(head, ms, Plan{Snapshot: &f.snap, PreviousTail: previous})
					if read != want {
						t.Errorf("later request %d read %d bytes, want %d", round, read, want)
					}
					previous, want = plan.Tail, plan.Tail
				}

				// The parent's own next request starts with the same placeholders.
				next := message(t, RoleUser, launchedAnswers(t, history, n)...)
				plan, read := s.send(head, append(history[:len(history):len(history)], next), Plan{})
				if read != f.snap.PlaceholderEnd {
					t.Errorf("the parent read %d bytes, want the placeholder entry at %d", read, f.snap.PlaceholderEnd)
				}
				if plan.Prefix != DigestOf(joined(head, raws(append(history[:len(history):len(history)], next)))[:plan.Tail]) || plan.PrefixBytes != plan.Tail {
					t.Error("a main turn's prefix does not end with its last block")
				}
				// And the one after reads its tail.
				more := append(append(history[:len(history):len(history)], next), message(t, RoleAssistant, text("they run")), message(t, RoleUser, text("thanks")))
				if _, read := s.send(head, more, Plan{}); read != plan.Tail {
					t.Errorf("the parent's request after that read %d bytes, want %d", read, plan.Tail)
				}
			})
		}
	}
}

func launchedAnswers(t testing.TB, history []Message, n int) [][]byte {
	t.Helper()
	v := NewView(NewPrefix(testHead()))
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
		parent, _ := s.send(head, history[:len(history)-1], Plan{})
		f := newFanOut(t, history, s.known...)
		ms := f.child(t, "x")
		s.send(head, ms, Plan{Snapshot: &f.snap, FirstRequest: true})
		ms = append(ms, toolRound(t, "a", 30)...)
		second, _ := s.send(head, ms, Plan{Snapshot: &f.snap})
		ms = append(ms, toolRound(t, "b", 30)...)

		for _, alive := range []int64{parent.Tail, f.snap.PlaceholderEnd, f.snap.Bytes, second.Tail} {
			again := newSender(t)
			again.known = slices.Clone(s.known)
			for _, e := range s.known {
				again.provider.entries[e.Prefix] = true
			}
			again.expireAllBut(alive)
			_, read := again.send(head, ms, Plan{Snapshot: &f.snap, PreviousTail: second.Tail})
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
	tail := func(ms []Message) int64 { n, _ := chain(f.head, ms).Tail(); return n }
	entry := func(n int64) CacheEntry { return CacheEntry{Prefix: DigestOf(all[:n]), Bytes: n, TTL: "5m"} }
	parentTail := tail(history[:3])
	person := newFanOut(t, history[:3])
	tests := []struct {
		name string
		plan Plan
		want []string
	}{
		{"main, first request", Plan{Prefix: chain(f.head, history[:1])}, []string{"system.1", "messages.0.content.0"}},
		{"main, cold", Plan{Prefix: chain(f.head, history[:3])}, []string{"system.1", "messages.0.content.0", "messages.2.content.0"}},
		{"main, nothing alive", Plan{Prefix: chain(f.head, append(history[:3:3], toolRound(t, "m", 1)...)), Entries: []CacheEntry{entry(f.base.SystemEnd()), entry(parentTail)}, Live: func(e CacheEntry) bool { return e.Bytes != parentTail }}, []string{"system.1", "messages.2.content.0", "messages.4.content.0"}},
		{"main, warm", Plan{Prefix: chain(f.head, append(history[:3:3], toolRound(t, "m", 1)...)), Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.2.content.0", "messages.4.content.0"}},
		{"main, retried: the best entry is the tail", Plan{Prefix: chain(f.head, history[:3]), Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.0.content.0", "messages.2.content.0"}},
		{"fork, first, cold", Plan{Prefix: chain(f.head, first), Snapshot: &f.snap, FirstRequest: true}, []string{"system.1", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, first, warm", Plan{Prefix: chain(f.head, first), Snapshot: &f.snap, FirstRequest: true, Entries: []CacheEntry{entry(parentTail)}}, []string{"system.1", "messages.2.content.0", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, first, after its leader", Plan{Prefix: chain(f.head, first), Snapshot: &f.snap, FirstRequest: true, Entries: []CacheEntry{entry(parentTail), entry(f.snap.Bytes)}}, []string{"system.1", "messages.4.content.1", "messages.4.content.2"}},
		{"fork, second", Plan{Prefix: chain(f.head, later), Snapshot: &f.snap}, []string{"system.1", "messages.4.content.2", "messages.6.content.1"}},
		{"fork, third", Plan{Prefix: chain(f.head, later), Snapshot: &f.snap, PreviousTail: tail(first)}, []string{"system.1", "messages.4.content.2", "messages.4.content.3", "messages.6.content.1"}},
		{"fork of a person, first", Plan{Prefix: chain(f.head, person.child(t, "x")), Snapshot: &person.snap, FirstRequest: true}, []string{"system.1", "messages.3.content.0"}},
	}
	for _, tt := range tests {
		for _, ttl := range []string{"", "5m", "1h"} {
			t.Run(tt.name+" "+ttl, func(t *testing.T) {
				p := tt.plan
				p.TTL = ttl
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
				Prefix:  chain(head, ms),
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
	p := chain(head, history[:3])
	entry := func(messages int) CacheEntry {
		n, _ := chain(head, history[:messages]).Tail()
		return CacheEntry{Prefix: DigestOf(all[:n]), Bytes: n}
	}
	short, long := entry(1), entry(2)
	foreign := CacheEntry{Prefix: DigestOf([]byte("x")), Bytes: entry(3).Bytes}
	tests := []struct {
		name    string
		entries []CacheEntry
		live    func(CacheEntry) bool
		want    int64
	}{
		{"none", nil, nil, 0},
		{"the longest", []CacheEntry{short, long, short}, nil, long.Bytes},
		{"another prefix of that length", []CacheEntry{foreign, short}, nil, short.Bytes},
		{"longer than the request", []CacheEntry{{Bytes: p.Len() + 1}, short}, nil, short.Bytes},
		{"an empty row", []CacheEntry{{}}, nil, 0},
		{"a dead one", []CacheEntry{short, long}, func(e CacheEntry) bool { return e.Bytes != long.Bytes }, short.Bytes},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PlanMarks(Plan{Prefix: p, Entries: tt.entries, Live: tt.live})
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
		Prefix: chain(f.head, ms), Snapshot: &f.snap, FirstRequest: true,
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
	if _, err := PlanMarks(Plan{Prefix: NewPrefix(testHead())}); err == nil {
		t.Error("a request without messages was planned")
	}
}

func TestHeadWithoutSystemGetsNoMarkThere(t *testing.T) {
	head := EncodeHead(testParams, []ToolSpec{{Name: "A", InputSchema: json.RawMessage(`{}`)}})
	ms := []Message{message(t, RoleUser, text("q"))}
	p := chain(head, ms)
	got, err := PlanMarks(Plan{Prefix: p})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Marks) != 1 || got.Marks[0].Block != "messages.0.content.0" {
		t.Errorf("marks %+v", got.Marks)
	}
	if _, err := p.Body(got.Marks, testParams, nil); err != nil {
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
	p := chain(EncodeHead(Params{Model: "m"}, nil, "system"), []Message{m})
	tail, atTail := p.Tail()
	system := p.SystemEnd()
	atSystem, _ := p.At(system)
	long := CacheEntry{Prefix: atTail, Bytes: tail, Tokens: 20, TTL: "5m"}
	again := CacheEntry{Prefix: atTail, Bytes: tail, Tokens: 20, TTL: "1h"}
	short := CacheEntry{Prefix: atSystem, Bytes: system, Tokens: 10}
	for _, tt := range []struct {
		name          string
		live          func(CacheEntry) bool
		best, expired int64
	}{
		{"both alive", func(CacheEntry) bool { return true }, tail, 0},
		{"the long one ran out", func(e CacheEntry) bool { return e.Bytes == system }, system, tail},
		{"the short one ran out", func(e CacheEntry) bool { return e.Bytes == tail }, tail, 0},
		{"both ran out", func(CacheEntry) bool { return false }, 0, tail},
		{"one of two at a place ran out", func(e CacheEntry) bool { return e.TTL == "1h" }, tail, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := PlanMarks(Plan{Prefix: p, Entries: []CacheEntry{short, long, again}, Live: tt.live})
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

// A message without a block has no place for a mark; what stands before it keeps its own.
func TestMarksPassEmptyMessages(t *testing.T) {
	empty := message(t, RoleUser)
	head := testHead()
	first := []Message{message(t, RoleUser, text("q")), message(t, RoleAssistant, text("a")), empty}
	want, wantID := chain(head, first[:2]).Tail()
	if at, id := chain(head, first).Tail(); at != want || id != wantID {
		t.Errorf("the tail is at %d, want %d", at, want)
	}
	got, err := PlanMarks(Plan{Prefix: chain(head, append(first, message(t, RoleAssistant, text("b")), message(t, RoleUser, text("c"))))})
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range got.Marks {
		blocks = append(blocks, m.Block)
	}
	if d := cmp.Diff([]string{"system.1", "messages.0.content.0", "messages.4.content.0"}, blocks); d != "" {
		t.Errorf("marks (-want +got):\n%s", d)
	}
}
