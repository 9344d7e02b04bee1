package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
	"forkyard/jobs/redisstore/redistest"
)

// readyList is a ready list on a Redis of its own.
type readyList struct {
	testing.TB
	ctx    context.Context
	redis  *redis.Client
	store  *redisstore.Store
	client *jobs.Client
	server *redistest.Server
	limit  int
}

func newReadyList(t testing.TB, limit int) *readyList {
	t.Helper()
	server := redistest.NewServer(t)
	r := openReadyList(t, server.URL(), limit)
	r.server = server
	return r
}

func openReadyList(t testing.TB, url string, limit int) *readyList {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = 100
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	s := redisstore.New(c, redisstore.Options{Logger: slog.New(slog.DiscardHandler)})
	return &readyList{TB: t, ctx: context.Background(), redis: c, store: s, client: jobs.NewClient(c, s, limit), limit: limit}
}

func (r *readyList) enqueue(wakes ...engine.Wake) {
	r.Helper()
	if err := r.client.Enqueue(r.ctx, wakes...); err != nil {
		r.Fatal(err)
	}
}

// wakes are n runs of a session, named "<session>1" and so on.
func wakes(session string, n int, set ...func(*engine.Wake)) (list []engine.Wake) {
	for i := range n {
		w := engine.Wake{RunID: fmt.Sprint(session, i+1), N: 1, SessionID: session}
		for _, f := range set {
			f(&w)
		}
		list = append(list, w)
	}
	return list
}

func batch(w *engine.Wake) { w.Batch = true }

func in(root string) func(*engine.Wake) {
	return func(w *engine.Wake) { w.Pool = engine.PoolOf(root) }
}

// picks takes up to n runs without a worker.
func (r *readyList) picks(n int, pools ...string) string {
	r.Helper()
	var got []string
	for range n {
		w, ok, err := r.store.Pick(r.ctx, r.limit, append(pools, ""))
		if err != nil {
			r.Fatal(err)
		}
		if !ok {
			break
		}
		got = append(got, w.RunID)
	}
	return strings.Join(got, " ")
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// worker is an executor that notes what it is given.
type worker struct {
	id string
	do func(engine.Wake)

	mu         sync.Mutex
	got        []string
	handedOver int
}

func (w *worker) Execute(_ context.Context, wake engine.Wake) error {
	w.mu.Lock()
	w.got = append(w.got, wake.RunID)
	w.mu.Unlock()
	if w.do != nil {
		w.do(wake)
	}
	return nil
}

func (w *worker) ID() string { return w.id }

func (w *worker) HandOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handedOver++
}

func (w *worker) runs() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.got)
}

func (r *readyList) start(w *worker, concurrency int, roots ...string) *jobs.Server {
	r.Helper()
	s := jobs.NewServer(r.redis, jobs.Options{Executor: w, Ready: r.store, Concurrency: concurrency, Limit: r.limit, Roots: roots, Log: slog.New(slog.DiscardHandler)})
	if err := s.Start(r.ctx); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(s.Stop)
	return s
}

func (r *readyList) until(what string, done func() bool) {
	r.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("%s did not happen", what)
		}
	}
}

func (r *readyList) keep() *jobs.Keeper {
	return jobs.NewKeeper(r.redis, r.client, slog.New(slog.DiscardHandler))
}

// look lets a keeper look twice: what lacks once may be on its way.
func (r *readyList) look(k *jobs.Keeper) {
	r.Helper()
	for range 2 {
		if err := k.Look(r.ctx); err != nil {
			r.Fatal(err)
		}
	}
}

func TestPickOrder(t *testing.T) {
	r := newReadyList(t, 0)
	// One team's 500 forks do not delay another session's first by more than one pick.
	r.enqueue(wakes("a", 500)...)
	r.enqueue(wakes("b", 3)...)
	r.enqueue(wakes("c", 1)...)
	want(t, "sessions take turns", r.picks(7), "a1 b1 c1 a2 b2 a3 b3")
	want(t, "and lines are kept", r.picks(2), "a4 a5")

	// A run that is offered again keeps its place, with the later wake.
	again := wakes("a", 6)[5]
	again.N = 7
	r.enqueue(again)
	w, ok, err := r.store.Pick(r.ctx, 0, []string{""})
	if err != nil || !ok || w.RunID != "a6" || w.N != 7 {
		t.Errorf("picked %+v, %v, %v", w, ok, err)
	}
	if got := len(strings.Fields(r.picks(1000))); got != 494 {
		t.Errorf("%d runs are left, want 494", got)
	}
	want(t, "an empty list", r.picks(1), "")
}

