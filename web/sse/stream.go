package sse

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"forkyard/forkcore"
)

// Store keeps the durable events of each session.
type Store interface {
	// Events returns durable events with an id after the given one, oldest first; "0" is the beginning.
	Events(ctx context.Context, sessionID, after string, limit int) ([]forkcore.Event, error)
	// LastEventID is the id of the latest event, "0-0" before the first.
	LastEventID(ctx context.Context, sessionID string) (string, error)
}

// SessionLister pages through all sessions; cursor "" starts, next "" ends.
type SessionLister interface {
	Sessions(ctx context.Context, cursor string, limit int) (sessions []forkcore.Session, next string, err error)
}

const (
	// beat is the time between heartbeats; 15 s are promised.
	beat = 10 * time.Second
	// pageLength is how many stored events, or sessions, are read at once.
	pageLength = 200
	// overlap is how far a resumed stream of all sessions goes back: two sessions may live in
	// two streams of the database that are read one after the other.
	overlap = 5 * time.Second
	// batchLength is how many waiting events one flush carries at most.
	batchLength = 64
)

// Streamer serves streams: what is stored first, then what is live, without a gap.
type Streamer struct {
	Hub      *Hub
	Store    Store
	Sessions SessionLister
}

// Session serves the events of one session. With after nil it begins now, and the first frame is a heartbeat with
// the current id. It returns nil when ctx ends, the client is cut or the hub closes. An error that
// comes before the headers were sent leaves the response untouched.
func (s *Streamer) Session(ctx context.Context, w http.ResponseWriter, sessionID string, after *ID) error {
	text, err := s.Store.LastEventID(ctx, sessionID)
	if err != nil {
		return err
	}
	last, err := ParseID(text)
	if err != nil {
		return err
	}
	// A cursor from after the last event is another session's, or older than a restored database: it would hide all that comes.
	if after != nil && after.Compare(last) > 0 {
		after = &last
	}
	sub := s.Hub.NewSubscription(ctx, sessionID)
	defer sub.Close()
	out, err := Start(sub.ctx, w)
	if err != nil {
		return sub.ended(err)
	}
	defer out.Close()
	if after == nil {
		if err := out.Send(heartbeat(last, sessionID)); err != nil {
			return sub.ended(err)
		}
	} else if last, err = s.replay(sub.ctx, out, sessionID, *after, nil); err != nil {
		return sub.ended(err)
	}
	// The long part of the history was read before there is a queue to overflow. What came since then is read
	// once more from the store, and what is queued meanwhile is known by its id.
	sub.Collect()
	if last, err = s.replay(sub.ctx, out, sessionID, last, nil); err != nil {
		return sub.ended(err)
	}
	fresh := func(i *Item) bool {
		if i.ID.Compare(last) <= 0 {
			return false
		}
		last = i.ID
		return true
	}
	return sub.ended(sub.serve(out, fresh, func() ID { return last }))
}

// All serves the events of all sessions, as Session does for one. Within a session the order holds and nothing is
// missing. A resumed stream goes back a little further than after and may repeat events; while it reads stored
// events their frames carry after as their id, so that a break in the middle loses nothing.
func (s *Streamer) All(ctx context.Context, w http.ResponseWriter, after *ID) error {
	// Reading one page is how an unreachable database becomes an error in time.
	if _, _, err := s.Sessions.Sessions(ctx, "", 1); err != nil {
		return err
	}
	sub := s.Hub.NewSubscription(ctx, "")
	defer sub.Close()
	out, err := Start(sub.ctx, w)
	if err != nil {
		return sub.ended(err)
	}
	defer out.Close()
	seen := map[string]ID{} // by session
	last := ID{MS: uint64(time.Now().UnixMilli())}
	if after != nil && after.Compare(last) > 0 {
		after = &last
	}
	if after != nil {
		if err := s.replayAll(sub.ctx, out, *after, seen); err != nil {
			return sub.ended(err)
		}
	}
	sub.Collect()
	if after != nil {
		if err := s.replayAll(sub.ctx, out, *after, seen); err != nil {
			return sub.ended(err)
		}
	}
	if err := out.Send(heartbeat(last, "")); err != nil {
		return sub.ended(err)
	}
	fresh := func(i *Item) bool {
		if i.ID.Compare(seen[i.Event.SessionID]) <= 0 {
			return false
		}
		seen[i.Event.SessionID] = i.ID
		if i.ID.Compare(last) > 0 {
			last = i.ID
		}
		return true
	}
	return sub.ended(sub.serve(out, fresh, func() ID { return last }))
}

