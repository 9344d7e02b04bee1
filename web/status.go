package web

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

const (
	// statusSessions is how many sessions the status page shows, statusRuns how many runs it counts of each.
	statusSessions = 50
	statusRuns     = 100
)

// statusView is what the status page shows.
type statusView struct {
	Sessions []sessionRow
	// More is true when there are older sessions than those shown.
	More     bool
	Examples []example
}

// sessionRow is one line of the table.
type sessionRow struct {
	ID, Title, Path string
	State           forkcore.State
	Reason          *forkcore.Reason
	Runs            string
	HitRate, Cost   string
	Model           string
	Updated         time.Time
}

func newSessionRow(s forkcore.Session, active *forkcore.Run, runs int, more bool) sessionRow {
	state, reason := api.SessionState(s, active)
	row := sessionRow{
		ID: s.ID, Title: s.Title, Path: pathSession + s.ID, State: state, Reason: reason,
		Runs:    countRuns(runs, more, s.ActiveRuns),
		HitRate: percent(forkcore.Run{Usage: s.Usage}.HitRate().Total), Cost: dollars(s.Cost.Known()),
		Model: s.Model, Updated: s.UpdatedAt,
	}
	if row.Title == "" {
		row.Title = "Untitled"
	}
	return row
}

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

func (s *Server) statusPage(c echo.Context) error {
	v, err := s.status(c.Request().Context())
	if err != nil {
		return err
	}
	return s.render(c, http.StatusOK, statusPage(s.frame(c, "Sessions"), v))
}

func (s *Server) status(ctx context.Context) (statusView, error) {
	sessions, next, err := s.o.Reader.Sessions(ctx, "", statusSessions)
	if err != nil {
		return statusView{}, err
	}
	v := statusView{More: next != "", Examples: s.examples()}
	for _, session := range sessions {
		runs, more, err := s.o.Reader.RunsOf(ctx, session.ID, "", statusRuns)
		if err != nil {
			return statusView{}, err
		}
		active, err := api.ActiveRun(ctx, s.o.Reader, session, runs)
		if err != nil {
			return statusView{}, err
		}
		v.Sessions = append(v.Sessions, newSessionRow(session, active, len(runs), more != ""))
	}
	return v, nil
}

// example is a piece of shell for the empty page.
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
