package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// dispatchView is what the dispatch form shows.
type dispatchView struct {
	Form  directivesForm
	Quote offerView
	// Path is the form's address, Session that of its session.
	Path, Session, SessionTitle string
	// Off says why this session cannot fork, empty when it can.
	Off string
	// Inherits says what every fork starts from; empty: it could not be read.
	Inherits string
	Refusal  refusalView
	Rules    rulesView
}

// refusalView is why a form was not accepted, apart from messages at its fields.
type refusalView struct {
	Message, NextStep string
	// Link and LinkText lead to what exists already.
	Link, LinkText string
}

// newInherits counts what the forks of a session start from: the messages up to the end of its last completed turn.
func newInherits(session forkcore.Session, lines []forkcore.TranscriptLine) string {
	seen, completed := 0, 0
	for _, line := range lines {
		switch {
		case line.Kind == forkcore.EntryMessage:
			seen++
		case line.Marker != nil && line.Marker.Type == forkcore.MarkerTurnEnd && line.Marker.State == forkcore.Done:
			completed = seen
		}
	}
	running := session.ActiveRunID != ""
	messages := "1 message"
	if completed != 1 {
		messages = fmt.Sprintf("%d messages", completed)
	}
	switch {
	case completed == 0 && running:
		return "The first turn is still running, so forks inherit only the instructions and tools of the session."
	case completed == 0:
		return "No turn is completed yet, so forks inherit only the instructions and tools of the session."
	case running:
		return "A turn is running. Forks start from the last completed one: each inherits " + messages + "."
	case seen > completed:
		return "The last turn did not complete. Forks start from the last one that did: each inherits " + messages + "."
	}
	return "Each fork inherits the whole conversation: " + messages + ", up to the end of the last turn."
}

func (s *Server) inherits(ctx context.Context, session forkcore.Session) (string, error) {
	id := session.LastRunID
	if id == "" {
		id = session.ActiveRunID
	}
	if id == "" {
		return newInherits(session, nil), nil
	}
	lines, err := s.o.Bytes.Transcript(ctx, id, 0)
	if err != nil {
		return "", fmt.Errorf("reading what forks inherit: %w", err)
	}
	return newInherits(session, lines), nil
}

// choice is one of several values, with a line on what it means.
type choice struct{ Value, Name, Text string }

var gateChoices = []choice{
	{string(forkcore.GateAuto), "Automatic", "One fork leads when the others save enough by waiting for it."},
	{string(forkcore.GateAlways), "Always", "One fork leads whatever it saves; the others start a moment later."},
	{string(forkcore.GateOff), "Off", "All start at once; each may pay for writing the same prefix."},
}

var notifyChoices = []choice{
	{string(forkcore.NotifyAllDone), "All at once", "The main agent gets one turn with all results, when the last fork has ended."},
	{string(forkcore.NotifyEach), "One by one", "The main agent gets each result as its fork ends."},
	{string(forkcore.NotifyManual), "By hand", "The main agent hears nothing until you tell it."},
}

func dispatchPath(sessionID string) string { return pathSession + sessionID + "/dispatch" }

