package redisstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// The keys of a session that go into its file, by the id they are named after. A stem of keys.go is in one of these lists or
// in stemsElsewhere.
var (
	stemsBySession = []string{
		stemSession, stemBlobs, stemSnapshots, stemRuns, stemActive, stemInbox, stemInboxOrder, stemAccepted, stemEntries, stemEvents,
	}
	stemsByAgent    = []string{stemLog}
	stemsByRun      = []string{stemRun, stemLedger, stemOpen}
	stemsByDispatch = []string{stemDispatch}
	// stemsElsewhere are those of executors and shards, and what stays of a session that is archived.
	stemsElsewhere = []string{
		stemArchived, stemHeld, stemSignals, stemSent, stemDue, stemWaiting, stemBeats, stemLive, stemSessions, stemWhere, stemSeen,
	}
)

const (
	// archiveIdle is for how long nobody may have changed or opened a session that is put away by itself.
	archiveIdle = time.Hour
	// seenEvery is how often an open session is noted as such; well below archiveIdle.
	seenEvery = 10 * time.Minute
	// fileKept is for how long the file of a session that came back stays: until Redis has surely written it to its own disk.
	fileKept = 24 * time.Hour
	// dumpBatch is how many keys one pipeline dumps.
	dumpBatch = 100
	// scanBatch is how many blobs one read returns, putBackBatch how many bytes of them one write has at least.
	scanBatch    = 32
	putBackBatch = 1 << 20
)

// archive is what this process keeps about sessions that are put away.
type archive struct {
	policy forkcore.ArchivePolicy
	// writing is held while a file is written and its session removed: the stub names that very file.
	writing sync.Mutex

	mu    sync.Mutex
	seen  map[string]time.Time // when this process last noted that a session is open
	sizes map[string]sessionSize
}

// sessionSize is the memory of a session at one of its versions.
type sessionSize struct{ version, bytes int64 }

// parseArchived reads the stub's own fields; nil for a session that is not archived.
func parseArchived(r *fieldReader) *forkcore.Archived {
	if r.text("archived_at") == "" {
		return nil
	}
	return &forkcore.Archived{
		At: r.time("archived_at"), Host: r.text("archive_host"), Dir: r.text("archive_dir"), Bytes: r.int("archive_bytes"), SHA256: r.digest("archive_sha256"),
	}
}

// NoteOpen tells all processes that somebody has the session open, so that none puts it away within an hour. It may be
// called at any rate.
func (s *Store) NoteOpen(ctx context.Context, sessionID string) {
	a := &s.archive
	if a.policy.Dir == "" {
		return
	}
	now := time.Now()
	a.mu.Lock()
	known := now.Sub(a.seen[sessionID]) < seenEvery
	if !known {
		if a.seen == nil {
			a.seen = map[string]time.Time{}
		}
		maps.DeleteFunc(a.seen, func(_ string, at time.Time) bool { return now.Sub(at) > seenEvery })
		a.seen[sessionID] = now
	}
	a.mu.Unlock()
	if known {
		return
	}
	sh, err := shardOf(sessionID)
	if err != nil {
		return // the reader says so
	}
	if _, err := s.run(ctx, freshStep(scriptSeen, sh, args{"session": sessionID})); err != nil {
		a.mu.Lock()
		delete(a.seen, sessionID)
		a.mu.Unlock()
	}
}

// opened does something with a session, run or dispatch; when it is not there because its session is archived, the
// session comes back first.
func opened[T any](ctx context.Context, s *Store, id string, do func() (T, error)) (T, error) {
	v, err := do()
	if !errors.Is(err, forkcore.ErrNotFound) {
		return v, err
	}
	there, backErr := s.bringBack(ctx, id)
	switch {
	case backErr != nil:
		var none T
		return none, backErr
	case !there:
		return v, err
	}
	return do()
}

