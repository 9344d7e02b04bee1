package web

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"net/http"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
	"forkyard/web/sse"
)

// livePage is a page that a stream keeps up to date. It holds what was read from the store, takes in events and says
// what to draw; a full load and the stream draw the same parts, so a page that was cut off ends up like a fresh one.
type livePage interface {
	// apply takes in an event of the session. Events may come that the page was read after; what they carry is older
	// than what the page holds, by version or seq, and changes nothing then.
	apply(ctx context.Context, e forkcore.Event) error
	// parts lists what is drawn, in the order of the page.
	parts() []part
}

// part is a piece of a page that is replaced as a whole.
type part struct {
	// id is that of the element that draw renders. The browser morphs it in place, so focus and open details stay.
	id string
	// list is the id of the element that the part is appended to while the page does not have it; empty for a part
	// that every page has from the start.
	list string
	// key differs whenever what is drawn differs.
	key string
	// at is when that last changed, by the clock of the store; zero for what the store does not keep.
	at   time.Time
	draw templ.Component
	// pace is the least time between two drawings in one tab; zero: as often as the page.
	pace time.Duration
}

const (
	// livePeriod is the time between two updates of a page, and so of each of its rows.
	livePeriod = 100 * time.Millisecond
	// liveBeat is the time between two signs of life; live.js calls a page stale after 2.5 of them.
	liveBeat = 10 * time.Second
	// liveMargin is how far before the cursor a resumed page goes back: objects carry the time of the script that
	// wrote them, and in a cluster their clocks differ. What is drawn twice looks the same.
	liveMargin = 2 * time.Second
)

// stream keeps a page up to date until the client goes, is cut or the server stops. sessionID "" is all sessions.
// load reads the page and the id of the last event that it is sure to contain.
func (s *Server) stream(c echo.Context, sessionID string, load func(ctx context.Context) (livePage, sse.ID, error)) error {
	after, err := api.Cursor(c)
	if err != nil {
		return err
	}
	// Nothing that happens while the page is read may be missed. A session that is busy could overflow the queue meanwhile, so
	// its events are read from the store afterwards; the list of all sessions is read quickly.
	sub := s.api.Hub().NewSubscription(c.Request().Context(), sessionID)
	defer sub.Close()
	if sessionID == "" {
		sub.Collect()
	}
	page, last, err := load(sub.Context())
	if err == nil && sessionID != "" {
		sub.Collect()
		last, err = s.catchUp(sub.Context(), page, sessionID, last)
	}
	if err != nil && sub.Context().Err() != nil && c.Request().Context().Err() == nil {
		return api.NewProblem(http.StatusServiceUnavailable, "The stream ended before it began.", "The page connects again by itself.")
	} else if err != nil {
		return err
	}
	if c.Request().Method == http.MethodHead {
		c.Response().Header().Set("Content-Type", "text/event-stream")
		return c.NoContent(http.StatusOK)
	}
	leave, stays := s.windows.enter(c.Request())
	defer leave()
	out, err := sse.Start(sub.Context(), c.Response())
	if err != nil {
		return streamEnd(sub, err)
	}
	defer out.Close()
	l := liveStream{page: page, out: out, last: last, sent: map[string]string{}, drawn: map[string]time.Time{}, alive: s.aliveFor(sessionID), once: !stays}
	// A cursor from after the last event is another session's, or older than a restored database: it says nothing about the tab.
	if after != nil && after.Compare(last) <= 0 {
		l.skipBefore(time.UnixMilli(int64(after.MS)).Add(-liveMargin))
	}
	return streamEnd(sub, l.run(sub))
}

// catchUp applies the events of a session that came since the page was read.
func (s *Server) catchUp(ctx context.Context, page livePage, sessionID string, last sse.ID) (sse.ID, error) {
	const atOnce = 500
	for {
		events, err := s.o.Events.Events(ctx, sessionID, last.String(), atOnce)
		if err != nil {
			return last, err
		}
		for _, e := range events {
			if err := page.apply(ctx, e); err != nil {
				return last, err
			}
			if last, err = sse.ParseID(e.ID); err != nil {
				return last, err
			}
		}
		if len(events) < atOnce {
			return last, nil
		}
	}
}

