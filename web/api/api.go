// Package api is the JSON API under /api/v1: the calls that openapi.yaml describes. It knows no storage and no
// queue; what it needs is declared here, as small interfaces that cmd/web fills.
package api

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"forkyard/forkcore"
	"forkyard/web/sse"
)

// SessionCreator makes sessions.
type SessionCreator interface {
	// CreateSession answers created=false when the idempotency key was used for an equal request before.
	CreateSession(ctx context.Context, spec forkcore.SessionSpec, idempotencyKey string) (s forkcore.Session, created bool, err error)
}

// MessageSender gives a text to a session's main agent.
type MessageSender interface {
	// SendMessage returns the id of the main turn that gets the text: a new one, or the one in progress.
	SendMessage(ctx context.Context, sessionID, text, idempotencyKey string) (runID string, err error)
}

// Forker fans out.
type Forker interface {
	QuoteForks(ctx context.Context, sessionID string, spec forkcore.ForkSpec) (forkcore.Quote, error)
	Fork(ctx context.Context, sessionID string, spec forkcore.ForkSpec, idempotencyKey string) (forkcore.Dispatch, []forkcore.Run, error)
}

// Stopper ends what runs. Cancel of an ended run is a *forkcore.ConflictError.
type Stopper interface {
	// Stop takes scope "turn" or "tree" and returns the runs that it concerns.
	Stop(ctx context.Context, sessionID, scope string) (runIDs []string, err error)
	Cancel(ctx context.Context, runID string) error
}

// Backgrounder hands a foreground run to a worker; a run that is not in the foreground is a *forkcore.ConflictError.
type Backgrounder interface {
	Background(ctx context.Context, runID string) error
}

// Resumer lets go on or starts again what ended otherwise than done. What cannot is a *forkcore.ConflictError.
type Resumer interface {
	// Resume answers the id of the run that goes on: of a main turn it is a new one.
	Resume(ctx context.Context, runID string) (string, error)
	// ResumeDispatch resumes every run of a dispatch that failed or is over budget.
	ResumeDispatch(ctx context.Context, dispatchID string) (runIDs []string, err error)
	Retry(ctx context.Context, dispatchID string, spec forkcore.RetrySpec, idempotencyKey string) (forkcore.Dispatch, []forkcore.Run, error)
	// SetBudget takes the id of a session or a dispatch; nil = no budget.
	SetBudget(ctx context.Context, id string, usd *float64) error
	DeliverNotices(ctx context.Context, dispatchID string) error
}

// Flagger reads and sets the flags. An unknown one is forkcore.ErrNotFound.
type Flagger interface {
	Flags(ctx context.Context) ([]forkcore.Flag, error)
	SetFlag(ctx context.Context, name string, value bool) (forkcore.Flag, error)
}

// Runner is everything that changes something.
type Runner interface {
	SessionCreator
	MessageSender
	Forker
	Stopper
	Backgrounder
	Resumer
	Flagger
}

// SessionReader reads sessions and their runs. Unknown ids are forkcore.ErrNotFound, strings that are no ids forkcore.ErrBadID;
// so it is in all readers here.
type SessionReader interface {
	sse.SessionLister
	Session(ctx context.Context, id string) (forkcore.Session, error)
	// RunsOf lists a session's runs, newest first; cursor "" starts, next "" ends.
	RunsOf(ctx context.Context, sessionID, cursor string, limit int) (runs []forkcore.Run, next string, err error)
}

// RunReader reads runs, their requests and dispatches.
type RunReader interface {
	Run(ctx context.Context, id string) (forkcore.Run, error)
	Requests(ctx context.Context, runID string) ([]forkcore.RequestRow, error)
	Dispatch(ctx context.Context, id string) (forkcore.Dispatch, error)
}

// SnapshotReader reads manifests.
type SnapshotReader interface {
	Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error)
	SessionsOfSnapshot(ctx context.Context, id forkcore.Digest) ([]string, error)
}

// Reader is everything that only reads.
type Reader interface {
	SessionReader
	RunReader
	SnapshotReader
}

// ByteReader rebuilds bytes from logs and blobs and checks them; damage is forkcore.ErrCorrupt.
type ByteReader interface {
	// Transcript returns the lines of the run's log with Seq > after, oldest first.
	Transcript(ctx context.Context, runID string, after int64) ([]forkcore.TranscriptLine, error)
	// RequestBody returns the bytes of the run's n-th request as they were sent.
	RequestBody(ctx context.Context, runID string, n int64) ([]byte, error)
	SnapshotBytes(ctx context.Context, sessionID string, id forkcore.Digest) ([]byte, error)
	// Assemble fills in the bytes of an entry that came without them, in an event.
	Assemble(ctx context.Context, sessionID string, e forkcore.Entry, agentID string) (forkcore.TranscriptLine, error)
}

// EventStore keeps events and follows them.
type EventStore interface {
	sse.Store
	sse.Live
}

// Prices knows what models cost.
type Prices interface {
	// ModelAt is the row with the prices of a request that starts then; priced is false when they are not known. What is
	// known beside prices is there all the same.
	ModelAt(id string, start time.Time) (m forkcore.ModelInfo, priced bool)
}

// Options are what an API is made of.
type Options struct {
	Runner Runner
	Reader Reader
	Bytes  ByteReader
	Events EventStore
	Prices Prices // nil: bills get no verdict
	// Provider is asked about the endpoint in use, which Endpoint describes; nil: there is none.
	Provider Provider
	Endpoint Endpoint
	// Storage is where sessions are kept; nil: nothing is known of it.
	Storage Storage
	// Queue is what waits for workers.
	Queue Queue
	// Simulated is true while answers come from the simulated model.
	Simulated bool
	Log       *slog.Logger     // nil: discarded
	Now       func() time.Time // nil: time.Now
}

// API holds the handlers. It is safe for concurrent use.
type API struct {
	runner    Runner
	reader    Reader
	bytes     ByteReader
	prices    Prices
	provider  Provider
	endpoint  Endpoint
	storage   Storage
	queue     Queue
	simulated bool
	log       *slog.Logger
	now       func() time.Time
	hub       *sse.Hub
	streams   sse.Streamer

	messages, forks atomic.Int64
}

// New makes an API and starts the goroutine that follows the live feed; Close ends it.
func New(o Options) *API {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &API{
		runner: o.Runner, reader: o.Reader, bytes: o.Bytes, prices: o.Prices, provider: o.Provider, endpoint: o.Endpoint,
		storage: o.Storage, queue: o.Queue, simulated: o.Simulated, log: o.Log, now: o.Now,
	}
	a.hub = sse.StartHub(o.Events, a.encodeEvent, o.Log)
	a.streams = sse.Streamer{Hub: a.hub, Store: o.Events, Sessions: o.Reader}
	return a
}

// Close ends every stream. Call it before http.Server.Shutdown, which waits for them.
func (a *API) Close() { a.hub.Close() }

// Hub gives the events to others than API clients.
func (a *API) Hub() *sse.Hub { return a.hub }

// Counts is what this process has done since it started.
type Counts struct {
	// Messages and Forks were accepted through the API, repeats of an Idempotency-Key included.
	Messages, Forks int64
	// StreamClients are open streams, StreamsCut clients that were cut because they lagged.
	StreamClients, StreamsCut int64
}

// Counts returns the numbers for /metrics.
func (a *API) Counts() Counts {
	return Counts{
		Messages: a.messages.Load(), Forks: a.forks.Load(),
		StreamClients: a.hub.Clients(), StreamsCut: a.hub.Cut(),
	}
}
