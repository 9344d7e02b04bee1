package engine_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// holding answers at once until it is told to hold requests, having read the body and kept nothing of it.
type holding struct {
	holds   atomic.Bool
	open    atomic.Int64
	bytes   atomic.Int64
	release chan struct{}
}

func (m *holding) Stream(ctx context.Context, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) {
		n, _ := io.Copy(io.Discard, r.Body())
		if m.holds.Load() {
			m.bytes.Add(n)
			m.open.Add(1)
			select {
			case <-m.release:
			case <-ctx.Done():
			}
		}
		u := forkcore.Usage{Input: 1, CacheWrite5m: n / 4, Output: 1}
		_ = yield(&forkcore.ModelStart{MessageID: "msg", Usage: u, UsageKnown: true}, nil) &&
			yield(&forkcore.ModelEnd{Blocks: [][]byte{forkcore.AppendTextBlock(nil, reportText)}, StopReason: "end_turn", Usage: u, UsageKnown: true}, nil)
	}
}

// Two hundred forks of one conversation of a megabyte, all of them in a request
// at the same time, hold that megabyte once.
func TestTwoHundredForksHoldOnePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &holding{release: make(chan struct{})}
		y := newYard(t, nil, func(o *engine.Options) { o.Model, o.Gate = m, forkcore.GateOff })
		for i := range 5 {
			y.ask(fmt.Sprint(i, strings.Repeat(" some words of a long conversation", 6_300)))
		}
		m.holds.Store(true)
		spec := func(n int) (s forkcore.ForkSpec) {
			for i := range n {
				s.Directives = append(s.Directives, forkcore.Directive{Prompt: fmt.Sprintf("task %d", i)})
			}
			return s
		}
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			return int64(s.HeapAlloc)
		}
		dispatch := func(n int) {
			if _, _, err := y.engine.Fork(y.ctx, y.session.ID, spec(n), ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		dispatch(1) // loads the one prefix
		before := heap()
		for _, n := range []int{64, 64, 64, 8} {
			dispatch(n)
		}
		want(t, "forks in a request", m.open.Load(), 201)
		if sent := m.bytes.Load(); sent < 201<<20 {
			t.Errorf("%d bytes were sent, want over a megabyte for each", sent)
		}
		grown := heap() - before
		t.Logf("200 forks of %d bytes each grew the heap by %d bytes", m.bytes.Load()/201, grown)
		if grown > 20<<20 {
			t.Errorf("200 forks grew the heap by %d bytes, want at most 20 MiB", grown)
		}
		m.holds.Store(false)
		close(m.release)
		y.idle()
	})
}

// A hundred forks that ended, well or not, leave no goroutine behind.
func TestM66_ForksLeaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			d, fork := c.directive()
			switch {
			case !fork:
				return say("an answer")
			case strings.HasSuffix(d, "7"):
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Status: 400, Message: "no"}, cut: true}
			case strings.HasSuffix(d, "3"):
				return reply{panics: true}
			case c.answers() == 0:
				a := useTools(use("toolu_"+d, "Read", `{}`), use("toolu_b"+d, "Grep", `{}`))
				a.deltas = []forkcore.ModelDelta{{Kind: "text", Text: "I read"}}
				return a
			}
			return say(reportText)
		})
		y.ask("first")
		synctest.Wait()
		before := engineGoroutines()
		for range 2 {
			var spec forkcore.ForkSpec
			for i := range 50 {
				spec.Directives = append(spec.Directives, forkcore.Directive{Prompt: fmt.Sprint("task", i)})
			}
			if _, _, err := y.engine.Fork(y.ctx, y.session.ID, spec, ""); err != nil {
				t.Fatal(err)
			}
		}
		y.idle()
		synctest.Wait()
		want(t, "forks", len(y.forks()), 100)
		want(t, "runs held", y.engine.HeldRuns(), 0)
		if after := engineGoroutines(); len(after) != len(before) || len(before) == 0 {
			t.Errorf("%d goroutines run the engine, before there were %d:\n%s", len(after), len(before), strings.Join(after, "\n\n"))
		}
	})
}

// engineGoroutines are the stacks of the goroutines that run the engine in this bubble, or were started by it.
func engineGoroutines() (stacks []string) {
	buf := make([]byte, 8<<20)
	for s := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(s, "forkyard/jobs/engine.") && strings.Contains(s, "synctest bubble") {
			stacks = append(stacks, s)
		}
	}
	return stacks
}

// counting counts what is written to the store.
type counting struct {
	engine.Store
	bytes, entries int64
}

func (s *counting) PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error {
	for _, b := range blobs {
		s.bytes += int64(len(b))
	}
	return s.Store.PutBlobs(ctx, sessionID, blobs...)
}

func (s *counting) count(entries []forkcore.Entry) {
	s.entries += int64(len(entries))
}

func (s *counting) Append(ctx context.Context, h engine.Holder, expectLen int64, entries []forkcore.Entry, take []string) (int64, error) {
	s.count(entries)
	return s.Store.Append(ctx, h, expectLen, entries, take)
}

func (s *counting) Settle(ctx context.Context, h engine.Holder, in engine.Settle) (int64, error) {
	s.count(in.Append)
	return s.Store.Settle(ctx, h, in)
}

// Turn k of a long conversation stores its own messages, and replays nothing of what came before.
func TestTurnsStoreOnlyWhatTheyAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &reading{counting: &counting{}}
		y := newYard(t, nil, func(o *engine.Options) { s.Store, o.Store, o.Model = o.Store, s, &holding{} })
		var second [3]int64
		for k := range 500 {
			bytes, entries, read := s.bytes, s.entries, s.read
			y.ask("a question of the same length")
			got := [3]int64{s.bytes - bytes, s.entries - entries, s.read - read}
			switch {
			case k == 1:
				second = got
			case k > 1 && got != second:
				t.Fatalf("turn %d stored %d bytes in %d entries and read %d entries; turn 2: %v", k+1, got[0], got[1], got[2], second)
			}
		}
		t.Logf("each turn stores %d bytes in %d entries and reads %d entries", second[0], second[1], second[2])
	})
}

// reading counts the log entries that are read as well.
type reading struct {
	*counting
	read int64
}

func (s *reading) Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error) {
	entries, err := s.counting.Log(ctx, sessionID, agentID, after, limit)
	s.read += int64(len(entries))
	return entries, err
}
