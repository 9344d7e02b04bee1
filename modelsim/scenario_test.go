package modelsim

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsed reads a scenario that is meant to be right.
func parsed(t *testing.T, source string) *Scenario {
	t.Helper()
	s, err := ParseScenario(t.Name(), []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// All mistakes of a file are told at once, each with its place, what was expected and the line.
func TestScenarioErrors(t *testing.T) {
	const source = `descripton: x
options:
  start_delay: 10
rules:
  - anwser:
      text: hi
  - match: {directive: {regexp: "(["}, turn: 0}
    times: 0
    answer:
      text: "{{.Directve}}"
      fault: {kind: eof, retry_after: 10s}
  - answer: {text: a}
  - answer: {text: b}
`
	_, err := ParseScenario("bad.yaml", []byte(source))
	want := `bad.yaml:1:1: unknown field ` + "`descripton`: did you mean `description`?" + `
    1 | descripton: x
      | ^
bad.yaml:3:16: expected a duration such as 300ms or 1.5s, found the number ` + "`10`" + `
    3 |   start_delay: 10
      |                ^
bad.yaml:5:5: unknown field ` + "`anwser`: did you mean `answer`?" + `
    5 |   - anwser:
      |     ^
bad.yaml:7:33: bad regular expression: missing closing ]: ` + "`[`" + ` (syntax: RE2, see go doc regexp/syntax)
    7 |   - match: {directive: {regexp: "(["}, turn: 0}
      |                                 ^
bad.yaml:7:46: expected a number of at least 1, found 0
    7 |   - match: {directive: {regexp: "(["}, turn: 0}
      |                                              ^
bad.yaml:8:12: expected a number of at least 1, found 0
    8 |     times: 0
      |            ^
bad.yaml:10:13: unknown field ` + "`.Directve` in a template: did you mean `Directive`?" + `
   10 |       text: "{{.Directve}}"
      |             ^
bad.yaml:11:26: ` + "`retry_after` does not go with a fault of kind `eof`, which takes `after_events`, `after_bytes` or `in_rune`" + `
   11 |       fault: {kind: eof, retry_after: 10s}
      |                          ^
bad.yaml:13:5: unreachable: the rule at line 12 has no ` + "`match`" + ` and answers everything
   13 |   - answer: {text: b}
      |     ^`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("errors differ (-want +got):\n%s", diff)
	}
}

// A tool's input keeps the order of its keys and the digits of its numbers.
func TestScenarioInputBytes(t *testing.T) {
	s := parsed(t, `rules: [{answer: {tool_use: {name: R, input: {z: 1.0, a: 12345678901234567890, l: ["<&>", ~, 1e3, &x {k: true}, *x]}}}}]`)
	got := string(s.file.Rules[0].Answer.blocks[0].block.Input)
	if want := `{"z":1.0,"a":12345678901234567890,"l":["<&>",null,1e3,{"k":true},{"k":true}]}`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// A scenario can be swapped while the server runs; the options of a file go with it.
func TestScenarioSwap(t *testing.T) {
	sim, url := start(t, Options{Mind: say(TextBlock("first"))})
	post := func(source string, status int) string {
		t.Helper()
		res, body := send(t, "POST", url+"/_sim/scenario", source)
		if res.StatusCode != status {
			t.Fatalf("status %d: %s", res.StatusCode, body)
		}
		return string(body)
	}
	ask := func(status int, want string) {
		t.Helper()
		if res, body := send(t, "POST", url+"/v1/messages", hello); res.StatusCode != status || !strings.Contains(string(body), want) {
			t.Fatalf("status %d: %s; want %d with %q", res.StatusCode, body, status, want)
		}
	}
	ask(200, `"first"`)
	post("options: {keys: other}\nrules: [{answer: {text: second}}]", http.StatusNoContent)
	ask(401, "invalid x-api-key")
	post("rules: [{match: {model: opus}, answer: {text: third}}]", http.StatusNoContent)
	ask(400, "no rule matches (turn 1, attempt 1")
	if body := post("rules: [{answer: {txt: x}}]", http.StatusUnprocessableEntity); !strings.Contains(body, "did you mean `text`?") || !strings.Contains(body, `"line":1,"column":19`) {
		t.Errorf("mistakes are told as %s", body)
	}
	ask(400, "no rule matches (turn 1, attempt 2")
	if res, _ := send(t, "DELETE", url+"/_sim/scenario", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("status %d", res.StatusCode)
	}
	ask(200, `"first"`)
	if n := len(sim.Requests()); n != 5 {
		t.Errorf("%d requests captured; want 5, kept over swaps", n)
	}
}

func FuzzParseScenario(f *testing.F) {
	for _, seed := range []string{"", "rules: []", "rules: [{answer: {text: hi}}]", "a: &x [*x]", "rules:\n\t- x", "x: \x00", "rules: &r [{answer: &a {text: '{{.Turn}}'}, then: *a}]\nfallback: *a", "--- 1\n--- 2", "? [a]\n: b", "*x : 1", "<<: {rules: 1}", "\r{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseScenario("f", data)
		if err == nil {
			_, _ = s.Reply(t.Context(), &Request{Messages: []Message{{Role: "user"}}})
			return
		}
		var list ScenarioErrors
		if !errors.As(err, &list) || len(list) == 0 {
			t.Fatalf("%T: %v", err, err)
		}
		for _, e := range list {
			if e.Line < 1 || e.Column < 1 || e.Message == "" || e.Line > len(yamlLines(data))+1 {
				t.Fatalf("%+v", e)
			}
		}
	})
}
