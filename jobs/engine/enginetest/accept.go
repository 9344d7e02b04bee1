package enginetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// acceptance is a message with fresh ids.
func (f *fixture) acceptance(text string) engine.Accept {
	id := f.newRunID()
	return engine.Accept{
		Run:         forkcore.Run{ID: id, SessionID: f.session, AgentID: f.session, Kind: forkcore.KindMain, Title: text},
		Holder:      engine.Holder{SessionID: f.session, RunID: id, Executor: web, Token: f.name("token")},
		ItemID:      f.name("item"),
		Text:        text,
		RequestHash: "hash of " + text,
	}
}

func (f *fixture) accept(a engine.Accept) engine.Accepted {
	f.Helper()
	got, err := f.store.Accept(f.ctx, a)
	f.noError(err, "accept")
	return got
}

// turn starts a main turn in the foreground, with an empty inbox, and returns its lease. The log has two entries then.
func (f *fixture) turn() engine.Holder {
	f.Helper()
	a := f.acceptance("hello")
	got := f.accept(a)
	if !got.Started {
		f.Fatal("accept: the session is not idle")
	}
	h := got.Lease.Holder
	length := int64(len(f.log(f.session)))
	_, err := f.store.Append(f.ctx, h, length, []forkcore.Entry{f.message(h.RunID, `{"role":"user"}`)}, []string{a.ItemID})
	f.noError(err, "take the message")
	return h
}

func testCreateSession(f *fixture) {
	want := forkcore.Session{
		ID: forkcore.NewSessionID(f.entropy()), Title: "a <title> & more \u2028", Workspace: "/srv/app", Model: "claude-sonnet-5-5",
		Mode: forkcore.ModePlain, PermissionMode: forkcore.PermissionPlan, Thinking: []byte(`{"type":"adaptive"}`), Effort: "high",
		BudgetNanoUSD: 9_007_199_254_740_991, Interactive: true, AutoBackground: 90 * time.Second, Notify: forkcore.NotifyEach, Head: forkcore.DigestOf([]byte("head")),
		Betas: []string{"a-2026-01-01", "b-2026-01-01"},
	}
	stored, created, err := f.store.CreateSession(f.ctx, want, "h1")
	f.noError(err, "create")
	equal(f, created, true, "created")
	if stored.CreatedAt.IsZero() || !stored.CreatedAt.Equal(stored.UpdatedAt) || stored.Version == 0 {
		f.Errorf("created at %v, updated at %v, version %d", stored.CreatedAt, stored.UpdatedAt, stored.Version)
	}
	want.CreatedAt, want.UpdatedAt, want.Version = stored.CreatedAt, stored.UpdatedAt, stored.Version
	if diff := cmp.Diff(want, stored); diff != "" {
		f.Errorf("stored session (-want +got):\n%s", diff)
	}
	read, err := f.store.Session(f.ctx, want.ID)
	f.noError(err, "read")
	if diff := cmp.Diff(want, read); diff != "" {
		f.Errorf("read session (-want +got):\n%s", diff)
	}

	again, created, err := f.store.CreateSession(f.ctx, forkcore.Session{ID: want.ID, Title: "other"}, "h1")
	f.noError(err, "create again")
	equal(f, created, false, "created again")
	if diff := cmp.Diff(want, again); diff != "" {
		f.Errorf("repeated creation (-want +got):\n%s", diff)
	}
	_, _, err = f.store.CreateSession(f.ctx, want, "h2")
	f.wantError(err, forkcore.ErrIdempotencyMismatch, "create with another hash")
	_, _, err = f.store.CreateSession(f.ctx, forkcore.Session{ID: "nonsense"}, "h1")
	f.wantError(err, forkcore.ErrBadID, "create with a bad id")
}

