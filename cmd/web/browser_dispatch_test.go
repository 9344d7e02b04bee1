package main

import (
	"strings"
	"testing"
	"time"

	"forkyard/web/browsertest"
)

func TestDispatchForm(t *testing.T) {
	t.Parallel()
	p := startDemo(t, paced(), nil)
	id := p.session(object{"workspace": p.workspace(), "title": "By hand"})
	p.ended(p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "What is here? Work alone."})["run_id"].(string))
	tab := p.signIn("/sessions/" + id)
	tab.Press("f")
	tab.Wait("the form", `location.pathname.endsWith("/dispatch")`)
	rows := func(n int) string {
		return "document.querySelectorAll('#dispatch textarea[name=prompt]').length === " + string(rune('0'+n))
	}
	prompts := `Array.from(document.querySelectorAll("#dispatch textarea[name=prompt]")).map((e) => e.value).join("|")`

	t.Log("rows are added and removed, and keep their text")
	tab.Wait("a row", `document.querySelector("#dispatch textarea[name=prompt]")`)
	for n := browsertest.Eval[int](tab, `document.querySelectorAll("#dispatch textarea[name=prompt]").length`); n > 1; n-- {
		tab.Click("#dispatch button", "Remove directive")
		tab.Wait("a row less", rows(n-1))
	}
	tab.Fill("#dispatch textarea[name=prompt]", "List the TODO marks.")
	tab.Click("#dispatch button", "Add a directive")
	tab.Wait("two rows", rows(2))
	tab.Wait("the text to stay", prompts+`.startsWith("List the TODO marks.|")`)

	t.Log("the quote follows what is typed")
	quote := browsertest.Eval[string](tab, `document.querySelector("#send").innerText`)
	tab.Run(`document.querySelectorAll("#dispatch textarea[name=prompt]")[1].focus()`)
	tab.Type("Read the README and say what is missing in it. " + strings.Repeat("Be thorough. ", 40))
	tab.Wait("another quote", `document.querySelector("#send").innerText !== `+browsertest.Quote(quote))
	tab.Wait("the field to keep the focus", `document.activeElement.name === "prompt"`)
	tab.Has("#send-button", "2 forks")

	t.Log("a pasted list becomes rows")
	tab.Click("#dispatch summary", "Paste a list")
	tab.Fill("textarea[name=list]", "- one thing\n- another thing")
	tab.Click("#dispatch details[open] button", "Make rows")
	tab.Wait("four rows", rows(4))
	tab.Wait("the pasted texts", prompts+`.endsWith("|one thing|another thing")`)
	tab.Accessible(axeFile)

	t.Log("an error says where, and keeps every word")
	tab.Tolerate("/dispatch: status 422")
	tab.Fill("input[name=budget_usd]", "a lot")
	tab.Click("#send-button", "")
	tab.Wait("the message", `document.querySelector("#dispatch [aria-invalid=true]")`)
	tab.Accessible(axeFile)
	tab.Wait("the texts", prompts+`.startsWith("List the TODO marks.|") && `+prompts+`.endsWith("|one thing|another thing")`)
	tab.Fill("input[name=budget_usd]", "5")

	t.Log("one prompt several times, then off")
	tab.Click("#dispatch button", "Remove directive 1")
	tab.Wait("three rows", rows(3))
	tab.Click("#dispatch summary", "One prompt several times")
	tab.Fill("textarea[name=same]", "Find a bug.")
	tab.Fill("input[name=times]", "2")
	tab.Click("#dispatch button", "Make rows of the prompt")
	tab.Wait("five rows", rows(5))
	tab.Has("#send-button", "5 forks")
	tab.Run("document.querySelector('#send-button').addEventListener('click', () => sessionStorage.setItem('sent at', Date.now()))")
	tab.Click("#send-button", "5 forks")
	tab.Wait("five cards", `location.pathname === "/sessions/`+id+`" && document.querySelectorAll("article.fork").length === 5`)
	took := time.Duration(browsertest.Eval[int64](tab, "Date.now() - Number(sessionStorage.getItem('sent at'))")) * time.Millisecond
	t.Logf("from the click to five live cards: %v, as seen at most 15 ms late", took)
	tab.Wait("five forks to end", `document.querySelectorAll('article.fork[data-state="done"]').length === 5`)
	if n := len(p.get("/sessions/" + id)["runs"].([]any)); n < 6 {
		t.Errorf("%d runs, want the turn and five forks", n)
	}
}
