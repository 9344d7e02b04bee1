package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"forkyard/forkcore"
)

const (
	// liveBlock bounds one blocking read: the client cannot give one up when ctx ends.
	liveBlock = 500 * time.Millisecond
	// liveBatch bounds what one read returns of each stream.
	liveBatch = 512
	// Pauses after a failed read double from the first to the last.
	livePauseMin = 50 * time.Millisecond
	livePauseMax = 2 * time.Second
)

// Live calls fn with every durable event and delta of every session, from
// since on (zero: from now), until ctx ends; it returns ctx's error then. Calls are one at a
// time unless Redis is a cluster (then one at a time for each shard), in order within a
// session. fn must not block. While Redis is away Live waits and goes on where
// it was; what was trimmed meanwhile is lost, so readers that must not miss
// anything follow Events.
func (s *Store) Live(ctx context.Context, since time.Time, fn func(forkcore.Event)) error {
	client, perShard, err := s.liveClient()
	if err != nil {
		return err
	}
	defer func() {
		if err := client.Close(); err != nil {
			s.logger.Warn("close the live reader", "error", err)
		}
	}()
	groups := [][]int{make([]int, forkcore.Shards)}
	if perShard {
		groups = make([][]int, forkcore.Shards)
	}
	for i := range forkcore.Shards {
		if perShard {
			groups[i] = []int{i}
		} else {
			groups[0][i] = i
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, shards := range groups {
		g.Go(func() error {
			r := liveReader{store: s, client: client, fn: fn}
			return r.run(ctx, shards, since)
		})
	}
	return g.Wait()
}

// liveClient makes a client of its own for blocking reads, so that they keep
// no connection from others. In a cluster the streams of one read must share a slot.
func (s *Store) liveClient() (client redis.UniversalClient, perShard bool, err error) {
	switch c := s.client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.PoolSize, o.MinIdleConns, o.MaxRetries = 2, 0, -1
		return redis.NewClient(&o), false, nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.MinIdleConns = 0
		return redis.NewClusterClient(&o), true, nil
	}
	return nil, false, fmt.Errorf("live events need a redis.Client or redis.ClusterClient, not %T", s.client)
}

// liveReader follows the live streams of some shards.
type liveReader struct {
	store  *Store
	client redis.UniversalClient
	fn     func(forkcore.Event)
}

func (r liveReader) run(ctx context.Context, shards []int, since time.Time) error {
	pause := livePauseMin
	var keys, ids []string
	for ctx.Err() == nil {
		var err error
		if keys == nil {
			keys, ids, err = r.start(ctx, shards, since)
		} else {
			err = r.read(ctx, keys, ids)
		}
		if err == nil {
			pause = livePauseMin
			continue
		}
		if ctx.Err() != nil {
			break
		}
		r.store.logger.Warn("live events interrupted", "error", r.store.failure("read live events", err), "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, livePauseMax)
	}
	return ctx.Err()
}

// start finds the ids to read after. They are fixed once, so that nothing
// written while a read fails is skipped.
func (r liveReader) start(ctx context.Context, shards []int, since time.Time) (keys, ids []string, err error) {
	for _, i := range shards {
		key := shard(i).key(stemLive)
		id := firstEvent
		if since.IsZero() {
			last, err := r.client.XRevRangeN(ctx, key, "+", "-", 1).Result()
			if err != nil {
				return nil, nil, err
			}
			if len(last) > 0 {
				id = last[0].ID
			}
		} else if ms := since.UnixMilli(); ms > 0 {
			id = fmt.Sprintf("%d-%d", ms-1, uint64(math.MaxInt64))
		}
		keys, ids = append(keys, key), append(ids, id)
	}
	return keys, ids, nil
}

// read waits for the next events and moves ids on.
func (r liveReader) read(ctx context.Context, keys, ids []string) error {
	streams := make([]string, 0, 2*len(keys))
	streams = append(append(streams, keys...), ids...)
	result, err := r.client.XRead(ctx, &redis.XReadArgs{Streams: streams, Count: liveBatch, Block: liveBlock}).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return err
	}
	place := make(map[string]int, len(keys))
	for i, k := range keys {
		place[k] = i
	}
	for _, stream := range result {
		for _, m := range stream.Messages {
			if ctx.Err() != nil {
				return nil
			}
			ids[place[stream.Stream]] = m.ID
			r.deliver(m)
		}
	}
	return nil
}

func (r liveReader) deliver(m redis.XMessage) {
	id, _ := m.Values["id"].(string)
	session, _ := m.Values["session"].(string)
	e, err := decodeEvent(id, session, m.Values)
	if err != nil {
		// One bad event must not stop the others.
		r.store.logger.Error("live event cannot be read", "stream_id", m.ID, "session", session, "error", err)
		return
	}
	if id == "" {
		e.At = timeOfEvent(m.ID)
	}
	r.fn(e)
}
