package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"forkyard/forkcore"
)

// checkYard is the yard with all its runs listed, newest last.
type checkYard struct {
	*yard
	failBytes error
}

func (y checkYard) RunsOf(context.Context, string, string, int) ([]forkcore.Run, string, error) {
	return []forkcore.Run{y.known[loneID], y.known[leaderID], y.known[followerID]}, "", nil
}

func (y checkYard) RequestBody(ctx context.Context, id string, n int64) ([]byte, error) {
	if y.failBytes != nil {
		return nil, y.failBytes
	}
	return y.yard.RequestBody(ctx, id, n)
}

func (y checkYard) serve(t *testing.T) *running {
	return serve(t, y.fake, func(o *Options) { o.Reader, o.Bytes, o.Runner = y, y, y })
}

// brokenBody breaks three rules, one of them with hostile text, and has no mark.
func brokenBody() []byte {
	return []byte(`{"model":"m","tools":[],"system":[],"messages":[{"role":"user","content":[{"type":"text","text":""}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"<b>","name":"Read","input":{}}]},{"role":"user","content":[{"type":"text","text":"a"}]}],"max_tokens":1}`)
}

func TestChecksPage(t *testing.T) {
	y := checkYard{yard: newYard(t)}
	y.bodies[leaderID] = brokenBody()
	s := y.serve(t)
	root := page(t, s, pathChecks, http.StatusOK, "Authorization", bearer)
	harmless(t, root)
	shown := text(root)
	for _, want := range []string{
		"The last request of each of the latest 2 runs: 1 breaks rules.", "2 broken rules", "no rule broken",
		"messages.0.content.0 blank_text The text is empty or white space", "messages.1.content.0.id bad_id", "the whole request no_mark warning",
	} {
		if !strings.Contains(strings.ToLower(shown), strings.ToLower(want)) {
			t.Errorf("the page does not say %q in %s", want, shown)
		}
	}
	l := links(root)
	for _, want := range []string{requestPath(leaderID, 1), requestPath(followerID, 1), pathRun + leaderID, pathSession + sessionID} {
		if _, ok := l[want]; !ok {
			t.Errorf("no link to %s", want)
		}
	}
	for _, a := range all(root, "a") {
		if attribute(a, "href") == pathChecks && attribute(a, "data-key") != "" && attribute(a, "aria-current") == "" && !strings.Contains(text(a), "latest") {
			for _, x := range a.Attr {
				if x.Key == "aria-current" {
					return
				}
			}
			t.Error("the navigation does not say where one is")
		}
	}
}

func TestChecksOfOne(t *testing.T) {
	y := checkYard{yard: newYard(t)}
	y.bodies[leaderID] = brokenBody()
	delete(y.bodies, followerID)
	s := y.serve(t)
	for _, tt := range []struct {
		of     string
		status int
		want   string
	}{
		{leaderID, 200, "One request: 1 breaks rules."},
		{leaderID + ":1", 200, "One request: 1 breaks rules."},
		{" " + leaderID + ":1 ", 200, "One request: 1 breaks rules."},
		{sessionID, 200, "The last request of each of 2 runs: 1 breaks rules. 1 could not be checked."},
		{followerID, 200, "One request: no rule is broken in those that could be checked. 1 could not be checked."},
		{followerID + ":1", 200, "they are damaged, so they cannot be checked"},
		{loneID, 200, "Nothing was sent there yet."},
		{leaderID + ":2", 422, "This run has no request 2; it has sent 1."},
		{leaderID + ":0", 422, "Name a session"},
		{"run_03zzzzzzzzzzzzzzzz", 422, "There is no run run_03zzzzzzzzzzzzzzzz."},
		{"ses_03zzzzzzzzzzzzzzzz", 422, "There is no session ses_03zzzzzzzzzzzzzzzz."},
		{"<b>", 422, "Name a session"},
	} {
		root := page(t, s, checksPath(tt.of), tt.status, "Authorization", bearer)
		if shown := text(root); !strings.Contains(shown, tt.want) {
			t.Errorf("%q: no %q in %s", tt.of, tt.want, shown)
		}
		marked := false
		for _, input := range all(root, "input") {
			marked = marked || attribute(input, "name") == "of" && attribute(input, "aria-invalid") == "true"
		}
		if marked != (tt.status == 422) {
			t.Errorf("%q: the field is marked: %t", tt.of, marked)
		}
	}
	y.failBytes = forkcore.ErrNotFound
	if shown := text(page(t, y.serve(t), checksPath(leaderID), 200, "Authorization", bearer)); !strings.Contains(shown, "are gone") {
		t.Errorf("bytes that are gone: %s", shown)
	}
	y.failBytes = forkcore.ErrStoreUnavailable
	page(t, y.serve(t), checksPath(leaderID), 503, "Authorization", bearer)
}

func TestChecksEmpty(t *testing.T) {
	root := page(t, serve(t, newFake()), pathChecks, http.StatusOK, "Authorization", bearer)
	if shown := text(root); !strings.Contains(shown, "Nothing was sent yet") || !strings.Contains(shown, "Check a body") {
		t.Errorf("page: %s", shown)
	}
}

