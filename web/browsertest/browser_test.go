package browsertest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"forkyard/web/browsertest"
)

// recorder is a test that only remembers what it was told.
type recorder struct {
	testing.TB
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Errorf(f string, a ...any) { r.said = append(r.said, fmt.Sprintf(f, a...)) }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) finish() {
	for _, f := range r.cleanups {
		f()
	}
}

const axe = "../../static/node_modules/axe-core/axe.min.js"

// A rig that overlooks what it is there for would pass every page.
func TestComplaintsFailTheTest(t *testing.T) {
	browser, err := browsertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := browser.Stop(); err != nil {
			t.Error(err)
		}
	})
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; img-src 'self'; connect-src 'self'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!DOCTYPE html><html lang="en"><head><title>t</title><link rel="icon" href="/ok.js"></head><body><main><h1>t</h1>%s</main></body></html>`,
			map[string]string{
				"/fine":      `<p>fine</p><button>press</button><script src="/ok.js"></script>`,
				"/console":   `<script src="/console.js"></script>`,
				"/exception": `<script src="/exception.js"></script>`,
				"/rejection": `<script src="/rejection.js"></script>`,
				"/policy":    `<script>globalThis.ran = 1</script>`,
				"/style":     `<p style="color:red">t</p>`,
				"/missing":   `<img alt="" src="/gone.png">`,
				"/cut":       `<img alt="" src="/cut.png">`,
				"/dialog":    `<script src="/dialog.js"></script>`,
				"/wide":      `<pre>` + strings.Repeat("wide", 1000) + `</pre>`,
				"/label":     `<input type="text">`,
			}[r.URL.Path])
	})
	for name, text := range map[string]string{
		"ok": "", "console": "console.error('trouble', 1)", "exception": "nothing.at.all()", "rejection": "Promise.reject(new Error('left'))", "dialog": "alert('hello')",
	} {
		mux.HandleFunc("/"+name+".js", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, text)
		})
	}
	mux.HandleFunc("/gone.png", http.NotFound)
	mux.HandleFunc("/cut.png", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	for _, tc := range []struct {
		path, says string // "" = nothing
		check      func(*browsertest.Tab)
	}{
		{path: "/fine", check: func(tab *browsertest.Tab) {
			tab.Accessible(axe)
			tab.Fits(browsertest.Widths...)
			tab.Click("button", "press")
		}},
		{path: "/console", says: "console.error: trouble 1"},
		{path: "/exception", says: "nothing is not defined"},
		{path: "/rejection", says: "left"},
		{path: "/policy", says: "Content Security Policy"},
		{path: "/style", says: "Content Security Policy"},
		{path: "/missing", says: "/gone.png: status 404"},
		{path: "/cut", says: "/cut.png: net::ERR"},
		{path: "/dialog", says: `dialog: alert "hello"`},
		{path: "/wide", says: "scrolls sideways", check: func(tab *browsertest.Tab) { tab.Fits(1280) }},
		{path: "/label", says: "axe label", check: func(tab *browsertest.Tab) { tab.Accessible(axe) }},
	} {
		t.Run(tc.path[1:], func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			tab := browser.Tab(r)
			tab.Open(server.URL + tc.path)
			if tc.check != nil {
				tc.check(tab)
			}
			r.finish()
			if said := strings.Join(r.said, "\n"); tc.says == "" && said != "" || !strings.Contains(said, tc.says) {
				t.Errorf("the test was told %q, want %q", said, tc.says)
			}
		})
	}
	// Tests of hidden tabs rest on this.
	t.Run("hidden", func(t *testing.T) {
		first := browser.Tab(t)
		first.Open(server.URL + "/fine")
		second := first.Beside()
		second.Open(server.URL + "/fine")
		first.Wait("being hidden", `document.visibilityState === "hidden"`)
		second.Wait("being visible", `document.visibilityState === "visible"`)
		first.Front()
		first.Wait("being visible", `document.visibilityState === "visible"`)
		second.Wait("being hidden", `document.visibilityState === "hidden"`)
	})
	t.Run("tolerated", func(t *testing.T) {
		r := &recorder{TB: t}
		tab := browser.Tab(r)
		tab.Tolerate("gone.png: status 404")
		tab.Open(server.URL + "/missing")
		r.finish()
		if len(r.said) != 0 {
			t.Errorf("the test was told %q", r.said)
		}
	})
}
