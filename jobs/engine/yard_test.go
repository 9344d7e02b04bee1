package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/engine/memstore"
)

// yard is one session with an engine, a store in memory, a scripted model and fake tools.
type yard struct {
	*testing.T
	ctx     context.Context
	store   *memstore.Store
	model   *scripted
	tools   *fakeTools
	queue   *queue
	engine  *engine.Engine
	stop    func()
	options engine.Options
	session forkcore.Session
}

// newYard must be called inside a synctest bubble. By default a turn never leaves the foreground by itself.
func newYard(t *testing.T, answer func(call) reply, set ...func(*engine.Options)) *yard {
	t.Helper()
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{T: t, ctx: t.Context(), store: memstore.New(), tools: &fakeTools{}, queue: &queue{}}
	y.model = newScripted(t, answer)
	y.options = engine.Options{
		Store: y.store, Model: y.model, Tools: y.tools, Enqueuer: y.queue, Catalogue: catalogue,
		Workspaces: []string{root}, Gate: forkcore.GateAlways,
	}
	for _, f := range set {
		f(&y.options)
	}
	y.engine, y.stop = y.start(y.options)
	y.queue.executor(y.engine)
	y.session = y.newSession(forkcore.SessionSpec{})
	return y
}

// start makes a further engine; it is drained and stopped at the end of the test.
func (y *yard) start(o engine.Options) (e *engine.Engine, stop func()) {
	y.Helper()
	e, err := engine.New(o)
	if err != nil {
		y.Fatal(err)
	}
	end, err := e.Start(y.ctx)
	if err != nil {
		y.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		e.Drain(0)
		end()
	})
	y.Cleanup(stop)
	return e, stop
}

func (y *yard) newSession(spec forkcore.SessionSpec) forkcore.Session {
	y.Helper()
	if spec.Workspace == "" {
		spec.Workspace = y.options.Workspaces[0]
	}
	s, _, err := y.engine.CreateSession(y.ctx, spec, "")
	if err != nil {
		y.Fatal(err)
	}
	return s
}

// send gives the session a message and returns the run that gets it.
func (y *yard) send(text string) string {
	y.Helper()
	id, err := y.engine.SendMessage(y.ctx, y.session.ID, text, "")
	if err != nil {
		y.Fatalf("send %q: %v", text, err)
	}
	return id
}

// ask sends a message and waits for the turn's end.
func (y *yard) ask(text string) forkcore.Run {
	y.Helper()
	return y.ended(y.send(text))
}

func (y *yard) run(id string) forkcore.Run {
	y.Helper()
	r, err := y.store.Run(y.ctx, id)
	if err != nil {
		y.Fatal(err)
	}
	return r
}

// ended waits for a run's end.
func (y *yard) ended(id string) forkcore.Run {
	y.Helper()
	y.until("the end of run "+id, func() bool { return y.run(id).State.Ended() })
	return y.run(id)
}

// until lets the fake clock run until done is true.
func (y *yard) until(what string, done func() bool) {
	y.Helper()
	for start := time.Now(); ; {
		synctest.Wait()
		if done() {
			return
		}
		switch waited := time.Since(start); {
		case waited < 2*time.Second:
			time.Sleep(5 * time.Millisecond)
		case waited < 10*time.Minute:
			time.Sleep(50 * time.Millisecond)
		case waited < 2*time.Hour:
			time.Sleep(time.Second)
		default:
			y.Fatalf("%s did not happen within two hours; runs: %s", what, y.states())
		}
	}
}

// idle waits until no run of the session is left.
func (y *yard) idle() {
	y.Helper()
	y.until("an idle session", func() bool { return y.sessionNow().ActiveRuns == 0 })
}

func (y *yard) sessionNow() forkcore.Session {
	y.Helper()
	s, err := y.store.Session(y.ctx, y.session.ID)
	if err != nil {
		y.Fatal(err)
	}
	return s
}

// runs lists the session's runs, oldest first.
func (y *yard) runs() []forkcore.Run {
	y.Helper()
	list, _, err := y.store.RunsOf(y.ctx, y.session.ID, "", 0)
	if err != nil {
		y.Fatal(err)
	}
	slices.Reverse(list)
	return list
}

// states names the runs' states, oldest first: "main:done fork:parked".
func (y *yard) states() string {
	y.Helper()
	var s []string
	for _, r := range y.runs() {
		s = append(s, fmt.Sprintf("%s:%s", r.Kind, r.State))
	}
	return strings.Join(s, " ")
}

func (y *yard) forks() (list []forkcore.Run) {
	y.Helper()
	for _, r := range y.runs() {
		if r.Kind == forkcore.KindFork {
			list = append(list, r)
		}
	}
	return list
}

func (y *yard) dispatch(id string) forkcore.Dispatch {
	y.Helper()
	d, err := y.store.Dispatch(y.ctx, id)
	if err != nil {
		y.Fatal(err)
	}
	return d
}