func TestInteractiveBeforeBatch(t *testing.T) {
	r := newReadyList(t, 0)
	r.enqueue(wakes("night", 40, batch)...)
	r.enqueue(wakes("day", 40)...)
	order := strings.Fields(r.picks(80))
	first := slices.IndexFunc(order, func(id string) bool { return strings.HasPrefix(id, "night") })
	if first < 1 || first > 8 {
		t.Errorf("the first batch run is pick %d: what nobody waits for may neither go first nor starve", first+1)
	}
	nights := 0
	for _, id := range order[:40] {
		if strings.HasPrefix(id, "night") {
			nights++
		}
	}
	want(t, "batch runs among the first 40 picks", nights, 5)
}

func TestPools(t *testing.T) {
	r := newReadyList(t, 0)
	r.enqueue(wakes("x", 2, in("/srv/x"))...)
	r.enqueue(wakes("y", 2, in("/srv/y"))...)
	r.enqueue(wakes("n", 1)...)
	x := &worker{id: "w-x"}
	r.start(x, 4, "/srv/x")
	r.until("the runs of x and of no root", func() bool { return len(x.runs()) == 3 })
	for _, id := range x.runs() {
		if strings.HasPrefix(id, "y") {
			t.Errorf("a worker without the workspace got %s", id)
		}
	}
	q, err := r.store.Queue(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "x is served", q.Unserved("/srv/x"), false)
	if err := r.store.NamePools(r.ctx, "/srv/y"); err != nil {
		t.Fatal(err)
	}
	if q, err = r.store.Queue(r.ctx); err != nil || !q.Unserved("/srv/y") {
		t.Errorf("nobody serves /srv/y: %+v, %v", q, err)
	}
	// A worker that names no workspace serves all, those that are named after its start too.
	all := &worker{id: "w-all"}
	r.start(all, 4)
	r.until("the runs of y", func() bool { return len(all.runs()) == 2 })
	if err := r.store.NamePools(r.ctx, "/srv/z"); err != nil {
		t.Fatal(err)
	}
	r.enqueue(wakes("z", 1, in("/srv/z"))...)
	r.until("the run of z", func() bool { return len(all.runs()) == 3 })
}

func TestPause(t *testing.T) {
	r := newReadyList(t, 0)
	pause := func(scope string, on bool) {
		if err := r.store.Pause(r.ctx, scope, on); err != nil {
			t.Fatal(err)
		}
	}
	r.enqueue(wakes("a", 2)...)
	r.enqueue(wakes("b", 2)...)
	pause("session:a", true)
	r.enqueue(engine.Wake{RunID: "a3", N: 1, SessionID: "a"})
	want(t, "with a paused session", r.picks(9), "b1 b2")
	q, err := r.store.Queue(r.ctx)
	if err != nil || len(q.Sessions) != 1 || !q.Sessions[0].Paused || q.Sessions[0].Ready != 3 {
		t.Errorf("queue %+v, %v", q, err)
	}
	// What may not be picked needs no tokens.
	if d, err := r.store.Depths(r.ctx, []string{""}); err != nil || d[""] != 0 {
		t.Errorf("depths %v, %v", d, err)
	}
	pause("session:a", false)
	want(t, "resumed", r.picks(1), "a1")
	pause(redisstore.ScopeAll, true)
	want(t, "all paused", r.picks(1), "")
	pause(redisstore.ScopeAll, false)
	pause("pool:", true)
	want(t, "pool paused", r.picks(1), "")
	pause("pool:", false)
	want(t, "resumed", r.picks(9), "a2 a3")
}

// TestLimit: no more runs of a session than that at a time, whatever becomes of their executors.
func TestLimit(t *testing.T) {
	r := newReadyList(t, 2)
	r.enqueue(wakes("a", 5)...)
	r.enqueue(wakes("b", 1)...)
	want(t, "picks", r.picks(9), "a1 b1 a2")
	if err := r.store.Done(r.ctx, 2, engine.Wake{RunID: "a1", SessionID: "a"}); err != nil {
		t.Fatal(err)
	}
	want(t, "picks after an end", r.picks(9), "a3")

	// Through workers: never more than two at a time, and all come to their end.
	var mu sync.Mutex
	now, most := 0, 0
	w := &worker{id: "w", do: func(engine.Wake) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
	}}
	r.start(w, 8)
	r.enqueue(wakes("c", 20)...)
	r.until("all of c", func() bool { return len(w.runs()) >= 20 })
	mu.Lock()
	defer mu.Unlock()
	want(t, "at a time", most, 2)
}

