package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// firstEvent is the id before all events.
const firstEvent = "0-0"

var eventID = regexp.MustCompile(`^\d{1,19}(-\d{1,19})?$`)

// Events returns a session's durable events with an ID after the given one,
// oldest first; after "0" means from the beginning, limit 0 all of them. An archived session has none here and is not opened
// by this: a stream of all sessions asks for the events of each. LastEventID opens it.
func (s *Store) Events(ctx context.Context, sessionID, after string, limit int) ([]forkcore.Event, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	if !eventID.MatchString(after) {
		return nil, forkcore.Invalid("after", "must be the id of an event, such as 1764510000000-0, or 0")
	}
	key := sh.key(stemEvents, sessionID)
	var messages []redis.XMessage
	if limit > 0 {
		messages, err = s.client.XRangeN(ctx, key, "("+after, "+", int64(limit)).Result()
	} else {
		messages, err = s.client.XRange(ctx, key, "("+after, "+").Result()
	}
	if err != nil {
		return nil, s.failure("read events", err)
	}
	events := make([]forkcore.Event, len(messages))
	for i, m := range messages {
		if events[i], err = decodeEvent(m.ID, sessionID, m.Values); err != nil {
			return nil, fmt.Errorf("event %s of %s: %w", m.ID, sessionID, err)
		}
	}
	return events, nil
}

// LastEventID is the ID of a session's latest durable event, "0-0" when there is none.
func (s *Store) LastEventID(ctx context.Context, sessionID string) (string, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return "", err
	}
	id, err := opened(ctx, s, sessionID, func() (string, error) {
		messages, err := s.client.XRevRangeN(ctx, sh.key(stemEvents, sessionID), "+", "-", 1).Result()
		switch {
		case err != nil:
			return "", s.failure("read last event", err)
		case len(messages) == 0:
			return "", forkcore.ErrNotFound
		}
		return messages[0].ID, nil
	})
	if errors.Is(err, forkcore.ErrNotFound) {
		return firstEvent, nil
	}
	return id, err
}

// PublishDelta implements engine.Store. A retry may send a piece twice; seq and offset tell.
func (s *Store) PublishDelta(ctx context.Context, d engine.Delta) error {
	sh, err := shardOf(d.SessionID)
	if err != nil {
		return err
	}
	err = s.client.XAdd(ctx, &redis.XAddArgs{
		Stream: sh.key(stemLive), MaxLen: liveLength, Approx: true,
		Values: []string{"session", d.SessionID, "event", string(forkcore.EventDelta), "run", d.RunID, "object", encode(d)},
	}).Err()
	return s.failure("publish delta", err)
}

// decodeEvent reads an event as the prelude's flush writes it. id is empty for deltas.
func decodeEvent(id, sessionID string, values map[string]any) (forkcore.Event, error) {
	text := func(field string) string {
		v, _ := values[field].(string)
		return v
	}
	e := forkcore.Event{
		ID: id, Type: forkcore.EventType(text("event")), SessionID: sessionID, RunID: text("run"), At: timeOfEvent(id),
	}
	object := text("object")
	switch e.Type {
	case forkcore.EventSession:
		return e, decodeObject(object, parseSession, &e.Session)
	case forkcore.EventRun, forkcore.EventNotification:
		return e, decodeObject(object, parseRun, &e.Run)
	case forkcore.EventGate:
		return e, decodeObject(object, parseDispatch, &e.Dispatch)
	case forkcore.EventRequest:
		row, err := decodeRow(object)
		e.Request = &row
		return e, err
	case forkcore.EventMessage:
		seq, err := strconv.ParseInt(text("seq"), 10, 64)
		if err != nil {
			return e, fmt.Errorf("read seq: %w", err)
		}
		entry, err := decodeEntry(object, seq)
		e.Entry, e.AgentID = &entry, text("agent")
		return e, err
	case forkcore.EventDelta:
		e.Delta = []byte(object)
		return e, nil
	}
	return e, fmt.Errorf("unknown type %q", e.Type)
}

// decodeObject reads a hash as JSON into *to.
func decodeObject[T any](object string, parse func(fields) (T, error), to **T) error {
	var f fields
	if err := json.Unmarshal([]byte(object), &f); err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	v, err := parse(f)
	*to = &v
	return err
}

// timeOfEvent is the milliseconds in front of a stream id.
func timeOfEvent(id string) time.Time {
	ms, _, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
