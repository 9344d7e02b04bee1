package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
)

const (
	// checkTimeout is how long the questions for models may take, probeTimeout the whole check with a probe.
	checkTimeout = 10 * time.Second
	probeTimeout = 60 * time.Second
	// checkPage is how many models are asked for: all, with any endpoint there is.
	checkPage = "1000"
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
// is one of them. That ends within ten seconds. With probe it then measures with two small requests whether the
// endpoint keeps a prefix; they cost tokens, and all ends within a minute. An endpoint that lists no models, as some
// gateways, is judged by the probe alone. The error is that of ctx; whatever the endpoint does is an outcome.
// Source: https://platform.claude.com/docs/en/api/models-list
func (c *Client) Check(ctx context.Context, model string, probe bool) (forkcore.ProviderCheck, error) {
	return c.check(ctx, c.access.Load(), model, probe)
}

func (c *Client) check(ctx context.Context, a *access, model string, probe bool) (forkcore.ProviderCheck, error) {
	limited, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	check := c.checkModels(limited, a, model)
	check.Endpoint = c.Traits().Name
	if probe && model != "" && (check.Outcome == forkcore.ProviderOK || check.Outcome == forkcore.ProviderForeign) && limited.Err() == nil {
		check.Probe = c.probeCache(limited, a, model)
		judge(&check)
	}
	if ctx.Err() != nil {
		return forkcore.ProviderCheck{}, context.Cause(ctx)
	}
	return check, nil
}

// judge lets a probe correct what the list of models said: a key may be valid and its credit used up, and an endpoint
// may take messages and have no list.
func judge(check *forkcore.ProviderCheck) {
	e := check.Probe.Err
	listed := check.Outcome == forkcore.ProviderOK
	if e != nil && e.Limits != nil {
		check.Limits = e.Limits
	}
	switch {
	case e == nil && !listed:
		check.Outcome, check.Offered, check.Detail = forkcore.ProviderOK, true, ""
	case e == nil:
	case e.KeyRefused:
		check.Outcome, check.Offered, check.Detail = forkcore.ProviderRefused, false, e.Message
	case listed:
		// The list answered; what is wrong with the probe stands beside it.
	case e.Code == forkcore.CodeProviderAuth:
		check.Outcome, check.Detail = forkcore.ProviderRefused, e.Message
	case e.Code == forkcore.CodeRateLimited:
		check.Outcome, check.Detail = forkcore.ProviderLimited, e.Message
	case e.Status >= http.StatusInternalServerError, e.Code == forkcore.CodeOverloaded:
		check.Outcome, check.Detail = forkcore.ProviderFailing, e.Message
	case e.Status == 0:
		check.Outcome, check.Detail = forkcore.ProviderUnreachable, e.Message
	}
	check.Detail = forkcore.CutText(check.Detail, maxDetail)
}

const maxDetail = 500

// checkModels asks for the list of models.
func (c *Client) checkModels(ctx context.Context, a *access, model string) forkcore.ProviderCheck {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	path := "v1/models?limit=" + checkPage
	if c.endpoint.ModelsShape == "ollama" {
		path = "api/tags"
	}
	res, err := a.get(ctx, path)
	var list modelList
	if err == nil {
		list = parseModels(res.body)
	}
	if c.endpoint.Kind == endpointCompatible && err == nil && res.status == http.StatusNotFound {
		// Ollama behind another port: versions before its OpenAI form have this list alone.
		if tags, err := a.get(ctx, "api/tags"); err == nil && tags.status == http.StatusOK {
			if l := parseModels(tags.body); len(l.ids) > 0 {
				res, list = tags, l
			}
		}
	}
	var check forkcore.ProviderCheck
	if err == nil {
		check.Limits = limitsOf(res.header)
		if like := looksLike(res.header, list); like != nil && like.Kind != c.endpoint.Kind && !c.simulated {
			check.LooksLike = like.Name
		}
	}
	if err != nil || res.status != http.StatusOK || len(list.ids) == 0 {
		c.checkFailure(ctx, a, &check, res, err)
		return check
	}
	check.Outcome, check.Models, check.More = forkcore.ProviderOK, len(list.ids), list.more
	for _, id := range list.ids {
		check.Offered = check.Offered || id == model || list.shape == "ollama" && id == model+":latest"
	}
	if !check.Offered && model != "" && c.endpoint.ModelsShape != "ollama" {
		// An alias, a dated name, or one on a further page.
		res, err := a.get(ctx, "v1/models/"+url.PathEscape(model))
		check.Offered = err == nil && res.status == http.StatusOK && validJSON(res.body) && decodeString(member(res.body, "id")) != ""
	}
	return check
}

// reply is an answer that was read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// get asks for path and reads the answer, whatever its status. The reply is nil when none came.
func (a *access) get(ctx context.Context, path string) (*reply, error) {
	return a.read(ctx, http.MethodGet, path)
}

// read makes a request whose answer is one JSON value. Its body is read up to maxErrorBytes.
func (a *access) read(ctx context.Context, method, path string, opts ...option.RequestOption) (*reply, error) {
	var out *reply
	opts = append(opts, option.WithHeader("Accept", "application/json"),
		option.WithMiddleware(func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			got, err := next(req)
			if err == nil {
				got.Body = limitedBody{io.LimitReader(got.Body, maxErrorBytes), got.Body}
				out = &reply{status: got.StatusCode, header: got.Header}
			}
			return got, err
		}))
	var res *http.Response
	err := a.sdk.Execute(ctx, method, path, nil, &res, opts...)
	var api *sdk.Error
	switch {
	case errors.As(err, &api) && out != nil:
		out.body = []byte(api.RawJSON())
		return out, nil
	case err != nil || res == nil || out == nil:
		return out, cmp.Or(err, errors.New("no response"))
	}
	defer res.Body.Close()
	out.body, err = io.ReadAll(res.Body)
	return out, err
}

