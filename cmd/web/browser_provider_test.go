package main

import (
	"net/http"
	"strings"
	"testing"

	"forkyard/web/browsertest"
)

// allowKey makes the simulator refuse a key, or take it again.
func allowKey(t *testing.T, sim, key string, allowed bool) {
	t.Helper()
	body := `{"key":"` + key + `","allowed":false}`
	if allowed {
		body = `{"key":"` + key + `","allowed":true}`
	}
	res, err := http.Post(sim+"/_sim/keys", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode >= 300 {
		t.Fatalf("%s: %d", body, res.StatusCode)
	}
}

// TestRefusedKeyInTheBrowser revokes the key under a session: the page says so without a reload, and another key, checked
// first, lets the run go on.
func TestRefusedKeyInTheBrowser(t *testing.T) {
	t.Parallel()
	const old, bad, fresh = "sk-sim-0000000000000000OLD1", "sk-sim-0000000000000000BAD2", "sk-sim-0000000000000000NEW3"
	_, sim := simulator(t, paced())
	p := startWeb(t, map[string]string{"ANTHROPIC_BASE_URL": sim, "ANTHROPIC_API_KEY": old, "FORKYARD_SIMULATED": "1"})
	id := p.session(object{"workspace": p.workspace(), "title": "Revoked"})
	earlier := p.session(object{"workspace": p.workspace(), "title": "Before"})
	p.ended(p.must(202, "POST", "/sessions/"+earlier+"/messages", object{"text": "What is here? Work alone."})["run_id"].(string))
	tab := p.signIn("/sessions/" + earlier)
	tab.Click("summary", "")
	tab.Has("#session-head", "…OLD1")
	tab.Open(p.base + "/sessions/" + id)
	if said := browsertest.Eval[string](tab, `document.querySelector("#provider-banner").textContent.trim()`); said != "" {
		t.Fatalf("a banner while all is well: %s", said)
	}

	t.Log("the key is revoked: the open page tells by itself")
	allowKey(t, sim, old, false)
	allowKey(t, sim, bad, false)
	run := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "What is here? Work alone."})["run_id"].(string)
	eventually(t, "the run to wait for the key", func() bool {
		reason, _ := p.get("/runs/" + run)["reason"].(object)
		return reason["code"] == "provider"
	})
	tab.Wait("the banner", `document.querySelector("#provider-banner").textContent.includes("The provider refuses the key …OLD1")`)
	tab.Has("#provider-banner", "1 run waiting; nothing is lost.")
	tab.Accessible(axeFile)
	if n := browsertest.Eval[int](tab, `document.querySelectorAll("#provider-banner .notice").length`); n != 1 {
		t.Errorf("%d banners", n)
	}

	tab.Has("#session-head .reason", "Give another key on the page Key and limits")

	t.Log("checking again in the banner")
	tab.Click("#provider-banner button", "Check again")
	tab.Has("#provider-banner", "Checked just now. The endpoint refuses the key.")
	tab.Accessible(axeFile)

	t.Log("another refused key changes nothing")
	tab.Click("#provider-banner a", "Give another key")
	tab.Has("h1", "Key and limits")
	tab.Tolerate("/provider/key: status 422")
	tab.Fill("#api-key", bad)
	tab.Click("form.key button", "Check and use it")
	tab.Has("#key-error", "the key in use stays")
	tab.Has("#in-use-title ~ dl", "…OLD1")
	tab.Accessible(axeFile)

	t.Log("a good one lets the run go on")
	tab.Fill("#api-key", fresh)
	tab.Click("form.key button", "Check and use it")
	tab.Has("#provider-result", "The new key is in use.")
	tab.Has("#provider-result", "1 run goes on. Caches are cold")
	tab.Has("#provider", "…NEW3")
	tab.Wait("the banner to go", `document.querySelector("#provider-banner").textContent.trim() === ""`)
	tab.Accessible(axeFile)
	if kept := browsertest.Eval[string](tab, `document.querySelector("#api-key").value`); kept != "" {
		t.Errorf("the form keeps the key")
	}
	if r := p.ended(run); r["state"] != "done" {
		t.Errorf("the run is %v", r)
	}

	t.Log("what was cached for the old key is as good as gone")
	tab.Open(p.base + "/sessions/" + earlier)
	tab.Has("#session-head", "another one than …NEW3, which is in use: caches are cold")
	tab.Has("#session-head dd", "cold")
	if clock := p.get("/sessions/" + earlier)["cache_clock"]; clock != nil {
		t.Errorf("cache_clock of another key: %v", clock)
	}
	tab.Open(p.base + "/sessions/" + id)
	tab.Has("#session-head", "…NEW3")

	t.Log("a key that is taken again after a check in the banner")
	allowKey(t, sim, fresh, false)
	run = p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "And now? Work alone."})["run_id"].(string)
	tab.Wait("the banner", `document.querySelector("#provider-banner").textContent.includes("The provider refuses the key …NEW3")`)
	allowKey(t, sim, fresh, true)
	tab.Click("#provider-banner button", "Check again")
	tab.Has("#provider-banner", "1 run goes on.")
	tab.Accessible(axeFile)
	tab.Wait("the banner to go", `document.querySelector("#provider-banner").textContent.trim() === ""`)
	if r := p.ended(run); r["state"] != "done" {
		t.Errorf("the run is %v", r)
	}
	for _, key := range []string{old, bad, fresh} {
		if strings.Contains(p.log.String()+p.out.String(), key) {
			t.Errorf("a log has the key %s", key)
		}
	}
}
