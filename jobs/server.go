package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"forkyard/jobs/engine"
)

// checkInterval is how often idle workers look for tasks: the default of a
// second would keep a fork waiting for half a second on average.
const checkInterval = 15 * time.Millisecond

// Executor runs what a wake names. *engine.Engine is one.
type Executor interface {
	Execute(ctx context.Context, w engine.Wake) error
}

// Server takes wakes off the ready-list and executes them.
type Server struct {
	asynq *asynq.Server
	exec  Executor
	log   *slog.Logger
}

// NewServer returns a server that runs up to concurrency wakes at a time on
// the caller's connection, which stays the caller's to close.
func NewServer(r redis.UniversalClient, exec Executor, concurrency int, log *slog.Logger) *Server {
	s := &Server{exec: exec, log: log}
	s.asynq = asynq.NewServerFromRedisClient(r, asynq.Config{
		Concurrency:       concurrency,
		Queues:            map[string]int{Queue: 1},
		TaskCheckInterval: checkInterval,
		// Drain has already ended the handlers when Shutdown comes; this is for stragglers.
		ShutdownTimeout: 2 * time.Second,
		Logger:          queueLog{log},
		LogLevel:        asynq.WarnLevel,
	})
	return s
}

// Start begins taking tasks and returns.
func (s *Server) Start() error {
	mux := asynq.NewServeMux()
	mux.HandleFunc(TypeRun, s.handle)
	if err := s.asynq.Start(mux); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	return nil
}

// handle never gives asynq an error: what has to happen next is in the due set.
// Its context is asynq's, which ends on time-outs and cancels that are not ours, so the
// engine detaches from it.
func (s *Server) handle(ctx context.Context, t *asynq.Task) error {
	w, err := parseRunTask(t)
	if err != nil {
		s.log.Error("drop a task", "type", t.Type(), "err", err)
		return nil
	}
	if err := s.exec.Execute(ctx, w); err != nil {
		s.log.Error("execute a wake", "run", w.RunID, "wake", w.N, "err", err)
	}
	return nil
}

// Quiet stops taking new tasks; those in progress go on.
func (s *Server) Quiet() { s.asynq.Stop() }

// Stop waits for what is in progress (briefly: drain the engine first) and ends.
func (s *Server) Stop() { s.asynq.Shutdown() }

// queueLog passes asynq's own messages on.
type queueLog struct{ log *slog.Logger }

func (l queueLog) Debug(args ...any) { l.log.Debug("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Info(args ...any)  { l.log.Info("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Warn(args ...any)  { l.log.Warn("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Error(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
func (l queueLog) Fatal(args ...any) { l.log.Error("asynq: " + fmt.Sprint(args...)) }
