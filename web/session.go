package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
	"forkyard/web/sse"
)

const (
	// sessionRuns is how many runs the page of a session holds, the newest ones.
	sessionRuns = 200
	// sessionEntries is how many entries of the conversation are drawn; more slow browsers down.
	sessionEntries = 150
	// openFanOuts is how many fan-outs are drawn open, the newest ones.
	openFanOuts = 3
)

// InboxReader reads what waits to be told to a session's main agent, oldest first.
type InboxReader interface {
	Inbox(ctx context.Context, sessionID string) ([]forkcore.InboxItem, error)
}

// sessionPage is the page of one session: the conversation and its forks.
type sessionPage struct {
	s       *Server
	session forkcore.Session
	runs    map[string]forkcore.Run
	order   []string // ids of runs, newest first
	fanOuts map[string]forkcore.Dispatch
	rows    map[string][]forkcore.RequestRow // of forks
	log     *transcript                      // the main log
	inbox   []forkcore.InboxItem
	watch   string                 // a run whose messages a person wants to see in the conversation
	inline  map[string]*transcript // of the runs that are shown there
	skip    int                    // how many entries are left out at the beginning of the conversation; below 0: as many as there are too many
	more    bool                   // there are older runs than those held

	entries []entryView // of log and runs; nil when they changed
}

// loadSession reads the page and the id of an event that it is sure to contain.
func (s *Server) loadSession(ctx context.Context, id string, skip int, watch string) (*sessionPage, sse.ID, error) {
	last, err := s.lastEvent(ctx, id)
	if err != nil {
		return nil, last, err
	}
	p := &sessionPage{
		s: s, skip: skip, watch: watch, inline: map[string]*transcript{}, log: newTranscript(id), runs: map[string]forkcore.Run{}, fanOuts: map[string]forkcore.Dispatch{}, rows: map[string][]forkcore.RequestRow{},
	}
	if p.session, err = s.o.Reader.Session(ctx, id); err != nil {
		return nil, last, err
	}
	runs, next, err := s.o.Reader.RunsOf(ctx, id, "", sessionRuns)
	if err != nil {
		return nil, last, err
	}
	p.more = next != ""
	main := ""
	for _, r := range runs {
		p.runs[r.ID] = r
		p.order = append(p.order, r.ID)
		if r.Kind == forkcore.KindMain {
			main = r.ID
		}
		if err := p.readFanOut(ctx, r); err != nil {
			return nil, last, err
		}
		if r.Kind == forkcore.KindMain {
			continue
		}
		if p.rows[r.ID], err = s.o.Reader.Requests(ctx, r.ID); err != nil {
			return nil, last, err
		}
	}
	if main == "" {
		main = p.session.LastRunID // older than the runs held
	}
	if main != "" {
		if err := p.readLog(ctx, main); err != nil {
			return nil, last, err
		}
	}
	if err := p.readInline(ctx); err != nil {
		return nil, last, err
	}
	return p, last, p.readInbox(ctx)
}

// lastEvent is the id of a session's latest event.
func (s *Server) lastEvent(ctx context.Context, sessionID string) (sse.ID, error) {
	text, err := s.o.Events.LastEventID(ctx, sessionID)
	if err != nil {
		return sse.ID{}, err
	}
	return sse.ParseID(text)
}

// readLog reads what the main log has after the last line that is known; the run is any main turn.
func (p *sessionPage) readLog(ctx context.Context, runID string) error {
	lines, err := p.s.o.Bytes.Transcript(ctx, runID, p.log.last())
	if err != nil {
		return err
	}
	p.log.add(lines...)
	return nil
}

func (p *sessionPage) readFanOut(ctx context.Context, r forkcore.Run) error {
	if _, known := p.fanOuts[r.DispatchID]; known || r.DispatchID == "" {
		return nil
	}
	d, err := p.s.o.Reader.Dispatch(ctx, r.DispatchID)
	if err != nil {
		return err
	}
	p.fanOuts[d.ID] = d
	return nil
}

// readInbox reads what people typed during the turn; the rest of the inbox shows as forks that ended.
func (p *sessionPage) readInbox(ctx context.Context) error {
	items, err := p.s.o.Inbox.Inbox(ctx, p.session.ID)
	if err != nil {
		return err
	}
	p.inbox = slices.DeleteFunc(items, func(i forkcore.InboxItem) bool { return i.Kind != "message" })
	return nil
}

func (p *sessionPage) apply(ctx context.Context, e forkcore.Event) error {
	if err := p.applyToSession(ctx, e); err != nil {
		return err
	}
	if e.Run != nil || e.Entry != nil {
		return p.readInline(ctx)
	}
	return nil
}

