package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// request is a ledger row in JSON.
type request struct {
	RunID          string                 `json:"run_id"`
	N              int64                  `json:"n"`
	StartedAt      *string                `json:"started_at"`
	FirstEventAt   *string                `json:"first_event_at"`
	EndedAt        *string                `json:"ended_at"`
	Attempt        int                    `json:"attempt"`
	Model          string                 `json:"model"`
	Prefix         forkcore.Digest        `json:"prefix_sha256"`
	PrefixBytes    int64                  `json:"prefix_bytes"`
	Body           forkcore.Digest        `json:"body_sha256"`
	BodyBytes      int64                  `json:"body_bytes"`
	Marks          []mark                 `json:"marks"`
	CacheAtRisk    bool                   `json:"cache_at_risk"`
	Refresh        bool                   `json:"refresh"`
	ExpectedRead   *int64                 `json:"expected_read_tokens"`
	ExpectedExact  bool                   `json:"expected_read_exact"`
	Usage          *forkcore.Usage        `json:"usage"`
	UsageEstimated bool                   `json:"usage_estimated"`
	CostNanoUSD    *int64                 `json:"cost_nanousd"`
	ReadFrom       *forkcore.RequestRef   `json:"read_from"`
	MissReason     *forkcore.MissReason   `json:"miss_reason"`
	StopReason     *string                `json:"stop_reason"`
	Status         forkcore.RequestStatus `json:"status"`
	Error          *string                `json:"error"`
	RateLimits     []rateLimit            `json:"rate_limits"`
	StopDetails    *forkcore.StopDetails  `json:"stop_details"`
}

// mark is a cache_control mark: the path of its block and its TTL, "5m" or "1h".
type mark struct {
	Block string `json:"block"`
	TTL   string `json:"ttl"`
}

func requestView(r forkcore.RequestRow) request {
	v := request{
		RunID: r.RunID, N: r.N, StartedAt: stamp(r.StartedAt), FirstEventAt: stampOf(r.FirstEventAt), EndedAt: stampOf(r.EndedAt),
		Attempt: r.Attempt, Model: r.Model, Prefix: r.Prefix, PrefixBytes: r.PrefixBytes, Body: r.Body, BodyBytes: r.BodyBytes,
		Marks: make([]mark, len(r.Marks)), CacheAtRisk: r.AtRisk, Refresh: r.Refresh, ExpectedRead: r.ExpectedRead, ExpectedExact: r.ExpectedExact, Usage: r.Usage, UsageEstimated: r.Estimated, CostNanoUSD: r.Cost,
		ReadFrom: r.ReadFrom, MissReason: r.Miss, StopReason: orNull(r.StopReason), Status: r.Status, Error: orNull(r.Error),
		RateLimits: rateLimits(r.Limits), StopDetails: r.StopDetails,
	}
	for i, m := range r.Marks {
		v.Marks[i] = mark{Block: m.Block, TTL: m.TTL}
	}
	return v
}

// requestNumber reads :n; what is no number from 1 names nothing.
func requestNumber(c echo.Context) (int64, error) {
	n, err := strconv.ParseInt(c.Param("n"), 10, 64)
	if err != nil || n < 1 {
		return 0, forkcore.ErrNotFound
	}
	return n, nil
}

func (a *API) listRequests(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	var after int64
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil {
			return forkcore.Invalid("cursor", "must be a next_cursor of this list")
		}
	}
	rows, err := a.requestsOf(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	items, next := []request{}, ""
	for _, r := range rows {
		if r.N <= after {
			continue
		}
		if len(items) == limit {
			next = strconv.FormatInt(items[limit-1].N, 10)
			break
		}
		items = append(items, requestView(r))
	}
	return c.JSON(http.StatusOK, newList(items, next))
}

// requestsOf makes sure that an unknown run is not found, rather than a run without requests.
func (a *API) requestsOf(ctx context.Context, runID string) ([]forkcore.RequestRow, error) {
	if _, err := a.reader.Run(ctx, runID); err != nil {
		return nil, err
	}
	return a.reader.Requests(ctx, runID)
}

func (a *API) getRequest(c echo.Context) error {
	n, err := requestNumber(c)
	if err != nil {
		return err
	}
	rows, err := a.requestsOf(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.N == n {
			return c.JSON(http.StatusOK, requestView(r))
		}
	}
	return forkcore.ErrNotFound
}

func (a *API) requestBody(c echo.Context) error {
	n, err := requestNumber(c)
	if err != nil {
		return err
	}
	body, err := a.bytes.RequestBody(c.Request().Context(), c.Param("id"), n)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", body)
}
