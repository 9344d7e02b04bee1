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
	tab := p.signIn("/sessions/" + id)
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

	t.Log("another refused key changes nothing")
	tab.Click("#provider-banner a", "Give another key")
	tab.Has("h1", "Provider")
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
	for _, key := range []string{old, bad, fresh} {
		if strings.Contains(p.log.String()+p.out.String(), key) {
			t.Errorf("a log has the key %s", key)
		}
	}
}
