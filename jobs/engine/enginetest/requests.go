package enginetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// row is an open ledger row.
func (f *fixture) row(h engine.Holder, n int64) forkcore.RequestRow {
	return forkcore.RequestRow{
		RunID: h.RunID, SessionID: f.session, N: n, Attempt: 1, Model: "claude-sonnet-5-5", Status: forkcore.RequestOpen,
		StartedAt: time.Date(2026, 11, 30, 12, 0, int(n), 0, time.UTC), Prefix: forkcore.DigestOf([]byte("prefix")),
		ExpectedFrom: &forkcore.RequestRef{RunID: h.RunID, N: n}, LogSeq: 2,
	}
}

// begin inserts an open row.
func (f *fixture) begin(h engine.Holder, n, reserve int64) forkcore.RequestRow {
	f.Helper()
	row := f.row(h, n)
	f.noError(f.store.BeginRequest(f.ctx, h, row, reserve, time.Minute), "begin request")
	return row
}

// answered is the settled form of a row at a price.
func (f *fixture) answered(row forkcore.RequestRow, cost int64) forkcore.RequestRow {
	end := row.StartedAt.Add(time.Second)
	row.EndedAt, row.Status, row.StopReason, row.Cost = &end, forkcore.RequestOK, "end_turn", &cost
	row.Usage = &forkcore.Usage{Input: 1, CacheWrite5m: 20, CacheWrite1h: 300, CacheRead: 4000, Output: 50000}
	return row
}

func (f *fixture) settle(h engine.Holder, s engine.Settle) int64 {
	f.Helper()
	n, err := f.store.Settle(f.ctx, h, s)
	f.noError(err, "settle")
	return n
}

func testBeginRequest(f *fixture) {
	f.session = f.createSession(forkcore.Session{BudgetNanoUSD: 100})
	h := f.turn()
	run, session := f.run(h.RunID), f.sessionNow()
	for _, n := range []int64{0, 2} {
		f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, n), 1, time.Minute), engine.ErrLeaseLost, "begin another number")
	}
	f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, 1), 101, time.Minute), forkcore.ErrBudget, "begin over budget")
	if diff := cmp.Diff(run, f.run(h.RunID)); diff != "" {
		f.Errorf("run changed by refusals (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(session, f.sessionNow()); diff != "" {
		f.Errorf("session changed by refusals (-before +after):\n%s", diff)
	}

	first := f.begin(h, 1, 60)
	f.noError(f.store.BeginRequest(f.ctx, h, first, 60, time.Minute), "repeated begin")
	equal(f, f.run(h.RunID).Requests, 1, "requests")
	equal(f, f.sessionNow().ReservedNanoUSD, 60, "reserved")
	f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, 2), 41, time.Minute), forkcore.ErrBudget, "begin beyond the reservation")
	second := f.begin(h, 2, 40)
	equal(f, f.sessionNow().ReservedNanoUSD, 100, "reserved by both")

	f.settle(h, engine.Settle{Row: f.answered(first, 70), ExpectLen: -1})
	f.settle(h, engine.Settle{Row: f.answered(second, 10), ExpectLen: -1})
	s := f.sessionNow()
	equal(f, s.ReservedNanoUSD, 0, "reserved after settling")
	equal(f, s.Cost, forkcore.Cost{NanoUSD: 80}, "cost")
	f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, 3), 21, time.Minute), forkcore.ErrBudget, "begin beyond what was spent")
	equal(f, f.run(h.RunID).AtRiskRequests, 0, "requests at risk")
	third := f.row(h, 3)
	third.AtRisk = true
	f.noError(f.store.BeginRequest(f.ctx, h, third, 20, time.Minute), "begin at risk")
	equal(f, f.run(h.RunID).AtRiskRequests, 1, "requests at risk")
	equal(f, f.sessionNow().AtRiskRequests, 1, "requests at risk of the session")

	_, _, err := f.store.Stop(f.ctx, f.session, "turn")
	f.noError(err, "stop")
	f.wantError(f.store.BeginRequest(f.ctx, h, f.row(h, 4), 0, time.Minute), engine.ErrStopped, "begin after a stop")
	equal(f, f.run(h.RunID).Requests, 3, "requests after the refusals")
}

func testDispatchBudget(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	d.Dispatch.BudgetNanoUSD = 100
	w := f.create(d)
	a, b := f.lease(w[0].RunID, 1, worker).Holder, f.lease(w[1].RunID, 1, worker).Holder
	row := f.begin(a, 1, 60)
	f.wantError(f.store.BeginRequest(f.ctx, b, f.row(b, 1), 41, time.Minute), forkcore.ErrBudget, "begin beyond a sibling's reservation")
	f.settle(a, engine.Settle{Row: f.answered(row, 30), ExpectLen: -1})
	f.wantError(f.store.BeginRequest(f.ctx, b, f.row(b, 1), 71, time.Minute), forkcore.ErrBudget, "begin beyond what a sibling spent")
	f.begin(b, 1, 70)
	// An end without a settled row gives the reservation back and calls the price unknown.
	_, err := f.store.EndRun(f.ctx, b, engine.EndRun{State: forkcore.Failed})
	f.noError(err, "end")
	f.begin(a, 2, 70)
	s := f.sessionNow()
	equal(f, s.ReservedNanoUSD, 70, "reserved")
	equal(f, s.Cost, forkcore.Cost{NanoUSD: 30, Unpriced: 1}, "session cost")
	equal(f, f.dispatch(d.Dispatch.ID).Cost, forkcore.Cost{NanoUSD: 30, Unpriced: 1}, "dispatch cost")
	rows, err := f.store.Requests(f.ctx, b.RunID)
	f.noError(err, "requests")
	equal(f, rows[0].Status, forkcore.RequestAborted, "status of a row that nobody settled")
}

