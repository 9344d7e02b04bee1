package forkcore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExplain(t *testing.T) {
	exact := &CacheEntry{Tokens: 1000, Exact: true, TTL: "5m", UsedAt: testTime}
	guessed := &CacheEntry{Tokens: 1000, TTL: "5m", UsedAt: testTime}
	soon, late := testTime.Add(4*time.Minute), testTime.Add(5*time.Minute+40*time.Second)
	read := func(n, rest int64) Usage { return Usage{CacheRead: n, Input: rest} }
	tests := []struct {
		name   string
		o      Outcome
		code   string // empty: no miss
		detail string
	}{
		{"read as expected", Outcome{Usage: read(1000, 5), Expected: ptr(1000), Best: exact, SentAt: soon}, "", ""},
		{"read more", Outcome{Usage: read(1200, 5), Expected: ptr(1000), Best: exact, SentAt: soon}, "", ""},
		{"one token less than counted", Outcome{Usage: read(999, 5), Expected: ptr(1000), Best: exact, SentAt: soon, MinCacheable: 512}, "unknown", "expected 1000 tokens from the cache, read 999"},
		{"a little less than guessed", Outcome{Usage: read(900, 5), Expected: ptr(1000), Best: guessed, SentAt: soon}, "", ""},
		{"a lot less than guessed", Outcome{Usage: read(899, 5), Expected: ptr(1000), Best: guessed, SentAt: soon}, "unknown", "read 899"},
		{"the entry ran out", Outcome{Usage: read(0, 1005), Expected: ptr(0), Expired: exact, SentAt: late, MinCacheable: 512}, "expired", "ran out 40s before"},
		{"a longer entry ran out, a shorter one was read", Outcome{Usage: read(400, 605), Expected: ptr(400), Best: &CacheEntry{Tokens: 400, Exact: true}, Expired: exact, SentAt: late}, "expired", "read 400"},
		{"a guessed entry ran out, a little less was read", Outcome{Usage: read(950, 5), Expected: ptr(0), Expired: guessed, SentAt: late}, "", ""},
		{"an expired entry that answered all the same", Outcome{Usage: read(1000, 5), Expected: ptr(0), Expired: exact, SentAt: late}, "", ""},
		{"too short", Outcome{Usage: read(0, 1005), Expected: ptr(1000), Best: exact, SentAt: soon, MinCacheable: 1024}, "too_short", "caches prefixes from 1024"},
		{"no reason known", Outcome{Usage: read(0, 1005), Expected: ptr(1000), Best: exact, SentAt: soon}, "unknown", "read 0"},
		{"expectation without its entry", Outcome{Usage: read(0, 1005), Expected: ptr(1000), SentAt: soon}, "unknown", "read 0"},
		{"nothing expected, written", Outcome{Usage: Usage{CacheWrite5m: 900}, Expected: ptr(0), MinCacheable: 512}, "", ""},
		{"nothing expected, too short (X06)", Outcome{Usage: Usage{Input: 900}, Expected: ptr(0), MinCacheable: 1024}, "too_short", "900 tokens; this model caches prefixes from 1024"},
		{"nothing known, too short", Outcome{Usage: Usage{Input: 900}, MinCacheable: 1024}, "too_short", "900 tokens"},
		{"nothing expected, long, nothing written", Outcome{Usage: Usage{Input: 2000}, Expected: ptr(0), MinCacheable: 1024}, "", ""},
		{"minimum not known", Outcome{Usage: Usage{Input: 9}, Expected: ptr(0)}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Explain(tt.o)
			if tt.code == "" {
				if got != nil {
					t.Errorf("explained as %+v, want no miss", *got)
				}
				return
			}
			if got == nil || got.Code != tt.code || !strings.Contains(got.Detail, tt.detail) {
				t.Errorf("explained as %+v, want %s with %q", got, tt.code, tt.detail)
			}
		})
	}
}

