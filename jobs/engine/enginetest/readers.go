package enginetest

import (
	"errors"

	"forkyard/forkcore"
)

func testRunsOf(f *fixture) {
	runs, next, err := f.store.RunsOf(f.ctx, f.session, "", 10)
	f.noError(err, "list of none")
	equal(f, len(runs), 0, "runs")
	equal(f, next, "", "next")

	var want []string
	for range 3 {
		d := f.forks(2, forkcore.GateNone, "")
		f.create(d)
		want = append([]string{d.Runs[1].ID, d.Runs[0].ID}, want...)
	}
	want = append([]string{f.turn().RunID}, want...)
	for _, limit := range []int{0, 1, 2, 3, 7, 50} {
		var got []string
		cursor := ""
		for page := 0; ; page++ {
			runs, next, err := f.store.RunsOf(f.ctx, f.session, cursor, limit)
			f.noError(err, "list")
			if limit > 0 && len(runs) > limit {
				f.Fatalf("%d runs, limit %d", len(runs), limit)
			}
			for _, r := range runs {
				got = append(got, r.ID)
			}
			if cursor = next; cursor == "" {
				break
			}
			if page > len(want) {
				f.Fatal("the list does not end")
			}
		}
		same(f, got, want, "runs, newest first")
	}
	_, _, err = f.store.RunsOf(f.ctx, f.session, "(0", 1)
	f.wantInvalid(err, "another cursor")
	_, _, err = f.store.RunsOf(f.ctx, forkcore.NewSessionID(f.entropy()), "", 1)
	f.wantError(err, forkcore.ErrNotFound, "runs of an unknown session")
}

func (f *fixture) wantInvalid(err error, doing string) {
	f.Helper()
	var invalid *forkcore.InvalidError
	if !errors.As(err, &invalid) {
		f.Errorf("%s: error = %v, want *forkcore.InvalidError", doing, err)
	}
}

func testSessions(f *fixture) {
	want := []string{f.session}
	for range 20 { // more than there are shards
		want = append([]string{f.createSession(forkcore.Session{})}, want...)
	}
	for _, limit := range []int{0, 1, 4, 21, 100} {
		var got []string
		cursor := ""
		for page := 0; ; page++ {
			sessions, next, err := f.store.Sessions(f.ctx, cursor, limit)
			f.noError(err, "list")
			if limit > 0 && len(sessions) > limit {
				f.Fatalf("%d sessions, limit %d", len(sessions), limit)
			}
			for _, s := range sessions {
				got = append(got, s.ID)
			}
			if cursor = next; cursor == "" {
				break
			}
			if page > len(want) {
				f.Fatal("the list does not end")
			}
		}
		same(f, got, want, "sessions, newest first")
	}
	_, _, err := f.store.Sessions(f.ctx, "1-", 1)
	f.wantInvalid(err, "another cursor")
}

func testSnapshots(f *fixture) {
	id := forkcore.DigestOf([]byte("canonical bytes"))
	other := f.createSession(forkcore.Session{})
	snap := forkcore.Snapshot{
		ID: id, SessionID: f.session, Bytes: 15, Tools: []string{"Bash"}, UpToSeq: 4, Placeholders: 2,
		Segments: []forkcore.Segment{{SHA256: forkcore.DigestOf([]byte("head")), Bytes: 10}, {SHA256: forkcore.DigestOf([]byte("open")), Bytes: 5, Open: true}},
		Params:   forkcore.Params{Model: "claude-sonnet-5-5", MaxTokens: 32_000, Thinking: []byte(`{"type":"adaptive"}`), Betas: []string{"b", "a"}},
	}
	_, err := f.store.Snapshot(f.ctx, f.session, id)
	f.wantError(err, forkcore.ErrNotFound, "unknown snapshot")
	_, err = f.store.SessionsOfSnapshot(f.ctx, id)
	f.wantError(err, forkcore.ErrNotFound, "sessions of an unknown snapshot")
	for range 2 {
		f.noError(f.store.PutSnapshot(f.ctx, snap), "put")
	}
	got, err := f.store.Snapshot(f.ctx, f.session, id)
	f.noError(err, "read")
	same(f, got, snap, "snapshot")
	_, err = f.store.Snapshot(f.ctx, other, id)
	f.wantError(err, forkcore.ErrNotFound, "another session's snapshot")
	twin := snap
	twin.SessionID = other
	f.noError(f.store.PutSnapshot(f.ctx, twin), "put in another session")
	ids, err := f.store.SessionsOfSnapshot(f.ctx, id)
	f.noError(err, "sessions")
	equal(f, len(ids), 2, "sessions of the snapshot")
	if ids[0] == ids[1] {
		f.Errorf("sessions = %v, want both", ids)
	}
}

func testUnknown(f *fixture) {
	session := forkcore.NewSessionID(f.entropy())
	run := f.newRunID()
	dispatch, err := forkcore.NewDispatchID(f.session, f.entropy())
	f.noError(err, "new dispatch id")
	for name, read := range map[string]func(id string) error{
		"session":       func(id string) error { _, err := f.store.Session(f.ctx, id); return err },
		"run":           func(id string) error { _, err := f.store.Run(f.ctx, id); return err },
		"dispatch":      func(id string) error { _, err := f.store.Dispatch(f.ctx, id); return err },
		"requests":      func(id string) error { _, err := f.store.Requests(f.ctx, id); return err },
		"cache entries": func(id string) error { _, err := f.store.CacheEntries(f.ctx, id); return err },
		"inbox":         func(id string) error { _, err := f.store.Inbox(f.ctx, id); return err },
	} {
		for _, id := range []string{session, run, dispatch} {
			f.wantError(read(id), forkcore.ErrNotFound, name+" "+id)
		}
		for _, id := range []string{"", "x", "*", "ses_16aaaaaaaaaaaaaaaa", session + "\n"} {
			f.wantError(read(id), forkcore.ErrBadID, name+" of a bad id")
		}
	}
}
