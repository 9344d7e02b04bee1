package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

// storage is a Storage that answers what it is told.
type storage struct {
	known forkcore.Storage
	err   error
}

func (s *storage) Storage(context.Context) (forkcore.Storage, error) { return s.known, s.err }

func (s *storage) Memory(context.Context) (*forkcore.Memory, error) { return s.known.Memory, s.err }

func (s *storage) ArchivePolicy() forkcore.ArchivePolicy { return s.known.Archive }

func (s *storage) NoteOpen(context.Context, string) {}
func (s *storage) ArchiveSession(_ context.Context, id string) (forkcore.Archived, error) {
	if s.err != nil {
		return forkcore.Archived{}, s.err
	}
	return only(id, sessionID, forkcore.Archived{At: noon, Host: "h", Dir: "/d", Bytes: 7, SHA256: snapID})
}

// A snapshot is read from a session that is here, whatever became of others that hold it.
func TestSnapshotOfArchived(t *testing.T) {
	f := newFake()
	server := serve(t, f)
	here := f.snapshot
	away := &forkcore.ConflictError{Message: "This session is archived in /d on h.", NextStep: "Copy it."}
	f.snapshot = func(id string, d forkcore.Digest) (forkcore.Snapshot, error) {
		if id != sessionID {
			return forkcore.Snapshot{}, away
		}
		return here(id, d)
	}
	if res, body := call(t, server, "GET", "/snapshots/"+snapID.String(), ""); res.StatusCode != 200 {
		t.Errorf("with one of two here: %d %s", res.StatusCode, body)
	}
	f.snapshot = func(string, forkcore.Digest) (forkcore.Snapshot, error) { return forkcore.Snapshot{}, away }
	if res, body := call(t, server, "GET", "/snapshots/"+snapID.String(), ""); res.StatusCode != 409 || !strings.Contains(body, "archived in /d on h") {
		t.Errorf("with none here: %d %s", res.StatusCode, body)
	}
}

func TestStorage(t *testing.T) {
	doc := document(t)
	f := newFake()
	const gb = 1 << 30
	away := forkcore.Session{
		ID: "ses_03bbbbbbbbbbbbbbbb", Title: "Away", Mode: forkcore.ModeFork, PermissionMode: forkcore.PermissionDefault, CreatedAt: noon, UpdatedAt: noon,
		Archived: &forkcore.Archived{At: noon, Host: "h", Dir: "/d", Bytes: 7, SHA256: snapID},
	}
	known := &storage{known: forkcore.Storage{
		Memory: &forkcore.Memory{
			MemorySample: forkcore.MemorySample{At: noon, Used: 2 * gb}, Limit: 4 * gb, Own: true,
			Samples: []forkcore.MemorySample{{At: noon.Add(-24 * time.Hour), Used: gb}},
		},
		Archive:  forkcore.ArchivePolicy{Host: "h", Dir: "/d", After: 30 * 24 * time.Hour, Above: 0.8},
		Sessions: []forkcore.StoredSession{{Session: forkcore.Session{ID: sessionID, Title: "First", UpdatedAt: noon}, Bytes: 70_000}, {Session: away}},
	}}
	f.storage = known
	f.sessions = func(string, int) ([]forkcore.Session, string, error) { return []forkcore.Session{away}, "", nil }
	f.runsOf = func(string, string, int) ([]forkcore.Run, string, error) { return nil, "", nil }
	server := serve(t, f)
	_, body := call(t, server, "GET", "/storage", "")
	checkAnswer(t, doc, "GET /storage", 200, body)
	for _, want := range []string{
		`"limit_of":"redis","used":0.5,"growth":"growing","bytes_per_day":1073741824,"days_left":2,"measured_seconds":86400,"scarce":true`,
		`"after_seconds":2592000,"above":0.8`, `"live_sessions":1,"archived_sessions":1`, `"bytes":70000,"archived":null`, `"bytes":null,"archived":{"at":`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	_, body = call(t, server, "GET", "/storage?limit=1", "")
	if strings.Contains(body, "Away") || !strings.Contains(body, `"archived_sessions":1`) {
		t.Errorf("one session: %s", body)
	}
	_, body = call(t, server, "GET", "/sessions", "")
	checkAnswer(t, doc, "GET /sessions", 200, body)
	if !strings.Contains(body, `"folder":"/d"`) || !strings.Contains(body, `"runs":[]`) {
		t.Errorf("an archived session in a list: %s", body)
	}
	known.err = &forkcore.ConflictError{Message: "Something of this session is at work or waits.", NextStep: "Wait."}
	res, body := call(t, server, "POST", "/sessions/"+sessionID+"/archive", "")
	if res.StatusCode != 409 || !strings.Contains(body, "at work") {
		t.Errorf("a session at work: %d %s", res.StatusCode, body)
	}
	f.storage = nil
	server = serve(t, f)
	for _, operation := range []string{"GET /storage", "POST /sessions/" + sessionID + "/archive"} {
		method, path, _ := strings.Cut(operation, " ")
		if res, body := call(t, server, method, path, ""); res.StatusCode != 409 {
			t.Errorf("%s without a storage: %d %s", operation, res.StatusCode, body)
		}
	}
}
