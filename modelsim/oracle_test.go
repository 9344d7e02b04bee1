package modelsim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// oracle is a second, slow account of the cache's rules. It keeps whole prefixes as strings, scans all of them, and shares
// no code with the cache.
type oracle struct {
	prefixes map[string]oracleEntry
}

type oracleEntry struct {
	life    time.Duration
	expires time.Time
}

// oracleBlock is a tool, a system block or a message block.
type oracleBlock struct {
	tier, name string
	tokens     int
	ttl        string // of its mark, "" for none
}

// oracleRequest is a request as the rules see it.
type oracleRequest struct {
	workspace, model, betas, effort, choice string
	blocks                                  []oracleBlock
}

// oracleMinimum is the minimum cacheable length of the two models of the property tests.
var oracleMinimum = map[string]int{"claude-opus-5": 60, "claude-sonnet-4-6": 90}

func (o *oracle) ask(r oracleRequest, now time.Time) classes {
	minimum := oracleMinimum[r.model]
	prefix, sum := r.workspace+"/"+r.model+"/"+r.betas, 0
	keys, sums := make([]string, len(r.blocks)), make([]int, len(r.blocks))
	for i, b := range r.blocks {
		effort := r.effort
		if effort == "" {
			effort = "high" // the default of both models
		}
		switch { // settings count for their tier and what follows
		case b.tier == "system" && r.model == "claude-opus-5":
			prefix += "|effort=" + effort
		case b.tier == "messages":
			prefix += "|effort=" + effort + ",choice=" + r.choice
		}
		prefix += fmt.Sprintf("|%s/%s:%d", b.tier, b.name, b.tokens)
		sum += b.tokens
		keys[i], sums[i] = prefix, sum
	}
	// Every position that some mark can see, whatever the order of looking.
	hit := -1
	for m, b := range r.blocks {
		for i := range r.blocks {
			if b.ttl != "" && sums[m] >= minimum && i <= m && m-i <= 19 && i > hit && o.prefixes[keys[i]].expires.After(now) {
				hit = i
			}
		}
	}
	read := 0
	if hit >= 0 {
		read = sums[hit]
	}
	var w5, w1 int
	last := read
	for i, b := range r.blocks {
		if b.ttl == "" || sums[i] < minimum || i <= hit {
			continue
		}
		if b.ttl == "1h" { // everything since the hit up to here is kept for an hour
			w1, w5 = sums[i]-read, 0
		} else {
			w5 = sums[i] - read - w1
		}
		last = sums[i]
	}
	renew := func(key string, life time.Duration) {
		if e := o.prefixes[key]; e.expires.After(now) {
			life = e.life
		}
		o.prefixes[key] = oracleEntry{life, now.Add(life)}
	}
	for i, b := range r.blocks {
		switch {
		case i == hit:
			renew(keys[i], 0)
		case b.ttl == "5m" && sums[i] >= minimum:
			renew(keys[i], 5*time.Minute)
		case b.ttl == "1h" && sums[i] >= minimum:
			renew(keys[i], time.Hour)
		}
	}
	return classes{sum - last, w5, w1, read}
}

// body writes the request. Each block's JSON is tokens*4 bytes long without its mark.
func (r oracleRequest) body() string {
	tiers := map[string][]string{}
	for i, b := range r.blocks {
		open, end := `{"type":"text","text":"`+b.name, `"}`
		if b.tier == "tools" { // names of tools are unique
			open, end = fmt.Sprintf(`{"name":"%s%d","input_schema":{"type":"object"},"description":"`, b.name, i), `"}`
		}
		json := open + strings.Repeat("x", b.tokens*4-len(open)-len(end)) + `"`
		if b.ttl != "" {
			json += "," + marked(b.ttl)
		}
		tiers[b.tier] = append(tiers[b.tier], json+"}")
	}
	list := func(tier string) string { return "[" + strings.Join(tiers[tier], ",") + "]" }
	settings := ""
	if r.effort != "" {
		settings += `"output_config":{"effort":"` + r.effort + `"},`
	}
	if r.choice != "" {
		settings += `"tool_choice":{"type":"` + r.choice + `"},`
	}
	return `{"model":"` + r.model + `","max_tokens":10,` + settings + `"tools":` + list("tools") + `,"system":` + list("system") + `,"messages":[` +
		`{"role":"user","content":` + list("messages") + `}]}`
}

// oracleSequence makes one random sequence: branches that share a head, grow, fork, move their marks, pause, and now and
// then change a setting.
type oracleSequence struct {
	rng      *rand.Rand
	head     []oracleBlock
	branches [][]oracleBlock
}

