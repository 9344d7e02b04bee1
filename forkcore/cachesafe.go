package forkcore

import (
	"fmt"
	"time"
)

// CacheSafeParams is what a side fork needs in order to send the main agent's
// bytes: the slot of a session that every main turn fills when it is done, and
// nobody else. It names bytes and holds none, so it stays small: the history is
// the main log up to UpToSeq behind the head.
type CacheSafeParams struct {
	// Version rises by one with each main turn that is done, from 1; the store assigns it, RunID and At.
	Version int64     `json:"version"`
	RunID   string    `json:"run_id"`
	At      time.Time `json:"at"`
	// Head is the blob of the request head that the turn sent: its rendered system prompt and its tools.
	Head   Digest `json:"head_sha256"`
	Params Params `json:"params"`
	// Tools are the names in the head's tools array, in order.
	Tools []string `json:"tools"`
	// UpToSeq is the last entry of the main log that the history holds, Messages how many messages that makes.
	UpToSeq  int64 `json:"up_to_seq"`
	Messages int   `json:"messages"`
	// Prefix is the identity of the canonical bytes through the last block of the last message, PrefixBytes their length.
	Prefix      Digest `json:"prefix_sha256"`
	PrefixBytes int64  `json:"prefix_bytes"`
	// Replacements is the digest of the history's ReplacementState.
	Replacements Digest `json:"replacements_sha256"`
	// Entries are the longest of the provider's entries known to prefix the history, at most MaxMarks.
	Entries []CacheEntry `json:"entries,omitempty"`
}

// NewCacheSafeParams describes the history of a main turn that is done. entries
// are all that the provider is believed to hold; those that prefix the history
// are kept.
func NewCacheSafeParams(history *Prefix, p Params, upToSeq int64, replaced ReplacementState, entries []CacheEntry) (CacheSafeParams, error) {
	tools, err := LatchedTools(history.Head().piece)
	if err != nil {
		return CacheSafeParams{}, err
	}
	c := CacheSafeParams{
		Head: history.HeadID(), Params: p, Tools: tools,
		UpToSeq: upToSeq, Messages: history.Count(), Replacements: replaced.Digest(),
		Entries: longestEntries(history.entriesOf(entries), MaxMarks),
	}
	c.PrefixBytes, c.Prefix = history.Tail()
	return c, nil
}

// Verify proves that a history is the one that the slot describes, byte for
// byte. Another one is ErrCorrupt: what a fork of it would send is not what the
// main agent sent.
func (c CacheSafeParams) Verify(history *Prefix) error {
	n, id := history.Tail()
	if n == c.PrefixBytes && id == c.Prefix && history.Count() == c.Messages {
		return nil
	}
	return fmt.Errorf("the history up to log entry %d has %d messages and the identity %s over %d bytes, turn %s sent %d messages, %s over %d bytes: %w",
		c.UpToSeq, history.Count(), id, n, c.RunID, c.Messages, c.Prefix, c.PrefixBytes, ErrCorrupt)
}
