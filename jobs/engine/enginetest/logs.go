package enginetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func markerEntry(run string, m forkcore.Marker) forkcore.Entry {
	return forkcore.Entry{Kind: forkcore.EntryMarker, RunID: run, Marker: &m}
}

func testAppend(f *fixture) {
	h := f.turn()
	start := int64(len(f.log(f.session)))
	at := time.Date(2026, 11, 30, 12, 0, 0, 123_000_000, time.UTC)
	big := `{"role":"assistant","content":"` + strings.Repeat("the same words again ", 5000) + `<&\u2028"}`
	message := f.message(h.RunID, big)
	message.At, message.Fragment = at, true
	result := forkcore.DigestOf([]byte("result"))
	f.noError(f.store.PutBlobs(f.ctx, f.session, []byte("result"), nil), "put blobs")
	entries := []forkcore.Entry{
		message,
		markerEntry(h.RunID, forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: "toolu_1", Name: "Bash", Holder: h.Token}),
		markerEntry(h.RunID, forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: "toolu_2", Name: "Read", Detail: "a.go", Holder: h.Token}),
		markerEntry(h.RunID, forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: "toolu_1", Blob: &result, IsError: true}),
	}
	before := f.run(h.RunID)
	n, err := f.store.Append(f.ctx, h, start, entries, nil)
	f.noError(err, "append")
	equal(f, n, start+4, "length")

	got, err := f.store.Log(f.ctx, f.session, f.session, start, 0)
	f.noError(err, "log")
	want := append([]forkcore.Entry(nil), entries...)
	want[0].Bytes = []byte(big)
	marker := *want[3].Marker
	marker.Bytes = []byte("result")
	want[3].Marker = &marker
	for i := range want {
		want[i].Seq = start + int64(i) + 1
		if i > 0 {
			if got[i].At.IsZero() {
				f.Errorf("entry %d has no time", i)
			}
			want[i].At = got[i].At
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Errorf("entries (-want +got):\n%s", diff)
	}
	r := f.run(h.RunID)
	equal(f, r.ToolUses, 2, "tool uses")
	equal(f, r.LastTool+" "+r.LastToolDetail, "Read a.go", "last tool")
	if r.Version <= before.Version {
		f.Errorf("version %d after %d", r.Version, before.Version)
	}

	// The very same step again, because its answer was lost, adds nothing.
	n, err = f.store.Append(f.ctx, h, start, entries, nil)
	f.noError(err, "repeated append")
	equal(f, n, start+4, "length after the repeat")
	for _, length := range []int64{0, start, start + 3, start + 5} {
		_, err = f.store.Append(f.ctx, h, length, []forkcore.Entry{f.message(h.RunID, "other")}, nil)
		f.wantError(err, engine.ErrLeaseLost, fmt.Sprintf("append at %d", length))
	}
	equal(f, int64(len(f.log(f.session))), start+4, "log length")
}

func testLogPages(f *fixture) {
	h := f.turn()
	for i := range 5 {
		length := int64(len(f.log(f.session)))
		_, err := f.store.Append(f.ctx, h, length, []forkcore.Entry{f.message(h.RunID, fmt.Sprint("m", i))}, nil)
		f.noError(err, "append")
	}
	all := f.log(f.session)
	equal(f, len(all), 7, "entries")
	for i, e := range all {
		equal(f, e.Seq, int64(i+1), "seq")
	}
	for _, tt := range []struct {
		after    int64
		limit    int
		from, to int
	}{{0, 0, 0, 7}, {0, 3, 0, 3}, {3, 0, 3, 7}, {5, 1, 5, 6}, {6, 10, 6, 7}, {7, 0, 7, 7}, {99, 5, 7, 7}} {
		got, err := f.store.Log(f.ctx, f.session, f.session, tt.after, tt.limit)
		f.noError(err, "log")
		if len(got) == 0 && tt.from == tt.to {
			continue
		}
		if diff := cmp.Diff(all[tt.from:tt.to], got); diff != "" {
			f.Errorf("log after %d, limit %d (-want +got):\n%s", tt.after, tt.limit, diff)
		}
	}
	_, err := f.store.Log(f.ctx, f.session, f.newRunID(), 0, 0)
	f.wantError(err, forkcore.ErrNotFound, "log of an unknown run")
	_, err = f.store.Log(f.ctx, forkcore.NewSessionID(f.entropy()), f.session, 0, 0)
	f.wantError(err, forkcore.ErrNotFound, "log of an unknown session")
	_, err = f.store.Log(f.ctx, f.session, "main", 0, 0)
	f.wantError(err, forkcore.ErrBadID, "log of no agent")
}

