package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
)

// errCeiling stops the run: the next request could cost more than what is left.
var errCeiling = errors.New("the price ceiling is reached")

// lab sends requests for experiments and keeps the account.
type lab struct {
	client  *anthropic.Client
	plain   sdk.Client // for answers that are no stream
	model   forkcore.ModelInfo
	min     int64 // tokens that a prefix surely needs to be cached, as far as known
	ceiling int64 // nano-dollars
	wait    func(context.Context, time.Duration) error

	mu       sync.Mutex
	spent    int64 // nano-dollars, what open requests may cost included
	evidence []evidence
}

// evidence is what stays of one request: no prompt, no key.
type evidence struct {
	RequestID   string               `json:"request_id,omitempty"`
	MessageID   string               `json:"message_id,omitempty"`
	Usage       *forkcore.Usage      `json:"usage,omitempty"`
	StopReason  string               `json:"stop_reason,omitempty"`
	Workspace   string               `json:"workspace,omitempty"`
	Diagnosis   *forkcore.Diagnosis  `json:"diagnosis,omitempty"`
	Limits      []forkcore.RateLimit `json:"rate_limits,omitempty"`
	RetryAfterS float64              `json:"retry_after_seconds,omitempty"`
	Error       string               `json:"error,omitempty"`
	// BookedUSD is what the request counts as against the ceiling.
	BookedUSD float64 `json:"booked_usd"`
}

func (e evidence) read() int64 {
	if e.Usage == nil {
		return 0
	}
	return e.Usage.CacheRead
}

func (e evidence) written() int64 {
	if e.Usage == nil {
		return 0
	}
	return e.Usage.CacheWrite5m + e.Usage.CacheWrite1h
}

// prompt is a request in the making. Each has a random text of its own at the start, so that no two experiments share
// an entry by accident.
type prompt struct {
	params forkcore.Params
	tools  []forkcore.ToolSpec
	system []string
	turns  []turn
}

type turn struct {
	role   forkcore.Role
	blocks []string
}

// longText is random and surely longer than the model's minimum: a token is four bytes or so, and in no tokenizer more
// than five on average over such words.
func (l *lab) longText() string { return filler(int(l.min) * 2) }

func filler(tokens int) string {
	text := strings.Builder{}
	for text.Len() < 5*tokens {
		fmt.Fprintf(&text, "Line %s of a text without meaning. ", rand.Text()[:8])
	}
	return text.String()
}

// base is a prompt with a long random system text and the given blocks of one user message.
func (l *lab) base(blocks ...string) prompt {
	return prompt{
		params: forkcore.Params{Model: l.model.ID, MaxTokens: 16}, system: []string{l.longText()},
		turns: []turn{{forkcore.RoleUser, blocks}},
	}
}

// with is p with another first user message.
func (p prompt) with(blocks ...string) prompt {
	p.turns = []turn{{forkcore.RoleUser, blocks}}
	return p
}

// few are n short blocks.
func few(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("Note %d. Answer with the word yes.", i)
	}
	return out
}

// mark places. The others count the blocks of the messages from 0.
const markSystem = -1

// prefix encodes p up to and including n blocks of its messages; n < 0 means all.
func (p prompt) prefix(n int) (*forkcore.Prefix, error) {
	chain := forkcore.NewPrefix(forkcore.EncodeHead(p.params, p.tools, p.system...))
	for _, t := range p.turns {
		if n == 0 {
			break
		}
		var blocks [][]byte
		for _, text := range t.blocks {
			if n == 0 {
				break
			}
			blocks = append(blocks, forkcore.AppendTextBlock(nil, text))
			n--
		}
		m, err := forkcore.ParseMessage(forkcore.EncodeMessage(t.role, blocks...))
		if err != nil {
			return nil, err
		}
		chain = chain.Append(m)
	}
	return chain, nil
}

