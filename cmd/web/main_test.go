package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"forkyard/jobs"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore/redistest"
	"forkyard/modelsim"
)

// TestMainJob walks the whole path over HTTP: the dashboard and a worker
// process on a real Redis, a real repository, five forks.
func TestMainJob(t *testing.T) {
	sim, simURL := simulator(t, modelsim.Options{MessageStartDelay: 50 * time.Millisecond})
	dir := repository(t)
	env := map[string]string{
		"FORKYARD_REDIS_URL": redistest.Start(t), "FORKYARD_WORKSPACES": dir,
		"ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1",
	}
	p := startWeb(t, env)
	startWorker(t, env)

	id := p.session(object{"workspace": dir, "title": "ship"})
	events := p.follow(id)
	turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Survey this repository with five forks."})["run_id"].(string)
	if r := p.ended(turn); r["state"] != "done" {
		t.Fatalf("main turn: %v %v", r["state"], r["reason"])
	}

	var forks []object
	eventually(t, "five forks and the turn that sums up", func() bool {
		forks = nil
		ended := 0
		for _, r := range p.get("/sessions/" + id)["runs"].([]any) {
			r := r.(object)
			if r["kind"] == "fork" {
				forks = append([]object{r}, forks...)
			}
			if r["state"] == "done" {
				ended++
			}
		}
		return len(forks) == 5 && ended == 7
	})
	slicesByIndex(forks)

	t.Run("dispatch to five live runs in under a second", func(t *testing.T) {
		live := map[string]time.Time{}
		var closed time.Time
		for _, f := range events.all(func(f frame) bool { return f.event == "run" || f.event == "gate" }) {
			if f.event == "gate" {
				if closed.IsZero() {
					closed = f.at
				}
				continue
			}
			r, _ := f.data["run"].(object)
			if _, seen := live[f.data["run_id"].(string)]; r["kind"] == "fork" && !seen && (r["state"] == "running" || r["state"] == "parked") {
				live[f.data["run_id"].(string)] = f.at
			}
		}
		if len(live) != 5 {
			t.Fatalf("%d forks were seen running or parked, want 5", len(live))
		}
		for run, at := range live {
			if d := at.Sub(closed); d > time.Second {
				t.Errorf("%s took %v", run, d)
			}
		}
	})

	t.Run("siblings part inside the last text block", func(t *testing.T) {
		a, b := p.body(forks[1], 1), p.body(forks[2], 1)
		at := firstDifference(a, b)
		if last := bytes.LastIndex(a, []byte(`{"type":"text","text":"`)); at < last || at > bytes.LastIndexByte(a, ']') {
			t.Errorf("they part at byte %d; the last text block starts at %d", at, last)
		}
	})

	t.Run("bodies are what the provider received", func(t *testing.T) {
		received := map[string]bool{}
		for _, c := range sim.Requests() {
			received[string(c.Body)] = true
		}
		for _, f := range append(forks, p.get("/runs/"+turn)) {
			n := int(f["requests"].(float64))
			for k := 1; k <= n; k++ {
				if !received[string(p.body(f, k))] {
					t.Errorf("request %d of %v: the provider did not get these bytes", k, f["id"])
				}
			}
		}
	})

	t.Run("every follower reads the whole shared prefix", func(t *testing.T) {
		lead := p.row(forks[0], 1)["usage"].(object)
		shared := lead["cache_read_tokens"].(float64) + lead["cache_creation_5m_tokens"].(float64)
		for _, f := range forks[1:] {
			u := p.row(f, 1)["usage"].(object)
			if u["cache_read_tokens"] != shared || u["cache_creation_5m_tokens"] != 0.0 {
				t.Errorf("fork %v read %v and wrote %v of %v shared tokens", f["index"], u["cache_read_tokens"], u["cache_creation_5m_tokens"], shared)
			}
			if h := f["hit_rate"].(object); h["inherited"] != 1.0 {
				t.Errorf("fork %v: inherited hit rate %v, want 1", f["index"], h["inherited"])
			}
		}
	})

	t.Run("first requests cost the theoretical minimum", func(t *testing.T) {
		var first [][]byte
		for _, f := range forks {
			first = append(first, p.body(f, 1))
		}
		minimum := theoreticalMinimum(t, sim.Requests(), first)
		billed := 0.0
		for _, f := range forks {
			u := p.row(f, 1)["usage"].(object)
			billed += price(u["input_tokens"].(float64), u["cache_creation_5m_tokens"].(float64), u["cache_read_tokens"].(float64))
		}
		if billed > 1.02*minimum || billed < 0.98*minimum {
			t.Errorf("billed %.0f nano-dollars of input, the minimum is %.0f", billed, minimum)
		}
	})

	t.Run("snapshot", func(t *testing.T) {
		sum := forks[0]["snapshot"].(string)
		_, raw := p.raw("GET", "/snapshots/"+sum+"/bytes", nil)
		if got := sha256.Sum256(raw); hex.EncodeToString(got[:]) != sum {
			t.Errorf("the bytes of snapshot %s have another digest", sum)
		}
		if m := p.get("/snapshots/" + sum); m["bytes"] != float64(len(raw)) {
			t.Errorf("manifest says %v bytes, there are %d", m["bytes"], len(raw))
		}
		for _, f := range forks {
			if f["snapshot"] != sum {
				t.Errorf("fork %v has snapshot %v", f["index"], f["snapshot"])
			}
			if plain := unmark(p.body(f, 1)); !bytes.HasPrefix(plain, raw) {
				t.Errorf("fork %v does not start with the snapshot", f["index"])
			}
		}
	})

	t.Run("reports and the summary", func(t *testing.T) {
		for _, f := range forks {
			r, ok := p.get("/runs/" + f["id"].(string))["report"].(object)
			if !ok || len(r["missing"].([]any)) != 0 || r["result"] == "" {
				t.Errorf("fork %v: report %v", f["index"], r)
			}
		}
		lines := p.transcript(turn)
		notices := 0
		for _, l := range lines {
			notices += bytes.Count(l.Message, []byte("<task-notification>"))
		}
		if notices != 5 {
			t.Errorf("%d notifications in the main log, want 5", notices)
		}
		if last := lines[len(lines)-2]; !bytes.Contains(last.Message, []byte(`"role":"assistant"`)) || !bytes.Contains(last.Message, []byte("completed")) {
			t.Errorf("the last message does not sum up: %s", last.Message)
		}
		d := p.get("/dispatches/" + forks[0]["dispatch_id"].(string))
		if d["remaining"] != 0.0 || len(d["runs"].([]any)) != 5 {
			t.Errorf("dispatch: remaining %v, %d runs", d["remaining"], len(d["runs"].([]any)))
		}
	})

	t.Run("a session costs the sum of its runs", func(t *testing.T) {
		s := p.get("/sessions/" + id)
		sum := 0.0
		for _, r := range s["runs"].([]any) {
			sum += r.(object)["cost_nanousd"].(float64)
		}
		if s["cost_nanousd"] != sum || sum == 0 {
			t.Errorf("session %v, runs %v", s["cost_nanousd"], sum)
		}
	})

	t.Run("events are replayed whole", func(t *testing.T) {
		want := events.all(func(f frame) bool { return f.id != "" })
		again := p.follow(id)
		var got []frame
		eventually(t, "the replay", func() bool {
			got = again.all(func(f frame) bool { return f.id != "" })
			return len(got) >= len(want)
		})
		for i := range want {
			if got[i].id != want[i].id || got[i].event != want[i].event {
				t.Fatalf("event %d: %s %s, first time %s %s", i, got[i].id, got[i].event, want[i].id, want[i].event)
			}
		}
	})
}

