package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"forkyard/forkcore"
	"forkyard/jobs/redisstore"
)

func TestBlobsAreVerified(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newScene(t, b.open(t), redisstore.Options{})
			session := s.session()
			shard := session[4:6]
			key := "fy:{" + shard + "}:blobs:" + session
			text := strings.Repeat(`{"role":"user","content":"hello"}`, 100)
			h := s.accept(session, "t").Holder
			_, err := s.store.Append(t.Context(), h, 1, []forkcore.Entry{s.message(session, h.RunID, text)}, nil)
			s.must(err)
			id := forkcore.DigestOf([]byte(text))
			stored, err := s.client.HGet(t.Context(), key, id.String()).Result()
			s.must(err)
			if len(stored) > len(text)/10 {
				t.Errorf("%d bytes of repetition are kept in %d", len(text), len(stored))
			}
			damaged := []byte(stored)
			damaged[len(damaged)-1] ^= 1
			for name, value := range map[string]string{
				"other bytes":   "\x00something else",
				"damaged":       string(damaged),
				"unknown form":  "\x07" + text,
				"nothing":       "",
				"cut":           stored[:len(stored)/2],
				"missing bytes": "\x00",
			} {
				s.must(s.client.HSet(t.Context(), key, id.String(), value).Err())
				if _, err := s.store.Blobs(t.Context(), session, id); !errors.Is(err, forkcore.ErrCorrupt) {
					t.Errorf("%s: blobs: %v, want ErrCorrupt", name, err)
				}
				if _, err := s.store.Log(t.Context(), session, session, 0, 0); !errors.Is(err, forkcore.ErrCorrupt) {
					t.Errorf("%s: log: %v, want ErrCorrupt", name, err)
				}
			}
			s.must(s.client.HDel(t.Context(), key, id.String()).Err())
			if _, err := s.store.Log(t.Context(), session, session, 0, 0); !errors.Is(err, forkcore.ErrCorrupt) {
				t.Errorf("log without its blob: %v, want ErrCorrupt", err)
			}
			s.must(s.client.HSet(t.Context(), key, id.String(), stored).Err())
			if log, err := s.store.Log(t.Context(), session, session, 1, 0); err != nil || string(log[0].Bytes) != text {
				t.Errorf("log after the repair: %v", err)
			}
		})
	}
}
