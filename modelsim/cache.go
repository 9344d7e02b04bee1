package modelsim

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lookBack is the number of positions that one mark looks at, itself included.
const lookBack = 20

// Entry is one prefix the cache holds.
type Entry struct {
	// Hash identifies the prefix, with all that the provider's key holds besides the bytes.
	Hash string `json:"hash"`
	// Model is the id the writer asked for.
	Model string `json:"model"`
	// Workspace is the id of the key's workspace.
	Workspace string `json:"workspace"`
	// Path is the marked block, for example messages.3.content.1.
	Path string `json:"path"`
	// Tokens is the length of the prefix.
	Tokens int `json:"tokens"`
	// TTL is 5m or 1h.
	TTL string `json:"ttl"`
	// CreatedAt and UsedAt are the starts of the requests that wrote and last used the entry.
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// VisibleAt is when it becomes readable: when the response began that wrote it, and Options.VisibilityLag later.
	VisibleAt time.Time `json:"visible_at"`
	// Reads counts the responses that read from here.
	Reads int `json:"reads"`
	// MessageID is the response that wrote the entry.
	MessageID string `json:"message_id"`
}

type digest [sha256.Size]byte

// cache holds the entries. What a request reads is settled when it arrives; what it writes is there when its response
// begins.
type cache struct {
	ttl5m, ttl1h, lag time.Duration
	ttlInKey          bool
	missRate          float64

	mu      sync.Mutex
	rng     *rand.Rand
	entries map[entryKey]*Entry
}

// entryKey finds an entry; ttl is "" unless it is part of the key.
type entryKey struct {
	prefix digest
	ttl    string
}

// key is the key of the entry at position i that a mark with that ttl writes or looks for.
func (c *cache) key(v *verdict, i int, ttl string) entryKey {
	if !c.ttlInKey {
		ttl = ""
	}
	return entryKey{v.chain[i], ttl}
}

func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}

// verdict is what the cache says about one request.
type verdict struct {
	chain  []digest // per position, of the prefix that ends there
	sums   []int    // per position, tokens of that prefix
	marked []int    // positions whose prefix is long enough to be an entry, ascending
	hit    int      // position of the longest entry found, -1 for none
	entry  *Entry   // the entry found
	key    entryKey // of entry
	usage  Usage
}

// chain hashes the prompt position by position. What parts caches as a whole stands first, what parts them from a tier on
// before that tier's first position, so that a change leaves the tiers before it readable:
//
//   - all: workspace, model, speed, the set of beta headers, then the tools themselves. For speed the documentation has it
//     both ways; its page on fast mode says that the speeds share nothing.
//   - system: web search and web fetch on or off (these tools' definitions are therefore no part of the tools that follow
//     them), citations on or off, and on Opus 5 the effort.
//   - messages: thinking type and budget (whether another configuration misses more is said to depend on the model, not
//     how), effort, tool_choice with disable_parallel_tool_use, output format, and whether there are images at all: "added
//     or removed anywhere" is read as the first one or the last.
//
// max_tokens, stream, metadata, stop_sequences, service_tier and thinking.display are listed nowhere and change nothing.
// An effort set by a system message inside the conversation counts from there on. Consecutive messages of one role are one
// turn, as the provider merges them, so only roles part messages.
func (p *prompt) chain(workspace string) ([]digest, []int) {
	h := sha256.New()
	var state digest
	mix := func(parts ...string) {
		h.Reset()
		h.Write(state[:])
		for _, s := range parts {
			writeFramed(h, []byte(s))
		}
		h.Sum(state[:0])
	}
	mix("messages-api", workspace, p.model.id, p.speed, strings.Join(p.betas, ","))
	chain, sums := make([]digest, len(p.positions)), make([]int, len(p.positions))
	web := []string{"system"}
	images, cites := 0, false
	for i := range p.positions {
		images, cites = images+p.positions[i].images, cites || p.positions[i].cites
	}
	tier, sum := tierTools, 0
	for i := range p.positions {
		pos := &p.positions[i]
		if tier == tierTools && pos.tier != tierTools {
			effort := ""
			if p.model.effortInSystem {
				effort = p.effort
			}
			mix(append(web, strconv.FormatBool(cites), effort)...)
		}
		if tier != tierMessages && pos.tier == tierMessages {
			mix("messages", p.thinkingKey(), p.effort, string(p.toolChoice), string(p.format), strconv.FormatBool(images > 0))
		}
		tier = pos.tier
		if pos.effort != "" {
			mix("effort", pos.effort)
		}
		before := state
		h.Reset()
		h.Write(state[:])
		writeFramed(h, []byte{byte(pos.tier)})
		writeFramed(h, []byte(pos.role))
		writeFramed(h, pos.clean)
		h.Sum(state[:0])
		sum += pos.tokens()
		chain[i], sums[i] = state, sum
		if pos.tier == tierTools && (strings.HasPrefix(pos.kind, "web_search_") || strings.HasPrefix(pos.kind, "web_fetch_")) {
			web, state = append(web, string(pos.clean)), before
		}
	}
	return chain, sums
}

