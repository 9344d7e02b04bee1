package forkcore

import (
	"crypto/sha256"
	"encoding"
	"hash"
	"sync"
)

// sha is a SHA-256 in progress. Hashers are used again: one child costs the
// memory of its own bytes and little more.
type sha struct {
	hash.Hash
	sum Digest // what digest writes to, so that it stays off the heap
}

var hashers = sync.Pool{New: func() any { return &sha{Hash: sha256.New()} }}

func newSHA() *sha {
	h := hashers.Get().(*sha)
	h.Reset()
	return h
}

func (h *sha) free() { hashers.Put(h) }

// digest is the sum so far; more may be written.
func (h *sha) digest() Digest {
	h.Sum(h.sum[:0])
	return h.sum
}

// shaState is where a SHA-256 stands, to go on from any number of times; nil is its beginning.
type shaState []byte

// state notes where h stands. crypto/sha256 documents that its state can be marshaled and that no error occurs.
func (h *sha) state() shaState {
	s, err := h.Hash.(encoding.BinaryAppender).AppendBinary(make([]byte, 0, stateSize))
	if err != nil {
		panic("forkcore: SHA-256 does not give its state: " + err.Error())
	}
	return s
}

// stateSize is the length of a marshaled SHA-256 state.
const stateSize = 108

func (s shaState) resume() *sha {
	h := newSHA()
	if s == nil {
		return h
	}
	if err := h.Hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(s); err != nil {
		panic("forkcore: SHA-256 does not take its own state: " + err.Error())
	}
	return h
}