func slicesByIndex(runs []object) {
	for i := range runs {
		for k := range runs {
			if runs[i]["index"].(float64) < runs[k]["index"].(float64) {
				runs[i], runs[k] = runs[k], runs[i]
			}
		}
	}
}

func (p *program) body(run object, n int) []byte {
	p.t.Helper()
	status, raw := p.raw("GET", fmt.Sprintf("/runs/%s/requests/%d/body", run["id"], n), nil)
	if status != 200 {
		p.t.Fatalf("body %d of %v: %d %s", n, run["id"], status, raw)
	}
	return raw
}

func (p *program) row(run object, n int) object {
	p.t.Helper()
	return p.get(fmt.Sprintf("/runs/%s/requests/%d", run["id"], n))
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return len(a)
}

const mark = `,"cache_control":{"type":"ephemeral"}`

func unmark(body []byte) []byte { return bytes.ReplaceAll(body, []byte(mark), nil) }

// Prices of claude-sonnet-5-5 in nano-dollars a token.
func price(uncached, written, read float64) float64 { return 2000*uncached + 2500*written + 100*read }

// theoreticalMinimum recomputes from captured bodies alone what the first
// requests of a fan-out must cost: what an earlier or leading request wrote is
// read, everything else is written once or paid once.
func theoreticalMinimum(t *testing.T, captured []modelsim.Captured, first [][]byte) float64 {
	t.Helper()
	isFirst := map[string]bool{}
	for _, b := range first {
		isFirst[string(b)] = true
	}
	written := map[string]bool{} // prefixes that earlier requests marked
	var total float64
	for _, c := range captured {
		blocks, marked := positions(t, c.Body)
		if isFirst[string(c.Body)] {
			best, shared := -1, -1
			prefix := ""
			for i, b := range blocks {
				prefix += b + "\x00"
				if written[prefix] {
					best = i
				}
				if marked[i] {
					shared = i
				}
			}
			var read, write, own float64
			for i, b := range blocks {
				tokens := float64((len(b) + 3) / 4)
				switch {
				case i <= best:
					read += tokens
				case i <= shared:
					write += tokens
				default:
					own += tokens
				}
			}
			total += price(own, write, read)
		}
		prefix := ""
		for i, b := range blocks {
			prefix += b + "\x00"
			if marked[i] {
				written[prefix] = true
			}
		}
	}
	return total
}

