package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func TestNewNeedsItsParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		for name, without := range map[string]func(*engine.Options){
			"store": func(o *engine.Options) { o.Store = nil }, "model": func(o *engine.Options) { o.Model = nil },
			"tools": func(o *engine.Options) { o.Tools = nil }, "enqueuer": func(o *engine.Options) { o.Enqueuer = nil },
			"catalogue": func(o *engine.Options) { o.Catalogue = nil },
		} {
			o := y.options
			without(&o)
			if _, err := engine.New(o); err == nil {
				t.Errorf("an engine without its %s was made", name)
			}
		}
	})
}

// TestStartNeedsTheStore: an executor that nobody can see alive does not start.
func TestStartNeedsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		o := y.options
		o.Store = &faulty{Store: y.store, n: 1, dead: true, trigger: "from the start", err: forkcore.ErrStoreUnavailable}
		e, err := engine.New(o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Start(y.ctx); !errors.Is(err, forkcore.ErrStoreUnavailable) {
			t.Errorf("start without a database: %v, want ErrStoreUnavailable", err)
		}
	})
}

// TestBeats: an executor counts as alive from its start to its stop, and its runs go on elsewhere after that.
func TestBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply {
			a := say("late")
			a.before = time.Hour
			return a
		})
		y.queue.hold()
		e, err := engine.New(y.options)
		if err != nil {
			t.Fatal(err)
		}
		stop, err := e.Start(y.ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Drain(0)
		id, err := e.SendMessage(y.ctx, y.session.ID, "go", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			time.Sleep(time.Second)
			want(t, "state while it beats", y.run(id).State, forkcore.Running)
		}
		want(t, "runs held", e.HeldRuns(), 1)
		want(t, "runs held by the other", y.engine.HeldRuns(), 0)

		// Its end, without draining: the next sweep of the other takes the run away.
		stop()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		want(t, "state after its end", y.run(id).State, forkcore.Queued)
		wakes := y.queue.noted()
		want(t, "wakes", len(wakes) > 0 && wakes[0] == engine.Wake{RunID: id, N: 1}, true)
	})
}

// TestLostWake: a wake that the ready-list lost is handed out again by a sweep.
func TestLostWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork {
				return say(reportText)
			}
			return say("noted")
		})
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		y.queue.mu.Lock()
		y.queue.closed = false
		y.queue.mu.Unlock()
		start := time.Now()
		want(t, "state", y.ended(runs[0].ID).State, forkcore.Done)
		if took := time.Since(start); took > 2100*time.Millisecond {
			t.Errorf("found again after %v, want 2 s at most", took)
		}
		want(t, "wake number", y.run(runs[0].ID).Wake, 1)
	})
}

// sweepless gives wakes and an error at once, as a store of many shards does when one of them is away.
type sweepless struct{ engine.Store }

func (s sweepless) Sweep(ctx context.Context, dead, redue time.Duration) ([]engine.Wake, error) {
	wakes, err := s.Store.Sweep(ctx, dead, redue)
	return wakes, errors.Join(err, forkcore.ErrStoreUnavailable)
}

func TestSweepInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		y.stop()
		y.queue.hold()
		o := y.options
		o.Store = sweepless{y.store}
		e, _ := y.start(o)
		_, runs, err := e.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2100 * time.Millisecond)
		synctest.Wait()
		wakes := y.queue.noted()
		want(t, "wakes", len(wakes), 2)
		want(t, "the wake that was swept", wakes[len(wakes)-1], engine.Wake{RunID: runs[0].ID, N: 1})
	})
}

// TestDrainIdle: draining an engine that holds nothing returns at once, and it takes nothing afterwards.
func TestDrainIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		y.engine.Drain(time.Hour)
		want(t, "took", time.Since(start), 0)
		if err := y.engine.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Errorf("execute while draining: %v", err)
		}
		want(t, "state", y.run(runs[0].ID).State, forkcore.Queued)
	})
}
