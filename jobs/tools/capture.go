package tools

import (
	"fmt"
	"slices"

	"forkyard/forkcore"
)

// capture keeps the beginning and the end of what is written to it and counts
// the rest. It has Write alone: with an embedded bytes.Buffer io.Copy would find
// ReadFrom and buffer everything.
type capture struct {
	limit  int // bytes shown
	redact *redactor
	part   int // bytes kept of head and of tail
	head   []byte
	tail   []byte
	total  int64
}

func newCapture(limit int, redact *redactor) *capture {
	return &capture{limit: limit, redact: redact, part: (limit+1)/2 + redact.margin()}
}

// Write never fails and keeps no reference to p.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	fill := min(n, c.part-len(c.head))
	c.head = append(c.head, p[:fill]...)
	p = p[fill:]
	if len(p) > c.part {
		p = p[len(p)-c.part:]
	}
	// The tail is cut when it has twice its size, so that a byte is moved once
	// and not at every write.
	if len(c.tail)+len(p) > 2*c.part {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-(c.part-len(p)):]...)
	}
	c.tail = append(c.tail, p...)
	return n, nil
}

// text is what was written, clean and without secrets. Of more than limit bytes
// it shows as many as fit of the head and of the tail, and says the true size.
func (c *capture) text() string {
	var head, tail string
	if c.total == int64(len(c.head)+len(c.tail)) {
		whole := forkcore.CleanText(c.redact.whole(string(slices.Concat(c.head, c.tail))))
		if len(whole) <= c.limit {
			return whole
		}
		head, tail = whole, whole
	} else {
		end := c.tail[max(0, len(c.tail)-c.part):]
		head = forkcore.CleanText(trimPartialEnd(c.redact.head(string(c.head))))
		tail = forkcore.CleanText(trimPartialStart(c.redact.tail(string(end))))
	}
	return fmt.Sprintf("%s\n[... the middle is left out: the whole output has %d bytes ...]\n%s",
		forkcore.CutText(head, c.limit/2), c.total, cutFront(tail, c.limit/2))
}
