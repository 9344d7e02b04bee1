package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/modelsim"
)

const testKey = "sk-live-check-0123456789"

// clock is the time of the simulator and of the program; waiting moves it.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) wait(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	return ctx.Err()
}

// endpoint is a simulator with one rule changed.
type endpoint struct {
	opts modelsim.Options
	// edit changes a request's body, or answers in place of the simulator when it returns a status.
	edit func(body string, at time.Duration) (string, int)
	// silent takes the headers about limits and workspace out of the answers.
	silent bool
}

type bareHeaders struct{ http.ResponseWriter }

func (w bareHeaders) WriteHeader(status int) {
	w.clear()
	w.ResponseWriter.WriteHeader(status)
}

func (w bareHeaders) Write(p []byte) (int, error) {
	w.clear()
	return w.ResponseWriter.Write(p)
}

func (w bareHeaders) clear() {
	for name := range w.Header() {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "anthropic-") {
			w.Header().Del(name)
		}
	}
}

func (w bareHeaders) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// try runs livecheck against e and returns its exit code, its report and the requests that arrived.
func try(t *testing.T, ctx context.Context, e endpoint, args ...string) (int, report, *modelsim.Server) {
	t.Helper()
	c := &clock{t: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
	start := c.t
	e.opts.Now = c.now
	e.opts.Mind = modelsim.MindFunc(func(context.Context, *modelsim.Request) (modelsim.Reply, error) {
		return modelsim.Reply{Blocks: []modelsim.Block{modelsim.TextBlock("yes")}}, nil
	})
	sim := modelsim.New(e.opts)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.edit != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client went away
			}
			edited, status := e.edit(string(body), c.now().Sub(start))
			if status != 0 {
				w.Header().Set("content-type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"type":"error","error":{"type":"invalid_request_error","message":"not here"}}`)
				return
			}
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(edited)), int64(len(edited))
		}
		if e.silent {
			w = bareHeaders{w}
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	out := filepath.Join(t.TempDir(), "live", "report.json")
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{"-yes", "-out", out, "-base-url", srv.URL}, args...), program{
		getenv: func(string) string { return testKey }, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, now: c.now, wait: c.wait,
	})
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("no report: %v\n%s%s", err, stdout.String(), stderr.String())
	}
	for _, secret := range []string{testKey, "without meaning"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the report has %q in it", secret)
		}
	}
	var rep report
	if err := json.Unmarshal(raw, &rep); err != nil {
		t.Fatal(err)
	}
	return code, rep, sim
}

func limited() modelsim.Options {
	return modelsim.Options{Limits: modelsim.Limits{RequestsPerMinute: 100_000, InputTokensPerMinute: 1_000_000_000, OutputTokensPerMinute: 1_000_000_000}}
}

// The simulator's rules are known: each verdict must be the one they give.
func TestVerdictsOnTheSimulator(t *testing.T) {
	code, rep, sim := try(t, t.Context(), endpoint{opts: limited()}, "-slow")
	if code != exitRan || len(rep.Missing) > 0 {
		t.Fatalf("exit code %d, missing %v, ended %q", code, rep.Missing, rep.Ended)
	}
	sent := 0
	for i, f := range rep.Facts {
		e := experiments()[i]
		if f.Name != e.name || f.Question != e.question {
			t.Errorf("fact %d is %s, want %s", i, f.Name, e.name)
		}
		if f.Verdict != e.assumed {
			t.Errorf("%s: %s, want %s (%v %s)", f.Name, f.Verdict, e.assumed, f.Numbers, f.Note)
		}
		if len(f.Requests) == 0 || len(f.Requests) > e.requests {
			t.Errorf("%s sent %d requests and announces %d", f.Name, len(f.Requests), e.requests)
		}
		for _, r := range f.Requests {
			if r.RequestID == "" || r.Usage == nil {
				t.Errorf("%s: a request without id or usage: %+v", f.Name, r)
			}
		}
		sent += len(f.Requests)
	}
	if len(rep.Facts) != len(experiments()) {
		t.Errorf("%d facts for %d experiments", len(rep.Facts), len(experiments()))
	}
	if got := len(sim.Requests()); got != sent {
		t.Errorf("%d requests arrived, %d are in the report", got, sent)
	}
	if rep.SpentUSD <= 0 || rep.SpentUSD > rep.CeilingUSD {
		t.Errorf("spent %v of %v USD", rep.SpentUSD, rep.CeilingUSD)
	}
	// The estimate that is shown must not promise less than what is spent.
	l := testLab(t)
	var estimate int64
	for _, e := range experiments() {
		estimate += e.estimate(l)
	}
	if usd(estimate) < rep.SpentUSD || usd(estimate) > 5*rep.SpentUSD {
		t.Errorf("estimated %.4f USD, spent %.4f", usd(estimate), rep.SpentUSD)
	}
}

