package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// logRecord is the JSON part of a log record "<ms>:<json>". The bytes of
// messages are blobs; seq is the place in the list.
type logRecord struct {
	Kind     forkcore.EntryKind `json:"kind"`
	RunID    string             `json:"run_id"`
	Blob     *forkcore.Digest   `json:"blob,omitempty"`
	Fragment bool               `json:"fragment,omitempty"`
	Marker   *forkcore.Marker   `json:"marker,omitempty"`
}

// storedEntry is an entry on its way to a script.
type storedEntry struct {
	Record string `json:"record"`
	// Tool and ToolDetail are those of a tool_started marker.
	Tool       string `json:"tool,omitempty"`
	ToolDetail string `json:"tool_detail,omitempty"`
}

// encodeEntry writes a record; a zero time becomes the database's clock.
func encodeEntry(e forkcore.Entry) (string, error) {
	r := logRecord{Kind: e.Kind, RunID: e.RunID, Fragment: e.Fragment, Marker: e.Marker}
	switch {
	case e.Kind == forkcore.EntryMessage && e.Marker == nil && !e.Blob.IsZero():
		r.Blob = &e.Blob
	case e.Kind == forkcore.EntryMarker && e.Marker != nil && e.Blob.IsZero():
	default:
		return "", fmt.Errorf("entry of kind %q must have a blob or a marker, as its kind says", e.Kind)
	}
	var ms int64
	if !e.At.IsZero() {
		ms = e.At.UnixMilli()
	}
	return formatInt(ms) + ":" + encode(r), nil
}

func encodeEntries(list []forkcore.Entry) ([]storedEntry, error) {
	out := make([]storedEntry, len(list))
	for i, e := range list {
		record, err := encodeEntry(e)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		out[i].Record = record
		if e.Marker != nil && e.Marker.Type == forkcore.MarkerToolStarted {
			out[i].Tool, out[i].ToolDetail = e.Marker.Name, e.Marker.Detail
		}
	}
	return out, nil
}

// decodeEntry reads a record; Bytes stay empty.
func decodeEntry(record string, seq int64) (forkcore.Entry, error) {
	ms, body, found := strings.Cut(record, ":")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || !found {
		return forkcore.Entry{}, fmt.Errorf("log record %d: no time in front", seq)
	}
	var r logRecord
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return forkcore.Entry{}, fmt.Errorf("log record %d: %w", seq, err)
	}
	e := forkcore.Entry{
		Seq: seq, At: time.UnixMilli(n).UTC(), Kind: r.Kind, RunID: r.RunID, Fragment: r.Fragment, Marker: r.Marker,
	}
	if r.Blob != nil {
		e.Blob = *r.Blob
	}
	return e, nil
}

// Append implements engine.Store.
func (s *Store) Append(ctx context.Context, h engine.Holder, expectLen int64, entries []forkcore.Entry, takeInbox []string) (int64, error) {
	stored, err := encodeEntries(entries)
	if err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}
	if takeInbox == nil {
		takeInbox = []string{}
	}
	return s.lengthOf(ctx, scriptAppend, h, args{"expect": formatInt(expectLen), "entries": stored, "take": takeInbox})
}

// lengthOf performs a holder's step that answers the length of its log.
func (s *Store) lengthOf(ctx context.Context, name scriptName, h engine.Holder, a args) (int64, error) {
	st, err := heldStep(name, h, a)
	if err != nil {
		return 0, err
	}
	answer, err := s.run(ctx, st)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(answer[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: read length: %w", name, err)
	}
	return n, nil
}

// Log implements engine.Reader.
func (s *Store) Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	entries, err := opened(ctx, s, sessionID, func() ([]forkcore.Entry, error) { return s.readLog(ctx, sessionID, agentID, after, limit) })
	if err == nil {
		s.NoteOpen(ctx, sessionID)
	}
	return entries, err
}

func (s *Store) readLog(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, err
	}
	if _, err := shardOf(agentID); err != nil {
		return nil, err
	}
	after = max(after, 0)
	last := int64(-1)
	if limit > 0 {
		last = after + int64(limit) - 1
	}
	owner := sh.key(stemRun, agentID)
	if agentID == sessionID {
		owner = sh.key(stemSession, sessionID)
	}
	var records *redis.StringSliceCmd
	var exists *redis.IntCmd
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		records = p.LRange(ctx, sh.key(stemLog, sessionID, agentID), after, last)
		exists = p.Exists(ctx, owner)
		return nil
	})
	if err != nil {
		return nil, s.failure("read log", err)
	}
	if exists.Val() == 0 {
		return nil, fmt.Errorf("log of %s: %w", agentID, forkcore.ErrNotFound)
	}
	entries := make([]forkcore.Entry, len(records.Val()))
	for i, record := range records.Val() {
		if entries[i], err = decodeEntry(record, after+int64(i)+1); err != nil {
			return nil, fmt.Errorf("log of %s: %w", agentID, err)
		}
	}
	return entries, s.fill(ctx, sh, sessionID, entries)
}

// fill reads the bytes of entries, each blob once.
func (s *Store) fill(ctx context.Context, sh shard, sessionID string, entries []forkcore.Entry) error {
	places := map[forkcore.Digest][]*[]byte{}
	var ids []forkcore.Digest
	want := func(id forkcore.Digest, to *[]byte) {
		if places[id] == nil {
			ids = append(ids, id)
		}
		places[id] = append(places[id], to)
	}
	for i := range entries {
		e := &entries[i]
		if !e.Blob.IsZero() {
			want(e.Blob, &e.Bytes)
		}
		if e.Marker != nil && e.Marker.Blob != nil {
			want(*e.Marker.Blob, &e.Marker.Bytes)
		}
	}
	blobs, err := s.readBlobs(ctx, sh, sessionID, ids)
	if errors.Is(err, forkcore.ErrNotFound) {
		return fmt.Errorf("read log: %w: %w", forkcore.ErrCorrupt, err)
	}
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	for i, id := range ids {
		for _, to := range places[id] {
			*to = blobs[i]
		}
	}
	return nil
}
