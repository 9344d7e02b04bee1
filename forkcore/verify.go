package forkcore

import (
	"bytes"
	"fmt"
	"strconv"
)

// MismatchError says where a request that should start with a snapshot's
// prefix first differs from it.
type MismatchError struct {
	// Offset counts canonical bytes from 0.
	Offset int64
	// Path is the JSON path of the value the byte stands in, such as messages.2.content.0.text.
	Path string
	// Want and Got are up to 40 bytes around the difference.
	Want, Got string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("the request leaves the shared prefix at byte %d (%s): want %q, got %q", e.Offset, e.Path, e.Want, e.Got)
}

// Verify proves that a request starts with the snapshot's canonical bytes. A
// request that continues the inheritance LoadSnapshot hashed is compared byte
// by byte with the segments as they were read, at the speed of memory and
// without hashing; another one must have the snapshot's identity at the cut.
// On a mismatch it returns a *MismatchError, found against stored, the bytes of the snapshot's segments, which are
// asked for only then.
func Verify(s Snapshot, request *Prefix, stored func() ([][]byte, error)) error {
	if l := request.root; l.shared != nil && l.end == s.Bytes && l.ends[len(l.ends)-1].id == s.ID {
		if l.intact() {
			return nil
		}
		return mismatch(bytes.Join(canonical(l.shared.segments), nil), request.Bytes())
	}
	if d, ok := request.At(s.Bytes); ok && d == s.ID && request.rehash(s.Bytes) == s.ID {
		return nil
	}
	segments, err := stored()
	if err != nil {
		return fmt.Errorf("compare with snapshot %s: %w", s.ID, err)
	}
	want := bytes.Join(canonical(segments), nil)
	if DigestOf(want) != s.ID {
		return fmt.Errorf("snapshot %s: its bytes do not have its digest: %w", s.ID, ErrCorrupt)
	}
	return mismatch(want, request.Bytes())
}

func mismatch(want, got []byte) error {
	at := commonPrefix(want, got)
	return &MismatchError{Offset: int64(at), Path: jsonPath(want[:at]), Want: around(want, at), Got: around(got, at)}
}

// FirstDifference returns the length in bytes of the longest common prefix of two canonical requests, and the JSON path
// of the value that it ends in, such as messages.2.content.0.text. equal is true when there is no difference at all.
func FirstDifference(a, b []byte) (offset int64, path string, equal bool) {
	at := commonPrefix(a, b)
	return int64(at), jsonPath(a[:at]), at == len(a) && at == len(b)
}

func commonPrefix(a, b []byte) int {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	return at
}

func around(b []byte, at int) string {
	return string(b[at:min(at+40, len(b))])
}

// jsonPath names the value that a cut through JSON text stands in.
func jsonPath(b []byte) string {
	type level struct {
		array bool
		index int
		key   string
	}
	var stack []level
	inKey := false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			stack = append(stack, level{})
			inKey = true
		case '[':
			stack = append(stack, level{array: true})
			inKey = false
		case '}', ']':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
			inKey = false
		case ',':
			if n := len(stack); n > 0 {
				if stack[n-1].array {
					stack[n-1].index++
				} else {
					stack[n-1].key, inKey = "", true
				}
			}
		case '"':
			end := i + 1
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			if inKey && end < len(b) {
				stack[len(stack)-1].key = string(b[i+1 : end])
				inKey = false
			}
			i = end
		}
	}
	var path bytes.Buffer
	for _, l := range stack {
		if !l.array && l.key == "" {
			continue // between two members: the object is the place
		}
		if path.Len() > 0 {
			path.WriteByte('.')
		}
		if l.array {
			path.WriteString(strconv.Itoa(l.index))
		} else {
			path.WriteString(l.key)
		}
	}
	return path.String()
}
