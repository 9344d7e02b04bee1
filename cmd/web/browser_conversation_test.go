package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// talker streams a long text when it is asked to talk and calls tools when it is asked to work.
func talker(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
	last, rounds := "", 0
	for _, m := range r.Messages {
		for _, b := range m.Blocks {
			switch {
			case m.Role == "user" && b.Type == "text" && b.Text != "":
				last, rounds = b.Text, 0
			case b.Type == "tool_result":
				rounds++
			}
		}
	}
	switch {
	case strings.Contains(last, "talk"):
		var words strings.Builder
		for i := range 5000 {
			fmt.Fprintf(&words, "word%d ", i)
		}
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock(words.String())}}, nil
	case strings.Contains(last, "work") && rounds < 8:
		return modelsim.Reply{Delay: 300 * time.Millisecond, Blocks: []modelsim.Block{modelsim.ToolUseBlock("", "Glob", fmt.Sprintf(`{"pattern":"*%d.go"}`, rounds))}}, nil
	}
	return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("Answer to: " + last)}}, nil
}

func TestConversationInTheBrowser(t *testing.T) {
	t.Parallel()
	p := startDemo(t, modelsim.Options{Mind: modelsim.MindFunc(talker), DeltaDelay: 25 * time.Millisecond}, nil)
	tab := p.signIn("/sessions/new")

	t.Log("a session is started with a form")
	tab.Accessible(axeFile)
	tab.Fill(`main input[name="title"]`, "A talk")
	tab.Click(`main form button.primary`, "")
	tab.Wait("the session", `location.pathname.startsWith("/sessions/ses_")`)
	id := strings.TrimPrefix(browsertest.Eval[string](tab, "location.pathname"), "/sessions/")
	tab.Has("h1", "A talk")
	active := func() bool { return p.get("/sessions/" + id)["active_run_id"] != nil }

	t.Log("the answer is read while it is written")
	tab.Fill("#message", "Please talk.")
	tab.Press("Enter")
	tab.Wait("the field to be empty", `document.querySelector("#message").value === ""`)
	tab.Wait("the message", `document.querySelector("#log").innerText.includes("Please talk.")`)
	tab.Wait("the first words", `document.querySelector(".conversation").innerText.includes("word1 ")`)
	early := browsertest.Eval[int](tab, `document.querySelector(".conversation").innerText.length`)
	tab.Wait("more words", fmt.Sprintf(`document.querySelector(".conversation").innerText.length > %d`, early+50))
	if !active() {
		t.Error("the words came when the answer was complete")
	}

	t.Log("a message that is sent meanwhile waits, and says so")
	tab.Fill("#message", "And then this.")
	tab.Press("Enter")
	tab.Has(".queued li", "And then this.")
	tab.Accessible(axeFile)

	t.Log("stopping ends the turn; what waited is read with the next message")
	tab.Click("button", "Stop turn")
	eventually(t, "the turn to end", func() bool { return !active() })
	tab.Wait("the button to go", "!"+browsertest.Find("button", "Stop turn"))
	tab.Fill("#message", "Go on.")
	tab.Press("Enter")
	tab.Wait("the answer", `document.querySelector("#log").innerText.includes("Answer to: Go on.")`)
	tab.Wait("an empty queue", `!document.querySelector(".queued li")`)
	eventually(t, "the turn to end", func() bool { return !active() })
	isFresh(t, tab, "after the talk")
	for _, word := range []string{"Please talk.", "And then this.", "Go on."} {
		if n := browsertest.Eval[int](tab, `Array.from(document.querySelectorAll("#log > *")).filter((e) => e.dataset.role !== "assistant" && e.innerText.includes(`+browsertest.Quote(word)+`) && !e.innerText.includes("Answer to")).length`); n != 1 {
			t.Errorf("%q is in the log %d times", word, n)
		}
	}

	t.Log("a turn goes to the background and on there")
	tab.Fill("#message", "Now work.")
	tab.Press("Enter")
	tab.Has("button", "To the background")
	turn := p.get("/sessions/" + id)["active_run_id"].(string)
	tab.Run(`document.activeElement.blur()`)
	tab.Press("Control+b")
	tab.Wait("the button to go", "!"+browsertest.Find("button", "To the background"))
	if r := p.ended(turn); r["state"] != "done" || r["background"] != true {
		t.Errorf("the turn: %v, background %v", r["state"], r["background"])
	}
	tab.Wait("its answer", `document.querySelector("#log").innerText.includes("Answer to: Now work.")`)
	isFresh(t, tab, "after the work")

	t.Log("what is typed survives a page that is left")
	tab.Fill("#message", "half a thou")
	tab.Reload()
	tab.Wait("the text", `document.querySelector("#message").value === "half a thou"`)
}

