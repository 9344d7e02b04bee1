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
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	var order *redis.StringSliceCmd
	var records *redis.MapStringStringCmd
	// One transaction, so that list and hash agree.
	_, err = s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		order = p.LRange(ctx, sh.key(stemInboxOrder, sessionID), 0, -1)
		records = p.HGetAll(ctx, sh.key(stemInbox, sessionID))
		return nil
	})
	if err != nil {
		return nil, s.failure("read inbox", err)
	}
	if len(order.Val()) == 0 {
		_, err := s.Session(ctx, sessionID)
		return nil, err
	}
	items := make([]forkcore.InboxItem, len(order.Val()))
	for i, id := range order.Val() {
		ms, body, _ := strings.Cut(records.Val()[id], ":")
		n, err := strconv.ParseInt(ms, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read inbox item %s: %w", id, err)
		}
		if err := json.Unmarshal([]byte(body), &items[i]); err != nil {
			return nil, fmt.Errorf("read inbox item %s: %w", id, err)
		}
		items[i].ID, items[i].At = id, time.UnixMilli(n).UTC()
	}
	return items, nil
}
