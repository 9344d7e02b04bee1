package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// staggered is the built-in mind whose forks stop on their way until they are let go: the first two get through, the others
// are held at different steps, so that a page can be looked at while all kinds of forks are on it.
type staggered struct {
	release chan struct{}
	mu      sync.Mutex
	order   map[string]int // forks by directive
	steps   map[string]int
	waiting int
}

func (s *staggered) Reply(ctx context.Context, r *modelsim.Request) (modelsim.Reply, error) {
	if _, directive, ok := strings.Cut(string(r.Raw), "</fork-boilerplate>"); ok {
		_, directive, _ = strings.Cut(directive, `"text":"`) // the block after the rules
		directive, _, _ = strings.Cut(directive, `"`)
		s.mu.Lock()
		if _, known := s.order[directive]; !known {
			s.order[directive] = len(s.order)
		}
		s.steps[directive]++
		held := s.order[directive] >= 2 && s.steps[directive] >= s.order[directive]-1
		if held {
			s.waiting++
		}
		s.mu.Unlock()
		if held {
			select {
			case <-s.release:
			case <-ctx.Done():
				return modelsim.Reply{}, ctx.Err()
			}
		}
	}
	return modelsim.Player().Reply(ctx, r)
}

// held is how many forks were stopped on their way.
func (s *staggered) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// TestPages looks at every page, in light, in dark and on a phone: nothing that axe-core calls serious, nothing that scrolls
// sideways, no complaint of the browser. With FORKYARD_SCREENSHOTS=folder it keeps what it saw (make screenshots).
func TestPages(t *testing.T) {
	t.Parallel()
	mind := &staggered{release: make(chan struct{}), order: map[string]int{}, steps: map[string]int{}}
	letGo := sync.OnceFunc(func() { close(mind.release) })
	t.Cleanup(letGo)
	shots := os.Getenv("FORKYARD_SCREENSHOTS")
	env := map[string]string{}
	if shots != "" {
		// A path to show, rather than the odd one of a test.
		env["FORKYARD_DATA_DIR"] = filepath.Join(os.TempDir(), "forkyard")
		t.Cleanup(func() { os.RemoveAll(env["FORKYARD_DATA_DIR"]) })
	}
	_, sim := simulator(t, modelsim.Options{Mind: mind, MessageStartDelay: 100 * time.Millisecond, DeltaDelay: 3 * time.Millisecond})
	env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_API_KEY"], env["FORKYARD_SIMULATED"] = sim, "sim", "1"
	p := startWeb(t, env)
	tab := p.signIn("/")
	look := func(name, path string) {
		t.Helper()
		if path != "" {
			tab.Open(p.base + path)
		}
		looked(t, tab, name, shots)
	}

	look("first-page", "/")
	tab.Size(1280, 800)
	tab.Click(`form[action="/sample"] button`, "")
	tab.Wait("the session", `location.pathname.startsWith("/sessions/ses_")`)
	session := browsertest.Eval[string](tab, "location.pathname")
	tab.Wait("forks of all kinds", `document.querySelectorAll("article.fork").length === 5 && document.querySelectorAll('article.fork[data-state="done"]').length === 2`)
	eventually(t, "three forks to be held", func() bool { return mind.held() == 3 })
	look("fan-out-running", session)
	letGo()
	tab.Wait("what the fan-out came to", `document.querySelectorAll(".fan-out-result > p").length === 3`)
	eventually(t, "the turn that sums up", func() bool {
		s := p.get(session)
		return len(s["runs"].([]any)) == 7 && s["active_run_id"] == nil
	})
	look("fan-out-done", session)
	look("dispatch", session+"/dispatch")
	look("new-session", "/sessions/new")
	p.session(object{"workspace": p.workspace(), "title": "Where do timeouts come from?"})
	look("sessions", "/")
	look("models", "/models")
	p.must(202, "POST", "/sessions/"+p.session(object{"workspace": p.workspace(), "title": "Long ago"})+"/archive", nil)
	tab.Open(p.base + "/storage")
	tab.Has("table", "Open again")
	look("storage", "")
	tab.Open(p.base + "/queue")
	tab.Click("button", "Pause everything")
	tab.Has("#queue", "Nothing new starts since")
	look("queue", "")
	tab.Click("button", "Start again")
	tab.Has("button", "Pause everything")
	tab.Open(p.base + "/provider")
	tab.Click("button", "Check with a cache probe")
	tab.Has("#provider-result", "tokens, 100")
	look("provider", "")

	var forks []string
	for _, r := range p.get(session)["runs"].([]any) {
		if r := r.(object); r["kind"] == "fork" {
			forks = append(forks, r["id"].(string))
		}
	}
	look("run", "/runs/"+forks[0])
	look("request", "/runs/"+forks[0]+"/requests/2")
	look("checks", "/checks")
	allowKey(t, sim, "sim", false)
	waiting := p.must(202, "POST", session+"/forks", object{"directives": []any{object{"prompt": "List what changed."}, object{"prompt": "List what is left."}}})["runs"].([]any)
	eventually(t, "the forks to wait for a key", func() bool {
		return p.get("/provider")["waiting"] == float64(len(waiting))
	})
	look("key-refused", session)
	allowKey(t, sim, "sim", true)
	tab.Open(p.base + "/provider")
	tab.Click("button", "Check with a cache probe")
	tab.Wait("the banner to go", `document.querySelector("#provider-banner").textContent.trim() === ""`)
	for _, r := range waiting {
		p.ended(r.(object)["id"].(string))
	}
	look("compare", "/compare?a="+forks[0]+":1&b="+forks[1]+":1")
	tab.Tolerate("/nowhere: status 404")
	look("", "/sessions/nowhere")
}

// looked checks the page that a tab shows. A page without a name is in no picture.
func looked(t *testing.T, tab *browsertest.Tab, name, shots string) {
	t.Helper()
	shoot := func(kind string) {
		if shots == "" || name == "" {
			return
		}
		picture := tab.Screenshot()
		if len(picture) > 300<<10 {
			t.Errorf("%s-%s.png has %d bytes, want 300 KB at most", name, kind, len(picture))
		}
		if err := os.MkdirAll(shots, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(shots, name+"-"+kind+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tab.Run(`document.activeElement?.blur(); scrollTo(0, 0)`)
	for _, scheme := range []string{"light", "dark"} {
		tab.Scheme(scheme)
		tab.Size(1280, 800)
		tab.Accessible(axeFile)
		shoot(scheme)
	}
	tab.Scheme("light")
	tab.Fits(2560, 1280, 768, 390)
	tab.Accessible(axeFile)
	tab.Size(390, 844)
	shoot("390")
}
