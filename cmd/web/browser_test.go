package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// axeFile is what make assets fetches.
const axeFile = "../../static/node_modules/axe-core/axe.min.js"

// chromium is the browser of all tests of this binary; TestMain stops it.
var chromium struct {
	sync.Mutex
	running *browsertest.Browser
}

func stopBrowser() {
	if chromium.running == nil {
		return
	}
	if err := chromium.running.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// newTab opens a tab that nobody has signed in with.
func newTab(t *testing.T) *browsertest.Tab {
	t.Helper()
	chromium.Lock()
	defer chromium.Unlock()
	if chromium.running == nil {
		b, err := browsertest.Start()
		if err != nil {
			t.Fatal(err)
		}
		chromium.running = b
	}
	return chromium.running.Tab(t)
}

// signIn opens the printed link in a new tab and leads to a page of the program.
func (p *program) signIn(path string) *browsertest.Tab {
	p.t.Helper()
	tab := newTab(p.t)
	tab.Open(p.link())
	tab.Click("button", "Sign in")
	tab.Has("button", "Sign out")
	if path != "/" {
		tab.Open(p.base + path)
	}
	return tab
}

// link is the sign-in link that the program printed.
func (p *program) link() string {
	p.t.Helper()
	m := linkPattern.FindStringSubmatch(p.out.String())
	if m == nil {
		p.t.Fatalf("no sign-in link in %q", p.out)
	}
	return m[1] + m[2]
}

// startDemo boots the program as make run does, with a simulated model of this pace.
func startDemo(t *testing.T, o modelsim.Options, env map[string]string) *program {
	t.Helper()
	_, url := simulator(t, o)
	all := map[string]string{"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1"}
	for k, v := range env {
		all[k] = v
	}
	return startWeb(t, all)
}

// paced is a model that people can watch.
func paced() modelsim.Options {
	return modelsim.Options{MessageStartDelay: 50 * time.Millisecond, DeltaDelay: 5 * time.Millisecond}
}

func TestSignInPage(t *testing.T) {
	t.Parallel()
	p := startDemo(t, modelsim.Options{}, nil)
	tab := newTab(t)

	t.Log("without a sign-in every page leads to the sign-in page, and back afterwards")
	tab.Open(p.base + "/?from=here")
	tab.Wait("the sign-in page", `location.pathname === "/login"`)
	tab.Accessible(axeFile)

	t.Log("a wrong token says so")
	tab.Tolerate("/login: status 401")
	tab.Fill("input[name=token]", "wrong")
	tab.Press("Enter")
	tab.Has("[role=alert]", "not the admin token")
	tab.Accessible(axeFile)

	t.Log("the right one leads where the reader wanted to go")
	tab.Fill("input[name=token]", testToken)
	tab.Press("Enter")
	tab.Wait("the page that was asked for", `location.pathname + location.search === "/?from=here"`)

	t.Log("signing out holds")
	tab.Click("button", "Sign out")
	tab.Wait("the sign-in page", `location.pathname === "/login"`)
	tab.Open(p.base + "/")
	tab.Wait("the sign-in page", `location.pathname === "/login"`)

	t.Log("the printed link works once")
	tab.Open(p.link())
	tab.Accessible(axeFile)
	tab.Press("Enter") // its button has the focus
	tab.Has("button", "Sign out")
	second := newTab(t)
	second.Tolerate("/login: status 401")
	second.Open(p.link())
	second.Click("button", "Sign in")
	second.Has("[role=alert]", "used already")
	tab.Reload()
	tab.Has("button", "Sign out")
	if cookies := browsertest.Eval[string](tab, "document.cookie"); strings.Contains(cookies, "forkyard") {
		t.Errorf("scripts can read the cookie: %q", cookies)
	}
}

func TestThemes(t *testing.T) {
	t.Parallel()
	p := startDemo(t, modelsim.Options{}, nil)
	tab := p.signIn("/")
	background := func() string {
		return browsertest.Eval[string](tab, "getComputedStyle(document.documentElement).backgroundColor")
	}
	choose := func(theme string) {
		tab.Run(`{ const s = document.querySelector("[data-theme-choice]"); s.value = "` + theme + `"; s.dispatchEvent(new Event("change", {bubbles: true})); }`)
	}
	tab.Scheme("light")
	light := background()
	tab.Scheme("dark")
	dark := background()
	if light == dark {
		t.Fatalf("the system's choice changes nothing: %s", light)
	}
	for _, tc := range []struct{ theme, system, want string }{
		{"light", "dark", light}, {"dark", "light", dark}, {"system", "dark", dark}, {"system", "light", light},
	} {
		tab.Scheme(tc.system)
		choose(tc.theme)
		if got := background(); got != tc.want {
			t.Errorf("theme %s on a %s system: %s, want %s", tc.theme, tc.system, got, tc.want)
		}
		tab.Reload()
		if got := background(); got != tc.want {
			t.Errorf("theme %s on a %s system after a reload: %s, want %s", tc.theme, tc.system, got, tc.want)
		}
		if got := browsertest.Eval[string](tab, `document.querySelector("[data-theme-choice]").value`); got != tc.theme {
			t.Errorf("after a reload the choice is %q, want %q", got, tc.theme)
		}
	}
}
