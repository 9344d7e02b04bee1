package web

import (
	"strings"
	"testing"

	"forkyard/forkcore"
)

func TestNewWhy(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	leader := &forkcore.RequestRef{RunID: mainID, N: 1}
	own := &forkcore.RequestRef{RunID: "run_03bbbbbbbbbbbbbbbb", N: 2}
	read := func(read, written, input int64) *forkcore.Usage {
		return &forkcore.Usage{CacheRead: read, CacheWrite5m: written, Input: input}
	}
	miss := func(code string) *forkcore.MissReason { return &forkcore.MissReason{Code: code} }
	tests := []struct {
		name    string
		row     forkcore.RequestRow
		verdict string
		say     []string
		advice  string
	}{
		{"all", forkcore.RequestRow{Usage: read(12345, 0, 9), ExpectedRead: n(12345), ExpectedExact: true, ExpectedFrom: leader}, "hit", []string{"Read all 12,345 tokens that request 1 of “Leader” left in the cache."}, ""},
		{"all of an estimate", forkcore.RequestRow{Usage: read(990, 0, 9), ExpectedRead: n(1000), ExpectedFrom: leader}, "hit", []string{"Read 990 tokens", "about 1,000 tokens (estimated)"}, ""},
		{"more", forkcore.RequestRow{Usage: read(1200, 0, 9), ExpectedRead: n(1000), ExpectedExact: true, ExpectedFrom: own}, "hit", []string{"Read 1,200 tokens, 200 tokens more than the 1,000 tokens that request 2 of this run left in the cache."}, ""},
		{"unexpected", forkcore.RequestRow{Usage: read(1200, 0, 9), ExpectedRead: n(0)}, "hit", []string{"Read 1,200 tokens that nobody here knew"}, ""},
		{"part", forkcore.RequestRow{Usage: read(400, 600, 9), ExpectedRead: n(1000), ExpectedExact: true, ExpectedFrom: leader, Miss: &forkcore.MissReason{Code: "messages", Path: "messages.3.content.0.text", Detail: "byte 17"}}, "partial", []string{"Read 400 tokens of 1,000 tokens that request 1 of “Leader” left in the cache: the messages differ at messages.3.content.0.text (byte 17)."}, "Compare"},
		{"part, answer not complete", forkcore.RequestRow{Status: forkcore.RequestOpen, Usage: read(400, 600, 9), ExpectedRead: n(1000), ExpectedExact: true}, "partial", []string{"Read 400 tokens of 1,000 tokens. The reason is worked out when"}, ""},
		{"miss, answer not complete", forkcore.RequestRow{Status: forkcore.RequestOpen, Usage: read(0, 600, 9), ExpectedRead: n(1000)}, "miss", []string{"Read nothing from the cache although about 1,000 tokens (estimated) were expected. The reason"}, ""},
		{"model", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), ExpectedExact: true, Miss: miss("model")}, "miss", []string{"Read nothing from the cache although 50 tokens were expected: the model"}, "Keep the model"},
		{"tools", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: &forkcore.MissReason{Code: "tools", Path: "tools.2.name"}}, "miss", []string{"tools differ at tools.2.name"}, "Compare"},
		{"system", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("system")}, "miss", []string{"system prompt differs"}, "Compare"},
		{"thinking", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("thinking")}, "miss", []string{"thinking or effort"}, "Keep thinking"},
		{"expired", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(0), Miss: &forkcore.MissReason{Code: "expired", Detail: "an entry of 50 tokens ran out 3s before; read 0"}}, "miss", []string{"Read nothing from the cache: what was cached had run out (an entry of 50 tokens ran out 3s before; read 0)."}, "Dispatch sooner"},
		{"expired, shorter one read", forkcore.RequestRow{Usage: read(30, 9, 9), ExpectedRead: n(30), ExpectedExact: true, ExpectedFrom: leader, Miss: miss("expired")}, "partial", []string{"Read 30 tokens: what was cached had run out."}, "Dispatch sooner"},
		{"too short", forkcore.RequestRow{Usage: read(0, 0, 90), ExpectedRead: n(0), Miss: miss("too_short")}, "miss", []string{"shorter than what this model caches"}, "Nothing to repair"},
		{"look back", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("look_back")}, "miss", []string{"20 blocks"}, "marks its own end"},
		{"race", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("race")}, "miss", []string{"before the response that writes"}, "gate"},
		{"other key", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("other_key")}, "miss", []string{"another API key"}, "one provider workspace"},
		{"provider", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("provider")}, "miss", []string{"a difference that the bytes do not show"}, "verdict"},
		{"unknown cause", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), ExpectedFrom: &forkcore.RequestRef{RunID: "run_03cccccccccccccccc", N: 4}, Miss: &forkcore.MissReason{Code: "unknown", Detail: "expected 50 tokens from the cache, read 0"}}, "miss", []string{"request 4 of run_03cccccccccccccccc left in the cache were expected: the cause cannot be told from here."}, "Compare"},
		{"a code of tomorrow", forkcore.RequestRow{Usage: read(0, 9, 9), ExpectedRead: n(50), Miss: miss("moon_phase")}, "miss", []string{"“moon_phase”"}, ""},
		{"cold", forkcore.RequestRow{Usage: read(0, 5000, 9), ExpectedRead: n(0)}, "cold", []string{"wrote 5,000 tokens for those that come after"}, ""},
		{"nothing cached", forkcore.RequestRow{Usage: read(0, 0, 1)}, "cold", []string{"1 token of input at the full price"}, ""},
		{"in flight", forkcore.RequestRow{Status: forkcore.RequestOpen, ExpectedRead: n(70)}, "unknown", []string{"In flight", "Expected are 70 tokens."}, ""},
		{"cut off", forkcore.RequestRow{Status: forkcore.RequestAborted, ExpectedRead: n(70)}, "unknown", []string{"unknown, not zero"}, "bill"},
		{"failed", forkcore.RequestRow{Status: forkcore.RequestError}, "unknown", []string{"Failed before"}, "retry"},
		{"refused key", forkcore.RequestRow{Status: forkcore.RequestError, KeyRefused: true}, "unknown", []string{"The provider refused the key: it read and wrote nothing"}, "a key that works"},
		{"no usage", forkcore.RequestRow{Status: forkcore.RequestOK}, "unknown", []string{"answered without saying"}, "bill"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.row.RunID = own.RunID
			v := newNamedWhy(tt.row, map[string]string{mainID: "Leader"})
			if v.Verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", v.Verdict, tt.verdict)
			}
			for _, s := range tt.say {
				if !strings.Contains(v.Sentence, s) {
					t.Errorf("sentence %q does not say %q", v.Sentence, s)
				}
			}
			if !strings.Contains(v.Advice, tt.advice) || tt.advice == "" && v.Advice != "" {
				t.Errorf("advice %q, want %q", v.Advice, tt.advice)
			}
			if tt.row.Usage == nil && strings.Contains(v.Sentence, " 0 ") {
				t.Errorf("%q shows the unknown as zero", v.Sentence)
			}
		})
	}
}