func testLab(t *testing.T) *lab {
	t.Helper()
	c, err := parseConfig(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(c, program{getenv: func(string) string { return testKey }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// salt makes another prompt of a body whose system text begins with a random line.
func salt(body, with string) string {
	return strings.Replace(body, `"text":"Line `, `"text":"`+with+`Line `, 1)
}

// salted changes the prompt of the requests that have a text in them.
func salted(texts ...string) func(string, time.Duration) (string, int) {
	return func(body string, _ time.Duration) (string, int) {
		for _, text := range texts {
			if strings.Contains(body, text) {
				return salt(body, "salt "), 0
			}
		}
		return body, 0
	}
}

// without drops what lies between two texts, the end not included.
func without(body, from, to string) string {
	before, rest, ok := strings.Cut(body, from)
	if !ok {
		return body
	}
	if at := strings.Index(rest, to); at >= 0 {
		return before + rest[at:]
	}
	return body
}

// An experiment that gave the same verdict under another rule could not tell the rules apart.
func TestVerdictsChangeWithTheRule(t *testing.T) {
	lag := limited()
	lag.VisibilityLag = time.Hour
	inKey := limited()
	inKey.TTLInKey = true
	longer := limited()
	longer.MinCacheable = map[string]int{"claude-sonnet-5-5": 700}
	rules := map[string]endpoint{
		"look-back-window": {edit: func(body string, _ time.Duration) (string, int) {
			// Five positions more before the last ones: the window of 20 then is one of 15.
			more := strings.Repeat(`{"type":"text","text":"more"},`, 5)
			return strings.Replace(body, `{"type":"text","text":"Note 5.`, more+`{"type":"text","text":"Note 5.`, 1), 0
		}},
		"look-back-system": {edit: func(body string, _ time.Duration) (string, int) {
			return without(body, `,{"type":"text","text":"Rule 1:`, `],"messages"`), 0
		}},
		"look-back-tools": {edit: func(body string, _ time.Duration) (string, int) {
			return without(body, `,{"name":"tool_1"`, `],"system"`), 0
		}},
		"visible-at-start": {opts: lag},
		"prewarm":          {edit: refuse(`"max_tokens":0`)},
		"prewarm-adaptive": {edit: refuse(`"max_tokens":0`)},
		"diagnostics": {edit: func(body string, _ time.Duration) (string, int) {
			before, _, ok := strings.Cut(body, `,"diagnostics":`)
			if ok {
				body = before + "}"
			}
			return body, 0
		}},
		"ttl-refresh": {edit: func(body string, at time.Duration) (string, int) {
			// Entries end five minutes after the write, whatever was read.
			return salt(body, fmt.Sprintf("%d ", at/(5*time.Minute))), 0
		}},
		"5m-reads-1h":           {opts: inKey},
		"abort-keeps":           {edit: salted("then be aborted")},
		"same-text-escaped":     {edit: normalized},
		"same-text-spaced":      {edit: normalized},
		"merged-turns":          {edit: salted(`]},{"role":"user"`)},
		"effort-keeps-system":   {edit: salted(`"effort":"high"`)},
		"thinking-keeps-system": {edit: salted(`"summarized"`)},
		"minimum-length":        {opts: longer},
		"rate-limit-headers":    {silent: true},
		"workspace-header":      {silent: true},
	}
	for _, e := range experiments() {
		rule, ok := rules[e.name]
		if !ok {
			t.Errorf("%s: no rule to change", e.name)
			continue
		}
		t.Run(e.name, func(t *testing.T) {
			code, rep, _ := try(t, t.Context(), rule, "-slow", "-only", e.name)
			if code != exitRan || len(rep.Facts) != 1 {
				t.Fatalf("exit code %d, %d facts, ended %q", code, len(rep.Facts), rep.Ended)
			}
			want := no
			if e.assumed == no {
				want = yes
			}
			if f := rep.Facts[0]; f.Verdict != want {
				t.Errorf("%s, want %s (%v %s)", f.Verdict, want, f.Numbers, f.Note)
			}
		})
	}
}

// normalized makes equal requests equal bytes: the simulator's cache compares bytes.
func normalized(body string, _ time.Duration) (string, int) {
	var out bytes.Buffer
	if err := json.Compact(&out, []byte(body)); err != nil {
		return body, http.StatusBadRequest
	}
	return strings.ReplaceAll(out.String(), `\u003c`, "<"), 0
}

func refuse(text string) func(string, time.Duration) (string, int) {
	return func(body string, _ time.Duration) (string, int) {
		if strings.Contains(body, text) {
			return "", http.StatusBadRequest
		}
		return body, 0
	}
}

// An experiment whose requests fail has no verdict.
func TestRefusedRequestsAreInconclusive(t *testing.T) {
	code, rep, _ := try(t, t.Context(), endpoint{edit: func(string, time.Duration) (string, int) { return "", http.StatusBadRequest }}, "-slow")
	if code != exitRan || len(rep.Facts) != len(experiments()) {
		t.Fatalf("exit code %d, %d facts", code, len(rep.Facts))
	}
	for _, f := range rep.Facts {
		// A refused pre-warm is an answer.
		if want := inconclusive; f.Verdict != want && !strings.HasPrefix(f.Name, "prewarm") {
			t.Errorf("%s: %s, want %s", f.Name, f.Verdict, want)
		}
	}
	if rep.SpentUSD != 0 {
		t.Errorf("refused requests cost %v USD", rep.SpentUSD)
	}
}

// The ceiling holds before a request: what is spent never passes it.
func TestCeiling(t *testing.T) {
	code, rep, sim := try(t, t.Context(), endpoint{opts: limited()}, "-max-usd", "0.06")
	if code != exitExceeded || len(rep.Missing) == 0 || !strings.Contains(rep.Ended, "ceiling") {
		t.Errorf("exit code %d, missing %v, ended %q", code, rep.Missing, rep.Ended)
	}
	if rep.SpentUSD > 0.06 || len(sim.Requests()) == 0 {
		t.Errorf("%d requests, %v USD", len(sim.Requests()), rep.SpentUSD)
	}
	code, rep, sim = try(t, t.Context(), endpoint{opts: limited()}, "-max-usd", "0.000001")
	if code != exitExceeded || rep.SpentUSD != 0 || len(sim.Requests()) != 0 {
		t.Errorf("exit code %d, %d requests, %v USD", code, len(sim.Requests()), rep.SpentUSD)
	}
}

// Ctrl-C writes what is there.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	code, rep, _ := try(t, ctx, endpoint{opts: limited(), edit: func(body string, _ time.Duration) (string, int) {
		if n++; n == 7 {
			cancel()
		}
		return body, 0
	}})
	if code != exitFailed || len(rep.Facts) < 2 || len(rep.Missing) == 0 || rep.Facts[0].Verdict != yes {
		t.Errorf("exit code %d, facts %+v, missing %v", code, rep.Facts, rep.Missing)
	}
	if last := rep.Facts[len(rep.Facts)-1]; last.Verdict != inconclusive || last.Name != rep.Missing[0] {
		t.Errorf("the interrupted experiment is %+v", last)
	}
}