// attacks are texts that become more than text where they are not escaped.
var attacks = []string{
	`<img src=x onerror=alert(1)>`,
	`[click](javascript:alert(1))`,
	`</script><b>bold</b><script>alert(2)</script>`,
	`<i hx-post=/runs/1/cancel hx-trigger=load>hx</i>`,
	`<a href="javascript:alert(3)" data-open="keys">a</a>`,
	`![x](x:y "onerror=alert(4)")`,
	"```\n<img src=y onerror=alert(5)>\n```",
}

// TestHostileText: text of a person, a model, a tool and a directive is text, whatever it says.
func TestHostileText(t *testing.T) {
	t.Parallel()
	attack := strings.Join(attacks, "\n\n")
	mind := modelsim.MindFunc(func(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		text := modelsim.TextBlock(attack)
		if strings.Contains(string(r.Raw), `"tool_result"`) {
			if strings.Contains(string(r.Raw), "<fork-boilerplate>") {
				text.Text = "Scope: " + attack + "\nResult: " + attacks[0] + attacks[3] + "\nKey files: " + attacks[0] + "\nFiles changed: none\nIssues: " + attacks[3]
			}
			return modelsim.Reply{Blocks: []modelsim.Block{text}}, nil
		}
		return modelsim.Reply{Blocks: []modelsim.Block{text, modelsim.ToolUseBlock("", "Read", `{"file_path":"hostile.txt"}`)}}, nil
	})
	_, url := simulator(t, modelsim.Options{Mind: mind, DeltaDelay: time.Millisecond})
	dir := repository(t)
	write(t, dir, "hostile.txt", attack)
	p := startWeb(t, map[string]string{"FORKYARD_WORKSPACES": dir, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1"})
	id := p.session(object{"workspace": dir, "title": attacks[0]})
	tab := p.signIn("/sessions/" + id) // it sees all of it come in live
	turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": attack})["run_id"].(string)
	p.ended(turn)
	d := p.must(202, "POST", "/sessions/"+id+"/forks", object{"directives": []object{{"title": attacks[0], "prompt": attack}, {"prompt": attacks[3]}}})
	fork, sibling := d["runs"].([]any)[0].(object)["id"].(string), d["runs"].([]any)[1].(object)["id"].(string)
	p.ended(fork)
	tab.Wait("the fork to end", `document.querySelector("#fork-`+fork+`")?.dataset.state === "done"`)
	eventually(t, "the turn that sums up", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == 4 && s["active_run_id"] == nil
	})
	isFresh(t, tab, "after the attacks")

	for _, path := range []string{"", "/", "/sessions/" + id, "/sessions/" + id + "/dispatch", "/runs/" + fork, "/runs/" + fork + "/requests/1", "/compare?a=" + fork + ":1&b=" + sibling + ":1", "/runs/" + turn} {
		if path != "" {
			tab.Open(p.base + path)
		}
		// Whatever was hidden may be looked at.
		tab.Run(`for (const d of document.querySelectorAll("details")) d.open = true; document.querySelector(".log-scroll, main").scrollIntoView()`)
		tab.Wait("the page", `document.readyState === "complete"`)
		if found := browsertest.Eval[[]string](tab, `Array.from(document.querySelectorAll('main img, main i, main b, main script, [onerror], main [hx-post="/runs/1/cancel"], [href^="javascript:" i], main [data-open]')).map((e) => e.outerHTML)`); len(found) > 0 {
			t.Errorf("%s: text became elements: %q", path, found)
		}
		if path != "/" && !strings.HasSuffix(path, "/dispatch") && !strings.HasPrefix(path, "/compare") {
			tab.Wait("the text as it was typed", `document.querySelector("main").textContent.includes("<img src=x onerror=alert(1)>")`)
		}
	}
	for _, r := range tab.Requests() {
		if strings.Contains(r, "/runs/1/") || strings.HasSuffix(r, "/x") || strings.HasSuffix(r, "/y") {
			t.Errorf("text made the browser ask for %s", r)
		}
	}
}
