package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestSessionState(t *testing.T) {
	reason := &forkcore.Reason{Code: "refusal"}
	parked := &forkcore.Run{State: forkcore.Waiting, Reason: &forkcore.Reason{Code: "gate"}}
	tests := []struct {
		name   string
		s      forkcore.Session
		active *forkcore.Run
		state  forkcore.State
		code   string
	}{
		{"new", forkcore.Session{}, nil, forkcore.Done, ""},
		{"turn waits", forkcore.Session{ActiveRunID: mainID, ActiveRuns: 1}, parked, forkcore.Waiting, "gate"},
		{"turn unknown", forkcore.Session{ActiveRunID: mainID, LastState: forkcore.Failed, LastReason: reason}, nil, forkcore.Running, ""},
		{"forks alone", forkcore.Session{ActiveRuns: 2, LastState: forkcore.Failed, LastReason: reason}, nil, forkcore.Waiting, "children"},
		{"failed", forkcore.Session{LastState: forkcore.Failed, LastReason: reason}, nil, forkcore.Failed, "refusal"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			state, why := SessionState(test.s, test.active)
			code := ""
			if why != nil {
				code = why.Code
			}
			if state != test.state || code != test.code {
				t.Errorf("%s %q, want %s %q", state, code, test.state, test.code)
			}
		})
	}
}

func TestSessionViewCacheClock(t *testing.T) {
	s := forkcore.Session{Warm: &forkcore.CacheEntry{TTL: "5m", UsedAt: noon}}
	for left, now := range map[int64]time.Time{300: noon, 60: noon.Add(4 * time.Minute), 59: noon.Add(4*time.Minute + time.Millisecond), 0: noon.Add(time.Hour)} {
		v := sessionView(s, nil, nil, "", now, false)
		if v.CacheClock.SecondsLeft != left || *v.CacheClock.ExpiresAt != "2026-11-20T12:05:00.123Z" {
			t.Errorf("at %v: %+v, want %d s left", now, v.CacheClock, left)
		}
	}
	s.Warm.Scope = forkcore.Scope{Endpoint: "e", Key: "k"}
	for account, held := range map[string]bool{"": true, "e-k": true, "e-another": false} {
		if v := sessionView(s, nil, nil, account, noon, false); (v.CacheClock != nil) != held {
			t.Errorf("for account %q: %+v", account, v.CacheClock)
		}
	}
	if v := sessionView(forkcore.Session{}, nil, nil, "", noon, false); v.CacheClock != nil || v.HitRate.Total != nil || v.BudgetNanoUSD != nil || v.Runs != nil {
		t.Errorf("a new session has values that nobody knows: %+v", v)
	}
}

