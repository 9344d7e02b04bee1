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
	Canonical Canonical
	// Views of the same messages, for block paths.
	Messages []Message
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
	TTL          string
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
	// Digests holds the identity at every mark, by offset.
	Digests map[int64]Digest
	// Tail is the offset after the last block of the request.
	Tail int64
}

// PlanMarks chooses at most four marks. A fork's first request: end of system,
// best entry, last placeholder, boilerplate; its tail stays unmarked, so that
// what is read and written at the boilerplate is known exactly. Its later
// requests: end of system, boilerplate, previous tail (the best entry, should
// that one have run out), tail. A main turn: end of system, best entry, tail. Because the best entry is marked itself, no
// read depends on the provider's look-back of 20 positions.
func PlanMarks(p Plan) (Planned, error) {
	c := p.Canonical
	if len(p.Messages) == 0 {
		return Planned{}, fmt.Errorf("a request needs at least one message")
	}
	out := Planned{Tail: c.BlockEnd(len(p.Messages) - 1)}

	// Hash once, at every offset anybody may ask for.
	offsets := []int64{c.SystemEnd(), out.Tail}
	for _, e := range p.Entries {
		offsets = append(offsets, e.Bytes)
	}
	if p.Snapshot != nil {
		offsets = append(offsets, p.Snapshot.Bytes, p.Snapshot.PlaceholderEnd)
	}
	if p.PreviousTail > 0 {
		offsets = append(offsets, p.PreviousTail)
	}
	out.Digests = c.DigestsAt(offsets...)
	for i := range p.Entries {
		e := p.Entries[i]
		if d, ok := out.Digests[e.Bytes]; !ok || d != e.Prefix {
			continue
		}
		if p.Snapshot != nil && p.FirstRequest && e.Bytes > p.Snapshot.Bytes {
			continue // behind the last mark, where no read looks
		}
		slot := &out.Best
		if p.Live != nil && !p.Live(e) {
			slot = &out.Expired
		}
		if *slot == nil || e.Bytes > (*slot).Bytes {
			*slot = &e
		}
	}
	if out.Best != nil && out.Expired != nil && out.Best.Bytes >= out.Expired.Bytes {
		out.Expired = nil
	}

	want := []int64{c.SystemEnd()}
	switch {
	case p.Snapshot == nil:
		if out.Best != nil {
			want = append(want, out.Best.Bytes)
		}
		want = append(want, out.Tail)
		out.Prefix, out.PrefixBytes = out.Digests[out.Tail], out.Tail
	default:
		if p.FirstRequest {
			if out.Best != nil && out.Best.Bytes < p.Snapshot.Bytes {
				want = append(want, out.Best.Bytes)
			}
			want = append(want, p.Snapshot.PlaceholderEnd, p.Snapshot.Bytes)
		} else {
			middle := p.PreviousTail
			if b := out.Best; b != nil && b.Bytes != p.Snapshot.Bytes && b.Bytes != out.Tail {
				middle = b.Bytes // the previous tail itself while that is alive
			}
			want = append(want, p.Snapshot.Bytes, middle, out.Tail)
		}
		out.Prefix, out.PrefixBytes = p.Snapshot.ID, p.Snapshot.Bytes
	}
	slices.Sort(want)
	seen := map[int64]bool{0: true}
	for _, off := range want {
		if seen[off] {
			continue
		}
		seen[off] = true
		path, ok := blockPath(c, p.Messages, off)
		if !ok {
			continue // a place that may carry no mark, such as a thinking block
		}
		out.Marks = append(out.Marks, Mark{Block: path, TTL: ttlOr5m(p.TTL), Offset: off})
	}
	if len(out.Marks) > MaxMarks {
		return Planned{}, fmt.Errorf("planned %d marks, the API takes %d", len(out.Marks), MaxMarks)
	}
	return out, nil
}

func ttlOr5m(ttl string) string {
	if ttl == "" {
		return "5m"
	}
	return ttl
}

// blockPath names the block that ends at offset. ok is false when no block
// ends there or the block may not be marked.
// Source: Messages API, prompt caching: no cache_control on thinking blocks
// and empty text blocks.
func blockPath(c Canonical, msgs []Message, offset int64) (string, bool) {
	if offset == c.SystemEnd() {
		return jsonPath(c.head[:offset]), closesBlock(c.head, int(offset)-1)
	}
	at := int64(len(c.head))
	for i, m := range msgs {
		if i > 0 {
			at++
		}
		end := at + int64(len(m.Raw))
		if offset > end {
			at = end
			continue
		}
		pos := at + int64(len(AppendOpenMessage(nil, m.Role)))
		for k, b := range m.Blocks {
			if k > 0 {
				pos++
			}
			pos += int64(len(b.Raw))
			if pos == offset {
				return fmt.Sprintf("messages.%d.content.%d", i, k), markable(b)
			}
		}
		return "", false
	}
	return "", false
}

func markable(b Block) bool {
	switch b.Type {
	case "text":
		return b.Text != ""
	case "tool_use", "tool_result", "image", "document", "search_result":
		return true
	}
	return false
}
