package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
	"forkyard/web/sse"
)

// sessionsShown is how many sessions one page lists.
const sessionsShown = 60

// sessionsPage is one page of the list of sessions.
type sessionsPage struct {
	s *Server
	// cursor is where the page begins in the store's order, which is newest first; empty: with the newest.
	cursor, next string
	sessions     []forkcore.Session
	turns        map[string]forkcore.Run // the latest known main turn, by session
}

// loadSessions reads a page. The id is that of an event that it is sure to contain.
func (s *Server) loadSessions(ctx context.Context, cursor string) (*sessionsPage, sse.ID, error) {
	p := &sessionsPage{s: s, cursor: cursor, turns: map[string]forkcore.Run{}}
	var err error
	if p.sessions, p.next, err = s.o.Reader.Sessions(ctx, cursor, sessionsShown); err != nil {
		return nil, sse.ID{}, err
	}
	var last time.Time
	for _, session := range p.sessions {
		turn, err := api.ActiveRun(ctx, s.o.Reader, session, nil)
		if err != nil {
			return nil, sse.ID{}, err
		}
		if turn != nil {
			p.turns[session.ID] = *turn
		}
		last = later(last, p.changed(session))
	}
	if last.IsZero() {
		return p, sse.ID{}, nil
	}
	return p, sse.ID{MS: uint64(last.UnixMilli())}, nil
}

// active is the main turn in progress, nil when there is none or it is not known yet.
func (p *sessionsPage) active(session forkcore.Session) *forkcore.Run {
	turn, ok := p.turns[session.ID]
	if !ok || turn.ID != session.ActiveRunID {
		return nil
	}
	return &turn
}

// changed is when what the page shows of a session last changed.
func (p *sessionsPage) changed(session forkcore.Session) time.Time {
	if turn := p.active(session); turn != nil {
		return later(session.UpdatedAt, turn.UpdatedAt)
	}
	return session.UpdatedAt
}

// apply implements livePage.
func (p *sessionsPage) apply(_ context.Context, e forkcore.Event) error {
	switch {
	case e.Type == forkcore.EventSession && e.Session != nil:
		p.putSession(*e.Session)
	case e.Type == forkcore.EventRun && e.Run != nil && e.Run.Kind == forkcore.KindMain:
		p.putTurn(*e.Run)
	}
	return nil
}

func (p *sessionsPage) putSession(session forkcore.Session) {
	for i, known := range p.sessions {
		if known.ID == session.ID {
			if session.Version > known.Version {
				p.sessions[i] = session
			}
			return
		}
	}
	// Only the first page grows, and only at its newer end: an older session is on a page of its own.
	if p.cursor != "" || len(p.sessions) > 0 && session.CreatedAt.Before(p.sessions[0].CreatedAt) {
		return
	}
	p.sessions = slices.Insert(p.sessions, 0, session)
}

func (p *sessionsPage) putTurn(turn forkcore.Run) {
	known, ok := p.turns[turn.SessionID]
	if !ok || known.ID == turn.ID && known.Version < turn.Version || known.ID != turn.ID && known.CreatedAt.Before(turn.CreatedAt) {
		p.turns[turn.SessionID] = turn
	}
}

// parts implements livePage: the list, drawn anew when a session comes or changes its place, and each row.
func (p *sessionsPage) parts() []part {
	groups := p.groups()
	parts := []part{{id: "sessions", draw: sessionList(groups)}}
	var order strings.Builder
	for _, g := range groups {
		order.WriteString(g.ID)
		for _, row := range g.Rows {
			order.WriteString(" " + row.ID)
			parts = append(parts, part{id: row.ID, key: row.Key, at: row.Changed, draw: sessionTableRow(row)})
			parts[0].at = later(parts[0].at, row.Changed)
		}
		order.WriteString("\n")
	}
	parts[0].key = order.String()
	return parts
}

