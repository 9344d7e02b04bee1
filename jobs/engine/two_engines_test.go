package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// An endpoint that counts only a block of what it cached.
func TestQuoteOfASmallEntryIsNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			r := say("ok")
			r.usage = forkcore.Usage{Input: 900, CacheRead: 64, Output: 3}
			if _, fork := c.directive(); fork {
				r.after = time.Minute
			}
			return r
		})
		y.ask("go")
		if _, _, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		q, err := y.engine.QuoteForks(y.ctx, y.session.ID, directives("d1", "d2"))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(q)
		if strings.Contains(string(b), ":-") {
			t.Errorf("negative: %s", b)
		}
	})
}

// Two engines on one session: turns, forks, stops and hand-overs at random.
func TestTwoEnginesAtRandom(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				rng := rand.New(rand.NewPCG(seed, 1))
				roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(n) }
				y := newYard(t, func(c call) reply {
					var r reply
					id := func(i int) string { return fmt.Sprintf("t%d_%d", c.n, i) }
					_, fork := c.directive()
					switch k := roll(6); {
					case fork && k < 3:
						r = say(reportText)
					case fork || k == 0 || k == 1:
						r = useTools(use(id(0), "Read", `{"n":`+fmt.Sprint(c.n)+`}`), use(id(1), "Bash", `{}`))
					case k == 2:
						r = useTools(use(id(0), "Agent", `{"description":"f","prompt":"p`+fmt.Sprint(c.n)+`"}`), use(id(1), "Agent", `{"description":"g","prompt":"q"}`))
					case k == 3:
						r = useTools(use(id(0), "Agent", `{"description":"f","prompt":"p`+fmt.Sprint(c.n)+`"}`), use(id(1), "Read", `{}`))
					default:
						r = say(fmt.Sprint("answer ", c.n))
					}
					if len(c.messages) > 40 {
						r = say("enough")
					}
					r.before, r.after = time.Duration(roll(300))*time.Millisecond, time.Duration(roll(300))*time.Millisecond
					if roll(12) == 0 {
						r.err = &forkcore.ModelError{Code: forkcore.CodeOverloaded, Message: "busy", Status: 529, Retryable: true}
						r.cut = roll(2) == 0
					}
					return r
				})
				other, _ := y.start(y.options)
				engines := []*engine.Engine{y.engine, other}
				var wg sync.WaitGroup
				for i := range 25 {
					e := engines[roll(2)]
					time.Sleep(time.Duration(roll(700)) * time.Millisecond)
					switch k := roll(8); {
					case k < 4:
						_, _ = e.SendMessage(y.ctx, y.session.ID, fmt.Sprint("say ", i), "")
					case k < 6:
						wg.Go(func() { _, _, _ = e.Fork(y.ctx, y.session.ID, directives("a", "b"), "") })
					case k == 6:
						_, _ = e.Stop(y.ctx, y.session.ID, "turn")
					default:
						if s := y.sessionNow(); s.ActiveRunID != "" {
							_ = e.Background(y.ctx, s.ActiveRunID)
						}
					}
				}
				wg.Wait()
				y.idle()
				// Every body that was sent is rebuilt by either engine, and each is among those received.
				got := map[string]bool{}
				for _, c := range y.model.received() {
					got[forkcore.DigestOf(c.body).String()] = true
				}
				rows := 0
				for _, r := range y.runs() {
					if r.State == forkcore.Failed {
						switch r.Reason.Code {
						case forkcore.CodeInternal, forkcore.CodePrefixMismatch, forkcore.CodeInvalidResponse:
							t.Errorf("%s %s: %+v", r.Kind, r.ID, r.Reason)
						}
					}
					for _, row := range y.requests(r.ID) {
						rows++
						for _, e := range engines {
							if _, err := e.RequestBody(y.ctx, r.ID, row.N); err != nil {
								t.Errorf("%s request %d: %v", r.ID, row.N, err)
							}
						}
						if row.Status == forkcore.RequestOK && !got[row.Body.String()] {
							t.Errorf("%s request %d was never received", r.ID, row.N)
						}
						if row.Miss != nil && row.Miss.Code != "unknown" && row.Miss.Code != "too_short" {
							t.Logf("miss %+v", *row.Miss)
						}
					}
					if r.Kind == forkcore.KindFork {
						snap, err := y.engine.SnapshotBytes(y.ctx, y.session.ID, r.Snapshot)
						if err != nil {
							t.Errorf("snapshot: %v", err)
							continue
						}
						for _, row := range y.requests(r.ID) {
							b, _ := y.engine.RequestBody(y.ctx, r.ID, row.N)
							plain, err := forkcore.StripMarks(b, row.Marks)
							if err != nil || !strings.HasPrefix(string(plain), string(snap)) {
								t.Errorf("%s request %d leaves its snapshot: %v", r.ID, row.N, err)
							}
							if len(row.Marks) > 4 {
								t.Errorf("%d marks", len(row.Marks))
							}
						}
					}
				}
				t.Logf("%d runs, %d rows", len(y.runs()), rows)
			})
		})
	}
}
