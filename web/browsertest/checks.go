package browsertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Widths are those at which pages must look right: a phone, a tablet, a laptop, a big screen.
var Widths = []int64{390, 768, 1280, 2560}

// Accessible runs axe-core in the page and fails the test on what it calls serious or critical. The library comes from
// disk and goes in through the debugger, so the policy of the page stays as it is.
func (tab *Tab) Accessible(axeFile string) {
	tab.t.Helper()
	for _, finding := range tab.axe(axeFile) {
		tab.t.Errorf("%s: %s", Eval[string](tab, "location.pathname"), finding)
	}
}

func (tab *Tab) axe(file string) []string {
	tab.t.Helper()
	if !Eval[bool](tab, "Boolean(globalThis.axe)") {
		source, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			tab.t.Fatalf("%v: run make assets", err)
		} else if err != nil {
			tab.t.Fatal(err)
		}
		tab.Run(string(source) + "; undefined")
	}
	found := Eval[[]struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}](tab, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map(({id, impact, help, nodes}) =>
		({id, impact, help, nodes: nodes.slice(0, 3).map(({html, failureSummary}) => ({html, failureSummary}))})))`)
	var out []string
	for _, f := range found {
		if f.Impact != "serious" && f.Impact != "critical" {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "axe %s (%s): %s", f.ID, f.Impact, f.Help)
		for _, n := range f.Nodes {
			fmt.Fprintf(&b, "\n  %s\n  %s", brief(n.HTML), brief(n.FailureSummary))
		}
		out = append(out, b.String())
	}
	return out
}

// Fits fails the test when the page is wider than the window at one of the widths, and leaves the window as wide as the last one.
func (tab *Tab) Fits(widths ...int64) {
	tab.t.Helper()
	for _, w := range widths {
		if wide := tab.overflow(w); wide != "" {
			tab.t.Errorf("%s at %d pixels: %s", Eval[string](tab, "location.pathname"), w, wide)
		}
	}
}

// overflow says what sticks out of the window, or nothing.
func (tab *Tab) overflow(width int64) string {
	tab.t.Helper()
	tab.Size(width, 900)
	return Eval[string](tab, `(() => {
		const root = document.documentElement;
		if (root.scrollWidth <= innerWidth) return "";
		const clipped = (e) => { // by a parent that scrolls or hides
			for (let p = e.parentElement; p && p !== root; p = p.parentElement) if (getComputedStyle(p).overflowX !== "visible") return true;
			return false;
		};
		const out = Array.from(document.querySelectorAll("body *")).filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !clipped(e));
		return "scrolls sideways, "+root.scrollWidth+" pixels; sticking out: "+out.slice(0, 4).map((e) => e.cloneNode(false).outerHTML).join(" ");
	})()`)
}
