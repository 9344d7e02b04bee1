package sse

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Frame is one Server-Sent Event. ID and Event hold no line breaks; Data may.
type Frame struct {
	ID    string // empty: the client's last event id stays
	Event string // empty: an unnamed message
	Data  []byte
	Retry time.Duration // whole milliseconds, after which the client connects again; zero: that stays
}

// AppendTo appends the frame as it goes over the wire. CR, LF and CRLF in Data all end a line there, so each
// line gets a "data:" of its own and the client sees LF.
// Source: WHATWG HTML, "Server-sent events", section "Interpreting an event stream".
func (f Frame) AppendTo(b []byte) []byte {
	if f.ID != "" {
		b = append(append(append(b, "id: "...), f.ID...), '\n')
	}
	if f.Event != "" {
		b = append(append(append(b, "event: "...), f.Event...), '\n')
	}
	if f.Retry > 0 {
		b = append(strconv.AppendInt(append(b, "retry: "...), f.Retry.Milliseconds(), 10), '\n')
	}
	data := f.Data
	for {
		end := bytes.IndexAny(data, "\r\n")
		line, rest := data, []byte(nil)
		if end >= 0 {
			line, rest = data[:end], data[end+1:]
			if data[end] == '\r' && len(rest) > 0 && rest[0] == '\n' {
				rest = rest[1:]
			}
		}
		b = append(append(append(b, "data: "...), line...), '\n')
		if end < 0 {
			return append(b, '\n')
		}
		data = rest
	}
}

// cutGrace is how long a write may still take once its stream has been ended.
const cutGrace = time.Second

// Writer sends frames to one client.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte
	release func()
}

// Start sends the headers of a stream and takes the server's write deadline off. When ctx ends, a write that
// hangs on a client that does not read is broken off, so that no goroutine outlives its stream. The caller
// calls Close.
func Start(ctx context.Context, w http.ResponseWriter) (*Writer, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	// nginx holds a response back until its buffer is full unless it is told not to.
	h.Set("X-Accel-Buffering", "no")
	// The deadline of a broken-off write belongs to the connection; nothing else may use it afterwards.
	h.Set("Connection", "close")
	w.WriteHeader(http.StatusOK)
	c := http.NewResponseController(w)
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("taking the write deadline off a stream: %w", err)
	}
	if err := c.Flush(); err != nil {
		return nil, fmt.Errorf("sending the headers of a stream: %w", err)
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		// An error means that the connection is gone already.
		_ = c.SetWriteDeadline(time.Now().Add(cutGrace))
	})
	release := func() {
		if !stop() {
			<-done // w belongs to the server, and to the next request, once the handler returns
		}
	}
	return &Writer{w: w, control: c, release: release}, nil
}

// Send writes the frames and flushes once.
func (w *Writer) Send(frames ...Frame) error {
	w.buf = w.buf[:0]
	for _, f := range frames {
		w.buf = f.AppendTo(w.buf)
	}
	if _, err := w.w.Write(w.buf); err != nil {
		return fmt.Errorf("writing to a stream: %w", err)
	}
	if err := w.control.Flush(); err != nil {
		return fmt.Errorf("flushing a stream: %w", err)
	}
	return nil
}

// Close forgets the context of Start; nothing touches the response afterwards. Returning from the handler ends it.
func (w *Writer) Close() { w.release() }