func (p *sessionsPage) groups() []sessionGroup {
	rows := make([]sessionRow, len(p.sessions))
	for i, session := range p.sessions {
		rows[i] = newSessionRow(session, p.active(session), p.s.o.Provider.accountID(), p.s.o.Now())
	}
	return groupSessions(rows)
}

// sessionRow is what the list shows of a session.
type sessionRow struct {
	ID, Title, Path string
	State           forkcore.State
	Reason          *forkcore.Reason
	// Fresh is true before the first message.
	Fresh         bool
	Archived      bool
	Forks         string // those at work; empty: none
	HitRate, Cost string
	Model         string
	Workspace     string // absolute path
	Folder        string // its last element
	Warm          *warmth
	Created       time.Time
	Changed       time.Time
	// Key differs whenever the row is drawn differently.
	Key string
}

// warmth is a prefix that the provider may still hold.
type warmth struct {
	Until  time.Time
	Left   string // for browsers without scripts
	Tokens string
	Over   string // what is said once it is over
	// OtherKey: the key in use cannot read it, so that it is as good as over.
	OtherKey bool
}

func newSessionRow(s forkcore.Session, active *forkcore.Run, account string, now time.Time) sessionRow {
	row := sessionRow{
		ID: s.ID, Title: sessionTitle(s), Path: pathSession + s.ID, Forks: forksAtWork(s),
		HitRate: percent(forkcore.Run{Usage: s.Usage}.HitRate().Total), Cost: dollars(s.Cost.Known()),
		Model: s.Model, Workspace: s.Workspace, Folder: folderName(s.Workspace),
		Warm: newWarmth(s.Warm, account, now), Created: s.CreatedAt, Changed: s.UpdatedAt, Key: fmt.Sprint(s.Version),
	}
	row.Key += fmt.Sprint(" ", row.Warm != nil && row.Warm.OtherKey)
	row.State, row.Reason = api.SessionState(s, active)
	row.Archived = s.Archived != nil
	row.Key += fmt.Sprint(" ", row.Archived)
	if row.Fresh = s.LastRunID == "" && s.LastState == "" && s.ActiveRunID == "" && s.ActiveRuns == 0 && s.Usage == (forkcore.Usage{}); row.Fresh {
		row.Cost = "–"
	}
	if active != nil {
		row.Key += " " + active.ID + " " + fmt.Sprint(active.Version)
		row.Changed = later(row.Changed, active.UpdatedAt)
	}
	return row
}

// sessionTitle is what pages call a session.
func sessionTitle(s forkcore.Session) string { return cmp.Or(s.Title, "Untitled") }

func forksAtWork(s forkcore.Session) string {
	n := s.ActiveRuns
	if s.ActiveRunID != "" {
		n--
	}
	switch {
	case n <= 0:
		return ""
	case n == 1:
		return "1 fork at work"
	}
	return fmt.Sprintf("%d forks at work", n)
}

const otherKeyNote = "What the provider holds of this session was written with another key: the next request writes its prefix anew."

