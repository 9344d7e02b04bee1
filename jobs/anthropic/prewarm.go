package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
)

var _ forkcore.Prewarmer = (*Client)(nil)

// Prewarm implements forkcore.Prewarmer.
func (c *Client) Prewarm(ctx context.Context, r forkcore.Request) (*forkcore.ModelStart, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.total, errTotal)
	defer cancel()
	start, err := c.access.Load().prewarm(ctx, r)
	if err == nil {
		return start, nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errTotal) {
		return nil, fmt.Errorf("pre-warm: %w", cause)
	}
	var me *forkcore.ModelError
	if errors.As(err, &me) {
		return nil, me
	}
	return nil, &forkcore.ModelError{Code: forkcore.CodeProviderError, Message: c.access.Load().clean(err.Error()), Retryable: true}
}

// prewarm sends a request whose answer is no stream and has no content. Source: Messages API, prompt caching, pre-warming.
func (a *access) prewarm(ctx context.Context, r forkcore.Request) (*forkcore.ModelStart, error) {
	post := option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		req.Body, req.ContentLength = io.NopCloser(r.Body()), r.ContentLength
		if len(r.Betas) > 0 {
			req.Header.Set("anthropic-beta", strings.Join(r.Betas, ","))
		}
		return next(req)
	})
	res, err := a.read(ctx, http.MethodPost, "v1/messages", post)
	switch {
	case err != nil:
		return nil, err
	case res.status != http.StatusOK:
		e := parseProviderError(res.header.Get("Content-Type"), res.body)
		out := &forkcore.ModelError{
			Status: res.status, Type: e.kind, ProviderRequestID: res.header.Get("request-id"),
			RetryAfter: retryAfter(res.header), Limits: limitsOf(res.header),
		}
		v := classify(res.status, e)
		v.apply(out)
		out.Message = a.clean(e.message + v.hint)
		return nil, out
	case !validJSON(res.body):
		return nil, &forkcore.ModelError{Code: forkcore.CodeInvalidResponse, Status: res.status, Message: "the answer to the pre-warm request is no JSON"}
	}
	var usage tokenCount
	usage.update(member(res.body, "usage"))
	return &forkcore.ModelStart{
		Usage: usage.usage(), UsageKnown: usage.known(), ProviderRequestID: res.header.Get("request-id"), MessageID: decodeString(member(res.body, "id")),
		Workspace: res.header.Get("anthropic-workspace-id"), Limits: limitsOf(res.header),
	}, nil
}
