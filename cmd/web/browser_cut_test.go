package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/jobs/redisstore/redistest"
	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// heldMind is a model whose forks work until they are told to finish, and that can be held: then no answer begins.
type heldMind struct {
	mu     sync.Mutex
	moved  *sync.Cond
	held   bool
	finish bool
	wait   int // answers that are held
}

func newHeldMind() *heldMind {
	m := &heldMind{}
	m.moved = sync.NewCond(&m.mu)
	return m
}

func (m *heldMind) hold(yes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = yes
	m.moved.Broadcast()
}

func (m *heldMind) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.finish = false, true
	m.moved.Broadcast()
}

// holding is how many answers wait.
func (m *heldMind) holding() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wait
}

func (m *heldMind) Reply(ctx context.Context, r *modelsim.Request) (modelsim.Reply, error) {
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.moved.Broadcast()
	})
	defer stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wait++
	for m.held && ctx.Err() == nil {
		m.moved.Wait()
	}
	m.wait--
	switch {
	case ctx.Err() != nil:
		return modelsim.Reply{}, ctx.Err()
	case !strings.Contains(string(r.Raw), "<fork-boilerplate>"):
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("All forks have reported.")}}, nil
	case m.finish:
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("Scope: look\nResult: looked\nKey files: README.md\nFiles changed: none\nIssues: none")}}, nil
	}
	return modelsim.Reply{Blocks: []modelsim.Block{
		modelsim.TextBlock(fmt.Sprintf("Step %d: %s", len(r.Messages), strings.Repeat("looking on, ", 20))),
		modelsim.ToolUseBlock("", "Glob", fmt.Sprintf(`{"pattern":"*%d.go"}`, len(r.Messages))), // one call over and over would be a loop
	}}, nil
}

// differs is an expression that says where the live parts of a page differ from a fresh load of it; "" when they do not.
// What ticks, and what the reader or htmx did to the page, is left out.
const differs = `(async () => {
	const plain = (root) => {
		root = root.cloneNode(true);
		for (const e of root.querySelectorAll("time")) { e.textContent = ""; e.removeAttribute("title"); }
		for (const e of root.querySelectorAll("#composer, #announcer")) e.remove();
		const lines = [];
		const walk = (node, depth) => {
			if (node.nodeType === Node.TEXT_NODE) {
				const text = node.data.replace(/\s+/g, " ").trim();
				if (text) lines.push(" ".repeat(depth) + text);
				return;
			}
			if (node.nodeType !== Node.ELEMENT_NODE) return;
			const attributes = Array.from(node.attributes).filter((a) => !(a.name === "open" && node.localName === "details") && !a.name.startsWith("data-htmx-"))
				.map((a) => a.name === "class" ? "class=" + a.value.split(/\s+/).filter((c) => c && !c.startsWith("htmx-")).sort().join(" ") : a.name + "=" + a.value).sort();
			lines.push(" ".repeat(depth) + node.localName + " " + attributes.join(" "));
			for (const child of node.childNodes) walk(child, depth + 1);
		};
		walk(root, 0);
		return lines;
	};
	const twice = Array.from(document.querySelectorAll("[id]")).map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i);
	if (twice.length) return "ids that are there twice: " + twice.join(" ");
	let answer; // without one of its own accord a test would only be told that its time is over
	try {
		answer = await fetch(location.href, {cache: "no-store", signal: AbortSignal.timeout(20_000)});
	} catch (e) {
		return "a fresh load fails: " + e;
	}
	if (!answer.ok) return "a fresh load is answered with " + answer.status;
	const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
	const have = plain(document.querySelector("main")), want = plain(fresh.querySelector("main"));
	for (let i = 0; i < Math.max(have.length, want.length); i++) {
		if (have[i] !== want[i]) return "line " + i + ": the page has\n" + have.slice(Math.max(0, i - 3), i + 5).join("\n") + "\na fresh load has\n" + want.slice(Math.max(0, i - 3), i + 5).join("\n");
	}
	return "";
})()`

// isFresh waits until a page equals a fresh load of it. Nothing may happen on the server meanwhile.
func isFresh(t *testing.T, tab *browsertest.Tab, when string) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(30 * time.Millisecond) {
		if last = browsertest.Eval[string](tab, differs); last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s the page does not become what a fresh load shows: %s", when, last)
		}
	}
}

