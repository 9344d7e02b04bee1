package engine

import (
	"context"
	"errors"
	"time"

	"forkyard/forkcore"
)

// Errors of the store's guarded methods.
var (
	// ErrLeaseLost means that the caller no longer holds the run: stop, write nothing more.
	ErrLeaseLost = errors.New("the lease on this run is held by another executor")
	// ErrStale means that a wake has been overtaken: another executor has the
	// run, it ended, or a newer wake exists. It is a quiet end.
	ErrStale = errors.New("this wake has been overtaken")
	// ErrParked means that the run's gate is closed; the store has parked it. A quiet end.
	ErrParked = errors.New("the gate is closed, the run is parked")
	// ErrStopped means that somebody asked this run to stop: end it as cancelled.
	ErrStopped = errors.New("the run was asked to stop")
	// ErrInbox means that an idle or end was refused because a deliverable
	// item waits: replay and step again.
	ErrInbox = errors.New("something waits in the inbox")
)

// Holder is the right to advance a run's log: who, and which grant.
type Holder struct {
	SessionID string
	RunID     string
	Executor  string // process id of Heartbeat
	Epoch     int64  // fences out a stale holder together with Token
	Token     string // random, per grant
}

// Wake is a run that must be put on the ready-list.
type Wake struct {
	RunID string
	N     int64
	// What the ready-list goes by. A store may leave them out; then everything is alike.
	SessionID string
	Pool      string // PoolOf of the session's root
	Batch     bool   // nobody waits for it
}

// PoolOf names the workers that serve a root of workspaces; empty for no root, which all serve.
func PoolOf(root string) string {
	if root == "" {
		return ""
	}
	return hashHex(root)[:12]
}

