package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// The page looks at so many sessions, and at the last request of so many of their runs, and rebuilds so many bytes for it.
const (
	checkedSessions = 10
	checkedRuns     = 20
	checkedBytes    = 64 << 20
	// shownViolations is how many of one request are listed.
	shownViolations = 100
	// keptPaste is the longest body that stands in the form again.
	keptPaste = 64 << 10
)

// checksView is the page that tells what is broken. Each of its sections stands for itself.
type checksView struct {
	Of       string // what was asked for: a session, a run, a request; empty: the latest
	Problem  string // with Of
	Requests []checkedRequest
	// Bad is how many of Requests break a rule, Unseen how many could not be looked at.
	Bad, Unseen int
	Paste       pasteView
	// Rules are what was seen of the five rules in the session RulesOf, that of the first request.
	Rules   rulesView
	RulesOf link
	// Recomputed counts the rendered prompts that were lost since this process started.
	Recomputed int64
}

// checkedRequest is what the rules say of one request as it was sent.
type checkedRequest struct {
	Request, Run, Session link
	Size                  string
	// Trouble says why there is no verdict.
	Trouble string
	verdictView
}

// verdictView is what forkcore.Validate says. Broken counts without warnings.
type verdictView struct {
	Broken   int
	Warnings int
	List     []forkcore.Violation
	Left     int // that are not listed
}

// pasteView is a body that somebody brought.
type pasteView struct {
	Text    string
	Problem string
	Done    bool
	Size    string
	verdictView
}

func newVerdict(found []forkcore.Violation) verdictView {
	var v verdictView
	for _, f := range found {
		if f.Warning {
			v.Warnings++
		} else {
			v.Broken++
		}
	}
	v.List = found[:min(len(found), shownViolations)]
	v.Left = len(found) - len(v.List)
	return v
}

func checksPath(of string) string { return pathChecks + "?" + url.Values{"of": {of}}.Encode() }

func (s *Server) checksPage(c echo.Context) error {
	return s.renderChecks(c, http.StatusOK, pasteView{})
}

// checkPasted judges a body from the form. Nothing of it is stored.
func (s *Server) checkPasted(c echo.Context) error {
	form, err := readForm(c)
	if err != nil {
		return err
	}
	text := form.Get("body")
	var v pasteView
	if strings.TrimSpace(text) == "" {
		v.Problem = "Paste the body of a request: one JSON object with model, max_tokens and messages."
		return s.renderChecks(c, http.StatusUnprocessableEntity, v)
	}
	v.Done, v.Size = true, grouped(int64(len(text)))
	v.verdictView = newVerdict(forkcore.Validate([]byte(text)))
	if len(text) <= keptPaste {
		v.Text = text
	}
	return s.renderChecks(c, http.StatusOK, v)
}

func (s *Server) renderChecks(c echo.Context, status int, paste pasteView) error {
	v := checksView{Of: strings.TrimSpace(c.QueryParam("of")), Paste: paste}
	refs, problem, err := s.requestsToCheck(c.Request().Context(), v.Of)
	if err != nil {
		return err
	}
	if problem != "" {
		v.Problem, status = problem, http.StatusUnprocessableEntity
	}
	if v.Requests, err = s.checkRequests(c.Request().Context(), refs); err != nil {
		return err
	}
	if len(refs) > 0 {
		v.Rules, v.RulesOf = s.rules(c.Request().Context(), refs[0].session), sessionLink(refs[0].session)
	}
	if f := s.o.PromptsRecomputed; f != nil {
		v.Recomputed = f()
	}
	for _, r := range v.Requests {
		switch {
		case r.Trouble != "":
			v.Unseen++
		case r.Broken > 0:
			v.Bad++
		}
	}
	f := s.frame(c, "Checks")
	f.Nav = navChecks
	return s.render(c, status, checksPage(f, v))
}

// toCheck is a request whose row is not read yet; n 0 is the last one that the run has.
type toCheck struct {
	run     forkcore.Run
	session forkcore.Session
	n       int64
}

const checkedKinds = "Name a session (ses_…), a run (run_…) or a request, which is the id of its run, a colon and its number, such as run_03abcdefghijklmnop:1."

// requestsToCheck finds what is named; problem says what is wrong with the name.
func (s *Server) requestsToCheck(ctx context.Context, of string) (list []toCheck, problem string, err error) {
	unknown := func(err error) bool { return errors.Is(err, forkcore.ErrNotFound) || errors.Is(err, forkcore.ErrBadID) }
	switch {
	case of == "":
		list, err = s.latestToCheck(ctx)
		return list, "", err
	case strings.HasPrefix(of, "ses_"):
		session, err := s.o.Reader.Session(ctx, of)
		switch {
		case unknown(err):
			return nil, "There is no session " + shorten(of, 60) + ".", nil
		case err != nil:
			return nil, "", err
		}
		list, err = s.runsToCheck(ctx, session)
		return list, "", err
	case strings.HasPrefix(of, "run_"):
		ref := forkcore.RequestRef{RunID: of}
		if strings.Contains(of, ":") {
			if ref, problem = parseRequestKey(of); problem != "" {
				return nil, checkedKinds, nil
			}
		}
		run, rows, err := s.runAndRequests(ctx, ref.RunID)
		switch {
		case unknown(err):
			return nil, "There is no run " + shorten(ref.RunID, 60) + ".", nil
		case err != nil:
			return nil, "", err
		case ref.N > 0 && findRequest(rows, ref.N) == nil:
			return nil, fmt.Sprintf("This run has no request %d; it has sent %d.", ref.N, len(rows)), nil
		}
		session, err := s.o.Reader.Session(ctx, run.SessionID)
		if err != nil {
			return nil, "", err
		}
		if len(rows) == 0 {
			return nil, "", nil
		}
		return []toCheck{{run, session, ref.N}}, "", nil
	}
	return nil, checkedKinds, nil
}

