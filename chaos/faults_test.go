package chaos_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// stage is a moment in the life of a run that can be reached for sure.
type stage struct {
	name string
	// task is what the run is told; act is the name of its tool call, key its hold.
	task string
	// reached says whether the run is there; onward lets it go on afterwards.
	reached func(w *world, run, act, key string) bool
	onward  func(w *world, act, key string)
}

var stages = []stage{
	{
		"request sent", "do hold:%[2]s act:%[1]s",
		func(w *world, _, act, key string) bool {
			return w.mind.attempts(fmt.Sprintf("do hold:%[2]s act:%[1]s", act, key)) > 0
		},
		func(w *world, _, key string) { w.mind.let(key) },
	},
	{
		"mid-stream", "do act:%[1]s slow",
		func(w *world, run, act, _ string) bool { return w.acted(act) == 1 && w.run(run)["requests"] == 2.0 },
		func(*world, string, string) {},
	},
	{
		"mid-tool", "do act:%[1]s-hold",
		func(w *world, _, act, _ string) bool { return w.acted(act+"-hold") == 1 },
		func(w *world, act, _ string) { w.release(act + "-hold") },
	},
	{
		"waiting", "do limited act:%[1]s",
		func(w *world, run, _, _ string) bool { return w.state(run) == "waiting" },
		func(*world, string, string) {},
	},
}

// harm is what is done to a process; do says whether it must be started again.
type harm struct {
	name string
	do   func(p *process) (gone bool)
}

// long reports whether the long form is wanted.
func long() bool { return os.Getenv("CHAOS") != "" }

// worth says whether a harm at a stage is part of the form that runs: a pause takes six seconds.
func worth(h harm, s stage) bool {
	return long() || h.name == "kill -9" || s.name == "mid-stream" || s.name == "mid-tool"
}

var harms = []harm{
	{"kill -9", func(p *process) bool { p.kill(); return true }},
	{"SIGSTOP for 6 s", func(p *process) bool {
		p.signal(syscall.SIGSTOP)
		time.Sleep(6 * time.Second) // longer than the 4 s after which others take its runs
		p.signal(syscall.SIGCONT)
		return false
	}},
}

// TestHarmToWorkers: a worker is killed or paused at each stage of a fork, another goes on.
func TestHarmToWorkers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	for _, harm := range harms {
		for _, st := range stages {
			if !worth(harm, st) {
				continue
			}
			t.Run(harm.name+" "+st.name, func(t *testing.T) {
				w.T = t
				victim := w.start("worker")
				act, key := w.act(false), "w"+strings.ReplaceAll(harm.name+st.name, " ", "")
				session := w.session("fork")
				run := w.fork(session, fmt.Sprintf(st.task, act, key))[0]
				w.until(st.name, func() bool { return st.reached(w, run, act, key) })
				other := w.start("worker")
				gone := harm.do(victim)
				st.onward(w, act, key)
				w.ended(run)
				if !gone {
					victim.signal(syscall.SIGTERM)
					<-victim.exited
				}
				other.signal(syscall.SIGTERM)
				<-other.exited
				w.restOf(session)
			})
		}
	}
	w.T = t
	w.check()
}

// restOf waits until nothing of a session runs; what its forks told is read by a turn that needs a worker.
func (w *world) restOf(session string) {
	w.Helper()
	helper := w.start("worker")
	defer func() {
		helper.signal(syscall.SIGTERM)
		<-helper.exited
	}()
	w.until("the session to be idle", func() bool {
		s := w.must(200, "GET", "/sessions/"+session, nil)
		for _, r := range s["runs"].([]any) {
			if r.(object)["ended_at"] == nil {
				return false
			}
		}
		return true
	})
}

// TestHarmToWeb: the dashboard is killed or paused at each stage of a turn in its foreground, and comes back; a worker goes on.
func TestHarmToWeb(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	w.start("worker")
	agent := stage{
		"waiting for an agent", "do agent:act:%[1]s-hold",
		func(w *world, run, act, _ string) bool { return w.acted(act+"-hold") == 1 && w.state(run) == "waiting" },
		func(w *world, act, _ string) { w.release(act + "-hold") },
	}
	for _, harm := range harms {
		for _, st := range append(stages, agent) {
			if !worth(harm, st) {
				continue
			}
			t.Run(harm.name+" "+st.name, func(t *testing.T) {
				w.T = t
				act, key := w.act(false), "web"+strings.ReplaceAll(harm.name+st.name, " ", "")
				mode := "fork"
				if st.name == agent.name {
					mode = "plain"
				}
				session := w.session(mode)
				run := w.say(session, fmt.Sprintf(st.task, act, key))
				w.until(st.name, func() bool { return st.reached(w, run, act, key) })
				if harm.do(w.web) {
					w.web.restart()
				}
				st.onward(w, act, key)
				w.ended(run)
				w.restOf(session)
			})
		}
	}
	w.T = t
	w.check()
}

