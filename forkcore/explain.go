package forkcore

import (
	"fmt"
	"time"
)

// Outcome is what Explain looks at after a response.
type Outcome struct {
	Usage    Usage
	Expected *int64
	// Best is the entry whose tokens were expected.
	Best *CacheEntry
	// Expired is a longer entry that had run out when the request was sent; nil = none.
	Expired *CacheEntry
	// MinCacheable is the model's minimum; 0 = not known.
	MinCacheable int64
	// SentAt is when the request was sent.
	SentAt time.Time
	// Ungated is true for a fork that was sent before any sibling's response began.
	Ungated bool
}

// Explain says why a request read less than expected; nil when it read at
// least that much, or when nothing was expected and nothing was to be had. It
// never guesses silently: what it cannot tell is "unknown".
func Explain(o Outcome) *MissReason {
	// A count estimated from bytes may be off by a little; a known one may not.
	slack := func(e *CacheEntry) int64 {
		if e == nil || e.Exact {
			return 0
		}
		return e.Tokens / 10
	}
	if x := o.Expired; x != nil && o.Usage.CacheRead < x.Tokens-slack(x) {
		return &MissReason{Code: "expired", Detail: fmt.Sprintf("an entry of %d tokens ran out %s before; read %d", x.Tokens, o.SentAt.Sub(x.ExpiresAt()).Round(time.Second), o.Usage.CacheRead)}
	}
	if o.Expected == nil || *o.Expected == 0 {
		if o.Usage.Cached() == 0 && o.MinCacheable > 0 && o.Usage.TotalInput() < o.MinCacheable {
			return &MissReason{Code: "too_short", Detail: fmt.Sprintf("%d tokens; this model caches prefixes from %d", o.Usage.TotalInput(), o.MinCacheable)}
		}
		return nil
	}
	if o.Usage.CacheRead >= *o.Expected-slack(o.Best) {
		return nil
	}
	detail := fmt.Sprintf("expected %d tokens from the cache, read %d", *o.Expected, o.Usage.CacheRead)
	switch {
	case o.MinCacheable > 0 && o.Usage.TotalInput() < o.MinCacheable:
		return &MissReason{Code: "too_short", Detail: fmt.Sprintf("%s; this model caches prefixes from %d", detail, o.MinCacheable)}
	case o.Ungated:
		return &MissReason{Code: "race", Detail: detail + "; it was sent before a sibling's response began"}
	}
	return &MissReason{Code: "unknown", Detail: detail}
}