// latestToCheck lists the runs that sent something, of the latest sessions.
func (s *Server) latestToCheck(ctx context.Context) ([]toCheck, error) {
	sessions, _, err := s.o.Reader.Sessions(ctx, "", checkedSessions)
	if err != nil {
		return nil, err
	}
	var list []toCheck
	for _, session := range sessions {
		runs, err := s.runsToCheck(ctx, session)
		if err != nil {
			return nil, err
		}
		list = append(list, runs...)
	}
	slices.SortStableFunc(list, func(a, b toCheck) int { return b.run.CreatedAt.Compare(a.run.CreatedAt) })
	return list[:min(len(list), checkedRuns)], nil
}

func (s *Server) runsToCheck(ctx context.Context, session forkcore.Session) ([]toCheck, error) {
	runs, _, err := s.o.Reader.RunsOf(ctx, session.ID, "", checkedRuns)
	if err != nil {
		return nil, err
	}
	var list []toCheck
	for _, run := range runs {
		if run.Requests > 0 {
			list = append(list, toCheck{run, session, 0})
		}
	}
	return list, nil
}

// checkRequests rebuilds the bodies and judges them, as far as the bound on bytes goes.
func (s *Server) checkRequests(ctx context.Context, list []toCheck) ([]checkedRequest, error) {
	var out []checkedRequest
	left := int64(checkedBytes)
	for _, t := range list {
		rows, err := s.o.Reader.Requests(ctx, t.run.ID)
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			continue // it was counted a moment ago and its row is to come
		}
		row := slices.MaxFunc(rows, func(a, b forkcore.RequestRow) int { return cmp.Compare(a.N, b.N) })
		if t.n > 0 {
			row = *cmp.Or(findRequest(rows, t.n), &row)
		}
		v := checkedRequest{
			Request: link{requestPath(t.run.ID, row.N), fmt.Sprintf("Request %d", row.N)},
			Run:     link{pathRun + t.run.ID, runTitle(t.run)}, Session: sessionLink(t.session), Size: grouped(row.BodyBytes),
		}
		if row.BodyBytes > left && len(out) > 0 {
			v.Trouble = "Not checked here, because the requests above are large already. Name this run above to check it alone."
			out = append(out, v)
			continue
		}
		left -= row.BodyBytes
		body, err := s.o.Bytes.RequestBody(ctx, t.run.ID, row.N)
		switch {
		case errors.Is(err, forkcore.ErrCorrupt):
			v.Trouble = "The stored bytes of this request do not match their SHA-256: they are damaged, so they cannot be checked."
		case errors.Is(err, forkcore.ErrNotFound):
			v.Trouble = "The stored bytes of this request are gone: its session is being deleted, or the database lost them."
		case err != nil:
			return nil, err
		default:
			v.Size = grouped(int64(len(body)))
			v.verdictView = newVerdict(forkcore.Validate(body))
		}
		out = append(out, v)
	}
	return out, nil
}

// verdictSentence says how many rules are broken.
func verdictSentence(v verdictView) string {
	switch {
	case v.Broken == 1:
		return "1 broken rule"
	case v.Broken > 1:
		return fmt.Sprintf("%d broken rules", v.Broken)
	case v.Warnings > 0:
		return "no rule broken, a warning"
	}
	return "no rule broken"
}

// verdictState colours a verdict like the states of runs.
func verdictState(v verdictView) string {
	switch {
	case v.Broken > 0:
		return string(forkcore.Failed)
	case v.Warnings > 0:
		return string(forkcore.Waiting)
	}
	return string(forkcore.Done)
}

// checksSummary is the sentence over the list of requests.
func checksSummary(v checksView) string {
	if len(v.Requests) == 0 {
		return ""
	}
	what := "The last request of each of the latest " + grouped(int64(len(v.Requests))) + " runs"
	switch {
	case len(v.Requests) == 1:
		what = "One request"
	case v.Of != "":
		what = "The last request of each of " + grouped(int64(len(v.Requests))) + " runs"
	}
	switch {
	case v.Bad == 0 && v.Unseen == 0:
		what += ": no rule is broken."
	case v.Bad == 0:
		what += ": no rule is broken in those that could be checked."
	case v.Bad == 1:
		what += ": 1 breaks rules."
	default:
		what += fmt.Sprintf(": %d break rules.", v.Bad)
	}
	if v.Unseen > 0 {
		what += fmt.Sprintf(" %d could not be checked.", v.Unseen)
	}
	return what
}

// ruleSentence makes a sentence of the words of a violation; a name at their beginning stays as it is.
func ruleSentence(message string) string {
	if first, _, _ := strings.Cut(message, " "); strings.Contains(first, "_") {
		return message + "."
	}
	return asSentence(message)
}
