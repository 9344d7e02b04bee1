package forkcore

import (
	"encoding/json"
	"time"
)

// Params are the parts of a request that belong to the cache key or must be
// equal for all who share a prefix. A fork takes them from its snapshot, never
// from its own wishes.
type Params struct {
	Model      string          `json:"model"`
	Thinking   json.RawMessage `json:"thinking,omitempty"`
	Effort     string          `json:"effort,omitempty"`
	ToolChoice json.RawMessage `json:"tool_choice,omitempty"`
	// Betas is the anthropic-beta set in its latched order.
	Betas     []string `json:"betas,omitempty"`
	MaxTokens int64    `json:"max_tokens"`
}

// Segment is one stored piece of a snapshot.
type Segment struct {
	SHA256 Digest `json:"sha256"`
	Bytes  int64  `json:"bytes"`
	// Open marks a last message whose content array is not closed yet; what
	// follows in a request is ",<block>...]}".
	Open bool `json:"open,omitempty"`
}

// Snapshot is the manifest of a stored prefix. Its canonical bytes are segment
// 0 (the request head, from the first "{" through the "[" of "messages")
// followed by the message segments joined with ",". ID is the SHA-256 of those
// bytes, Bytes their length.
type Snapshot struct {
	ID        Digest    `json:"sha256"`
	SessionID string    `json:"session_id"`
	Bytes     int64     `json:"bytes"`
	Segments  []Segment `json:"segments"`
	Params    Params    `json:"params"`
	// Tools are the names in the latched tools array, in order.
	Tools []string `json:"tools"`
	// Placeholders counts the tool_result placeholders in the open message; 0 for dispatches by a person or the API.
	Placeholders int `json:"placeholders"`
	// PlaceholderEnd is the canonical offset after the last placeholder; 0 without any.
	PlaceholderEnd int64 `json:"placeholder_end,omitempty"`
	// BoilerplateVersion says which rules the prefix ends with; 0 where they were not counted yet.
	BoilerplateVersion int `json:"boilerplate_version"`
	// UpToSeq is the last entry that the prefix holds of the log that dispatched: the main log, or that of a fork that forks.
	UpToSeq int64 `json:"up_to_seq"`
	// Replacements are the decisions about the tool results that the prefix holds.
	Replacements ReplacementState `json:"replacements,omitempty"`
	// Entries are the provider's cache entries known to prefix it when it was taken.
	Entries   []CacheEntry `json:"entries"`
	CreatedAt time.Time    `json:"created_at"`
}
