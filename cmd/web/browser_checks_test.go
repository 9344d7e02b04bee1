package main

import (
	"os"
	"testing"

	"forkyard/web/browsertest"
)

// TestChecksPage goes through the page of broken rules by keyboard: what was sent is sound, what is pasted is judged.
func TestChecksPage(t *testing.T) {
	t.Parallel()
	p := startDemo(t, paced(), nil)
	tab := p.signIn("/checks")
	tab.Has("#main", "Nothing was sent yet")

	id := p.session(object{"workspace": p.workspace(), "title": "Checked"})
	run := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "What is here? Work alone."})["run_id"].(string)
	p.ended(run)
	tab.Open(p.base + "/")
	tab.Press("h")
	tab.Wait("the page", `location.pathname === "/checks"`)
	tab.Has(".checked .badge", "no rule broken")

	t.Log("a request leads here and back")
	tab.Open(p.base + "/runs/" + run + "/requests/1")
	tab.Click("a", "Check its rules")
	tab.Has("#main", "One request: no rule is broken.")
	tab.Click(".checked a", "Request 1")
	tab.Wait("the request", `location.pathname.endsWith("/requests/1")`)

	t.Log("a pasted body is judged by the keyboard alone")
	tab.Open(p.base + "/checks")
	tab.Run(`document.querySelector("#check-body").focus()`)
	tab.Type(`{"model":"m","temperature":1,"tools":[{"name":"Read","input_schema":{}},{"name":"Read","input_schema":{}}],"system":[],"messages":[{"role":"user","content":[{"type":"text","text":" "}]},{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":""},{"type":"tool_use","id":"toolu_01A","name":"Read","input":{}}]},{"role":"user","content":[{"type":"text","text":"note"},{"type":"tool_result","tool_use_id":"toolu_01B","content":[]}]}],"max_tokens":1}`)
	tab.Press("Tab")
	tab.Press("Enter")
	tab.Has("#pasted .badge", "5 broken rules")
	tab.Has("#pasted", "messages.1.content.1")
	if kept := browsertest.Eval[string](tab, `document.querySelector("#check-body").value`); len(kept) < 100 {
		t.Errorf("the form holds %q", kept)
	}
	looked(t, tab, "checks-pasted", os.Getenv("FORKYARD_CHECKS_SHOTS"))

	t.Log("what is named wrongly says what would be right")
	tab.Tolerate("/checks.of=nowhere: status 422")
	tab.Fill("input[name=of]", "nowhere")
	tab.Press("Enter")
	tab.Has("#check-problem", "Name a session")
	looked(t, tab, "checks-problem", os.Getenv("FORKYARD_CHECKS_SHOTS"))
}
