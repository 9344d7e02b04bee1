package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// The first byte of a stored blob says how the rest is kept.
const (
	blobPlain byte = 0
	blobZstd  byte = 1
)

const (
	// packFrom is the size from which compression is tried.
	packFrom = 256
	// blobBatch bounds one read of blobs: about 64 messages.
	blobBatch = 64
	// maxBlob bounds what a stored blob may unpack to.
	maxBlob = 1 << 30
)

func newPacker() (*zstd.Encoder, *zstd.Decoder) {
	// Neither fails without a reader, writer or dictionary and with valid options.
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlob))
	if err != nil {
		panic(err)
	}
	return e, d
}

// pack compresses when that saves at least an eighth.
func (s *Store) pack(b []byte) []byte {
	if len(b) >= packFrom {
		packed := s.packer.EncodeAll(b, []byte{blobZstd})
		if len(packed) <= len(b)-len(b)/8 {
			return packed
		}
	}
	return append([]byte{blobPlain}, b...)
}

// unpack undoes pack and checks the bytes against their digest.
func (s *Store) unpack(id forkcore.Digest, stored string) ([]byte, error) {
	if stored == "" {
		return nil, fmt.Errorf("blob %s: %w: empty", id, forkcore.ErrCorrupt)
	}
	b := []byte(stored[1:])
	switch stored[0] {
	case blobPlain:
	case blobZstd:
		var err error
		if b, err = s.unpacker.DecodeAll(b, nil); err != nil {
			return nil, fmt.Errorf("blob %s: %w: %w", id, forkcore.ErrCorrupt, err)
		}
	default:
		return nil, fmt.Errorf("blob %s: %w: unknown form %d", id, forkcore.ErrCorrupt, stored[0])
	}
	if forkcore.DigestOf(b) != id {
		return nil, fmt.Errorf("blob %s: %w", id, forkcore.ErrCorrupt)
	}
	return b, nil
}

// PutBlobs implements engine.Store.
func (s *Store) PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error {
	sh, err := shardOf(sessionID)
	if err != nil {
		return err
	}
	if len(blobs) == 0 {
		return nil
	}
	values := make([]any, 0, 2*len(blobs))
	for _, b := range blobs {
		values = append(values, forkcore.DigestOf(b).String(), s.pack(b))
	}
	return s.failure("store blobs", s.client.HSet(ctx, sh.key(stemBlobs, sessionID), values...).Err())
}

// Blobs implements engine.Reader. One that is not there is forkcore.ErrNotFound.
func (s *Store) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	return opened(ctx, s, sessionID, func() ([][]byte, error) { return s.readBlobs(ctx, sh, sessionID, ids) })
}

func (s *Store) readBlobs(ctx context.Context, sh shard, sessionID string, ids []forkcore.Digest) ([][]byte, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	key := sh.key(stemBlobs, sessionID)
	var cmds []*redis.SliceCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for start := 0; start < len(ids); start += blobBatch {
			var names []string
			for _, id := range ids[start:min(start+blobBatch, len(ids))] {
				names = append(names, id.String())
			}
			cmds = append(cmds, p.HMGet(ctx, key, names...))
		}
		return nil
	})
	if err != nil {
		return nil, s.failure("read blobs", err)
	}
	blobs := make([][]byte, 0, len(ids))
	for _, c := range cmds {
		for _, v := range c.Val() {
			id := ids[len(blobs)]
			stored, found := v.(string)
			if !found {
				return nil, fmt.Errorf("blob %s of %s: %w", id, sessionID, forkcore.ErrNotFound)
			}
			b, err := s.unpack(id, stored)
			if err != nil {
				return nil, err
			}
			blobs = append(blobs, b)
		}
	}
	if len(blobs) != len(ids) {
		return nil, errors.New("read blobs: fewer answers than questions")
	}
	return blobs, nil
}