func (p *sessionPage) applyToSession(ctx context.Context, e forkcore.Event) error {
	switch {
	case e.Session != nil:
		if e.Session.Version > p.session.Version {
			p.session = *e.Session
			return p.readInbox(ctx)
		}
	case e.Run != nil:
		return p.applyRun(ctx, *e.Run)
	case e.Dispatch != nil:
		if e.Dispatch.Version > p.fanOuts[e.Dispatch.ID].Version {
			p.fanOuts[e.Dispatch.ID] = *e.Dispatch
		}
	case e.Request != nil:
		if row := *e.Request; p.runs[row.RunID].DispatchID != "" {
			p.rows[row.RunID] = mergeRow(p.rows[row.RunID], row)
		}
	case e.Entry != nil:
		if e.AgentID == p.session.ID {
			return p.applyEntry(ctx, *e.Entry)
		}
	}
	return nil
}

func (p *sessionPage) applyRun(ctx context.Context, r forkcore.Run) error {
	old, known := p.runs[r.ID]
	if known && r.Version <= old.Version {
		return nil
	}
	if !known {
		if n := len(p.order); p.more && n > 0 && r.CreatedAt.Before(p.runs[p.order[n-1]].CreatedAt) {
			return nil // older than the runs held
		}
		// Ids do not sort; what is created later comes later.
		p.order = slices.Insert(p.order, 0, r.ID)
	}
	p.runs[r.ID] = r
	if old.State != r.State || old.Title != r.Title {
		p.entries = nil // they show the states of the forks they started
	}
	return p.readFanOut(ctx, r)
}

func (p *sessionPage) applyEntry(ctx context.Context, e forkcore.Entry) error {
	switch have := p.log.last(); {
	case e.Seq <= have:
		return nil
	case e.Seq == have+1:
		line, err := p.s.o.Bytes.Assemble(ctx, p.session.ID, e, p.session.ID)
		if err != nil {
			return err
		}
		p.log.add(line)
	default: // something was missed
		if err := p.readLog(ctx, e.RunID); err != nil {
			return err
		}
	}
	p.entries = nil
	if e.Kind == forkcore.EntryMessage {
		return p.readInbox(ctx) // what waited may have been told
	}
	return nil
}

// active is the main turn in progress.
func (p *sessionPage) active() (forkcore.Run, bool) {
	r, ok := p.runs[p.session.ActiveRunID]
	return r, ok
}

func (p *sessionPage) conversation() []entryView {
	if p.entries == nil {
		p.entries = p.log.entries(p.runs)
	}
	if hidden := p.hidden(); hidden > 0 {
		return p.entries[hidden:]
	}
	return p.entries
}

// hidden is how many entries are left out.
func (p *sessionPage) hidden() int {
	if p.skip >= 0 {
		return min(p.skip, len(p.entries))
	}
	return max(0, len(p.entries)-sessionEntries)
}

// fanOut is a dispatch with its cards.
type fanOut struct {
	header  fanOutView
	cards   []forkCardView
	open    bool
	created time.Time
}

func (p *sessionPage) groups() []fanOut {
	var groups []fanOut
	seen := map[string]bool{}
	titles := map[string]string{}
	for id, r := range p.runs {
		switch r.Kind {
		case forkcore.KindFork, forkcore.KindAgent:
			titles[id] = runTitle(r)
		case forkcore.KindMain: // any of them: the session speaks of the latest alone
			titles[id] = "the main turn"
		}
	}
	for _, id := range p.order {
		r := p.runs[id]
		d, known := p.fanOuts[r.DispatchID]
		if !known || seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		var runs []forkcore.Run
		g := fanOut{open: len(groups) < openFanOuts, created: d.CreatedAt}
		for _, id := range d.RunIDs {
			r, known := p.runs[id]
			if !known {
				continue // its event comes next, or it is older than the runs held
			}
			runs = append(runs, r)
			w, writing := p.s.drafts.of(id)
			card := newForkCard(r, p.rows[id], w, writing, p.session, titles)
			if r.State == forkcore.Queued && p.s.unserved(p.session.Root) {
				card.Wait, card.Key = "Waits for a worker that has its workspace, and none is there", card.Key+" unserved"
			}
			g.cards = append(g.cards, card)
		}
		g.header = newFanOut(d, runs, p.s.o.Prices)
		groups = append(groups, g)
	}
	return groups
}