func newSequence(seed uint64) *oracleSequence {
	s := &oracleSequence{rng: rand.New(rand.NewPCG(seed, 7)), branches: [][]oracleBlock{nil}}
	for i := range 1 + s.rng.IntN(3) {
		s.head = append(s.head, oracleBlock{tier: "tools", name: string(rune('a' + i)), tokens: 25})
	}
	for i := range s.rng.IntN(3) {
		s.head = append(s.head, oracleBlock{tier: "system", name: string(rune('a' + i)), tokens: 20 + 30*s.rng.IntN(2)})
	}
	return s
}

func (s *oracleSequence) pause() time.Duration {
	return []time.Duration{0, 0, time.Second, 2 * time.Minute, 5 * time.Minute, 20 * time.Minute, time.Hour}[s.rng.IntN(7)]
}

func (s *oracleSequence) next() oracleRequest {
	rng := s.rng
	at := rng.IntN(len(s.branches))
	if rng.IntN(4) == 0 { // fork: siblings share all so far
		cut := rng.IntN(len(s.branches[at]) + 1)
		s.branches = append(s.branches, append([]oracleBlock(nil), s.branches[at][:cut]...))
		at = len(s.branches) - 1
	}
	for range []int{1, 1, 2, 3, 9, 18, 19, 20}[rng.IntN(8)] {
		s.branches[at] = append(s.branches[at], oracleBlock{tier: "messages", name: string(rune('a' + rng.IntN(2))), tokens: 10 + 10*rng.IntN(2)})
	}
	blocks := append(append([]oracleBlock(nil), s.head...), s.branches[at]...)
	// Mostly at the places where marks are put: the end, the end of the head, where earlier requests ended.
	places := map[int]bool{len(blocks) - 1: rng.IntN(4) > 0, len(s.head) - 1: rng.IntN(2) == 0}
	for range rng.IntN(3) {
		places[rng.IntN(len(blocks))] = true
	}
	short := rng.IntN(2 * len(blocks)) // marks from here on live 5 minutes
	for i := range blocks {
		switch {
		case places[i] && i < short && rng.IntN(2) == 0:
			blocks[i].ttl = "1h"
		case places[i]:
			blocks[i].ttl, short = "5m", 0
		}
	}
	pick := func(usual string, others ...string) string {
		if rng.IntN(8) > 0 {
			return usual
		}
		return others[rng.IntN(len(others))]
	}
	return oracleRequest{
		workspace: pick("", "other"), model: pick("claude-opus-5", "claude-sonnet-4-6"), betas: pick("", "b1", "b1,b2"),
		effort: pick("", "high", "low"), choice: pick("", "auto", "none"), blocks: blocks,
	}
}

// headers are the request's headers beside the usual ones.
func (r oracleRequest) headers() []header {
	var out []header
	if r.workspace != "" {
		out = append(out, with("anthropic-workspace-id", r.workspace))
	}
	if r.betas != "" {
		out = append(out, with("anthropic-beta", r.betas))
	}
	return out
}

// agree runs sequences from seed on and compares what ask says with the oracle.
func agree(t *testing.T, first, sequences uint64, ask func(sim *Server, r oracleRequest, now time.Time) classes) {
	hits, written, requests := 0, 0, 0
	for seed := first; seed < first+sequences; seed++ {
		now := noon
		sim := New(Options{Mind: say(TextBlock("ok")), Now: func() time.Time { return now }, MinCacheable: oracleMinimum, RecordLimit: 1})
		o := &oracle{prefixes: map[string]oracleEntry{}}
		s := newSequence(seed)
		for n := range 3 + s.rng.IntN(6) {
			now = now.Add(s.pause())
			r := s.next()
			want := o.ask(r, now)
			if got := ask(sim, r, now); got != want {
				t.Fatalf("sequence %d request %d: simulator %+v, oracle %+v\n%s", seed, n, got, want, r.body())
			}
			requests++
			if want.Read > 0 {
				hits++
			}
			if want.Write5m+want.Write1h > 0 {
				written++
			}
		}
	}
	t.Logf("%d requests, %d read, %d wrote", requests, hits, written)
	if hits < requests/10 || written < requests/10 {
		t.Errorf("%d of %d requests read and %d wrote: the sequences prove nothing", hits, requests, written)
	}
}

func TestCacheAgreesWithOracle(t *testing.T) {
	agree(t, 0, 10_000, func(sim *Server, r oracleRequest, now time.Time) classes {
		body, p, err := sim.read(newRequest(context.Background(), "POST", messagesPath, r.body(), r.headers()...), false)
		if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		v := sim.cache.look(p, "w"+r.workspace, now, now)
		sim.cache.commit(p, v, "w"+r.workspace, "msg", now, now)
		return classesOf(v.usage)
	})
}

func TestAnswersAgreeWithOracle(t *testing.T) {
	agree(t, 1<<20, 300, func(sim *Server, r oracleRequest, _ time.Time) classes {
		return classesOf(usageOf(t, direct(sim, r.body(), r.headers()...)))
	})
}
