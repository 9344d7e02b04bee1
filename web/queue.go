package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// queueKept is for how long an answer about the queue serves pages that only mention it.
const queueKept = 2 * time.Second

// queueWatch keeps the latest answer about the queue.
type queueWatch struct {
	mu    sync.Mutex
	at    time.Time
	known forkcore.QueueStatus
}

// unserved reports whether no worker is there for runs of a root. What is not known is not said.
func (s *Server) unserved(root string) bool {
	if s.o.Queue == nil || root == "" {
		return false
	}
	w := &s.queueWatch
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := s.o.Now(); w.at.IsZero() || now.Sub(w.at) >= queueKept {
		ctx, cancel := context.WithTimeout(context.Background(), bannerPatience)
		defer cancel()
		if known, err := s.o.Queue.Queue(ctx); err == nil {
			w.known = known
		}
		w.at = now
	}
	return w.known.Unserved(root)
}

// queueView is the page of the queue.
type queueView struct {
	Paused   *time.Time // since when nothing starts; nil: it does
	Pools    []queuePoolRow
	Sessions []queueSessionRow
	Workers  []workerRow
	Waiting  int64
}

type queuePoolRow struct {
	Name, Scope        string
	Interactive, Batch string
	Workers            string
	Paused, Unserved   bool
}

type queueSessionRow struct {
	Title, Path, Scope, Ready string
	Paused                    bool
}

type workerRow struct {
	ID, Place, Load, Roots, Version, Path string
	Busy, Slots                           int
	Started, Seen                         time.Time
	Draining                              bool
}

func (s *Server) readQueue(ctx context.Context) (queueView, error) {
	q, err := s.o.Queue.Queue(ctx)
	if err != nil {
		return queueView{}, err
	}
	v := queueView{Paused: q.PausedSince}
	for _, p := range q.Pools {
		row := queuePoolRow{
			Name: p.Root, Scope: "pool:" + p.ID, Interactive: grouped(p.Interactive), Batch: grouped(p.Batch), Workers: fmt.Sprint(p.Workers),
			Paused: p.Paused, Unserved: p.Workers == 0 && p.Interactive+p.Batch > 0,
		}
		if row.Name == "" {
			row.Name = "Sessions without a workspace of their own"
		}
		v.Waiting += p.Interactive + p.Batch
		v.Pools = append(v.Pools, row)
	}
	for _, e := range q.Sessions {
		row := queueSessionRow{Title: e.SessionID, Path: pathSession + e.SessionID, Scope: "session:" + e.SessionID, Ready: grouped(e.Ready), Paused: e.Paused}
		if session, err := s.o.Reader.Session(ctx, e.SessionID); err == nil {
			row.Title = sessionTitle(session)
		}
		v.Sessions = append(v.Sessions, row)
	}
	for _, w := range q.Workers {
		row := workerRow{
			ID: w.ID, Place: fmt.Sprintf("%s, process %d", w.Host, w.PID), Load: fmt.Sprintf("%d of %d", w.Busy, w.Slots), Busy: w.Busy, Slots: w.Slots,
			Roots: strings.Join(w.Roots, ", "), Version: w.Version, Started: w.StartedAt, Seen: w.SeenAt, Draining: w.Draining, Path: pathQueue + "/workers/" + w.ID,
		}
		v.Workers = append(v.Workers, row)
	}
	return v, nil
}

func (s *Server) queuePage(c echo.Context) error {
	v, err := s.readQueue(c.Request().Context())
	if err != nil {
		return err
	}
	return s.render(c, http.StatusOK, queuePage(s.frame(c, "Queue"), v))
}

// queuePart is the page's content, asked for again and again.
func (s *Server) queuePart(c echo.Context) error {
	v, err := s.readQueue(c.Request().Context())
	if err != nil {
		return err
	}
	return s.render(c, http.StatusOK, queueState(v))
}

func (s *Server) pauseQueue(c echo.Context) error  { return s.holdQueue(c, true) }
func (s *Server) resumeQueue(c echo.Context) error { return s.holdQueue(c, false) }

func (s *Server) holdQueue(c echo.Context, paused bool) error {
	scope := c.FormValue("scope")
	if err := api.CheckScope(scope); err != nil {
		return err
	}
	if err := s.o.Queue.Pause(c.Request().Context(), scope, paused); err != nil {
		return err
	}
	return s.queueDone(c)
}

func (s *Server) drainWorker(c echo.Context) error {
	if err := s.o.Queue.DrainWorker(c.Request().Context(), c.Param("id"), c.FormValue("on") != "0"); err != nil {
		return err
	}
	return s.queueDone(c)
}

// queueDone answers with the page as it is now.
func (s *Server) queueDone(c echo.Context) error {
	if isHTMX(c) {
		return s.queuePart(c)
	}
	return c.Redirect(http.StatusSeeOther, pathQueue)
}
