package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// Inbox implements engine.Reader.
func (s *Store) Inbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error) {
	return opened(ctx, s, sessionID, func() ([]forkcore.InboxItem, error) { return s.readInbox(ctx, sessionID) })
}

func (s *Store) readInbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	var order *redis.StringSliceCmd
	var records *redis.MapStringStringCmd
	// No transaction: a full Redis refuses those, even of reads alone.
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		order = p.LRange(ctx, sh.key(stemInboxOrder, sessionID), 0, -1)
		records = p.HGetAll(ctx, sh.key(stemInbox, sessionID))
		return nil
	})
	if err != nil {
		return nil, s.failure("read inbox", err)
	}
	if len(order.Val()) == 0 {
		_, err := s.object(ctx, "session", stemSession, sessionID)
		return nil, err
	}
	items := make([]forkcore.InboxItem, 0, len(order.Val()))
	for _, id := range order.Val() {
		record, found := records.Val()[id]
		if !found {
			continue // taken between the two reads
		}
		ms, body, _ := strings.Cut(record, ":")
		n, err := strconv.ParseInt(ms, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read inbox item %s: %w", id, err)
		}
		item := forkcore.InboxItem{}
		if err := json.Unmarshal([]byte(body), &item); err != nil {
			return nil, fmt.Errorf("read inbox item %s: %w", id, err)
		}
		item.ID, item.At = id, time.UnixMilli(n).UTC()
		items = append(items, item)
	}
	return items, nil
}
