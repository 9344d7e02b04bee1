package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// statusRuns is how many runs the page of a session shows.
const statusRuns = 100

// countRuns says how many runs there are, more than that when more are stored, and how many of them have not ended.
func countRuns(runs int, more bool, active int64) string {
	text := fmt.Sprintf("%d runs", runs)
	switch {
	case more:
		text = fmt.Sprintf("more than %d runs", runs)
	case runs == 0:
		text = "no runs"
	case runs == 1:
		text = "1 run"
	}
	if active > 0 {
		text += fmt.Sprintf(", %d active", active)
	}
	return text
}

// sessionView is what the page of a session shows.
type sessionView struct {
	sessionRow
	Mode  string
	Runs  string
	Cache string // what the provider still holds
	Table []runRow
	More  bool // there are older runs than those shown
}

// runRow is one line of the table of runs.
type runRow struct {
	ID, Title          string
	Directive          string // shortened
	Fork               bool
	State              forkcore.State
	Reason             *forkcore.Reason
	HitRate, Inherited string
	Cost               string
	Requests           int64
	Started            time.Time
	JSONPath           string
}

func newRunRow(r forkcore.Run) runRow {
	h := r.HitRate()
	row := runRow{
		ID: r.ID, Title: r.Title, Directive: shorten(r.Directive, 160), Fork: r.Kind == forkcore.KindFork, State: r.State, Reason: r.Reason,
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
	tokens := grouped(e.Tokens) + " tokens"
	if !e.Exact {
		tokens = "about " + tokens
	}
	switch left := e.ExpiresAt().Sub(now); {
	case left <= 0:
		return tokens + ", expired"
	case left < time.Minute:
		return fmt.Sprintf("%s, %d s left", tokens, int(left.Seconds()))
	default:
		return fmt.Sprintf("%s, %d min left", tokens, int(left.Minutes()))
	}
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
		sessionRow: newSessionRow(session, active, s.o.Now()), Runs: countRuns(len(runs), next != "", session.ActiveRuns),
		Mode: string(session.Mode), Cache: cacheLine(session.Warm, s.o.Now()), More: next != "",
	}
	for _, r := range runs {
		v.Table = append(v.Table, newRunRow(r))
	}
	return s.render(c, http.StatusOK, sessionPage(s.frame(c, v.Title), v))
}
