package web

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/web/api"
)

// answerError answers an error with a problem document below /api and with a page elsewhere. It logs what the
// answer does not tell.
func (s *Server) answerError(err error, c echo.Context) {
	if clientGone(c, err) {
		return
	}
	r := c.Request()
	p := api.ProblemOf(err)
	s.logProblem(c, p, err)
	if c.Response().Committed {
		return
	}
	view := errorView{
		Status: p.Status, Title: p.Title, Detail: p.Detail, NextStep: p.NextStep,
		RequestID: c.Response().Header().Get(requestIDHeader),
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/"):
		err = api.WriteProblem(c, p)
	case isHTMX(c):
		// The page stays as it is, with all that was typed, and says what went wrong.
		c.Response().Header().Set("HX-Retarget", "#toast")
		c.Response().Header().Set("HX-Reswap", "innerHTML")
		err = s.render(c, p.Status, toast(view))
	default:
		if p.Status == http.StatusNotFound {
			view.Detail, view.NextStep = "There is nothing at this address.", "Go back to the sessions."
		}
		err = s.render(c, p.Status, errorPage(s.frame(c, p.Title), view))
	}
	if err != nil {
		s.o.Log.Error("answering an error", "path", r.URL.Path, "error", err)
	}
}

// logProblem logs what an answer, an error page or a form drawn again, does not tell.
func (s *Server) logProblem(c echo.Context, p *api.Problem, err error) {
	if p.Status < http.StatusInternalServerError {
		return
	}
	r := c.Request()
	level := slog.LevelError
	if p.Status == http.StatusServiceUnavailable {
		level = slog.LevelWarn // the store is away, or this server is stopping: what is away says so itself
	}
	s.o.Log.Log(r.Context(), level, "request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status,
		"request_id", c.Response().Header().Get(requestIDHeader), "error", err)
}

// errorView is what the page of an error shows.
type errorView struct {
	Status                             int
	Title, Detail, NextStep, RequestID string
}
