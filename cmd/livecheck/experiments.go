package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"forkyard/forkcore"
)

// The verdicts.
const (
	yes          = "yes"
	no           = "no"
	inconclusive = "inconclusive"
)

// result is what an experiment found out.
type result struct {
	Verdict string           `json:"verdict"`
	Numbers map[string]int64 `json:"numbers,omitempty"`
	Note    string           `json:"note,omitempty"`
}

// experiment asks the endpoint one question that can be answered with yes or no.
type experiment struct {
	name, question, how string
	// assumed is what the program takes for true until the question is answered.
	assumed string
	// requests and long say what it costs: how many requests, how many of their prefixes are written or paid in full.
	requests, long int
	slow           bool // waits for minutes
	run            func(context.Context, *lab) (result, error)
}

// estimate is what e is expected to cost, in nano-dollars.
func (e experiment) estimate(l *lab) int64 {
	r := l.model.Rates
	prefix := 5 * l.min // of longText, with a margin for tokenizers
	return int64(e.long)*prefix*r.Write1h + int64(e.requests)*(prefix*r.Read+600*r.Input+16*r.Output)
}

func experiments() []experiment {
	return []experiment{
		{
			name: "look-back-window", question: "Does a mark look at 20 positions, itself included?", assumed: yes, requests: 5, long: 3,
			how: "An entry is written at block 0; marks at blocks 21, 20, 19 and 18 follow. The largest distance that reads, plus one, is the window.",
			run: lookBackWindow,
		},
		{
			name: "look-back-system", question: "Do system blocks count as positions, and does the walk cross from messages into system?", assumed: yes, requests: 3, long: 2,
			how: "An entry is written at the first system block; requests with more system blocks and one message block look from 20 and 19 positions behind it.",
			run: func(ctx context.Context, l *lab) (result, error) { return lookBackTier(ctx, l, false) },
		},
		{
			name: "look-back-tools", question: "Do tools count as positions, and does the walk cross into them?", assumed: yes, requests: 3, long: 2,
			how: "As look-back-system, with an entry at the first tool.",
			run: func(ctx context.Context, l *lab) (result, error) { return lookBackTier(ctx, l, true) },
		},
		{
			name: "visible-at-start", question: "Can an entry be read as soon as the response that writes it has begun?", assumed: yes, requests: 7, long: 4,
			how: "Three followers are sent at the leader's message_start, three more after its end.",
			run: visibleAtStart,
		},
		{
			name: "prewarm", question: "Does a request with max_tokens 0 write an entry that a streaming request reads?", assumed: yes, requests: 2, long: 2,
			how: "max_tokens 0 without streaming, then a request that streams.",
			run: func(ctx context.Context, l *lab) (result, error) { return prewarm(ctx, l, "") },
		},
		{
			name: "prewarm-adaptive", question: "Does it with adaptive thinking?", assumed: yes, requests: 2, long: 2,
			how: "As prewarm, with thinking adaptive in both requests.",
			run: func(ctx context.Context, l *lab) (result, error) { return prewarm(ctx, l, `{"type":"adaptive"}`) },
		},
		{
			name: "diagnostics", question: "Does diagnostics name a changed system text, and nothing for a request that only grew?", assumed: yes, requests: 3, long: 2,
			how: "A request that asks for diagnostics; one that grew and one with another system text, both compared with it.",
			run: diagnostics,
		},
		{
			name: "ttl-refresh", question: "Does a read extend the lifetime of an entry?", assumed: yes, requests: 5, long: 3, slow: true,
			how: "Two entries of 5 minutes. After 4 minutes one is read; after 8 minutes both are. The one that was not read in between must be gone.",
			run: ttlRefresh,
		},
		{
			name: "5m-reads-1h", question: "Does a request with a 5-minute mark read an entry written for an hour?", assumed: yes, requests: 2, long: 2,
			how: "The same prompt, first with a 1-hour mark, then with a 5-minute mark.",
			run: fiveReadsHour,
		},
		{
			name: "abort-keeps", question: "Does an entry stay when the client goes away right after message_start?", assumed: yes, requests: 2, long: 2,
			how: "A stream is closed at message_start; two seconds later the same prompt is sent.",
			run: abortKeeps,
		},
		{
			name: "same-text-escaped", question: "Is the same text with another escape the same entry?", assumed: no, requests: 2, long: 2,
			how: "The same prompt, once with < and once with \\u003c.",
			run: func(ctx context.Context, l *lab) (result, error) {
				return rewritten(ctx, l, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("<"), []byte(`\u003c`)) })
			},
		},
		{
			name: "same-text-spaced", question: "Is the same request with white space between its tokens the same entry?", assumed: no, requests: 2, long: 2,
			how: "The same prompt, once without and once with white space around brackets, braces, commas and colons.",
			run: func(ctx context.Context, l *lab) (result, error) {
				return rewritten(ctx, l, func(b []byte) []byte {
					var out bytes.Buffer
					_ = json.Indent(&out, b, "", " ") // forkcore made it: it is JSON
					return out.Bytes()
				})
			},
		},
		{
			name: "merged-turns", question: "Are consecutive messages of one role the same prefix as one message?", assumed: yes, requests: 2, long: 2,
			how: "An entry is written behind two blocks of one user message; then the blocks are sent as two messages.",
			run: mergedTurns,
		},
		{
			name: "effort-keeps-system", question: "Does a change of effort keep the entry at the end of system?", assumed: yes, requests: 2, long: 2,
			how: "Marks at the end of system and of the message; low effort, then high.",
			run: func(ctx context.Context, l *lab) (result, error) {
				return settings(ctx, l, func(p *forkcore.Params, second bool) {
					p.Effort = "low"
					if second {
						p.Effort = "high"
					}
				})
			},
		},
		{
			name: "thinking-keeps-system", question: "Does a change of thinking keep the entry at the end of system?", assumed: yes, requests: 2, long: 2,
			how: "Marks at the end of system and of the message; thinking adaptive with display omitted, then summarized.",
			run: func(ctx context.Context, l *lab) (result, error) {
				return settings(ctx, l, func(p *forkcore.Params, second bool) {
					p.Thinking = json.RawMessage(`{"type":"adaptive","display":"omitted"}`)
					if second {
						p.Thinking = json.RawMessage(`{"type":"adaptive","display":"summarized"}`)
					}
				})
			},
		},
		{
			name: "minimum-length", question: "Is the catalogue's minimum cacheable length the model's?", assumed: yes, requests: 8, long: 8,
			how: "Prompts of lengths between half and twice the catalogue's value, halving the interval.",
			run: minimumLength,
		},
		{
			name: "rate-limit-headers", question: "Does a response tell its rate limits?", assumed: yes, requests: 1,
			how: "One request. A retry-after is recorded wherever a request of the run is refused with one; none is provoked.",
			run: limitHeaders,
		},
		{
			name: "workspace-header", question: "Does a response name its workspace?", assumed: yes, requests: 1,
			how: "One request.",
			run: workspaceHeader,
		},
	}
}