func testAccept(f *fixture) {
	a := f.acceptance("first")
	got := f.accept(a)
	equal(f, got.RunID, a.Run.ID, "run id")
	equal(f, got.Started, true, "started")
	want := engine.Holder{SessionID: f.session, RunID: a.Run.ID, Executor: web, Epoch: 1, Token: a.Holder.Token}
	equal(f, got.Lease.Holder, want, "holder")
	r := f.run(a.Run.ID)
	if diff := cmp.Diff(r, got.Lease.Run); diff != "" {
		f.Errorf("run of the lease (-read +leased):\n%s", diff)
	}
	equal(f, r.State, forkcore.Running, "state")
	equal(f, r.Kind, forkcore.KindMain, "kind")
	equal(f, r.AgentID, f.session, "agent")
	equal(f, r.Title, "first", "title")
	equal(f, r.Background, false, "background")
	if r.StartedAt.IsZero() || r.CreatedAt.IsZero() {
		f.Errorf("started at %v, created at %v", r.StartedAt, r.CreatedAt)
	}
	equal(f, f.kinds(f.session), "turn_start", "log")
	s := f.sessionNow()
	equal(f, s.ActiveRunID, a.Run.ID, "active run")
	equal(f, s.ActiveRuns, 1, "active runs")
	equal(f, s.State(), forkcore.Running, "session state")

	second := f.acceptance("second")
	before := f.sessionNow().Version
	got = f.accept(second)
	if after := f.sessionNow().Version; after <= before {
		f.Errorf("session version %d after %d: nobody sees the message that waits", after, before)
	}
	equal(f, got.RunID, a.Run.ID, "run id while busy")
	equal(f, got.Started, false, "started while busy")
	_, err := f.store.Run(f.ctx, second.Run.ID)
	f.wantError(err, forkcore.ErrNotFound, "run of a message that only waits")
	items := f.inbox()
	if len(items) != 2 {
		f.Fatalf("inbox has %d items, want 2", len(items))
	}
	for i, want := range []forkcore.InboxItem{{ID: a.ItemID, Kind: "message", Text: "first"}, {ID: second.ItemID, Kind: "message", Text: "second"}} {
		if items[i].At.IsZero() {
			f.Errorf("item %d has no time", i)
		}
		want.At = items[i].At
		equal(f, items[i], want, "inbox item")
	}

	unknown := f.acceptance("nobody")
	unknown.Run.SessionID = forkcore.NewSessionID(f.entropy())
	_, err = f.store.Accept(f.ctx, unknown)
	f.wantError(err, forkcore.ErrNotFound, "accept for an unknown session")
	unknown.Run.SessionID = "ses_99"
	_, err = f.store.Accept(f.ctx, unknown)
	f.wantError(err, forkcore.ErrBadID, "accept for a bad id")
}

func testAcceptRepeated(f *fixture) {
	a := f.acceptance("once")
	a.IdempotencyKey = "key"
	first := f.accept(a)

	again := f.acceptance("once")
	again.IdempotencyKey = "key"
	got := f.accept(again)
	equal(f, got.RunID, a.Run.ID, "run id of the repeat")
	equal(f, got.Started, false, "started by the repeat")
	equal(f, len(f.inbox()), 1, "inbox items")

	// The client retried the very same call because the answer was lost: the caller holds the lease.
	got = f.accept(a)
	equal(f, got.Started, true, "started by the retried call")
	equal(f, got.Lease.Holder, first.Lease.Holder, "holder of the retried call")

	other := f.acceptance("something else")
	other.IdempotencyKey = "key"
	_, err := f.store.Accept(f.ctx, other)
	f.wantError(err, forkcore.ErrIdempotencyMismatch, "accept with another hash")

	_, err = f.store.EndRun(f.ctx, first.Lease.Holder, engine.EndRun{State: forkcore.Failed})
	f.noError(err, "end")
	got = f.accept(again)
	equal(f, got.RunID, a.Run.ID, "run id of a repeat after the end")
	equal(f, got.Started, false, "started by a repeat after the end")
	equal(f, f.sessionNow().ActiveRunID, "", "active run after the repeat")
}

// message is an entry whose bytes are stored.
func (f *fixture) message(run, text string) forkcore.Entry {
	f.Helper()
	f.noError(f.store.PutBlobs(f.ctx, f.session, []byte(text)), "put blob")
	return forkcore.Entry{Kind: forkcore.EntryMessage, RunID: run, Blob: forkcore.DigestOf([]byte(text))}
}
