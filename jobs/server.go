package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// checkInterval is how often idle workers look for tokens: the default of a
// second would keep a fork waiting for half a second on average.
const checkInterval = 15 * time.Millisecond

// Executor runs what a wake names. *engine.Engine is one.
type Executor interface {
	Execute(ctx context.Context, w engine.Wake) error
	// ID names the executor.
	ID() string
	// HandOver asks for everything that runs here to go on elsewhere, at its next step boundary.
	HandOver()
}

// Options of a Server. Executor and Ready are required.
type Options struct {
	Executor Executor
	Ready    ReadyList
	// Concurrency is how many runs are executed at a time.
	Concurrency int
	// Limit is how many runs of one session may be executed at a time, by all workers; 0 = any number.
	Limit int
	// Roots are the workspaces that this worker has; none: it serves every pool that is named.
	Roots []string
	Log   *slog.Logger
}

// Version is the commit that this program was built from, as far as it is known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return info.Main.Version
}

// Server takes wakes off the ready list and executes them.
type Server struct {
	o     Options
	redis redis.UniversalClient
	slots chan struct{}
	busy  atomic.Int64
	info  forkcore.Worker

	mu      sync.Mutex
	pools   []string        // served now
	asynq   []*asynq.Server // of the pools; none while it takes nothing
	stopped bool

	end  context.CancelFunc
	done chan struct{}
}

// NewServer returns a server on the caller's connection, which stays the caller's to close.
func NewServer(r redis.UniversalClient, o Options) *Server {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Server{
		o: o, redis: r, slots: make(chan struct{}, o.Concurrency), done: make(chan struct{}),
		info: forkcore.Worker{Host: host, PID: os.Getpid(), Slots: o.Concurrency, Version: Version(), StartedAt: time.Now().UTC()},
	}
}

// Start announces the worker, begins taking tokens and returns. The worker is announced every second until Stop.
func (s *Server) Start(ctx context.Context) error {
	if err := s.o.Ready.NamePools(ctx, s.o.Roots...); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	if err := s.serve(ctx); err != nil {
		return err
	}
	if _, err := s.announce(ctx); err != nil {
		return fmt.Errorf("announce the worker: %w", err)
	}
	ctx, s.end = context.WithCancel(context.WithoutCancel(ctx))
	go s.watch(ctx)
	return nil
}

// watch announces, follows wishes to drain, and serves pools that were named since.
func (s *Server) watch(ctx context.Context) {
	defer close(s.done)
	t := time.NewTicker(time.Second)
	defer t.Stop()
	drained := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		drain, err := s.announce(ctx)
		switch {
		case err != nil:
			continue // the engine's heartbeat tells of it
		case drain && !drained:
			s.o.Log.Info("drained: what runs here goes on elsewhere")
			s.Quiet()
			s.o.Executor.HandOver()
		case !drain && drained:
			s.o.Log.Info("takes runs again")
			s.resume()
		}
		drained = drain
		if !drain {
			if err := s.serve(ctx); err != nil && ctx.Err() == nil {
				s.o.Log.Warn("serve the pools", "err", err)
			}
		}
	}
}

func (s *Server) announce(ctx context.Context) (drain bool, err error) {
	s.mu.Lock()
	info := s.info
	info.Pools, info.Busy = slices.DeleteFunc(slices.Clone(s.pools), func(p string) bool { return p == "" }), int(s.busy.Load())
	s.mu.Unlock()
	return s.o.Ready.Announce(ctx, s.o.Executor.ID(), &info)
}

// serve starts to take tokens of pools that it does not serve yet. The queues of an asynq server are fixed, so pools that
// were named later get a server of their own; all share the slots.
func (s *Server) serve(ctx context.Context) error {
	want := map[string]string{"": ""}
	for _, r := range s.o.Roots {
		want[engine.PoolOf(r)] = r
	}
	if len(s.o.Roots) == 0 {
		named, err := s.o.Ready.Pools(ctx)
		if err != nil {
			return err
		}
		maps.Copy(want, named)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	queues := map[string]int{}
	for pool, root := range want {
		if slices.Contains(s.pools, pool) {
			continue
		}
		queues[QueueOf(pool)] = 1
		s.pools = append(s.pools, pool)
		if root != "" {
			s.info.Roots = append(s.info.Roots, root)
		}
	}
	if len(queues) == 0 {
		return nil
	}
	return s.startQueues(queues)
}

func (s *Server) startQueues(queues map[string]int) error {
	a := asynq.NewServerFromRedisClient(s.redis, asynq.Config{
		Concurrency:       s.o.Concurrency,
		Queues:            queues,
		TaskCheckInterval: checkInterval,
		// Drain has already ended the handlers when Shutdown comes; this is for stragglers.
		ShutdownTimeout: 2 * time.Second,
		Logger:          queueLog{s.o.Log},
		LogLevel:        asynq.WarnLevel,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc(TypeToken, s.handle)
	if err := a.Start(mux); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	s.asynq = append(s.asynq, a)
	return nil
}

// handle never gives asynq an error: what has to happen next is in the due set.
// Its context is asynq's, which ends on time-outs and cancels that are not ours, so the
// engine detaches from it.
func (s *Server) handle(ctx context.Context, _ *asynq.Task) error {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	s.mu.Lock()
	pools, stopped := s.pools, s.stopped
	s.mu.Unlock()
	if stopped {
		return nil // the entry is still there, and another token comes for it
	}
	// With a limit, the end of a run may give room to another of its session, for which there is no token.
	for s.next(ctx, pools) && s.o.Limit > 0 {
	}
	return nil
}

// next picks and executes a run; false when there was none.
func (s *Server) next(ctx context.Context, pools []string) bool {
	w, ok, err := s.o.Ready.Pick(ctx, s.o.Limit, pools)
	if err != nil {
		s.o.Log.Error("pick a run", "err", err)
	}
	if !ok {
		return false
	}
	s.busy.Add(1)
	defer s.busy.Add(-1)
	if err := s.o.Executor.Execute(ctx, w); err != nil {
		s.o.Log.Error("execute a wake", "run", w.RunID, "wake", w.N, "err", err)
	}
	if s.o.Limit > 0 {
		if err := s.o.Ready.Done(context.WithoutCancel(ctx), s.o.Limit, w); err != nil {
			s.o.Log.Warn("give a place back", "run", w.RunID, "err", err)
		}
	}
	return true
}

// Quiet stops taking new tokens; what is in progress goes on.
func (s *Server) Quiet() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	for _, a := range s.asynq {
		a.Stop()
	}
}

// resume takes tokens again after Quiet.
func (s *Server) resume() {
	s.shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped, s.pools, s.info.Roots = false, nil, nil
}

func (s *Server) shutdown() {
	s.mu.Lock()
	servers := s.asynq
	s.asynq = nil
	s.mu.Unlock()
	for _, a := range servers {
		a.Shutdown()
	}
}

// Stop waits for what is in progress (briefly: drain the engine first) and ends.
func (s *Server) Stop() {
	if s.end != nil {
		s.end()
		<-s.done
	}
	s.Quiet()
	s.shutdown()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if _, err := s.o.Ready.Announce(ctx, s.o.Executor.ID(), nil); err != nil && !errors.Is(err, forkcore.ErrStoreUnavailable) {
		s.o.Log.Warn("take the worker off the list", "err", err)
	}
}

// queueLog passes asynq's own messages on.
type queueLog struct{ log *slog.Logger }

func (l queueLog) Debug(args ...any) { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Info(args ...any)  { l.log.Info("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Warn(args ...any)  { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Error(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Fatal(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
