package anthropic

import (
	"bytes"
	"errors"
	"io"
)

// maxEventBytes bounds one line and the data of one event, like the official
// SDKs do (32 MiB): a tool input or a document result can be one line.
const maxEventBytes = 32 << 20

var errEventTooLong = errors.New("an event of the stream is longer than 32 MiB")

// eventReader cuts a text/event-stream into events. It works on bytes, so a rune
// or a line end that is cut between two reads stays whole.
// Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
type eventReader struct {
	r          io.Reader
	limit      int   // maxEventBytes
	err        error // of the last Read, delivered after the bytes before it
	buf        []byte
	start, end int  // the unread part of buf
	skipLF     bool // the last line ended in CR: a LF that follows belongs to it
	begun      bool
	name, data []byte
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{r: r, limit: maxEventBytes, buf: make([]byte, 16<<10)}
}

// next returns the next event that has data. Both slices are valid until the
// following call. io.EOF means that the body ended cleanly, which says nothing
// about the answer being complete.
func (e *eventReader) next() (name, data []byte, err error) {
	e.name, e.data = e.name[:0], e.data[:0]
	hasData := false
	for {
		line, err := e.line()
		if hasData && errors.Is(err, io.EOF) {
			// The standard drops an event without its empty line. Its lines are whole
			// though, and dropping a message_stop would discard a paid, complete answer.
			return e.name, e.data, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if len(line) == 0 {
			if hasData {
				return e.name, e.data, nil
			}
			e.name = e.name[:0]
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = append(e.name[:0], value...)
		case "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			if len(e.data)+len(value) > e.limit {
				return nil, nil, errEventTooLong
			}
			e.data = append(e.data, value...)
			hasData = true
		}
		// A comment has an empty field name; id and retry are of no use here.
	}
}

// line returns the next line without its end: LF, CR or CRLF. A last line that
// nothing ends is dropped. The slice is valid until the following call.
func (e *eventReader) line() ([]byte, error) {
	if !e.begun {
		if err := e.skipBOM(); err != nil {
			return nil, err
		}
	}
	scanned := 0 // from start
	for {
		if e.skipLF && e.start < e.end {
			if e.buf[e.start] == '\n' {
				e.start++
			}
			e.skipLF = false
		}
		if i := lineEnd(e.buf[e.start+scanned : e.end]); i >= 0 {
			at := e.start + scanned + i
			line := e.buf[e.start:at]
			e.start = at + 1
			e.skipLF = e.buf[at] == '\r'
			return line, nil
		}
		scanned = e.end - e.start
		if scanned > e.limit {
			return nil, errEventTooLong
		}
		if err := e.fill(); err != nil {
			return nil, err
		}
	}
}

// lineEnd returns the index of the first LF or CR, or -1.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

func (e *eventReader) skipBOM() error {
	bom := []byte("\xef\xbb\xbf")
	for e.end-e.start < len(bom) && bytes.HasPrefix(bom, e.buf[e.start:e.end]) {
		if err := e.fill(); err != nil {
			if e.end == e.start {
				return err
			}
			break
		}
	}
	if bytes.HasPrefix(e.buf[e.start:e.end], bom) {
		e.start += len(bom)
	}
	e.begun = true
	return nil
}

// fill reads once more, after making room. It returns the error of a former
// Read when the bytes that came with it are used up.
func (e *eventReader) fill() error {
	if e.err != nil {
		return e.err
	}
	if e.end == len(e.buf) {
		if e.start == 0 {
			bigger := make([]byte, 2*len(e.buf))
			copy(bigger, e.buf)
			e.buf = bigger
		} else {
			e.end = copy(e.buf, e.buf[e.start:e.end])
			e.start = 0
		}
	}
	for range 100 {
		n, err := e.r.Read(e.buf[e.end:])
		e.end += n
		e.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
