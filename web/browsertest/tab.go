package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is how long a page may take for anything: pages answer within milliseconds, machines that test are busy.
const patience = time.Minute

// Tab is a tab of a browser. Its methods end the test when the page does not do what they ask for.
type Tab struct {
	t       testing.TB
	ctx     context.Context
	journal *journal
}

// Tab opens a tab with a profile of its own: no cookies, no storage. It is closed when the test ends, which fails when
// the page had something to complain about that Tolerate does not cover.
func (b *Browser) Tab(t testing.TB) *Tab {
	t.Helper()
	return newTab(t, b.ctx, chromedp.WithNewBrowserContext())
}

// Beside opens another tab in the same window, with the same profile. It is the visible one until another is brought
// to front.
func (tab *Tab) Beside() *Tab {
	tab.t.Helper()
	return newTab(tab.t, tab.ctx, chromedp.WithNewWindow(false))
}

// Window opens another tab with the same profile in a window of its own, so that both are visible.
func (tab *Tab) Window() *Tab {
	tab.t.Helper()
	return newTab(tab.t, tab.ctx)
}

func newTab(t testing.TB, parent context.Context, options ...chromedp.ContextOption) *Tab {
	t.Helper()
	j := newJournal()
	ctx, cancel := chromedp.NewContext(parent, append(options, chromedp.WithListener(j.note))...)
	tab := &Tab{t: t, ctx: ctx, journal: j}
	j.dialog = func() {
		go func() { // the listener must not call
			_, _ = chromedp.Call(ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	}
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		t.Fatalf("open a tab: %v", err)
	}
	t.Cleanup(func() {
		for _, problem := range tab.Problems() {
			t.Errorf("the page complains: %s", problem)
		}
		cancel()
	})
	tab.Size(1280, 800)
	return tab
}

func (tab *Tab) do(what string, action chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, action); err != nil {
		tab.t.Fatalf("%s: %v", what, err)
	}
}

func call[P, R any](tab *Tab, cmd cdp.Command[P, R], params P) R {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	r, err := chromedp.Call(ctx, cmd, params)
	if err != nil {
		tab.t.Fatalf("%s: %v", cmd.Method, err)
	}
	return r
}

// Open loads an address and waits until it is loaded, deferred scripts included.
func (tab *Tab) Open(url string) {
	tab.t.Helper()
	tab.do("open "+url, chromedp.Navigate(url))
}

// Reload loads the page again.
func (tab *Tab) Reload() {
	tab.t.Helper()
	tab.do("reload", chromedp.Reload())
}

// Size sets the size of the page in CSS pixels.
func (tab *Tab) Size(width, height int64) {
	tab.t.Helper()
	call(tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// Scheme sets what the system prefers: "light" or "dark". Motion is reduced in both, so that a screenshot or a check of
// contrast never meets a colour on its way to another one.
func (tab *Tab) Scheme(scheme string) {
	tab.t.Helper()
	call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// Front makes the tab the visible one of its window.
func (tab *Tab) Front() {
	tab.t.Helper()
	call(tab, page.BringToFront, cdp.Empty{})
}

// Eval evaluates an expression in the page. A promise is awaited.
func Eval[T any](tab *Tab, expression string) T {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tab.t.Fatalf("%s: %v", brief(expression), err)
	}
	return v
}

// Run runs statements in the page.
func (tab *Tab) Run(statements string) {
	tab.t.Helper()
	Eval[chromedp.Void](tab, statements)
}

// Wait waits until an expression is true. The page may be replaced by another one meanwhile.
func (tab *Tab) Wait(what, expression string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	var last error
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			tab.t.Fatalf("waited %v for %s: %s is not true (%v)\n%s", patience, what, brief(expression), last, tab.glimpse())
		case <-time.After(15 * time.Millisecond):
		}
	}
}

