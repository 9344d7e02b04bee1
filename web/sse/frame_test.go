package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// readFrame reads one frame as a browser does; io.EOF at the end of the stream.
func readFrame(r *bufio.Reader) (Frame, error) {
	var f Frame
	var data []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return Frame{}, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			f.Data = []byte(strings.Join(data, "\n"))
			return f, nil
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.ID = value
		case "event":
			f.Event = value
		case "data":
			data = append(data, value)
		}
	}
}

func TestFrameAppendTo(t *testing.T) {
	tests := []struct {
		name  string
		frame Frame
		want  string
	}{
		{"all fields", Frame{ID: "1-2", Event: "run", Data: []byte(`{"a":1}`), Retry: 1500 * time.Millisecond}, "id: 1-2\nevent: run\nretry: 1500\ndata: {\"a\":1}\n\n"},
		{"data alone", Frame{Data: []byte("x")}, "data: x\n\n"},
		{"no data", Frame{Event: "ping"}, "event: ping\ndata: \n\n"},
		{"line feed", Frame{Data: []byte("a\nb")}, "data: a\ndata: b\n\n"},
		{"carriage return", Frame{Data: []byte("a\rb")}, "data: a\ndata: b\n\n"},
		{"both", Frame{Data: []byte("a\r\nb")}, "data: a\ndata: b\n\n"},
		{"empty lines", Frame{Data: []byte("\n\na\n")}, "data: \ndata: \ndata: a\ndata: \n\n"},
		{"leading space is kept", Frame{Data: []byte(" a")}, "data:  a\n\n"},
		{"looks like a field", Frame{Data: []byte("a\nid: 9-9")}, "data: a\ndata: id: 9-9\n\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, string(test.frame.AppendTo(nil))); diff != "" {
				t.Errorf("frame (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	for _, s := range []string{"", "a", "a\r\n\r\nb", "\r", "data: x\n\nid: 1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sent := Frame{ID: "1-0", Event: "message", Data: data}
		r := bufio.NewReader(bytes.NewReader(sent.AppendTo(nil)))
		got, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
		if got.ID != sent.ID || got.Event != sent.Event || !bytes.Equal(got.Data, want) {
			t.Errorf("sent %q, read %q %q %q", data, got.ID, got.Event, got.Data)
		}
		if _, err := readFrame(r); !errors.Is(err, io.EOF) {
			t.Errorf("%q makes more than one frame", data)
		}
	})
}
