package forkcore

import (
	"fmt"
	"slices"
)

// MaxMarks is how many cache_control marks one request may carry.
// Source: Messages API, prompt caching, "up to 4 cache breakpoints".
const MaxMarks = 4

// Plan says what a request looks like to the mark planner.
type Plan struct {
	Prefix *Prefix // the whole request
	// Entries are what the provider is believed to hold, dead or alive.
	Entries []CacheEntry
	// Live reports whether an entry may still be read now.
	Live func(CacheEntry) bool
	// Snapshot is set for forks.
	Snapshot *Snapshot
	// FirstRequest is true until the fork has had an answer.
	FirstRequest bool
	// PreviousTail is the offset of the tail mark of the run's last answered request; 0 = none.
	PreviousTail int64
	// TTL of every mark: one for a prefix, so that the order of TTLs cannot be wrong. Empty = 5m.
	TTL string
}

// Planned is the planner's answer.
type Planned struct {
	Marks []Mark
	// Prefix is the request's prefix identity and PrefixBytes its length: the
	// snapshot for forks, everything through the last block for main turns.
	Prefix      Digest
	PrefixBytes int64
	// Best is the longest live entry that prefixes this request; nil = none.
	Best *CacheEntry
	// Expired is the longest entry that prefixes this request, is longer than
	// Best and has run out: what could have been read; nil = none.
	Expired *CacheEntry
	// Tail is the offset after the last block of the request.
	Tail int64
}

// PlanMarks chooses at most four marks. A fork's first request: end of system,
// best entry, last placeholder, boilerplate; its tail stays unmarked, so that
// what is read and written at the boilerplate is known exactly. Its later
// requests: end of system, boilerplate, previous tail (the best entry, should
// that one have run out), tail. A main turn: end of system, best entry, the
// place of the previous tail or of a longer entry that should have run out,
// tail. Because the best entry is marked itself, no read depends on the
// provider's look-back of 20 positions.
func PlanMarks(p Plan) (Planned, error) {
	r := p.Prefix
	if r.Count() == 0 {
		return Planned{}, fmt.Errorf("a request needs at least one message")
	}
	var out Planned
	var tail Digest
	out.Tail, tail = r.Tail()
	for i := range p.Entries {
		e := &p.Entries[i]
		if !r.StartsWith(*e) {
			continue
		}
		if p.Snapshot != nil && p.FirstRequest && e.Bytes > p.Snapshot.Bytes {
			continue // behind the last mark, where no read looks
		}
		slot := &out.Best
		if p.Live != nil && !p.Live(*e) {
			slot = &out.Expired
		}
		if *slot == nil || e.Bytes > (*slot).Bytes {
			*slot = e
		}
	}
	if out.Best != nil && out.Expired != nil && out.Best.Bytes >= out.Expired.Bytes {
		out.Expired = nil
	}

	var places [2 * MaxMarks]int64
	want := append(places[:0], r.SystemEnd())
	switch {
	case p.Snapshot == nil:
		want = append(want, out.Tail)
		if out.Best != nil {
			want = append(want, out.Best.Bytes)
		}
		// A lifetime is a minimum, and another process may have sent the last
		// request: a mark more costs nothing and reads what is there after all.
		if out.Expired != nil {
			want = append(want, out.Expired.Bytes)
		} else {
			want = append(want, r.previousTail())
		}
		out.Prefix, out.PrefixBytes = tail, out.Tail
	case p.FirstRequest:
		if out.Best != nil {
			want = append(want, out.Best.Bytes)
		}
		want = append(want, p.Snapshot.PlaceholderEnd, p.Snapshot.Bytes)
		out.Prefix, out.PrefixBytes = p.Snapshot.ID, p.Snapshot.Bytes
	default:
		middle := p.PreviousTail
		if b := out.Best; b != nil && b.Bytes != p.Snapshot.Bytes && b.Bytes != out.Tail {
			middle = b.Bytes // the previous tail itself while that is alive
		}
		want = append(want, p.Snapshot.Bytes, middle, out.Tail)
		out.Prefix, out.PrefixBytes = p.Snapshot.ID, p.Snapshot.Bytes
	}
	slices.Sort(want)
	out.Marks = make([]Mark, 0, MaxMarks)
	for _, off := range slices.Compact(want) {
		e, ok := r.blockAt(off)
		if !ok || !e.markable {
			continue // nothing to mark, or a place that may carry no mark, such as a thinking block
		}
		out.Marks = append(out.Marks, Mark{Block: r.path(e), TTL: ttlOr5m(p.TTL), Offset: off})
	}
	return out, nil
}

func ttlOr5m(ttl string) string {
	if ttl == "" {
		return "5m"
	}
	return ttl
}

// previousTail is where the tail mark of the request before the last answer
// stood: the end of the last user message that an assistant message follows.
func (p *Prefix) previousTail() int64 {
	answered := false
	for l := p; l != nil; l = l.parent {
		switch {
		case l.shared != nil:
			return 0
		case l.role == RoleAssistant:
			answered = true
		case answered && len(l.ends) > 0:
			return l.ends[len(l.ends)-1].offset
		}
	}
	return 0
}

// markable reports whether a block may carry cache_control.
// Source: Messages API, prompt caching: not on thinking blocks and empty text blocks.
func markable(b Block) bool {
	switch b.Type {
	case "text":
		return b.Text != ""
	case "tool_use", "tool_result", "image", "document", "search_result":
		return true
	}
	return false
}
