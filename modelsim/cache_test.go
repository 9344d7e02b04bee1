package modelsim

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// block returns a text block whose JSON is exactly tokens*4 bytes without its mark, and different for each name.
func block(name string, tokens int, mark string) string {
	b := `{"type":"text","text":"` + name + strings.Repeat("x", tokens*4-len(`{"type":"text","text":""}`)-len(name)) + `"}`
	if mark != "" {
		b = strings.TrimSuffix(b, "}") + "," + marked(mark) + "}"
	}
	return b
}

// turnOf is a request of one user message.
func turnOf(blocks ...string) string { return conversation(user(blocks...)) }

// classes are the input side of usage: plain, written for 5 minutes and for an hour, read.
type classes struct{ Input, Write5m, Write1h, Read int }

func classesOf(u Usage) classes {
	return classes{u.InputTokens, u.CacheCreation.Ephemeral5mInputTokens, u.CacheCreation.Ephemeral1hInputTokens, u.CacheReadInputTokens}
}

// step is one request of a scenario: after a pause it sends body and expects usage.
type step struct {
	pause   time.Duration
	body    string
	changes []header
	want    classes
}

func many(name string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, block(fmt.Sprint(name, i, "."), 50, ""))
	}
	return out
}

func TestCache(t *testing.T) {
	tool := `{"name":"A","description":"` + strings.Repeat("d", 2000) + `","input_schema":{"type":"object"}}`
	toolTokens := (len(tool) + 3) / 4
	full := func(model, tools, system, settings, messages string) string {
		return `{"model":"` + model + `","max_tokens":10,` + settings + `"tools":[` + tools + `],"system":[` + system + `],"messages":[` + messages + `]}`
	}
	sys := block("s", 600, "5m")
	base := full("claude-sonnet-5-5", tool, sys, "", user(block("m", 100, "5m"), block("q", 10, "")))
	baseCold := classes{10, toolTokens + 700, 0, 0}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"nothing without a mark", []step{
			{body: turnOf(block("a", 1000, "")), want: classes{1000, 0, 0, 0}},
			{body: turnOf(block("a", 1000, "")), want: classes{1000, 0, 0, 0}},
		}},
		{"written at the mark, read at the mark", []step{
			{body: turnOf(block("a", 1000, "5m"), block("b", 20, "")), want: classes{20, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m"), block("c", 30, "")), want: classes{30, 0, 0, 1000}},
		}},
		{"a moved mark finds the entry by looking back, and the old mark's bytes are the same without it", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, ""), block("b", 20, "5m")), want: classes{0, 20, 0, 1000}},
			{body: turnOf(block("a", 1000, ""), block("b", 20, ""), block("c", 30, "5m"), block("d", 8, "")), want: classes{8, 30, 0, 1020}},
		}},
		{"nothing is written where no mark was", []step{
			{body: turnOf(block("a", 1000, ""), block("b", 20, "5m")), want: classes{0, 1020, 0, 0}},
			{body: turnOf(block("a", 1000, "5m"), block("c", 20, "")), want: classes{20, 1000, 0, 0}},
		}},
		{"one byte differs inside a block", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(strings.Replace(block("a", 1000, "5m"), "xx", "xy", 1)), want: classes{0, 1000, 0, 0}},
		}},
		{"white space inside a block is a difference too", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(strings.Replace(block("a", 1000, "5m"), `"type":"text"`, `"type": "text"`, 1)), want: classes{0, 1001, 0, 0}},
		}},
		{"white space between blocks is none", []step{
			{body: turnOf(block("a", 1000, ""), block("b", 20, "5m")), want: classes{0, 1020, 0, 0}},
			{body: turnOf(block("a", 1000, "")+" ", "\n"+block("b", 20, "5m")), want: classes{0, 0, 0, 1020}},
		}},
		{"a string is one text block", []step{
			{body: conversation(`{"role":"user","content":"` + strings.Repeat("x", 4000) + `"},` + user(block("b", 100, "5m"))), want: classes{0, 1107, 0, 0}},
			{body: conversation(user(`{"type":"text","text":"`+strings.Repeat("x", 4000)+`"}`) + "," + user(block("b", 100, "5m"))), want: classes{0, 0, 0, 1107}},
		}},
		{"look-back sees 20 positions, the mark included", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(append(append([]string{block("a", 1000, "")}, many("p", 18)...), block("z", 50, "5m"))...), want: classes{0, 950, 0, 1000}},
		}},
		{"look-back does not see the 21st", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(append(append([]string{block("a", 1000, "")}, many("p", 19)...), block("z", 50, "5m"))...), want: classes{0, 2000, 0, 0}},
		}},
		{"a second mark has a window of its own", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(append(append([]string{block("a", 1000, "5m")}, many("p", 19)...), block("z", 50, "5m"))...), want: classes{0, 1000, 0, 1000}},
		}},
		{"below the minimum nothing is cached", []step{
			{body: turnOf(block("a", 511, "5m")), want: classes{511, 0, 0, 0}},
			{body: turnOf(block("a", 511, "5m")), want: classes{511, 0, 0, 0}},
			{body: turnOf(block("a", 512, "5m")), want: classes{0, 512, 0, 0}},
			{body: turnOf(block("a", 512, "5m")), want: classes{0, 0, 0, 512}},
		}},
		{"a mark below the minimum beside one above", []step{
			{body: turnOf(block("a", 100, "5m"), block("b", 500, "5m"), block("c", 7, "")), want: classes{7, 600, 0, 0}},
			{body: turnOf(block("a", 100, "5m"), block("d", 500, "5m"), block("c", 7, "")), want: classes{7, 600, 0, 0}},
		}},
		{"an entry lives 5 minutes from the start of its request", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{pause: 5*time.Minute - time.Second, body: turnOf(block("a", 1000, "5m")), want: classes{0, 0, 0, 1000}}, // refreshed
			{pause: 5*time.Minute - time.Second, body: turnOf(block("a", 1000, "5m")), want: classes{0, 0, 0, 1000}},
			{pause: 5 * time.Minute, body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
		}},
		{"an hour", []step{
			{body: turnOf(block("a", 1000, "1h")), want: classes{0, 0, 1000, 0}},
			{pause: time.Hour - time.Second, body: turnOf(block("a", 1000, "1h")), want: classes{0, 0, 0, 1000}},
			{pause: time.Hour, body: turnOf(block("a", 1000, "1h")), want: classes{0, 0, 1000, 0}},
		}},
		{"mixed lifetimes are billed apart", []step{
			{body: turnOf(block("a", 1000, "1h"), block("b", 200, "5m"), block("c", 30, "")), want: classes{30, 200, 1000, 0}},
			{pause: 6 * time.Minute, body: turnOf(block("a", 1000, "1h"), block("b", 200, "5m"), block("c", 30, "")), want: classes{30, 200, 0, 1000}},
			{body: turnOf(block("a", 1000, "1h"), block("d", 100, "1h"), block("e", 50, "5m"), block("f", 1e2, "5m"), block("c", 30, "")), want: classes{30, 150, 100, 1000}},
		}},
		{"automatic mark", []step{
			{body: strings.Replace(turnOf(block("a", 1000, "")), `"max_tokens"`, marked("")+`,"max_tokens"`, 1), want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 0, 0, 1000}},
		}},
		{"other key, other cache", []step{
			{body: turnOf(block("a", 1000, "5m")), want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m")), changes: []header{with("x-api-key", "other")}, want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m")), changes: []header{with("anthropic-workspace-id", "w2")}, want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m")), changes: []header{without("x-api-key"), with("authorization", "Bearer sim")}, want: classes{0, 0, 0, 1000}},
		}},
		{"the beta set parts caches, its order does not", []step{
			{body: turnOf(block("a", 1000, "5m")), changes: []header{with("anthropic-beta", "x,y")}, want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m")), changes: []header{with("anthropic-beta", "y, x")}, want: classes{0, 0, 0, 1000}},
			{body: turnOf(block("a", 1000, "5m")), changes: []header{with("anthropic-beta", "x")}, want: classes{0, 1000, 0, 0}},
		}},
		{"roles part messages", []step{
			{body: conversation(ask + `,{"role":"assistant","content":"ok"},` + user(block("a", 1000, "5m"))), want: classes{0, 1014, 0, 0}},
			{body: conversation(ask + `,{"role":"user","content":"ok"},` + user(block("a", 1000, "5m"))), want: classes{0, 1014, 0, 0}},
		}},
		{"what does not touch the prompt", []step{
			{body: base, want: baseCold},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":500,"metadata":{"user_id":"u"},"stop_sequences":["zz"],"service_tier":"auto"`, 1), want: classes{10, 0, 0, toolTokens + 700}},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":10,"output_config":{"effort":"high"}`, 1), want: classes{10, 0, 0, toolTokens + 700}},
		}},
		{"settings of the messages tier keep tools and system", []step{
			{body: base, want: baseCold},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":10,"thinking":{"type":"adaptive"}`, 1), want: classes{10, 100, 0, toolTokens + 600}},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":10,"output_config":{"effort":"low"}`, 1), want: classes{10, 100, 0, toolTokens + 600}},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":10,"tool_choice":{"type":"none"}`, 1), want: classes{10, 100, 0, toolTokens + 600}},
		}},
		{"model and speed part caches", []step{
			{body: base, want: baseCold},
			{body: strings.Replace(base, "sonnet-5-5", "opus-5-5", 1), want: baseCold},
			{body: strings.Replace(base, `"max_tokens":10`, `"max_tokens":10,"speed":"fast"`, 1), want: baseCold},
		}},
		{"the system text parts all after it", []step{
			{body: full("claude-sonnet-5-5", strings.TrimSuffix(tool, "}")+","+marked("5m")+"}", sys, "", user(block("m", 100, "5m"))), want: classes{0, toolTokens + 700, 0, 0}},
			{body: full("claude-sonnet-5-5", strings.TrimSuffix(tool, "}")+","+marked("5m")+"}", block("t", 600, "5m"), "", user(block("m", 100, "5m"))), want: classes{0, 700, 0, toolTokens}},
		}},
		{"top-level order says nothing", []step{
			{body: base, want: baseCold},
			{body: `{"messages":[` + user(block("m", 100, "5m"), block("q", 10, "")) + `],"system":[` + sys + `],"tools":[` + tool + `],"max_tokens":10,"model":"claude-sonnet-5-5"}`, want: classes{10, 0, 0, toolTokens + 700}},
		}},
		{"a cache fill is read by the real request", []step{
			{body: strings.Replace(turnOf(block("a", 1000, "5m")), `"max_tokens":100`, `"max_tokens":0`, 1), want: classes{0, 1000, 0, 0}},
			{body: turnOf(block("a", 1000, "5m"), block("b", 20, "")), want: classes{20, 0, 0, 1000}},
		}},
		{"marks inside a tool result", []step{
			{body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[`+block("a", 1000, "5m")+","+note+`]}`, res2)), want: classes{14, 1054, 0, 0}},
			{body: conversation(ask + "," + calls + "," + user(`{"type":"tool_result","tool_use_id":"t1","content":[`+block("a", 1000, "")+","+note+`],`+marked("")+`}`, res2)), want: classes{14, 0, 0, 1054}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			sim := New(Options{Mind: say(TextBlock("ok")), Now: func() time.Time { return now }})
			for i, s := range tc.steps {
				now = now.Add(s.pause)
				got := usageOf(t, direct(sim, s.body, s.changes...))
				if diff := cmp.Diff(s.want, classesOf(got)); diff != "" {
					t.Errorf("step %d (-want +got):\n%s", i+1, diff)
				}
				if c := got.CacheCreation; c.Ephemeral1hInputTokens+c.Ephemeral5mInputTokens != got.CacheCreationInputTokens {
					t.Errorf("step %d: written classes do not sum up: %+v", i+1, got)
				}
			}
		})
	}
}

