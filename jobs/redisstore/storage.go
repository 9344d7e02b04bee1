package redisstore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// KeepStorage samples the memory once a minute and, where this process has an archive, measures sessions and puts idle ones
// away, until ctx ends. Trouble is logged when it begins; the next round tries again.
func (s *Store) KeepStorage(ctx context.Context) {
	t := time.NewTicker(samplePeriod)
	defer t.Stop()
	last := ""
	for {
		err := s.KeepOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != "" && said != last {
			s.logger.Warn("looking after the memory of Redis failed, and is tried again every minute", "error", err)
		}
		last = said
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// KeepOnce is one round of KeepStorage.
func (s *Store) KeepOnce(ctx context.Context) error {
	_, err := s.SampleMemory(ctx) // a full Redis takes no sample, and is what the rest is for
	if s.archive.policy.Dir == "" {
		return err
	}
	known, listErr := s.candidates(ctx)
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	return errors.Join(err, s.putIdleAway(ctx, known), s.measure(ctx, known), s.sweepArchive(ctx))
}

// candidate is a session in Redis as the rounds see it.
type candidate struct {
	id      string
	version int64
	used    time.Time // when it was last changed or opened
	busy    bool
}

// candidates lists the sessions that are not archived, those first that nobody changed or opened for the longest.
func (s *Store) candidates(ctx context.Context) ([]candidate, error) {
	var list []candidate
	for i := range forkcore.Shards {
		sh := shard(i)
		ids, err := s.client.ZRange(ctx, sh.key(stemSessions), 0, -1).Result()
		if err != nil {
			return nil, s.failure("list sessions", err)
		}
		for batch := range slices.Chunk(ids, dumpBatch) {
			cmds := make([]*redis.SliceCmd, len(batch))
			var seen *redis.FloatSliceCmd
			_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				seen = p.ZMScore(ctx, sh.key(stemSeen), batch...)
				for i, id := range batch {
					cmds[i] = p.HMGet(ctx, sh.key(stemSession, id), "version", "updated", "active_runs")
				}
				return nil
			})
			if err != nil {
				return nil, s.failure("read sessions", err)
			}
			for i, id := range batch {
				f := &fieldReader{fields: fields{}}
				for j, name := range []string{"version", "updated", "active_runs"} {
					f.fields[name], _ = cmds[i].Val()[j].(string)
				}
				c := candidate{id: id, version: f.int("version"), used: f.time("updated"), busy: f.int("active_runs") > 0}
				if at := time.UnixMilli(int64(seen.Val()[i])); at.After(c.used) {
					c.used = at
				}
				if f.err != nil {
					return nil, f.err
				}
				if c.version > 0 { // else it is archived
					list = append(list, c)
				}
			}
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id)) })
	return list, nil
}

