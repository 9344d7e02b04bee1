package redisstore_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forkyard/jobs/redisstore"
)

func TestSecrets(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			s := newScene(t, b.open(t), redisstore.Options{})
			ctx := t.Context()
			check := func(kind, sum string, want bool) {
				t.Helper()
				got, err := s.store.CheckSecret(ctx, kind, sum)
				s.must(err)
				if got != want {
					t.Errorf("check %s %s = %v, want %v", kind, sum, got, want)
				}
			}
			check("login", "aa", false)
			s.must(s.store.SaveSecret(ctx, "login", "aa", time.Now().Add(time.Hour)))
			s.must(s.store.SaveSecret(ctx, "session", "bb", time.Time{}))
			s.must(s.store.SaveSecret(ctx, "login", "cc", time.Now().Add(-time.Second)))
			check("login", "aa", true)
			check("session", "aa", false)
			check("session", "bb", true)
			check("login", "cc", false)

			var taken atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					ok, err := s.store.TakeSecret(ctx, "login", "aa")
					if err != nil {
						t.Error(err)
					}
					if ok {
						taken.Add(1)
					}
				})
			}
			wg.Wait()
			if taken.Load() != 1 {
				t.Errorf("a single-use secret was taken %d times", taken.Load())
			}
			check("login", "aa", false)
			s.must(s.store.DropSecret(ctx, "session", "bb"))
			s.must(s.store.DropSecret(ctx, "session", "bb"))
			check("session", "bb", false)
			if n, err := s.client.Keys(ctx, "*").Result(); err != nil || len(n) != 0 {
				t.Errorf("keys left: %v %v", n, err)
			}
		})
	}
}
