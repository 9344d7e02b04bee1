package forkcore

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Digest is a SHA-256 sum: the identity of a blob, a prefix or a snapshot.
// It is comparable, so it can be a map key. Its text form is 64 lower-case hex
// digits.
type Digest [sha256.Size]byte

// DigestOf returns the digest of b.
func DigestOf(b []byte) Digest { return sha256.Sum256(b) }

// ParseDigest reads the 64 hex digit form. Anything else is ErrBadDigest.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != 2*len(d) {
		return Digest{}, fmt.Errorf("%w: %d characters, want %d", ErrBadDigest, len(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Digest{}, fmt.Errorf("%w: %w", ErrBadDigest, err)
	}
	if d.String() != s {
		return Digest{}, fmt.Errorf("%w: upper-case digits", ErrBadDigest)
	}
	return d, nil
}

// IsZero reports whether d was never set.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns 64 lower-case hex digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives the hex form, so that a Digest is a string in JSON.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the hex form.
func (d *Digest) UnmarshalText(b []byte) error {
	p, err := ParseDigest(string(b))
	if err != nil {
		return err
	}
	*d = p
	return nil
}
