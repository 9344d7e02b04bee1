package forkcore

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
)

// Prefix is the canonical bytes that a request starts with: the head, then
// messages joined with ",", the last one perhaps open. It is an immutable
// chain: a longer Prefix shares the shorter one it was made from and hashes
// only what it adds, so turn k of a conversation costs its own bytes, and any
// number of children share one inheritance. It is safe for concurrent use.
type Prefix struct {
	parent *Prefix
	root   *Prefix
	links  int

	comma bool   // a "," joins piece to what comes before
	piece []byte // cap == len: appending to it copies
	start int64  // canonical offset of piece
	end   int64
	count int  // messages, an open one included
	role  Role // of the message, empty for the head
	// calls are the ids of the message's tool_use blocks, answers those that its tool_result blocks name.
	calls, answers []string
	open           bool    // the last message's content array is not closed
	sha256         *Digest // of the message, where known
	// opens is set on the link that closes an open message: the link before it.
	opens *Prefix

	ends []blockEnd // in this link, by offset
	sum  shaState   // after the last byte

	check    Checker // what is broken in a request of these messages
	forkTags int     // see ForkTags

	system string       // path of the last system block, on the root
	shared *inheritance // set on a link that LoadSnapshot made of many segments
}

// blockEnd is a place where a block ends: where a mark may stand and where an
// entry of the provider may end.
type blockEnd struct {
	offset         int64
	message, block int // message -1: the system array
	markable       bool
	id             Digest
}

// NewPrefix starts a chain with a latched request head (see EncodeHead).
func NewPrefix(head []byte) *Prefix {
	p := &Prefix{piece: head[:len(head):len(head)], end: int64(len(head)), links: 1, check: NewChecker(head)}
	p.root = p
	h := newSHA()
	defer h.free()
	at := max(len(head)-len(headClose), 0)
	h.Write(head[:at])
	if at > 0 {
		p.ends = []blockEnd{{offset: int64(at), message: -1, markable: head[at-1] == '}', id: h.digest()}}
		p.system = jsonPath(head[:at])
	}
	h.Write(head[at:])
	id := h.digest()
	p.sha256, p.sum = &id, h.state()
	return p
}

// next makes an empty link behind p.
func (p *Prefix) next() *Prefix {
	return &Prefix{parent: p, root: p.root, links: p.links + 1, count: p.count, start: p.end, forkTags: p.forkTags}
}

// Append gives the prefix that has one more message. An open last message must
// be completed first.
func (p *Prefix) Append(m Message) *Prefix {
	n := p.nextMessage(m.Role, m.Raw)
	if !m.Sum.IsZero() {
		n.sha256 = &m.Sum
	}
	n.hash(contentStart(m.Role), m.Blocks)
	return n
}

// appendOpen gives the prefix whose last message is open: m without its close.
func (p *Prefix) appendOpen(m Message) *Prefix {
	n := p.nextMessage(m.Role, m.Raw[:len(m.Raw)-len(messageClose)])
	n.open = true
	n.hash(contentStart(m.Role), m.Blocks)
	return n
}

// hash continues the state of the parent over this link, and notes where its
// blocks end: they stand from piece[at:] on.
func (p *Prefix) hash(at int, blocks []Block) {
	h := p.parent.sum.resume()
	defer h.free()
	if p.comma {
		h.Write(comma)
	}
	p.ends = make([]blockEnd, 0, len(blocks))
	done, first := 0, 0
	if o := p.opens; o != nil && len(o.ends) > 0 {
		first = o.ends[len(o.ends)-1].block + 1
	}
	if p.opens != nil {
		p.check = p.parent.check.Blocks(blocks)
	} else {
		p.check = p.parent.check.Message(p.role, blocks)
	}
	for i, b := range blocks {
		if p.role == RoleUser && opensBoilerplate(b) {
			p.forkTags++
		}
		switch b.Type {
		case "tool_use":
			p.calls = append(p.calls, b.ToolUseID)
		case "tool_result":
			p.answers = append(p.answers, b.ToolUseID)
		}
		if i > 0 {
			at++
		}
		at += len(b.Raw)
		h.Write(p.piece[done:at])
		done = at
		p.ends = append(p.ends, blockEnd{offset: p.start + int64(at), message: p.count - 1, block: first + i, markable: markable(b), id: h.digest()})
	}
	h.Write(p.piece[done:])
	p.sum = h.state()
}

func (p *Prefix) nextMessage(role Role, raw []byte) *Prefix {
	n := p.next()
	n.role = role
	n.piece = raw[:len(raw):len(raw)]
	if n.count > 0 {
		n.comma = true
		n.start++
	}
	n.count++
	n.end = n.start + int64(len(raw))
	return n
}