// TestHarmToParked: the worker of a leader dies while its siblings are parked: they come to their end all the same.
func TestHarmToParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	victim := w.start("worker")
	session := w.session("fork")
	w.ended(w.say(session, "do read"))
	act := w.act(false)
	// The prefix is short, so the gate is asked for.
	o := w.must(202, "POST", "/sessions/"+session+"/forks", object{"gate": "always", "directives": []object{
		{"prompt": "do hold:leader act:" + act}, {"prompt": "do read"}, {"prompt": "do read too"},
	}})
	var runs []string
	for _, r := range o["runs"].([]any) {
		runs = append(runs, r.(object)["id"].(string))
	}
	w.until("the leader's request", func() bool { return w.mind.attempts("do hold:leader act:"+act) > 0 })
	if s := w.state(runs[1]); s != "parked" {
		t.Errorf("a follower is %s, want parked", s)
	}
	w.start("worker")
	victim.kill()
	w.mind.let("leader")
	w.ended(runs...)
	w.restOf(session)
	w.check()
}

// TestHarmToRedis: the database is killed and comes back while a request streams and while a tool runs.
func TestHarmToRedis(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	w.start("worker")
	for _, st := range stages[:3] {
		t.Run(st.name, func(t *testing.T) {
			w.T = t
			fork, turn := w.act(false), w.act(false)
			forkKey, turnKey := "rf"+st.name[:3], "rt"+st.name[:3]
			session, other := w.session("fork"), w.session("fork")
			run := w.fork(session, fmt.Sprintf(st.task, fork, forkKey))[0]
			main := w.say(other, fmt.Sprintf(st.task, turn, turnKey))
			w.until(st.name, func() bool { return st.reached(w, run, fork, forkKey) && st.reached(w, main, turn, turnKey) })
			w.redis.Kill()
			st.onward(w, fork, forkKey)
			st.onward(w, turn, turnKey)
			time.Sleep(2 * time.Second) // work ends while nothing can be written
			w.redis.Restart()
			w.ended(run, main)
			w.restOf(session)
			w.restOf(other)
		})
	}
	w.T = t
	w.check()
}

// cut is a way to Redis that can be cut without a word: connections stay open, and nothing passes.
type cut struct {
	listener net.Listener
	mu       sync.Mutex
	open     chan struct{} // closed while all passes
}

func newCut(t *testing.T, target string) *cut {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cut{listener: l, open: make(chan struct{})}
	close(c.open)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			go c.pass(in, out)
			go c.pass(out, in)
		}
	}()
	return c
}

func (c *cut) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		c.mu.Lock()
		open := c.open
		c.mu.Unlock()
		<-open
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *cut) set(closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if closed {
		c.open = make(chan struct{})
	} else {
		close(c.open)
	}
}

// TestCutNetwork: a worker's way to Redis is cut without a word for longer than others wait for it. What it did meanwhile is not written.
func TestCutNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.web = w.start("web")
	at, err := url.Parse(w.redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := newCut(t, at.Host)
	lonely := w.start("worker", "FORKYARD_REDIS_URL", "redis://"+c.listener.Addr().String()+"/0")
	session := w.session("fork")
	acts := []string{w.act(true), w.act(false)}
	runs := append(w.fork(session, "do act:"+acts[0]), w.fork(session, "do act:"+acts[1]+" slow")...)
	w.until("both at work", func() bool {
		return w.acted(acts[0]) == 1 && w.acted(acts[1]) == 1 && w.run(runs[1])["requests"] == 2.0
	})
	w.start("worker")
	c.set(true)
	w.until("others to take its runs", func() bool {
		q := w.must(200, "GET", "/runs/"+runs[0], nil)
		return q["state"] != "running" || strings.Contains(fmt.Sprint(w.transcriptTypes(runs[0])), "tool_result")
	})
	w.release(acts[0])
	w.ended(runs...)
	c.set(false)
	w.restOf(session)
	lonely.signal(syscall.SIGTERM)
	<-lonely.exited
	w.check()
}

func (w *world) transcriptTypes(run string) (types []string) {
	for _, l := range w.transcript(run) {
		if l.Marker != nil {
			types = append(types, l.Marker.Type)
		}
	}
	return types
}