// log names the entries of a log: role of a message, type of a marker with its tool.
func (y *yard) log(agent string) string {
	y.Helper()
	var s []string
	for _, e := range y.entries(agent) {
		switch {
		case e.Fragment:
			s = append(s, "directive")
		case e.Marker == nil:
			s = append(s, string(y.message(e).Role))
		case e.Marker.Name != "":
			s = append(s, string(e.Marker.Type)+":"+e.Marker.Name)
		default:
			s = append(s, string(e.Marker.Type))
		}
	}
	return strings.Join(s, " ")
}

func (y *yard) entries(agent string) []forkcore.Entry {
	y.Helper()
	entries, err := y.store.Log(y.ctx, y.session.ID, agent, 0, 0)
	if err != nil {
		y.Fatal(err)
	}
	return entries
}

func (y *yard) message(e forkcore.Entry) forkcore.Message {
	y.Helper()
	m, err := forkcore.ParseMessage(e.Bytes)
	if err != nil {
		y.Fatal(err)
	}
	return m
}

func (y *yard) requests(run string) []forkcore.RequestRow {
	y.Helper()
	rows, err := y.store.Requests(y.ctx, run)
	if err != nil {
		y.Fatal(err)
	}
	return rows
}

// statuses are the statuses of a run's requests.
func (y *yard) statuses(run string) string {
	y.Helper()
	var s []string
	for _, row := range y.requests(run) {
		s = append(s, string(row.Status))
	}
	return strings.Join(s, " ")
}

func (y *yard) wantReason(r forkcore.Run, state forkcore.State, code string) {
	y.Helper()
	if r.State != state || r.Reason == nil || r.Reason.Code != code || r.Reason.Message == "" || r.Reason.NextStep == "" {
		y.Errorf("run ended as %s with reason %+v, want %s with code %s, a message and a next step", r.State, r.Reason, state, code)
	}
}

// wantBodies checks that every request of every run can be rebuilt to the very bytes that were received.
func (y *yard) wantBodies() {
	y.Helper()
	sent := map[forkcore.Digest]bool{}
	for _, c := range y.model.received() {
		sent[forkcore.DigestOf(c.body)] = true
	}
	for _, r := range y.runs() {
		for _, row := range y.requests(r.ID) {
			body, err := y.engine.RequestBody(y.ctx, r.ID, row.N)
			if err != nil {
				y.Errorf("rebuild request %d of %s run: %v", row.N, r.Kind, err)
			} else if !sent[forkcore.DigestOf(body)] {
				y.Errorf("request %d of %s run: rebuilt bytes were never received", row.N, r.Kind)
			}
		}
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// queue is a ready-list whose worker is an engine in this process.
type queue struct {
	mu     sync.Mutex
	worker *engine.Engine
	closed bool // wakes are noted only
	wakes  []engine.Wake
}

func (q *queue) executor(e *engine.Engine) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.worker = e
}

// hold lets nothing out any more.
func (q *queue) hold() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

func (q *queue) Enqueue(ctx context.Context, wakes ...engine.Wake) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakes = append(q.wakes, wakes...)
	for _, w := range wakes {
		if e := q.worker; e != nil && !q.closed {
			go func() { _ = e.Execute(context.WithoutCancel(ctx), w) }()
		}
	}
	return nil
}

func (q *queue) noted() []engine.Wake {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.wakes)
}

// fakeTools has two tools that read (Read, Grep) and two that act (Write, Bash).
type fakeTools struct {
	// do gives the results; nil: the result is the input.
	do func(ctx context.Context, c forkcore.ToolCall) forkcore.ToolResult

	mu     sync.Mutex
	ran    []toolRun
	open   int
	widest int // most tools at a time
}

type toolRun struct {
	name, id  string
	at, ended time.Time
}

func (f *fakeTools) Specs() []forkcore.ToolSpec {
	var specs []forkcore.ToolSpec
	for _, name := range []string{"Read", "Grep", "Write", "Bash"} {
		specs = append(specs, forkcore.ToolSpec{
			Name: name, Description: "the tool " + name, InputSchema: json.RawMessage(`{"type":"object"}`), ReadOnly: f.ReadOnly(name),
		})
	}
	return specs
}

func (f *fakeTools) ReadOnly(name string) bool { return name == "Read" || name == "Grep" }

func (f *fakeTools) Run(ctx context.Context, _ string, _ forkcore.PermissionMode, c forkcore.ToolCall) forkcore.ToolResult {
	f.mu.Lock()
	f.open++
	f.widest = max(f.widest, f.open)
	i := len(f.ran)
	f.ran = append(f.ran, toolRun{name: c.Name, id: c.ID, at: time.Now()})
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
		f.ran[i].ended = time.Now()
	}()
	if f.do != nil {
		return f.do(ctx, c)
	}
	return forkcore.ToolResult{Text: "result of " + string(c.Input)}
}

func (f *fakeTools) runs() []toolRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ran)
}

// times counts the executions of a tool call.
func (f *fakeTools) times(id string) (n int) {
	for _, r := range f.runs() {
		if r.id == id {
			n++
		}
	}
	return n
}
