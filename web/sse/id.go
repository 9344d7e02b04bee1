package sse

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ID is a position in a stream of events, "<ms>-<n>". It is compared as two numbers: as text "9-0" would come
// after "10-0".
type ID struct{ MS, N uint64 }

// ParseID reads "<ms>-<n>" or "<ms>", which is "<ms>-0". "0" is the beginning.
func ParseID(s string) (ID, error) {
	ms, n, two := strings.Cut(s, "-")
	var id ID
	var err error
	if id.MS, err = parsePart(ms); err != nil {
		return ID{}, fmt.Errorf("event id %q: %w", s, err)
	}
	if two {
		if id.N, err = parsePart(n); err != nil {
			return ID{}, fmt.Errorf("event id %q: %w", s, err)
		}
	}
	return id, nil
}

// parsePart takes digits alone: ParseUint would let a sign through.
func parsePart(s string) (uint64, error) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf(`want "<milliseconds>-<number>"`)
	}
	return strconv.ParseUint(s, 10, 64)
}

// Compare is -1, 0 or 1 as a lies before, at or after b.
func (a ID) Compare(b ID) int {
	return cmp.Or(cmp.Compare(a.MS, b.MS), cmp.Compare(a.N, b.N))
}

// String is the "<ms>-<n>" form.
func (a ID) String() string {
	return strconv.FormatUint(a.MS, 10) + "-" + strconv.FormatUint(a.N, 10)
}