func (s *Server) dispatchPage(c echo.Context) error {
	session, err := s.o.Reader.Session(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	form := newDirectivesForm(newSecret(), c.QueryParams())
	form.Gate = string(cmp.Or(s.o.Gate, forkcore.GateAuto))
	form.Notify = string(cmp.Or(session.Notify, forkcore.NotifyAllDone))
	return s.drawDispatch(c, http.StatusOK, session, form, refusalView{})
}

// dispatch starts the fan-out, or does what the pressed button says. Whatever goes wrong, the form comes back with
// everything that was typed.
func (s *Server) dispatch(c echo.Context) error {
	ctx := c.Request().Context()
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	form := parseDirectivesForm(sent)
	form.Key = usableKey(form.Key)
	session, err := s.o.Reader.Session(ctx, c.Param("id"))
	if err != nil {
		return s.refuseDispatch(c, forkcore.Session{ID: c.Param("id")}, form, nil, err)
	}
	if action := sent.Get("action"); action != "" {
		form.act(action)
		status := http.StatusOK
		if len(form.Errors) > 0 {
			status = http.StatusUnprocessableEntity
		}
		return s.drawDispatch(c, status, session, form, refusalView{})
	}
	spec, rows := form.spec()
	if len(form.Errors) > 0 {
		return s.drawDispatch(c, http.StatusUnprocessableEntity, session, form, refusalView{})
	}
	d, _, err := s.o.Runner.Fork(ctx, session.ID, spec, form.Key)
	if err != nil {
		return s.refuseDispatch(c, session, form, rows, err)
	}
	return seeOther(c, pathSession+session.ID+"#fanout-"+d.ID)
}

// refuseDispatch draws the form with what an error says. Only a session that does not exist has no form.
func (s *Server) refuseDispatch(c echo.Context, session forkcore.Session, form directivesForm, rows []directiveRow, err error) error {
	if clientGone(c, err) {
		return err
	}
	p := api.ProblemOf(err)
	if p.Status == http.StatusNotFound {
		return err
	}
	s.logProblem(c, p, err)
	refusal := refusalView{Message: p.Detail, NextStep: p.NextStep}
	switch {
	case errors.Is(err, forkcore.ErrIdempotencyMismatch):
		form.Key = newSecret()
		refusal = refusalView{
			Message:  "This form was dispatched already, and has been changed since.",
			NextStep: "Dispatching again starts a second fan-out.",
			Link:     pathSession + session.ID, LinkText: "See what was started",
		}
	case len(p.Errors) > 0:
		form.refuse(p.Errors, rows)
		refusal = refusalView{}
	case errors.Is(err, forkcore.ErrBudget):
		refusal = refusalView{Message: sentence(err.Error()), NextStep: "Raise the budget, or start a new session."}
	}
	return s.drawDispatch(c, p.Status, session, form, refusal)
}

// drawDispatch draws the form: alone for htmx, else as a page.
func (s *Server) drawDispatch(c echo.Context, status int, session forkcore.Session, form directivesForm, refusal refusalView) error {
	ctx := c.Request().Context()
	v := dispatchView{
		Form: form, Path: dispatchPath(session.ID), Session: pathSession + session.ID, SessionTitle: sessionTitle(session), Refusal: refusal,
	}
	if session.Mode != forkcore.ModeFork && session.Mode != "" {
		v.Off = fmt.Sprintf("Forks are off in this session: its mode is %s, and the mode is fixed when a session starts.", session.Mode)
	}
	if v.Off == "" {
		v.Quote = s.quote(ctx, session, form)
	}
	if isHTMX(c) {
		return s.render(c, status, dispatchForm(v))
	}
	if v.Off == "" {
		var err error
		// On a page that shows an error already, another one may not hide what was typed.
		if v.Inherits, err = s.inherits(ctx, session); err != nil && status < http.StatusBadRequest {
			return err
		}
		v.Rules = s.rules(ctx, session)
	}
	return s.render(c, status, dispatchPage(s.frame(c, "Dispatch forks"), v))
}

// dispatchQuote answers the form while it is being typed: always with a quote, or with a reason why there is none.
func (s *Server) dispatchQuote(c echo.Context) error {
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	form := parseDirectivesForm(sent)
	session, err := s.o.Reader.Session(c.Request().Context(), c.Param("id"))
	if err != nil {
		p := api.ProblemOf(err)
		if p.Status == http.StatusNotFound {
			return err
		}
		s.logProblem(c, p, err)
		return s.render(c, http.StatusOK, quoteAnswer(offerView{Problem: p.Detail, NextStep: p.NextStep}))
	}
	return s.render(c, http.StatusOK, quoteAnswer(s.quote(c.Request().Context(), session, form)))
}

// sampleDirective stands for a directive of usual length while none is typed.
const sampleDirective = "Read the failing test, find the cause and report what you would change, with file and line."

// quote prices a form as it is. Half-typed rows are no error, and the budget is compared rather than checked.
func (s *Server) quote(ctx context.Context, session forkcore.Session, form directivesForm) offerView {
	spec := forkcore.ForkSpec{Gate: forkcore.GateMode(form.Gate)}
	switch spec.Gate {
	case forkcore.GateAuto, forkcore.GateAlways, forkcore.GateOff:
	default:
		spec.Gate = forkcore.GateAuto
	}
	for _, r := range form.Rows {
		if r.empty() {
			continue
		}
		d := forkcore.Directive{Title: r.Title, Prompt: r.Prompt}
		if d.Prompt == "" {
			d.Prompt = sampleDirective
		}
		spec.Directives = append(spec.Directives, d)
	}
	spec.Jobs, _ = form.jobs()
	forks := len(spec.Directives)
	if forks == 0 {
		spec.Directives = []forkcore.Directive{{Prompt: sampleDirective}}
	}
	v := offerView{Forks: forks}
	if q, err := s.o.Runner.QuoteForks(ctx, session.ID, spec); err != nil {
		p := api.ProblemOf(err)
		if p.Status >= http.StatusInternalServerError && ctx.Err() == nil {
			s.o.Log.Error("quoting a fan-out", "session", session.ID, "error", err)
		}
		v.Problem, v.NextStep = p.Detail, p.NextStep
		if len(p.Errors) > 0 {
			v.Problem, v.NextStep = "There is no quote for this: it "+p.Errors[0].Message+".", ""
		}
	} else {
		var budget int64
		if usd, err := parseDollars(form.Budget); err == nil && usd != nil && *usd > 0 && *usd <= 1_000_000 {
			budget = int64(*usd * 1e9)
		}
		v = newOffer(q, forks, spec.Gate, session, budget, s.o.Prices, s.o.Now())
	}
	v.Version = form.Next
	return v
}

// seeOther leads on after a form: htmx follows a header, as a redirect would be swapped into the page.
func seeOther(c echo.Context, path string) error {
	if isHTMX(c) {
		c.Response().Header().Set("HX-Redirect", path)
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, path)
}

// sentence makes an error text one.
func sentence(text string) string {
	r := []rune(text)
	if len(r) == 0 {
		return ""
	}
	return string(append([]rune{unicode.ToUpper(r[0])}, r[1:]...)) + "."
}