// Complete closes an open last message with a child's own blocks, given as
// their bytes joined with ",". It returns the views of those blocks as well.
func (p *Prefix) Complete(fragment []byte) (*Prefix, []Block, error) {
	if !p.open {
		return nil, nil, fmt.Errorf("a fragment without an open segment before it")
	}
	blocks, err := parseBlocks(fragment)
	if err != nil {
		return nil, nil, err
	}
	if len(blocks) == 0 {
		return nil, nil, fmt.Errorf("%w: a fragment without a block", ErrNotCanonical)
	}
	n := p.next()
	n.opens, n.role = p, RoleUser
	n.piece = make([]byte, 0, len(fragment)+len(messageClose)+1)
	n.piece = append(append(append(n.piece, ','), fragment...), messageClose...)
	n.end = n.start + int64(len(n.piece))
	n.hash(1, blocks)
	return n, blocks, nil
}

var comma = []byte{','}

// contentStart is the length of {"role":"…","content":[
func contentStart(r Role) int { return len(`{"role":"","content":[`) + len(r) }

// Len is the number of canonical bytes.
func (p *Prefix) Len() int64 { return p.end }

// Head is the prefix without any message.
func (p *Prefix) Head() *Prefix {
	if s := p.root.shared; s != nil {
		return s.head
	}
	return p.root
}

// HeadID is the digest of the head's bytes.
func (p *Prefix) HeadID() Digest { return *p.Head().sha256 }

// ForkTags counts the boilerplates in user messages: how deep a fork this is
// the history of, as far as the history still tells.
func (p *Prefix) ForkTags() int { return p.forkTags }

// Count is the number of messages, an open one included.
func (p *Prefix) Count() int { return p.count }

// SystemEnd is the offset after the last system block.
func (p *Prefix) SystemEnd() int64 {
	if len(p.root.ends) == 0 {
		return 0
	}
	return p.root.ends[0].offset
}

// Tail is the identity of the bytes through the last block of the last
// message, and their length: what a request of these messages writes at its
// tail mark.
func (p *Prefix) Tail() (int64, Digest) {
	for l := p; l != nil; l = l.parent {
		if n := len(l.ends); n > 0 {
			return l.ends[n-1].offset, l.ends[n-1].id
		}
	}
	return 0, Digest{}
}

// At is the identity of the first offset bytes. ok is false where no block
// ends: no mark can stand there, so no entry of the provider ends there.
func (p *Prefix) At(offset int64) (d Digest, ok bool) {
	e, ok := p.blockAt(offset)
	return e.id, ok
}

// StartsWith reports whether p begins with what an entry of the provider holds.
func (p *Prefix) StartsWith(e CacheEntry) bool {
	d, ok := p.At(e.Bytes)
	return ok && d == e.Prefix
}

func (p *Prefix) blockAt(offset int64) (blockEnd, bool) {
	l := p
	for l != nil && l.start >= offset {
		l = l.parent
	}
	if l == nil {
		return blockEnd{}, false
	}
	i := sort.Search(len(l.ends), func(i int) bool { return l.ends[i].offset >= offset })
	if i < len(l.ends) && l.ends[i].offset == offset {
		return l.ends[i], true
	}
	return blockEnd{}, false
}

// path is the JSON path of the block, such as messages.3.content.1.
func (p *Prefix) path(e blockEnd) string {
	if e.message < 0 {
		return p.root.system
	}
	return blockPath(e.message, e.block)
}

// unanswered is the index of the first message but the last whose tool calls
// the next message does not answer; -1 = none.
func (p *Prefix) unanswered() int {
	found := -1
	for l := p; l.parent != nil; l = l.parent {
		for _, id := range l.parent.calls {
			if l.role != RoleUser || !slices.Contains(l.answers, id) {
				found = l.parent.count - 1
			}
		}
	}
	return found
}

// chain lists the links from the root to p.
func (p *Prefix) chain() []*Prefix {
	out := make([]*Prefix, p.links)
	for l := p; l != nil; l = l.parent {
		out[l.links-1] = l
	}
	return out
}

// Bytes copies the canonical bytes into one slice.
func (p *Prefix) Bytes() []byte {
	out := make([]byte, 0, p.end)
	for _, l := range p.chain() {
		if l.comma {
			out = append(out, ',')
		}
		out = append(out, l.piece...)
	}
	return out
}

// Segments lists the manifest rows of p and the bytes of each: the head, then
// every message, the last one perhaps open.
func (p *Prefix) Segments() ([]Segment, [][]byte) {
	var segs []Segment
	var raws [][]byte
	for _, l := range p.chain() {
		raw := l.piece
		switch last := len(raws) - 1; {
		case l.shared != nil:
			segs = append(segs, l.shared.manifest...)
			raws = append(raws, l.shared.segments...)
			continue
		case l.opens != nil:
			raw = append(append(make([]byte, 0, len(raws[last])+len(raw)), raws[last]...), raw...)
			segs, raws = segs[:last], raws[:last]
		}
		sum := l.sha256
		if sum == nil {
			d := DigestOf(raw)
			sum = &d
		}
		segs = append(segs, Segment{SHA256: *sum, Bytes: int64(len(raw)), Open: l.open})
		raws = append(raws, raw)
	}
	return segs, raws
}

// inheritance is what a link of many segments knows beyond its bytes.
type inheritance struct {
	manifest []Segment
	head     *Prefix // its first segment alone
	// segments are the bytes as they were read, apart from the link's own: two
	// copies, so that a byte that changed in memory shows (see Verify).
	segments [][]byte
	marked   markedStates
}

