// Package engine runs agents: it takes leases, replays logs, performs what
// forkcore.Step decides and appends what came of it. It knows neither the
// queue nor the database; it is given both as small interfaces.
//
// Delivery: every state change is one guarded step of the Store. An executor
// that lost its lease can write nothing; whoever takes the run next replays
// the log and goes on. The ready-list is only a hint; Sweep repairs it.
package engine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"forkyard/forkcore"
)

// Tools runs tools in a workspace. A failing tool is a result, not an error.
type Tools interface {
	Specs() []forkcore.ToolSpec
	ReadOnly(name string) bool
	Run(ctx context.Context, workspace string, mode forkcore.PermissionMode, call forkcore.ToolCall) forkcore.ToolResult
}

// Enqueuer puts wakes on the ready-list. Enqueueing a wake twice is no error.
type Enqueuer interface {
	Enqueue(ctx context.Context, wakes ...Wake) error
}

// Options are the parts and settings of an Engine. Store, Model, Tools,
// Enqueuer and Catalogue are required.
type Options struct {
	Store     Store
	Model     forkcore.Model
	Tools     Tools
	Enqueuer  Enqueuer
	Catalogue *forkcore.Catalogue
	Logger    *slog.Logger

	// Workspaces are absolute roots that sessions may work in or below.
	Workspaces []string
	// Remotes are git remotes listed beside the roots; naming one is answered with the reason why it cannot be used yet.
	Remotes      []string
	DefaultModel string
	// Simulated refuses models that the catalogue does not know.
	Simulated bool
	// AutoBackground moves foreground runs of sessions that say nothing of it after AutoBackgroundAfter, default 120 s; the
	// flag of forkcore.FlagAutoBackground does the same.
	AutoBackground      bool
	AutoBackgroundAfter time.Duration
	ForkOff             bool // sessions without a mode are plain instead of fork
	Coordinator         bool // sessions without a mode are coordinators
	Gate                forkcore.GateMode
	// Guard bounds what agents may start; a limit of 0 takes its default.
	Guard forkcore.Guard
	// Betas is the anthropic-beta set of sessions to come, in any order.
	Betas []string
	// Replacements bound the tool results of a conversation; zero = forkcore.DefaultReplacementLimits.
	Replacements forkcore.ReplacementLimits

	// Diagnostics asks the provider in each request to compare it with the one whose entry it should read. Compatible
	// servers may refuse the field.
	Diagnostics bool

	// Dashboard says that this process decides which key sessions are moved to when it was replaced before the start.
	Dashboard bool

	// CacheSince is when the provider's cache was empty last, for a simulator that starts with this process; zero = unknown.
	CacheSince time.Time

	GateLimit  time.Duration // how long followers wait for the leader's response, from its send; default 20 s
	ParentWait time.Duration // how long the parent's next request waits at the gate, from the dispatch; default 5 s
	Beat       time.Duration // heartbeat and sweep period; default 1 s
	Dead       time.Duration // silence after which an executor is dead; default 4 s
}

// Engine executes runs in this process.
type Engine struct {
	o        Options
	log      *slog.Logger
	executor string

	mu       sync.Mutex
	held     map[*held]struct{}
	loose    []func(context.Context) error // leases to give back once the database can be reached
	draining bool
	wg       sync.WaitGroup

	replacing chan struct{} // holds one ReplaceKey at a time

	snapshots snapshotCache
	views     viewCache
	// recomputed counts prompts that were lost and rendered anew.
	recomputed atomic.Int64

	beatLog, sweepLog outage // each of its own loop
}

// held is a run that this process advances, or for which it is about to ask for
// the lease: a wake that was overtaken may stand beside the one that holds the run.
type held struct {
	runID string
	// parent is the run that dispatched it, once that is known.
	parent string
	// foreground runs may be moved to a worker; for others that wish came too late.
	foreground bool
	cancel     context.CancelCauseFunc
	// handOver is closed when the run should go on elsewhere at its next step boundary.
	handOver     chan struct{}
	handOverOnce sync.Once
}

