// Package forkcoretest has stand-ins for what package forkcore asks of the world.
package forkcoretest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"forkyard/forkcore"
)

// Model is a forkcore.Model that answers from a script. It is safe for
// concurrent use and waits only by timer and context, so that it works in a
// testing/synctest bubble.
type Model struct {
	script func(n int, body []byte) Answer

	mu       sync.Mutex
	requests []Request
}

var _ forkcore.Model = (*Model)(nil)

// Request is one attempt as the model got it.
type Request struct {
	// N counts the attempts in order of arrival, from 1.
	N     int
	At    time.Time
	Body  []byte
	Betas []string
}

// Answer is what the script says to one request. The zero value is an answer
// without blocks and with known usage of zero.
type Answer struct {
	// Blocks are the canonical bytes of the content blocks; see TextBlock and ToolUseBlock.
	Blocks [][]byte
	// StopReason is tool_use or end_turn, by the blocks, when empty.
	StopReason string
	// Usage is sent with the start (Output 1 there) and the end.
	Usage forkcore.Usage
	// UsageUnknown stands for an endpoint that reports none.
	UsageUnknown bool
	// StartDelay passes before the start, EndDelay between the deltas and the end.
	StartDelay, EndDelay time.Duration
	// Deltas are sent between the start and the end, with a pause of DeltaDelay after each.
	Deltas     []forkcore.ModelDelta
	DeltaDelay time.Duration
	// Err ends the attempt in place of the answer.
	Err error
	// Hang waits for the end of the request's context in place of an answer.
	Hang bool
	// Started moves Err and Hang behind the start, the deltas and EndDelay.
	Started bool
}

// Text is an answer of one text block.
func Text(text string) Answer { return Answer{Blocks: [][]byte{TextBlock(text)}} }

// TextBlock gives the canonical bytes of a text block.
func TextBlock(text string) []byte { return forkcore.AppendTextBlock(nil, text) }

// ToolUseBlock gives the canonical bytes of a tool_use block; input is the JSON
// object as a model would stream it and is kept as it is.
func ToolUseBlock(id, name, input string) []byte {
	b := forkcore.AppendString([]byte(`{"type":"tool_use","id":`), id)
	b = forkcore.AppendString(append(b, `,"name":`...), name)
	return append(append(append(b, `,"input":`...), input...), '}')
}

// NewModel returns a model that asks script for each answer. The script gets the
// attempt's number, from 1, and the body; it may be called by several goroutines
// at a time.
func NewModel(script func(n int, body []byte) Answer) *Model { return &Model{script: script} }

// Requests lists what arrived so far, in order of arrival.
func (m *Model) Requests() []Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Stream implements forkcore.Model.
func (m *Model) Stream(ctx context.Context, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) {
		body, err := io.ReadAll(r.Body())
		if err == nil && int64(len(body)) != r.ContentLength {
			err = fmt.Errorf("content length is %d, the body has %d bytes", r.ContentLength, len(body))
		}
		if err != nil {
			yield(nil, fmt.Errorf("scripted model: read body: %w", err))
			return
		}
		m.mu.Lock()
		n := len(m.requests) + 1
		m.requests = append(m.requests, Request{N: n, At: time.Now(), Body: body, Betas: slices.Clone(r.Betas)})
		m.mu.Unlock()

		if err := m.script(n, body).play(ctx, n, yield); err != nil {
			yield(nil, err)
		}
	}
}

// play yields the answer's events. A returned error is still to be yielded; nil
// is returned also when the reader went away.
func (a Answer) play(ctx context.Context, n int, yield func(forkcore.ModelEvent, error) bool) error {
	if err := wait(ctx, a.StartDelay); err != nil {
		return err
	}
	if !a.Started && (a.Hang || a.Err != nil) {
		return a.fail(ctx)
	}
	start := &forkcore.ModelStart{MessageID: fmt.Sprintf("msg_%d", n), ProviderRequestID: fmt.Sprintf("req_%d", n), UsageKnown: !a.UsageUnknown}
	if start.UsageKnown {
		start.Usage = a.Usage
		start.Usage.Output = min(a.Usage.Output, 1)
	}
	if !yield(start, nil) {
		return nil
	}
	for _, d := range a.Deltas {
		if !yield(&d, nil) {
			return nil
		}
		if err := wait(ctx, a.DeltaDelay); err != nil {
			return err
		}
	}
	if err := wait(ctx, a.EndDelay); err != nil {
		return err
	}
	if a.Hang || a.Err != nil {
		return a.fail(ctx)
	}
	end := &forkcore.ModelEnd{Blocks: a.Blocks, StopReason: a.stopReason(), UsageKnown: !a.UsageUnknown}
	if end.UsageKnown {
		end.Usage = a.Usage
	}
	yield(end, nil)
	return nil
}

func (a Answer) fail(ctx context.Context) error {
	if a.Hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return a.Err
}

func (a Answer) stopReason() string {
	if a.StopReason != "" {
		return a.StopReason
	}
	m, err := forkcore.ParseMessage(forkcore.EncodeMessage(forkcore.RoleAssistant, a.Blocks...))
	if err == nil && len(m.ToolCalls()) > 0 {
		return "tool_use"
	}
	return "end_turn"
}

func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
