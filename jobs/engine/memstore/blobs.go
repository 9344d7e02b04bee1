package memstore

import (
	"context"
	"fmt"
	"slices"

	"forkyard/forkcore"
)

// PutBlobs implements engine.Store.
func (s *Store) PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error {
	leave, err := s.enter(ctx, "store blobs", sessionID)
	if err != nil {
		return err
	}
	defer leave()
	if s.blobs[sessionID] == nil {
		s.blobs[sessionID] = map[forkcore.Digest][]byte{}
	}
	for _, b := range blobs {
		s.blobs[sessionID][forkcore.DigestOf(b)] = slices.Clone(b)
	}
	return nil
}

// Blobs implements engine.Reader. One that is not there is forkcore.ErrNotFound.
func (s *Store) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	leave, err := s.enter(ctx, "read blobs", sessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
	var list [][]byte
	for _, id := range ids {
		b, err := s.blob(sessionID, id)
		if err != nil {
			return nil, err
		}
		list = append(list, b)
	}
	return list, nil
}

// blob reads a copy of stored bytes and checks them against their digest.
func (s *Store) blob(sessionID string, id forkcore.Digest) ([]byte, error) {
	b, ok := s.blobs[sessionID][id]
	if !ok {
		return nil, notFound("blob", id.String())
	}
	if forkcore.DigestOf(b) != id {
		return nil, fmt.Errorf("blob %s: %w", id, forkcore.ErrCorrupt)
	}
	return slices.Clone(b), nil
}

// PutSnapshot implements engine.Store.
func (s *Store) PutSnapshot(ctx context.Context, snap forkcore.Snapshot) error {
	c, leave, err := s.lookup(ctx, "store snapshot", snap.SessionID)
	if err != nil {
		return err
	}
	defer leave()
	if _, known := c.snapshots[snap.ID]; !known {
		c.snapshots[snap.ID] = snap
	}
	return nil
}

// Snapshot implements engine.Reader.
func (s *Store) Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error) {
	c, leave, err := s.lookup(ctx, "read snapshot", sessionID)
	if err != nil {
		return forkcore.Snapshot{}, err
	}
	defer leave()
	snap, ok := c.snapshots[id]
	if !ok {
		return forkcore.Snapshot{}, notFound("snapshot", id.String())
	}
	return snap, nil
}

// SessionsOfSnapshot implements engine.Reader, in order of their ids.
func (s *Store) SessionsOfSnapshot(ctx context.Context, id forkcore.Digest) ([]string, error) {
	leave, err := s.enter(ctx, "read sessions of snapshot")
	if err != nil {
		return nil, err
	}
	defer leave()
	var ids []string
	for _, c := range s.order {
		if _, ok := c.snapshots[id]; ok {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return nil, notFound("snapshot", id.String())
	}
	slices.Sort(ids)
	return ids, nil
}