// positions lists the blocks of a body in the order of the cache (tools,
// system, messages), without marks, and says which were marked.
func positions(t *testing.T, body []byte) (blocks []string, marked map[int]bool) {
	t.Helper()
	var r struct {
		Tools    []json.RawMessage
		System   []json.RawMessage
		Messages []struct{ Content []json.RawMessage }
	}
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	all := append(r.Tools, r.System...)
	for _, m := range r.Messages {
		all = append(all, m.Content...)
	}
	marked = map[int]bool{}
	for i, b := range all {
		marked[i] = bytes.Contains(b, []byte(mark))
		blocks = append(blocks, string(unmark(b)))
	}
	return blocks, marked
}

// TestForksWaitInTheQueue proves that forks go through asynq: without a worker their
// tokens are in Redis and they stay queued.
func TestForksWaitInTheQueue(t *testing.T) {
	_, simURL := simulator(t, modelsim.Options{})
	dir, url := repository(t), redistest.Start(t)
	env := map[string]string{
		"FORKYARD_REDIS_URL": url, "FORKYARD_WORKSPACES": dir, "ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim",
	}
	p := startWeb(t, env)
	id := p.session(object{"workspace": dir})
	d := p.must(202, "POST", "/sessions/"+id+"/forks", object{"gate": "off", "directives": []object{{"prompt": "Count the files."}, {"prompt": "Read the README."}}})
	run := d["runs"].([]any)[0].(object)["id"].(string)

	opt, err := asynq.ParseRedisURI(url)
	if err != nil {
		t.Fatal(err)
	}
	inspector := asynq.NewInspector(opt)
	defer inspector.Close()
	queue, err := inspector.GetQueueInfo(jobs.QueueOf(engine.PoolOf(dir)))
	if err != nil {
		t.Fatalf("the queue of the workspace: %v", err)
	}
	if queue.Pending < 2 {
		t.Errorf("%d tokens wait for 2 forks", queue.Pending)
	}
	if r := p.get("/runs/" + run); r["state"] != "queued" {
		t.Errorf("the fork is %v, want queued", r["state"])
	}
	startWorker(t, env)
	if r := p.ended(run); r["state"] != "done" {
		t.Errorf("with a worker the fork ended %v %v", r["state"], r["reason"])
	}
}

