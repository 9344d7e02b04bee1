package forkcore

import (
	"bytes"
	"encoding/json"
	"time"
)

// RefreshMargin is how long before its entry expires a request that keeps it alive is sent.
const RefreshMargin = 30 * time.Second

// RefreshPays reports whether keeping an entry alive once costs less than what it saves the next request: a read now against a
// write instead of a read then. spent is what was spent on keeping it alive since it was last used for anything, in
// nano-dollars; what it may save is spent once.
func RefreshPays(rates Rates, e CacheEntry, spent int64) bool {
	read := rates.Cost(Usage{CacheRead: e.Tokens})
	again := rates.Cost(Usage{CacheWrite5m: e.Tokens})
	if e.TTL == "1h" {
		again = rates.Cost(Usage{CacheWrite1h: e.Tokens})
	}
	return e.Tokens > 0 && spent+read < again-read
}

// Prewarmable reports whether a request with these settings may be sent with max_tokens 0.
// Source: Messages API, prompt caching, pre-warming: not with thinking of type enabled, nor with a tool choice of any or tool.
func (p Params) Prewarmable() bool {
	var t struct {
		Type string `json:"type"`
	}
	for _, raw := range []json.RawMessage{p.Thinking, p.ToolChoice} {
		if len(bytes.TrimSpace(raw)) == 0 {
			continue
		}
		if json.Unmarshal(raw, &t) != nil || t.Type == "enabled" || t.Type == "any" || t.Type == "tool" {
			return false
		}
	}
	return true
}
