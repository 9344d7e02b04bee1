package redisstore_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
)

// lossyConn loses the answer to the next command once armed: the server has
// performed it, the client sees a closed connection and retries.
type lossyConn struct {
	net.Conn
	armed *atomic.Bool
	lost  *atomic.Int32
}

func (c lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.armed.CompareAndSwap(true, false) {
		c.lost.Add(1)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestLostAnswers: a step whose answer gets lost is retried by the client and
// must have been done once, and be answered as if nothing had happened.
func TestLostAnswers(t *testing.T) {
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			var armed atomic.Bool
			var lost atomic.Int32
			o := *b.open(t).Options()
			o.PoolSize = 1 // the armed connection is the one that is used
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return lossyConn{c, &armed, &lost}, err
			}
			client := redis.NewClient(&o)
			defer client.Close()
			s := newScene(t, client, redisstore.Options{})
			ctx := t.Context()
			// losing arms the connection for the next command alone; ids and blobs must be there before.
			losing := func(what string, step func()) {
				t.Helper()
				before := lost.Load()
				// Connect and load the script first, or the loss would hit that.
				s.must(s.store.Ping(ctx))
				armed.Store(true)
				step()
				if lost.Load() != before+1 || armed.Load() {
					t.Fatalf("%s: no answer was lost", what)
				}
			}
			equal := func(what string, got, want any) {
				t.Helper()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			// Warm up: every script has run once, so EVALSHA is the first command of each step.
			warm := s.accept(s.session(), "warm").Holder
			s.begin(warm, 1)
			_, err := s.store.Append(ctx, warm, 1, nil, nil)
			s.must(err)
			w, err := s.store.Release(ctx, warm)
			s.must(err)
			s.end(s.lease(w[0].RunID, w[0].N, "warm").Holder)
			s.dispatch(s.session(), 1, forkcore.GateNone)
			_, err = s.store.Heartbeat(ctx, "web")
			s.must(err)
			_, err = s.store.Cancel(ctx, s.accept(s.session(), "warm").Run.ID)
			s.must(err)
			_, _ = s.store.Settle(ctx, warm, engine.Settle{ExpectLen: -1})

			session := forkcore.NewSessionID(s.entropy())
			losing("create session", func() {
				_, created, err := s.store.CreateSession(ctx, forkcore.Session{ID: session}, "")
				s.must(err)
				equal("created", created, true)
			})
			var h engine.Holder
			losing("accept", func() { h = s.accept(session, "t1").Holder })
			entry := s.message(session, h.RunID, "m")
			losing("append", func() {
				n, err := s.store.Append(ctx, h, 1, []forkcore.Entry{entry}, []string{"item-" + h.RunID})
				s.must(err)
				equal("length", n, int64(2))
			})
			var row forkcore.RequestRow
			losing("begin request", func() { row = s.begin(h, 1) })
			cost := int64(5)
			row.Cost = &cost
			losing("settle", func() {
				n, err := s.store.Settle(ctx, h, engine.Settle{Row: row, ExpectLen: 2, Append: []forkcore.Entry{entry}})
				s.must(err)
				equal("length", n, int64(3))
			})
			losing("release", func() {
				w, err := s.store.Release(ctx, h)
				s.must(err)
				equal("wakes", len(w), 1)
				equal("wake", [2]any{w[0].RunID, w[0].N}, [2]any{h.RunID, int64(1)})
			})
			losing("take lease", func() { h = s.lease(h.RunID, 1, "t2").Holder })
			equal("epoch", h.Epoch, int64(2))
			losing("cancel", func() {
				_, err := s.store.Cancel(ctx, h.RunID)
				s.must(err)
			})
			losing("heartbeat", func() {
				signals, err := s.store.Heartbeat(ctx, "worker")
				s.must(err)
				equal("signals", signals, []engine.Signal{{Kind: "swept"}, {RunID: h.RunID, Kind: "stop"}})
			})
			losing("end", func() { s.end(h) })
			other := s.session()
			d, _ := s.dispatch(other, 2, forkcore.GateNone)
			s.end(s.lease(d.Runs[0].ID, 1, "t3").Holder)
			losing("cancel of the last child", func() {
				wakes, err := s.store.Cancel(ctx, d.Runs[1].ID)
				s.must(err)
				turn, err := s.store.Session(ctx, other)
				s.must(err)
				equal("wakes", wakes, []engine.Wake{{RunID: turn.ActiveRunID, N: 1, SessionID: other}})
			})

			now, err := s.store.Session(ctx, session)
			s.must(err)
			equal("cost", now.Cost, forkcore.Cost{NanoUSD: 5})
			equal("reserved", now.ReservedNanoUSD, int64(0))
			equal("active runs", now.ActiveRuns, int64(0))
			run, err := s.store.Run(ctx, h.RunID)
			s.must(err)
			equal("requests", run.Requests, int64(1))
			equal("wake", run.Wake, int64(1))
			log, err := s.store.Log(ctx, session, session, 0, 0)
			s.must(err)
			equal("log length", len(log), 5) // turn_start, m, m, background, turn_end
			_, err = s.store.Sweep(ctx, time.Hour, time.Hour)
			s.must(err)
		})
	}
}
