package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/forkcore/forkcoretest"
)

// call is one provider request as the scripted model received it.
type call struct {
	n        int // from 1, over all runs
	at       time.Time
	body     []byte
	messages []forkcore.Message
}

// directive is the own block of a fork's first message; ok is false for a main turn.
func (c call) directive() (text string, ok bool) {
	_, text, ok = c.forkMessage()
	return text, ok
}

func (c call) forkMessage() (index int, directive string, ok bool) {
	for i, m := range c.messages {
		for k, b := range m.Blocks {
			if m.Role == forkcore.RoleUser && strings.HasPrefix(b.Text, "<"+forkcore.BoilerplateTag+">") {
				return i, m.Blocks[k+1].Text, true
			}
		}
	}
	return 0, "", false
}

// answers counts the assistant messages of the agent itself, without what a fork inherited.
func (c call) answers() int {
	start, _, _ := c.forkMessage()
	n := 0
	for _, m := range c.messages[start:] {
		if m.Role == forkcore.RoleAssistant {
			n++
		}
	}
	return n
}

// last is the text of the last message's blocks, tool results included.
func (c call) last() string {
	var parts []string
	for _, b := range c.messages[len(c.messages)-1].Blocks {
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n")
}

// reply is what the scripted model does with a call.
type reply struct {
	blocks  []string // canonical content blocks
	stop    string
	usage   forkcore.Usage
	unknown bool          // no usage is reported
	before  time.Duration // until the first event
	after   time.Duration // from there to the end
	deltas  []forkcore.ModelDelta
	every   time.Duration        // pause after each delta
	err     *forkcore.ModelError // instead of an answer
	cut     bool                 // err comes after the first event
	panics  bool
}

// usual is the usage of every reply that does not say otherwise.
var usual = forkcore.Usage{Input: 10, CacheWrite5m: 1000, Output: 20}

func say(text string) reply {
	return reply{blocks: []string{string(forkcore.AppendTextBlock(nil, text))}, stop: "end_turn"}
}

// use is a tool_use block; input is JSON.
func use(id, name, input string) string {
	return fmt.Sprintf(`{"type":"tool_use","id":%q,"name":%q,"input":%s}`, id, name, input)
}

func useTools(blocks ...string) reply { return reply{blocks: blocks, stop: "tool_use"} }

// agents calls Agent n times, for directives d1 to dn.
func agents(n int) reply {
	var blocks []string
	for i := 1; i <= n; i++ {
		blocks = append(blocks, use(fmt.Sprintf("toolu_agent%d", i), "Agent", fmt.Sprintf(`{"description":"fork %d","prompt":"d%d"}`, i, i)))
	}
	return useTools(blocks...)
}

const reportText = "Scope: s\nResult: r\nKey files: none\nFiles changed: none\nIssues: none"

// scripted is a forkcore.Model whose answers are a function of the request.
type scripted struct {
	t      *testing.T
	answer func(call) reply
	model  *forkcoretest.Model

	mu     sync.Mutex
	open   int // streams in progress
	widest int // most streams at a time
}

func newScripted(t *testing.T, answer func(call) reply) *scripted {
	m := &scripted{t: t, answer: answer}
	m.model = forkcoretest.NewModel(func(n int, body []byte) forkcoretest.Answer {
		a := m.answer(call{n: n, at: time.Now(), body: body, messages: parseBody(t, body)})
		if a.panics {
			panic("the scripted model panics")
		}
		if a.usage == (forkcore.Usage{}) {
			a.usage = usual
		}
		out := forkcoretest.Answer{
			StopReason: a.stop, Usage: a.usage, UsageUnknown: a.unknown, StartDelay: a.before, EndDelay: a.after,
			Deltas: a.deltas, DeltaDelay: a.every, Started: a.cut,
		}
		if a.err != nil {
			out.Err = a.err
		}
		for _, b := range a.blocks {
			out.Blocks = append(out.Blocks, []byte(b))
		}
		return out
	})
	return m
}

func (m *scripted) Stream(ctx context.Context, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) {
		m.mu.Lock()
		m.open++
		m.widest = max(m.widest, m.open)
		m.mu.Unlock()
		defer m.done()
		m.model.Stream(ctx, r)(yield)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (m *scripted) done() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open--
}

func (m *scripted) received() []call {
	var calls []call
	for _, r := range m.model.Requests() {
		calls = append(calls, call{n: r.N, at: r.At, body: r.Body, messages: parseBody(m.t, r.Body)})
	}
	return calls
}

// parseBody views the messages of a request. A marked block is no canonical one, so the marks are taken out first.
func parseBody(t *testing.T, body []byte) []forkcore.Message {
	var req struct {
		Messages []json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(unmarked(body), &req); err != nil {
		t.Errorf("request body is no JSON: %v", err)
		return nil
	}
	var list []forkcore.Message
	for _, raw := range req.Messages {
		m, err := forkcore.ParseMessage(raw)
		if err != nil {
			t.Errorf("message of a request: %v", err)
			return nil
		}
		list = append(list, m)
	}
	return list
}

// unmarked is a body without its cache marks.
func unmarked(body []byte) []byte {
	return []byte(strings.ReplaceAll(string(body), `,"cache_control":{"type":"ephemeral"}`, ""))
}
