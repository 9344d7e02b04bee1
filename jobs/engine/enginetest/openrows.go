package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// testCloseRows: an end bills what the first events of unsettled requests told.
func testCloseRows(f *fixture) {
	d := f.forks(2, forkcore.GateNone, "")
	w := f.create(d)
	h := f.lease(w[0].RunID, w[0].N, worker).Holder
	at := time.Date(2026, 11, 30, 12, 0, 1, 0, time.UTC)
	usage := forkcore.Usage{Input: 9_007_199_254_740_993, CacheWrite5m: 20, CacheWrite1h: 300, CacheRead: 4000, Output: 1}
	cost, free := int64(9_007_199_254_740_995), int64(0) // more than a double can count

	told := f.begin(h, 1, 10)
	told.FirstEventAt, told.Usage, told.Cost, told.First = &at, &usage, &cost, true
	told.Error = `"usage":{"input_tokens":7},"cost_nanousd":7,"status":"open"`
	unpriced := f.begin(h, 2, 20)
	unpriced.FirstEventAt, unpriced.Usage = &at, &forkcore.Usage{Input: 2}
	silent := f.begin(h, 3, 30)
	gratis := f.begin(h, 4, 40)
	gratis.FirstEventAt, gratis.Usage, gratis.Cost, gratis.Estimated = &at, &forkcore.Usage{}, &free, true
	for _, row := range []forkcore.RequestRow{told, unpriced, gratis} {
		_, err := f.store.FirstEvent(f.ctx, h, row, nil)
		f.noError(err, "first event")
	}
	equal(f, f.sessionNow().Cost, forkcore.Cost{}, "cost before the end")
	f.end(h, engine.EndRun{State: forkcore.Failed})

	r, s, now := f.run(h.RunID), f.sessionNow(), f.dispatch(d.Dispatch.ID)
	usage.Input += 2
	sum := forkcore.Cost{NanoUSD: cost, Unpriced: 2}
	equal(f, r.Usage, usage, "run usage")
	equal(f, r.Cost, sum, "run cost")
	equal(f, s.Usage, usage, "session usage")
	equal(f, s.Cost, sum, "session cost")
	equal(f, s.ReservedNanoUSD, 0, "reserved")
	equal(f, now.Usage, usage, "dispatch usage")
	equal(f, now.Cost, sum, "dispatch cost")
	equal(f, now.FirstRequests, forkcore.Cost{}, "first requests' cost: an aborted one does not count")
	usage.Input -= 2
	want := []forkcore.RequestRow{told, unpriced, silent, gratis}
	for i := range want {
		want[i].Status, want[i].EndedAt, want[i].First = forkcore.RequestAborted, &r.EndedAt, false
		want[i].Estimated = want[i].Usage != nil
	}
	rows, err := f.store.Requests(f.ctx, h.RunID)
	f.noError(err, "requests")
	same(f, rows, want, "ledger")

	// A run that nobody holds is billed alike.
	other := f.lease(w[1].RunID, w[1].N, worker).Holder
	row := f.begin(other, 1, 10)
	seven := int64(7)
	row.Usage, row.Cost = &forkcore.Usage{Output: 3}, &seven
	_, err = f.store.FirstEvent(f.ctx, other, row, nil)
	f.noError(err, "first event")
	f.release(other)
	_, err = f.store.Cancel(f.ctx, other.RunID)
	f.noError(err, "cancel")
	equal(f, f.run(other.RunID).Cost, forkcore.Cost{NanoUSD: 7}, "cost of the cancelled run")
	equal(f, f.run(other.RunID).Usage, forkcore.Usage{Output: 3}, "usage of the cancelled run")
}