// The causes in the order of their certainty: each row has the cause of the row
// before it no more, and all those that follow.
func TestExplainByCertainty(t *testing.T) {
	before := chain(levelHead(levelParams, "be kind", "Read"), []Message{message(t, RoleUser, text("hello"))})
	request := chain(levelHead(levelParams, "be kind", "Read"), []Message{message(t, RoleUser, text("hullo"))})
	n, id := before.Tail()
	tail, _ := request.Tail()
	scope := Scope{Endpoint: "e", Key: "k", Workspace: "w"}
	entry := func(tokens int64) *CacheEntry {
		return &CacheEntry{Prefix: id, Bytes: n, Tokens: tokens, Exact: true, TTL: "5m", UsedAt: testTime, RunID: "run_x", N: 3, Scope: Scope{Endpoint: "e", Key: "k", Workspace: "v"}}
	}
	o := Outcome{
		Usage: Usage{Input: 500}, Expected: ptr(0), MinCacheable: 501,
		Lost: entry(400), Sent: func() ([]byte, error) { return before.Bytes(), nil }, Raced: entry(400), Expired: entry(400),
		Prefix: request, Marks: []Mark{{Block: "system.0", Offset: request.SystemEnd()}}, Scope: scope,
		Diagnosis: &Diagnosis{Type: "tools_changed", Missed: ptr(9)}, SentAt: testTime.Add(5*time.Minute + 1500*time.Millisecond),
	}
	for _, tt := range []struct {
		code, path, detail string
		next               func()
	}{
		{"messages", "messages.0.content.0.text", `an entry of 400 tokens was alive, read 0; before ‹`, func() {
			o.Sent = func() ([]byte, error) { return nil, ErrCorrupt }
		}},
		{"too_short", "", "500 tokens; this model caches prefixes from 501", func() { o.MinCacheable = 500 }},
		{"other_key", "", "it was written in workspace v, this request went to w", func() { o.Scope = Scope{Endpoint: "e", Key: "l"} }},
		{"race", "", "request 3 of run_x wrote an entry of 400 tokens, and its response had not begun when this one was sent; read 0", func() { o.Raced = nil }},
		{"provider", "", "the provider's diagnostics: tools_changed, about 9 tokens", func() { o.Diagnosis = &Diagnosis{Type: DiagnosisUnavailable} }},
		{"expired", "", "an entry of 400 tokens ran out 2s before; read 0; inferred: a lifetime is the least that is promised", func() { o.SentAt = testTime.Add(5 * time.Minute) }},
		{"expired", "", "an entry of 400 tokens ran out 0s before; read 0", func() { o.SentAt = testTime.Add(5*time.Minute - time.Nanosecond) }},
		{"expired", "", "an entry of 400 tokens was lost when the provider's cache began anew; read 0; inferred", func() { o.Expired = nil }},
		{"too_short", "", fmt.Sprintf("inferred from bytes: about %d tokens up to the last mark; this model caches prefixes from 500", 500*request.SystemEnd()/tail), func() { o.MinCacheable = 500 * request.SystemEnd() / tail }},
		{"other_key", "", "inferred: it was written with another API key", func() { o.Scope = Scope{} }},
		{"unknown", "", "an entry of 400 tokens was alive, read 0; what was sent before could not be compared with it: " + ErrCorrupt.Error() + "; the provider's diagnostics name no cause: unavailable", func() { o.Sent = nil }},
		{"unknown", "", "what was sent before was not compared with it", func() { o.Sent = func() ([]byte, error) { return request.Bytes(), nil } }},
		{"unknown", "", "its bytes are those that were sent before", func() { o.Prefix, o.Diagnosis = nil, nil }},
		{"unknown", "", "an entry of 400 tokens was alive, read 0; what was sent before was not compared with it", func() { o.Lost = nil }},
	} {
		got := Explain(o)
		if got == nil || got.Code != tt.code || got.Path != tt.path || !strings.Contains(got.Detail, tt.detail) {
			t.Fatalf("explained as %+v, want %s at %q: %q", got, tt.code, tt.path, tt.detail)
		}
		tt.next()
	}
	if got := Explain(o); got != nil {
		t.Errorf("nothing was to be had, explained as %+v", *got)
	}
}

