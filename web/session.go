package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// sessionView is what the page of a session shows.
type sessionView struct {
	sessionRow
	Workspace, Mode string
	Cache           string // what the provider still holds
	Table           []runRow
	More            bool // there are older runs than those shown
}

// runRow is one line of the table of runs.
type runRow struct {
	ID, Title, Directive string
	State                forkcore.State
	Reason               *forkcore.Reason
	HitRate, Inherited   string
	Cost                 string
	Requests             int64
	Started              time.Time
	JSONPath             string
}

func newRunRow(r forkcore.Run) runRow {
	h := r.HitRate()
	row := runRow{
		ID: r.ID, Title: r.Title, Directive: r.Directive, State: r.State, Reason: r.Reason,
		HitRate: percent(h.Total), Inherited: percent(h.Inherited), Cost: dollars(r.Cost.Known()),
		Requests: r.Requests, Started: r.StartedAt, JSONPath: prefixAPI + "/runs/" + r.ID,
	}
	switch {
	case row.Title != "":
	case r.Kind == forkcore.KindMain:
		row.Title = "Main turn"
	default:
		row.Title = fmt.Sprintf("Fork %d", r.Index+1)
	}
	return row
}

// cacheLine says in words what the cache clock says in numbers.
func cacheLine(e *forkcore.CacheEntry, now time.Time) string {
	if e == nil {
		return "nothing cached yet"
	}
	about := "about "
	if e.Exact {
		about = ""
	}
	left := e.ExpiresAt().Sub(now).Truncate(time.Second)
	if left <= 0 {
		return fmt.Sprintf("%s%d tokens, expired", about, e.Tokens)
	}
	return fmt.Sprintf("%s%d tokens, %s left", about, e.Tokens, left)
}

func (s *Server) sessionPage(c echo.Context) error {
	ctx := c.Request().Context()
	session, err := s.o.Reader.Session(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	runs, next, err := s.o.Reader.RunsOf(ctx, session.ID, "", statusRuns)
	if err != nil {
		return err
	}
	active, err := api.ActiveRun(ctx, s.o.Reader, session, runs)
	if err != nil {
		return err
	}
	v := sessionView{
		sessionRow: newSessionRow(session, active, len(runs), next != ""),
		Workspace:  session.Workspace, Mode: string(session.Mode), Cache: cacheLine(session.Warm, s.o.Now()), More: next != "",
	}
	for _, r := range runs {
		v.Table = append(v.Table, newRunRow(r))
	}
	return s.render(c, http.StatusOK, sessionPage(s.frame(c, v.Title), v))
}
