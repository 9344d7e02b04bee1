package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// run is a run in JSON.
type run struct {
	ID             string           `json:"id"`
	CreatedAt      *string          `json:"created_at"`
	UpdatedAt      *string          `json:"updated_at"`
	Version        int64            `json:"version"`
	SessionID      string           `json:"session_id"`
	AgentID        string           `json:"agent_id"`
	Kind           forkcore.RunKind `json:"kind"`
	Title          string           `json:"title"`
	Directive      *string          `json:"directive"`
	State          forkcore.State   `json:"state"`
	Reason         *forkcore.Reason `json:"reason"`
	ParentRunID    *string          `json:"parent_run_id"`
	Parent         *string          `json:"parent"` // the same id
	Depth          int              `json:"depth"`
	QuerySource    *string          `json:"query_source"`
	DispatchID     *string          `json:"dispatch_id"`
	Dispatch       *string          `json:"dispatch"` // the same id
	ToolUseID      *string          `json:"tool_use_id"`
	Index          int              `json:"index"`
	Snapshot       *string          `json:"snapshot"`
	AgentType      *string          `json:"agent_type"` // of agents that are no forks
	Awaited        bool             `json:"awaited"`
	Background     bool             `json:"background"`
	Leader         bool             `json:"leader"`
	CacheAtRisk    bool             `json:"cache_at_risk"`
	Usage          forkcore.Usage   `json:"usage"`
	CostNanoUSD    *int64           `json:"cost_nanousd"`
	HitRate        hitRate          `json:"hit_rate"`
	Requests       int64            `json:"requests"`
	ToolUses       int64            `json:"tool_uses"`
	UsedNoTool     bool             `json:"used_no_tool"`
	LastTool       *string          `json:"last_tool"`
	LastToolDetail *string          `json:"last_tool_detail"`
	StartedAt      *string          `json:"started_at"`
	EndedAt        *string          `json:"ended_at"`
	ResumedAt      *string          `json:"resumed_at"`
	Report         *forkcore.Report `json:"report"`
}

// hitRate holds fractions from 0 to 1, null where there is nothing to divide by.
type hitRate struct {
	Total     *float64 `json:"total"`
	Inherited *float64 `json:"inherited"`
	Own       *float64 `json:"own"`
}

func runView(r forkcore.Run) run {
	h := r.HitRate()
	return run{
		ID: r.ID, CreatedAt: stamp(r.CreatedAt), UpdatedAt: stamp(r.UpdatedAt), Version: r.Version,
		SessionID: r.SessionID, AgentID: r.AgentID, Kind: r.Kind, Title: r.Title, Directive: orNull(r.Directive),
		State: r.State, Reason: r.Reason,
		ParentRunID: orNull(r.ParentRunID), Parent: orNull(r.ParentRunID),
		Depth: r.Depth, QuerySource: orNull(r.QuerySource), UsedNoTool: r.UsedNoTool(),
		DispatchID: orNull(r.DispatchID), Dispatch: orNull(r.DispatchID),
		ToolUseID: orNull(r.ToolUseID), Index: r.Index, Snapshot: digestOrNull(r.Snapshot),
		AgentType: orNull(r.AgentType), Awaited: r.Awaited, Background: r.Background, Leader: r.Leader, CacheAtRisk: r.AtRiskRequests > 0,
		Usage: r.Usage, CostNanoUSD: r.Cost.Known(), HitRate: hitRate{h.Total, h.Inherited, h.Own},
		Requests: r.Requests, ToolUses: r.ToolUses, LastTool: orNull(r.LastTool), LastToolDetail: orNull(r.LastToolDetail),
		StartedAt: stamp(r.StartedAt), EndedAt: stamp(r.EndedAt), ResumedAt: stamp(r.ResumedAt), Report: r.Report,
	}
}

func runViews(runs []forkcore.Run) []run {
	views := make([]run, len(runs))
	for i, r := range runs {
		views[i] = runView(r)
	}
	return views
}

func digestOrNull(d forkcore.Digest) *string {
	if d.IsZero() {
		return nil
	}
	s := d.String()
	return &s
}

func (a *API) getRun(c echo.Context) error {
	r, err := a.reader.Run(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, runView(r))
}

func (a *API) cancel(c echo.Context) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	if err := a.runner.Cancel(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return a.acceptedRun(c)
}

func (a *API) background(c echo.Context) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	if err := a.runner.Background(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return a.acceptedRun(c)
}

func (a *API) resume(c echo.Context) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	id, err := a.runner.Resume(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	r, err := a.reader.Run(ctx, id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, runView(r))
}

// acceptedRun answers 202 with the run as it is now; the wish may take effect later.
func (a *API) acceptedRun(c echo.Context) error {
	r, err := a.reader.Run(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, runView(r))
}
