package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

// BenchmarkSteps measures what one request of a run and one second of an executor cost.
func BenchmarkSteps(b *testing.B) {
	urls := map[string]string{"redis": redistest.Start(b), "miniredis": "redis://" + miniredis.RunT(b).Addr()}
	for name, url := range urls {
		o, err := redis.ParseURL(url)
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(o)
		defer client.Close()
		store := newStore(client, redisstore.Options{})
		ctx := b.Context()
		check := func(err error) {
			if err != nil {
				b.Fatal(err)
			}
		}
		session := forkcore.NewSessionID(forkcore.Entropy{})
		_, _, err = store.CreateSession(ctx, forkcore.Session{ID: session}, "")
		check(err)
		run, err := forkcore.NewRunID(session, forkcore.Entropy{})
		check(err)
		a, err := store.Accept(ctx, engine.Accept{
			Run: forkcore.Run{ID: run, SessionID: session, AgentID: session, Kind: forkcore.KindMain}, Holder: engine.Holder{Executor: "w", Token: "t"}, ItemID: "i",
		})
		check(err)
		h, n := a.Lease.Holder, int64(0)
		b.Run(name+"/request", func(b *testing.B) {
			for b.Loop() {
				n++
				row := forkcore.RequestRow{RunID: run, N: n, Status: forkcore.RequestOpen}
				check(store.BeginRequest(ctx, h, row, 1, time.Minute))
				_, err := store.FirstEvent(ctx, h, row, nil)
				check(err)
				_, err = store.Settle(ctx, h, engine.Settle{Row: row, ExpectLen: -1})
				check(err)
			}
		})
		b.Run(name+"/heartbeat", func(b *testing.B) {
			for b.Loop() {
				_, err := store.Heartbeat(ctx, "w")
				check(err)
			}
		})
		b.Run(name+"/sweep", func(b *testing.B) {
			for b.Loop() {
				_, err := store.Sweep(ctx, time.Hour, time.Hour)
				check(err)
			}
		})
	}
}
