package modelsim

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// clock is a clock that tests move.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

// rateHeaders are the rate limit headers of an answer, without their common prefix.
func rateHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	for name := range h {
		if short, ok := strings.CutPrefix(strings.ToLower(name), "anthropic-ratelimit-"); ok {
			out[short] = h.Get(name)
		}
	}
	return out
}

func wantError(t *testing.T, w *httptest.ResponseRecorder, status int, kind, code, retryAfter string) {
	t.Helper()
	if w.Code != status || w.Header().Get("retry-after") != retryAfter {
		t.Fatalf("status %d, retry-after %q, want %d, %q: %s", w.Code, w.Header().Get("retry-after"), status, retryAfter, w.Body)
	}
	if status == http.StatusOK {
		return
	}
	if e := errorOf(t, w.Body.Bytes()); e.Error.Type != kind || e.Error.Details["error_code"] != code {
		t.Errorf("error %s, want %s with code %q", w.Body, kind, code)
	}
}

func TestRequestsPerMinute(t *testing.T) {
	c := &clock{noon}
	sim := New(Options{Mind: say(TextBlock("ok")), Now: c.read, Limits: Limits{RequestsPerMinute: 2}})
	wantError(t, direct(sim, hello), 200, "", "", "")
	w := direct(sim, hello)
	if diff := cmp.Diff(map[string]string{"requests-limit": "2", "requests-remaining": "0", "requests-reset": "2026-11-30T12:01:00Z"}, rateHeaders(w.Header())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantError(t, direct(sim, hello), 429, "rate_limit_error", "", "30")
	wantError(t, direct(sim, hello, with("x-api-key", "another")), 200, "", "", "")
	c.now = noon.Add(29500 * time.Millisecond)
	wantError(t, direct(sim, hello), 429, "rate_limit_error", "", "1") // half a second, rounded up
	c.now = noon.Add(30 * time.Second)
	wantError(t, direct(sim, hello), 200, "", "", "")
	wantError(t, direct(sim, hello), 429, "rate_limit_error", "", "30")
	c.now = noon.Add(time.Hour) // no more than a minute's worth is saved up
	for _, status := range []int{200, 200, 429} {
		if w := direct(sim, hello); w.Code != status {
			t.Errorf("status %d, want %d", w.Code, status)
		}
	}
}

func TestInputTokensPerMinute(t *testing.T) {
	c := &clock{noon}
	sim := New(Options{Mind: say(TextBlock("ok")), Now: c.read, Limits: Limits{InputTokensPerMinute: 6000, OutputTokensPerMinute: 60_000}})
	body := turnOf(block("a", 4000, "5m"), block("b", 100, ""))
	w := direct(sim, body)
	want := map[string]string{
		"input-tokens-limit": "6000", "input-tokens-remaining": "2000", "input-tokens-reset": "2026-11-30T12:00:41Z",
		"output-tokens-limit": "60000", "output-tokens-remaining": "60000", "output-tokens-reset": "2026-11-30T12:00:00Z",
		"tokens-limit": "66000", "tokens-remaining": "62000", "tokens-reset": "2026-11-30T12:00:41Z",
	}
	if diff := cmp.Diff(want, rateHeaders(w.Header())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range 18 { // what is read does not count: 18 times 100 are left of 1,900
		wantError(t, direct(sim, body), 200, "", "", "")
	}
	cold := turnOf(block("c", 600, ""))
	wantError(t, direct(sim, cold), 429, "rate_limit_error", "", "5") // 500 tokens are missing, 100 come in a second
	c.now = noon.Add(5 * time.Second)
	wantError(t, direct(sim, cold), 200, "", "", "")
	c.now = noon.Add(time.Hour)
	wantError(t, direct(sim, turnOf(block("d", 6001, ""))), 429, "rate_limit_error", "", "1") // more than the bucket can hold
}

func TestOutputTokensPerMinute(t *testing.T) {
	c := &clock{noon}
	sim := New(Options{Mind: say(TextBlock(strings.Repeat("abcd", 90))), Now: c.read, Limits: Limits{OutputTokensPerMinute: 60}})
	wantError(t, direct(sim, hello), 200, "", "", "")
	wantError(t, direct(sim, hello), 429, "rate_limit_error", "", "31") // overdrawn by 30; one token comes in a second
	c.now = noon.Add(31 * time.Second)
	wantError(t, direct(sim, hello), 200, "", "", "")
}

func TestRampLimit(t *testing.T) {
	c := &clock{noon}
	sim := New(Options{Mind: say(TextBlock("ok")), Now: c.read, Limits: Limits{RampPerSecond: 3}})
	burst := func() (n int) {
		for range 20 {
			w := direct(sim, hello)
			if w.Code == 200 {
				n++
				continue
			}
			wantError(t, w, 429, "rate_limit_error", "ramp_limit_exceeded", "1")
		}
		return n
	}
	var got []int
	for range 4 {
		got = append(got, burst())
		c.now = c.now.Add(time.Second)
	}
	c.now = c.now.Add(time.Minute)
	got = append(got, burst())
	if diff := cmp.Diff([]int{3, 6, 9, 12, 3}, got); diff != "" {
		t.Errorf("accepted per second (-want +got):\n%s", diff)
	}
}

func TestCreditAndSpendLimit(t *testing.T) {
	for _, tc := range []struct {
		name       string
		o          Options
		status     int
		kind, code string
	}{
		{"credit", Options{Credit: 20}, 402, "billing_error", ""},
		{"spend limit", Options{SpendLimit: 20}, 429, "rate_limit_error", "enforced_spend_limit_reached"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.o.Mind = say(TextBlock("ok"))
			sim := New(tc.o)
			for range 3 { // 8 tokens in, 1 out
				wantError(t, direct(sim, hello), 200, "", "", "")
			}
			wantError(t, direct(sim, hello), tc.status, tc.kind, tc.code, "")
			wantError(t, direct(sim, hello, with("x-api-key", "another")), 200, "", "", "")
			sim.AllowKey("sim")
			wantError(t, direct(sim, hello), 200, "", "", "")
		})
	}
}

func TestLimitHeadersStandOnErrorsToo(t *testing.T) {
	sim := New(Options{Mind: say(TextBlock("ok")), Limits: Limits{RequestsPerMinute: 5}})
	for name, w := range map[string]*httptest.ResponseRecorder{
		"400":       direct(sim, "{}"),
		"no header": direct(sim, hello, without("anthropic-version")),
		"404":       direct(sim, strings.Replace(hello, "sonnet-5-5", "none", 1)),
	} {
		if got := rateHeaders(w.Header()); w.Code == 200 || got["requests-remaining"] != "5" {
			t.Errorf("%s: %d with %v", name, w.Code, got)
		}
	}
	if got := rateHeaders(direct(New(Options{Mind: say()}), hello).Header()); len(got) != 0 {
		t.Errorf("without limits: %v", got)
	}
	stream := direct(sim, streaming(hello))
	if got := rateHeaders(stream.Header()); stream.Code != 200 || got["requests-remaining"] != "4" {
		t.Errorf("stream: %d with %v", stream.Code, got)
	}
}

func TestKeys(t *testing.T) {
	sim, url := start(t, Options{Keys: []string{"sim", "spare"}, Mind: say(TextBlock("ok"))})
	status := func(key string) int { return direct(sim, hello, with("x-api-key", key)).Code }
	set := func(body string) int {
		res, _ := send(t, "POST", url+"/_sim/keys", body)
		return res.StatusCode
	}
	check := func(when string, want map[string]int) {
		t.Helper()
		got := map[string]int{}
		for key := range want {
			got[key] = status(key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("at first", map[string]int{"sim": 200, "spare": 200, "other": 401})
	sim.RevokeKey("sim")
	check("revoked", map[string]int{"sim": 401, "spare": 200})
	if n := set(`{"key":"sim","allowed":true}`) + set(`{"key":"other","allowed":true}`) + set(`{"key":"spare","allowed":false}`); n != 3*204 {
		t.Errorf("statuses add up to %d", n)
	}
	check("over HTTP", map[string]int{"sim": 200, "spare": 401, "other": 200})
	for _, bad := range []string{`{"key":"sim"}`, `{"key":"","allowed":true}`, `{"key":"sim","allowed":1}`, `x`, `{"kye":"sim","allowed":true}`} {
		if n := set(bad); n != 400 {
			t.Errorf("%s: %d", bad, n)
		}
	}
	if res, body := send(t, "GET", url+"/v1/models", "", with("x-api-key", "spare")); res.StatusCode != 401 {
		t.Errorf("models with a revoked key: %s", body)
	}
	open := New(Options{Mind: say(TextBlock("ok"))})
	open.RevokeKey("sim")
	if a, b := direct(open, hello).Code, direct(open, hello, with("x-api-key", "any")).Code; a != 401 || b != 200 {
		t.Errorf("without a list: revoked %d, any %d", a, b)
	}
}

func TestForget(t *testing.T) {
	sim, url := start(t, Options{Mind: say(TextBlock("ok")), Limits: Limits{RequestsPerMinute: 2}})
	body := turnOf(block("a", 1000, "5m"))
	for range 2 {
		direct(sim, body)
	}
	if res, got := send(t, "DELETE", url+"/_sim", ""); res.StatusCode != 204 {
		t.Fatalf("%d %s", res.StatusCode, got)
	}
	if n, m := len(sim.CacheEntries()), len(sim.Requests()); n != 0 || m != 0 {
		t.Errorf("%d entries and %d requests are left", n, m)
	}
	w := direct(sim, body)
	if got := classesOf(usageOf(t, w)); got != (classes{0, 1000, 0, 0}) || rateHeaders(w.Header())["requests-remaining"] != "1" {
		t.Errorf("usage %+v, headers %v", got, rateHeaders(w.Header()))
	}
	direct(sim, body)
	for after, want := range map[string]int{"": 2, "2": 2, "3": 1, "4": 0} {
		_, page := send(t, "GET", url+"/_sim/requests?after="+after, "")
		var list struct{ Requests []struct{ N int } }
		if err := json.Unmarshal(page, &list); err != nil || len(list.Requests) != want {
			t.Errorf("after=%s: %d requests, %v, want %d", after, len(list.Requests), err, want)
		}
	}
	if res, _ := send(t, "GET", url+"/_sim/requests?after=x", ""); res.StatusCode != 400 {
		t.Errorf("after=x: %d", res.StatusCode)
	}
}

func TestVisibilityLag(t *testing.T) {
	c := &clock{noon}
	sim := New(Options{Mind: say(TextBlock("ok")), Now: c.read, VisibilityLag: 2 * time.Second})
	body := turnOf(block("a", 1000, "5m"))
	read := func() int { return classesOf(usageOf(t, direct(sim, body))).Read }
	var got []int
	for _, at := range []time.Duration{0, time.Second, 1999 * time.Millisecond, 2 * time.Second, time.Minute} {
		c.now = noon.Add(at)
		got = append(got, read())
	}
	if diff := cmp.Diff([]int{0, 0, 0, 1000, 1000}, got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

func TestMissRate(t *testing.T) {
	body := turnOf(block("a", 1000, "5m"))
	run := func(rate float64, seed uint64) (misses int, order string) {
		sim := New(Options{Mind: say(TextBlock("ok")), MissRate: rate, Seed: seed})
		direct(sim, body)
		for range 1000 {
			if got := classesOf(usageOf(t, direct(sim, body))); got.Read == 0 {
				misses++
				order += "x"
				if got.Write5m != 1000 {
					t.Fatalf("a missed entry is paid as %+v", got)
				}
			} else {
				order += "."
			}
		}
		return misses, order
	}
	n, first := run(0.1, 1)
	if n < 60 || n > 140 {
		t.Errorf("%d of 1000 missed at a rate of 0.1", n)
	}
	if _, again := run(0.1, 1); again != first {
		t.Error("the same seed missed elsewhere")
	}
	if _, other := run(0.1, 2); other == first {
		t.Error("another seed missed at the same places")
	}
	if n, _ := run(0, 1); n != 0 {
		t.Errorf("%d missed at a rate of 0", n)
	}
}

func TestTTLInKey(t *testing.T) {
	hour, short := turnOf(block("a", 1000, "1h"), block("b", 10, "")), turnOf(block("a", 1000, "5m"), block("b", 10, ""))
	for inKey, want := range map[bool]classes{false: {10, 0, 0, 1000}, true: {10, 1000, 0, 0}} {
		sim := New(Options{Mind: say(TextBlock("ok")), TTLInKey: inKey})
		direct(sim, hour)
		if got := classesOf(usageOf(t, direct(sim, short))); got != want {
			t.Errorf("ttl in key %v: %+v, want %+v", inKey, got, want)
		}
		for _, body := range []string{hour, short} {
			if got := classesOf(usageOf(t, direct(sim, body))); got != (classes{10, 0, 0, 1000}) {
				t.Errorf("ttl in key %v, again: %+v", inKey, got)
			}
		}
	}
}

func TestWorkspacesDoNotShare(t *testing.T) {
	sim := New(Options{Mind: say(TextBlock("ok"))})
	body := turnOf(block("a", 1000, "5m"))
	for _, tc := range []struct {
		key, workspace string
		read           int
	}{
		{"k1", "", 0},
		{"k1", "", 1000},
		{"k1", "wrkspc_a", 0},
		{"k1", "wrkspc_b", 0},
		{"k1", "wrkspc_a", 1000},
		{"k2", "", 0},
		{"k2", "wrkspc_a", 0},
		{"k2", "wrkspc_a", 1000},
	} {
		w := direct(sim, body, with("x-api-key", tc.key), with("anthropic-workspace-id", tc.workspace))
		if got := classesOf(usageOf(t, w)).Read; got != tc.read {
			t.Errorf("%s in %q read %d, want %d", tc.key, tc.workspace, got, tc.read)
		}
	}
}

// An answer that its client left after message_start has filled the cache all the same.
func TestAbortAfterStartKeepsTheEntry(t *testing.T) {
	sim := New(Options{Mind: spoilt("one two", Fault{Kind: FaultReset, AfterEvents: 1})})
	body := turnOf(block("a", 1000, "5m"))
	func() {
		defer func() { _ = recover() }() // a recorder cannot be reset: the handler panics with http.ErrAbortHandler
		direct(sim, streaming(body))
	}()
	if n := len(sim.CacheEntries()); n != 1 {
		t.Errorf("%d entries, want 1", n)
	}
}
