package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// fanOutActions is what a person can do about a fan-out as it stands.
type fanOutActions struct {
	Path, Back  string // of the dispatch, and the page to return to without scripts
	Resumable   int    // runs that failed or are over budget, and may go on
	Failed      int    // runs that ended otherwise than done, and may be started again
	Undelivered int64  // ended runs that the main agent has not heard of
	Told        string // when it will hear of them
	Budget      *budgetView
	Deadline    string // when what is left ends; empty without one
}

func newFanOutActions(d forkcore.Dispatch, runs []forkcore.Run) fanOutActions {
	v := fanOutActions{Path: pathDispatch + d.ID, Back: pathSession + d.SessionID, Undelivered: d.Undelivered}
	for _, r := range runs {
		if r.CanResume() {
			v.Resumable++
		}
		if r.State.Ended() && r.State != forkcore.Done {
			v.Failed++
		}
	}
	switch d.Notify {
	case forkcore.NotifyManual:
		v.Told = "when you say so"
	default:
		v.Told = "when the last fork has ended"
	}
	if d.BudgetNanoUSD > 0 {
		v.Budget = newBudget(d.ID, v.Path, v.Back, d.BudgetNanoUSD, d.Cost.NanoUSD)
	}
	if d.Remaining > 0 && !d.Deadline.IsZero() {
		v.Deadline = moment(d.Deadline)
	}
	return v
}

// budgetView is a budget that can be changed where it stands.
type budgetView struct {
	ID, Path, Back string
	Of, Left       string // empty without a budget
	Value          string // in dollars, for the field
	Over           bool   // nothing is left
}

func newBudget(id, path, back string, budget, spent int64) *budgetView {
	v := &budgetView{ID: "budget-" + id, Path: path + "/budget", Back: back}
	if budget > 0 {
		left := max(budget-spent, 0)
		v.Of, v.Left, v.Over = dollars(&budget), dollars(&left), left == 0
		v.Value = fmt.Sprintf("%.4f", float64(budget)/1e9)
	}
	return v
}

func (s *Server) resumeRun(c echo.Context) error {
	return s.actOnRun(c, func(ctx context.Context, id string) error {
		_, err := s.o.Runner.Resume(ctx, id)
		return err
	})
}

func (s *Server) resumeDispatch(c echo.Context) error {
	return s.act(c, func(ctx context.Context, id string) error {
		_, err := s.o.Runner.ResumeDispatch(ctx, id)
		return err
	})
}

func (s *Server) retryDispatch(c echo.Context) error {
	return s.act(c, func(ctx context.Context, id string) error {
		_, _, err := s.o.Runner.Retry(ctx, id, forkcore.RetrySpec{}, "page "+c.FormValue("key"))
		return err
	})
}

func (s *Server) deliverNotices(c echo.Context) error {
	return s.act(c, s.o.Runner.DeliverNotices)
}

func (s *Server) setBudget(c echo.Context) error {
	usd, err := parseDollars(c.FormValue(fieldBudget))
	if err != nil {
		err = forkcore.Invalid(fieldBudget, err.Error())
	}
	return s.act(c, func(ctx context.Context, id string) error {
		if err != nil {
			return err
		}
		return s.o.Runner.SetBudget(ctx, id, usd)
	})
}

// act does something to the object that the path names. What does not fit is said on the page that asked, where scripts
// run, and else on one of its own.
func (s *Server) act(c echo.Context, do func(ctx context.Context, id string) error) error {
	err := do(c.Request().Context(), c.Param("id"))
	if err == nil {
		return s.done(c, localPath(c.FormValue("back")))
	}
	var invalid *forkcore.InvalidError
	if p := api.ProblemOf(err); isHTMX(c) && (p.Status == http.StatusConflict || errors.As(err, &invalid)) {
		notice := &forkcore.Reason{Code: "conflict", Message: p.Detail, NextStep: p.NextStep}
		if invalid != nil {
			notice.Message, notice.NextStep = "The budget "+invalid.Fields[0].Message+".", ""
		}
		return s.render(c, p.Status, actionNotice(notice))
	}
	return err
}
