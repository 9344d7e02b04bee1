package modelsim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	readingTools = `{"name":"Glob","input_schema":{"type":"object"}},{"name":"Grep","input_schema":{"type":"object"}},{"name":"Read","input_schema":{"type":"object"}}`
	agentTool    = `{"name":"Agent","input_schema":{"type":"object"}}`
	boilerplate  = `{"type":"text","text":"<fork-boilerplate>\nYou are a fork. Write Scope:, Result: and so on.\n</fork-boilerplate>"}`
)

// agent drives the simulator as a client does: it sends the history, appends the answer and runs the tools.
type agent struct {
	t        *testing.T
	sim      *Server
	tools    string
	messages []string
	run      func(use Block) (out string, failed bool)
	used     []string
}

func newAgent(t *testing.T, tools string, messages ...string) *agent {
	return &agent{t: t, sim: New(Options{}), tools: tools, messages: messages, run: workspace}
}

// workspace answers tool calls as if three files were there.
func workspace(use Block) (string, bool) {
	switch use.Name {
	case "Glob":
		return "cmd/app/main.go\ninternal/store.go\nREADME.md\n", false
	case "Grep":
		return "cmd/app/main.go:3:func main() {\ninternal/store.go:9:// main store\ninternal/store.go:20:main\n", false
	case "Read":
		return "     1\tpackage " + inputText(use, "file_path") + "\n     2\t\n", false
	}
	return "no such tool: " + use.Name, true
}

