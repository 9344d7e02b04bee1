package web

import (
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
	if p.Status >= http.StatusInternalServerError {
		s.o.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status,
			"request_id", c.Response().Header().Get(requestIDHeader), "error", err)
	}
	if c.Response().Committed {
		return
	}
	if strings.HasPrefix(r.URL.Path, "/api/") {
		err = api.WriteProblem(c, p)
	} else {
		if p.Status == http.StatusNotFound {
			p.Detail, p.NextStep = "There is nothing at this address.", "Go back to the sessions."
		}
		if r.Header.Get("HX-Request") != "" {
			// A part of a page cannot become an error page: what was typed there would be gone. The page says it where it
			// has a place for it.
			h := c.Response().Header()
			h.Set("HX-Retarget", "[data-problem]")
			h.Set("HX-Reswap", "innerHTML")
			if err := s.render(c, p.Status, problemNotice(p.Detail, p.NextStep)); err != nil {
				s.o.Log.Error("answering an error", "path", r.URL.Path, "error", err)
			}
			return
		}
		err = s.render(c, p.Status, errorPage(s.frame(c, p.Title), errorView{
			Status: p.Status, Title: p.Title, Detail: p.Detail, NextStep: p.NextStep,
			RequestID: c.Response().Header().Get(requestIDHeader),
		}))
	}
	if err != nil {
		s.o.Log.Error("answering an error", "path", r.URL.Path, "error", err)
	}
}

// errorView is what the page of an error shows.
type errorView struct {
	Status                             int
	Title, Detail, NextStep, RequestID string
}