// TestB35_LostTokens: whatever happens to tasks of asynq, each run is picked: lost, archived, stuck without a lease.
func TestB35_LostTokens(t *testing.T) {
	r := newReadyList(t, 0)
	k := r.keep()
	r.enqueue(wakes("a", 20)...)
	if n, err := r.redis.Del(r.ctx, "asynq:{default}:pending").Result(); err != nil || n != 1 {
		t.Fatalf("lose the tokens: %d, %v", n, err)
	}
	inspector := asynq.NewInspectorFromRedisClient(r.redis)
	r.enqueue(wakes("b", 3)...)
	if n, err := inspector.ArchiveAllPendingTasks("default"); err != nil || n != 3 {
		t.Fatalf("archive tokens: %d, %v", n, err)
	}
	r.look(k)
	info, err := inspector.GetQueueInfo("default")
	if err != nil {
		t.Fatal(err)
	}
	want(t, "tokens", info.Pending, 23)
	want(t, "archived", info.Archived, 0)
	r.look(k)
	if info, err = inspector.GetQueueInfo("default"); err != nil || info.Pending != 23 {
		t.Errorf("tokens after another look: %d, %v", info.Pending, err)
	}
	w := &worker{id: "w"}
	r.start(w, 4)
	r.until("all runs", func() bool { return len(w.runs()) == 23 })
}

// TestB31_CancelledTask: cancelling or losing the task that brought a run neither ends it nor starts it twice.
func TestB31_CancelledTask(t *testing.T) {
	r := newReadyList(t, 0)
	gate := make(chan struct{})
	w := &worker{id: "w", do: func(engine.Wake) { <-gate }}
	r.start(w, 4)
	r.enqueue(wakes("a", 1)...)
	r.until("the start", func() bool { return len(w.runs()) == 1 })
	inspector := asynq.NewInspectorFromRedisClient(r.redis)
	active, err := inspector.ListActiveTasks("default")
	if err != nil || len(active) != 1 {
		t.Fatalf("active tasks %v, %v", active, err)
	}
	if err := inspector.CancelProcessing(active[0].ID); err != nil {
		t.Fatal(err)
	}
	k := r.keep()
	r.until("the token's retry is cleared away", func() bool {
		r.look(k)
		info, err := inspector.GetQueueInfo("default")
		return err == nil && info.Retry == 0 && info.Pending == 0
	})
	close(gate)
	r.enqueue(wakes("b", 1)...)
	r.until("the next run", func() bool { return len(w.runs()) == 2 })
	want(t, "executions", strings.Join(w.runs(), " "), "a1 b1")
}

// TestB36_SameRunAgain: a run that was picked once can be offered again, whatever became of its first task.
func TestB36_SameRunAgain(t *testing.T) {
	r := newReadyList(t, 0)
	r.enqueue(wakes("a", 1)...)
	want(t, "first", r.picks(1), "a1")
	r.enqueue(wakes("a", 1)...) // the very same wake: the picker died before it took the lease
	want(t, "again", r.picks(1), "a1")
}

func TestDrainWorker(t *testing.T) {
	r := newReadyList(t, 0)
	w := &worker{id: "w"}
	r.start(w, 2)
	if err := r.store.DrainWorker(r.ctx, "nobody", true); !errors.Is(err, forkcore.ErrNotFound) {
		t.Errorf("drain a stranger: %v", err)
	}
	if err := r.store.DrainWorker(r.ctx, "w", true); err != nil {
		t.Fatal(err)
	}
	r.until("the hand-over", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return w.handedOver == 1 })
	r.enqueue(wakes("a", 1)...)
	time.Sleep(10 * 15 * time.Millisecond) // ten looks of a worker that takes something
	want(t, "runs of a drained worker", len(w.runs()), 0)
	q, err := r.store.Queue(r.ctx)
	if err != nil || len(q.Workers) != 1 || !q.Workers[0].Draining || q.Workers[0].Slots != 2 {
		t.Errorf("queue %+v, %v", q, err)
	}
	if err := r.store.DrainWorker(r.ctx, "w", false); err != nil {
		t.Fatal(err)
	}
	r.until("the run", func() bool { return len(w.runs()) == 1 })
}

// TestReadyListSurvivesRedis: what was acknowledged is picked after a crash of the database.
func TestReadyListSurvivesRedis(t *testing.T) {
	r := newReadyList(t, 0)
	w := &worker{id: "w"}
	r.start(w, 2)
	stop := r.keep().Start(r.ctx)
	defer stop()
	r.enqueue(wakes("a", 1)...)
	r.until("the first run", func() bool { return len(w.runs()) == 1 })
	r.server.Kill()
	r.server.Restart()
	r.until("an enqueue", func() bool { return r.client.Enqueue(r.ctx, wakes("b", 3)...) == nil })
	r.until("the other runs", func() bool { return len(w.runs()) >= 4 })
}
