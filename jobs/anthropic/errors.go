package anthropic

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"forkyard/forkcore"
)

var (
	errIdle       = errors.New("no byte moved within the idle timeout")
	errTotal      = errors.New("the total timeout of one request passed")
	errNoBody     = errors.New("the request has no body")
	errBodyLength = errors.New("the request body is not as long as its ContentLength says")
)

const (
	// statusOverloaded is the API's own status for overloaded_error.
	statusOverloaded = 529
	// maxMessageBytes bounds the provider's text in an error, which is stored and shown.
	maxMessageBytes = 2000
	// maxRetryAfter bounds a wish that can only be a mistake.
	maxRetryAfter = 24 * time.Hour
)

// cutError is a stream that ended before the answer did.
type cutError struct{ msg string }

func (e cutError) Error() string { return e.msg }

// eventError is an error event of a stream, or the same object as the body of a 200.
type eventError struct{ data []byte }

func (e eventError) Error() string { return "error event: " + string(e.data) }

// statusError is a response that is no stream.
type statusError struct{ msg string }

func (e statusError) Error() string { return e.msg }

// checkResponse says whether the body of a response below 400 is a stream.
func (c *Client) checkResponse(res *http.Response) error {
	if res.StatusCode != http.StatusOK {
		msg := fmt.Sprintf("%s answered with status %d instead of a stream; check ANTHROPIC_BASE_URL", c.baseURL, res.StatusCode)
		if to := res.Header.Get("Location"); to != "" {
			msg += ", it redirects to " + to
		}
		return statusError{msg}
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == "text/event-stream" || kind == "" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if validJSON(body) && (member(body, "error") != nil || member(body, "detail") != nil) {
		return eventError{body}
	}
	return statusError{fmt.Sprintf("%s answered with %s instead of text/event-stream; check that ANTHROPIC_BASE_URL points to a Messages API", c.baseURL, kind)}
}

// requestError turns a failure before the stream into the caller's error.
func (c *Client) requestError(ctx, reqCtx context.Context, a *access, r forkcore.Request, res *http.Response, err error) error {
	if e := c.ended(ctx, reqCtx); e != nil {
		return e
	}
	var event eventError
	var status statusError
	e := &forkcore.ModelError{}
	switch {
	case errors.As(err, &event):
		return c.streamError(ctx, reqCtx, a, res.Header, err)
	case errors.As(err, &status):
		e.Code, e.Message = forkcore.CodeProviderError, status.msg
	case errors.Is(err, errNoBody):
		e.Code, e.Message = forkcore.CodeProviderError, errNoBody.Error()
	case errors.Is(err, errBodyLength):
		e.Code, e.Message = forkcore.CodeProviderError, errBodyLength.Error()
	case res != nil && res.StatusCode >= 400:
		c.fromResponse(e, r, res, err)
	default:
		e.Code, e.Retryable = forkcore.CodeProviderError, true
		e.Message = c.connectionMessage(err)
		var dial *net.OpError
		e.Unsent = errors.As(err, &dial) && dial.Op == "dial"
	}
	if res != nil {
		e.Status = res.StatusCode
		e.ProviderRequestID = res.Header.Get("request-id")
		e.Limits = limitsOf(res.Header)
	}
	e.Message = a.clean(e.Message)
	return e
}

// streamError turns a failure inside the stream into the caller's error.
func (c *Client) streamError(ctx, reqCtx context.Context, a *access, h http.Header, err error) error {
	if e := c.ended(ctx, reqCtx); e != nil {
		return e
	}
	e := &forkcore.ModelError{
		Status: http.StatusOK, ProviderRequestID: h.Get("request-id"), Limits: limitsOf(h),
		Code: forkcore.CodeStreamCut, Retryable: true,
	}
	var event eventError
	var invalid invalidError
	var rebuild rebuildError
	var cut cutError
	switch {
	case errors.As(err, &event):
		p := parseProviderError("", event.data)
		v := classify(p.statusIn(), p)
		v.apply(e)
		e.Type, e.Message = p.kind, advise(p.message, v.hint)
	case errors.As(err, &rebuild):
		// The same answer would fail again.
		e.Code, e.Message, e.Retryable = forkcore.CodeInvalidResponse, err.Error(), false
	case errors.As(err, &invalid), errors.Is(err, errEventTooLong):
		e.Code, e.Message = forkcore.CodeInvalidResponse, err.Error()
	case errors.As(err, &cut):
		e.Message = "the stream ended before the answer was complete: " + err.Error()
	case errors.Is(err, io.EOF):
		e.Message = "the stream ended before the answer was complete: no message_stop"
	default:
		e.Message = "the stream broke before the answer was complete: " + transportText(err)
	}
	e.Message = a.clean(e.Message)
	return e
}

// ended returns the error of a request that was ended from this side, or nil.
func (c *Client) ended(ctx, reqCtx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch cause := context.Cause(reqCtx); {
	case errors.Is(cause, errIdle):
		return &forkcore.ModelError{
			Code: forkcore.CodeStreamCut, Retryable: true,
			Message: fmt.Sprintf("%s sent nothing, not even a ping, for %s", c.baseURL, c.idle),
		}
	case errors.Is(cause, errTotal):
		// Not retryable: an answer that takes longer than this would do so again.
		return &forkcore.ModelError{
			Code:    forkcore.CodeStreamCut,
			Message: fmt.Sprintf("the answer was not complete after %s, the limit for one request", c.total),
		}
	}
	return nil
}

// fromResponse fills e from an HTTP error.
func (c *Client) fromResponse(e *forkcore.ModelError, r forkcore.Request, res *http.Response, err error) {
	var p providerError
	var api *sdk.Error
	if errors.As(err, &api) {
		p = parseProviderError(res.Header.Get("Content-Type"), []byte(api.RawJSON()))
	}
	e.Type, e.Message = p.kind, cmp.Or(p.message, http.StatusText(res.StatusCode), "no text")
	v := classify(res.StatusCode, p)
	v.apply(e)
	e.Message = forkcore.CutText(e.Message, maxMessageBytes/2)
	if p.kind == "" { // not the API's own words, so that it matters who says them
		e.Message = fmt.Sprintf("%s answered with status %d: %s", c.baseURL, res.StatusCode, e.Message)
	}
	if p.page && v.hint == "" {
		v.hint = "that is a web page: check that ANTHROPIC_BASE_URL points to a Messages API, and any proxy between"
	}
	if res.StatusCode == http.StatusNotFound {
		v.hint = fmt.Sprintf("check that %s/v1/messages exists and offers the model %q", c.baseURL, modelOf(r))
	}
	e.Message = advise(e.Message, v.hint)
	switch res.Header.Get("x-should-retry") {
	case "true":
		e.Retryable = true
	case "false":
		e.Retryable = false
	}
	e.RetryAfter = retryAfter(res.Header)
}

// modelOf reads the model from the head of the body; "" when it is not near the front.
func modelOf(r forkcore.Request) string {
	dec := json.NewDecoder(io.LimitReader(r.Body(), 4096))
	for {
		tok, err := dec.Token()
		if err != nil {
			return ""
		}
		if tok == "model" {
			tok, _ = dec.Token()
			s, _ := tok.(string)
			return s
		}
	}
}

// verdict is what an error means to the caller.
type verdict struct {
	code       string
	retryable  bool
	keyRefused bool
	ramp       bool
	hint       string // what to check
}

// advise adds to what the provider says what to do about it.
func advise(message, hint string) string {
	if hint == "" {
		return message
	}
	return strings.TrimRight(message, ". ") + "; " + hint
}

func (v verdict) apply(e *forkcore.ModelError) {
	e.Code, e.Retryable, e.KeyRefused, e.Ramp = v.code, v.retryable, v.keyRefused, v.ramp
}

// classify maps an API error. Sources: https://platform.claude.com/docs/en/api/errors
// and the error codes of the official SDK.
func classify(status int, p providerError) verdict {
	const billing = "check the billing of the account that owns the API key"
	switch {
	case strings.HasSuffix(p.code, "spend_limit_reached"):
		// enforced_ and contract_spend_limit_reached come as a 429 that no waiting cures.
		return verdict{code: forkcore.CodeProviderAuth, keyRefused: true, hint: "raise the spend limit of the account that owns the API key"}
	case status == http.StatusUnauthorized:
		return verdict{code: forkcore.CodeProviderAuth, keyRefused: true, hint: "check the API key"}
	case status == http.StatusForbidden:
		// Of one model or one feature: others may go on with this key.
		return verdict{code: forkcore.CodeProviderAuth, hint: "check the API key"}
	case status == http.StatusPaymentRequired, isOutOfCredit(status, p.message), p.keyIsSpent():
		return verdict{code: forkcore.CodeProviderAuth, keyRefused: true, hint: billing}
	case status == http.StatusTooManyRequests:
		return verdict{code: forkcore.CodeRateLimited, retryable: true, ramp: p.code == "ramp_limit_exceeded"}
	case status == statusOverloaded, status == http.StatusServiceUnavailable:
		return verdict{code: forkcore.CodeOverloaded, retryable: true}
	case status == http.StatusRequestEntityTooLarge, isTooLong(p.kind, p.message):
		return verdict{code: forkcore.CodeContextWindow}
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusConflict:
		return verdict{code: forkcore.CodeProviderError, retryable: true}
	}
	return verdict{code: forkcore.CodeProviderError}
}

// isOutOfCredit recognises an account that can pay for nothing. The API reports it as a plain
// invalid_request_error without a code, and its words are not promised, so that only the stable part of each is
// looked for. Sources, all of them the API's own answers as users reported them: "Your credit balance is too low to
// access the Anthropic API. …" (github.com/anthropics/claude-code/issues/88711, August 2026), "You have reached your
// specified API usage limits. You will regain access on …" (issues/38035, March 2026).
func isOutOfCredit(status int, message string) bool {
	if status != http.StatusBadRequest && status != http.StatusForbidden {
		return false
	}
	m := strings.ToLower(message)
	return strings.Contains(m, "credit balance is too low") || strings.Contains(m, "reached your specified api usage limits")
}

// isTooLong recognises a prompt over the context window. The API has no code for
// it, only a message; the others are compatible servers.
func isTooLong(kind, message string) bool {
	if kind == "exceed_context_size_error" { // llama.cpp
		return true
	}
	m := strings.ToLower(message)
	return strings.Contains(m, "prompt is too long") || // Anthropic
		strings.Contains(m, "maximum context length") || // vLLM, SGLang
		strings.Contains(m, "exceeds the available context size") // llama.cpp
}

// statusOf gives the HTTP status that belongs to an error type. An unknown type
// inside a stream counts as a server error.
func statusOf(kind string) int {
	switch kind {
	case "invalid_request_error":
		return http.StatusBadRequest
	case "authentication_error":
		return http.StatusUnauthorized
	case "billing_error":
		return http.StatusPaymentRequired
	case "permission_error":
		return http.StatusForbidden
	case "not_found_error":
		return http.StatusNotFound
	case "conflict_error":
		return http.StatusConflict
	case "request_too_large":
		return http.StatusRequestEntityTooLarge
	case "rate_limit_error":
		return http.StatusTooManyRequests
	case "timeout_error":
		return http.StatusGatewayTimeout
	case "overloaded_error":
		return statusOverloaded
	}
	return http.StatusInternalServerError
}

// retryAfter reads retry-after-ms, then retry-after: seconds or an HTTP date.
func retryAfter(h http.Header) time.Duration {
	var d time.Duration
	if ms, err := strconv.ParseFloat(h.Get("retry-after-ms"), 64); err == nil {
		d = seconds(ms / 1000)
	} else if s, err := strconv.ParseFloat(h.Get("retry-after"), 64); err == nil {
		d = seconds(s)
	} else if t, err := http.ParseTime(h.Get("retry-after")); err == nil {
		d = time.Until(t)
	}
	return min(max(d, 0), maxRetryAfter)
}

func seconds(s float64) time.Duration {
	if s != s || s < 0 { // NaN
		return 0
	}
	return time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
}

// connectionMessage says what went wrong between here and the base URL, and what to look at.
func (c *Client) connectionMessage(err error) string {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var unknownCA x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	hint := "check ANTHROPIC_BASE_URL and the network"
	switch {
	case errors.As(err, &dns):
		hint = "check the host name in ANTHROPIC_BASE_URL and name resolution"
	case errors.As(err, &cert), errors.As(err, &unknownCA), errors.As(err, &record):
		hint = "check that ANTHROPIC_BASE_URL wants https, the server's certificate and this machine's clock"
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "check that a server listens there and that ANTHROPIC_BASE_URL has the right port"
	}
	return fmt.Sprintf("no answer from %s: %s; %s", c.baseURL, transportText(err), hint)
}

// transportText is the text of a transport error without the method and URL around it.
func transportText(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}
