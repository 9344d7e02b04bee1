package anthropic

import (
	"context"
	"io"
	"sync/atomic"
	"time"
)

// idleWatch cancels a request when no byte moved for too long. It looks at raw
// bytes, below events, so that pings and comments keep a thinking model alive. It
// runs only while somebody waits for the network: a slow consumer is no dead connection.
type idleWatch struct {
	d       time.Duration
	timer   *time.Timer
	waiting atomic.Bool // for the response header
}

// newIdleWatch starts watching at once.
func newIdleWatch(d time.Duration, cancel context.CancelCauseFunc) *idleWatch {
	w := &idleWatch{d: d, timer: time.AfterFunc(d, func() { cancel(errIdle) })}
	w.waiting.Store(true)
	return w
}

// uploaded notes that a piece of the request body was taken.
func (w *idleWatch) uploaded() {
	if w.waiting.Load() {
		w.timer.Reset(w.d)
	}
}

// answered ends the watch over the request; reads start it again.
func (w *idleWatch) answered() {
	w.waiting.Store(false)
	w.timer.Stop()
}

// limit cancels after d, whatever moves.
func (w *idleWatch) limit(d time.Duration) { w.timer.Reset(d) }

func (w *idleWatch) stop() { w.timer.Stop() }

// reader returns r, watched while a Read is under way.
func (w *idleWatch) reader(r io.Reader) io.Reader { return &watchedReader{r: r, w: w} }

type watchedReader struct {
	r io.Reader
	w *idleWatch
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.w.timer.Reset(r.w.d)
	n, err := r.r.Read(p)
	r.w.timer.Stop()
	return n, err
}