// bringBack puts the session of an id back into Redis when it is archived. there is true when the id may be asked for again.
func (s *Store) bringBack(ctx context.Context, id string) (there bool, err error) {
	sh, err := shardOf(id)
	if err != nil {
		return false, err
	}
	sessionID, own := id, sh.key(stemSession, id)
	switch kind, _, _ := strings.Cut(id, "_"); kind {
	case "run":
		sessionID, own = "", sh.key(stemRun, id)
	case "dsp":
		sessionID, own = "", sh.key(stemDispatch, id)
	}
	if sessionID == "" {
		sessionID, err = s.client.HGet(ctx, sh.key(stemWhere), id).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return false, s.failure("look for an archived session", err)
		}
	}
	var f fields
	if sessionID != "" {
		if f, err = s.client.HGetAll(ctx, sh.key(stemArchived, sessionID)).Result(); err != nil {
			return false, s.failure("look for an archived session", err)
		}
	}
	if len(f) == 0 {
		// Another opener may have been quicker.
		n, err := s.client.Exists(ctx, own).Result()
		return n > 0, s.failure("look for an archived session", err)
	}
	session, err := parseSession(f)
	if err != nil {
		return false, fmt.Errorf("archived session %s: %w", sessionID, err)
	}
	d, err := s.readArchived(session)
	if err != nil {
		return false, err
	}
	blobs, err := d.blobs()
	if err != nil {
		return false, fmt.Errorf("open archived session %s: %w", sessionID, err)
	}
	names := make([]string, 0, len(blobs)/2)
	for pair := range slices.Chunk(blobs, 2) {
		names = append(names, pair[0])
	}
	argv := derivedStep(scriptBringBack, sh, args{"session": sessionID, "sha256": session.Archived.SHA256.String(), "runs": d.Runs, "blobs": names})
	values := argv.argv()
	for i, k := range d.Keys {
		if !k.Fields {
			values = append(values, k.Key, d.payloads[i])
		}
	}
	if err := s.putBack(ctx, sh, sessionID, blobs); err != nil {
		return false, err
	}
	if _, err := s.answer(argv, s.scripts[scriptBringBack].Run(ctx, s.client, argv.keys(), values...)); err != nil {
		return false, err
	}
	s.logger.Info("archived session opened", "session", sessionID, "file", archivePath(s.archive.policy.Dir, sessionID))
	// The file stays for a while: Redis may lose the last second. Its age counts from here.
	now := time.Now()
	if err := os.Chtimes(archivePath(s.archive.policy.Dir, sessionID), now, now); err != nil {
		s.logger.Warn("note that an archive file is not needed any more", "session", sessionID, "error", err)
	}
	return true, nil
}

// blobs are the names and values of the session's blobs, by turns.
func (d dump) blobs() ([]string, error) {
	var list []string
	for i, k := range d.Keys {
		if k.Fields {
			l, err := unpackFields(d.payloads[i])
			if err != nil {
				return nil, err
			}
			list = append(list, l...)
		}
	}
	return list, nil
}

// putBack stores blobs of a session that comes back, some at a time: Redis serves others in between. They go in before the step
// that refers to them, as all blobs do; when they do not fit they are taken out again.
func (s *Store) putBack(ctx context.Context, sh shard, sessionID string, blobs []string) error {
	var batch []any
	size := 0
	store := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := s.client.HSet(ctx, sh.key(stemBlobs, sessionID), batch...).Err()
		batch, size = nil, 0
		return err
	}
	var names []string
	for pair := range slices.Chunk(blobs, 2) {
		batch = append(batch, pair[0], pair[1])
		names = append(names, pair[0])
		if size += len(pair[1]); size < putBackBatch {
			continue
		}
		if err := store(); err != nil {
			s.takeOut(ctx, sh, sessionID, names)
			return s.failure("put blobs back", err)
		}
	}
	if err := store(); err != nil {
		s.takeOut(ctx, sh, sessionID, names)
		return s.failure("put blobs back", err)
	}
	return nil
}

// takeOut removes blobs of a session that could not come back. The file has them.
func (s *Store) takeOut(ctx context.Context, sh shard, sessionID string, names []string) {
	if _, err := s.run(ctx, derivedStep(scriptTakeOut, sh, args{"session": sessionID, "blobs": names})); err != nil {
		s.logger.Warn("blobs of an archived session stay in Redis until it is opened", "session", sessionID, "error", err)
	}
}

// scanBlobs reads all blobs of a session as they are stored, some at a time.
func (s *Store) scanBlobs(ctx context.Context, key string, most int64) (map[string]string, error) {
	hash := map[string]string{}
	var cursor uint64
	for {
		var list []string
		var err error
		if list, cursor, err = s.client.HScan(ctx, key, cursor, "", scanBatch).Result(); err != nil {
			return nil, s.failure("read blobs", err)
		}
		for pair := range slices.Chunk(list, 2) {
			if _, known := hash[pair[0]]; !known {
				most -= int64(len(pair[0]) + len(pair[1]) + 2*binary.MaxVarintLen64)
			}
			hash[pair[0]] = pair[1]
		}
		if most < 0 {
			return nil, tooLarge("blobs", maxArchive)
		}
		if cursor == 0 {
			return hash, nil
		}
	}
}

func tooLarge(what string, most int) error {
	return &forkcore.ConflictError{
		Message:  fmt.Sprintf("The %s of this session come to more than %d MiB, which is the most that an archived one may have.", what, most>>20),
		NextStep: "It stays in Redis.",
	}
}

