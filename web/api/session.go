package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

const (
	// sessionRuns is how many runs a session shows, listedSessionRuns how many in a list of sessions.
	sessionRuns       = 100
	listedSessionRuns = 20
)

// session is a session in JSON.
type session struct {
	ID                    string                  `json:"id"`
	CreatedAt             *string                 `json:"created_at"`
	UpdatedAt             *string                 `json:"updated_at"`
	Version               int64                   `json:"version"`
	Title                 string                  `json:"title"`
	Workspace             string                  `json:"workspace"`
	Model                 string                  `json:"model"`
	Simulated             bool                    `json:"simulated"`
	Mode                  forkcore.Mode           `json:"mode"`
	PermissionMode        forkcore.PermissionMode `json:"permission_mode"`
	Thinking              json.RawMessage         `json:"thinking"`
	Effort                *string                 `json:"effort"`
	Interactive           bool                    `json:"interactive"`
	AutoBackgroundSeconds float64                 `json:"auto_background_seconds"`
	Notify                forkcore.NotifyPolicy   `json:"notify"`
	BudgetNanoUSD         *int64                  `json:"budget_nanousd"`
	State                 forkcore.State          `json:"state"`
	Reason                *forkcore.Reason        `json:"reason"`
	ActiveRunID           *string                 `json:"active_run_id"`
	Usage                 forkcore.Usage          `json:"usage"`
	CostNanoUSD           *int64                  `json:"cost_nanousd"`
	HitRate               sessionHitRate          `json:"hit_rate"`
	CacheClock            *cacheClock             `json:"cache_clock"`
	Archived              *archived               `json:"archived"`
	// Runs are the newest ones; absent in events.
	Runs *[]run `json:"runs,omitempty"`
}

type sessionHitRate struct {
	Total *float64 `json:"total"`
}

// cacheClock says how long the provider still holds the session's prefix.
type cacheClock struct {
	Prefix      forkcore.Digest `json:"prefix_sha256"`
	Tokens      int64           `json:"tokens"`
	Exact       bool            `json:"exact"`
	TTL         string          `json:"ttl"`
	ExpiresAt   *string         `json:"expires_at"`
	SecondsLeft int64           `json:"seconds_left"`
}

// sessionView shows a session at a moment. runs are its newest runs; nil leaves them out. active is the main turn in progress, nil when unknown
// or idle.
func sessionView(s forkcore.Session, active *forkcore.Run, runs []forkcore.Run, account string, now time.Time, simulated bool) session {
	v := session{
		ID: s.ID, CreatedAt: stamp(s.CreatedAt), UpdatedAt: stamp(s.UpdatedAt), Version: s.Version,
		Title: s.Title, Workspace: s.Workspace, Model: s.Model, Simulated: simulated,
		Mode: s.Mode, PermissionMode: s.PermissionMode,
		Thinking: s.Thinking, Effort: orNull(s.Effort),
		Interactive: s.Interactive, AutoBackgroundSeconds: s.AutoBackground.Seconds(),
		Notify: cmp.Or(s.Notify, forkcore.NotifyAllDone), ActiveRunID: orNull(s.ActiveRunID),
		Usage: s.Usage, CostNanoUSD: s.Cost.Known(),
		Archived: archivedView(s.Archived),
		HitRate:  sessionHitRate{Total: forkcore.Run{Usage: s.Usage}.HitRate().Total},
	}
	v.State, v.Reason = SessionState(s, active)
	if s.BudgetNanoUSD > 0 {
		v.BudgetNanoUSD = &s.BudgetNanoUSD
	}
	if w := s.Warm; w != nil && w.HeldFor(account) {
		v.CacheClock = &cacheClock{
			Prefix: w.Prefix, Tokens: w.Tokens, Exact: w.Exact, TTL: w.TTL, ExpiresAt: stamp(w.ExpiresAt()),
			SecondsLeft: max(0, int64(w.ExpiresAt().Sub(now)/time.Second)),
		}
	}
	if runs != nil {
		views := runViews(runs)
		v.Runs = &views
	}
	return v
}

