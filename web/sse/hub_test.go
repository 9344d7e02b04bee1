package sse

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func TestHubCutsTheSlowAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := StartHub(m, encodeID, testLog(t))
		defer h.Close()
		<-m.fed
		slow, fast := h.NewSubscription(t.Context(), "a"), h.NewSubscription(t.Context(), "a")
		defer slow.Close()
		defer fast.Close()
		slow.Collect()
		fast.Collect()
		for n := 1; n <= 2*queueLength; n++ {
			m.publish("a", n)
			if got := (<-fast.items).ID; got.MS != uint64(n) {
				t.Fatalf("event %d of the fast client has id %v", n, got)
			}
		}
		if fast.ctx.Err() != nil {
			t.Errorf("the fast client was cut: %v", context.Cause(fast.ctx))
		}
		if got := context.Cause(slow.ctx); got != errSlow {
			t.Errorf("the client that never read: %v, want %v", got, errSlow)
		}
		if h.Cut() != 1 || h.Clients() != 2 {
			t.Errorf("cut %d, clients %d; want 1, 2", h.Cut(), h.Clients())
		}
	})
}

func TestHubDropsDeltasFirst(t *testing.T) {
	m := newMemory()
	h := startHub(t, m, encodeID)
	s := h.NewSubscription(t.Context(), "a")
	defer s.Close()
	s.Collect()
	for range 10 * queueLength {
		m.publish("a", 0)
	}
	m.publish("a", 1)
	if s.ctx.Err() != nil {
		t.Fatalf("cut over deltas: %v", context.Cause(s.ctx))
	}
	durable := 0
	for len(s.items) > 0 {
		if i := <-s.items; i.Durable() {
			durable++
		}
	}
	if durable != 1 {
		t.Errorf("%d durable events behind the flood of deltas, want 1", durable)
	}
}

func TestHubFiltersAndEncodesOnce(t *testing.T) {
	m := newMemory()
	var encoded atomic.Int64
	h := startHub(t, m, func(ctx context.Context, e forkcore.Event) (Frame, error) {
		encoded.Add(1)
		return encodeID(ctx, e)
	})
	var of []*Subscription
	for _, id := range []string{"a", "a", "", "b"} {
		s := h.NewSubscription(t.Context(), id)
		defer s.Close()
		s.Collect()
		of = append(of, s)
	}
	m.publish("a", 1)
	for _, s := range of[:3] {
		if f, err := (<-s.items).Frame(); err != nil || string(f.Data) != "a/1-0" {
			t.Errorf("frame %q, %v", f.Data, err)
		}
	}
	if len(of[3].items) != 0 {
		t.Error("a client of another session got the event")
	}
	if encoded.Load() != 1 {
		t.Errorf("encoded %d times for three clients", encoded.Load())
	}
}

func TestHubReopensTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := StartHub(m, encodeID, testLog(t))
		defer h.Close()
		<-m.fed
		before := h.NewSubscription(t.Context(), "a")
		defer before.Close()
		before.Collect()
		m.interrupt()
		<-before.ctx.Done() // it may have missed something, so it must resume
		during := h.NewSubscription(t.Context(), "a")
		defer during.Close()
		during.Collect()
		start := time.Now()
		<-m.fed
		if waited := time.Since(start); waited > feedMargin {
			t.Errorf("the feed was reopened after %v, its margin is %v", waited, feedMargin)
		}
		m.publish("a", 1)
		if got := (<-during.items).ID; got.MS != 1 {
			t.Errorf("event %v, want 1-0", got)
		}
	})
}

func TestHubEndsItsGoroutines(t *testing.T) {
	base := runtime.NumGoroutine()
	m := newMemory()
	h := StartHub(m, encodeID, testLog(t))
	<-m.fed
	s := h.NewSubscription(context.Background(), "a")
	s.Collect()
	h.Close()
	<-s.ctx.Done()
	s.Close()
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > base && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if got := runtime.NumGoroutine(); got > base {
		t.Errorf("%d goroutines, %d before", got, base)
	}
	late := h.NewSubscription(context.Background(), "a")
	defer late.Close()
	select {
	case <-late.ctx.Done():
	case <-time.After(5 * time.Second):
		t.Error("a subscription to a closed hub does not end")
	}
}

// notes is an observer that remembers.
type notes struct {
	mu   sync.Mutex
	seen map[string]bool
	lost int
}

func (n *notes) Observe(e forkcore.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[e.ID] = true
}

func (n *notes) FeedLost() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost++
}

func (n *notes) knows(id string) (seen bool, lost int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[id], n.lost
}

// TestHubObservers: an observer knows an event before a client has it, is no client, and is told when the feed was lost.
func TestHubObservers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := StartHub(m, encodeID, testLog(t))
		defer h.Close()
		n := &notes{seen: map[string]bool{}}
		h.AddObserver(n)
		sub := h.NewSubscription(t.Context(), "a")
		defer sub.Close()
		sub.Collect()
		if h.Clients() != 1 {
			t.Errorf("%d clients, want the one that subscribed", h.Clients())
		}
		<-m.fed
		for i := 1; i <= 100; i++ {
			go m.publish("a", i)
			item := <-sub.Items()
			if seen, _ := n.knows(item.Event.ID); !seen {
				t.Fatalf("a client has event %s, and the observer does not", item.Event.ID)
			}
		}
		m.interrupt()
		synctest.Wait()
		if _, lost := n.knows(""); lost != 1 {
			t.Errorf("told %d times that the feed was lost, want once", lost)
		}
	})
}