// putIdleAway archives what is old enough and, while memory is scarce, the oldest ones after that.
func (s *Store) putIdleAway(ctx context.Context, known []candidate) error {
	m, err := s.Memory(ctx)
	if err != nil || m == nil {
		return err
	}
	policy := s.archive.policy
	var errs []error
	for _, c := range known {
		age := m.At.Sub(c.used)
		old := policy.After > 0 && age > policy.After
		scarce := policy.Above > 0 && m.UsedPart() > policy.Above
		if ctx.Err() != nil || age < archiveIdle || !old && !scarce {
			break // all others are younger
		}
		if c.busy {
			continue
		}
		err := s.putAway(ctx, c.id, archiveIdle)
		if errors.Is(err, forkcore.ErrConflict) || errors.Is(err, forkcore.ErrNotFound) {
			continue // it is in use, or another process was quicker
		}
		if err != nil {
			errs = append(errs, err)
			if len(errs) == 3 { // a full disk fails them all
				break
			}
			continue
		}
		if m, err = s.Memory(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// measured is how many sessions one round measures at most; the others wait for the next one.
const measured = 500

// measure asks Redis for the memory of sessions that changed since they were measured.
func (s *Store) measure(ctx context.Context, known []candidate) error {
	a := &s.archive
	a.mu.Lock()
	sizes := make(map[string]sessionSize, len(known))
	var todo []candidate
	for _, c := range known {
		size, ok := a.sizes[c.id]
		if ok {
			sizes[c.id] = size
		}
		if size.version != c.version && len(todo) < measured {
			todo = append(todo, c)
		}
	}
	a.mu.Unlock()
	for _, c := range todo {
		n, err := s.memoryOf(ctx, c.id)
		if err != nil {
			return err
		}
		sizes[c.id] = sessionSize{c.version, n}
	}
	a.mu.Lock()
	a.sizes = sizes
	a.mu.Unlock()
	return nil
}

// memoryOf is the memory of all keys of a session in bytes.
func (s *Store) memoryOf(ctx context.Context, sessionID string) (total int64, err error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return 0, err
	}
	keys, _, err := s.keysOf(ctx, sh, sessionID)
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(keys, dumpBatch) {
		cmds := make([]*redis.IntCmd, len(batch))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range batch {
				cmds[i] = p.MemoryUsage(ctx, sh.key(k))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) { // one that is not there
			return 0, s.failure("measure session", err)
		}
		for _, c := range cmds {
			total += c.Val()
		}
	}
	return total, nil
}

// sweepArchive removes files that are not needed: of writes that were cut off, and of sessions that came back long ago. A file
// whose session this Redis does not know stays.
func (s *Store) sweepArchive(ctx context.Context) error {
	dir := s.archive.policy.Dir
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		id, rest, ours := strings.Cut(f.Name(), archiveSuffix)
		sh, idErr := shardOf(id)
		info, err := f.Info()
		if !ours || idErr != nil || err != nil || time.Since(info.ModTime()) < fileKept {
			continue
		}
		if rest == "" {
			var live, stub *redis.IntCmd
			_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
				stub = p.Exists(ctx, sh.key(stemArchived, id)) // first: what is put away between the two is not live
				live = p.Exists(ctx, sh.key(stemSession, id))
				return nil
			})
			if err != nil {
				return s.failure("look for the session of an archive file", err)
			}
			if live.Val() == 0 || stub.Val() > 0 {
				continue
			}
		} else if !strings.HasPrefix(rest, ".tmp-") {
			continue
		}
		if err := s.removeFile(filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeFile removes one under the lock of those who write, and not one that was written a moment ago.
func (s *Store) removeFile(path string) error {
	s.archive.writing.Lock()
	defer s.archive.writing.Unlock()
	info, err := os.Stat(path)
	if err != nil || time.Since(info.ModTime()) < fileKept {
		return nil
	}
	return os.Remove(path)
}

// Storage tells of the memory, of the sessions by their size and of the archive.
func (s *Store) Storage(ctx context.Context) (forkcore.Storage, error) {
	out := forkcore.Storage{Archive: s.archive.policy}
	var err error
	if out.Memory, err = s.Memory(ctx); err != nil {
		return out, err
	}
	if !s.inProcess {
		known, err := s.candidates(ctx)
		if err != nil {
			return out, err
		}
		if err := s.measure(ctx, known); err != nil {
			return out, err
		}
	}
	sessions, _, err := s.Sessions(ctx, "", 0)
	if err != nil {
		return out, err
	}
	s.archive.mu.Lock()
	for _, session := range sessions {
		stored := forkcore.StoredSession{Session: session}
		if session.Archived == nil {
			stored.Bytes = s.archive.sizes[session.ID].bytes
		}
		out.Sessions = append(out.Sessions, stored)
	}
	s.archive.mu.Unlock()
	slices.SortStableFunc(out.Sessions, func(a, b forkcore.StoredSession) int {
		if gone := a.Session.Archived != nil; gone != (b.Session.Archived != nil) {
			if gone {
				return 1
			}
			return -1
		}
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	return out, nil
}
