package web

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// sessionForm is the form of a new session as it is being typed.
type sessionForm struct {
	Key                              string
	Root, Folder                     string
	Title, Message, Model            string
	Mode, Permission, Budget, Behind string
	formErrors
}

// newSessionView is what the page of a new session shows.
type newSessionView struct {
	Form         sessionForm
	Roots        []string
	Models       []string
	DefaultModel string
	// Listed is true when only the models listed can be used.
	Listed  bool
	Fresh   bool
	Refusal refusalView
}

// The ids of the fields, which are also their names.
const (
	fieldRoot       = "workspace"
	fieldFolder     = "folder"
	fieldTitle      = "title"
	fieldMessage    = "message"
	fieldModel      = "model"
	fieldMode       = "mode"
	fieldPermission = "permission_mode"
	fieldBehind     = "auto_background_seconds"
)

var modeChoices = []choice{
	{string(forkcore.ModeFork), "Fork", "Fans out: children inherit the whole conversation and share its cached prefix."},
	{string(forkcore.ModePlain), "Plain", "One agent; runs without forks for now."},
	{string(forkcore.ModeCoordinator), "Coordinator", "Plans and delegates; runs without forks for now."},
}

var permissionChoices = []choice{
	{string(forkcore.PermissionDefault), "Ask", "Reads files. Commands need a person's word, and as nobody can be asked yet, they are refused."},
	{string(forkcore.PermissionAcceptEdits), "Accept edits", "As above; edits in the workspace will need no word once agents can edit."},
	{string(forkcore.PermissionPlan), "Plan", "Reads and plans; changes nothing."},
	{string(forkcore.PermissionDontAsk), "Never ask", "Refuses whatever would need a person's word."},
	{string(forkcore.PermissionBypass), "Bypass permissions", "Allows everything. Bash runs with the rights of this program, so use it only where you would run the commands yourself."},
}

func parseSessionForm(v url.Values) sessionForm {
	line := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	return sessionForm{
		Key: v.Get("key"), Root: line(fieldRoot), Folder: line(fieldFolder), Title: line(fieldTitle), Message: at(v[fieldMessage], 0),
		Model: line(fieldModel), Mode: line(fieldMode), Permission: line(fieldPermission), Budget: line(fieldBudget), Behind: line(fieldBehind),
	}
}

// workspace is the path of a folder below a root; an absolute folder stands for itself.
func (f sessionForm) workspace() string {
	if filepath.IsAbs(f.Folder) {
		return filepath.Clean(f.Folder)
	}
	if f.Folder == "" || f.Root == "" {
		return f.Root
	}
	return filepath.Join(f.Root, f.Folder)
}

// spec is the wish. What is wrong with it is added to the form.
func (f *sessionForm) spec() forkcore.SessionSpec {
	spec := forkcore.SessionSpec{
		Title: f.Title, Workspace: f.workspace(), Model: f.Model,
		Mode: forkcore.Mode(f.Mode), PermissionMode: forkcore.PermissionMode(f.Permission),
	}
	if spec.Title == "" {
		spec.Title = forkcore.Headline(f.Message, 80)
	}
	var err error
	if spec.BudgetUSD, err = parseDollars(f.Budget); err != nil {
		f.add(fieldBudget, "Budget", "%v", err)
	}
	if f.Behind != "" {
		seconds, err := strconv.ParseFloat(f.Behind, 64)
		if err != nil || seconds != seconds || seconds < 0 || seconds > 86400 {
			f.add(fieldBehind, "To the background", "is %q; give seconds from 0 (never) to 86400", f.Behind)
		}
		spec.AutoBackgroundSeconds = &seconds
	}
	return spec
}

// refuse puts the messages of an engine at the fields that they are about.
func (f *sessionForm) refuse(fields []forkcore.FieldError) {
	names := map[string]string{
		fieldTitle: "Title", fieldModel: "Model", fieldMode: "Mode", fieldPermission: "Permissions",
		fieldBudget: "Budget", fieldBehind: "To the background",
	}
	for _, e := range fields {
		id, name := e.Field, names[e.Field]
		switch {
		case e.Field == fieldRoot && f.Folder != "":
			id, name = fieldFolder, "Folder"
		case e.Field == fieldRoot:
			name = "Workspace"
		case e.Field == "text":
			id, name = fieldMessage, "First message"
		case name == "":
			id, name = "", e.Field
		}
		f.add(id, name, "%s", e.Message)
	}
}