func (p *sessionPage) parts() []part {
	head := p.head()
	parts := []part{{id: "session-head", key: head.key, at: head.at, draw: sessionHead(head)}}
	conversation := p.conversation()
	for _, e := range conversation {
		parts = append(parts, part{id: e.ID, list: "log", key: e.Key, at: e.At, draw: entryItem(p.s.markdown, e)})
	}
	inline := p.inlineRuns()
	parts = append(parts, part{id: inline.ID, key: inline.key, at: inline.at, draw: inlineRuns(p.s.markdown, inline), pace: inline.pace})
	w, _ := p.s.drafts.of(p.session.ActiveRunID)
	turn := p.turn(len(conversation))
	parts = append(parts,
		part{id: "draft", key: fmt.Sprint(p.session.ActiveRunID, w.Seq, " ", w.Version), draw: draftItem(p.s.markdown, "draft", w), pace: w.pace()},
		part{id: "turn", key: turn.key, draw: turnPart(turn)},
	)
	groups := p.groups()
	panel := forksPanelOf(p.session, groups, p.more)
	parts = append(parts, part{id: "forks", key: panel.key, at: panel.at, draw: forksPanel(panel)})
	for _, g := range groups {
		parts = append(parts, part{id: g.header.ID, key: g.header.Key, at: g.header.At, draw: fanOutHeader(g.header)})
		for _, c := range g.cards {
			parts = append(parts, part{id: c.ID, key: c.Key, at: c.At, draw: forkCard(c)})
		}
	}
	return parts
}

// sessionHeadView is the line of figures above a session.
type sessionHeadView struct {
	key    string
	at     time.Time
	Fresh  bool // nothing ran yet
	State  forkcore.State
	Reason *forkcore.Reason
	// What the cache gave and what it cost.
	HitRate, Cost, Tokens string
	Warm                  *warmth
	Budget                *budgetView
	Model, Mode           string
	Permission            string
	Workspace, ID         string
	Key                   string // that its latest request had; empty before the first
	CanArchive            bool   // nothing of it is at work, and there is an archive
}

// boundTo says whether a session's latest request had the key in use, of which pages show key.
func boundTo(account, inUse, key string) string {
	key = cmp.Or(key, "the one in use")
	switch {
	case account == "" || inUse == "":
		return ""
	case account == inUse:
		return key
	}
	return "another one than " + key + ", which is in use: caches are cold, and the next request writes its prefix anew"
}

func (p *sessionPage) head() sessionHeadView {
	s, provider, now := p.session, p.s.o.Provider, p.s.o.Now()
	inUse := provider.accountID()
	v := sessionHeadView{
		at: s.UpdatedAt, HitRate: percent(forkcore.Run{Usage: s.Usage}.HitRate().Total), Cost: dollars(s.Cost.Known()),
		Tokens: grouped(s.Usage.TotalInput()) + " in, " + grouped(s.Usage.Output) + " out", Warm: newWarmth(s.Warm, inUse, now).priced(s.Warm, s.Model, p.s.o.Prices, now),
		Model: s.Model, Mode: string(s.Mode), Permission: string(s.PermissionMode), Workspace: s.Workspace, ID: s.ID,
		Key: boundTo(s.Account, inUse, provider.shownKey()),
	}
	var active *forkcore.Run
	if r, ok := p.active(); ok {
		active = &r
		v.at = later(v.at, r.UpdatedAt)
	}
	v.State, v.Reason = api.SessionState(s, active)
	v.Fresh = len(p.runs) == 0
	v.CanArchive = s.ActiveRuns == 0 && p.s.canArchive()
	v.Budget = newBudget(s.ID, pathSession+s.ID, pathSession+s.ID, s.BudgetNanoUSD, s.Cost.NanoUSD)
	v.key = fmt.Sprint(s.Version, " ", v.State, " ", v.Fresh, " ", inUse)
	if active != nil {
		v.key += fmt.Sprint(" ", active.Version)
	}
	return v
}

// turnView is what stands between the conversation and the composer: what waits, and what can be done about the turn.
type turnView struct {
	key       string
	SessionID string
	Empty     bool // nothing was said yet
	Busy      bool // a main turn is in progress
	RunID     string
	State     forkcore.State
	Reason    *forkcore.Reason
	Since     time.Time
	// Foreground turns can be moved to a worker; they move by themselves at Moves, unless that is zero.
	Foreground bool
	Moves      time.Time
	Resume     string // the turn to take up again; empty when the last one is done
	Tree       bool   // something runs that stopping the tree would end
	Queued     []queuedView
}

// queuedView is a message that the agent has not read yet.
type queuedView struct {
	ID, Text string
	At       time.Time
}

