package modelsim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// How an answer can end early.
var (
	errGone  = errors.New("the client went away")
	errReset = errors.New("fault: connection reset")
	errEOF   = errors.New("fault: the body ended without message_stop")
	errEvent = errors.New("fault: error event")
)

// between reports whether the fault strikes between two events, not inside one.
func (f *Fault) between() bool { return f.AfterBytes <= 0 && !f.InRune }

func (f *Fault) every() time.Duration { return cmp.Or(f.Every, time.Second) }

// outlet sends the bytes of one answer and acts out the reply's fault where it is due.
type outlet struct {
	x      *exchange
	rc     *http.ResponseController
	buf    bytes.Buffer
	enc    *json.Encoder // to buf
	sent   int           // events, pings not counted
	past   int           // bytes since the fault could strike
	began  bool          // bytes went out
	struck bool
	slow   bool      // struck by a FaultSlow
	due    time.Time // of the last delta
}

func newOutlet(x *exchange) *outlet {
	o := &outlet{x: x, rc: http.NewResponseController(x.w), due: time.Now()}
	o.enc = json.NewEncoder(&o.buf)
	o.enc.SetEscapeHTML(false)
	return o
}

// pause waits before a delta and sends the pings that fall due meanwhile. Deltas keep a timetable: one that went out late
// does not delay those after it, unless it is late by more than ten delays, as with a client that stopped reading.
func (o *outlet) pause() error {
	d := cmp.Or(o.x.reply.DeltaDelay, o.x.s.live.Load().DeltaDelay)
	if d <= 0 || o.slow {
		return nil
	}
	o.due = o.due.Add(d)
	if time.Since(o.due) > 10*d {
		o.due = time.Now()
	}
	ping := o.x.reply.PingEvery
	for {
		left := time.Until(o.due)
		if ping <= 0 || left <= ping {
			if wait(o.x.ctx, left) != nil {
				return errGone
			}
			return nil
		}
		if wait(o.x.ctx, ping) != nil {
			return errGone
		}
		if err := o.write("ping", bare{"ping"}); err != nil {
			return err
		}
	}
}

// document sends the answer of a request without streaming.
func (o *outlet) document(v any) error {
	if err := o.enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	o.x.w.Header().Set("content-type", "application/json")
	if err := o.faulty(); err != nil {
		return err
	}
	return o.put(o.buf.Bytes())
}

// armed reports whether the fault can strike from here on.
func (o *outlet) armed() bool {
	f := o.x.reply.Fault
	return f != nil && f.Kind != FaultStatus && !o.struck && (o.sent >= f.AfterEvents || !o.x.p.Stream)
}

// faulty strikes when the fault is due between two events.
func (o *outlet) faulty() error {
	if !o.armed() || !o.x.reply.Fault.between() {
		return nil
	}
	return o.strike()
}

// put sends b, up to the byte at which the fault strikes.
func (o *outlet) put(b []byte) error {
	if o.x.ctx.Err() != nil {
		return errGone
	}
	if o.slow {
		return o.drip(b)
	}
	at := o.place(b)
	if at < 0 {
		return o.raw(b)
	}
	if at > 0 {
		if err := o.raw(b[:at]); err != nil {
			return err
		}
	}
	rest := bytes.Clone(b[at:]) // acting out a fault uses the buffer
	if err := o.strike(); err != nil {
		return err
	}
	return o.drip(rest) // what goes on after a strike is slow
}

// place returns the number of bytes of b that go out before the fault strikes; -1 when it does not strike within b.
func (o *outlet) place(b []byte) int {
	f := o.x.reply.Fault
	if !o.armed() || f.between() {
		return -1
	}
	at := max(0, f.AfterBytes-o.past)
	o.past += len(b)
	if f.InRune {
		for at < len(b) && b[at] < 0xC0 { // ASCII and the later bytes of a rune
			at++
		}
		at++ // after its first byte
	}
	switch {
	case at > len(b):
		return -1
	case f.Kind == FaultErrorEvent:
		return len(b)
	}
	return at
}

// strike acts out the fault. Only a slow one lets the answer go on: there it returns nil.
func (o *outlet) strike() error {
	f := o.x.reply.Fault
	o.struck = true
	switch {
	case f.Kind == FaultSlow:
		o.slow = true
		return nil
	case f.Kind == FaultReset, f.Kind == FaultEOF && !o.began && !o.x.p.Stream:
		return errReset
	}
	if !o.began && o.x.p.Stream { // the headers of a 200 go out before an early end
		o.x.s.record.update(o.x.kept, func(c *Captured) { c.Status = http.StatusOK })
		o.x.w.WriteHeader(http.StatusOK)
		if o.rc.Flush() != nil {
			return errGone
		}
	}
	switch {
	case f.Kind == FaultErrorEvent:
		if err := o.write("error", f.apiError().body("")); err != nil {
			return err
		}
		return errEvent
	case f.Kind == FaultEOF:
		return errEOF
	case f.Kind == FaultPings && o.x.p.Stream:
		for wait(o.x.ctx, f.every()) == nil {
			if err := o.write("ping", bare{"ping"}); err != nil {
				return err
			}
		}
		return errGone
	}
	<-o.x.ctx.Done()
	return errGone
}

// drip sends b one byte at a time.
func (o *outlet) drip(b []byte) error {
	for i := range b {
		if wait(o.x.ctx, o.x.reply.Fault.every()) != nil {
			return errGone
		}
		if err := o.raw(b[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (o *outlet) raw(b []byte) error {
	o.began = true
	if _, err := o.x.w.Write(b); err != nil {
		return errGone
	}
	if o.rc.Flush() != nil {
		return errGone
	}
	return nil
}

// reset closes the connection with a TCP reset where the transport allows it, else ends the answer abruptly.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the documented way to drop a connection; net/http does not log it
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