// advanced reports whether something behind "More settings" is set or wrong.
func (f sessionForm) advanced() bool {
	return f.Budget != "" || f.Behind != "" || f.Mode != string(forkcore.ModeFork) || f.at(fieldMode) != ""
}

func (s *Server) newSessionPage(c echo.Context) error {
	form := sessionForm{
		Key: newSecret(), Mode: string(cmp.Or(s.o.DefaultMode, forkcore.ModeFork)), Permission: string(forkcore.PermissionDefault), Model: s.o.DefaultModel,
	}
	if len(s.o.Workspaces) > 0 {
		form.Root = s.o.Workspaces[0]
	}
	switch wish := at(c.QueryParams()["workspace"], 0); {
	case slices.Contains(s.o.Workspaces, wish):
		form.Root = wish
	case wish != "":
		form.Folder = wish
	}
	form.Message = at(c.QueryParams()["message"], 0)
	return s.drawNewSession(c, http.StatusOK, form, form.Message == "", refusalView{})
}

// createSession makes the session and, when there is a first message, sends it.
func (s *Server) createSession(c echo.Context) error {
	ctx := c.Request().Context()
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	form := parseSessionForm(sent)
	form.Key = usableKey(form.Key)
	if sent.Get("action") != "" { // what a browser kept is drawn again
		return s.drawNewSession(c, http.StatusOK, form, false, refusalView{})
	}
	spec := form.spec()
	if len(form.Errors) > 0 {
		return s.drawNewSession(c, http.StatusUnprocessableEntity, form, false, refusalView{})
	}
	session, _, err := s.o.Runner.CreateSession(ctx, spec, form.Key)
	if err != nil {
		return s.refuseSession(c, form, nil, err)
	}
	if strings.TrimSpace(form.Message) != "" {
		if _, err := s.o.Runner.SendMessage(ctx, session.ID, form.Message, form.Key); err != nil {
			return s.refuseSession(c, form, &session, err)
		}
	}
	return seeOther(c, pathSession+session.ID)
}

// refuseSession draws the form with what an error says; made is the session that exists already, nil before.
func (s *Server) refuseSession(c echo.Context, form sessionForm, made *forkcore.Session, err error) error {
	if clientGone(c, err) {
		return err
	}
	p := api.ProblemOf(err)
	s.logProblem(c, p, err)
	refusal := refusalView{Message: p.Detail, NextStep: p.NextStep}
	switch {
	case errors.Is(err, forkcore.ErrIdempotencyMismatch):
		form.Key = newSecret()
		refusal = refusalView{
			Message:  "This form was sent already, and has been changed since.",
			NextStep: "Starting it again makes a second session.",
			Link:     pathHome, LinkText: "See the sessions",
		}
	case errors.Is(err, forkcore.ErrBudget):
		refusal = refusalView{Message: sentence(err.Error()), NextStep: "Raise the budget."}
	case len(p.Errors) > 0:
		form.refuse(p.Errors)
		refusal = refusalView{}
	}
	if made != nil {
		refusal.Link, refusal.LinkText = pathSession+made.ID, "The session was made; only its first message is not sent"
	}
	return s.drawNewSession(c, p.Status, form, false, refusal)
}

func (s *Server) drawNewSession(c echo.Context, status int, form sessionForm, fresh bool, refusal refusalView) error {
	v := newSessionView{
		Form: form, Roots: s.o.Workspaces, Models: s.o.Models, DefaultModel: s.o.DefaultModel,
		Listed: s.o.Simulated && len(s.o.Models) > 0, Fresh: fresh, Refusal: refusal,
	}
	// A list that lacks what was chosen would choose something else.
	if v.Listed && form.Model != "" && !slices.Contains(v.Models, form.Model) {
		v.Models = append([]string{form.Model}, v.Models...)
	}
	if form.Root != "" && !slices.Contains(v.Roots, form.Root) {
		v.Roots = append(slices.Clone(v.Roots), form.Root)
	}
	if isHTMX(c) {
		return s.render(c, status, sessionFields(v))
	}
	f := s.frame(c, "New session")
	f.Nav = navNew
	return s.render(c, status, newSessionPage(f, v))
}
