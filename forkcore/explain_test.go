package forkcore

import (
	"strings"
	"testing"
	"time"
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
		{"a race", Outcome{Usage: read(0, 1005), Expected: ptr(1000), Best: exact, SentAt: soon, Ungated: true, MinCacheable: 512}, "race", "before a sibling's response began"},
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
