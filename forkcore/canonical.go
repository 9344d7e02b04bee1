package forkcore

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"sort"
)

// Canonical is a request without marks: the head and the messages, as slices
// that are shared, never copied. Offsets into it count bytes of
// head + m1 + "," + m2 …, the form that prefixes are hashed in.
type Canonical struct {
	head     []byte
	messages [][]byte
	params   Params
}

// NewCanonical joins a latched head and message bytes.
func NewCanonical(head []byte, messages [][]byte, p Params) Canonical {
	return Canonical{head: head, messages: messages, params: p}
}

// Len is the number of canonical bytes, through the end of the last message.
func (c Canonical) Len() int64 {
	n := int64(len(c.head))
	for i, m := range c.messages {
		if i > 0 {
			n++
		}
		n += int64(len(m))
	}
	return n
}

// SystemEnd is the offset after the last system block.
func (c Canonical) SystemEnd() int64 { return int64(len(c.head) - len(headClose)) }

// BlockEnd is the offset after the last block of message i.
func (c Canonical) BlockEnd(i int) int64 {
	n := int64(len(c.head))
	for k := 0; k <= i; k++ {
		if k > 0 {
			n++
		}
		n += int64(len(c.messages[k]))
	}
	return n - int64(len(messageClose))
}

// pieces lists the slices whose concatenation is the canonical bytes.
func (c Canonical) pieces() [][]byte {
	p := make([][]byte, 0, 2*len(c.messages)+1)
	p = append(p, c.head)
	for i, m := range c.messages {
		if i > 0 {
			p = append(p, comma)
		}
		p = append(p, m)
	}
	return p
}

var comma = []byte{','}

// DigestsAt returns the prefix identities at the given offsets, in one pass.
// Offsets outside 1..Len are left out.
func (c Canonical) DigestsAt(offsets ...int64) map[int64]Digest {
	sorted := append([]int64(nil), offsets...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	out := make(map[int64]Digest, len(sorted))
	h := sha256.New()
	var at int64
	for _, p := range c.pieces() {
		for len(sorted) > 0 && sorted[0] <= at+int64(len(p)) {
			if cut := sorted[0] - at; cut > 0 || at > 0 {
				h.Write(p[:cut])
				p, at = p[cut:], sorted[0]
				var d Digest
				h.Sum(d[:0])
				out[sorted[0]] = d
			}
			sorted = sorted[1:]
		}
		h.Write(p)
		at += int64(len(p))
	}
	return out
}

// DigestAt returns the prefix identity at one offset.
func (c Canonical) DigestAt(offset int64) Digest { return c.DigestsAt(offset)[offset] }

// EstimateTokens guesses the tokens of n bytes at 4 bytes a token, for use
// until a provider's count is seen; callers label it as an estimate.
func EstimateTokens(n int64) int64 { return (n + 3) / 4 }

// Body is a request body with marks spliced in: a list of shared slices and
// small snippets. It is read any number of times.
type Body struct {
	pieces [][]byte
	length int64
}

// Splice places marks into the canonical bytes and closes the request. Every
// mark's offset must stand right after the "}" of a block, one mark a block;
// another place is an error, because a body with a misplaced mark would be no
// JSON or say something else than the canonical bytes.
func (c Canonical) Splice(marks []Mark) (*Body, error) {
	sorted := append([]Mark(nil), marks...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Offset < sorted[j].Offset })
	b := &Body{}
	var at int64
	for _, p := range c.pieces() {
		done := 0 // bytes of p already in the body
		for len(sorted) > 0 && sorted[0].Offset <= at+int64(len(p)) {
			brace := int(sorted[0].Offset - 1 - at)
			if !closesBlock(p, brace) {
				return nil, fmt.Errorf("mark at offset %d (%s) does not follow a block", sorted[0].Offset, sorted[0].Block)
			}
			if len(sorted) > 1 && sorted[1].Offset == sorted[0].Offset {
				return nil, fmt.Errorf("two marks at offset %d (%s)", sorted[0].Offset, sorted[0].Block)
			}
			b.add(p[done:brace])
			b.add([]byte(markJSON(sorted[0].TTL)))
			done = brace
			sorted = sorted[1:]
		}
		b.add(p[done:])
		at += int64(len(p))
	}
	if len(sorted) > 0 {
		return nil, fmt.Errorf("mark at offset %d is beyond the request", sorted[0].Offset)
	}
	b.add(requestClose(c.params))
	return b, nil
}

// StripMarks takes the marks out of a body that Splice made with them: what remains is the canonical bytes and the close
// of the request. A body that does not have every mark at its place is an error.
func StripMarks(body []byte, marks []Mark) ([]byte, error) {
	sorted := append([]Mark(nil), marks...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Offset < sorted[j].Offset })
	out := make([]byte, 0, len(body))
	rest := body
	for _, m := range sorted {
		keep := m.Offset - 1 - int64(len(out)) // the mark stands before the brace that closes its block
		if keep < 0 || keep > int64(len(rest)) {
			return nil, fmt.Errorf("no mark can stand at offset %d (%s)", m.Offset, m.Block)
		}
		out = append(out, rest[:keep]...)
		after, ok := bytes.CutPrefix(rest[keep:], []byte(markJSON(m.TTL)))
		if !ok {
			return nil, fmt.Errorf("no mark stands at offset %d (%s)", m.Offset, m.Block)
		}
		rest = after
	}
	return append(out, rest...), nil
}

// closesBlock reports whether p[i] is the "}" of an element of tools, system or
// content: an object in an array in the outermost object of p.
func closesBlock(p []byte, i int) bool {
	if i < 0 || p[i] != '}' {
		return false
	}
	depth, inArray := 0, false
	for k := 0; k <= i; k++ {
		switch p[k] {
		case '"':
			for k++; k < i && p[k] != '"'; k++ {
				if p[k] == '\\' {
					k++
				}
			}
			if k >= i {
				return false // inside a string
			}
		case '{', '[':
			if depth++; depth == 2 {
				inArray = p[k] == '['
			}
		case '}', ']':
			depth--
		}
	}
	return depth == 2 && inArray
}

func (b *Body) add(p []byte) {
	if len(p) > 0 {
		b.pieces = append(b.pieces, p)
		b.length += int64(len(p))
	}
}

// Len is the number of bytes.
func (b *Body) Len() int64 { return b.length }

// Digest hashes the bytes as sent.
func (b *Body) Digest() Digest {
	h := sha256.New()
	for _, p := range b.pieces {
		h.Write(p)
	}
	var d Digest
	h.Sum(d[:0])
	return d
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
