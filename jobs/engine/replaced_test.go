package engine_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// A request that was under way when its key was replaced, and is then refused because the old key was revoked, goes on
// with the new one.
func TestReplacedWhileRequestsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, replaced := make(chan struct{}), make(chan struct{})
		y, m := newSwitchedYard(t)
		m.answer = func(key string) reply {
			if key == "old" {
				close(started)
				<-replaced
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderAuth, Status: 401, Message: "revoked", KeyRefused: true}}
			}
			return say("ok")
		}
		id := y.send("go")
		<-started
		if check, _, err := y.engine.ReplaceKey(y.ctx, "new"); err != nil || check.Outcome != forkcore.ProviderOK {
			t.Fatalf("%+v (%v)", check, err)
		}
		close(replaced)
		want(t, "state", y.ended(id).State, forkcore.Done)
	})
}

// Two replacements at once: one of them counts, and all processes come to it.
func TestReplaceTwiceAtOnce(t *testing.T) {
	for _, keys := range [][2]string{{"b", "c"}, {"b", "b"}} {
		for _, processes := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, nil, func(o *engine.Options) { o.Dashboard = true })
				var models []*switched
				var engines []*engine.Engine
				for range processes {
					m := newSwitched("a")
					m.checking = time.Second
					m.answer = func(string) reply { return say("ok") }
					o := y.options
					o.Model = m
					e, _ := y.start(o)
					models, engines = append(models, m), append(engines, e)
				}
				y.engine = engines[0]
				y.queue.executor(y.engine)
				y.ask("first")
				var wg sync.WaitGroup
				var errs [2]error
				for i, key := range keys {
					wg.Go(func() { _, _, errs[i] = engines[i%processes].ReplaceKey(y.ctx, key) })
				}
				wg.Wait()
				conflicts := 0
				for _, err := range errs {
					var conflict *forkcore.ConflictError
					var invalid *forkcore.InvalidError // it is in use by then
					switch {
					case errors.As(err, &conflict):
						conflicts++
					case err != nil && (keys[0] != keys[1] || !errors.As(err, &invalid)):
						t.Errorf("%v: %v", keys, err)
					}
				}
				if lost := processes == 2 && keys[0] != keys[1]; (conflicts == 1) != lost {
					t.Errorf("%v with %d processes: %d conflicts", keys, processes, conflicts)
				}
				for _, e := range engines {
					y.engine = e
					y.queue.executor(e)
					want(t, "state", y.ask("second").State, forkcore.Done)
				}
				for _, m := range models {
					want(t, "key of a process", m.key(), models[0].key())
				}
			})
		}
	}
}

// A page that looks at the key takes no place.
func TestLookingTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(call) reply { return say("ok") }, scoped(true))
		if err := y.store.CoolDown(y.ctx, "e-k", 0); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := y.engine.ProviderAccount(y.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := y.store.Admit(y.ctx, "e-k", time.Hour, false); err != nil || a.Wait > 0 {
			t.Errorf("after 100 looks a request waits %v (%v)", a.Wait, err)
		}
	})
}

// What was begun with another key is finished though the page that asked for it went away.
func TestReplaceOutlivesThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, m := newSwitchedYard(t)
		m.answer = func(key string) reply {
			if key == "old" {
				return reply{err: &forkcore.ModelError{Code: forkcore.CodeProviderAuth, Status: 401, Message: "revoked", KeyRefused: true}}
			}
			return say("ok")
		}
		id := y.send("go")
		y.until("the run waits", func() bool { return y.run(id).State == forkcore.Waiting })
		ctx, cancel := context.WithCancel(y.ctx)
		m.adopted = cancel
		_, _, _ = y.engine.ReplaceKey(ctx, "new")
		want(t, "state", y.ended(id).State, forkcore.Done)
	})
}

// newSwitchedYard is a yard whose dashboard has such a model with the key "old".
func newSwitchedYard(t *testing.T) (*yard, *switched) {
	m := newSwitched("old")
	return newYard(t, nil, func(o *engine.Options) { o.Dashboard, o.Model = true, m }), m
}

// switched is a model whose key can be replaced. A sealed key is "old key>new key".
type switched struct {
	answer   func(key string) reply
	adopted  func()        // called after a key was taken over
	checking time.Duration // how long a check takes

	mu     sync.Mutex
	inUse  string
	opened string
}

func newSwitched(key string) *switched { return &switched{inUse: key} }

func (m *switched) key() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inUse
}

func (m *switched) Scope() forkcore.Scope { return forkcore.Scope{Endpoint: "e", Key: m.key()} }

func (m *switched) Stream(ctx context.Context, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	key := m.key()
	return newScripted(nil, func(call) reply { return m.answer(key) }).Stream(ctx, r)
}

func (m *switched) Check(ctx context.Context, model string, probe bool) (forkcore.ProviderCheck, error) {
	return m.CheckKey(ctx, m.key(), model, probe)
}

func (m *switched) CheckKey(ctx context.Context, _, _ string, _ bool) (forkcore.ProviderCheck, error) {
	if !pause(ctx, m.checking) {
		return forkcore.ProviderCheck{}, context.Cause(ctx)
	}
	return forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Offered: true}, nil
}

func (m *switched) Seal(key string) (sealed, account string, err error) {
	old := m.key()
	if key == old {
		return "", "", errors.New("it is in use")
	}
	return old + ">" + key, forkcore.Scope{Endpoint: "e", Key: key}.Account(), nil
}

func (m *switched) Adopt(sealed string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sealed == m.opened {
		return nil
	}
	old, key, _ := strings.Cut(sealed, ">")
	if old != m.inUse {
		return errors.New("it was sealed with another key")
	}
	m.inUse, m.opened = key, sealed
	if m.adopted != nil {
		m.adopted()
	}
	return nil
}