func verdict(ok bool) string {
	if ok {
		return yes
	}
	return no
}

// unanswered is the result when a request that the verdict needs was refused, or wrote nothing where it had to.
func unanswered(what string, e evidence) result {
	r := result{Verdict: inconclusive, Note: what}
	if e.Error != "" {
		r.Note += ": " + e.Error
	} else {
		r.Note += ": it wrote nothing to the cache"
	}
	return r
}

func lookBackWindow(ctx context.Context, l *lab) (result, error) {
	p := l.base(l.longText())
	first := p.turns[0].blocks[0]
	e, err := l.ask(ctx, p, 0)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	r := result{Numbers: map[string]int64{"window": 0}}
	// From far to near: what these requests write themselves lies behind the marks of those that follow.
	for _, distance := range []int{21, 20, 19, 18} {
		e, err := l.ask(ctx, p.with(append([]string{first}, few(distance)...)...), distance)
		if err != nil || e.Error != "" {
			return unanswered("a reading request", e), err
		}
		r.Numbers[fmt.Sprintf("read_at_%d", distance)] = e.read()
		if e.read() > 0 && r.Numbers["window"] == 0 {
			r.Numbers["window"] = int64(distance + 1)
		}
	}
	r.Verdict = verdict(r.Numbers["window"] == 20)
	return r, nil
}

// markTool is a mark on the first tool, which forkcore never sets: it is spliced into the finished body.
func markTool(body []byte) []byte {
	return bytes.Replace(body, []byte(`"input_schema":{"type":"object"}}`), []byte(`"input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}`), 1)
}