// replay sends the stored events after an id and returns the last one's. With label set all frames carry that id.
func (s *Streamer) replay(ctx context.Context, out *Writer, sessionID string, after ID, label *ID) (ID, error) {
	for {
		events, err := s.Store.Events(ctx, sessionID, after.String(), pageLength)
		if err != nil {
			return after, err
		}
		frames := make([]Frame, 0, len(events))
		for _, e := range events {
			f, err := s.Hub.encode(ctx, e)
			if err != nil {
				return after, err
			}
			if after, err = ParseID(e.ID); err != nil {
				return after, err
			}
			if label != nil {
				f.ID = label.String()
			}
			frames = append(frames, f)
		}
		if len(frames) > 0 {
			if err := out.Send(frames...); err != nil {
				return after, err
			}
		}
		if len(events) < pageLength {
			return after, nil
		}
	}
}

// replayAll replays every session, each after what was seen of it.
func (s *Streamer) replayAll(ctx context.Context, out *Writer, after ID, seen map[string]ID) error {
	from := ID{MS: after.MS - min(after.MS, uint64(overlap.Milliseconds()))}
	cursor := ""
	for {
		sessions, next, err := s.Sessions.Sessions(ctx, cursor, pageLength)
		if err != nil {
			return err
		}
		for _, session := range sessions {
			start, begun := seen[session.ID]
			if !begun {
				start = from
			}
			if seen[session.ID], err = s.replay(ctx, out, session.ID, start, &after); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		cursor = next
	}
}

// serve sends live events until the subscription ends. fresh says of a durable event that it was not sent before
// and remembers it; last is the id that heartbeats carry.
func (s *Subscription) serve(out *Writer, fresh func(*Item) bool, last func() ID) error {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	frames := make([]Frame, 0, batchLength)
	for {
		frames = frames[:0]
		select {
		case <-s.ctx.Done():
			return nil
		case <-tick.C:
			frames = append(frames, heartbeat(last(), s.sessionID))
		case item := <-s.items:
			// What else waits goes out with the same flush.
			for more := true; more; {
				if !item.Durable() || fresh(item) {
					f, err := item.Frame()
					if err != nil {
						return err
					}
					frames = append(frames, f)
				}
				if more = len(frames) < batchLength; !more {
					break
				}
				select {
				case item = <-s.items:
				default:
					more = false
				}
			}
		}
		if len(frames) == 0 {
			continue
		}
		if err := out.Send(frames...); err != nil {
			return err
		}
	}
}

// ended drops an error that only says that the stream was ended.
func (s *Subscription) ended(err error) error {
	if s.ctx.Err() != nil {
		return nil
	}
	return err
}

// heartbeat tells the client that the stream lives and where it is.
func heartbeat(id ID, sessionID string) Frame {
	data, err := json.Marshal(struct {
		Type      string `json:"type"`
		SessionID string `json:"session_id,omitempty"`
		At        string `json:"at"`
	}{"heartbeat", sessionID, time.Now().UTC().Format("2006-01-02T15:04:05.000Z")})
	if err != nil {
		panic(err) // three strings
	}
	return Frame{ID: id.String(), Event: "heartbeat", Data: data}
}