// SessionState is the state of a session and why: that of the main turn in progress, else whether forks still run, else
// how the last turn ended.
func SessionState(s forkcore.Session, active *forkcore.Run) (forkcore.State, *forkcore.Reason) {
	switch {
	case s.ActiveRunID != "" && active != nil:
		return active.State, active.Reason
	case s.ActiveRunID == "" && s.ActiveRuns > 0:
		return s.State(), &forkcore.Reason{
			Code: "children", Message: "Forks of this session are still at work.", NextStep: "Wait for them, or stop everything.",
		}
	case s.ActiveRunID == "":
		return s.State(), s.LastReason
	}
	return s.State(), nil
}

// readSession adds the runs to a session.
func (a *API) readSession(ctx context.Context, s forkcore.Session, runLimit int) (session, error) {
	runs, _, err := a.reader.RunsOf(ctx, s.ID, "", runLimit)
	if err != nil {
		return session{}, err
	}
	if runs == nil {
		runs = []forkcore.Run{}
	}
	active, err := ActiveRun(ctx, a.reader, s, runs)
	if err != nil {
		return session{}, err
	}
	return sessionView(s, active, runs, a.accountID(), a.now(), a.simulated), nil
}

// ActiveRun finds the main turn in progress, among the runs read already if it is there; nil when the session is idle.
func ActiveRun(ctx context.Context, r RunReader, s forkcore.Session, runs []forkcore.Run) (*forkcore.Run, error) {
	if s.ActiveRunID == "" {
		return nil, nil
	}
	for i := range runs {
		if runs[i].ID == s.ActiveRunID {
			return &runs[i], nil
		}
	}
	active, err := r.Run(ctx, s.ActiveRunID)
	if err != nil {
		return nil, err
	}
	return &active, nil
}

func (a *API) createSession(c echo.Context) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var spec forkcore.SessionSpec
	if err := decode(c, &spec); err != nil {
		return err
	}
	s, created, err := a.runner.CreateSession(c.Request().Context(), spec, key)
	if err != nil {
		return err
	}
	v, err := a.readSession(c.Request().Context(), s, sessionRuns)
	if err != nil {
		return err
	}
	if !created {
		c.Response().Header().Set("Idempotent-Replayed", "true")
	}
	c.Response().Header().Set("Location", "/api/v1/sessions/"+s.ID)
	return c.JSON(http.StatusCreated, v)
}

func (a *API) listSessions(c echo.Context) error {
	cursor, limit, err := page(c)
	if err != nil {
		return err
	}
	sessions, next, err := a.reader.Sessions(c.Request().Context(), cursor, limit)
	if err != nil {
		return err
	}
	items := make([]session, len(sessions))
	for i, s := range sessions {
		if items[i], err = a.readSession(c.Request().Context(), s, listedSessionRuns); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, newList(items, next))
}

func (a *API) getSession(c echo.Context) error {
	s, err := a.reader.Session(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	v, err := a.readSession(c.Request().Context(), s, sessionRuns)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, v)
}

func (a *API) sendMessage(c echo.Context) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var body struct {
		Text string `json:"text"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if strings.TrimSpace(body.Text) == "" {
		return forkcore.Invalid("text", "must not be empty")
	}
	runID, err := a.runner.SendMessage(c.Request().Context(), c.Param("id"), body.Text, key)
	if err != nil {
		return err
	}
	a.messages.Add(1)
	return c.JSON(http.StatusAccepted, struct {
		RunID string `json:"run_id"`
	}{runID})
}

func (a *API) stop(c echo.Context) error {
	var body struct {
		Scope string `json:"scope"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if body.Scope != "turn" && body.Scope != "tree" {
		return forkcore.Invalid("scope", `must be "turn" or "tree"`)
	}
	ids, err := a.runner.Stop(c.Request().Context(), c.Param("id"), body.Scope)
	if err != nil {
		return err
	}
	return acceptedRuns(c, ids)
}

// acceptedRuns answers 202 with the runs that a wish concerns.
func acceptedRuns(c echo.Context, ids []string) error {
	if ids == nil {
		ids = []string{}
	}
	return c.JSON(http.StatusAccepted, struct {
		Runs []string `json:"runs"`
	}{ids})
}

func (a *API) changeSession(c echo.Context) error {
	if err := a.setBudget(c); err != nil {
		return err
	}
	return a.getSession(c)
}
