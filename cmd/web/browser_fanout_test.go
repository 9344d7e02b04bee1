package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/web/browsertest"
)

// TestSampleInTheBrowser is the way of somebody who has read nothing: the printed link, one click, five forks, and what
// the cache gave.
func TestSampleInTheBrowser(t *testing.T) {
	t.Parallel()
	p := startDemo(t, paced(), nil)
	tab := p.signIn("/")
	tab.Click(`form[action="/sample"] button`, "")
	tab.Wait("the session", `location.pathname.startsWith("/sessions/ses_")`)
	id := strings.TrimPrefix(browsertest.Eval[string](tab, "location.pathname"), "/sessions/")
	tab.Run(watchCards)
	events := p.follow(id)

	tab.Wait("five cards", `document.querySelectorAll("article.fork").length === 5`)
	tab.Wait("five forks to end", `document.querySelectorAll('article.fork[data-state="done"]').length === 5`)
	tab.Wait("what the fan-out came to", `document.querySelectorAll(".fan-out-result > p").length === 3`)
	result := tab.Text(".fan-out-result")
	for _, want := range []string{"shared", "cost", "without", "$"} {
		if !strings.Contains(strings.ToLower(result), want) {
			t.Errorf("the three sentences do not say %q:\n%s", want, result)
		}
	}
	eventually(t, "the turn that sums up", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == 7 && s["active_run_id"] == nil
	})
	isFresh(t, tab, "after the fan-out")
	cardLatency(t, tab, events)

	t.Log("the session is on the first page")
	tab.Open(p.base + "/")
	tab.Click("#sessions a", "")
	tab.Wait("the session", `location.pathname === "/sessions/`+id+`"`)
}

// watchCards notes in the page when each card first showed each state.
const watchCards = `globalThis.cards = {};
	{
		const note = () => {
			for (const card of document.querySelectorAll("article.fork")) {
				const key = card.id.replace("fork-", "") + " " + card.dataset.state;
				cards[key] ??= Date.now();
			}
		};
		note();
		for (const key in cards) cards[key] = 0; // they were there before
		new MutationObserver(note).observe(document.body, {childList: true, subtree: true, attributes: true, attributeFilter: ["data-state"]});
	}
	undefined`

// cardLatency compares when cards showed a state, or a later one, with the time of the event, by the same clock.
func cardLatency(t *testing.T, tab *browsertest.Tab, events *follower) {
	t.Helper()
	shown := browsertest.Eval[map[string]int64](tab, "cards")
	rank := func(state string) int {
		switch state {
		case "queued", "parked", "waiting":
			return 0
		case "running":
			return 1
		}
		return 2
	}
	firstEvent := map[string]bool{}
	var late []time.Duration
	for _, f := range events.all(func(f frame) bool { return f.event == "run" }) {
		r, _ := f.data["run"].(object)
		if r == nil || r["kind"] != "fork" {
			continue
		}
		id, state := r["id"].(string), r["state"].(string)
		if firstEvent[id+state] {
			continue // other changes of the run
		}
		firstEvent[id+state] = true
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(f.data["at"]))
		if err != nil {
			t.Fatal(err)
		}
		seen := int64(-1)
		for key, when := range shown {
			if card, shows, _ := strings.Cut(key, " "); card == id && rank(shows) >= rank(state) && (seen < 0 || when < seen) {
				seen = when
			}
		}
		switch {
		case seen < 0:
			t.Errorf("the card of %s never showed %s", id, state)
		case seen > 0:
			late = append(late, time.UnixMilli(seen).Sub(at))
		}
	}
	if len(late) == 0 {
		t.Error("no change of state was seen on a card")
		return
	}
	slices.Sort(late)
	t.Logf("%d changes of state showed on their cards after p50 %v, max %v", len(late), late[len(late)/2].Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	// 300 ms are promised on a machine that has nothing else to do; tests run beside each other.
	if limit := 3 * time.Second; late[len(late)/2] > time.Second || late[len(late)-1] > limit {
		t.Errorf("cards lag behind: want half within 1 s and all within %v", limit)
	}
}

// TestKeysWhileForksRun: what has the focus keeps it, as the same element, while the cards around it are drawn anew.
func TestKeysWhileForksRun(t *testing.T) {
	t.Parallel()
	mind := newHeldMind()
	p, id := startHeldFanOut(t, mind, 3)
	tab := p.signIn("/sessions/" + id)
	tab.Wait("three cards", `document.querySelectorAll("article.fork").length === 3`)

	t.Log("j and k go through the cards")
	focused := func() string {
		return browsertest.Eval[string](tab, `document.activeElement.closest("[data-step]")?.id ?? document.activeElement.outerHTML`)
	}
	tab.Run(`document.activeElement.blur()`)
	tab.Press("j")
	first := focused()
	tab.Press("j")
	second := focused()
	if first == second || !strings.HasPrefix(second, "fork-") {
		t.Errorf("j goes from %q to %q", first, second)
	}
	tab.Press("k")
	if again := focused(); again != first {
		t.Errorf("k goes back to %q, want %q", again, first)
	}

	t.Log("the focus stays while cards change")
	tab.Run(`globalThis.held = document.querySelector("article.fork button, article.fork summary"); held.focus(); held.closest("details")?.setAttribute("open", "")`)
	tab.Run(`document.querySelector("article.fork details").open = true`)
	before := browsertest.Eval[string](tab, `held.closest("article").innerText`)
	mind.hold(false)
	tab.Wait("the card to change", `held.closest("article").innerText !== `+browsertest.Quote(before))
	mind.hold(true)
	for what, expression := range map[string]string{
		"the same element has the focus": `document.activeElement === held`,
		"it is still in the page":        `held.isConnected`,
		"an open part stays open":        `document.querySelector("article.fork details").open`,
	} {
		if !browsertest.Eval[bool](tab, expression) {
			t.Errorf("not true after live updates: %s", what)
		}
	}

	t.Log("? lists the keys, Escape closes the list, and the focus is where it was")
	tab.Press("?")
	tab.Has("dialog[open]", "Next, previous")
	tab.Accessible(axeFile)
	tab.Press("Escape")
	tab.Wait("the list to close", `!document.querySelector("dialog[open]")`)

	t.Log("m goes to the message, where letters are text, and Escape leaves it")
	tab.Press("m")
	tab.Wait("the message to have the focus", `document.activeElement.id === "message"`)
	tab.Press("j")
	tab.Press("?")
	tab.Wait("the letters", `document.activeElement.value === "j?"`)
	mind.hold(false)
	tab.Wait("a change beside it", `held.closest("article").innerText !== `+browsertest.Quote(browsertest.Eval[string](tab, `held.closest("article").innerText`)))
	tab.Wait("the text to stay", `document.activeElement.value === "j?"`)
	tab.Press("Escape")
	tab.Wait("the message to be left", `document.activeElement.id !== "message"`)
}