// body gives the bytes of the request with marks of that lifetime at those places.
func (p prompt) body(d *forkcore.Diagnostics, ttl string, marks ...int) ([]byte, error) {
	whole, err := p.prefix(-1)
	if err != nil {
		return nil, err
	}
	var at []forkcore.Mark
	for _, place := range marks {
		m := forkcore.Mark{Block: "system", TTL: ttl, Offset: whole.SystemEnd()}
		if place >= 0 {
			part, err := p.prefix(place + 1)
			if err != nil {
				return nil, err
			}
			m.Block = fmt.Sprintf("message block %d", place)
			m.Offset, _ = part.Tail()
		}
		at = append(at, m)
	}
	b, err := whole.Body(at, p.params, d)
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// ask sends p with 5-minute marks. An answer with an error is evidence, not an error of ask: that is a full account, a
// cancelled context or a prompt that cannot be encoded.
func (l *lab) ask(ctx context.Context, p prompt, marks ...int) (evidence, error) {
	return l.askTTL(ctx, p, "5m", marks...)
}

func (l *lab) askTTL(ctx context.Context, p prompt, ttl string, marks ...int) (evidence, error) {
	body, err := p.body(nil, ttl, marks...)
	if err != nil {
		return evidence{}, err
	}
	return l.stream(ctx, p.params, body, nil)
}

// stream sends a body. atStart, if not nil, is called when the response begins; false goes away there and then.
func (l *lab) stream(ctx context.Context, p forkcore.Params, body []byte, atStart func() bool) (evidence, error) {
	worst, err := l.reserve(body, p.MaxTokens)
	if err != nil {
		return evidence{}, err
	}
	var e evidence
	usage, known := forkcore.Usage{}, false
	req := forkcore.Request{Body: func() io.Reader { return bytes.NewReader(body) }, ContentLength: int64(len(body)), Betas: p.Betas}
	for event, err := range l.client.Stream(ctx, req) {
		var me *forkcore.ModelError
		switch {
		case errors.As(err, &me):
			e.Error, e.RetryAfterS, e.Limits = me.Error(), me.RetryAfter.Seconds(), me.Limits
			e.RequestID = me.ProviderRequestID
			known = known || me.Status >= 400 || me.Unsent // such requests are not billed
		case err != nil:
			return l.settle(e, worst, nil), err
		}
		switch ev := event.(type) {
		case *forkcore.ModelStart:
			e.RequestID, e.MessageID, e.Workspace, e.Limits, e.Diagnosis = ev.ProviderRequestID, ev.MessageID, ev.Workspace, ev.Limits, ev.Diagnosis
			usage = ev.Usage
			if ev.UsageKnown {
				e.Usage = &usage
			}
			if atStart != nil && !atStart() {
				// What was said after that is not known: the most it can have been is booked.
				if e.Usage == nil {
					return l.settle(e, worst, nil), nil
				}
				booked := usage
				booked.Output = p.MaxTokens
				return l.settle(e, worst, &booked), nil
			}
		case *forkcore.ModelEnd:
			usage, known, e.StopReason = ev.Usage, ev.UsageKnown, ev.StopReason
			if ev.UsageKnown {
				e.Usage = &usage
			}
		}
	}
	if !known {
		return l.settle(e, worst, nil), nil
	}
	return l.settle(e, worst, &usage), nil
}

// post sends a body that asks for no stream.
func (l *lab) post(ctx context.Context, p forkcore.Params, body []byte) (evidence, error) {
	worst, err := l.reserve(body, p.MaxTokens)
	if err != nil {
		return evidence{}, err
	}
	var e evidence
	var m sdk.Message
	var res *http.Response
	if err := l.plain.Post(ctx, "v1/messages", body, &m, option.WithResponseInto(&res)); err != nil {
		var api *sdk.Error
		if !errors.As(err, &api) {
			l.settle(e, worst, nil)
			if ctx.Err() != nil {
				return e, context.Cause(ctx)
			}
			e.Error = "no answer"
			return e, nil
		}
		e.RequestID, e.Error = api.RequestID, fmt.Sprintf("HTTP %d %s: %s", api.StatusCode, api.Type(), forkcore.CutText(api.Message, 500))
		return l.settle(e, worst, &forkcore.Usage{}), nil
	}
	u := m.Usage
	e.RequestID, e.Workspace = res.Header.Get("request-id"), res.Header.Get("anthropic-workspace-id")
	e.MessageID, e.StopReason = m.ID, string(m.StopReason)
	e.Usage = &forkcore.Usage{
		Input: u.InputTokens, CacheWrite5m: u.CacheCreationInputTokens - u.CacheCreation.Ephemeral1hInputTokens,
		CacheWrite1h: u.CacheCreation.Ephemeral1hInputTokens, CacheRead: u.CacheReadInputTokens, Output: u.OutputTokens,
	}
	return l.settle(e, worst, e.Usage), nil
}

// worst is the most that a request can cost: a token for each byte, all of it at the dearest input price, and all the
// output it may have.
func (l *lab) worst(body []byte, maxTokens int64) int64 {
	tokens := int64(len(body)) + 1024 // what the provider adds for tools
	r := l.model.RatesFor(tokens)
	return tokens*max(r.Input, r.Write5m, r.Write1h, r.Read) + maxTokens*r.Output
}

func (l *lab) reserve(body []byte, maxTokens int64) (int64, error) {
	worst := l.worst(body, maxTokens)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.spent+worst > l.ceiling {
		return 0, fmt.Errorf("%w: %.4f USD are spent or reserved, the next request may cost %.4f USD", errCeiling, usd(l.spent), usd(worst))
	}
	l.spent += worst
	return worst, nil
}

// settle books what a request cost, the worst case where that is not known, and keeps e.
func (l *lab) settle(e evidence, worst int64, u *forkcore.Usage) evidence {
	cost := worst
	if u != nil {
		cost = l.model.Cost(*u)
	}
	e.BookedUSD = usd(cost)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spent += cost - worst
	l.evidence = append(l.evidence, e)
	return e
}

func usd(nano int64) float64 { return float64(nano) / 1e9 }

// unstream takes the stream member out of a body that forkcore closed.
func unstream(body []byte) []byte {
	at := bytes.LastIndex(body, []byte(`,"stream":true`))
	if at < 0 {
		return body
	}
	return append(bytes.Clone(body[:at]), body[at+len(`,"stream":true`):]...)
}

// plainClient sends bodies as they are, without retries and without the environment's settings.
func plainClient(key, baseURL string) sdk.Client {
	return sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithoutOpenTelemetry(), option.WithMaxRetries(0),
		option.WithBaseURL(baseURL), option.WithAPIKey(key), option.WithHeader("Content-Type", "application/json"))
}

var emptyObject = json.RawMessage(`{"type":"object"}`)
