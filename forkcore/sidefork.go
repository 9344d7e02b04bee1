package forkcore

import (
	"fmt"
	"slices"
	"strings"
)

// SideFork is one request beside the conversation: the main agent's bytes and
// one instruction that no log ever holds. Session memory, a suggested prompt
// and a question by the way are such requests.
type SideFork struct {
	// Request is the main agent's history, shared, and the instruction.
	Request *Prefix
	Params  Params
	// Marks are at the end of the system prompt, the longest known entry and
	// the end of the main agent's bytes. The instruction is unmarked: nobody would read it again.
	Marks []Mark
	Body  *Body
}

// NewSideFork builds the request of a side fork from a session's slot and the
// history that the slot describes; any other history is ErrCorrupt. All
// parameters are the slot's: another model, effort or output limit would be
// another cache key. Nothing is written, neither to the slot nor to a log.
func NewSideFork(slot CacheSafeParams, history *Prefix, instruction string) (*SideFork, error) {
	if err := slot.Verify(history); err != nil {
		return nil, err
	}
	if strings.TrimSpace(instruction) == "" {
		return nil, Invalid("instruction", "is empty; say what the side fork should answer")
	}
	if history.Count() > 0 && (history.role != RoleAssistant || len(history.calls) > 0) {
		return nil, fmt.Errorf("%w: a side fork starts from a turn that is done", ErrUnanswered)
	}
	m, err := ParseMessage(EncodeMessage(RoleUser, DirectiveBlock(instruction)))
	if err != nil {
		return nil, err
	}
	f := &SideFork{Request: history.Append(m), Params: slot.Params}
	want := []int64{history.SystemEnd(), slot.PrefixBytes}
	if held := longestEntries(history.entriesOf(slot.Entries), 1); len(held) > 0 {
		want = append(want, held[0].Bytes) // so that no read depends on the provider's look-back
	}
	slices.Sort(want)
	for _, at := range slices.Compact(want) {
		if e, ok := history.blockAt(at); ok && e.markable {
			f.Marks = append(f.Marks, Mark{Block: history.path(e), TTL: ttlOr5m(""), Offset: at})
		}
	}
	f.Body, err = f.Request.Body(f.Marks, f.Params, nil)
	return f, err
}

// entriesOf lists the entries that prefix p.
func (p *Prefix) entriesOf(entries []CacheEntry) []CacheEntry {
	var out []CacheEntry
	for _, e := range entries {
		if p.StartsWith(e) {
			out = append(out, e)
		}
	}
	return out
}

// longestEntries sorts entries, the longest first, and keeps at most n.
func longestEntries(entries []CacheEntry, n int) []CacheEntry {
	slices.SortStableFunc(entries, func(a, b CacheEntry) int { return int(b.Bytes - a.Bytes) })
	return entries[:min(n, len(entries))]
}
