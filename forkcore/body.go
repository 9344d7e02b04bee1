package forkcore

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Body is a request body with marks spliced in: a list of shared slices and
// small snippets. It is read any number of times.
type Body struct {
	pieces [][]byte
	length int64
	// hashed is the state after the first pieces, when others have hashed them already.
	hashed shaState
	from   int
}

func byOffset(a, b Mark) int { return cmp.Compare(a.Offset, b.Offset) }

// Body places marks into the canonical bytes and closes the request. Every
// mark must stand where a block ends that may carry one, one mark a block;
// another place is an error, because a body with a misplaced mark would be no
// JSON or say something else than the canonical bytes. With d the request asks
// for diagnostics, with nil it does not.
func (p *Prefix) Body(marks []Mark, params Params, d *Diagnostics) (*Body, error) {
	if len(marks) > MaxMarks {
		return nil, fmt.Errorf("%d marks, the API takes %d", len(marks), MaxMarks)
	}
	var few [MaxMarks]Mark
	sorted := append(few[:0], marks...)
	slices.SortFunc(sorted, byOffset)
	for i, m := range sorted {
		if e, ok := p.blockAt(m.Offset); !ok || !e.markable {
			return nil, fmt.Errorf("mark at offset %d (%s) does not follow a block that may carry one", m.Offset, m.Block)
		}
		if i > 0 && sorted[i-1].Offset == m.Offset {
			return nil, fmt.Errorf("two marks at offset %d (%s)", m.Offset, m.Block)
		}
	}
	chain := p.chain()
	n := len(chain) + 2*len(sorted) + 1
	for _, l := range chain {
		if l.comma {
			n++
		}
	}
	b := &Body{pieces: make([][]byte, 0, n)}
	for _, l := range chain {
		if l.comma {
			b.add(comma)
		}
		done, first := int64(0), len(sorted) // bytes of the link already in the body
		for len(sorted) > 0 && sorted[0].Offset <= l.end {
			brace := sorted[0].Offset - 1 - l.start
			b.add(l.piece[done:brace])
			b.add(markJSON(sorted[0].TTL))
			done = brace
			sorted = sorted[1:]
		}
		b.add(l.piece[done:])
		if l.shared != nil {
			b.hashed, b.from = l.shared.marked.after(few[:first-len(sorted)], b.pieces), len(b.pieces)
		}
	}
	b.add(requestClose(params, d))
	return b, nil
}

// markedStates keeps the SHA-256 states of a shared prefix as it is sent,
// marks included, so that siblings do not hash it again for the digests of
// their bodies.
type markedStates struct {
	mu     sync.Mutex
	states map[markedKey]shaState
}

type markedKey struct {
	offsets [MaxMarks]int64
	ttls    [MaxMarks]string
}

// A fan-out has a few sets of marks: those of first and of later requests, with and without
// the parent's entry.
const markedKept = 16

// after gives the state after pieces, which are the prefix with these marks.
func (s *markedStates) after(marks []Mark, pieces [][]byte) shaState {
	var key markedKey
	for i, m := range marks {
		key.offsets[i], key.ttls[i] = m.Offset, m.TTL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, ok := s.states[key]
	if !ok {
		h := newSHA()
		defer h.free()
		for _, p := range pieces {
			h.Write(p)
		}
		if s.states == nil || len(s.states) >= markedKept {
			s.states = map[markedKey]shaState{}
		}
		state = h.state()
		s.states[key] = state
	}
	return state
}

// StripMarks takes the marks out of a body that was made with them: what remains is the canonical bytes and the close
// of the request. A body that does not have every mark at its place is an error.
func StripMarks(body []byte, marks []Mark) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(marks), byOffset)
	out := make([]byte, 0, len(body))
	rest := body
	for _, m := range sorted {
		keep := m.Offset - 1 - int64(len(out)) // the mark stands before the brace that closes its block
		if keep < 0 || keep > int64(len(rest)) {
			return nil, fmt.Errorf("no mark can stand at offset %d (%s)", m.Offset, m.Block)
		}
		out = append(out, rest[:keep]...)
		after, ok := bytes.CutPrefix(rest[keep:], markJSON(m.TTL))
		if !ok {
			return nil, fmt.Errorf("no mark stands at offset %d (%s)", m.Offset, m.Block)
		}
		rest = after
	}
	return append(out, rest...), nil
}

func (b *Body) add(p []byte) {
	if len(p) > 0 {
		b.pieces = append(b.pieces, p)
		b.length += int64(len(p))
	}
}

// Len is the number of bytes.
func (b *Body) Len() int64 { return b.length }

// Digest hashes the bytes as sent; what siblings share is hashed once for all.
func (b *Body) Digest() (d Digest) {
	h := b.hashed.resume()
	defer h.free()
	for _, p := range b.pieces[b.from:] {
		h.Write(p)
	}
	return h.digest()
}

// Reader opens a fresh reader; each Read fills its buffer across pieces.
func (b *Body) Reader() io.Reader { return &bodyReader{rest: b.pieces} }

// Bytes copies the body into one slice.
func (b *Body) Bytes() []byte { return bytes.Join(b.pieces, nil) }

type bodyReader struct {
	rest [][]byte
	at   int
}

func (r *bodyReader) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) && len(r.rest) > 0 {
		c := copy(p[n:], r.rest[0][r.at:])
		n += c
		r.at += c
		if r.at == len(r.rest[0]) {
			r.rest, r.at = r.rest[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes the pieces as they are.
func (r *bodyReader) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for len(r.rest) > 0 {
		k, err := w.Write(r.rest[0][r.at:])
		n += int64(k)
		if err != nil {
			return n, err
		}
		r.rest, r.at = r.rest[1:], 0
	}
	return n, nil
}