// glimpse is what the page shows, for messages about what it should show.
func (tab *Tab) glimpse() string {
	ctx, cancel := context.WithTimeout(tab.ctx, 2*time.Second)
	defer cancel()
	s, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + (document.querySelector("main") ?? document.body).innerText`))
	if err != nil {
		return err.Error()
	}
	if len(s) > 3000 {
		s = s[:3000] + "…"
	}
	return s
}

func brief(expression string) string {
	if s := strings.Join(strings.Fields(expression), " "); len(s) < 300 {
		return s
	} else {
		return s[:300] + "…"
	}
}

// find is a function that returns the first visible element that a selector finds and whose text or label holds a text.
const find = `((selector, text) => Array.from(document.querySelectorAll(selector)).find((e) => e.checkVisibility() &&
	(e.textContent.includes(text) || e.getAttribute("aria-label")?.includes(text))))`

// Quote is a text as a literal of JavaScript.
func Quote(s string) string {
	b, _ := json.Marshal(s) // a string always has a JSON form
	return string(b)
}

// Find is the expression of the first visible element that a selector finds and whose text or label holds the text.
func Find(selector, text string) string {
	return find + "(" + Quote(selector) + ", " + Quote(text) + ")"
}

// Has waits for a visible element with a text.
func (tab *Tab) Has(selector, text string) {
	tab.t.Helper()
	tab.Wait(fmt.Sprintf("%s %q", selector, text), Find(selector, text))
}

// Count is how many elements a selector finds.
func (tab *Tab) Count(selector string) int {
	tab.t.Helper()
	return Eval[int](tab, "document.querySelectorAll("+Quote(selector)+").length")
}

// Click waits for the first visible element with a text and presses the mouse in its middle, where nothing may lie above it.
func (tab *Tab) Click(selector, text string) {
	tab.t.Helper()
	tab.Has(selector, text)
	// Asked for once more in the same moment: the page may draw it anew at any time.
	at := Eval[struct {
		X, Y float64
		Over string
	}](tab, `(() => {
		const e = `+Find(selector, text)+`;
		if (!e) return {over: "nothing: the element is gone"};
		e.scrollIntoView({block: "center", behavior: "instant"});
		const box = e.getClientRects()[0];
		const x = box.x + box.width / 2, y = box.y + box.height / 2;
		const top = document.elementFromPoint(x, y);
		return {x, y, over: e.contains(top) || top?.contains(e) && e.localName === "label" ? "" : top?.outerHTML ?? "nothing"};
	})()`)
	if at.Over != "" {
		tab.t.Fatalf("click %s %q: at its middle is %s", selector, text, brief(at.Over))
	}
	tab.do("click "+selector, chromedp.MouseClickXY(at.X, at.Y))
}

// Fill focuses a field as a click does, drops what is in it and types a text.
func (tab *Tab) Fill(selector, text string) {
	tab.t.Helper()
	tab.Click(selector, "")
	tab.Run("document.activeElement.select()")
	tab.Type(text)
}

// Type types a text where the focus is.
func (tab *Tab) Type(text string) {
	tab.t.Helper()
	call(tab, input.InsertText, input.InsertTextParams{Text: text})
}

// Press presses a key: a character, or Enter, Escape, Tab, Space, with "Control+" or "Shift+" before it.
func (tab *Tab) Press(key string) {
	tab.t.Helper()
	name, modifiers := key, kb.ModifierNone
	for {
		if rest, ok := strings.CutPrefix(name, "Control+"); ok {
			name, modifiers = rest, modifiers|kb.ModifierCtrl
		} else if rest, ok := strings.CutPrefix(name, "Shift+"); ok {
			name, modifiers = rest, modifiers|kb.ModifierShift
		} else {
			break
		}
	}
	if named, ok := map[string]string{"Enter": kb.Enter, "Escape": kb.Escape, "Tab": kb.Tab, "Space": " "}[name]; ok {
		name = named
	}
	for _, r := range name {
		events := kb.Encode(r)
		// The press carries its character, as that of a keyboard does: a page that handles the key keeps the character from
		// being typed.
		if len(events) == 3 {
			if modifiers&kb.ModifierCtrl == 0 {
				events[0].Text, events[0].UnmodifiedText = events[1].Text, events[1].UnmodifiedText
			}
			events = slices.Delete(events, 1, 2)
		}
		for _, event := range events {
			event.Modifiers |= int64(modifiers)
			call(tab, input.DispatchKeyEvent, *event)
		}
	}
}

// Text is the text that the first element of a selector shows.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	tab.Wait(selector, "document.querySelector("+Quote(selector)+")")
	return Eval[string](tab, "document.querySelector("+Quote(selector)+").innerText")
}

// Screenshot is the visible part of the page as a PNG.
func (tab *Tab) Screenshot() []byte {
	tab.t.Helper()
	return []byte(call(tab, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng}).Data)
}

// Tolerate takes complaints that match, past and future, as expected.
func (tab *Tab) Tolerate(pattern string) {
	tab.journal.tolerate(regexp.MustCompile(pattern))
}

// Problems returns what the page complained about since the last call: exceptions, errors and warnings of the console,
// violations of the content security policy, requests that failed, dialogs.
func (tab *Tab) Problems() []string {
	// The browser reports some of them in a task of its own, after what caused them: let those that wait pass.
	ctx, cancel := context.WithTimeout(tab.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](`new Promise((done) => setTimeout(() => setTimeout(done)))`, chromedp.EvalAwaitPromise))
	problems := tab.journal.problems()
	if err != nil && tab.ctx.Err() == nil {
		problems = append(problems, "it does not answer any more: "+err.Error())
	}
	return problems
}

// Requests returns "METHOD URL" of every request that the tab made.
func (tab *Tab) Requests() []string {
	tab.journal.mu.Lock()
	defer tab.journal.mu.Unlock()
	return slices.Clone(tab.journal.requests)
}
