package tools

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"forkyard/forkcore"
)

// line is one line of a file or of a program's output.
type line struct {
	// text is the line without its end, or the first bytes of a long one. It is
	// valid until the next call of next.
	text []byte
	// size is the length of the whole line in bytes.
	size int64
}

// lineReader reads lines of any length in bounded memory. bufio.Scanner gives
// up at a long line, bufio.Reader.ReadString holds it whole.
type lineReader struct {
	br  *bufio.Reader
	end byte
	max int
	buf []byte
	// nul tells whether a NUL was met so far.
	nul bool
}

// newLineReader reads lines that end with end and keeps at most max bytes of
// each.
func newLineReader(r io.Reader, end byte, max int) *lineReader {
	return &lineReader{br: bufio.NewReaderSize(r, 64<<10), end: end, max: max}
}

// next returns the next line, or io.EOF after the last one.
func (r *lineReader) next() (line, error) {
	r.buf = r.buf[:0]
	var size int64
	for {
		chunk, err := r.br.ReadSlice(r.end)
		if err == nil {
			chunk = chunk[:len(chunk)-1]
		}
		size += int64(len(chunk))
		r.nul = r.nul || bytes.IndexByte(chunk, 0) >= 0
		r.buf = append(r.buf, chunk[:min(len(chunk), r.max-len(r.buf))]...)
		switch {
		case err == nil:
			return line{text: r.buf, size: size}, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && size > 0:
			return line{text: r.buf, size: size}, nil
		default:
			return line{}, err
		}
	}
}

// show returns the line as text of at most limit bytes without secrets. The
// line must have been read with limit plus the redactor's margin.
func (l line) show(limit int, redact *redactor) string {
	text := string(bytes.TrimSuffix(l.text, []byte("\r")))
	if l.size > int64(len(l.text)) {
		text = trimPartialEnd(redact.head(string(l.text)))
	} else {
		text = redact.whole(text)
	}
	text = forkcore.CleanText(text)
	if cut := forkcore.CutText(text, limit); len(cut) < len(text) || l.size > int64(len(l.text)) {
		return fmt.Sprintf("%s [line cut: it has %d bytes]", cut, l.size)
	}
	return text
}

// ctxReader fails once its context is done, so that a long read can be
// cancelled between two chunks.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
