// Package enginetest holds the conformance suite that every engine.Store runs.
package enginetest

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// RunStore checks a store against the contract of engine.Store. open returns a
// store over an empty database and is called once for each subtest.
func RunStore(t *testing.T, open func(t *testing.T) engine.Store) {
	tests := []struct {
		name string
		run  func(*fixture)
	}{
		{"create session", testCreateSession},
		{"accept", testAccept},
		{"accept repeated", testAcceptRepeated},
		{"take lease", testTakeLease},
		{"take lease of a stopped run", testTakeLeaseStopped},
		{"take lease with open rows", testTakeLeaseOpenRows},
		{"take lease concurrently", testTakeLeaseConcurrently},
		{"fencing", testFencing},
		{"release", testRelease},
		{"wait", testWait},
		{"wait of a main turn", testWaitMain},
		{"wait for a key", testWaitKey},
		{"a replaced key and the gate", testColdGate},
		{"admit", testAdmit},
		{"admit with a ramp", testAdmitPaced},
		{"state of a key", testKeyState},
		{"bind a session", testBind},
		{"append", testAppend},
		{"log pages", testLogPages},
		{"inbox", testInbox},
		{"blobs", testBlobs},
		{"begin request", testBeginRequest},
		{"dispatch budget", testDispatchBudget},
		{"settle", testSettle},
		{"rows that nobody settles", testCloseRows},
		{"create dispatch", testCreateDispatch},
		{"model dispatch", testModelDispatch},
		{"dispatch of a fork", testForkDispatch},
		{"descendants", testDescendants},
		{"descendants concurrently", testDescendantsConcurrently},
		{"gate opens at the first event", testGateOpens},
		{"gate promotes", testGatePromotes},
		{"gate limit", testGateLimit},
		{"end of a main turn", testEndTurn},
		{"a text after a stop is followed up", testFollowStop},
		{"a text after a stop of a run nobody holds", testFollowUnheld},
		{"end of a run nobody holds", testEndUnheld},
		{"slot for side forks", testCacheSafe},
		{"notices wake an idle parent", testNoticesIdle},
		{"notices for a busy parent", testNoticesBusy},
		{"last children end concurrently", testLastChildrenConcurrently},
		{"a turn waits for agents", testAwait},
		{"awaited agents in the background", testAwaitedToBackground},
		{"awaited agents that are lost", testAwaitedLost},
		{"stop a turn that waits for agents", testStopAwaited},
		{"flags", testFlags},
		{"resume", testResume},
		{"resume of a stopped run", testResumeStopped},
		{"notices of each child", testNotifyEach},
		{"notices by hand", testNotifyManual},
		{"notices after a stop", testLateNotices},
		{"budgets are raised and shared", testSetBudget},
		{"deadline", testDeadline},
		{"stop turn", testStopTurn},
		{"stop tree", testStopTree},
		{"cancel", testCancel},
		{"signals", testSignals},
		{"swept", testSwept},
		{"a wish between a step and its repeat", testWishBetween},
		{"sweep a dead executor", testSweepDead},
		{"sweep a lost foreground turn", testSweepForeground},
		{"sweep queued runs again", testSweepRedue},
		{"goodbye", testGoodbye},
		{"list runs", testRunsOf},
		{"list sessions", testSessions},
		{"snapshots", testSnapshots},
		{"unknown ids", testUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(newFixture(t, open(t))) })
	}
}

const (
	web    = "web-1"
	worker = "worker-1"
)

// fixture is one test's store and session.
type fixture struct {
	*testing.T
	ctx     context.Context
	store   engine.Store
	session string
	count   uint64
}

func newFixture(t *testing.T, s engine.Store) *fixture {
	f := &fixture{T: t, ctx: t.Context(), store: s}
	f.session = f.createSession(forkcore.Session{})
	return f
}

// entropy is different in every call and the same in every run of a test.
func (f *fixture) entropy() (e forkcore.Entropy) {
	f.count++
	binary.BigEndian.PutUint64(e[2:], f.count)
	return e
}

func (f *fixture) name(prefix string) string {
	e := f.entropy()
	return prefix + forkcore.DigestOf(e[:]).String()[:8]
}

func (f *fixture) createSession(s forkcore.Session) (id string) {
	f.Helper()
	s.ID = forkcore.NewSessionID(f.entropy())
	s.Workspace, s.Model, s.Mode = "/srv/app", "claude-sonnet-5-5", forkcore.ModeFork
	_, created, err := f.store.CreateSession(f.ctx, s, "hash")
	f.noError(err, "create session")
	if !created {
		f.Fatal("create session: created = false for a new id")
	}
	return s.ID
}

func (f *fixture) newRunID() string {
	id, err := forkcore.NewRunID(f.session, f.entropy())
	f.noError(err, "new run id")
	return id
}

func (f *fixture) noError(err error, doing string) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", doing, err)
	}
}

func (f *fixture) wantError(err, want error, doing string) {
	f.Helper()
	if !errors.Is(err, want) {
		f.Fatalf("%s: error = %v, want %v", doing, err, want)
	}
}

func (f *fixture) wantConflict(err error, doing string) {
	f.Helper()
	var conflict *forkcore.ConflictError
	if !errors.As(err, &conflict) || conflict.Message == "" || conflict.NextStep == "" {
		f.Fatalf("%s: error = %v, want a *forkcore.ConflictError with message and next step", doing, err)
	}
}

func equal[T comparable](f *fixture, got, want T, what string) {
	f.Helper()
	if got != want {
		f.Errorf("%s = %v, want %v", what, got, want)
	}
}

// eventually calls done until it is true; the database's clock must move for it.
func (f *fixture) eventually(what string, done func() bool) {
	f.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !done() {
		if time.Now().After(deadline) {
			f.Fatalf("%s did not happen in time", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (f *fixture) run(id string) forkcore.Run {
	f.Helper()
	r, err := f.store.Run(f.ctx, id)
	f.noError(err, "read run")
	return r
}

func (f *fixture) sessionNow() forkcore.Session {
	f.Helper()
	s, err := f.store.Session(f.ctx, f.session)
	f.noError(err, "read session")
	return s
}

func (f *fixture) dispatch(id string) forkcore.Dispatch {
	f.Helper()
	d, err := f.store.Dispatch(f.ctx, id)
	f.noError(err, "read dispatch")
	return d
}

func (f *fixture) inbox() []forkcore.InboxItem {
	f.Helper()
	items, err := f.store.Inbox(f.ctx, f.session)
	f.noError(err, "read inbox")
	return items
}

// log reads a whole log.
func (f *fixture) log(agent string) []forkcore.Entry {
	f.Helper()
	entries, err := f.store.Log(f.ctx, f.session, agent, 0, 0)
	f.noError(err, "read log")
	return entries
}

// kinds names the entries of a log: "message" or the type of a marker.
func (f *fixture) kinds(agent string) string {
	f.Helper()
	s := ""
	for _, e := range f.log(agent) {
		if s != "" {
			s += " "
		}
		if e.Marker != nil {
			s += string(e.Marker.Type)
		} else {
			s += string(e.Kind)
		}
	}
	return s
}