// modelList is what an answer to the question for models has.
type modelList struct {
	ids             []string
	more            bool
	shape           string // "anthropic", "openai" or "ollama"; "" = no list
	ownedBy, fields []string
}

// parseModels reads a list of models in any of its forms: {"data":[{"id","type":"model"}],"has_more"},
// {"object":"list","data":[{"id","owned_by"}]} or Ollama's {"models":[{"name"}]}. llama.cpp has both of the last.
func parseModels(body []byte) modelList {
	var l modelList
	if !validJSON(body) {
		return l
	}
	add := func(rows []byte, key string) {
		for row := range elements(rows) {
			id := decodeString(member(row, key))
			if id == "" {
				continue
			}
			l.ids = append(l.ids, id)
			if o := decodeString(member(row, "owned_by")); o != "" && len(l.ownedBy) < 100 {
				l.ownedBy = append(l.ownedBy, o)
			}
			if len(l.ids) == 1 {
				for field := range members(row) {
					l.fields = append(l.fields, field)
				}
				if decodeString(member(row, "type")) == "model" && member(body, "has_more") != nil {
					l.shape = "anthropic"
				}
			}
		}
	}
	if add(member(body, "data"), "id"); len(l.ids) > 0 {
		l.more = string(member(body, "has_more")) == "true"
		l.shape = cmp.Or(l.shape, "openai")
		return l
	}
	if add(member(body, "models"), "name"); len(l.ids) > 0 {
		l.shape = "ollama"
	}
	return l
}

func (c *Client) checkFailure(ctx context.Context, a *access, check *forkcore.ProviderCheck, res *reply, err error) {
	switch {
	case ctx.Err() != nil:
		check.Outcome, check.Detail = forkcore.ProviderUnreachable, fmt.Sprintf("no answer from %s within %s", c.baseURL, checkTimeout)
	case res == nil:
		check.Outcome, check.Detail = forkcore.ProviderUnreachable, c.connectionMessage(err)
	default:
		p := parseProviderError(res.header.Get("Content-Type"), res.body)
		check.Outcome, check.Detail = outcomeOf(res.status, p), fmt.Sprintf("%s answered with status %d", c.baseURL, res.status)
		switch {
		case res.status >= http.StatusBadRequest && p.message != "" && (res.status != http.StatusNotFound || validJSON(res.body)):
			check.Detail += ": " + p.message
		case res.status < http.StatusBadRequest && res.status != http.StatusOK:
			if to := res.header.Get("Location"); to != "" {
				check.Detail += ", it redirects to " + to
			}
		case check.Outcome == forkcore.ProviderForeign:
			check.Detail += " and no list of models (" + cmp.Or(res.header.Get("Content-Type"), "no content type") + ")"
		}
	}
	check.Detail = forkcore.CutText(strings.TrimSpace(a.clean(check.Detail)), maxDetail)
}

// outcomeOf says what a status without a list means.
func outcomeOf(status int, p providerError) forkcore.ProviderOutcome {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status >= http.StatusBadRequest && classify(status, p).keyRefused:
		return forkcore.ProviderRefused
	case status == http.StatusTooManyRequests:
		return forkcore.ProviderLimited
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusBadRequest:
		return forkcore.ProviderFailing
	}
	return forkcore.ProviderForeign
}