func lookBackTier(ctx context.Context, l *lab, tools bool) (result, error) {
	p := l.base(few(1)...)
	var body []byte
	var err error
	if tools {
		p.tools = []forkcore.ToolSpec{{Name: "tool_0", Description: l.longText(), InputSchema: emptyObject}}
		p.system = []string{"Be brief."}
		if body, err = p.body(nil, "5m"); err == nil {
			body = markTool(body)
		}
	} else {
		body, err = p.body(nil, "5m", markSystem)
	}
	if err != nil {
		return result{}, err
	}
	e, err := l.stream(ctx, p.params, body, nil)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	r := result{Numbers: map[string]int64{}}
	for _, distance := range []int{20, 19} {
		q := p
		// Between the entry and the mark at the message's only block.
		for i := 1; i < distance; i++ {
			switch {
			case !tools:
				q.system = append(q.system[:len(q.system):len(q.system)], fmt.Sprintf("Rule %d: be brief.", i))
			case i < distance-1: // the last one is the system block
				q.tools = append(q.tools[:len(q.tools):len(q.tools)], forkcore.ToolSpec{Name: fmt.Sprintf("tool_%d", i), Description: "Does nothing.", InputSchema: emptyObject})
			}
		}
		e, err := l.ask(ctx, q, 0)
		if err != nil || e.Error != "" {
			return unanswered("a reading request", e), err
		}
		r.Numbers[fmt.Sprintf("read_at_%d", distance)] = e.read()
	}
	r.Verdict = verdict(r.Numbers["read_at_19"] > 0 && r.Numbers["read_at_20"] == 0)
	return r, nil
}