// Store is what the engine asks of the database. Every method that changes
// something is one atomic step in the session's shard; those that take a
// Holder return ErrLeaseLost when it is no longer the holder, and change
// nothing then. All return forkcore.ErrStoreUnavailable when the database
// cannot be reached. Every change of a run, session, dispatch, log or ledger
// also appends the matching durable event to the session's stream in the same
// step (a session's without CacheSafe), and bumps Version and UpdatedAt of what changed.
type Store interface {
	Reader
	Accounts
	FlagStore

	// PutBlobs stores bytes by digest within a session, idempotently. Blobs go
	// in before the step that refers to them.
	PutBlobs(ctx context.Context, sessionID string, blobs ...[]byte) error
	// PutSnapshot stores a manifest by its ID, idempotently, and adds the
	// session to the set of the snapshot's sessions.
	PutSnapshot(ctx context.Context, s forkcore.Snapshot) error

	// CreateSession stores a new session. When the id exists already (ids come
	// from idempotency keys) and requestHash is equal, it returns the stored one and
	// created=false; with another hash forkcore.ErrIdempotencyMismatch.
	CreateSession(ctx context.Context, s forkcore.Session, requestHash string) (stored forkcore.Session, created bool, err error)

	// Accept takes a person's message. With no main turn in progress it creates
	// the run a.Run (state running, leased to a.Holder, marker turn_start,
	// session.ActiveRunID) and puts the text into the inbox; with one it only
	// puts the text into the inbox, publishes the session and answers that run's id, Started=false.
	// A repeated a.IdempotencyKey with equal a.RequestHash answers as the first time (Started=false),
	// with another hash forkcore.ErrIdempotencyMismatch. The inbox item is there in either case, once.
	Accept(ctx context.Context, a Accept) (Accepted, error)

	// TakeLease leases a queued run for the given wake. It checks, in this order: run exists (else
	// forkcore.ErrNotFound); not ended, queued and wake equal (else ErrStale); no stop wish (else it ends the
	// run as cancelled and returns ErrStale); the gate when the run has one, and no request of it was answered or billed yet or the
	// gate is cold (WakeWaiting): the leader passes; with the gate open a follower passes, unless the opening is older than
	// gateTTL or it is cold, then it becomes leader of generation+1 and the gate is closed again; with it closed the run
	// goes to parked and ErrParked is returned. On success: running, epoch+1, holder fields, StartedAt on the first,
	// registered under the executor for recovery. Taken otherwise than in the foreground it is in the background from now on, as after Release.
	TakeLease(ctx context.Context, w Wake, executor, token string, foreground bool) (Lease, error)

	// Append adds entries to the holder's agent log (the main log for a main turn, else the run's). expectLen
	// is the log's length that the caller has replayed; another length is ErrLeaseLost. TakeInbox removes these inbox items of the
	// session in the same step; when one is missing nothing is changed and ErrInbox comes back (replay and try again).
	// A tool_started marker increments ToolUses and sets LastTool. Returns the new length.
	Append(ctx context.Context, h Holder, expectLen int64, entries []forkcore.Entry, takeInbox []string) (int64, error)

	// BeginRequest inserts an open ledger row (row.N = Requests+1, assigned by the store, must equal row.N given by the caller or
	// ErrLeaseLost), and reserves reserve nano-dollars against the session's and the dispatch's budgets. Refusals
	// change nothing: ErrStopped, forkcore.ErrBudget (spent + reserved + reserve > budget, budget > 0; a dispatch's budget
	// is shared by the dispatches of its forks). For a leader with a
	// closed gate it sets the gate's limit to now + gateLimit in the due set. The session is bound to row.Scope.Account from now on, when that tells anything.
	BeginRequest(ctx context.Context, h Holder, row forkcore.RequestRow, reserve int64, gateLimit time.Duration) error
	// FirstEvent replaces the row (input usage is known), upserts entries in the session's cache entries (by Prefix; followers read them
	// right away) and, when the run leads a closed gate, opens it: parked siblings become queued, their wakes are returned for the ready-list.
	FirstEvent(ctx context.Context, h Holder, row forkcore.RequestRow, entries []forkcore.CacheEntry) ([]Wake, error)
	// Settle replaces the row for good, removes the reservation, adds usage, cost and s.Inherited* to the run, its dispatch
	// and its session, upserts s.Entries in the session's cache entries (and, for main turns, session.Warm when s.Warm is set), and appends s.Append to the holder's log as
	// Append does (expectLen < 0: no append). An unknown cost counts as Unpriced. row.First adds to the dispatch's FirstRequests.
	Settle(ctx context.Context, h Holder, s Settle) (int64, error)

	// CreateDispatch creates d and its children in one step, idempotently by d.ID (created=false when it exists).
	// With h set (a model's dispatch) it checks the holder and appends d.Launch entries to the parent's log; without, it checks that the session exists.
	// A stop wish on the parent is ErrStopped. A session that would then have started more than d.MaxDescendants forks is the
	// *forkcore.ConflictError of forkcore.Guard.Admit; else its Descendants grow by the children. Children: runs[0] queued (wake 1, in the due set), the others parked when d.Gate is closed, else queued. Each
	// child's log starts with logs[i].
	CreateDispatch(ctx context.Context, h *Holder, d CreateDispatch) (wakes []Wake, created bool, err error)

	// Release gives the lease back and lets the run go on elsewhere: state queued, wake+1, Background=true, marker background appended when it was false.
	// An agent whose Background was false is not Awaited any more then; a parent that waits for children goes on.
	// The run's own wake comes first.
	Release(ctx context.Context, h Holder) ([]Wake, error)
	// Wait gives the lease back: state waiting with the reason. It is in the due set at now + w.Delay, and the sweep then
	// queues it (wake+1, reason cleared, as Release does); with w.Account it is on that account's list until WakeWaiting, and of
	// a closed gate that the run leads the parked siblings wait with it and the limit is off; with w.Children until one of them has
	// ended or is not Awaited any more (ErrInbox when that is so already). A stop wish is ErrStopped, a holder's lost lease ErrLeaseLost.
	Wait(ctx context.Context, h Holder, w WaitFor) error
	// EndRun ends the holder's run, or, with h.Token empty, a run nobody holds (ErrLeaseLost when somebody does).
	// Main turn: marker turn_end, session idle; refused with ErrInbox while the inbox has an item and state is done; when something waits in the
	// inbox, and the run failed after at least one request or a text was accepted after its stop wish, candidate is started as for a fork's end. Fork: the dispatch's Remaining is
	// decremented, a notice is kept (of an Awaited agent it moves to the inbox at once, and its parent goes on); with the last child all notices move to the session's inbox (with Dispatch.Notify each or manual: with each
	// child, or never), and when the session is
	// idle, was not stopped as a tree and candidate is set, a new main turn `candidate` is created queued (wake 1, Background=true, marker turn_start) and its wake is returned.
	// A leader that ends with its gate closed promotes the next parked sibling (queued, wake returned) or, with none left, opens the gate.
	// A main turn that is done writes e.CacheSafe into the session's slot, with RunID, the next Version and the time of the store; of any
	// other run or state the store leaves it out, so that nobody but a main turn ever changes what side forks send.
	// Open ledger rows of the run are removed from reservations; usage and cost that their first event told (row.Usage, row.Cost) are added
	// to run, dispatch and session, an unknown cost counts as Unpriced. Releases the lease in every case.
	EndRun(ctx context.Context, h Holder, e EndRun) ([]Wake, error)

	// Stop sets the stop wish on the main turn and the agents that it waits for (scope "turn") or on every run of the session that has not ended (scope "tree"); queued, parked and waiting ones end as
	// cancelled at once, running ones get a signal. Returns the ids concerned. Wakes come from gates whose leader was ended.
	Stop(ctx context.Context, sessionID, scope string) (runIDs []string, wakes []Wake, err error)
	// Cancel does the same for one run; an ended run is *forkcore.ConflictError.
	Cancel(ctx context.Context, runID string) ([]Wake, error)
	// Resume queues a child again that ended as failed or over budget (wake+1, marker resumed, ResumedAt): it goes on
	// from its log, its dispatch has one child more to wait for, and a notice of its end that nobody read is taken back.
	// Any other run is a *forkcore.ConflictError; a stop by a person is for good.
	Resume(ctx context.Context, runID string) ([]Wake, error)
	// SetBudget sets the budget of a session or a dispatch; 0 = none. What is reserved or spent already stays.
	SetBudget(ctx context.Context, id string, nanoUSD int64) error
	// DeliverNotices moves the notices of a dispatch that its policy holds back to the session's inbox, and starts a turn
	// when the session is idle. None is a *forkcore.ConflictError.
	DeliverNotices(ctx context.Context, dispatchID string) ([]Wake, error)
	// SignalBackground asks the holder of a foreground run to hand it over; one that nobody holds is in the background from
	// now on. Agents that it waits for go with it, and it goes on. An agent is not Awaited any more, and its parent goes on.
	// A run that is not in the foreground is *forkcore.ConflictError.
	SignalBackground(ctx context.Context, runID string) ([]Wake, error)

	// Heartbeat marks the executor alive in every shard by the database's clock and fetches (and clears) the signals for the runs it holds.
	Heartbeat(ctx context.Context, executor string) ([]Signal, error)
	// Goodbye removes the executor's heartbeat; runs it still holds are requeued at the next sweep.
	Goodbye(ctx context.Context, executor string) error
	// Sweep repairs what fell through, in every shard: runs of executors silent for longer than dead become queued (wake+1); queued runs
	// whose due time has passed are returned again (due moved to now + redue); gates past their limit open; the children of a
	// dispatch past its deadline are asked to stop by forkcore.WishDeadline. All wakes are to be enqueued.
	Sweep(ctx context.Context, dead, redue time.Duration) ([]Wake, error)

	// PublishDelta sends a coalesced piece of text to whoever watches; it may be dropped.
	PublishDelta(ctx context.Context, d Delta) error
}