func (p *sessionPage) turn(entries int) turnView {
	s := p.session
	v := turnView{SessionID: s.ID, Empty: entries == 0, Tree: s.ActiveRuns > 0}
	v.key = fmt.Sprint(s.ActiveRunID, s.ActiveRuns, v.Empty)
	if s.ActiveRunID == "" && s.LastRunID != "" && s.LastState != forkcore.Done {
		v.Resume = pathRun + s.LastRunID + "/resume"
		v.key += v.Resume
	}
	if r, ok := p.active(); ok {
		v.Busy, v.RunID, v.State, v.Reason, v.Since = true, r.ID, r.State, r.Reason, r.StartedAt
		v.Foreground = !r.Background && (r.State == forkcore.Running || r.State == forkcore.Waiting && r.Reason != nil && r.Reason.Code == forkcore.WaitChildren)
		if v.Foreground && r.State == forkcore.Running && s.AutoBackground > 0 {
			v.Moves = r.StartedAt.Add(s.AutoBackground)
		}
		v.key += fmt.Sprint(" ", r.Version)
	}
	for _, i := range p.inbox {
		// The first message of a turn is on its way into the conversation, not in a queue.
		if v.Busy && !i.At.After(v.Since) {
			continue
		}
		v.Queued = append(v.Queued, queuedView{ID: i.ID, Text: i.Text, At: i.At})
		v.key += " " + i.ID
	}
	return v
}

// forksPanelView is the list of fan-outs.
type forksPanelView struct {
	key       string
	at        time.Time
	SessionID string
	CanFork   bool
	Mode      string
	Groups    []fanOut
	More      bool
}

func forksPanelOf(s forkcore.Session, groups []fanOut, more bool) forksPanelView {
	v := forksPanelView{SessionID: s.ID, CanFork: s.Mode == forkcore.ModeFork, Mode: string(s.Mode), Groups: groups, More: more, at: s.CreatedAt}
	for _, g := range groups {
		v.key += g.header.ID + " " + strconv.Itoa(len(g.cards)) + strconv.FormatBool(g.open) + " "
		v.at = later(v.at, g.created)
	}
	return v
}

// sessionView is the whole page.
type sessionView struct {
	ID, Title string
	Head      sessionHeadView
	Entries   []entryView
	Hidden    int
	Inline    inlineView
	Draft     draft
	Turn      turnView
	Panel     forksPanelView
	Key       string // of the next message
}

func (p *sessionPage) view() sessionView {
	v := sessionView{ID: p.session.ID, Title: sessionTitle(p.session), Head: p.head(), Entries: p.conversation(), Key: newSecret()}
	v.Hidden = p.hidden()
	v.Inline = p.inlineRuns()
	v.Draft, _ = p.s.drafts.of(p.session.ActiveRunID)
	v.Turn = p.turn(len(v.Entries))
	v.Panel = forksPanelOf(p.session, p.groups(), p.more)
	return v
}

func (s *Server) sessionPage(c echo.Context) error {
	skip := -1
	if c.QueryParam("all") != "" {
		skip = 0
	}
	watch := c.QueryParam("watch")
	p, last, err := s.loadSession(c.Request().Context(), c.Param("id"), skip, watch)
	if err != nil {
		return err
	}
	v := p.view()
	f := s.frame(c, v.Title)
	// The stream leaves out what the page does, however much is said while the tab is away.
	f.Wide, f.Live = true, fmt.Sprintf("%s%s/live?after=%s&skip=%d&watch=%s", pathSession, v.ID, last, v.Hidden, url.QueryEscape(watch))
	return s.render(c, http.StatusOK, sessionPageView(f, s.markdown, v))
}

func (s *Server) sessionLive(c echo.Context) error {
	id := c.Param("id")
	skip, err := strconv.Atoi(cmp.Or(c.QueryParam("skip"), "0"))
	if err != nil || skip < 0 {
		return forkcore.Invalid("skip", "must be the number of entries that the page leaves out")
	}
	return s.stream(c, id, func(ctx context.Context) (livePage, sse.ID, error) {
		p, last, err := s.loadSession(ctx, id, skip, c.QueryParam("watch"))
		return p, last, err
	})
}

// sendMessage takes a text from the composer.
func (s *Server) sendMessage(c echo.Context) error {
	id := c.Param("id")
	sent, err := readForm(c)
	if err != nil {
		return err
	}
	key := sent.Get("key")
	if len(key) > maxFormKey {
		return forkcore.Invalid("key", fmt.Sprintf("has %d bytes, at most %d are allowed", len(key), maxFormKey))
	}
	if _, err := s.o.Runner.SendMessage(c.Request().Context(), id, sent.Get("text"), key); err != nil {
		return err
	}
	return s.done(c, pathSession+id)
}

// stopSession stops the turn, or everything.
func (s *Server) stopSession(c echo.Context) error {
	id := c.Param("id")
	if _, err := s.o.Runner.Stop(c.Request().Context(), id, c.FormValue("scope")); err != nil {
		return err
	}
	return s.done(c, pathSession+id)
}

// done answers a write whose effect the stream shows.
func (s *Server) done(c echo.Context, back string) error {
	if isHTMX(c) {
		return c.NoContent(http.StatusNoContent)
	}
	return c.Redirect(http.StatusSeeOther, back)
}

// isHTMX reports whether a part of a page asks, not a person who wants a page.
func isHTMX(c echo.Context) bool { return c.Request().Header.Get("HX-Request") != "" }
