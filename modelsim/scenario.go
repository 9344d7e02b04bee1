package modelsim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Scenario is a [Mind] that follows the rules of a YAML file: the first rule that matches answers.
// scenario.schema.json describes the file. A scenario counts how often its rules answered and how often
// it saw a request; it is safe for concurrent use.
type Scenario struct {
	name   string
	file   scenarioFile
	player Mind

	mu       sync.Mutex
	answered []int // by rule
	seen     map[[sha256.Size]byte]int
	order    [][sha256.Size]byte // of seen, oldest first
}

var _ Mind = (*Scenario)(nil)

// seenLimit bounds how many request bodies are told apart by the condition attempt; the oldest are forgotten.
const seenLimit = 10_000

// LoadScenario reads the scenario in a file. Mistakes in it are [ScenarioErrors].
func LoadScenario(path string) (*Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a scenario: %w", err)
	}
	return ParseScenario(path, data)
}

// ParseScenario reads a scenario from YAML; name stands in messages. A mistake in it is a [ScenarioErrors] with all that
// could be told apart. References to the environment or to other files do not exist in the format.
func ParseScenario(name string, data []byte) (*Scenario, error) {
	s := &Scenario{name: name, player: Player(), seen: map[[sha256.Size]byte]int{}}
	if errs := decodeScenario(name, data, &s.file); len(errs) > 0 {
		return nil, errs
	}
	s.answered = make([]int, len(s.file.Rules))
	return s, nil
}

// Name is the name the scenario was read under.
func (s *Scenario) Name() string { return s.name }

// Description is what the file says about itself, "" when it says nothing.
func (s *Scenario) Description() string { return s.file.Description }

// configure makes the scenario the mind of o and sets the options that the file names; the others stay as they are.
func (s *Scenario) configure(o *Options) {
	o.Mind = s
	f := s.file.Options
	if f == nil {
		return
	}
	set(&o.MessageStartDelay, (*time.Duration)(f.StartDelay))
	set(&o.DeltaDelay, (*time.Duration)(f.DeltaDelay))
	set(&o.TTL5m, (*time.Duration)(f.TTL5m))
	set(&o.TTL1h, (*time.Duration)(f.TTL1h))
	if f.MinCacheable != nil {
		o.MinCacheable = f.MinCacheable
	}
	set(&o.MaxBody, f.MaxBody)
	set(&o.VisibilityLag, (*time.Duration)(f.VisibilityLag))
	set(&o.MissRate, f.MissRate)
	if f.Seed != nil {
		o.Seed = uint64(*f.Seed) // not negative, checked when the file was read
	}
	if l := f.Limits; l != nil {
		o.Limits = Limits{
			RequestsPerMinute: l.Requests, InputTokensPerMinute: l.InputTokens, OutputTokensPerMinute: l.OutputTokens, RampPerSecond: l.Ramp,
		}
	}
	set(&o.Credit, f.Credit)
	set(&o.SpendLimit, f.SpendLimit)
	if f.Keys != nil {
		o.Keys = f.Keys
	}
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Reply answers with the first rule that matches.
func (s *Scenario) Reply(ctx context.Context, req *Request) (Reply, error) {
	v := viewOf(req)
	answer := s.choose(v, req)
	switch {
	case answer != nil:
		return answer.reply(v), nil
	case s.file.Fallback.player:
		return s.player.Reply(ctx, req)
	case s.file.Fallback.answer != nil:
		return s.file.Fallback.answer.reply(v), nil
	}
	// A 400, because clients do not repeat it: the same request would find no rule again.
	return Reply{Fault: &Fault{
		Kind: FaultStatus, Status: http.StatusBadRequest,
		Message: fmt.Sprintf("scenario %s: no rule matches (turn %d, attempt %d, last text %q, tools offered: %s; results: %s)",
			s.name, v.turn, v.attempt, prefix(v.lastText, 80), listed(v.req.Tools, func(t Tool) string { return t.Name }),
			listed(v.results, func(r toolResult) string { return r.tool })),
	}}, nil
}

// listed joins the names of items for a message.
func listed[T any](items []T, name func(T) string) string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = name(item)
	}
	return cmp.Or(prefix(strings.Join(names, ", "), 200), "none")
}