// TestTurnMovesToAWorker: a main turn that takes longer than its limit goes on
// in a worker under the same run id.
func TestTurnMovesToAWorker(t *testing.T) {
	mind := modelsim.MindFunc(func(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		if n := len(r.Messages); n < 5 {
			return modelsim.Reply{Delay: 400 * time.Millisecond, Blocks: []modelsim.Block{modelsim.ToolUseBlock("", "Glob", `{"pattern":"*"}`)}}, nil
		}
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("done looking")}}, nil
	})
	sim, simURL := simulator(t, modelsim.Options{Mind: mind})
	dir := repository(t)
	env := map[string]string{
		"FORKYARD_REDIS_URL": redistest.Start(t), "FORKYARD_WORKSPACES": dir, "ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim",
	}
	p := startWeb(t, env)
	startWorker(t, env)
	for _, mode := range []string{"fork", "plain", "coordinator"} {
		t.Run(mode, func(t *testing.T) {
			before := len(sim.Requests())
			id := p.session(object{"workspace": dir, "mode": mode, "auto_background_seconds": 0.2})
			run := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "look around"})["run_id"].(string)
			r := p.ended(run)
			if r["state"] != "done" || r["background"] != true || r["requests"] != 3.0 {
				t.Errorf("run: state %v, background %v, %v requests; want done, true, 3", r["state"], r["background"], r["requests"])
			}
			moved := 0
			for _, l := range p.transcript(run) {
				if l.Marker["type"] == "background" {
					moved++
				}
			}
			if moved != 1 {
				t.Errorf("%d background markers, want 1", moved)
			}
			if n := len(sim.Requests()) - before; n != 3 {
				t.Errorf("the provider got %d requests, want 3", n)
			}
		})
	}
}

// TestKilledWorker: kill -9 of a worker in the middle of a tool call. The run
// finishes on another worker, and nothing happened twice.
func TestKilledWorker(t *testing.T) {
	mind := modelsim.MindFunc(func(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		if !bytes.Contains(r.Raw, []byte("<fork-boilerplate>")) {
			return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("noted")}}, nil
		}
		if len(r.Messages) == 1 {
			return modelsim.Reply{Blocks: []modelsim.Block{modelsim.ToolUseBlock("", "Bash", `{"command":"echo started >> acted; sleep 60; echo late >> acted"}`)}}, nil
		}
		last := r.Messages[len(r.Messages)-1].Blocks
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("Scope: act\nResult: " + fmt.Sprint(len(last)) + " results\nKey files: acted\nFiles changed: acted\nIssues: none")}}, nil
	})
	_, simURL := simulator(t, modelsim.Options{Mind: mind})
	dir := repository(t)
	env := map[string]string{
		"FORKYARD_REDIS_URL": redistest.Start(t), "FORKYARD_WORKSPACES": dir, "ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim",
	}
	p := startWeb(t, env)
	first := startWorker(t, env)
	id := p.session(object{"workspace": dir, "permission_mode": "bypassPermissions"})
	d := p.must(202, "POST", "/sessions/"+id+"/forks", object{"directives": []object{{"prompt": "Act."}}})
	run := d["runs"].([]any)[0].(object)["id"].(string)
	acted := filepath.Join(dir, "acted")
	eventually(t, "the tool to act", func() bool { _, err := os.Stat(acted); return err == nil })

	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	startWorker(t, env)
	r := p.ended(run)
	t.Logf("ended %v after the kill", time.Since(killed).Round(time.Millisecond))
	if r["state"] != "done" {
		t.Errorf("run: %v %v", r["state"], r["reason"])
	}
	if text, _ := os.ReadFile(acted); string(text) != "started\n" {
		t.Errorf("the command's file holds %q, want one line", text)
	}
	if r["requests"] != 2.0 {
		t.Errorf("the run made %v requests, want 2", r["requests"])
	}
	unknown, results := 0, 0
	for _, l := range p.transcript(run) {
		if l.Kind == "message" {
			unknown += bytes.Count(l.Message, []byte("outcome unknown"))
			results += bytes.Count(l.Message, []byte(`"type":"tool_result"`))
		}
	}
	if unknown != 1 || results != 1 {
		t.Errorf("%d results of which %d say outcome unknown, want 1 and 1", results, unknown)
	}
}