// readArchived reads the file of an archived session in this process's own folder.
func (s *Store) readArchived(session forkcore.Session) (dump, error) {
	a, own := session.Archived, s.archive.policy
	elsewhere := func(message string) error {
		return &forkcore.ConflictError{
			Message:  message,
			NextStep: fmt.Sprintf("Open it at the dashboard on %s, or copy %s from there into the folder archive of this dashboard's FORKYARD_DATA_DIR and open it again.", a.Host, archivePath(a.Dir, session.ID)),
		}
	}
	if own.Dir == "" {
		return dump{}, elsewhere(fmt.Sprintf("This session is archived in %s on %s, and this process opens none.", a.Dir, a.Host))
	}
	path := archivePath(own.Dir, session.ID)
	d, sum, err := readArchive(path)
	here := a.Host == own.Host && a.Dir == own.Dir
	switch {
	case errors.Is(err, fs.ErrNotExist) && !here:
		return d, elsewhere(fmt.Sprintf("This session is archived in %s on %s.", a.Dir, a.Host))
	case errors.Is(err, fs.ErrNotExist):
		return d, &forkcore.ConflictError{
			Message:  fmt.Sprintf("This session is archived, and its file %s is gone.", path),
			NextStep: "Bring the file back from a backup and open the session again.",
		}
	case err != nil:
		return d, fmt.Errorf("open archived session %s: %w", session.ID, err)
	case sum != a.SHA256 || d.Session != session.ID:
		return d, &forkcore.ConflictError{
			Message:  fmt.Sprintf("The file %s is not the one that this session was archived into.", path),
			NextStep: fmt.Sprintf("Bring back the file with SHA-256 %s, from %s on %s or from a backup.", a.SHA256, a.Dir, a.Host),
		}
	}
	return d, nil
}

// state is what tells whether a session changed.
type state struct {
	version, event string
	blobs          int64
	snapshots      int64
}

// state reads it, with the fields of the session.
func (s *Store) state(ctx context.Context, sh shard, sessionID string) (fields, state, error) {
	var f *redis.MapStringStringCmd
	var last *redis.XMessageSliceCmd
	var blobs, snapshots *redis.IntCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		f = p.HGetAll(ctx, sh.key(stemSession, sessionID))
		last = p.XRevRangeN(ctx, sh.key(stemEvents, sessionID), "+", "-", 1)
		blobs = p.HLen(ctx, sh.key(stemBlobs, sessionID))
		snapshots = p.HLen(ctx, sh.key(stemSnapshots, sessionID))
		return nil
	})
	if err != nil {
		return nil, state{}, s.failure("read session", err)
	}
	if f.Val()["id"] == "" {
		return nil, state{}, fmt.Errorf("session %s: %w", sessionID, forkcore.ErrNotFound)
	}
	st := state{version: f.Val()["version"], blobs: blobs.Val(), snapshots: snapshots.Val()}
	if len(last.Val()) > 0 {
		st.event = last.Val()[0].ID
	}
	return f.Val(), st, nil
}

// keysOf lists the keys of a session without their shard, and the ids of its runs and dispatches. Some may not be there.
func (s *Store) keysOf(ctx context.Context, sh shard, sessionID string) (keys, ids []string, err error) {
	runs, err := s.client.ZRange(ctx, sh.key(stemRuns, sessionID), 0, -1).Result()
	if err != nil {
		return nil, nil, s.failure("list runs", err)
	}
	of := make([]*redis.StringCmd, len(runs))
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range runs {
			of[i] = p.HGet(ctx, sh.key(stemRun, id), "dispatch")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, nil, s.failure("read runs", err)
	}
	var dispatches []string
	for _, d := range of {
		if d.Val() != "" {
			dispatches = append(dispatches, d.Val())
		}
	}
	slices.Sort(dispatches)
	dispatches = slices.Compact(dispatches)

	for _, stem := range stemsBySession {
		keys = append(keys, stem+sessionID)
	}
	for _, stem := range stemsByAgent {
		for _, agent := range append([]string{sessionID}, runs...) {
			keys = append(keys, stem+sessionID+":"+agent)
		}
	}
	for _, stem := range stemsByRun {
		for _, id := range runs {
			keys = append(keys, stem+id)
		}
	}
	for _, stem := range stemsByDispatch {
		for _, id := range dispatches {
			keys = append(keys, stem+id)
		}
	}
	return keys, append(runs, dispatches...), nil
}