func TestMinCacheableCanBeSet(t *testing.T) {
	body := strings.Replace(turnOf(block("a", 1000, "5m")), "sonnet-5-5", "haiku-5-5", 1)
	if got := classesOf(usageOf(t, direct(New(Options{Mind: say()}), body))); got.Write5m != 0 {
		t.Errorf("default: %+v, want nothing written below 4096", got)
	}
	sim := New(Options{Mind: say(), MinCacheable: map[string]int{"claude-haiku-5-5": 1000}})
	if got := classesOf(usageOf(t, direct(sim, body))); got.Write5m != 1000 {
		t.Errorf("set to 1000: %+v", got)
	}
}

// Five requests at once all pay; those sent after the first one's message_start read.
func TestEntryIsReadableWhenTheResponseBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := New(Options{Mind: say(TextBlock("ok")), MessageStartDelay: 800 * time.Millisecond})
		body := turnOf(block("a", 1000, "5m"), block("b", 20, ""))
		var mu sync.Mutex
		var got []classes
		launch := func(n int) {
			for range n {
				go func() {
					u := usageOf(t, direct(sim, body))
					mu.Lock()
					defer mu.Unlock()
					got = append(got, classesOf(u))
				}()
			}
		}
		launch(5)
		time.Sleep(799 * time.Millisecond) // the bubble's clock: just before the first byte
		if n := len(sim.CacheEntries()); n != 0 {
			t.Errorf("%d entries before message_start", n)
		}
		launch(1)
		time.Sleep(2 * time.Millisecond) // just after it
		launch(4)
		time.Sleep(time.Second)
		synctest.Wait()
		cold, warm := classes{20, 1000, 0, 0}, classes{20, 0, 0, 1000}
		want := []classes{cold, cold, cold, cold, cold, cold, warm, warm, warm, warm}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A follower that starts on the leader's first event reads, over a real connection and long before the leader is done.
