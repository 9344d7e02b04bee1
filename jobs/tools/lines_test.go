package tools

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestLineReader(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	for _, tt := range []struct {
		name, in string
		want     []string // text and size
	}{
		{"empty", "", nil},
		{"one", "a\n", []string{"a 1"}},
		{"no end", "a\nbc", []string{"a 1", "bc 2"}},
		{"empty lines", "\n\na\n", []string{" 0", " 0", "a 1"}},
		{"long", "a\n" + big + "\nb", []string{"a 1", "xxxxxxxx 204800", "b 1"}},
		{"long at the end", big, []string{"xxxxxxxx 204800"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newLineReader(iotest.HalfReader(strings.NewReader(tt.in)), '\n', 8)
			var got []string
			for {
				l, err := r.next()
				if err == io.EOF {
					break
				}
				must(t, err)
				got = append(got, fmt.Sprintf("%s %d", l.text, l.size))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLineReaderTellsNULAndErrors(t *testing.T) {
	r := newLineReader(strings.NewReader("a\n"+strings.Repeat("x", 100)+"\x00\n"), '\n', 8)
	if _, err := r.next(); err != nil || r.nul {
		t.Errorf("first line: nul %v, error %v", r.nul, err)
	}
	if _, err := r.next(); err != nil || !r.nul {
		t.Errorf("second line: nul %v, error %v", r.nul, err)
	}
	r = newLineReader(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("ab\n"))), '\n', 8)
	if _, err := r.next(); err != iotest.ErrTimeout {
		t.Errorf("got error %v, want %v", err, iotest.ErrTimeout)
	}
}
