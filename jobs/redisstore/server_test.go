package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

func TestCheckServer(t *testing.T) {
	bs := backends(t)
	real, inProcess := bs[0].open(t), bs[1].open(t)
	ctx := t.Context()
	if err := newStore(inProcess, redisstore.Options{InProcess: true}).CheckServer(ctx); err != nil {
		t.Errorf("in process: %v", err)
	}
	store := newStore(real, redisstore.Options{})
	for policy, refused := range map[string]bool{"noeviction": false, "allkeys-lru": true, "volatile-ttl": true} {
		if err := real.ConfigSet(ctx, "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
		err := store.CheckServer(ctx)
		if refused != (err != nil) {
			t.Errorf("%s: %v", policy, err)
		}
		if refused && !strings.Contains(err.Error(), "CONFIG SET maxmemory-policy noeviction") {
			t.Errorf("%s: %v does not say what to change", policy, err)
		}
	}
}

func TestUnavailable(t *testing.T) {
	server := redistest.NewServer(t)
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	o.Password, o.MaxRetries = "hunter2", -1
	client := redis.NewClient(o)
	defer client.Close()
	store := newStore(client, redisstore.Options{})
	server.Kill()
	session := forkcore.NewSessionID(forkcore.Entropy{})
	ctx := t.Context()
	for name, call := range map[string]func(context.Context) error{
		"ping":      store.Ping,
		"check":     store.CheckServer,
		"read":      func(ctx context.Context) error { _, err := store.Session(ctx, session); return err },
		"list":      func(ctx context.Context) error { _, _, err := store.Sessions(ctx, "", 1); return err },
		"script":    func(ctx context.Context) error { _, _, err := store.Stop(ctx, session, "turn"); return err },
		"pipeline":  func(ctx context.Context) error { _, err := store.Heartbeat(ctx, "w"); return err },
		"put blobs": func(ctx context.Context) error { return store.PutBlobs(ctx, session, []byte("b")) },
		"secret":    func(ctx context.Context) error { return store.DropSecret(ctx, "k", "s") },
	} {
		err := call(ctx)
		if !errors.Is(err, forkcore.ErrStoreUnavailable) {
			t.Errorf("%s: %v, want ErrStoreUnavailable", name, err)
			continue
		}
		if !strings.Contains(err.Error(), o.Addr) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v must name %s and no password", name, err, o.Addr)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if err := call(cancelled); !errors.Is(err, context.Canceled) || errors.Is(err, forkcore.ErrStoreUnavailable) {
			t.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
}

// TestSurvivesCrash: what was acknowledged is there after a crash of Redis, leases included.
func TestSurvivesCrash(t *testing.T) {
	server := redistest.NewServer(t)
	s := newScene(t, connect(t, server.URL()), redisstore.Options{})
	session := s.session()
	h := s.accept(session, "t").Holder
	entry := s.message(session, h.RunID, "before the crash")
	_, err := s.store.Append(t.Context(), h, 1, []forkcore.Entry{entry}, nil)
	s.must(err)
	server.Kill()
	server.Restart()
	n, err := s.store.Append(t.Context(), h, 2, []forkcore.Entry{entry}, nil)
	s.must(err)
	if n != 3 {
		t.Errorf("log length = %d, want 3", n)
	}
}