func testInbox(f *fixture) {
	h := f.turn()
	typed := []engine.Accept{f.acceptance("one"), f.acceptance("two"), f.acceptance("three")}
	for _, a := range typed {
		f.accept(a)
	}
	length := int64(len(f.log(f.session)))
	entry := f.message(h.RunID, `{"role":"user","content":"one"}`)

	run := f.run(h.RunID)
	_, err := f.store.Append(f.ctx, h, length, []forkcore.Entry{entry}, []string{typed[0].ItemID, "item_unknown"})
	f.wantError(err, engine.ErrInbox, "take an item that is not there")
	equal(f, len(f.inbox()), 3, "inbox items after the refusal")
	equal(f, int64(len(f.log(f.session))), length, "log length after the refusal")
	equal(f, f.run(h.RunID).Version, run.Version, "version after the refusal")

	_, err = f.store.EndRun(f.ctx, h, engine.EndRun{State: forkcore.Done})
	f.wantError(err, engine.ErrInbox, "end as done with items waiting")
	equal(f, f.run(h.RunID).State, forkcore.Running, "state after the refusal")

	_, err = f.store.Append(f.ctx, h, length, []forkcore.Entry{entry}, []string{typed[1].ItemID, typed[0].ItemID})
	f.noError(err, "take two")
	items := f.inbox()
	if len(items) != 1 || items[0].Text != "three" {
		f.Fatalf("inbox = %+v, want only the third message", items)
	}
	_, err = f.store.Append(f.ctx, h, length+1, []forkcore.Entry{entry}, []string{typed[0].ItemID})
	f.wantError(err, engine.ErrInbox, "take an item twice")

	// A turn that fails leaves the message for the next one.
	_, err = f.store.EndRun(f.ctx, h, engine.EndRun{State: forkcore.Failed, Reason: &forkcore.Reason{Code: forkcore.CodeLoop, Message: "m", NextStep: "n"}})
	f.noError(err, "end as failed")
	equal(f, len(f.inbox()), 1, "inbox items after a failed turn")
	_, err = f.store.Inbox(f.ctx, forkcore.NewSessionID(f.entropy()))
	f.wantError(err, forkcore.ErrNotFound, "inbox of an unknown session")
}

func testBlobs(f *fixture) {
	blobs := [][]byte{[]byte("a"), []byte(strings.Repeat("long ", 10_000)), {0, 1, 2, 255}, {}}
	f.noError(f.store.PutBlobs(f.ctx, f.session, blobs...), "put")
	f.noError(f.store.PutBlobs(f.ctx, f.session, blobs...), "put again")
	f.noError(f.store.PutBlobs(f.ctx, f.session), "put nothing")
	var ids []forkcore.Digest
	for _, b := range blobs {
		ids = append(ids, forkcore.DigestOf(b))
	}
	ids = append(ids, ids[0])
	got, err := f.store.Blobs(f.ctx, f.session, ids...)
	f.noError(err, "read")
	for i, id := range ids {
		equal(f, forkcore.DigestOf(got[i]), id, "digest")
	}
	_, err = f.store.Blobs(f.ctx, f.session, ids[0], forkcore.DigestOf([]byte("unknown")))
	f.wantError(err, forkcore.ErrNotFound, "read an unknown blob")
	other := f.createSession(forkcore.Session{})
	_, err = f.store.Blobs(f.ctx, other, ids[0])
	f.wantError(err, forkcore.ErrNotFound, "read another session's blob")
}
