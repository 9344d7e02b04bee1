package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// number is a setting of the long form.
func number(t *testing.T, name string, fallback int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q is no number", name, text)
	}
	return n
}

// traffic sends messages and fan-outs to two dashboards until stop is called, and counts what was taken. A dashboard that is
// away is no fault: the other one is asked.
func (w *world) traffic(webs []*process, clients int) (stop func() (messages, forks int64)) {
	w.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	var messages, forks atomic.Int64
	for i := range clients {
		session := w.session("fork")
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				p := webs[(i+n)%len(webs)]
				text := fmt.Sprintf("do act:%s slow", w.act(false))
				if n%3 == 2 {
					prompts := []object{{"prompt": fmt.Sprintf("do act:%s", w.act(false))}, {"prompt": "do read"}}
					if status, _, err := w.call(p, "POST", "/sessions/"+session+"/forks", object{"directives": prompts}, "Idempotency-Key", text); err == nil && status == 202 {
						forks.Add(2)
					}
				} else if _, ok := w.trySay(p, session, text); ok {
					messages.Add(1)
				}
				time.Sleep(300 * time.Millisecond)
			}
		})
	}
	return func() (int64, int64) {
		close(done)
		wg.Wait()
		return messages.Load(), forks.Load()
	}
}

// calm waits until nothing runs in any session.
func (w *world) calm() {
	w.Helper()
	for _, s := range w.sessions {
		w.until("session "+s+" to come to rest", func() bool {
			for _, r := range w.must(200, "GET", "/sessions/"+s, nil)["runs"].([]any) {
				if r.(object)["ended_at"] == nil {
					return false
				}
			}
			return true
		})
	}
}

// noFailures: whatever was restarted in turn, no run failed.
func (w *world) noFailures() {
	w.Helper()
	for _, s := range w.sessions {
		for _, r := range w.must(200, "GET", "/sessions/"+s, nil)["runs"].([]any) {
			if run := r.(object); run["state"] != "done" {
				w.Errorf("run %v ended as %v: %v", run["id"], run["state"], run["reason"])
			}
		}
	}
}

// TestRestartsUnderTraffic: two dashboards and two workers are restarted in turn with SIGTERM while messages and fan-outs come in: nothing is
// lost, and nothing fails.
func TestRestartsUnderTraffic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	second := w.start("web", "FORKYARD_ADDR", freeAddress(t), "FORKYARD_DATA_DIR", t.TempDir())
	workers := []*process{w.start("worker"), w.start("worker")}
	stop := w.traffic([]*process{w.web, second}, 4)
	rounds := 1
	if long() {
		rounds = 5
	}
	for range rounds {
		for _, p := range []*process{workers[0], w.web, workers[1], second} {
			time.Sleep(time.Second)
			p.signal(syscall.SIGTERM)
			select {
			case <-p.exited:
			case <-time.After(30 * time.Second):
				t.Fatalf("%s did not end within 30 s of SIGTERM", p.name)
			}
			p.restart()
		}
	}
	time.Sleep(time.Second)
	messages, forks := stop()
	w.calm()
	w.check()
	w.noFailures()
	t.Logf("%d messages and %d forks were taken", messages, forks)
	if messages < 10 || forks < 4 {
		t.Error("that is no traffic")
	}
}