func visibleAtStart(ctx context.Context, l *lab) (result, error) {
	const followers = 3
	p := l.base("Shared.", "Count from 1 to 60 in words.")
	p.params.MaxTokens = 200 // the leader must still be talking when the followers ask
	body, err := p.body(nil, "5m", 0)
	if err != nil {
		return result{}, err
	}
	follow := func(when string) (read int64, err error) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range followers {
			wg.Go(func() {
				q := p.with("Shared.", fmt.Sprintf("Follower %d %s: answer with the word yes.", i, when))
				q.params.MaxTokens = 16
				e, failed := l.ask(ctx, q, 0)
				mu.Lock()
				defer mu.Unlock()
				if e.read() > 0 {
					read++
				}
				if failed != nil {
					err = failed
				}
			})
		}
		wg.Wait()
		return read, err
	}
	var atStart int64
	var failed error
	e, err := l.stream(ctx, p.params, body, func() bool {
		atStart, failed = follow("at the start")
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil || e.written() == 0 {
		return unanswered("the leading request", e), err
	}
	after, err := follow("after the end")
	r := result{Numbers: map[string]int64{"followers": followers, "read_at_start": atStart, "read_after_end": after}}
	switch atStart {
	case followers:
		r.Verdict = yes
	case 0:
		r.Verdict = no
	default:
		r.Verdict, r.Note = inconclusive, "some followers read it and some did not"
	}
	return r, err
}

func prewarm(ctx context.Context, l *lab, thinking string) (result, error) {
	p := l.base("Shared.", few(1)[0])
	p.params.MaxTokens = 0
	if thinking != "" {
		p.params.Thinking = json.RawMessage(thinking)
	}
	body, err := p.body(nil, "5m", 0)
	if err != nil {
		return result{}, err
	}
	warm, err := l.post(ctx, p.params, unstream(body))
	if err != nil {
		return result{}, err
	}
	if warm.Error != "" {
		return result{Verdict: no, Note: warm.Error}, nil
	}
	p.params.MaxTokens = 64
	e, err := l.ask(ctx, p, 0)
	if err != nil || e.Error != "" {
		return unanswered("the reading request", e), err
	}
	r := result{Verdict: verdict(warm.written() > 0 && e.read() == warm.written()), Numbers: map[string]int64{"written": warm.written(), "output": warm.Usage.Output, "read": e.read()}}
	r.Note = "stop reason " + warm.StopReason
	return r, nil
}

func diagnostics(ctx context.Context, l *lab) (result, error) {
	p := l.base(few(1)...)
	send := func(p prompt, previous string) (evidence, error) {
		body, err := p.body(&forkcore.Diagnostics{PreviousMessageID: previous}, "5m", 0)
		if err != nil {
			return evidence{}, err
		}
		return l.stream(ctx, p.params, body, nil)
	}
	first, err := send(p, "")
	if err != nil || first.Error != "" {
		return unanswered("the first request", first), err
	}
	grown, err := send(p.with(few(2)...), first.MessageID)
	if err != nil || grown.Error != "" {
		return unanswered("the grown request", grown), err
	}
	p.system = []string{p.system[0] + "Another ending."}
	changed, err := send(p, first.MessageID)
	if err != nil || changed.Error != "" {
		return unanswered("the changed request", changed), err
	}
	said := func(d *forkcore.Diagnosis) string {
		if d == nil {
			return "nothing"
		}
		return d.String()
	}
	r := result{Note: fmt.Sprintf("grown: %s; changed: %s", said(grown.Diagnosis), said(changed.Diagnosis))}
	pending := func(d *forkcore.Diagnosis) bool { return d != nil && d.Type == forkcore.DiagnosisPending }
	switch {
	case pending(grown.Diagnosis), pending(changed.Diagnosis):
		r.Verdict = inconclusive
	default:
		r.Verdict = verdict(grown.Diagnosis == nil && changed.Diagnosis != nil && changed.Diagnosis.Type == "system_changed")
	}
	return r, nil
}

func ttlRefresh(ctx context.Context, l *lab) (result, error) {
	const pause = 4 * time.Minute
	kept, left := l.base(few(1)...), l.base(few(1)...)
	for _, p := range []prompt{left, kept} {
		if e, err := l.ask(ctx, p, 0); err != nil || e.written() == 0 {
			return unanswered("a writing request", e), err
		}
	}
	if err := l.wait(ctx, pause); err != nil {
		return result{}, err
	}
	e, err := l.ask(ctx, kept, 0)
	if err != nil || e.read() == 0 {
		r := unanswered("the request after four minutes", e)
		r.Note = "after four minutes the entry was not read, or the request failed: " + e.Error
		return r, err
	}
	if err := l.wait(ctx, pause); err != nil {
		return result{}, err
	}
	refreshed, err := l.ask(ctx, kept, 0)
	if err != nil || refreshed.Error != "" {
		return unanswered("the last request", refreshed), err
	}
	control, err := l.ask(ctx, left, 0)
	if err != nil || control.Error != "" {
		return unanswered("the control", control), err
	}
	r := result{Numbers: map[string]int64{"read_refreshed": refreshed.read(), "read_control": control.read()}}
	if r.Verdict = verdict(refreshed.read() > 0); control.read() > 0 {
		r.Verdict, r.Note = inconclusive, "the entry that was not read in between was still there after eight minutes"
	}
	return r, nil
}

func fiveReadsHour(ctx context.Context, l *lab) (result, error) {
	p := l.base(few(1)...)
	e, err := l.askTTL(ctx, p, "1h", 0)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	again, err := l.ask(ctx, p, 0)
	if err != nil || again.Error != "" {
		return unanswered("the reading request", again), err
	}
	return result{Verdict: verdict(again.read() > 0), Numbers: map[string]int64{"written_1h": e.Usage.CacheWrite1h, "read": again.read(), "written_again": again.written()}}, nil
}

func abortKeeps(ctx context.Context, l *lab) (result, error) {
	p := l.base("Shared.", "Count from 1 to 60 in words, then be aborted.")
	p.params.MaxTokens = 200
	body, err := p.body(nil, "5m", 0)
	if err != nil {
		return result{}, err
	}
	e, err := l.stream(ctx, p.params, body, func() bool { return false })
	if err != nil || e.written() == 0 {
		return unanswered("the request that was to be aborted", e), err
	}
	if err := l.wait(ctx, 2*time.Second); err != nil {
		return result{}, err
	}
	again, err := l.ask(ctx, p.with("Shared.", few(1)[0]), 0)
	if err != nil || again.Error != "" {
		return unanswered("the reading request", again), err
	}
	return result{Verdict: verdict(again.read() > 0), Numbers: map[string]int64{"written": e.written(), "read": again.read()}}, nil
}

// rewritten sends a body and then the same with other bytes that say the same.
func rewritten(ctx context.Context, l *lab, rewrite func([]byte) []byte) (result, error) {
	p := l.base("Is 1 < 2 < 3? " + few(1)[0])
	body, err := p.body(nil, "5m", 0)
	if err != nil {
		return result{}, err
	}
	e, err := l.stream(ctx, p.params, body, nil)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	again, err := l.stream(ctx, p.params, rewrite(body), nil)
	if err != nil || again.Error != "" {
		return unanswered("the rewritten request", again), err
	}
	return result{Verdict: verdict(again.read() > 0), Numbers: map[string]int64{"written": e.written(), "read": again.read()}}, nil
}

func mergedTurns(ctx context.Context, l *lab) (result, error) {
	blocks := few(3)
	p := l.base(blocks[:2]...)
	e, err := l.ask(ctx, p, 1)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	p.turns = nil
	for _, b := range blocks {
		p.turns = append(p.turns, turn{forkcore.RoleUser, []string{b}})
	}
	again, err := l.ask(ctx, p, 2)
	if err != nil || again.Error != "" {
		return unanswered("the request with separate messages", again), err
	}
	return result{Verdict: verdict(again.read() == e.written()), Numbers: map[string]int64{"written": e.written(), "read": again.read()}}, nil
}

// settings changes a setting between two requests and looks at what is still read.
func settings(ctx context.Context, l *lab, set func(p *forkcore.Params, second bool)) (result, error) {
	p := l.base(l.longText())
	p.params.MaxTokens = 64
	set(&p.params, false)
	e, err := l.ask(ctx, p, markSystem, 0)
	if err != nil || e.written() == 0 {
		return unanswered("the writing request", e), err
	}
	set(&p.params, true)
	again, err := l.ask(ctx, p, markSystem, 0)
	if err != nil || again.Error != "" {
		return unanswered("the request with the other setting", again), err
	}
	r := result{Verdict: verdict(again.read() > 0), Numbers: map[string]int64{"written": e.written(), "read": again.read()}}
	switch {
	case again.read() == 0:
		r.Note = "the system tier was lost (whether tools alone were kept is not told)"
	case again.read() < e.written():
		r.Note = "the messages tier was lost, the system tier kept"
	default:
		r.Note = "nothing was lost"
	}
	return r, nil
}

func minimumLength(ctx context.Context, l *lab) (result, error) {
	low, high := int(l.model.MinCacheable)/2, int(l.model.MinCacheable)*2
	if l.model.MinCacheable == 0 {
		low, high = 256, 8192
	}
	r := result{Numbers: map[string]int64{"catalogue": l.model.MinCacheable, "longest_not_cached": 0, "shortest_cached": 0}}
	for range 8 {
		p := prompt{
			params: forkcore.Params{Model: l.model.ID, MaxTokens: 1}, system: []string{filler((low + high) * 2 / 5)}, // filler's token is five bytes, here four
			turns: []turn{{forkcore.RoleUser, few(1)}},
		}
		e, err := l.ask(ctx, p, 0)
		if err != nil || e.Usage == nil {
			return unanswered("a request", e), err
		}
		total := e.Usage.TotalInput()
		if e.written() > 0 {
			if n := r.Numbers["shortest_cached"]; n == 0 || total < n {
				r.Numbers["shortest_cached"] = total
			}
			high = (low + high) / 2
		} else {
			r.Numbers["longest_not_cached"] = max(total, r.Numbers["longest_not_cached"])
			low = (low + high) / 2
		}
	}
	under, over := r.Numbers["longest_not_cached"], r.Numbers["shortest_cached"]
	switch {
	case under == 0 || over == 0:
		// Every prompt was cached, or none: the true value lies outside of the interval.
		r.Verdict, r.Note = no, "the minimum lies outside of half to twice the catalogue's value"
	case under >= over:
		r.Verdict, r.Note = inconclusive, "a longer prompt was not cached although a shorter one was"
	case l.model.MinCacheable == 0:
		r.Verdict, r.Note = inconclusive, "the catalogue has no value to compare with; the numbers tell it"
	default:
		// Counts beside the prefix (a few tokens around a message) blur the edge.
		const blur = 16
		r.Verdict = verdict(under < l.model.MinCacheable+blur && over >= l.model.MinCacheable-blur)
	}
	return r, nil
}

func limitHeaders(ctx context.Context, l *lab) (result, error) {
	e, err := l.ask(ctx, l.base(few(1)...).short())
	if err != nil || e.Error != "" && len(e.Limits) == 0 {
		return unanswered("the request", e), err
	}
	r := result{Verdict: verdict(len(e.Limits) > 0), Numbers: map[string]int64{}}
	var names []string
	for _, limit := range e.Limits {
		names = append(names, limit.Name)
		r.Numbers[limit.Name] = limit.Limit
	}
	r.Note = strings.Join(names, ", ")
	return r, nil
}

func workspaceHeader(ctx context.Context, l *lab) (result, error) {
	e, err := l.ask(ctx, l.base(few(1)...).short())
	if err != nil || e.Error != "" {
		return unanswered("the request", e), err
	}
	return result{Verdict: verdict(e.Workspace != "")}, nil
}

// short is p without its long system text.
func (p prompt) short() prompt {
	p.system = []string{"Be brief."}
	return p
}
