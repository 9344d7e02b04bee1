package anthropic

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type rawEvent struct{ Name, Data string }

func readEvents(r io.Reader) ([]rawEvent, error) { return drainEvents(newEventReader(r)) }

func drainEvents(events *eventReader) ([]rawEvent, error) {
	var got []rawEvent
	for {
		name, data, err := events.next()
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, rawEvent{string(name), string(data)})
	}
}

func TestEventReader(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		want      []rawEvent
	}{
		{"empty", "", nil},
		{"one", "event: a\ndata: b\n\n", []rawEvent{{"a", "b"}}},
		{"no space", "event:a\ndata:b\n\n", []rawEvent{{"a", "b"}}},
		{"one space only goes", "data:  b \n\n", []rawEvent{{"", " b "}}},
		{"data lines join", "data: {\ndata\ndata: }\n\n", []rawEvent{{"", "{\n\n}"}}},
		{"comments, id and retry", ": x\nid: 1\nretry: 2\n:\ndata: b\n\n", []rawEvent{{"", "b"}}},
		{"event without data", "event: ping\n\ndata: b\n\n", []rawEvent{{"", "b"}}},
		{"empty data", "data:\n\n", []rawEvent{{"", ""}}},
		{"last name wins", "event: a\nevent: b\ndata: x\n\n", []rawEvent{{"b", "x"}}},
		{"byte order mark", "\ufeffdata: b\n\n", []rawEvent{{"", "b"}}},
		{"part of a mark", "\xef\xbb", nil},
		{"no empty line at the end", "data: b\n", []rawEvent{{"", "b"}}},
		{"no line end at the end", "data: a\n\ndata: b", []rawEvent{{"", "a"}}},
		{"many empty lines", "\n\n\ndata: a\n\n\n\ndata: b\n\n", []rawEvent{{"", "a"}, {"", "b"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, eol := range []string{"\n", "\r\n", "\r"} {
				raw := strings.ReplaceAll(tt.raw, "\n", eol)
				for how, r := range map[string]io.Reader{
					"whole":         strings.NewReader(raw),
					"byte per read": iotest.OneByteReader(strings.NewReader(raw)),
					"EOF with data": iotest.DataErrReader(strings.NewReader(raw)),
				} {
					got, err := readEvents(r)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("%q, %s (-want +got):\n%s", eol, how, diff)
					}
				}
			}
		})
	}
}

func TestEventReaderLimits(t *testing.T) {
	const field, limit = "data: ", 1 << 20
	read := func(raw string) ([]rawEvent, error) {
		events := newEventReader(strings.NewReader(raw))
		events.limit = limit
		return drainEvents(events)
	}
	fits := strings.Repeat("x", limit-len(field))
	got, err := read(field + fits + "\n\n")
	if err != nil || len(got) != 1 || got[0].Data != fits {
		t.Errorf("a line of the limit: %d events, %v", len(got), err)
	}
	for name, raw := range map[string]string{
		"line without an end":  strings.Repeat("x", 2*limit),
		"many lines, one data": strings.Repeat(field+fits[:limit/8]+"\n", 9),
	} {
		if _, err := read(raw); !errors.Is(err, errEventTooLong) {
			t.Errorf("%s: got %v, want errEventTooLong", name, err)
		}
	}
	long := strings.Repeat("y", 3*limit)
	if got, err := readEvents(strings.NewReader(field + long + "\n\n")); err != nil || len(got) != 1 || got[0].Data != long {
		t.Errorf("a line of 3 MiB under the real limit: %d events, %v", len(got), err)
	}
}

func TestEventReaderErrors(t *testing.T) {
	cut := errors.New("connection reset by peer")
	got, err := readEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(cut)))
	if !errors.Is(err, cut) {
		t.Errorf("got %v, want %v", err, cut)
	}
	if diff := cmp.Diff([]rawEvent{{"", "a"}}, got); diff != "" {
		t.Errorf("events before the error (-want +got):\n%s", diff)
	}
	if _, err := readEvents(stuckReader{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing: got %v, want ErrNoProgress", err)
	}
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

// FuzzEventReader checks that it does not matter how the bytes are cut into reads.
func FuzzEventReader(f *testing.F) {
	f.Add("event: a\r\ndata: b\r\rdata\n\n\ufeff:x\n")
	f.Add("\xef\xbb\xbfdata: x\n\r\n")
	f.Fuzz(func(t *testing.T, raw string) {
		whole, err := readEvents(strings.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		single, err := readEvents(iotest.OneByteReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, single); diff != "" {
			t.Errorf("whole and byte by byte differ:\n%s", diff)
		}
	})
}