// LoadSnapshot makes the shared inheritance of a fan-out from a manifest and
// the bytes of its segments: one buffer for all children of this process,
// hashed once. Bytes that do not have the snapshot's identity are ErrCorrupt.
func LoadSnapshot(s Snapshot, segments [][]byte) (*Prefix, error) {
	p, err := joinSegments(s.Segments, segments)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", s.ID, err)
	}
	if n, id := p.Tail(); n != s.Bytes || id != s.ID || n != p.end {
		return nil, fmt.Errorf("snapshot %s: its segments have the identity %s over %d bytes: %w", s.ID, id, n, ErrCorrupt)
	}
	for i, raw := range segments {
		if row := s.Segments[i]; row.Bytes != int64(len(raw)) || row.Open != (i == len(segments)-1) {
			return nil, fmt.Errorf("snapshot %s: its row %d does not describe the segment of %d bytes: %w", s.ID, i, len(raw), ErrCorrupt)
		}
	}
	return p, nil
}

// RecomputeSnapshot continues a snapshot whose rendered head is lost with a head
// that was rendered anew; segments are those after the head. Where the new head
// has the lost one's bytes the snapshot stays what it was. Otherwise the
// snapshot that comes back has an identity of its own: nothing that the
// provider holds prefixes it, and the cache is at risk.
func RecomputeSnapshot(s Snapshot, head []byte, segments [][]byte) (Snapshot, *Prefix, error) {
	if len(s.Segments) == 0 {
		return Snapshot{}, nil, fmt.Errorf("snapshot %s has no segments: %w", s.ID, ErrCorrupt)
	}
	old := s.Segments[0].Bytes
	s.Segments = slices.Clone(s.Segments)
	s.Segments[0] = Segment{SHA256: DigestOf(head), Bytes: int64(len(head))}
	p, err := joinSegments(s.Segments, append([][]byte{head}, segments...))
	if err != nil {
		return Snapshot{}, nil, fmt.Errorf("snapshot %s with its prompt recomputed: %w", s.ID, err)
	}
	n, id := p.Tail()
	if id == s.ID {
		return s, p, nil
	}
	s.ID, s.Bytes, s.Entries = id, n, nil
	if s.Placeholders > 0 {
		s.PlaceholderEnd += int64(len(head)) - old
	}
	return s, p, nil
}

func joinSegments(manifest []Segment, segments [][]byte) (*Prefix, error) {
	last := len(segments) - 1
	switch {
	case last < 1 || len(segments) != len(manifest):
		return nil, fmt.Errorf("%d of its %d segments are there: %w", len(segments), len(manifest), ErrCorrupt)
	case !manifest[last].Open:
		return nil, fmt.Errorf("its last message is not open: %w", ErrCorrupt)
	}
	chain := NewPrefix(segments[0])
	for i, raw := range segments[1:] {
		if i+1 == last {
			raw = append(append(make([]byte, 0, len(raw)+len(messageClose)), raw...), messageClose...)
		}
		m, err := ParseMessage(raw)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w: %w", i, ErrCorrupt, err)
		}
		if i+1 == last {
			if len(m.Blocks) == 0 {
				return nil, fmt.Errorf("its open message has no block, so that nothing can follow it: %w", ErrCorrupt)
			}
			chain = chain.appendOpen(m)
		} else {
			chain = chain.Append(m)
		}
	}
	p := &Prefix{
		piece: chain.Bytes(), end: chain.end, links: 1, count: chain.count, open: true, sum: chain.sum,
		system: chain.root.system, check: chain.check, forkTags: chain.forkTags,
	}
	p.root = p
	for _, l := range chain.chain() {
		p.ends = append(p.ends, l.ends...)
	}
	p.shared = &inheritance{manifest: manifest, head: chain.root, segments: segments}
	return p, nil
}

// canonical lists the slices whose concatenation is the canonical bytes of segments.
func canonical(segments [][]byte) [][]byte {
	out := make([][]byte, 0, 2*len(segments))
	for i, s := range segments {
		if i > 1 {
			out = append(out, comma)
		}
		out = append(out, s)
	}
	return out
}

// intact reports whether the bytes that children send are still those of the
// segments as they were read.
func (p *Prefix) intact() bool {
	rest := p.piece
	for i, s := range p.shared.segments {
		if i > 1 {
			if len(rest) == 0 || rest[0] != ',' {
				return false
			}
			rest = rest[1:]
		}
		if len(rest) < len(s) || !bytes.Equal(rest[:len(s)], s) {
			return false
		}
		rest = rest[len(s):]
	}
	return len(rest) == 0
}

// rehash hashes the first n bytes as they are now.
func (p *Prefix) rehash(n int64) (d Digest) {
	h := newSHA()
	defer h.free()
	for _, l := range p.chain() {
		if l.comma && l.start <= n {
			h.Write(comma)
		}
		if l.start < n {
			h.Write(l.piece[:min(n-l.start, int64(len(l.piece)))])
		}
	}
	return h.digest()
}
