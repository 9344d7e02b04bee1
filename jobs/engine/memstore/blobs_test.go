package memstore

import (
	"errors"
	"testing"

	"forkyard/forkcore"
)

func TestDamagedBlob(t *testing.T) {
	s := New()
	session := forkcore.NewSessionID(forkcore.Entropy{1})
	if _, _, err := s.CreateSession(t.Context(), forkcore.Session{ID: session}, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlobs(t.Context(), session, []byte("as it was")); err != nil {
		t.Fatal(err)
	}
	id := forkcore.DigestOf([]byte("as it was"))
	s.sessions[session].logs[session] = []forkcore.Entry{{Seq: 1, Kind: forkcore.EntryMessage, Blob: id}}

	s.blobs[session][id] = []byte("as it is")
	if _, err := s.Blobs(t.Context(), session, id); !errors.Is(err, forkcore.ErrCorrupt) {
		t.Errorf("read a damaged blob: %v, want ErrCorrupt", err)
	}
	if _, err := s.Log(t.Context(), session, session, 0, 0); !errors.Is(err, forkcore.ErrCorrupt) {
		t.Errorf("read a log with a damaged blob: %v, want ErrCorrupt", err)
	}
	delete(s.blobs[session], id)
	if _, err := s.Log(t.Context(), session, session, 0, 0); !errors.Is(err, forkcore.ErrCorrupt) {
		t.Errorf("read a log with a lost blob: %v, want ErrCorrupt", err)
	}
}

func TestReadersGetCopies(t *testing.T) {
	s := New()
	session := forkcore.NewSessionID(forkcore.Entropy{1})
	blob := []byte("bytes")
	id := forkcore.DigestOf(blob)
	if err := s.PutBlobs(t.Context(), session, blob); err != nil {
		t.Fatal(err)
	}
	blob[0] = 'X' // the writer's slice
	for range 2 {
		got, err := s.Blobs(t.Context(), session, id)
		if err != nil {
			t.Fatal(err)
		}
		got[0][0] = 'Y' // a reader's slice
	}
}