func (h *held) askHandOver() { h.handOverOnce.Do(func() { close(h.handOver) }) }

func (h *held) wantsHandOver() bool {
	select {
	case <-h.handOver:
		return true
	default:
		return false
	}
}

// Causes of a cancelled run context.
var (
	errStopAsked = errors.New("asked to stop")
	errShutdown  = errors.New("this process is shutting down")
)

// New returns an engine; call Start before it executes anything.
func New(o Options) (*Engine, error) {
	switch {
	case o.Store == nil, o.Model == nil, o.Tools == nil, o.Enqueuer == nil, o.Catalogue == nil:
		return nil, errors.New("engine: Store, Model, Tools, Enqueuer and Catalogue are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.GateLimit, 20*time.Second)
	setDefault(&o.ParentWait, 5*time.Second)
	setDefault(&o.AutoBackgroundAfter, 120*time.Second)
	setDefault(&o.Beat, time.Second)
	setDefault(&o.Dead, 4*time.Second)
	if o.Guard.MaxDepth == 0 {
		o.Guard.MaxDepth = forkcore.DefaultForkDepth
	}
	if o.Guard.MaxDescendants == 0 {
		o.Guard.MaxDescendants = forkcore.DefaultMaxDescendants
	}
	if o.Gate == "" {
		o.Gate = forkcore.GateAuto
	}
	if o.Replacements.Message == 0 {
		o.Replacements = forkcore.DefaultReplacementLimits()
	}
	if o.DefaultModel == "" {
		o.DefaultModel = "claude-sonnet-5-5"
	}
	e := &Engine{o: o, log: o.Logger, executor: "exe_" + randomToken(), held: map[*held]struct{}{}, replacing: make(chan struct{}, 1)}
	e.snapshots.load = e.loadSnapshot
	e.beatLog.what, e.sweepLog.what = "the heartbeat", "the sweep"
	return e, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// Start marks this executor alive and keeps it so, and sweeps, until Stop.
// The first heartbeat must succeed: an executor that nobody can see alive would
// have its runs taken away.
func (e *Engine) Start(ctx context.Context) (stop func(), err error) {
	if _, err := e.o.Store.Heartbeat(ctx, e.executor); err != nil {
		return nil, fmt.Errorf("first heartbeat: %w", err)
	}
	if err := e.announce(ctx); err != nil {
		return nil, fmt.Errorf("tell which key is in use: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	// One loop: after a pause of this process (a laptop's lid) its own beat must
	// come before its own sweep, or it would take its runs away from itself.
	wg.Go(func() {
		e.every(ctx, func(ctx context.Context) {
			if e.beat(ctx) {
				e.sweep(ctx)
			}
		})
	})
	return func() {
		cancel()
		wg.Wait()
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer done()
		if err := e.o.Store.Goodbye(ctx, e.executor); err != nil {
			e.log.Warn("take the executor off the list", "err", err)
		}
	}, nil
}

func (e *Engine) every(ctx context.Context, do func(context.Context)) {
	t := time.NewTicker(e.o.Beat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do(ctx)
		}
	}
}

// beat keeps this executor alive and reports whether every shard knows.
func (e *Engine) beat(ctx context.Context) bool {
	signals, err := e.o.Store.Heartbeat(ctx, e.executor)
	e.beatLog.tell(e.log, err)
	for _, s := range signals { // of the shards that answered
		e.signal(s)
	}
	if err == nil {
		e.giveBack(ctx)
	}
	return err == nil
}

// outage logs the first failure of something that is done every second, and the end of the trouble.
type outage struct {
	what  string
	since time.Time
}

func (o *outage) tell(log *slog.Logger, err error) {
	switch {
	case err != nil && o.since.IsZero():
		o.since = time.Now()
		log.Warn(o.what+" failed, and is tried again every second", "err", err)
	case err == nil && !o.since.IsZero():
		log.Info(o.what+" works again", "after", time.Since(o.since).Round(time.Millisecond))
		o.since = time.Time{}
	}
}

// later notes a lease that could not be given back because the database was
// away. While this executor beats nobody takes such a run from it, so it has to do that itself.
func (e *Engine) later(release func(context.Context) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loose = append(e.loose, release)
}

func (e *Engine) giveBack(ctx context.Context) {
	e.mu.Lock()
	loose := e.loose
	e.loose = nil
	e.mu.Unlock()
	for _, release := range loose {
		if err := release(ctx); errors.Is(err, forkcore.ErrStoreUnavailable) {
			e.later(release)
		}
	}
}

// signal passes a wish on to a run held here.
func (e *Engine) signal(s Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := range e.held {
		switch {
		case s.Kind == "swept":
			// Taken for dead: others have these runs, so what still acts here must end.
			h.cancel(ErrLeaseLost)
		case s.Kind == "background" && h.foreground && h.parent != "" && h.parent == s.RunID:
			h.askHandOver() // it goes with the turn that waits for it
		case h.runID != s.RunID:
		case s.Kind == "stop":
			h.cancel(errStopAsked)
		case s.Kind == "background" && h.foreground:
			h.askHandOver()
		}
	}
}

// redue is after how long a queued run is offered to the ready-list again: it knows what it has, so this only repairs.
const redue = 5 * time.Second

func (e *Engine) sweep(ctx context.Context) {
	wakes, err := e.o.Store.Sweep(ctx, e.o.Dead, redue)
	e.sweepLog.tell(e.log, err)
	e.enqueue(ctx, wakes...) // shards that answered count although another did not
}

// enqueue gives hints to the ready-list. A hint that is lost is repaired by
// the sweep, so failing is only logged.
func (e *Engine) enqueue(ctx context.Context, wakes ...Wake) {
	if len(wakes) == 0 {
		return
	}
	if err := e.o.Enqueuer.Enqueue(ctx, wakes...); err != nil {
		e.log.Warn("enqueue", "wakes", len(wakes), "first", wakes[0].RunID, "err", err)
	}
}

// Drain hands every run held here over to other executors: at its next step
// boundary, or, when grace has passed, at once with its request or tool cut
// off. It returns when nothing is held any more. New work is refused.
func (e *Engine) Drain(grace time.Duration) {
	e.mu.Lock()
	e.draining = true
	for h := range e.held {
		h.askHandOver()
	}
	e.mu.Unlock()
	cut := time.AfterFunc(grace, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for h := range e.held {
			h.cancel(errShutdown)
		}
	})
	e.wg.Wait()
	cut.Stop()
}

// hold registers a run; ok is false when this process takes no more work.
func (e *Engine) hold(ctx context.Context, runID string, foreground bool) (context.Context, *held, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return nil, nil, false
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	h := &held{runID: runID, foreground: foreground, cancel: cancel, handOver: make(chan struct{})}
	e.held[h] = struct{}{}
	e.wg.Add(1)
	return ctx, h, true
}

func (e *Engine) letGo(h *held) {
	h.cancel(nil)
	e.mu.Lock()
	delete(e.held, h)
	e.mu.Unlock()
	e.wg.Done()
}

// ID names this executor.
func (e *Engine) ID() string { return e.executor }

// HandOver asks for everything that is held here to go on elsewhere, at its next step boundary. New work is still taken.
func (e *Engine) HandOver() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for h := range e.held {
		h.askHandOver()
	}
}

// HeldRuns counts the runs that this process advances now.
func (e *Engine) HeldRuns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.held)
}

func randomToken() string { return rand.Text() }

func entropy() (en forkcore.Entropy) {
	rand.Read(en[:]) // never fails (crypto/rand)
	return en
}

// entropyOf makes the id that an idempotency key names within a scope; without a key it is a fresh one.
func entropyOf(scope, key string) forkcore.Entropy {
	if key == "" {
		return entropy()
	}
	var en forkcore.Entropy
	d := forkcore.DigestOf([]byte(scope + "\x00" + key))
	copy(en[:], d[:])
	return en
}

func hashHex(parts ...string) string {
	var b []byte
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	d := forkcore.DigestOf(b)
	return hex.EncodeToString(d[:])
}
