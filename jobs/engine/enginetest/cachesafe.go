package enginetest

import (
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// slot is what a main turn gives to the store, with claims that are the store's to make.
func (f *fixture) slot(bytes int64) *forkcore.CacheSafeParams {
	name := f.name("prefix")
	return &forkcore.CacheSafeParams{
		Version: 99, RunID: "run of another", At: time.Unix(1, 0).UTC(),
		Head:   forkcore.DigestOf([]byte("head")),
		Params: forkcore.Params{Model: "claude-sonnet-5-5", Thinking: []byte(`{"type":"adaptive"}`), Effort: "low", Betas: []string{"a", "b"}, MaxTokens: 32_000},
		Tools:  []string{"Agent", "<Read>"}, UpToSeq: 9_007_199_254_740_991, Messages: 2,
		Prefix: forkcore.DigestOf([]byte(name)), PrefixBytes: bytes, Replacements: forkcore.DigestOf([]byte("state")),
		Entries: []forkcore.CacheEntry{{Prefix: forkcore.DigestOf([]byte("entry")), Bytes: 7, Tokens: 3, TTL: "5m", UsedAt: time.Unix(2, 0).UTC(), RunID: "run", N: 1}},
	}
}

// M62, M63: the slot's version rises once with each main turn that is done; nobody else writes it.
func testCacheSafe(f *fixture) {
	if s := f.sessionNow().CacheSafe; s != nil {
		f.Fatalf("slot before the first turn = %+v, want none", s)
	}
	f.end(f.turn(), engine.EndRun{State: forkcore.Failed, CacheSafe: f.slot(10)})
	if s := f.sessionNow().CacheSafe; s != nil {
		f.Fatalf("slot after a turn that failed = %+v, want none", s)
	}

	wantSlot := func(want forkcore.CacheSafeParams, version int64, run, when string) {
		f.Helper()
		got := f.sessionNow().CacheSafe
		if got == nil {
			f.Fatalf("no slot %s", when)
		}
		if r := f.run(run); !got.At.Equal(r.EndedAt) {
			f.Errorf("the slot was written at %v, its turn ended at %v", got.At, r.EndedAt)
		}
		want.Version, want.RunID, want.At = version, run, got.At
		same(f, *got, want, "slot "+when)
	}
	first, h := f.slot(20), f.turn()
	end := engine.EndRun{State: forkcore.Done, CacheSafe: first}
	f.end(h, end)
	wantSlot(*first, 1, h.RunID, "after a turn")
	f.end(h, end) // its answer may get lost
	wantSlot(*first, 1, h.RunID, "after the repeat")

	d := f.forks(2, forkcore.GateNone, "")
	wakes := f.create(d)
	fork := f.lease(wakes[0].RunID, wakes[0].N, worker).Holder
	f.end(fork, engine.EndRun{State: forkcore.Done, CacheSafe: f.slot(30)})
	wantSlot(*first, 1, h.RunID, "after a fork that is done")
	f.end(engine.Holder{SessionID: f.session, RunID: wakes[1].RunID}, engine.EndRun{State: forkcore.Failed, CacheSafe: f.slot(30)})
	wantSlot(*first, 1, h.RunID, "after a fork that nobody held")
	reading := f.turn()
	f.takeAll(reading)
	f.end(reading, engine.EndRun{State: forkcore.Cancelled, CacheSafe: f.slot(40)})
	wantSlot(*first, 1, h.RunID, "after a turn that was cancelled")
	f.end(f.turn(), engine.EndRun{State: forkcore.Done})
	wantSlot(*first, 1, h.RunID, "after a turn that left none")

	second, next := f.slot(50), f.turn()
	f.end(next, engine.EndRun{State: forkcore.Done, CacheSafe: second})
	wantSlot(*second, 2, next.RunID, "after another turn")
}