// dumpSession reads all keys of a session.
func (s *Store) dumpSession(ctx context.Context, sh shard, sessionID string) (dump, error) {
	keys, ids, err := s.keysOf(ctx, sh, sessionID)
	if err != nil {
		return dump{}, err
	}
	d := dump{manifest: manifest{Format: archiveFormat, Session: sessionID, ArchivedAt: time.Now().UTC(), Runs: ids}}
	blobs, err := s.scanBlobs(ctx, sh.key(stemBlobs, sessionID), maxArchive-maxDumped)
	if err != nil {
		return dump{}, err
	}
	if len(blobs) > 0 {
		payload := packFields(blobs)
		d.Keys, d.payloads = append(d.Keys, archivedKey{Key: stemBlobs + sessionID, Bytes: int64(len(payload)), Fields: true}), append(d.payloads, payload)
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == stemBlobs+sessionID })
	left := int64(maxDumped)
	for batch := range slices.Chunk(keys, dumpBatch) {
		cmds := make([]*redis.StringCmd, len(batch))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range batch {
				cmds[i] = p.Dump(ctx, sh.key(k))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return dump{}, s.failure("dump session", err)
		}
		for i, k := range batch {
			switch err := cmds[i].Err(); {
			case errors.Is(err, redis.Nil):
				continue
			case err != nil:
				return dump{}, s.failure("dump session", err)
			}
			payload := cmds[i].Val()
			if left -= int64(len(payload)); left < 0 {
				return dump{}, tooLarge("logs, events and request rows", maxDumped)
			}
			d.Keys = append(d.Keys, archivedKey{Key: k, Bytes: int64(len(payload))})
			d.payloads = append(d.payloads, payload)
		}
	}
	d.SHA256 = sumOf(d.payloads)
	return d, nil
}

// ArchiveSession puts a session away now. One that has something to do, or that changes meanwhile, is a
// *forkcore.ConflictError and stays; for one that is archived already nothing happens. It answers where the session lies.
func (s *Store) ArchiveSession(ctx context.Context, sessionID string) (forkcore.Archived, error) {
	if err := s.putAway(ctx, sessionID, 0); err != nil {
		return forkcore.Archived{}, err
	}
	f, err := s.object(ctx, "archived session", stemArchived, sessionID)
	if err != nil {
		return forkcore.Archived{}, err
	}
	session, err := parseSession(f)
	if err != nil || session.Archived == nil {
		return forkcore.Archived{}, fmt.Errorf("archived session %s: %w", sessionID, cmp.Or(err, forkcore.ErrNotFound))
	}
	return *session.Archived, nil
}

// ArchivePolicy says where and when this process puts sessions away.
func (s *Store) ArchivePolicy() forkcore.ArchivePolicy { return s.archive.policy }

// putAway archives a session that nobody changed or opened for that long; 0 = any.
func (s *Store) putAway(ctx context.Context, sessionID string, idle time.Duration) error {
	sh, err := shardOf(sessionID)
	if err != nil {
		return err
	}
	own := s.archive.policy
	if own.Dir == "" {
		return &forkcore.ConflictError{Message: "This process has no archive.", NextStep: "Install redis-server and start again: an in-process Redis keeps nothing that could be put away."}
	}
	s.archive.writing.Lock()
	defer s.archive.writing.Unlock()
	f, was, err := s.state(ctx, sh, sessionID)
	if errors.Is(err, forkcore.ErrNotFound) {
		n, archivedErr := s.client.Exists(ctx, sh.key(stemArchived, sessionID)).Result()
		if n > 0 {
			return nil
		}
		return cmp.Or(s.failure("look for an archived session", archivedErr), err)
	}
	if err != nil {
		return err
	}
	d, err := s.dumpSession(ctx, sh, sessionID)
	if err != nil {
		return err
	}
	d.Title = f["title"]
	bytes, sum, err := writeArchive(own.Dir, d)
	if err != nil {
		return fmt.Errorf("archive session %s: %w", sessionID, err)
	}
	maps.DeleteFunc(f, func(name, _ string) bool { return strings.HasPrefix(name, "_") })
	f["archive_host"], f["archive_dir"], f["archive_bytes"], f["archive_sha256"] = own.Host, own.Dir, formatInt(bytes), sum.String()
	keys := make([]string, len(d.Keys))
	for i, k := range d.Keys {
		keys[i] = k.Key
	}
	answer, err := s.run(ctx, derivedStep(scriptPutAway, sh, args{
		"session": sessionID, "version": was.version, "event": was.event, "blobs": formatInt(was.blobs), "snapshots": formatInt(was.snapshots),
		"idle": millis(idle), "keys": keys, "runs": d.Runs, "stub": f,
	}))
	if err != nil {
		return err // the file stays: the step may have been done
	}
	if answer[0] == "1" {
		s.logger.Info("session archived", "session", sessionID, "file", archivePath(own.Dir, sessionID), "bytes", bytes)
		return nil
	}
	if err := os.Remove(archivePath(own.Dir, sessionID)); err != nil {
		s.logger.Warn("remove an archive file that is not needed", "session", sessionID, "error", err)
	}
	c := &forkcore.ConflictError{Message: "This session changed while it was archived.", NextStep: "Archive it again when it is idle."}
	switch answer[1] {
	case "busy":
		c.Message = "Something of this session is at work or waits."
	case "in use":
		c.Message = "Somebody changed or opened this session a short while ago."
	}
	return c
}
