package modelsim

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// exchange is one request to /v1/messages on its way to an answer.
type exchange struct {
	s       *Server
	w       http.ResponseWriter
	ctx     context.Context
	caller  caller
	start   time.Time
	kept    *Captured
	p       *prompt
	v       *verdict
	reply   Reply
	answer  answer
	message messageBody
	begun   bool
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) *apiError {
	x := &exchange{s: s, w: w, ctx: r.Context(), caller: callerOf(r.Context()), start: s.opts.Now()}
	body, p, bad := s.read(r, false)
	x.kept = s.arrive(r, body, x.start)
	err := error(nil)
	if bad == nil {
		x.p = p
		s.record.update(x.kept, func(c *Captured) { c.Model, c.Stream = p.Model, p.Stream })
		bad, err = x.serve()
	}
	if bad != nil {
		err = bad
	}
	s.record.update(x.kept, func(c *Captured) {
		c.Ended = s.opts.Now()
		if bad != nil {
			c.Status = bad.status
		}
		if err != nil {
			c.Error = err.Error()
		}
	})
	if x.begun {
		s.accounts.settle(x.caller.key, x.finalUsage(), s.opts.Now())
	}
	x.log(err)
	if errors.Is(err, errReset) {
		reset(w)
	}
	return bad
}

// serve answers a valid request. The first result is an error answer still to be written, the second says why an answer
// that was begun did not come to its end.
func (x *exchange) serve() (*apiError, error) {
	s, p := x.s, x.p
	x.v = s.cache.look(p, x.caller.workspace, x.start, s.opts.Now())
	err := s.accounts.accept(x.caller.key, x.v.usage.InputTokens+x.v.usage.CacheCreationInputTokens, x.start)
	s.accounts.show(x.w.Header(), x.caller.key, x.start)
	if err != nil {
		return err, nil
	}
	return x.answerIt()
}

// answerIt answers a request that is valid and within its limits; the results are those of serve.
func (x *exchange) answerIt() (*apiError, error) {
	s, p, opts := x.s, x.p, x.s.live.Load()
	var err error
	if p.MaxTokens > 0 {
		if x.reply, err = opts.Mind.Reply(x.ctx, &p.Request); err != nil {
			return &apiError{status: http.StatusInternalServerError, kind: "api_error", message: err.Error()}, nil
		}
	}
	x.answer = finish(p, x.reply)
	if err := wait(x.ctx, opts.MessageStartDelay); err != nil {
		return nil, errGone
	}
	if err := wait(x.ctx, x.reply.Delay); err != nil {
		return nil, errGone
	}
	if f := x.reply.Fault; f != nil {
		if f.Kind == FaultStatus || f.Kind == FaultErrorEvent && !p.Stream {
			return f.apiError(), nil
		}
		if !p.Stream && f.between() && f.Kind != FaultSlow {
			return nil, newOutlet(x).strike()
		}
	}
	x.message = messageBody{
		ID: newID("msg_"), Type: "message", Role: "assistant", Model: p.Model, Content: []any{}, Usage: x.v.usage,
	}
	if slices.Contains(p.betas, betaBinding) {
		list := append([]transformation{}, p.transformations...)
		x.message.InputTransformations = &list
	}
	if p.diagnose {
		x.message.Diagnostics = s.diagnose(p, x.caller.workspace)
	}
	if p.Stream {
		return nil, x.stream()
	}
	x.begin()
	x.message.Content = x.answer.content()
	x.message.StopReason, x.message.StopSequence, x.message.StopDetails = &x.answer.stopReason, x.answer.stopSequence, x.answer.stopDetails
	x.message.Usage = x.finalUsage()
	if x.reply.Fault == nil {
		writeJSON(x.w, http.StatusOK, x.message)
	} else if err := newOutlet(x).document(x.message); err != nil {
		return nil, err
	}
	x.done()
	return nil, nil
}

// begin is the moment at which the response begins: what the request writes becomes readable just before its first byte
// goes out, so that a client which has seen that byte can rely on it.
func (x *exchange) begin() {
	x.begun = true
	x.s.cache.commit(x.p, x.v, x.caller.workspace, x.message.ID, x.start, x.s.opts.Now())
	x.s.remember(x.message.ID, x.p.trace(x.caller.workspace))
	usage := x.startUsage()
	x.s.record.update(x.kept, func(c *Captured) {
		c.Begun, c.Status, c.MessageID, c.Usage = x.s.opts.Now(), http.StatusOK, x.message.ID, &usage
	})
}

// done records the end of a complete answer.
func (x *exchange) done() {
	usage := x.finalUsage()
	x.s.record.update(x.kept, func(c *Captured) { c.Usage, c.StopReason = &usage, x.answer.stopReason })
}

// startUsage is the usage of message_start, which shows one output token.
func (x *exchange) startUsage() Usage {
	if x.reply.Usage != nil {
		return *x.reply.Usage
	}
	return x.v.usage
}

func (x *exchange) finalUsage() Usage {
	u := x.startUsage()
	if x.reply.Usage != nil {
		return u
	}
	u.OutputTokens = x.answer.outputTokens
	if x.answer.thinkingTokens > 0 {
		u.OutputTokensDetails = &OutputDetails{ThinkingTokens: x.answer.thinkingTokens}
	}
	return u
}

func (x *exchange) log(err error) {
	attrs := []slog.Attr{
		slog.String("request_id", x.caller.requestID), slog.Int("body_bytes", len(x.kept.Body)),
		slog.Duration("took", x.s.opts.Now().Sub(x.start)),
	}
	if x.v != nil {
		u := x.v.usage
		attrs = append(attrs, slog.String("model", x.p.Model), slog.Int("input", u.InputTokens),
			slog.Int("write", u.CacheCreationInputTokens), slog.Int("read", u.CacheReadInputTokens), slog.Int("output", x.answer.outputTokens))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	x.s.log.LogAttrs(x.ctx, slog.LevelInfo, "messages", attrs...)
}