func TestRunViewNumbers(t *testing.T) {
	f := newFake()
	r, err := f.run(forkID)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(runView(r))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"hit_rate":{"total":0.7,"inherited":0.875,"own":0}`, `"cost_nanousd":117`, `"parent":"` + mainID + `"`, `"dispatch":"` + dispatchID + `"`,
		`"snapshot":"` + snapID.String() + `"`, `"created_at":"2026-11-20T12:00:00.123Z"`,
		`"usage":{"input_tokens":10,"cache_creation_5m_tokens":20,"cache_creation_1h_tokens":0,"cache_read_tokens":70,"output_tokens":5}`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	r.Cost.Unpriced = 1
	if v := runView(r); v.CostNanoUSD != nil {
		t.Errorf("a run with a request of unknown price costs %d, want null", *v.CostNanoUSD)
	}
}

// A fan-out of which not every run got an answer has no verdict: the quote speaks of all.
func TestVerdictOfUnansweredRuns(t *testing.T) {
	prices, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	quoted := int64(20_000)
	d := forkcore.Dispatch{
		Quote:             forkcore.Quote{Model: "claude-sonnet-5-5", Gate: true, ColdNanoUSD: &quoted},
		FirstRequestUsage: forkcore.Usage{Input: 10}, FirstRequests: forkcore.Cost{NanoUSD: 20_000},
	}
	answered := forkcore.Run{Usage: forkcore.Usage{Input: 10}}
	if v := dispatchWithRuns(d, []forkcore.Run{answered}, prices).Bill.Verdict; v == nil || *v != "as quoted" {
		t.Errorf("verdict %v of an answered fan-out, want as quoted", v)
	}
	if v := dispatchWithRuns(d, []forkcore.Run{answered, {}}, prices).Bill.Verdict; v != nil {
		t.Errorf("verdict %q though one run got no answer", *v)
	}
	d.FirstRequestUsage = forkcore.Usage{}
	if v := BillVerdict(d, []forkcore.Run{answered}, prices); v != nil {
		t.Errorf("verdict %q though nothing was answered", *v)
	}
}

func TestVerdict(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	cold := forkcore.Quote{Gate: true, ColdNanoUSD: n(1000), WarmNanoUSD: n(100), UngatedNanoUSD: n(5000)}
	warm := cold
	warm.Warm = true
	ungated := cold
	ungated.Gate = false
	tests := []struct {
		name      string
		quote     forkcore.Quote
		remaining int64
		billed    *int64
		want      string
	}{
		{"cold as quoted", cold, 0, n(1050), "as quoted"},
		{"cold costlier", cold, 0, n(1051), "costlier"},
		{"cold cheaper", cold, 0, n(949), "cheaper"},
		{"warm", warm, 0, n(1000), "costlier"},
		{"ungated", ungated, 0, n(5000), "as quoted"},
		{"still running", cold, 1, n(1000), ""},
		{"no price", forkcore.Quote{Gate: true}, 0, n(1000), ""},
		{"no bill", cold, 0, nil, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if v := verdict(forkcore.Dispatch{Quote: test.quote, Remaining: test.remaining, FirstRequestUsage: forkcore.Usage{Input: 1}}, test.billed); v != nil {
				got = *v
			}
			if got != test.want {
				t.Errorf("verdict %q, want %q", got, test.want)
			}
		})
	}
}

func TestDispatchBillLeavesTheOutputOut(t *testing.T) {
	prices, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	info, ok := prices.Model("claude-sonnet-5-5")
	if !ok {
		t.Fatal("the catalogue does not know claude-sonnet-5-5")
	}
	d := forkcore.Dispatch{CreatedAt: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Quote: forkcore.Quote{Model: "claude-sonnet-5-5"}, FirstRequestUsage: sample, FirstRequests: forkcore.Cost{NanoUSD: info.Cost(sample)}}
	in := sample
	in.Output = 0
	if got := dispatchView(d, prices).Bill.FirstRequests.InputCostNanoUSD; got == nil || *got != info.Cost(in) {
		t.Errorf("input cost %v, want %d", got, info.Cost(in))
	}
	d.Quote.Model = "unheard-of"
	if got := dispatchView(d, prices).Bill.FirstRequests.InputCostNanoUSD; got != nil {
		t.Errorf("input cost of a model without price %d, want null", *got)
	}
}

func TestChangedFiles(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"", nil},
		{"none", nil},
		{"None.", nil},
		{"n/a", nil},
		{"- a.go\n- `dir/b.go` (new)\n* ./c.md: fixed", []string{"a.go", "dir/b.go", "c.md"}},
		{"a.go, b.go; Makefile and cmd/x", []string{"a.go", "b.go"}},
		{"**.gitignore**", []string{".gitignore"}},
		{"no files were changed", nil},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			if diff := cmp.Diff(test.want, changedFiles(test.text)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFileConflicts(t *testing.T) {
	report := func(id, files string) forkcore.Run {
		return forkcore.Run{ID: id, Report: &forkcore.Report{FilesChanged: files}}
	}
	got := fileConflicts([]forkcore.Run{report("a", "x.go\nx.go"), report("b", "y.go, x.go"), report("c", "z.go"), {ID: "d"}})
	if diff := cmp.Diff([]fileConflictOf{{"x.go", []string{"a", "b"}}}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBytesAreServedAsTheyAre(t *testing.T) {
	server := serve(t, newFake())
	tests := []struct{ path, contentType, want string }{
		{"/runs/" + forkID + "/requests/1/body", "application/json", messageBytes},
		{"/snapshots/" + snapID.String() + "/bytes", "application/octet-stream", "prefix"},
		{
			"/runs/" + mainID + "/transcript", "application/x-ndjson",
			`{"seq":1,"at":"2026-11-20T12:00:00.123Z","kind":"marker","run_id":"` + mainID + `","marker":{"type":"turn_start"}}` + "\n" +
				`{"seq":2,"at":"2026-11-20T12:00:00.123Z","kind":"message","run_id":"` + mainID + `","message":` + messageBytes + "}\n",
		},
		{"/runs/" + mainID + "/transcript?after=2", "application/x-ndjson", ""},
		{"/openapi.yaml", "application/yaml", string(Document)},
	}
	for _, test := range tests {
		res, body := call(t, server, "GET", test.path, "")
		if res.StatusCode != 200 || res.Header.Get("Content-Type") != test.contentType || body != test.want {
			t.Errorf("GET %s: %d %s\n%s\nwant %s\n%s", test.path, res.StatusCode, res.Header.Get("Content-Type"), body, test.contentType, test.want)
		}
	}
	for _, after := range []string{"-1", "x", "1.5"} {
		if res, body := call(t, server, "GET", "/runs/"+mainID+"/transcript?after="+after, ""); res.StatusCode != 422 || !strings.Contains(body, `"after"`) {
			t.Errorf("after=%s: %d %s", after, res.StatusCode, body)
		}
	}
}

func TestAppendLineStaysOnOneLine(t *testing.T) {
	b, err := appendLine(nil, forkcore.TranscriptLine{Seq: 1, At: noon, Kind: forkcore.EntryMessage, RunID: "r", Message: []byte("{\"input\":{\n\r\"a\": \"\\n\"}}")})
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(b), "\r\n") || !json.Valid(b) || !strings.Contains(string(b), `{"input":{  "a": "\n"}}`) {
		t.Errorf("line %q", b)
	}
}