// Bodies beyond the bound are named and not rebuilt; the first is always looked at.
func TestChecksAreBounded(t *testing.T) {
	y := checkYard{yard: newYard(t)}
	y.rows[leaderID][0].BodyBytes, y.rows[followerID][0].BodyBytes = checkedBytes+1, 1
	shown := text(page(t, y.serve(t), pathChecks, http.StatusOK, "Authorization", bearer))
	if strings.Count(shown, "not checked Not checked here")+strings.Count(shown, "Not checked here") != 1 || !strings.Contains(shown, "1 could not be checked") {
		t.Errorf("page: %s", shown)
	}
	y.rows[leaderID][0].BodyBytes, y.rows[followerID][0].BodyBytes = checkedBytes-1, 1
	if shown := text(page(t, y.serve(t), pathChecks, http.StatusOK, "Authorization", bearer)); strings.Contains(shown, "Not checked here") {
		t.Errorf("within the bound: %s", shown)
	}
	v := newVerdict(make([]forkcore.Violation, shownViolations+3))
	if len(v.List) != shownViolations || v.Left != 3 || v.Broken != shownViolations+3 {
		t.Errorf("%d listed, %d left, %d broken", len(v.List), v.Left, v.Broken)
	}
}

func TestRuleSentence(t *testing.T) {
	for message, want := range map[string]string{
		"the text is empty": "The text is empty.", "tool_use t1 has no result": "tool_use t1 has no result.", `"model" is missing`: `"model" is missing.`, "max_tokens is 1.0": "max_tokens is 1.0.", "": "",
	} {
		if got := ruleSentence(message); got != want {
			t.Errorf("ruleSentence(%q) = %q, want %q", message, got, want)
		}
	}
}

func TestCheckPasted(t *testing.T) {
	s := serve(t, newFake())
	cookie := s.signIn(t)
	post := func(body string, header ...string) (*http.Response, string) {
		t.Helper()
		res, html := s.ask(t, "POST", pathChecks, url.Values{"body": {body}}.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Cookie", cookie, "Origin", s.URL}, header...)...)
		return res, html
	}
	for _, tt := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"broken", string(brokenBody()), 200, "2 broken rules"},
		{"sound", string(sampleBody(t)), 200, "no rule broken " + grouped(int64(len(sampleBody(t)))) + " bytes"},
		{"a warning alone", strings.ReplaceAll(string(sampleBody(t)), sampleMark, ""), 200, "no rule broken, a warning"},
		{"no JSON", "<script>alert(1)</script>", 200, "The body is no JSON after byte 1"},
		{"nothing", " \n", 422, "Paste the body of a request"},
	} {
		res, html := post(tt.body)
		root := parse(t, html)
		if strings.Contains(html, "<script>") || len(all(root, "b")) > 0 {
			t.Errorf("%s: hostile text became markup", tt.name)
		}
		if shown := text(root); res.StatusCode != tt.status || !strings.Contains(shown, tt.want) {
			t.Errorf("%s: %d, no %q in %s", tt.name, res.StatusCode, tt.want, shown)
		}
	}
	if res, _ := post("{}", "Origin", "https://elsewhere.example"); res.StatusCode != http.StatusForbidden {
		t.Errorf("from another site: %d", res.StatusCode)
	}
	if res, _ := s.ask(t, "POST", pathChecks, "body={}", "Content-Type", "application/x-www-form-urlencoded"); res.StatusCode == http.StatusOK {
		t.Error("without a sign-in the page answers")
	}
	long := `{"model":"` + strings.Repeat("m", keptPaste) + `"}`
	if _, html := post(long); strings.Contains(html, "mmmmmmmm") {
		t.Error("a long body stands in the form again")
	}
	if res, _ := post(strings.Repeat("x", maxBody)); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body over the limit: %d", res.StatusCode)
	}
}

// The page tells of prompts that were rendered anew, and what was seen of the five rules.
func TestM06_ChecksCountRecomputedPrompts(t *testing.T) {
	for n, want := range map[int64]string{
		0: "No rendered prompt was lost since this server started", 1: "1 rendered prompt had to be rendered anew", 3: "3 rendered prompts had to be rendered anew",
	} {
		y := checkYard{yard: newYard(t)}
		s := serve(t, y.fake, func(o *Options) {
			o.Reader, o.Bytes, o.Runner = y, y, y
			o.PromptsRecomputed = func() int64 { return n }
		})
		shown := text(page(t, s, pathChecks, http.StatusOK, "Authorization", bearer))
		if !strings.Contains(shown, want) || !strings.Contains(shown, "Five rules that keep forks cheap") {
			t.Errorf("%d: the page does not say %q", n, want)
		}
		_, metrics := s.ask(t, "GET", pathMetrics, "")
		if line := fmt.Sprintf("forkyard_prompts_recomputed_total %d", n); !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics do not have %q", line)
		}
	}
}