// choose counts the request and returns the answer of the first rule that matches, nil for none.
func (s *Scenario) choose(v *view, req *Request) *script {
	sum := sha256.Sum256(req.Raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[sum] == 0 {
		if s.order = append(s.order, sum); len(s.order) > seenLimit {
			delete(s.seen, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.seen[sum]++
	v.attempt = s.seen[sum]
	for i := range s.file.Rules {
		r := &s.file.Rules[i]
		over := r.Times != nil && s.answered[i] >= *r.Times
		if over && r.Then == nil || !r.Match.matches(v) {
			continue
		}
		s.answered[i]++
		if over {
			return r.Then
		}
		return r.Answer
	}
	return nil
}

// view is what rules see of a request.
type view struct {
	req       *Request
	directive string
	lastText  string
	turn      int
	attempt   int
	results   []toolResult
}

// toolResult is a result of the request's last user message.
type toolResult struct {
	tool, text string
	isError    bool
}

// viewOf looks at req. A fork's turns count from its directive, so that they do not depend on how long the conversation
// before was. Consecutive user messages are one, as in the API.
func viewOf(req *Request) *view {
	v := &view{req: req, turn: 1}
	at, directive := forkOf(req)
	v.directive = directive
	names := map[string]string{}
	var results []Block
	for i, m := range req.Messages {
		switch m.Role {
		case "assistant":
			results = nil
			if i > at {
				v.turn++
			}
		case "system":
			continue
		}
		for _, b := range m.Blocks {
			switch {
			case b.Type == "tool_use":
				names[b.ID] = b.Name
			case b.Type == "tool_result":
				results = append(results, b)
			case b.Type == "text" && m.Role == "user":
				v.lastText = b.Text
			}
		}
	}
	for _, b := range results {
		v.results = append(v.results, toolResult{tool: names[b.ID], text: b.Text, isError: b.IsError})
	}
	return v
}

func (m *match) matches(v *view) bool {
	if m == nil {
		return true
	}
	for _, name := range m.Tool {
		if !v.req.HasTool(name) {
			return false
		}
	}
	// A request of an agent that is no fork has no directive, not an empty one.
	return (m.Directive == nil || v.directive != "" && m.Directive.match(v.directive)) &&
		m.LastText.match(v.lastText) && m.System.match(v.req.System) && m.Model.match(v.req.Model) &&
		m.Turn.match(v.turn) && m.Attempt.match(v.attempt) && m.ToolResult.match(v.results) &&
		(m.Stream == nil || *m.Stream == v.req.Stream)
}

// fill puts the view's fields into the text.
func (t answerText) fill(v *view) string {
	var out strings.Builder
	for _, part := range t {
		switch part.field {
		case "":
			out.WriteString(part.literal)
		case "Directive":
			out.WriteString(v.directive)
		case "LastText":
			out.WriteString(v.lastText)
		case "Turn":
			out.WriteString(strconv.Itoa(v.turn))
		case "Attempt":
			out.WriteString(strconv.Itoa(v.attempt))
		case "ToolResult":
			for i, r := range v.results {
				if i > 0 {
					out.WriteByte('\n')
				}
				out.WriteString(r.text)
			}
		}
	}
	return out.String()
}

// reply makes the answer for one request.
func (a *script) reply(v *view) Reply {
	r := Reply{StopReason: a.StopReason, Delay: time.Duration(a.StartDelay), PingEvery: time.Duration(a.PingEvery)}
	for _, b := range a.blocks {
		block := b.block
		if b.text != nil {
			block.Text = b.text.fill(v)
		}
		r.Blocks = append(r.Blocks, block)
	}
	set(&r.OutputTokens, a.OutputTokens)
	if a.DeltaDelay != nil {
		r.DeltaDelay = cmp.Or(time.Duration(*a.DeltaDelay), -1) // 0s in the file is none, 0 in a reply the server's
	}
	if d := a.StopDetails; d != nil {
		r.StopDetails = &StopDetails{Category: d.Category, Explanation: d.Explanation}
	}
	if u := a.Usage; u != nil {
		r.Usage = &Usage{
			InputTokens: u.InputTokens, CacheReadInputTokens: u.CacheRead, CacheCreationInputTokens: u.Write5m + u.Write1h,
			CacheCreation: CacheCreation{Ephemeral5mInputTokens: u.Write5m, Ephemeral1hInputTokens: u.Write1h},
			OutputTokens:  u.OutputTokens, ServiceTier: "standard",
		}
	}
	if f := a.Fault; f != nil {
		r.Fault = f.fault()
	}
	return r
}

func (f *faultFile) fault() *Fault {
	out := &Fault{}
	out.Kind, _ = ParseFaultKind(f.Kind) // checked when the file was read
	set(&out.Status, f.Status)
	set(&out.Type, f.Type)
	set(&out.Message, f.Message)
	set(&out.Code, f.Code)
	set(&out.RetryAfter, (*time.Duration)(f.RetryAfter))
	set(&out.AfterEvents, f.AfterEvents)
	set(&out.AfterBytes, f.AfterBytes)
	set(&out.InRune, f.InRune)
	set(&out.Every, (*time.Duration)(f.Every))
	return out
}