// thinkingKey is the part of the thinking configuration that the cache is keyed by.
func (p *prompt) thinkingKey() string {
	if p.thinking == nil {
		return ""
	}
	return p.Thinking + " " + string(lookup(members(p.thinking), "budget_tokens"))
}

// writeFramed writes b after its length, so that no two lists of parts give the same bytes.
func writeFramed(h hash.Hash, b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	h.Write(n[:])
	h.Write(b)
}

// look finds what the request reads, as of its start: from each mark, last one first, the nearest entry at most 20
// positions back. The first found is the longest: an earlier mark can only see shorter ones. What is readable is decided
// at now, which is later than start when the body was slow to come.
func (c *cache) look(p *prompt, workspace string, start, now time.Time) *verdict {
	v := &verdict{hit: -1}
	v.chain, v.sums = p.chain(workspace)
	for i := range p.positions {
		if len(p.positions[i].marks) > 0 && v.sums[i] >= p.model.minCacheable {
			v.marked = append(v.marked, i)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range slices.Backward(v.marked) {
		for i := at; i >= 0 && i > at-lookBack && v.hit < 0; i-- {
			key := c.key(v, i, p.positions[at].ttl())
			if e := c.entries[key]; e != nil && start.Before(e.ExpiresAt) && !now.Before(e.VisibleAt) {
				v.hit, v.entry, v.key = i, e, key
			}
		}
		if v.hit >= 0 {
			break
		}
	}
	if c.missRate > 0 && c.rng.Float64() < c.missRate {
		v.hit, v.entry = -1, nil
	}
	v.usage = p.bill(v)
	return v
}

// commit is called when the response begins: it writes an entry at each mark and counts the lifetime of what was read,
// and of what is marked, from the start of the request. A mark at or before the hit is not billed again; its entry, when
// it is no longer there, is restored with it, since that prefix was read as part of the longer one. What is committed
// stays when the client goes away afterwards: the provider does not say, but the prompt has been processed by then.
func (c *cache) commit(p *prompt, v *verdict, workspace, messageID string, start, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.entries {
		if !start.Before(e.ExpiresAt) && e != v.entry {
			delete(c.entries, k)
		}
	}
	if v.entry != nil {
		e := c.entries[v.key]
		if e == nil { // it expired and went while the response was prepared
			e = v.entry
			c.entries[v.key] = e
		}
		e.Reads++
		c.touch(e, start)
	}
	for _, i := range v.marked {
		ttl := p.positions[i].ttl()
		key := c.key(v, i, ttl)
		if e := c.entries[key]; e != nil {
			c.touch(e, start)
			continue
		}
		e := &Entry{
			Hash: hex.EncodeToString(v.chain[i][:]), Model: p.Model, Workspace: workspace, Path: p.positions[i].path,
			Tokens: v.sums[i], TTL: ttl, CreatedAt: start, MessageID: messageID, VisibleAt: now.Add(c.lag),
		}
		c.touch(e, start)
		c.entries[key] = e
	}
}

func (c *cache) touch(e *Entry, start time.Time) {
	life := c.ttl5m
	if e.TTL == ttl1h {
		life = c.ttl1h
	}
	if until := start.Add(life); until.After(e.ExpiresAt) {
		e.UsedAt, e.ExpiresAt = start, until
	}
}

// list returns the entries that are alive at now, oldest first.
func (c *cache) list(now time.Time) []Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []Entry{}
	for _, e := range c.entries {
		if now.Before(e.ExpiresAt) {
			out = append(out, *e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Tokens, b.Tokens), cmp.Compare(a.Hash, b.Hash))
	})
	return out
}