// storeAnswers reports whether the store, without which nothing new can be known, can be reached.
func (s *Server) storeAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return s.o.Events.Ping(ctx) == nil
}

// aliveFor is storeAnswers for a page of a session, of which it tells that somebody looks at it.
func (s *Server) aliveFor(sessionID string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		if !s.storeAnswers(ctx) {
			return false
		}
		if sessionID != "" && s.o.Storage != nil {
			s.o.Storage.NoteOpen(ctx, sessionID)
		}
		return true
	}
}

// streamEnd drops an error that only says that the stream was ended: the client sees the end and resumes.
func streamEnd(sub *sse.Subscription, err error) error {
	if sub.Context().Err() != nil {
		return nil
	}
	return err
}

// liveStream is one page in one browser tab.
type liveStream struct {
	page livePage
	out  *sse.Writer
	last sse.ID
	sent map[string]string // keys by part
	// alive is asked at every beat. While it says no there is none: the browser then says that the page is not up to date.
	alive func(ctx context.Context) bool
	// drawn is when the parts with a pace were sent.
	drawn map[string]time.Time
	// once ends the stream when the page is up to date.
	once bool
}

// skipBefore takes it that the tab has what did not change since then.
func (l *liveStream) skipBefore(since time.Time) {
	for _, p := range l.page.parts() {
		if !p.at.IsZero() && p.at.Before(since) {
			l.sent[p.id] = p.key
		}
	}
}

func (l *liveStream) run(sub *sse.Subscription) error {
	ctx := sub.Context()
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	if err := l.beat(); err != nil {
		return err
	}
	if _, err := l.flush(ctx); err != nil || l.once {
		return err
	}
	pause := time.NewTimer(livePeriod)
	defer pause.Stop()
	ready, dirty := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			if !l.alive(ctx) {
				continue
			}
			if err := l.beat(); err != nil {
				return err
			}
		case <-pause.C:
			ready = true
		case item := <-sub.Items():
			dirty = true
			if err := l.take(ctx, sub, item); err != nil {
				return err
			}
		}
		if !ready || !dirty {
			continue
		}
		later, err := l.flush(ctx)
		if err != nil {
			return err
		}
		ready, dirty = false, later
		pause.Reset(livePeriod)
	}
}

// take applies an event and all others that wait.
func (l *liveStream) take(ctx context.Context, sub *sse.Subscription, item *sse.Item) error {
	for {
		if err := l.page.apply(ctx, item.Event); err != nil {
			return err
		}
		if item.ID.Compare(l.last) > 0 {
			l.last = item.ID
		}
		select {
		case item = <-sub.Items():
		default:
			return nil
		}
	}
}

// flush sends the parts that differ from what the tab has, in one message, so that no cut leaves half of them. later is
// true when the pace of one of them put it off.
func (l *liveStream) flush(ctx context.Context) (later bool, err error) {
	var b bytes.Buffer
	for _, p := range l.page.parts() {
		if key, known := l.sent[p.id]; known && key == p.key {
			continue
		}
		if p.pace > 0 {
			if time.Since(l.drawn[p.id]) < p.pace {
				later = true
				continue
			}
			l.drawn[p.id] = time.Now()
		}
		l.sent[p.id] = p.key
		target, swap := p.id, "outerMorph"
		if p.list != "" {
			target, swap = p.list, "merge" // see live.js
		}
		fmt.Fprintf(&b, `<hx-partial hx-target="#%s" hx-swap="%s">`, html.EscapeString(target), swap)
		if err := p.draw.Render(ctx, &b); err != nil {
			return later, fmt.Errorf("rendering %s: %w", p.id, err)
		}
		b.WriteString("</hx-partial>\n")
	}
	if b.Len() == 0 {
		return later, nil
	}
	return later, l.out.Send(sse.Frame{ID: l.last.String(), Data: b.Bytes()})
}

// beat is a sign of life. It carries the cursor, so that a tab that comes back after a quiet time asks for little, and when
// it is to come back.
func (l *liveStream) beat() error {
	retry := retryPeriod
	if l.once {
		retry = pollPeriod
	}
	return l.out.Send(sse.Frame{ID: l.last.String(), Event: "beat", Retry: retry, Data: []byte("{}")})
}