// TestCutStreams: 50 streams are cut during a fan-out, by a proxy that closes, a proxy that resets, a proxy that answers
// 503 for a while and a server that is started again. After each the page shows what a fresh load shows.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	const tabs, rounds, forks = 5, 10, 3
	mind := newHeldMind()
	_, simURL := simulator(t, modelsim.Options{Mind: mind, DeltaDelay: 5 * time.Millisecond})
	dir, back := repository(t), freeAddress(t)
	front := newFrontProxy(t, back)
	env := map[string]string{
		"FORKYARD_ADDR": back, "FORKYARD_PUBLIC_URL": front.url,
		"FORKYARD_REDIS_URL": redistest.Start(t), "FORKYARD_WORKSPACES": dir,
		"ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1",
	}
	p := startWeb(t, env)
	startWorker(t, env)
	t.Cleanup(mind.end) // before the worker is told to end, which waits for its runs
	p.base = "http://" + back
	id := p.fanOut(dir, forks)

	signedIn := *p
	signedIn.base = front.url
	pages := []*browsertest.Tab{signedIn.signIn("/sessions/" + id)}
	for len(pages) < tabs {
		tab := pages[0].Window()
		tab.Open(front.url + "/sessions/" + id)
		pages = append(pages, tab)
	}
	for _, tab := range pages {
		tab.Tolerate(`/live.*(net::ERR_|status 50[23])`) // what this test is about
		tab.Tolerate(`status 502`)                       // while the server starts again
		tab.Tolerate(`htmx.*|console.error: .*(fetch|network|SSE)`)
		tab.Wait("three cards", `document.querySelectorAll("article.fork").length === 3`)
	}
	streams := func(n int) func() bool { return func() bool { return front.open() == n } }
	eventually(t, "a stream of each tab", streams(tabs))

	cuts := 0
	for round := range rounds {
		mind.hold(false)
		before := browsertest.Eval[string](pages[0], `document.querySelector("main").textContent`)
		pages[0].Wait("something new", `document.querySelector("main").textContent !== `+browsertest.Quote(before))
		var what string
		switch round % 4 {
		case 0:
			what = "after the proxy closed"
			cuts += front.cut(false)
		case 1:
			what = "after the proxy reset"
			cuts += front.cut(true)
		case 2:
			what = "after the proxy closed and answered 503"
			front.refusing(true)
			cuts += front.cut(true)
			pages[0].Wait("the notice that it is stale", `!document.getElementById("stale").hidden`)
			front.refusing(false)
		case 3:
			what = "after the server was started again"
			cuts += front.open()
			p.stop()
			again := startWeb(t, env)
			p.stop = again.stop
		}
		mind.hold(true)
		eventually(t, "every fork to be held "+what, func() bool { return mind.holding() == forks })
		eventually(t, "a stream of each tab, again", streams(tabs))
		for _, tab := range pages {
			isFresh(t, tab, what)
			tab.Wait("the notice to go", `document.getElementById("stale").hidden`)
		}
	}
	if cuts != tabs*rounds {
		t.Errorf("%d streams were cut, want %d", cuts, tabs*rounds)
	}

	mind.end()
	for _, r := range p.get("/sessions/" + id)["runs"].([]any) {
		p.ended(r.(object)["id"].(string))
	}
	eventually(t, "the turn that sums up", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == forks+2 && s["active_run_id"] == nil
	})
	for _, tab := range pages {
		isFresh(t, tab, "at the end")
		if n := tab.Count(`article.fork[data-state="done"]`); n != forks {
			t.Errorf("%d cards are done, want %d", n, forks)
		}
	}
}

// TestSlowStreams: a tab never waits for the answer to more than one stream, and for none once it is hidden or shows
// another page. A browser opens six connections to a host over HTTP/1.1: each that is lost is missed by all tabs.
func TestSlowStreams(t *testing.T) {
	t.Parallel()
	p, signedIn, front, page := startBehindProxy(t)
	tab := signedIn.signIn("/sessions/new") // has no stream
	tab.Tolerate(`/live.*net::ERR_|htmx.*`) // one is cut
	other := tab.Beside()
	tab.Front()
	held := func(n int) func() bool { return func() bool { return front.holding() == n } }
	open := func(n int) func() bool { return func() bool { return front.open() == n } }
	hideAndShow := func() {
		t.Helper()
		other.Front()
		tab.Wait("being hidden", `document.visibilityState === "hidden"`)
		eventually(t, "a hidden tab to give up what it waits for", held(0))
		tab.Front()
		eventually(t, "a visible tab to ask again", held(1))
	}

	t.Log("the first answer is late")
	release := front.holdAll("/live")
	t.Cleanup(func() { release() })
	tab.Open(front.url + page)
	eventually(t, "the page to ask for its stream", held(1))
	tab.Wait("the answer to be late", "performance.now() > 2500")
	tab.Run(`dispatchEvent(new Event("online"))`)
	hideAndShow()
	tab.Run(`dispatchEvent(new Event("online"))`)
	release()
	eventually(t, "the stream", open(1))

	t.Log("the answer after a cut is late")
	release = front.holdAll("/live")
	front.cut(true)
	eventually(t, "the page to ask for its stream", held(1))
	hideAndShow()
	tab.Open(front.url + "/sessions/new")
	eventually(t, "a page that is left to give up what it waits for", held(0))
	tab.Run("history.back()")
	eventually(t, "the page to ask for its stream", held(1))
	release()
	eventually(t, "the stream", open(1))

	p.ended(p.must(202, "POST", page+"/messages", object{"text": "Is anybody there?"})["run_id"].(string))
	tab.Wait("the message", `document.querySelector("#log").innerText.includes("Is anybody there?")`)
	isFresh(t, tab, "after all that")
	eventually(t, "one stream", open(1))
}

