package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// PutSnapshot implements engine.Store. The set of sessions lives outside the
// shard and can be rebuilt, so the two writes need not be one step.
func (s *Store) PutSnapshot(ctx context.Context, snap forkcore.Snapshot) error {
	sh, err := shardOf(snap.SessionID)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(snap)
	if err != nil {
		return fmt.Errorf("encode snapshot %s: %w", snap.ID, err)
	}
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSetNX(ctx, sh.key(stemSnapshots, snap.SessionID), snap.ID.String(), manifest)
		p.SAdd(ctx, keySnapshotSessions+snap.ID.String(), snap.SessionID)
		return nil
	})
	return s.failure("store snapshot", err)
}

// Snapshot implements engine.Reader.
func (s *Store) Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return forkcore.Snapshot{}, err
	}
	manifest, err := opened(ctx, s, sessionID, func() ([]byte, error) {
		b, err := s.client.HGet(ctx, sh.key(stemSnapshots, sessionID), id.String()).Bytes()
		if errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("snapshot %s of %s: %w", id, sessionID, forkcore.ErrNotFound)
		}
		return b, s.failure("read snapshot", err)
	})
	if err != nil {
		return forkcore.Snapshot{}, err
	}
	var snap forkcore.Snapshot
	if err := json.Unmarshal(manifest, &snap); err != nil {
		return forkcore.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return snap, nil
}

// SessionsOfSnapshot implements engine.Reader, in order of their ids.
func (s *Store) SessionsOfSnapshot(ctx context.Context, id forkcore.Digest) ([]string, error) {
	ids, err := s.client.SMembers(ctx, keySnapshotSessions+id.String()).Result()
	if err != nil {
		return nil, s.failure("read sessions of snapshot", err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("snapshot %s: %w", id, forkcore.ErrNotFound)
	}
	slices.Sort(ids)
	return ids, nil
}
