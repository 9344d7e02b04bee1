package redisstore_test

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"forkyard/jobs/engine"
	"forkyard/jobs/engine/enginetest"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

// backend makes clients to an empty database.
type backend struct {
	name string
	open func(t *testing.T) *redis.Client
}

// backends are a real Redis and the in-process stand-in; everything must
// behave the same on both. The real server is started once for a test.
func backends(t *testing.T) []backend {
	start := sync.OnceValue(func() string { return redistest.Start(t) })
	return []backend{
		{"redis", func(t *testing.T) *redis.Client {
			client := connect(t, start())
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			return client
		}},
		{"miniredis", func(t *testing.T) *redis.Client {
			return connect(t, "redis://"+miniredis.RunT(t).Addr())
		}},
	}
}

func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newStore(client redis.UniversalClient, o redisstore.Options) *redisstore.Store {
	o.Logger = slog.New(slog.DiscardHandler)
	return redisstore.New(client, o)
}

func TestConformance(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			enginetest.RunStore(t, func(t *testing.T) engine.Store {
				return newStore(b.open(t), redisstore.Options{})
			})
		})
	}
}
