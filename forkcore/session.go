package forkcore

import (
	"encoding/json"
	"time"
)

// Mode decides what an Agent call without subagent_type means.
type Mode string

// The modes of a session.
const (
	ModeFork        Mode = "fork"
	ModePlain       Mode = "plain"
	ModeCoordinator Mode = "coordinator"
)

// PermissionMode decides which tool calls need a person's word.
type PermissionMode string

// The permission modes.
const (
	PermissionDefault     PermissionMode = "default"
	PermissionAcceptEdits PermissionMode = "acceptEdits"
	PermissionPlan        PermissionMode = "plan"
	PermissionDontAsk     PermissionMode = "dontAsk"
	PermissionBypass      PermissionMode = "bypassPermissions"
)

// Session is one conversation with a main agent in one workspace.
type Session struct {
	ID        string
	Title     string
	Workspace string // absolute path
	// Root is the configured workspace that Workspace is in, as it was named: workers announce which of them they serve.
	Root           string
	Model          string
	Mode           Mode
	PermissionMode PermissionMode
	Thinking       json.RawMessage // as sent to the provider; empty = not sent
	Effort         string          // empty = not sent
	// Betas is the anthropic-beta set as latched when the session was created (see LatchBetas); empty = no header.
	Betas []string
	// Account is the key at its endpoint that the session's requests are bound to (see Scope.Account); empty before the
	// first request. Caches are not shared across accounts for sure, so it changes only when a key replaces another.
	Account       string
	BudgetNanoUSD int64 // 0 = none
	Interactive   bool
	// AutoBackground is after how long a foreground turn moves to a worker; 0 = never.
	AutoBackground time.Duration
	// Notify is the policy of fan-outs that name none; empty = NotifyAllDone.
	Notify NotifyPolicy
	// Head is the blob of the latched request head: tools and system prompt in
	// the bytes that every request of the session starts with.
	Head      Digest
	CreatedAt time.Time
	UpdatedAt time.Time
	Version   int64

	// ActiveRunID is the main turn in progress, empty when the session is idle.
	ActiveRunID string
	// LastRunID is the latest main turn; LastState and LastReason are its end, empty before the first.
	LastRunID  string
	LastState  State
	LastReason *Reason
	// ActiveRuns counts all runs that have not ended, main turn included.
	ActiveRuns int64
	// Descendants counts all forks that were ever started in it, forks of forks included (see Guard).
	Descendants int64
	Usage       Usage
	Cost        Cost
	// AtRiskRequests is the sum of that of its runs.
	AtRiskRequests int64
	// ReservedNanoUSD is what running requests may still cost.
	ReservedNanoUSD int64
	// Warm is the longest prefix the main agent last read or wrote; nil before.
	Warm *CacheEntry
	// CacheSafe is the slot that the last main turn that was done left to side forks; nil before, and in events.
	CacheSafe *CacheSafeParams
	// Archived is where the session lies; nil while all of it is in the database. Only lists show archived sessions: reading one opens it.
	Archived *Archived
}

// State derives the session's state: that of the turn in progress is the
// caller's to fill in; here: waiting while only children run, else the last
// turn's end, and done before the first turn.
func (s Session) State() State {
	switch {
	case s.ActiveRunID != "":
		return Running
	case s.ActiveRuns > 0:
		return Waiting
	case s.LastState != "":
		return s.LastState
	}
	return Done
}

// CacheEntry is what the provider holds at a mark.
type CacheEntry struct {
	Prefix Digest `json:"prefix_sha256"`
	// Bytes is the length of the canonical prefix that Prefix is the hash of.
	Bytes int64 `json:"prefix_bytes"`
	// Tokens is the prefix's token count; Exact when usage showed it, else an estimate.
	Tokens int64 `json:"tokens"`
	Exact  bool  `json:"exact"`
	// TTL is "5m" or "1h".
	TTL string `json:"ttl"`
	// UsedAt is the start of the last request that wrote or read it; lifetime counts from there.
	UsedAt time.Time `json:"used_at"`
	// RunID and N name the request that wrote it.
	RunID string `json:"run_id"`
	N     int64  `json:"n"`
	// Scope is the rest of its key.
	Scope Scope `json:"scope,omitzero"`
	// MessageID is the provider's id of the answer to the request that wrote it; empty = not told.
	MessageID string `json:"message_id,omitempty"`
	// Inside is true when that request went on behind it.
	Inside bool `json:"inside,omitempty"`
}

// ReadBy reports whether a request of that usage read the entry: a count
// estimated from bytes may be off by a tenth, a known one may not.
func (e CacheEntry) ReadBy(u Usage) bool {
	need := e.Tokens
	if !e.Exact {
		need -= e.Tokens / 10
	}
	return u.CacheRead >= need
}

// HeldFor reports whether requests of an account (Scope.Account) may read the entry. Another account may be of the same
// workspace and read it after all, which only a response tells. Where either is not known nothing is ruled out.
func (e CacheEntry) HeldFor(account string) bool {
	own := e.Scope.Account()
	return own == "" || account == "" || own == account
}

// ExpiresAt is when the provider may forget the entry.
func (e CacheEntry) ExpiresAt() time.Time {
	if e.TTL == "1h" {
		return e.UsedAt.Add(time.Hour)
	}
	return e.UsedAt.Add(5 * time.Minute)
}
