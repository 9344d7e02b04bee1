package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
)

const (
	// checkTimeout is how long a check of the endpoint may take.
	checkTimeout = 10 * time.Second
	// checkPage is how many models are asked for: all, with any endpoint there is.
	checkPage = 1000
)

// CheckKey is Check with another key than the one in use; nothing is changed. Beside the error of ctx it returns one for
// a key that cannot be one.
func (c *Client) CheckKey(ctx context.Context, key, model string, probe bool) (forkcore.ProviderCheck, error) {
	key = strings.TrimSpace(key)
	if err := checkKey(key); err != nil {
		return forkcore.ProviderCheck{}, err
	}
	return c.check(ctx, c.newAccess(key, c.access.Load()), model, probe)
}

// Check asks the endpoint for its models, which tells whether it takes the key and spends no tokens, and whether model
// is one of them. It ends within ten seconds. The error is that of ctx; whatever the endpoint does is an outcome.
// Source: https://platform.claude.com/docs/en/api/models-list
func (c *Client) Check(ctx context.Context, model string, probe bool) (forkcore.ProviderCheck, error) {
	return c.check(ctx, c.access.Load(), model, probe)
}

func (c *Client) check(ctx context.Context, a *access, model string, _ bool) (forkcore.ProviderCheck, error) {
	reqCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var res *http.Response
	page, err := a.sdk.Models.List(reqCtx, sdk.ModelListParams{Limit: sdk.Int(checkPage)}, readJSON(&res)...)
	if err == nil && len(page.Data) == 0 {
		err = errors.New("the list of models is empty")
	}
	if ctx.Err() != nil {
		return forkcore.ProviderCheck{}, context.Cause(ctx)
	}
	if err != nil {
		return c.checkFailure(reqCtx, a, res, err), nil
	}
	check := forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Models: len(page.Data), More: page.HasMore, Limits: limitsOf(res.Header)}
	for _, m := range page.Data {
		check.Offered = check.Offered || m.ID == model
	}
	if !check.Offered && model != "" {
		// An alias, a dated name, or one on a further page.
		m, err := a.sdk.Models.Get(reqCtx, model, sdk.ModelGetParams{}, readJSON(&res)...)
		if ctx.Err() != nil {
			return forkcore.ProviderCheck{}, context.Cause(ctx)
		}
		check.Offered = err == nil && m.ID != ""
	}
	return check, nil
}

// readJSON are the options of a request whose answer the SDK reads. The response goes to res, whatever comes of it.
func readJSON(res **http.Response) []option.RequestOption {
	return []option.RequestOption{
		option.WithHeader("Accept", "application/json"),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			got, err := next(req)
			if err == nil {
				got.Body = limitedBody{io.LimitReader(got.Body, maxErrorBytes), got.Body}
				*res = got
			}
			return got, err
		}),
	}
}

func (c *Client) checkFailure(ctx context.Context, a *access, res *http.Response, err error) forkcore.ProviderCheck {
	var check forkcore.ProviderCheck
	switch {
	case ctx.Err() != nil:
		check.Outcome, check.Detail = forkcore.ProviderUnreachable, fmt.Sprintf("no answer from %s within %s", c.baseURL, checkTimeout)
	case res == nil:
		check.Outcome, check.Detail = forkcore.ProviderUnreachable, c.connectionMessage(err)
	default:
		check.Limits = limitsOf(res.Header)
		check.Outcome, check.Detail = outcomeOf(res.StatusCode), fmt.Sprintf("%s answered with status %d", c.baseURL, res.StatusCode)
		var api *sdk.Error
		switch {
		case errors.As(err, &api) && api.Message != "":
			check.Detail += ": " + api.Message
		case res.StatusCode < http.StatusBadRequest && res.StatusCode != http.StatusOK:
			if to := res.Header.Get("Location"); to != "" {
				check.Detail += ", it redirects to " + to
			}
		case check.Outcome == forkcore.ProviderForeign:
			check.Detail += " and no list of models (" + cmp.Or(res.Header.Get("Content-Type"), "no content type") + ")"
		}
	}
	check.Detail = forkcore.CutText(strings.TrimSpace(a.clean(check.Detail)), 500)
	return check
}

// outcomeOf says what a status without a list means.
func outcomeOf(status int) forkcore.ProviderOutcome {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusPaymentRequired:
		return forkcore.ProviderRefused
	case status == http.StatusTooManyRequests:
		return forkcore.ProviderLimited
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusBadRequest:
		return forkcore.ProviderFailing
	}
	return forkcore.ProviderForeign
}