func testSettle(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	w := f.create(d)
	h := f.lease(w[0].RunID, 1, worker).Holder
	length := int64(len(f.log(h.RunID)))
	used := time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)
	entry := forkcore.CacheEntry{
		Prefix: forkcore.DigestOf([]byte("p")), Bytes: 400, Tokens: 100, TTL: "5m", UsedAt: used, RunID: h.RunID, N: 1,
		Scope: forkcore.Scope{Endpoint: "e", Key: "k", Workspace: "w", Betas: "a,b"}, MessageID: "msg_1", Inside: true,
	}

	first := f.begin(h, 1, 10)
	first.FirstEventAt = &used
	missed := int64(7)
	first.MessageID, first.Scope = entry.MessageID, entry.Scope
	first.Diagnostics, first.Diagnosis = &forkcore.Diagnostics{PreviousMessageID: "msg_0"}, &forkcore.Diagnosis{Type: "tools_changed", Missed: &missed}
	_, err := f.store.FirstEvent(f.ctx, h, first, []forkcore.CacheEntry{entry})
	f.noError(err, "first event")
	rows, err := f.store.Requests(f.ctx, h.RunID)
	f.noError(err, "requests")
	if diff := cmp.Diff([]forkcore.RequestRow{first}, rows); diff != "" {
		f.Errorf("ledger after the first event (-want +got):\n%s", diff)
	}
	entries, err := f.store.CacheEntries(f.ctx, f.session)
	f.noError(err, "cache entries")
	if diff := cmp.Diff([]forkcore.CacheEntry{entry}, entries); diff != "" {
		f.Errorf("cache entries after the first event (-want +got):\n%s", diff)
	}

	first = f.answered(first, 1000)
	first.First = true
	entry.Exact, entry.Tokens = true, 99
	later := entry
	later.Prefix, later.UsedAt = forkcore.DigestOf([]byte("q")), used.Add(time.Second)
	in := engine.Settle{
		Row: first, InheritedTokens: 5000, InheritedRead: 4000, Entries: []forkcore.CacheEntry{entry, later}, Warm: &entry,
		ExpectLen: length, Append: []forkcore.Entry{f.message(h.RunID, `{"role":"assistant"}`)},
	}
	wrong := in
	wrong.ExpectLen++
	_, err = f.store.Settle(f.ctx, h, wrong)
	f.wantError(err, engine.ErrLeaseLost, "settle at another length")
	equal(f, f.sessionNow().ReservedNanoUSD, 10, "reserved after the refusal")
	billed := f.dispatch(d.Dispatch.ID).Version
	equal(f, f.settle(h, in), length+1, "length")
	if v := f.dispatch(d.Dispatch.ID).Version; v <= billed {
		f.Errorf("dispatch version %d after %d: nobody sees that its bill has grown", v, billed)
	}
	equal(f, f.settle(h, in), length+1, "length of the repeated step")
	_, err = f.store.Settle(f.ctx, h, engine.Settle{Row: f.answered(first, 1), ExpectLen: -1})
	f.wantError(err, engine.ErrLeaseLost, "settle a row that is not open")

	second := f.begin(h, 2, 10)
	second.Status = forkcore.RequestError // no usage, no price
	equal(f, f.settle(h, engine.Settle{Row: second, ExpectLen: -1}), length+1, "length without an append")

	rows, err = f.store.Requests(f.ctx, h.RunID)
	f.noError(err, "requests")
	if diff := cmp.Diff([]forkcore.RequestRow{first, second}, rows); diff != "" {
		f.Errorf("ledger (-want +got):\n%s", diff)
	}
	usage, cost := *first.Usage, forkcore.Cost{NanoUSD: 1000, Unpriced: 1}
	r, s, now := f.run(h.RunID), f.sessionNow(), f.dispatch(d.Dispatch.ID)
	equal(f, r.Usage, usage, "run usage")
	equal(f, r.Cost, cost, "run cost")
	equal(f, r.InheritedTokens, 5000, "inherited tokens")
	equal(f, r.InheritedRead, 4000, "inherited read")
	equal(f, s.Usage, usage, "session usage")
	equal(f, s.Cost, cost, "session cost")
	equal(f, s.ReservedNanoUSD, 0, "reserved")
	if s.Warm != nil {
		f.Errorf("a fork made the session warm: %+v", s.Warm)
	}
	equal(f, now.Usage, usage, "dispatch usage")
	equal(f, now.Cost, cost, "dispatch cost")
	equal(f, now.FirstRequests, forkcore.Cost{NanoUSD: 1000}, "first requests' cost")
	equal(f, now.FirstRequestUsage, usage, "first requests' usage")
	entries, err = f.store.CacheEntries(f.ctx, f.session)
	f.noError(err, "cache entries")
	if diff := cmp.Diff([]forkcore.CacheEntry{later, entry}, entries); diff != "" {
		f.Errorf("cache entries (-want +got):\n%s", diff)
	}

	// A sibling that was faster, but sent later, is not undone.
	main := f.turn()
	row := f.begin(main, 1, 0)
	older := later
	older.UsedAt = used.Add(-time.Minute)
	f.settle(main, engine.Settle{Row: f.answered(row, 1), Entries: []forkcore.CacheEntry{older}, Warm: &entry, ExpectLen: -1})
	entries, err = f.store.CacheEntries(f.ctx, f.session)
	f.noError(err, "cache entries")
	equal(f, entries[0], later, "entry with the latest use")
	if diff := cmp.Diff(&entry, f.sessionNow().Warm); diff != "" {
		f.Errorf("warm (-want +got):\n%s", diff)
	}
}