// Reader is the reading half of Store. Unknown ids are forkcore.ErrNotFound;
// strings that are no ids forkcore.ErrBadID.
type Reader interface {
	Session(ctx context.Context, id string) (forkcore.Session, error)
	Run(ctx context.Context, id string) (forkcore.Run, error)
	Dispatch(ctx context.Context, id string) (forkcore.Dispatch, error)
	// Log returns entries with Seq > after, oldest first, with Bytes (of messages and of tool_result markers) filled in and
	// verified against their digests (forkcore.ErrCorrupt). limit 0 = all.
	Log(ctx context.Context, sessionID, agentID string, after int64, limit int) ([]forkcore.Entry, error)
	// Blobs returns the bytes of each digest, verified, in order.
	Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error)
	// Snapshot returns a manifest of this session.
	Snapshot(ctx context.Context, sessionID string, id forkcore.Digest) (forkcore.Snapshot, error)
	// Inbox lists the session's deliverable items, oldest first.
	Inbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error)
	// Requests lists a run's ledger rows by n.
	Requests(ctx context.Context, runID string) ([]forkcore.RequestRow, error)
	// CacheEntries lists what the provider is believed to hold for the session, dead ones included.
	CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error)
	// RunsOf lists a session's runs, newest first; cursor "" starts, next "" ends.
	RunsOf(ctx context.Context, sessionID, cursor string, limit int) (runs []forkcore.Run, next string, err error)
	// Sessions lists sessions, newest first.
	Sessions(ctx context.Context, cursor string, limit int) (sessions []forkcore.Session, next string, err error)
	// SessionsOfSnapshot lists the ids of the sessions that hold the snapshot.
	SessionsOfSnapshot(ctx context.Context, id forkcore.Digest) ([]string, error)
}

