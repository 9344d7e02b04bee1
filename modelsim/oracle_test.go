package modelsim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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
	tier, role, kind, name string // kind: "" for text or a tool of the client, web, image, cited
	tokens                 int
	ttl                    string // of its mark, "" for none
}

// oracleRequest is a request as the rules see it.
type oracleRequest struct {
	workspace, model, betas, effort, choice, thinking string
	blocks                                            []oracleBlock
	split                                             bool // each block is a message of its own
}

// oracleMinimum is the minimum cacheable length of the two models of the property tests.
var oracleMinimum = map[string]int{"claude-opus-5": 60, "claude-sonnet-4-6": 90}

func (o *oracle) ask(r oracleRequest, now time.Time) classes {
	minimum := oracleMinimum[r.model]
	prefix, sum := r.workspace+"/"+r.model+"/"+r.betas, 0
	has := map[string]bool{} // kinds, wherever they are
	for _, b := range r.blocks {
		has[b.kind] = true
	}
	keys, sums := make([]string, len(r.blocks)), make([]int, len(r.blocks))
	for i, b := range r.blocks {
		effort := r.effort
		if effort == "" {
			effort = "high" // the default of both models
		}
		// Settings count for their tier and what follows.
		if b.tier != "tools" {
			prefix += fmt.Sprintf("|web=%v,cites=%v", has["web"], has["cited"])
		}
		switch {
		case b.tier == "system" && r.model == "claude-opus-5":
			prefix += "|effort=" + effort
		case b.tier == "messages":
			prefix += fmt.Sprintf("|effort=%s,choice=%s,thinking=%s,images=%v", effort, r.choice, r.thinking, has["image"])
		}
		sum += b.tokens
		sums[i] = sum
		keys[i] = prefix + fmt.Sprintf("|%s/%s/%s/%s:%d", b.tier, b.role, b.kind, b.name, b.tokens)
		if b.kind != "web" { // switching it keeps the tools
			prefix = keys[i]
		}
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
		switch {
		case b.kind == "web":
			open, end = `{"type":"web_search_20260209","name":"web_search","allowed_domains":["`+b.name, `"]}`
		case b.tier == "tools": // names of tools are unique
			open = `{"name":"` + b.name + `","input_schema":{"type":"object"},"description":"`
		case b.kind == "image":
			open, end = `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+b.name, `"}}`
		case b.kind == "cited":
			open, end = `{"type":"document","citations":{"enabled":true},"source":{"type":"text","media_type":"text/plain","data":"`+b.name, `"}}`
		}
		json := open + strings.Repeat("x", b.tokens*4-len(open)-len(end)) + end
		if b.ttl != "" {
			json = json[:len(json)-1] + "," + marked(b.ttl) + "}"
		}
		if b.tier != "messages" {
			tiers[b.tier] = append(tiers[b.tier], json)
			continue
		}
		if turns := tiers["messages"]; !r.split && len(turns) > 0 && r.blocks[i-1].role == b.role {
			turns[len(turns)-1] = strings.TrimSuffix(turns[len(turns)-1], "]}") + "," + json + "]}"
			continue
		}
		tiers["messages"] = append(tiers["messages"], `{"role":"`+b.role+`","content":[`+json+"]}")
	}
	list := func(tier string) string { return "[" + strings.Join(tiers[tier], ",") + "]" }
	settings := ""
	if r.effort != "" {
		settings += `"output_config":{"effort":"` + r.effort + `"},`
	}
	if r.choice != "" {
		settings += `"tool_choice":{"type":"` + r.choice + `"},`
	}
	if r.thinking != "" {
		settings += `"thinking":{"type":"` + r.thinking + `"},`
	}
	return `{"model":"` + r.model + `","max_tokens":10,` + settings + `"tools":` + list("tools") + `,"system":` + list("system") + `,"messages":` + list("messages") + `}`
}

// oracleSequence makes one random sequence: branches that share a head, grow, fork, move their marks, pause, and now and
// then change a setting.
type oracleSequence struct {
	rng      *rand.Rand
	head     []oracleBlock
	tools    int // how many of head are tools
	branches [][]oracleBlock
}

func newSequence(seed uint64) *oracleSequence {
	s := &oracleSequence{rng: rand.New(rand.NewPCG(seed, 7)), branches: [][]oracleBlock{nil}}
	s.tools = 1 + s.rng.IntN(3)
	for i := range s.tools {
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
		b := oracleBlock{tier: "messages", role: "user", name: string(rune('a' + rng.IntN(2))), tokens: 10 + 10*rng.IntN(2)}
		switch rng.IntN(100) {
		case 0:
			b.kind, b.tokens = "image", 30
		case 1:
			b.kind, b.tokens = "cited", 30
		default:
			if rng.IntN(3) == 0 {
				b.role = "assistant"
			}
		}
		s.branches[at] = append(s.branches[at], b)
	}
	if s.branches[at][len(s.branches[at])-1].role == "assistant" { // no model of the test takes a prefill
		s.branches[at] = append(s.branches[at], oracleBlock{tier: "messages", role: "user", name: "a", tokens: 10})
	}
	head := s.head
	if rng.IntN(12) == 0 { // among the tools, or last of them
		at := rng.IntN(3)
		head = slices.Insert(slices.Clone(s.head), min(at, s.tools), oracleBlock{tier: "tools", kind: "web", name: "a", tokens: 30})
	}
	blocks := append(slices.Clone(head), s.branches[at]...)
	// Mostly at the places where marks are put: the end, the end of the head, where earlier requests ended.
	places := map[int]bool{len(blocks) - 1: rng.IntN(4) > 0, len(head) - 1: rng.IntN(2) == 0}
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
		if rng.IntN(16) > 0 {
			return usual
		}
		return others[rng.IntN(len(others))]
	}
	return oracleRequest{
		workspace: pick("", "other"), model: pick("claude-opus-5", "claude-sonnet-4-6"), betas: pick("", "b1", "b1,b2"),
		effort: pick("", "high", "low"), choice: pick("", "auto", "none"), thinking: pick("", "adaptive", "disabled"), blocks: blocks,
		split: rng.IntN(4) == 0,
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