// newWarmth is what requests of an account can read of an entry.
func newWarmth(e *forkcore.CacheEntry, account string, now time.Time) *warmth {
	if e == nil {
		return nil
	}
	w := &warmth{Until: e.ExpiresAt(), Left: "cold", Tokens: tokensText(e.Tokens, e.Exact), Over: "cold"}
	switch left := w.Until.Sub(now); {
	case left > 0 && !e.HeldFor(account):
		w.OtherKey = true
	case left > 0:
		s := int(left.Round(time.Second) / time.Second)
		w.Left = fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return w
}

// priced says as well what sending costs once it is over: writing the prefix again.
func (w *warmth) priced(e *forkcore.CacheEntry, model string, prices api.Prices, now time.Time) *warmth {
	if w == nil || prices == nil {
		return w
	}
	info, known := prices.ModelAt(model, now)
	if !known {
		return w
	}
	w.Over = "cold, about " + forkcore.Dollars(forkcore.ColdStart(info, *e)) + " before an answer"
	if w.Left == "cold" {
		w.Left = w.Over
	}
	return w
}

// need is how urgently a session wants a person. The order is that of the list.
type need int

const (
	needAnswer need = iota // it cannot go on without a person
	needLook               // it failed
	needBudget             // its budget is used up
	atWork
	idle
)

// needOf says what a session wants. Waiting for forks, a gate or a limit that passes wants nobody.
func needOf(state forkcore.State, reason *forkcore.Reason) need {
	switch state {
	case forkcore.Waiting:
		if reason != nil && (reason.Code == "permission" || reason.Code == "provider") {
			return needAnswer
		}
		return atWork
	case forkcore.Failed:
		return needLook
	case forkcore.OverBudget:
		return needBudget
	case forkcore.Queued, forkcore.Running, forkcore.Parked:
		return atWork
	case forkcore.Done, forkcore.Cancelled:
	}
	return idle
}

// need is what it wants. An archived session wants nobody: what it failed at is long ago.
func (r sessionRow) need() need {
	if r.Archived {
		return idle
	}
	return needOf(r.State, r.Reason)
}

// sessionGroup is a part of the list with a heading.
type sessionGroup struct {
	ID, Title string
	Rows      []sessionRow
}

// groupSessions puts what needs a person first. Rows at work stay in the order of their making, so that none moves
// under the pointer; the others are sorted by their last change.
func groupSessions(rows []sessionRow) []sessionGroup {
	groups := []sessionGroup{{ID: "needs-you", Title: "Needs you"}, {ID: "at-work", Title: "At work"}, {ID: "idle", Title: "Idle"}}
	slices.SortStableFunc(rows, func(a, b sessionRow) int {
		need := a.need()
		if c := cmp.Compare(need, b.need()); c != 0 {
			return c
		}
		if need == atWork {
			return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(b.Changed.Compare(a.Changed), cmp.Compare(a.ID, b.ID))
	})
	for _, row := range rows {
		g := &groups[0]
		switch row.need() {
		case atWork:
			g = &groups[1]
		case idle:
			g = &groups[2]
		case needAnswer, needLook, needBudget:
		}
		g.Rows = append(g.Rows, row)
	}
	return slices.DeleteFunc(groups, func(g sessionGroup) bool { return len(g.Rows) == 0 })
}

// homeView is what the first page shows.
type homeView struct {
	Groups []sessionGroup
	// Older is the address of the next page; empty on the last one. First is false on all pages but the first.
	Older string
	First bool
	Start startView
}

func (s *Server) home(c echo.Context) error {
	return s.renderHome(c, http.StatusOK, startView{})
}

// renderHome draws the first page. start holds what a form of the start panel came to.
func (s *Server) renderHome(c echo.Context, status int, start startView) error {
	cursor := ""
	if c.Request().Method != http.MethodPost {
		cursor = c.QueryParam("cursor")
	}
	p, last, err := s.loadSessions(c.Request().Context(), cursor)
	if err != nil {
		return err
	}
	v := homeView{Groups: p.groups(), First: cursor == ""}
	if v.First {
		if start.Sample.Last, err = s.lastSample(c.Request().Context(), p.sessions); err != nil {
			return err
		}
		// Newcomers, who have seen the sample at most, are shown what comes next.
		start.Open = start.Open || !slices.ContainsFunc(p.sessions, func(s forkcore.Session) bool { return s.Title != sampleTitle })
		v.Start = s.fillStart(c.Request().Context(), start)
	}
	if p.next != "" {
		v.Older = pathHome + "?" + url.Values{"cursor": {p.next}}.Encode()
	}
	f := s.frame(c, "Sessions")
	f.Nav = navHome
	live := url.Values{"after": {last.String()}}
	if cursor != "" {
		live.Set("cursor", cursor)
	}
	f.Live = pathLive + "?" + live.Encode()
	return s.render(c, status, homePage(f, v))
}

func (s *Server) homeLive(c echo.Context) error {
	cursor := c.QueryParam("cursor")
	return s.stream(c, "", func(ctx context.Context) (livePage, sse.ID, error) { return s.loadSessions(ctx, cursor) })
}