// Accept is the input of Store.Accept.
type Accept struct {
	Run            forkcore.Run // the turn to create if the session is idle: ID, SessionID, AgentID, Kind, Title
	Holder         Holder       // who executes it then
	ItemID         string       // id of the inbox item
	Text           string
	IdempotencyKey string // empty = none
	RequestHash    string
}

// Accepted is its outcome.
type Accepted struct {
	RunID   string
	Started bool // a.Run was created and is leased to the caller
	Lease   Lease
}

// Lease is a granted lease.
type Lease struct {
	Holder Holder
	Run    forkcore.Run
	// OpenRows are ledger rows that a predecessor left open; the new holder settles them as aborted first.
	OpenRows []forkcore.RequestRow
}

// Settle is the input of Store.Settle.
type Settle struct {
	Row             forkcore.RequestRow
	InheritedTokens int64
	InheritedRead   int64
	Entries         []forkcore.CacheEntry
	Warm            *forkcore.CacheEntry
	ExpectLen       int64
	Append          []forkcore.Entry
}

// CreateDispatch is the input of Store.CreateDispatch.
type CreateDispatch struct {
	Dispatch forkcore.Dispatch
	Runs     []forkcore.Run
	Logs     [][]forkcore.Entry
	// ExpectLen and Launch go to the parent's log, with a holder only.
	ExpectLen int64
	Launch    []forkcore.Entry
	// MaxDescendants is how many forks the session may have started in all; 0 = any number.
	MaxDescendants int64
	// Deadline is from now; 0 = none.
	Deadline time.Duration
	// IdempotencyKey and RequestHash, for dispatches by a person or the API: a repeat with another hash is forkcore.ErrIdempotencyMismatch.
	RequestHash string
}

// ReportsTitle names a turn that nobody typed: it starts because forks ended.
const ReportsTitle = "Reports of the forks"

// InboxTitle names a turn that nobody started: it answers what waited in the inbox.
const InboxTitle = "Messages from before"

// EndRun is the input of Store.EndRun.
type EndRun struct {
	State  forkcore.State
	Reason *forkcore.Reason
	Report *forkcore.Report // forks
	// Candidate is the id of the main turn that this end may start; empty = none.
	Candidate string
	// CandidateTitle names it.
	CandidateTitle string
	// CacheSafe is what a main turn that is done leaves to side forks.
	CacheSafe *forkcore.CacheSafeParams
}

// Signal is a wish for a run that this executor holds.
type Signal struct {
	RunID string
	// Kind is "stop", "background", or, with an empty RunID, "swept": this executor was not on the list of the living (its first
	// beat, or it was silent for too long), so whatever it held in that shard is somebody else's now.
	Kind string
}

// Delta is a piece of streamed text, for watching only.
type Delta struct {
	SessionID string `json:"session_id"`
	RunID     string `json:"run_id"`
	// Seq is the log seq that the message will get, Offset the length in bytes of the block's text before this piece.
	Seq    int64  `json:"seq"`
	Block  int    `json:"block"`
	Kind   string `json:"kind"` // text, thinking, tool_input
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	Tool   string `json:"tool,omitempty"`
}