// What was expected and not read is explained by itself; what befell a longer entry is told beside it.
func TestExplainWhatWasExpected(t *testing.T) {
	var blocks [][]byte
	for range 21 {
		blocks = append(blocks, text("x"))
	}
	request := chain(testHead(), []Message{message(t, RoleUser, blocks...)})
	ends := blockEndsOf(request)
	best := &CacheEntry{Bytes: ends[0], Tokens: 1000, Exact: true, TTL: "5m", UsedAt: testTime, Scope: Scope{Endpoint: "e", Key: "k"}}
	longer := &CacheEntry{Bytes: ends[20], Tokens: 2000, Exact: true, TTL: "5m", UsedAt: testTime.Add(-time.Hour), RunID: "run_x", N: 3}
	mark := func(k int) []Mark { return []Mark{{Block: "messages.0.content." + strconv.Itoa(k), Offset: ends[k]}} }
	const missed = "expected 1000 tokens from the cache, read 999"
	for _, tt := range []struct {
		name string
		set  func(*Outcome)
		want MissReason
	}{
		{"nothing known", func(*Outcome) {}, MissReason{Code: "unknown", Detail: missed}},
		{"20 positions", func(o *Outcome) { o.Marks = mark(20) }, MissReason{"look_back", "messages.0.content.20", missed + "; the next mark stands 20 positions behind the entry, the provider looks at 20"}},
		{"19 positions", func(o *Outcome) { o.Marks = mark(19) }, MissReason{Code: "unknown", Detail: missed}},
		{"no mark", func(o *Outcome) { o.Marks = nil }, MissReason{Code: "look_back", Detail: missed + "; no mark stands on the entry or behind it"}},
		{"another endpoint", func(o *Outcome) { o.Scope = Scope{Endpoint: "f"} }, MissReason{Code: "other_key", Detail: missed + "; it was written at another endpoint"}},
		{"look-back before another endpoint", func(o *Outcome) { o.Marks, o.Scope = nil, Scope{Endpoint: "f"} }, MissReason{Code: "look_back", Detail: missed + "; no mark stands on the entry or behind it"}},
		{"the provider's verdict", func(o *Outcome) { o.Diagnosis, o.Compared = &Diagnosis{Type: "messages_changed"}, best }, MissReason{Code: "provider", Detail: missed + "; the provider's diagnostics: messages_changed"}},
		{"a verdict on the writer's own tail", func(o *Outcome) {
			o.Diagnosis, o.Compared = &Diagnosis{Type: "messages_changed"}, &CacheEntry{Inside: true}
		}, MissReason{Code: "unknown", Detail: missed + "; the provider's diagnostics name no cause: messages_changed"}},
		{"another key", func(o *Outcome) { o.Scope = Scope{Endpoint: "e", Key: "l"} }, MissReason{Code: "other_key", Detail: missed + "; inferred: it was written with another API key, and the provider did not say whether both belong to one workspace"}},
		{"a longer one raced", func(o *Outcome) { o.Raced = longer }, MissReason{Code: "unknown", Detail: missed + "; request 3 of run_x wrote an entry of 2000 tokens, and its response had not begun when this one was sent; read 999"}},
		{"a longer one ran out", func(o *Outcome) { o.Expired = longer }, MissReason{Code: "unknown", Detail: missed + "; an entry of 2000 tokens ran out 56m0s before; read 999"}},
		{"a longer one differs", func(o *Outcome) {
			o.Lost, o.Sent = longer, func() ([]byte, error) { return levelHead(levelParams, "s", "Read"), nil }
		}, MissReason{Code: "unknown", Detail: missed + "; an entry of 2000 tokens was alive, read 999; before ‹\"claude-a\"›, now ‹\"claude-sonnet-5-5\"›; nothing of the cache survives that"}},
	} {
		o := Outcome{Usage: Usage{CacheRead: 999, Input: 5}, Expected: ptr(1000), Best: best, Prefix: request, Marks: mark(0), Scope: best.Scope, SentAt: testTime.Add(time.Minute), MinCacheable: 2000}
		tt.set(&o)
		got := Explain(o)
		if got == nil {
			t.Errorf("%s: not explained", tt.name)
		} else if diff := cmp.Diff(tt.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		o.Usage.CacheRead = 2000
		if got := Explain(o); got != nil {
			t.Errorf("%s, all was read: explained as %+v", tt.name, *got)
		}
		if asked := o.Sent; asked != nil {
			o.Sent = func() ([]byte, error) { t.Error("the request before was loaded though all was read"); return asked() }
			Explain(o)
		}
	}
}

// X06: what is under the model's minimum is called too short and never a miss without a cause.
func TestX06_TooShortIsNoMiss(t *testing.T) {
	request := chain(testHead(), []Message{message(t, RoleUser, text("shared"), text(strings.Repeat("own ", 50)))})
	shared := blockEndsOf(request)[0]
	tail, _ := request.Tail()
	marks := []Mark{{Offset: shared}, {Offset: request.SystemEnd()}} // in no order
	total := 1024 * tail / shared                                    // about 1,024 tokens up to the mark
	for total*shared/tail < 1024 {
		total++
	}
	for _, tt := range []struct {
		name   string
		usage  Usage
		marks  []Mark
		code   string
		detail string
	}{
		{"under the minimum", Usage{Input: 1023}, nil, "too_short", "1023 tokens; this model"},
		{"at the minimum, without marks", Usage{Input: 1024}, nil, "", ""},
		{"the marked part is under it", Usage{Input: total - 1}, marks, "too_short", "inferred from bytes: about 1023 tokens up to the last mark"},
		{"the marked part is at it", Usage{Input: total}, marks, "", ""},
		{"something was written all the same", Usage{Input: 10, CacheWrite5m: 900}, marks, "", ""},
		{"something was read all the same", Usage{Input: 10, CacheRead: 900}, marks, "", ""},
	} {
		for _, expected := range []*int64{nil, ptr(0)} {
			got := Explain(Outcome{Usage: tt.usage, Expected: expected, MinCacheable: 1024, Prefix: request, Marks: tt.marks})
			switch {
			case tt.code == "" && got != nil:
				t.Errorf("%s: %+v, want nothing", tt.name, *got)
			case tt.code != "" && (got == nil || got.Code != tt.code || !strings.HasPrefix(got.Detail, tt.detail)):
				t.Errorf("%s: %+v, want %s: %s", tt.name, got, tt.code, tt.detail)
			}
		}
	}
}

// It never guesses silently: whatever is known or not, less than expected has a code and a detail.
func TestExplainNeverGuessesSilently(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	request := chain(testHead(), []Message{message(t, RoleUser, text("a"), text("b"))})
	tail, id := request.Tail()
	entry := func() *CacheEntry {
		if r.IntN(2) == 0 {
			return nil
		}
		return &CacheEntry{Prefix: id, Bytes: r.Int64N(tail + 1), Tokens: r.Int64N(50) + 1, Exact: r.IntN(2) == 0, TTL: "5m", UsedAt: testTime, Inside: r.IntN(2) == 0, Scope: Scope{Endpoint: []string{"", "e", "f"}[r.IntN(3)]}}
	}
	codes := map[string]int{}
	for range 3000 {
		o := Outcome{
			Usage: Usage{CacheRead: r.Int64N(60), Input: r.Int64N(60)}, Best: entry(), Expired: entry(), Lost: entry(), Raced: entry(),
			Compared: entry(), MinCacheable: r.Int64N(3) * 20, SentAt: testTime.Add(time.Duration(r.IntN(600)) * time.Second), Scope: Scope{Endpoint: "e"},
		}
		if r.IntN(2) == 0 {
			o.Prefix, o.Marks = request, []Mark{{Offset: tail}}[:r.IntN(2)]
		}
		if r.IntN(2) == 0 {
			o.Diagnosis = &Diagnosis{Type: []string{"tools_changed", DiagnosisMessages, DiagnosisPending}[r.IntN(3)]}
		}
		if r.IntN(2) == 0 {
			o.Sent = func() ([]byte, error) { return request.Bytes(), nil }
		}
		if o.Best != nil {
			o.Expected = &o.Best.Tokens
		}
		less := false
		for _, e := range []*CacheEntry{o.Best, o.Expired, o.Lost, o.Raced} {
			less = less || e != nil && !e.ReadBy(o.Usage)
		}
		got := Explain(o)
		if less && (got == nil || got.Code == "" || got.Detail == "") {
			t.Fatalf("read %d, explained as %+v: %+v", o.Usage.CacheRead, got, o)
		}
		if got != nil {
			codes[got.Code]++
		}
	}
	if len(codes) < 7 {
		t.Errorf("only %v were reached", codes)
	}
}