func TestCannotRun(t *testing.T) {
	for name, tt := range map[string]struct {
		args     []string
		key, in  string
		terminal bool
		says     string
	}{
		"no key":             {args: []string{"-yes"}, says: "ANTHROPIC_API_KEY is not set"},
		"no price":           {args: []string{"-yes", "-model", "claude-nothing"}, key: testKey, says: "no price"},
		"no such experiment": {args: []string{"-yes", "-only", "luck"}, key: testKey, says: "luck"},
		"no ceiling":         {args: []string{"-yes", "-max-usd", "0"}, key: testKey, says: "-max-usd"},
		"nobody to ask":      {key: testKey, says: "-yes"},
		"refused":            {key: testKey, terminal: true, in: "n\n", says: "Nothing was sent"},
		"no answer":          {key: testKey, terminal: true, says: "Nothing was sent"},
	} {
		t.Run(name, func(t *testing.T) {
			var said bytes.Buffer
			code := run(t.Context(), append([]string{"-base-url", "http://127.0.0.1:1", "-out", filepath.Join(t.TempDir(), "x.json")}, tt.args...), program{
				getenv: func(string) string { return tt.key }, stdin: strings.NewReader(tt.in), stdout: &said, stderr: &said, terminal: tt.terminal,
				now: time.Now, wait: wait,
			})
			if code != exitFailed || !strings.Contains(said.String(), tt.says) {
				t.Errorf("exit code %d, said %q, want %q", code, said.String(), tt.says)
			}
		})
	}
}

// The table of the documentation lists the experiments as they are, with what recorded runs on the provider's own
// endpoint found out.
func TestDocumentationListsTheExperiments(t *testing.T) {
	recorded := map[string][]string{}
	files, err := filepath.Glob("../../docs/live/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var rep report
		if err := json.Unmarshal(raw, &rep); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range rep.Facts {
			if rep.Endpoint == "https://api.anthropic.com" && f.Verdict != inconclusive {
				recorded[f.Name] = append(recorded[f.Name], fmt.Sprintf("%s (%s, %s)", f.Verdict, rep.Model, rep.Date[:10]))
			}
		}
	}
	var want strings.Builder
	for _, e := range experiments() {
		state := "unverified live"
		if r := recorded[e.name]; len(r) > 0 {
			state = strings.Join(r, "; ")
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", e.name, e.question, e.how, e.assumed, state)
	}
	doc, err := os.ReadFile("../../docs/live-check.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), want.String()) {
		t.Errorf("docs/live-check.md must have this table:\n%s", want.String())
	}
	for _, e := range experiments() {
		if !strings.Contains(string(doc), "**"+e.name+"**") {
			t.Errorf("docs/live-check.md does not say why %s matters", e.name)
		}
	}
}