// TestSlowScripts: a page is live as soon as its scripts are there, however late each of them comes.
func TestSlowScripts(t *testing.T) {
	t.Parallel()
	p, signedIn, front, page := startBehindProxy(t)
	tab := signedIn.signIn("/sessions/new") // has no stream
	for _, script := range []string{"htmx.min.js", "hx-sse.min.js", "app.js", "live.js"} {
		release := front.holdAll(script)
		t.Cleanup(release)
		go func() { // opening it takes until its scripts are there
			for front.holding() == 0 && t.Context().Err() == nil {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(500 * time.Millisecond) // what the page begins without the script is begun by then
			release()
		}()
		tab.Open(front.url + page)
		began := time.Now()
		eventually(t, "a stream", func() bool { return front.open() == 1 })
		if took := time.Since(began); took > 15*time.Second { // 25 s is when a page looks for a stream that broke off unnoticed
			t.Errorf("with a late %s the stream came after %v", script, took)
		}
		p.ended(p.must(202, "POST", page+"/messages", object{"text": "after " + script})["run_id"].(string))
		tab.Wait("the message", `document.querySelector("#log").innerText.includes("after `+script+`")`)
		tab.Open(front.url + "/sessions/new")
	}
}

// TestManyWindows: with more windows side by side than a browser opens connections, each is up to date within seconds, and
// a click in any of them gets through.
func TestManyWindows(t *testing.T) {
	t.Parallel()
	p, signedIn, front, page := startBehindProxy(t)
	tabs := []*browsertest.Tab{signedIn.signIn(page)}
	for range 6 {
		tab := tabs[0].Window()
		tab.Open(front.url + page)
		tabs = append(tabs, tab)
	}
	for i, tab := range tabs {
		tab.Wait("being visible", `document.visibilityState === "visible"`)
		if i%3 != 0 {
			continue
		}
		text := fmt.Sprintf("hello from window %d", i+1)
		tab.Fill("#message", text)
		tab.Press("Enter")
		for _, other := range tabs {
			other.Wait("the message "+text, `document.querySelector("#log").innerText.includes(`+browsertest.Quote(text)+`)`)
		}
	}
	eventually(t, "the last turn to end", func() bool { return p.get(page)["active_run_id"] == nil })
	for _, tab := range tabs {
		isFresh(t, tab, "at the end")
		if browsertest.Eval[bool](tab, `!document.getElementById("stale").hidden`) {
			t.Error("a window says that it is not up to date")
		}
	}
	// The windows beyond five ask every few seconds, and one of them may be answered right now; a sixth stream would stay.
	eventually(t, "five streams at most to be open", func() bool { return front.open() <= 5 })
}

// startBehindProxy boots the program with a session behind a proxy: p is asked directly, signedIn is what browsers see.
func startBehindProxy(t *testing.T) (p, signedIn *program, front *frontProxy, page string) {
	t.Helper()
	back := freeAddress(t)
	front = newFrontProxy(t, back)
	signedIn = startDemo(t, modelsim.Options{Mind: newHeldMind()}, map[string]string{"FORKYARD_ADDR": back, "FORKYARD_PUBLIC_URL": front.url})
	signedIn.base = front.url
	direct := *signedIn
	direct.base = "http://" + back
	return &direct, signedIn, front, "/sessions/" + direct.session(object{"workspace": direct.workspace()})
}

// fanOut starts a session with a turn in a folder and dispatches forks from it.
func (p *program) fanOut(workspace string, forks int) (sessionID string) {
	p.t.Helper()
	id := p.session(object{"workspace": workspace, "title": "Look around"})
	p.ended(p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Get to know this."})["run_id"].(string))
	var directives []object
	for i := range forks {
		directives = append(directives, object{"prompt": fmt.Sprintf("Look at part %d.", i+1)})
	}
	p.must(202, "POST", "/sessions/"+id+"/forks", object{"gate": "off", "directives": directives})
	return id
}

// startHeldFanOut boots the program with forks that are held in the middle of their work.
func startHeldFanOut(t *testing.T, mind *heldMind, forks int) (p *program, sessionID string) {
	t.Helper()
	p = startDemo(t, modelsim.Options{Mind: mind, DeltaDelay: 5 * time.Millisecond}, nil)
	t.Cleanup(mind.end)
	id := p.fanOut(p.workspace(), forks)
	mind.hold(true)
	eventually(t, "every fork to be held", func() bool { return mind.holding() == forks })
	return p, id
}