// TestRecovery: after kill -9 of a worker with runs in the middle of their tools, another goes on with each within six seconds.
func TestRecovery(t *testing.T) {
	t.Parallel()
	trials := number(t, "CHAOS_TRIALS", 4)
	const atOnce = 4
	w := newWorld(t)
	w.web = w.start("web")
	var took []time.Duration
	for len(took) < trials {
		victim := w.start("worker")
		session := w.session("fork")
		var acts, runs []string
		for range atOnce {
			act := w.act(true)
			acts = append(acts, act)
			runs = append(runs, w.fork(session, "do act:"+act)...)
		}
		w.until("all tools to be at work", func() bool {
			return !slices.ContainsFunc(acts, func(a string) bool { return w.acted(a) == 0 })
		})
		other := w.start("worker")
		victim.kill()
		killed := time.Now()
		// Whoever goes on answers the call whose outcome nobody knows, and asks the model again.
		left := slices.Clone(runs)
		w.until("another worker to go on", func() bool {
			left = slices.DeleteFunc(left, func(id string) bool {
				on := w.run(id)["requests"] == 2.0
				if on {
					took = append(took, time.Since(killed))
				}
				return on
			})
			return len(left) == 0
		})
		w.ended(runs...)
		w.calm()
		other.signal(syscall.SIGTERM)
		<-other.exited
	}
	w.check()
	slices.Sort(took)
	t.Logf("%d recoveries: p50 %v, longest %v", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
	if longest := took[len(took)-1]; longest > 6*time.Second {
		t.Errorf("the longest recovery took %v, at most 6 s are allowed", longest)
	}
}

// TestPlannedRestart: with SIGTERM a run goes on elsewhere within a second of its step boundary.
func TestPlannedRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	session := w.session("fork")
	for range number(t, "CHAOS_RESTARTS", 2) {
		first := w.start("worker")
		act := w.act(true)
		run := w.fork(session, "do act:"+act)[0]
		w.until("the tool to be at work", func() bool { return w.acted(act) == 1 })
		second := w.start("worker")
		first.signal(syscall.SIGTERM)
		time.Sleep(300 * time.Millisecond) // it waits for the end of the tool
		released := time.Now()
		w.release(act)
		w.until("another worker to go on", func() bool { return w.run(run)["requests"] == 2.0 })
		if took := time.Since(released); took > time.Second {
			t.Errorf("the run went on after %v, at most 1 s is allowed", took)
		} else {
			t.Logf("went on after %v", took.Round(time.Millisecond))
		}
		w.ended(run)
		w.calm()
		second.signal(syscall.SIGTERM)
		<-second.exited
		<-first.exited
	}
	w.check()
}

// TestFullDisk: a workspace without room is an error of the tool that wants to write, and nothing more.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a file system that is full")
	}
	w := newWorld(t)
	small := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(small, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "none", small).CombinedOutput(); err != nil {
		t.Skipf("no file system of its own can be mounted here: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", small).Run() })
	if err := os.WriteFile(filepath.Join(small, "filler"), []byte(strings.Repeat("x", 60<<10)), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(filepath.Join(small, "rest"), []byte(strings.Repeat("x", 8<<10)), 0o644) // whatever fits
	w.env["FORKYARD_WORKSPACES"], w.dir = small, small
	w.web = w.start("web")
	w.start("worker")
	session := w.session("fork")
	run := w.fork(session, "do act:"+w.act(false))[0]
	w.ended(run)
	w.calm()
	w.check()
	failed := false
	for _, l := range w.transcript(run) {
		failed = failed || strings.Contains(string(l.Message), "No space left on device")
	}
	if !failed {
		t.Error("the tool's result does not say that the disk is full")
	}
}

// TestLong lets faults strike at random for CHAOS_MINUTES. The seed is printed and set by CHAOS_SEED.
func TestLong(t *testing.T) {
	if !long() {
		t.Skip("make chaos runs this")
	}
	seed := number(t, "CHAOS_SEED", int(time.Now().UnixNano()%1_000_000))
	t.Logf("CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	w := newWorld(t)
	w.web = w.start("web")
	second := w.start("web", "FORKYARD_ADDR", freeAddress(t), "FORKYARD_DATA_DIR", t.TempDir())
	all := []*process{w.web, second, w.start("worker"), w.start("worker"), w.start("worker")}
	stop := w.traffic([]*process{w.web, second}, 6)
	for deadline := time.Now().Add(time.Duration(number(t, "CHAOS_MINUTES", 10)) * time.Minute); time.Now().Before(deadline); {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		p := all[rng.IntN(len(all))]
		switch what := rng.IntN(10); {
		case what < 4:
			t.Logf("kill -9 of a %s", p.name)
			p.kill()
			p.restart()
		case what < 6:
			t.Logf("a %s is paused", p.name)
			p.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(1000+rng.IntN(7000)) * time.Millisecond)
			p.signal(syscall.SIGCONT)
		case what < 8:
			t.Logf("SIGTERM to a %s", p.name)
			p.signal(syscall.SIGTERM)
			<-p.exited
			p.restart()
		default:
			t.Log("kill -9 of Redis")
			w.redis.Kill()
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
			w.redis.Restart()
		}
	}
	messages, forks := stop()
	w.calm()
	w.check()
	t.Logf("%d messages and %d forks were taken", messages, forks)
}