// step sends the history and returns the answer's blocks.
func (a *agent) step() (blocks []Block, stop string) {
	a.t.Helper()
	tools := ""
	if a.tools != "" {
		tools = `"tools":[` + a.tools + `],`
	}
	w := direct(a.sim, `{"model":"claude-sonnet-5-5","max_tokens":32000,`+tools+`"messages":[`+strings.Join(a.messages, ",")+`]}`)
	if w.Code != 200 {
		a.t.Fatalf("%d %s", w.Code, w.Body)
	}
	var m struct {
		Content    json.RawMessage
		StopReason string `json:"stop_reason"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		a.t.Fatal(err)
	}
	els, _ := elements(m.Content)
	for _, raw := range els {
		pos, err := newPosition(tierMessages, "answer", "assistant", raw)
		if err != nil {
			a.t.Fatal(err)
		}
		blocks = append(blocks, pos.block())
	}
	a.messages = append(a.messages, `{"role":"assistant","content":`+string(m.Content)+`}`)
	return blocks, m.StopReason
}

// finish steps and runs tools until the answer ends the turn; it returns the last text.
func (a *agent) finish() string {
	a.t.Helper()
	for range 10 {
		blocks, stop := a.step()
		var results []string
		last := ""
		for _, b := range blocks {
			if b.Type == "text" {
				last = b.Text
			}
			if b.Type != "tool_use" {
				continue
			}
			a.used = append(a.used, b.Name)
			out, failed := a.run(b)
			results = append(results, object("type", "tool_result", "tool_use_id", b.ID, "content", out, "is_error", failed))
		}
		if (stop == "tool_use") != (results != nil) {
			a.t.Fatalf("stop_reason %q with %d calls", stop, len(results))
		}
		if results == nil {
			return last
		}
		a.messages = append(a.messages, user(results...))
	}
	a.t.Fatal("the player does not come to an end")
	return ""
}

func textJSON(s string) string { return object("type", "text", "text", s) }

// labels checks that the report has the five labels, each once at a line's start, and returns what stands after each.
func labels(t *testing.T, report string) map[string]string {
	t.Helper()
	got := map[string]string{}
	lines := strings.Split(report, "\n")
	for i, label := range []string{"Scope", "Result", "Key files", "Files changed", "Issues"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], label+": ") {
			t.Fatalf("line %d is not %s: in\n%s", i+1, label, report)
		}
		got[label] = strings.TrimPrefix(lines[i], label+": ")
	}
	if len(lines) != 5 {
		t.Errorf("%d lines in\n%s", len(lines), report)
	}
	return got
}

func TestForkReports(t *testing.T) {
	a := newAgent(t, readingTools+","+agentTool, user(boilerplate, textJSON("Describe the entry points of the repository.")))
	got := labels(t, a.finish())
	if diff := cmp.Diff([]string{"Glob", "Grep", "Read", "Read"}, a.used); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	want := map[string]string{
		"Scope": "Describe the entry points of the repository.",
		"Result": `3 files for the name pattern "**/*". 3 matches for "func main\\(|^package main|__main__" in 2 files. ` +
			`internal/store.go (2 lines read) begins with "package internal/store.go". cmd/app/main.go (2 lines read) begins with "package cmd/app/main.go".`,
		"Key files": "internal/store.go, cmd/app/main.go, README.md", "Files changed": "none", "Issues": "none",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A fork of a dispatch by the model: its directive follows the placeholders of its parent's calls and the boilerplate.
func TestForkAfterPlaceholders(t *testing.T) {
	history := []string{ask, calls, user(res1, res2, boilerplate, textJSON("Count \"store\" in *.go files.\nMore words."))}
	a := newAgent(t, readingTools+","+agentTool, history...)
	var inputs []string
	a.run = func(use Block) (string, bool) {
		inputs = append(inputs, string(use.Input))
		return workspace(use)
	}
	got := labels(t, a.finish())
	if got["Scope"] != `Count "store" in *.go files.` {
		t.Errorf("scope = %q", got["Scope"])
	}
	if inputs[0] != `{"pattern":"**/*.go"}` || !strings.Contains(inputs[1], `"pattern":"store"`) {
		t.Errorf("calls %v", inputs)
	}
}

func TestForkShowsToolErrors(t *testing.T) {
	a := newAgent(t, readingTools, user(boilerplate, textJSON("Find the tests.")))
	a.run = func(use Block) (string, bool) {
		if use.Name == "Grep" {
			return "rg: permission denied", true
		}
		return workspace(use)
	}
	if got := labels(t, a.finish()); got["Issues"] != "Grep failed: rg: permission denied" || !strings.Contains(got["Result"], "3 files for") {
		t.Errorf("report %v", got)
	}
	a = newAgent(t, readingTools, user(boilerplate, textJSON("Find the tests.")))
	a.run = func(Block) (string, bool) { return "denied", true }
	if got := labels(t, a.finish()); got["Issues"] != "Glob failed: denied; Grep failed: denied" || !strings.HasPrefix(got["Result"], "Nothing was found") {
		t.Errorf("report %v", got)
	}
}

func TestLooksLikePath(t *testing.T) {
	for s, want := range map[string]bool{
		"Makefile": true, "cmd/app/main.go": true, "app/[id]/(group)/page.tsx": true, "docs/my file.md": true, "sub/": true,
		"No files match": false, "[the first 500 of 1234 files: give a narrower pattern or a path]": false, "No matches found": false,
		"error: cannot read": false, "": false, "Nothing is there.": false,
	} {
		if got := looksLikePath(s); got != want {
			t.Errorf("looksLikePath(%q) = %v", s, got)
		}
	}
}

func TestPartialResultsAreNotPassedOffAsWhole(t *testing.T) {
	a := newAgent(t, readingTools, user(boilerplate, textJSON("Find the tests.")))
	a.run = func(use Block) (string, bool) {
		switch use.Name {
		case "Glob":
			return "a_test.go\nb_test.go\n[the first 2 of 1234 files: give a narrower pattern or a path]\n", false
		case "Grep":
			return strings.Repeat("a_test.go:1:func TestA\n", grepLimit), false
		}
		return "     1\tpackage a\n[lines 1 to 1 of a file of 900 bytes: go on with offset 2]\n", false
	}
	if got := labels(t, a.finish())["Result"]; !strings.HasPrefix(got, "1234 files for") || !strings.Contains(got, "at least 40 matches") || !strings.Contains(got, "a_test.go (1 line read)") {
		t.Errorf("result %q", got)
	}
}

func TestForkWithoutTools(t *testing.T) {
	a := newAgent(t, "", user(boilerplate, textJSON("Find the tests.")))
	if got := labels(t, a.finish()); got["Issues"] == "none" || got["Key files"] != "none" {
		t.Errorf("report %v", got)
	}
}

func agentCalls(t *testing.T, blocks []Block) (descriptions, prompts []string) {
	t.Helper()
	for _, b := range blocks {
		if b.Type == "tool_use" && b.Name == "Agent" {
			descriptions = append(descriptions, inputText(b, "description"))
			prompts = append(prompts, inputText(b, "prompt"))
		}
	}
	return descriptions, prompts
}

func TestFanOut(t *testing.T) {
	for _, tc := range []struct {
		name, task string
		n          int
		first      string // first directive, "" for any
	}{
		{name: "default", task: "Look at this repository.", n: 5},
		{name: "digits", task: "Please use 3 agents to look at this repository", n: 3},
		{name: "word", task: "Explore this with five forks", n: 5},
		{name: "words between", task: "launch 7 parallel child agents for the review", n: 7},
		{name: "fan out", task: "fan out 4 over the code", n: 4},
		{name: "number after", task: "review the code, forks: 6", n: 6},
		{name: "capped", task: "start 1000 forks now please", n: 64},
		{name: "more than the aspects", task: "start 40 forks now please", n: 40},
		{name: "bullets", task: "Do these:\n- Count the go files\n- List TODO marks\n", n: 2, first: "Count the go files"},
		{name: "numbered lines", task: "Do these:\n1. Count the go files\n2) List TODO marks\n3. Read the docs", n: 3, first: "Count the go files"},
		{name: "bullets and a larger number", task: "Use 4 forks:\n- Count the go files\n- List TODO marks\n", n: 4, first: "Count the go files"},
		{name: "a number of something else", task: "Check the 12 files in this repository", n: 5},
		{name: "a number inside a bullet", task: "Do these:\n- Count 9 agents\n- List TODO marks", n: 2, first: "Count 9 agents"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAgent(t, agentTool+","+readingTools, user(textJSON(tc.task)))
			blocks, stop := a.step()
			descriptions, prompts := agentCalls(t, blocks)
			if stop != "tool_use" || len(prompts) != tc.n || blocks[0].Type != "text" {
				t.Fatalf("%d agents and %q, want %d", len(prompts), stop, tc.n)
			}
			if tc.first != "" && prompts[0] != tc.first {
				t.Errorf("first directive %q, want %q", prompts[0], tc.first)
			}
			seen := map[string]bool{}
			for i := range prompts {
				if words := len(strings.Fields(descriptions[i])); words > 6 || words < 3 || seen[prompts[i]] {
					t.Errorf("agent %d: %q, %q", i, descriptions[i], prompts[i])
				}
				seen[prompts[i]] = true
			}
		})
	}
}

func TestMainLaunchesAndSumsUp(t *testing.T) {
	a := newAgent(t, agentTool+","+readingTools, user(textJSON("Explore this with 2 forks")))
	blocks, _ := a.step()
	var results []string
	for _, b := range blocks {
		if b.Type == "tool_use" {
			results = append(results, object("type", "tool_result", "tool_use_id", b.ID, "content", "Fork started."))
		}
	}
	a.messages = append(a.messages, user(append(results, textJSON("Forks: r1, r2"))...))
	blocks, stop := a.step()
	if stop != "end_turn" || len(blocks) != 1 || !strings.HasPrefix(blocks[0].Text, "I launched 2 agents:\n- Map structure and entry points\n- Survey the tests\n") {
		t.Fatalf("after the launch: %q %+v", stop, blocks)
	}
	notice := func(status, result string) string {
		return textJSON("<task-notification>\n<task-id>r</task-id>\n<status>" + status + "</status>\n<summary>Fork \"x\" " + status + "</summary>\n<result>" + result +
			"</result>\n<usage><total_tokens>1200</total_tokens></usage>\n</task-notification>")
	}
	a.messages = append(a.messages, user(notice("completed", "Scope: s\nResult: 3 files\nKey files: none"), notice("failed", "overloaded")))
	blocks, stop = a.step()
	want := "- [completed] Fork \"x\" completed\n  Result: 3 files\n- [failed] Fork \"x\" failed\n  overloaded\nTotal: 2 agents, 1 completed, 1 failed, 2400 tokens."
	if stop != "end_turn" || len(blocks) != 1 || blocks[0].Text != want {
		t.Errorf("summary %q\n got %q\nwant %q", stop, blocks[0].Text, want)
	}
	a.messages = append(a.messages, user(textJSON("Now explore it with 3 forks")))
	if blocks, _ = a.step(); len(blocks) != 4 {
		t.Errorf("the next task: %+v", blocks)
	}
}

func TestLaunchFailuresAreTold(t *testing.T) {
	a := newAgent(t, agentTool, user(textJSON("Explore this with 2 forks")))
	a.run = func(Block) (string, bool) { return "budget exhausted", true }
	if got := a.finish(); !strings.HasPrefix(got, "None of the 2 agents could be launched:\n- Map structure and entry points: budget exhausted") {
		t.Errorf("got %q", got)
	}
	a = newAgent(t, agentTool, user(textJSON("Explore this with 2 forks")))
	a.run = func(use Block) (string, bool) { return "Scope: x\nResult: saw " + inputText(use, "description"), false }
	if got := a.finish(); !strings.Contains(got, "2 of 2 agents answered:\n- Map structure and entry points: saw Map structure") {
		t.Errorf("got %q", got)
	}
}

func TestMainAlone(t *testing.T) {
	for _, tc := range []struct {
		name, tools, task string
		used              []string
	}{
		{"told to", agentTool + "," + readingTools, "Count the go files yourself please", []string{"Glob", "Grep", "Read", "Read"}},
		{"without forks", agentTool + "," + readingTools, "Read the docs without any forks", []string{"Glob", "Grep", "Read", "Read"}},
		{"very short", agentTool + "," + readingTools, "main.go?", []string{"Glob", "Grep", "Read", "Read"}},
		{"no Agent tool", readingTools, "Look at this repository with 3 forks", []string{"Glob", "Grep", "Read", "Read"}},
		{"only Bash", `{"name":"Bash","input_schema":{"type":"object"}}`, "Look at this repository", []string{"Bash"}},
		{"small talk", agentTool + "," + readingTools, "Hello there!", nil},
		{"no tools", "", "Look at this repository", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newAgent(t, tc.tools, user(textJSON("<system-reminder>date</system-reminder>"), textJSON(tc.task)))
			answer := a.finish()
			if diff := cmp.Diff(tc.used, a.used); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if answer == "" {
				t.Error("no answer")
			}
		})
	}
}

func TestPlayerIsDeterministic(t *testing.T) {
	body := `{"model":"claude-sonnet-5-5","max_tokens":1000,"thinking":{"type":"adaptive","display":"summarized"},"tools":[` + agentTool + `],"messages":[` + user(textJSON("look at all of it")) + `]}`
	p, bad := parse([]byte(body), versionNew, nil, false)
	if bad != nil {
		t.Fatal(bad)
	}
	first, err := Player().Reply(context.Background(), &p.Request)
	if err != nil {
		t.Fatal(err)
	}
	if first.Blocks[0].Type != "thinking" {
		t.Errorf("first block %+v, want thinking as the request asks for it", first.Blocks[0])
	}
	for range 20 {
		again, _ := Player().Reply(context.Background(), &p.Request)
		if diff := cmp.Diff(fmt.Sprint(first), fmt.Sprint(again)); diff != "" {
			t.Fatal(diff)
		}
	}
	sim := New(Options{})
	ids := func() (out []string) {
		var m struct{ Content []struct{ ID string } }
		if err := json.Unmarshal(direct(sim, body).Body.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		for _, b := range m.Content {
			out = append(out, b.ID)
		}
		return out
	}
	if diff := cmp.Diff(ids(), ids()); diff != "" {
		t.Errorf("a repeated request gets other call ids:\n%s", diff)
	}
}

// A history that holds the player's own thinking is accepted back.
func TestPlayerThinkingRoundTrip(t *testing.T) {
	for _, display := range []string{"summarized", "omitted"} {
		sim := New(Options{})
		req := func(messages ...string) string {
			return `{"model":"claude-sonnet-5-5","max_tokens":1000,"thinking":{"type":"adaptive","display":"` + display + `"},"messages":[` + strings.Join(messages, ",") + `]}`
		}
		w := direct(sim, req(ask))
		content := lookup(members(w.Body.Bytes()), "content")
		if !strings.Contains(string(content), `"type":"thinking"`) {
			t.Fatalf("no thinking in %s", content)
		}
		if w := direct(sim, req(ask, `{"role":"assistant","content":`+string(content)+`}`, ask)); w.Code != 200 {
			t.Errorf("%s: %s", display, w.Body)
		}
	}
}
