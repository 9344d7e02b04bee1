package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// Queue tells what waits for a worker and who works, and holds things back.
type Queue interface {
	Queue(ctx context.Context) (forkcore.QueueStatus, error)
	// Pause takes a scope that CheckScope accepts.
	Pause(ctx context.Context, scope string, paused bool) error
	// DrainWorker of an unknown worker is forkcore.ErrNotFound.
	DrainWorker(ctx context.Context, id string, on bool) error
}

// CheckScope refuses what cannot be paused.
func CheckScope(scope string) error {
	kind, id, _ := strings.Cut(scope, ":")
	switch {
	case scope == "all", kind == "pool" && id != "":
		return nil
	case kind == "session":
		if _, err := forkcore.ShardOf(id); err == nil {
			return nil
		}
	}
	return forkcore.Invalid("scope", `must be "all", "pool:" and the id of a pool, or "session:" and the id of a session`)
}

func (a *API) getQueue(c echo.Context) error {
	q, err := a.queue.Queue(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, queueView(q))
}

// queueView leaves no list null.
func queueView(q forkcore.QueueStatus) forkcore.QueueStatus {
	if q.Pools == nil {
		q.Pools = []forkcore.QueuePool{}
	}
	if q.Sessions == nil {
		q.Sessions = []forkcore.QueuedSession{}
	}
	if q.Workers == nil {
		q.Workers = []forkcore.Worker{}
	}
	for i := range q.Workers {
		w := &q.Workers[i]
		if w.Pools == nil {
			w.Pools = []string{}
		}
		if w.Roots == nil {
			w.Roots = []string{}
		}
	}
	return q
}

func (a *API) pauseQueue(c echo.Context) error  { return a.holdQueue(c, true) }
func (a *API) resumeQueue(c echo.Context) error { return a.holdQueue(c, false) }

func (a *API) holdQueue(c echo.Context, paused bool) error {
	var body struct {
		Scope string `json:"scope"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := CheckScope(body.Scope); err != nil {
		return err
	}
	if err := a.queue.Pause(c.Request().Context(), body.Scope, paused); err != nil {
		return err
	}
	return a.acceptedQueue(c)
}

func (a *API) drainWorker(c echo.Context) error   { return a.drain(c, true) }
func (a *API) undrainWorker(c echo.Context) error { return a.drain(c, false) }

func (a *API) drain(c echo.Context, on bool) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	if err := a.queue.DrainWorker(c.Request().Context(), c.Param("id"), on); err != nil {
		return err
	}
	return a.acceptedQueue(c)
}

func (a *API) acceptedQueue(c echo.Context) error {
	q, err := a.queue.Queue(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, queueView(q))
}
