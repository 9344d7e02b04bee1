package anthropic

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"forkyard/forkcore"
)

const (
	// defaultProbeTokens is the length of a probe's prefix where the model's minimum is not known: the largest there is.
	defaultProbeTokens = 4096
	// probeBytesPerToken makes the prefix long enough: English has four to five bytes a token.
	probeBytesPerToken = 6
)

// probe is what the two requests of a cache probe have in common.
type probe struct {
	c      *Client
	access *access
	prefix *forkcore.Prefix
	params forkcore.Params
	marks  []forkcore.Mark
}

// probeCache sends the same request twice, with a fresh prefix that ends in a mark. The second goes out when the first
// was answered: an entry can be read when the response that wrote it has begun.
func (c *Client) probeCache(ctx context.Context, a *access, model string) *forkcore.CacheProbe {
	p, err := c.newProbe(a, model)
	if err != nil {
		return &forkcore.CacheProbe{Err: &forkcore.ModelError{Code: forkcore.CodeProviderError, Message: err.Error()}}
	}
	began := time.Now()
	out := &forkcore.CacheProbe{PrefixTokens: p.prefix.SystemEnd() / 4}
	if c.endpoint.Prewarm {
		out.First, out.FirstKnown, out.Err = p.prewarm(ctx)
	} else {
		out.First, out.FirstKnown, out.Err = p.ask(ctx)
	}
	if out.Err != nil {
		return out
	}
	if out.FirstKnown {
		out.Counted, out.PrefixTokens = true, out.First.CacheWrite5m+out.First.CacheWrite1h+out.First.CacheRead
		if out.PrefixTokens == 0 { // nothing is reported as written: the whole of it is what could be read
			out.PrefixTokens = out.First.TotalInput()
		}
	}
	out.Second, out.SecondKnown, out.Err = p.ask(ctx)
	if c.catalogue == nil || !out.FirstKnown || out.Err == nil && !out.SecondKnown {
		return out
	}
	if m, priced := c.catalogue.ModelAt(model, began); priced {
		cost := m.Cost(out.First)
		if out.Err == nil {
			cost += m.Cost(out.Second)
		}
		out.Cost = &cost
	}
	return out
}

func (c *Client) newProbe(a *access, model string) (*probe, error) {
	tokens := int64(defaultProbeTokens)
	if c.catalogue != nil {
		if m, ok := c.catalogue.Model(model); ok && m.MinCacheable > 0 && !m.MinCacheableAssumed {
			tokens = m.MinCacheable
		}
	}
	params := forkcore.Params{Model: model, MaxTokens: 1}
	message, err := forkcore.ParseMessage(forkcore.EncodeMessage(forkcore.RoleUser, forkcore.AppendTextBlock(nil, "Answer with the one word: ready")))
	if err != nil {
		return nil, err
	}
	// The random part stands first, so that no earlier probe shares a beginning with this one.
	const sentence = " This text only fills a prefix, so that it is long enough to be kept; it asks for nothing."
	text := "Probe " + rand.Text() + "." + strings.Repeat(sentence, int(tokens)*probeBytesPerToken/len(sentence)+1)
	prefix := forkcore.NewPrefix(forkcore.EncodeHead(params, nil, text)).Append(message)
	mark := forkcore.Mark{Block: "system[0]", TTL: "5m", Offset: prefix.SystemEnd()}
	return &probe{c: c, access: a, prefix: prefix, params: params, marks: []forkcore.Mark{mark}}, nil
}

// ask streams the request to its end.
func (p *probe) ask(ctx context.Context) (forkcore.Usage, bool, *forkcore.ModelError) {
	body, err := p.prefix.Body(p.marks, p.params, nil)
	if err != nil {
		return forkcore.Usage{}, false, &forkcore.ModelError{Code: forkcore.CodeProviderError, Message: err.Error()}
	}
	for e, err := range p.c.stream(ctx, p.access, forkcore.Request{Body: body.Reader, ContentLength: body.Len()}) {
		if err != nil {
			return forkcore.Usage{}, false, p.failure(ctx, err)
		}
		if end, ok := e.(*forkcore.ModelEnd); ok {
			return end.Usage, end.UsageKnown, nil
		}
	}
	return forkcore.Usage{}, false, p.failure(ctx, errors.New("the stream had no end"))
}

// prewarm sends the request with max_tokens 0.
func (p *probe) prewarm(ctx context.Context) (forkcore.Usage, bool, *forkcore.ModelError) {
	params := p.params
	params.MaxTokens = 0
	body, err := p.prefix.Body(p.marks, params, nil)
	if err != nil {
		return forkcore.Usage{}, false, &forkcore.ModelError{Code: forkcore.CodeProviderError, Message: err.Error()}
	}
	start, err := p.access.prewarm(ctx, forkcore.Request{Body: body.Reader, ContentLength: body.Len()})
	var me *forkcore.ModelError
	switch {
	case errors.As(err, &me):
		return forkcore.Usage{}, false, me
	case err != nil:
		return forkcore.Usage{}, false, p.failure(ctx, err)
	}
	return start.Usage, start.UsageKnown, nil
}

// failure is the error of a probe; one that the time ran out for has no other.
func (p *probe) failure(ctx context.Context, err error) *forkcore.ModelError {
	var e *forkcore.ModelError
	switch {
	case errors.As(err, &e):
		return e
	case ctx.Err() != nil:
		return &forkcore.ModelError{Code: forkcore.CodeStreamCut, Retryable: true, Message: "the probe was not answered within " + probeTimeout.String()}
	}
	return &forkcore.ModelError{Code: forkcore.CodeProviderError, Retryable: true, Message: p.access.clean(p.c.connectionMessage(err))}
}
