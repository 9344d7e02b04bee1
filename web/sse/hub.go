package sse

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"forkyard/forkcore"
)

// Live follows all events of all sessions.
type Live interface {
	// Live calls fn with every durable event and delta of every session from since on (zero: from now), the
	// events of one session in their order, until ctx ends. fn does not block.
	Live(ctx context.Context, since time.Time, fn func(forkcore.Event)) error
}

// Encode turns an event into what clients get. The hub calls it at most once for an event, however many
// clients watch.
type Encode func(context.Context, forkcore.Event) (Frame, error)

const (
	// queueLength is how many events a client may lag behind before it is cut.
	queueLength = 512
	// feedMargin is how far before its start a feed begins: the clocks of this machine and of the database
	// differ, and a client may have subscribed while the feed was being opened.
	feedMargin = 30 * time.Second
	// feedPause is the time between two attempts to open the feed; shorter than feedMargin.
	feedPause = 2 * time.Second
	// encodeLimit bounds one call of Encode.
	encodeLimit = 10 * time.Second
)

// Hub reads one live feed and gives it to all clients.
type Hub struct {
	live   Live
	encode Encode
	log    *slog.Logger

	ctx  context.Context // ends all streams
	stop context.CancelFunc
	done chan struct{}

	mu        sync.Mutex
	subs      map[string]map[*Subscription]struct{} // by session id; "" watches all
	observers []Observer

	clients, cut atomic.Int64
}

// Observer is a part of this program that sees every event before any client does. Its methods must be quick.
type Observer interface {
	Observe(e forkcore.Event)
	// FeedLost says that events may have been missed.
	FeedLost()
}

// StartHub starts a hub whose goroutine runs until Close.
func StartHub(live Live, encode Encode, log *slog.Logger) *Hub {
	ctx, stop := context.WithCancel(context.Background())
	h := &Hub{
		live: live, encode: encode, log: log,
		ctx: ctx, stop: stop, done: make(chan struct{}),
		subs: map[string]map[*Subscription]struct{}{},
	}
	go h.run()
	return h
}

// Close ends every stream and waits for the hub's goroutine.
func (h *Hub) Close() {
	h.stop()
	<-h.done
}

// AddObserver lets o see all events from now on.
func (h *Hub) AddObserver(o Observer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.observers = append(h.observers, o)
}

// Clients is the number of open subscriptions, Cut how many slow clients were cut since the start.
func (h *Hub) Clients() int64 { return h.clients.Load() }

// Cut counts the clients that were cut because they lagged behind.
func (h *Hub) Cut() int64 { return h.cut.Load() }

func (h *Hub) run() {
	defer close(h.done)
	for {
		start := time.Now()
		err := h.live.Live(h.ctx, start.Add(-feedMargin), func(e forkcore.Event) { h.publish(e, start) })
		if h.ctx.Err() != nil {
			return
		}
		h.log.Warn("live feed of events ended, opening it again", "error", err)
		// What was published meanwhile is lost to whoever is connected: they read it from the store when they resume.
		h.cutAll()
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(feedPause):
		}
	}
}

var errSlow = errors.New("the client reads too slowly; it resumes after the last id it got")

func (h *Hub) publish(e forkcore.Event, feedStart time.Time) {
	item := &Item{Event: e}
	if e.ID == "" {
		if e.At.Before(feedStart) {
			return // a delta of the margin: too old to matter
		}
	} else {
		id, err := ParseID(e.ID)
		if err != nil {
			h.log.Error("event of the live feed left out", "session_id", e.SessionID, "error", err)
			return
		}
		item.ID = id
	}
	item.frame = sync.OnceValues(func() (Frame, error) {
		ctx, cancel := context.WithTimeout(h.ctx, encodeLimit)
		defer cancel()
		return h.encode(ctx, e)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.observers {
		o.Observe(e)
	}
	for _, key := range []string{e.SessionID, ""} {
		for s := range h.subs[key] {
			// Deltas may be dropped, so a client that lags loses them first.
			if e.ID == "" && len(s.items) > queueLength/2 {
				continue
			}
			select {
			case s.items <- item:
			default:
				h.cut.Add(1)
				s.cancel(errSlow)
				h.removeLocked(s)
			}
		}
	}
}

func (h *Hub) cutAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.observers {
		o.FeedLost()
	}
	for _, subs := range h.subs {
		for s := range subs {
			s.cancel(errors.New("the live feed was interrupted"))
			h.removeLocked(s)
		}
	}
}

// Item is an event on its way to clients.
type Item struct {
	Event forkcore.Event
	ID    ID // zero for deltas
	frame func() (Frame, error)
}

// Durable reports whether the event is kept and has an id.
func (i *Item) Durable() bool { return i.Event.ID != "" }

// Frame is the encoded event, shared by all clients.
func (i *Item) Frame() (Frame, error) { return i.frame() }

// Subscription receives the events of one session, or of all.
type Subscription struct {
	hub       *Hub
	sessionID string
	items     chan *Item
	ctx       context.Context
	cancel    context.CancelCauseFunc
	unlink    func() bool
}

// NewSubscription prepares to watch a session; "" is all sessions. Its context ends with ctx, when the client is
// cut, and when the hub closes. Nothing is collected before Collect. The caller calls Close.
func (h *Hub) NewSubscription(ctx context.Context, sessionID string) *Subscription {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Subscription{hub: h, sessionID: sessionID, items: make(chan *Item, queueLength), ctx: ctx, cancel: cancel}
	s.unlink = context.AfterFunc(h.ctx, func() { cancel(errors.New("the server is stopping")) })
	h.clients.Add(1)
	return s
}

// Context ends with the subscription.
func (s *Subscription) Context() context.Context { return s.ctx }

// Items are the events since Collect, in order within a session. Whoever reads them slowly is cut.
func (s *Subscription) Items() <-chan *Item { return s.items }

// Collect begins to queue events.
func (s *Subscription) Collect() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs[s.sessionID] == nil {
		h.subs[s.sessionID] = map[*Subscription]struct{}{}
	}
	h.subs[s.sessionID][s] = struct{}{}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	s.hub.removeLocked(s)
	s.hub.mu.Unlock()
	s.unlink()
	s.cancel(nil)
	s.hub.clients.Add(-1)
}

func (h *Hub) removeLocked(s *Subscription) {
	subs := h.subs[s.sessionID]
	delete(subs, s)
	if len(subs) == 0 {
		delete(h.subs, s.sessionID)
	}
}