func TestFollowersReadAfterMessageStart(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	sim, url := start(t, Options{Mind: MindFunc(func(_ context.Context, req *Request) (Reply, error) {
		r := Reply{Blocks: []Block{TextBlock("one two three four")}}
		if req.Stream {
			r.Fault = &Fault{Kind: FaultSilence, AfterEvents: 2}
		}
		return r, nil
	})})
	body := turnOf(block("a", 1000, "5m"), block("b", 20, ""))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := http.DefaultClient.Do(newRequest(ctx, "POST", url+"/v1/messages", strings.Replace(body, `"max_tokens"`, `"stream":true,"max_tokens"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: message_start\n" {
		t.Fatalf("first line %q, %v", line, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if got, want := classesOf(usageOf(t, direct(sim, body))), (classes{20, 0, 0, 1000}); got != want {
				t.Errorf("follower: %+v, want %+v", got, want)
			}
		})
	}
	wg.Wait()
}

func TestFailedRequestsWriteNothing(t *testing.T) {
	for _, f := range []Fault{
		{Kind: FaultStatus, Status: 529}, {Kind: FaultErrorEvent}, {Kind: FaultEOF}, {Kind: FaultReset},
	} {
		sim, url := start(t, Options{Mind: MindFunc(func(context.Context, *Request) (Reply, error) { return Reply{Fault: &f}, nil })})
		res, err := http.DefaultClient.Do(newRequest(t.Context(), "POST", url+"/v1/messages", strings.Replace(turnOf(block("a", 1000, "5m")), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)))
		if err == nil {
			res.Body.Close()
		}
		if n := len(sim.CacheEntries()); n != 0 {
			t.Errorf("fault %d before message_start wrote %d entries", f.Kind, n)
		}
	}
}

func TestAbortBeforeStartWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := New(Options{Mind: say(TextBlock("ok")), MessageStartDelay: time.Minute})
		ctx, cancel := context.WithCancel(context.Background())
		go sim.ServeHTTP(httptest.NewRecorder(), newRequest(ctx, "POST", "/v1/messages", turnOf(block("a", 1000, "5m"))))
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		if n := len(sim.CacheEntries()); n != 0 {
			t.Errorf("%d entries", n)
		}
		if got := sim.Requests()[0]; got.Error == "" || got.Usage != nil || got.Status != 0 || got.Ended.IsZero() {
			t.Errorf("captured %+v", got)
		}
	})
}

func TestEntriesAreListed(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	sim := New(Options{Mind: say(TextBlock("ok")), Now: func() time.Time { return now }})
	direct(sim, turnOf(block("a", 1000, "1h"), block("b", 20, "5m")))
	now = now.Add(time.Minute)
	direct(sim, turnOf(block("a", 1000, "1h"), block("c", 20, "")))
	got := sim.CacheEntries()
	if len(got) != 2 {
		t.Fatalf("%d entries, want 2", len(got))
	}
	if e := got[0]; e.Path != "messages.0.content.0" || e.Tokens != 1000 || e.TTL != "1h" || e.Reads != 1 || !e.ExpiresAt.Equal(now.Add(time.Hour)) || e.MessageID != sim.Requests()[0].MessageID {
		t.Errorf("first entry %+v", e)
	}
	if e := got[1]; e.Path != "messages.0.content.1" || e.Tokens != 1020 || e.TTL != "5m" || e.Reads != 0 || !e.ExpiresAt.Equal(now.Add(4*time.Minute)) {
		t.Errorf("second entry %+v", e)
	}
	now = now.Add(5 * time.Minute)
	if n := len(sim.CacheEntries()); n != 1 {
		t.Errorf("%d entries after the short one expired, want 1", n)
	}
}
