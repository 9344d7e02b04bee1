package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// The session that shows newcomers what a fan-out is.
const (
	sampleTitle = "Sample fan-out"
	sampleText  = "Survey this repository with five forks and sum up."
	// sampleBudgetUSD bounds what the sample may cost with a real key; it takes a small part of that.
	sampleBudgetUSD = 5
	// sampleRuns is how many of its runs are searched for the newest fan-out.
	sampleRuns = 50
)

// startView is the panel that gets people going. A handler of one of its forms fills in what came of it.
type startView struct {
	// Open is true where the panel is shown unasked.
	Open       bool
	Sample     sampleView
	Workspaces []openFolder
	Provider   providerView
	Examples   []example
}

// sampleView is the form of the sample.
type sampleView struct {
	Workspace string // absolute path; empty: the sample cannot be started
	// Own is true when Workspace is one of the configured ones and not the sample repository.
	Own       bool
	Simulated bool
	Model     string
	Budget    string
	// Key keeps a double click from starting it twice.
	Key string
	// Last is what the last sample came to; nil before its forks have ended.
	Last *sampleResult
	// Error and NextStep say why it could not be started; Unconfirmed: because nobody confirmed the cost.
	Error, NextStep string
	Unconfirmed     bool
}

// sampleResult is what a sample came to.
type sampleResult struct {
	Path   string // of its session
	FanOut fanOutResult
}

// openFolder is a folder that sessions may use.
type openFolder struct{ Path, NewSession string }

// fillStart adds to v what the panel always shows.
func (s *Server) fillStart(ctx context.Context, v startView) startView {
	v.Sample.Workspace, v.Sample.Own = s.sampleWorkspace()
	v.Sample.Simulated, v.Sample.Model, v.Sample.Budget = s.o.Simulated, s.o.Provider.Model, fmt.Sprintf("$%d", sampleBudgetUSD)
	v.Sample.Key = cmp.Or(v.Sample.Key, newSecret())
	for _, path := range s.o.Workspaces {
		v.Workspaces = append(v.Workspaces, openFolder{path, pathNewSession + "?" + url.Values{"workspace": {path}}.Encode()})
	}
	v.Provider = s.fillProvider(ctx, v.Provider)
	v.Examples = s.examples()
	return v
}

// sampleWorkspace is where the sample runs, and whether that is a folder of the user's.
func (s *Server) sampleWorkspace() (path string, own bool) {
	if s.o.Sample != "" {
		return s.o.Sample, false
	}
	if len(s.o.Workspaces) > 0 {
		return s.o.Workspaces[0], true
	}
	return "", false
}

// startSample makes the session of the sample and sends its one message.
func (s *Server) startSample(c echo.Context) error {
	ctx := c.Request().Context()
	v := startView{Open: true, Sample: sampleView{Key: c.FormValue("key")}}
	workspace, _ := s.sampleWorkspace()
	refuse := func(err error) error {
		p := api.ProblemOf(err)
		v.Sample.Error, v.Sample.NextStep = p.Detail, p.NextStep
		if len(p.Errors) > 0 {
			v.Sample.Error, v.Sample.NextStep = sentences(p.Errors), "Correct that and try again."
		}
		v.Sample.Key = "" // the next try is another one
		return s.renderHome(c, p.Status, v)
	}
	switch {
	case workspace == "":
		return refuse(&forkcore.ConflictError{Message: "No folder is open to agents.", NextStep: "Start with FORKYARD_WORKSPACES=/path/to/repository."})
	case !s.o.Simulated && c.FormValue("confirm") == "":
		v.Sample.Unconfirmed = true
		return s.renderHome(c, http.StatusUnprocessableEntity, v)
	}
	v.Sample.Key = usableKey(v.Sample.Key)
	spec := forkcore.SessionSpec{Title: sampleTitle, Workspace: workspace, Mode: forkcore.ModeFork}
	if !s.o.Simulated {
		budget := float64(sampleBudgetUSD)
		spec.BudgetUSD = &budget
	}
	key := "sample-" + v.Sample.Key
	session, _, err := s.o.Runner.CreateSession(ctx, spec, key)
	if err == nil {
		_, err = s.o.Runner.SendMessage(ctx, session.ID, sampleText, key)
	}
	if err != nil {
		if api.ProblemOf(err).Status >= http.StatusInternalServerError {
			return err // the list could not be drawn either
		}
		return refuse(err)
	}
	return c.Redirect(http.StatusSeeOther, pathSession+session.ID)
}

// lastSample is what the newest sample among sessions came to, nil when there is none whose fan-out has ended.
func (s *Server) lastSample(ctx context.Context, sessions []forkcore.Session) (*sampleResult, error) {
	i := slices.IndexFunc(sessions, func(s forkcore.Session) bool { return s.Title == sampleTitle })
	if i < 0 || sessions[i].ActiveRuns > 0 {
		return nil, nil
	}
	all, _, err := s.o.Reader.RunsOf(ctx, sessions[i].ID, "", sampleRuns)
	if err != nil {
		return nil, err
	}
	var forks []forkcore.Run
	for _, r := range all {
		if r.DispatchID != "" && (len(forks) == 0 || r.DispatchID == forks[0].DispatchID) {
			forks = append(forks, r)
		}
	}
	if len(forks) == 0 {
		return nil, nil
	}
	d, err := s.o.Reader.Dispatch(ctx, forks[0].DispatchID)
	if err != nil {
		return nil, err
	}
	return &sampleResult{Path: pathSession + sessions[i].ID, FanOut: newFanOutResult(d, forks, s.o.Prices)}, nil
}

// sentences says what is wrong with fields that nobody typed.
func sentences(fields []forkcore.FieldError) string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "%s %s. ", f.Field, f.Message)
	}
	return strings.TrimSpace(b.String())
}

// folderName is the last element of a path.
func folderName(path string) string { return filepath.Base(path) }

// example is a piece of shell.
type example struct{ ID, Title, Text string }

// examples are the calls of the main job, ready to be pasted into one shell.
func (s *Server) examples() []example {
	token := "TOKEN=$FORKYARD_ADMIN_TOKEN"
	if s.o.TokenPath != "" {
		token = "TOKEN=$(cat " + shellQuote(s.o.TokenPath) + ")"
	}
	workspace := "/path/below/a/root/in/FORKYARD_WORKSPACES"
	if len(s.o.Workspaces) > 0 {
		workspace = s.o.Workspaces[0]
	}
	call := func(path, body string) string {
		return "curl -s -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n  " + s.base + prefixAPI + path + " \\\n  -d " + shellQuote(body)
	}
	return []example{
		{"create", "Create a session", token + "\nSESSION=$(" + call("/sessions", `{"title":"First look","workspace":`+quoteJSON(workspace)+`}`) +
			" \\\n  | grep -o 'ses_[a-z0-9]*' | head -n 1); echo $SESSION"},
		{"message", "Give the main agent something to do", call("/sessions/$SESSION/messages", `{"text":"Read this project and say what it does."}`)},
		{"forks", "Fork it: each directive runs with the whole conversation behind it", call("/sessions/$SESSION/forks",
			`{"directives":[{"title":"Tests","prompt":"Find what the tests leave out."},{"title":"Docs","prompt":"Find what the documentation gets wrong."}]}`)},
		{"watch", "Watch all of it", "curl -sN -H \"Authorization: Bearer $TOKEN\" \\\n  \"" + s.base + prefixAPI + "/sessions/$SESSION/events?after=0\""},
	}
}

// shellQuote makes one word of a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// quoteJSON makes a JSON string without the escapes for HTML that nobody wants to read.
func quoteJSON(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
