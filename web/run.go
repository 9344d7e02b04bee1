package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
	"forkyard/web/sse"
)

// runModel is what the page of a run is drawn from. It is a livePage.
type runModel struct {
	s        *Server
	run      forkcore.Run
	session  forkcore.Session
	siblings []forkcore.Run // with the run itself, in order
	rows     []forkcore.RequestRow
	names    map[string]string // of runs, by id
	log      *transcript
	seq      int64 // of the last entry of the log that was read
}

// siblingLimit is how many runs of a session are looked through for other main turns.
const siblingLimit = 100

func (s *Server) readRun(ctx context.Context, id string) (*runModel, sse.ID, error) {
	run, err := s.o.Reader.Run(ctx, id)
	if err != nil {
		return nil, sse.ID{}, err
	}
	// The cursor first: whatever comes after it is applied again and changes nothing.
	cursor, err := s.lastEvent(ctx, run.SessionID)
	if err != nil {
		return nil, sse.ID{}, err
	}
	m := &runModel{s: s}
	if m.run, m.rows, err = s.runAndRequests(ctx, id); err != nil {
		return nil, sse.ID{}, err
	}
	if m.session, err = s.o.Reader.Session(ctx, run.SessionID); err != nil {
		return nil, sse.ID{}, err
	}
	if m.siblings, err = s.siblings(ctx, m.run); err != nil {
		return nil, sse.ID{}, err
	}
	m.log = newTranscript(m.run.AgentID)
	m.names = map[string]string{id: runTitle(m.run)}
	for _, r := range m.siblings {
		m.names[r.ID] = runTitle(r)
	}
	if err := s.nameWriters(ctx, m.names, m.rows...); err != nil {
		return nil, sse.ID{}, err
	}
	return m, cursor, m.readLog(ctx)
}

// readLog reads what the log has after the last entry that is known.
func (m *runModel) readLog(ctx context.Context) error {
	lines, err := m.s.o.Bytes.Transcript(ctx, m.run.ID, m.seq)
	if err != nil {
		return err
	}
	for _, l := range lines {
		m.addLine(l)
	}
	return nil
}

// addLine takes in a line of the agent's log; a main log holds those of other turns too.
func (m *runModel) addLine(l forkcore.TranscriptLine) {
	m.seq = l.Seq
	if l.RunID == m.run.ID {
		m.log.add(l)
	}
}

// siblings are the runs of one dispatch in order, and for a main turn the latest main turns of its session; the run
// itself is one of them.
func (s *Server) siblings(ctx context.Context, run forkcore.Run) ([]forkcore.Run, error) {
	if run.DispatchID == "" {
		runs, _, err := s.o.Reader.RunsOf(ctx, run.SessionID, "", siblingLimit)
		if err != nil {
			return nil, err
		}
		runs = slices.DeleteFunc(slices.Clone(runs), func(r forkcore.Run) bool { return r.Kind != run.Kind || r.DispatchID != "" })
		slices.SortStableFunc(runs, func(a, b forkcore.Run) int { return a.CreatedAt.Compare(b.CreatedAt) })
		return runs, nil
	}
	d, err := s.o.Reader.Dispatch(ctx, run.DispatchID)
	if err != nil {
		return nil, err
	}
	runs := make([]forkcore.Run, 0, len(d.RunIDs))
	for _, id := range d.RunIDs {
		r, err := s.o.Reader.Run(ctx, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func (m *runModel) apply(ctx context.Context, e forkcore.Event) error {
	switch {
	case e.Session != nil:
		if e.Session.ID == m.session.ID && e.Session.Version > m.session.Version {
			m.session = *e.Session
		}
	case e.Run != nil:
		m.applyRun(*e.Run)
	case e.Request != nil:
		if e.Request.RunID == m.run.ID {
			return m.applyRequest(ctx, *e.Request)
		}
	case e.Entry != nil:
		if e.AgentID == m.run.AgentID {
			return m.applyEntry(ctx, e)
		}
	}
	return nil
}

func (m *runModel) applyRun(r forkcore.Run) {
	if r.ID == m.run.ID && r.Version > m.run.Version {
		m.run = r
	}
	for i := range m.siblings {
		if m.siblings[i].ID == r.ID {
			if r.Version > m.siblings[i].Version {
				m.siblings[i] = r
			}
			return
		}
	}
	if r.Kind == m.run.Kind && r.DispatchID == "" && m.run.DispatchID == "" && r.SessionID == m.run.SessionID {
		m.siblings = append(m.siblings, r) // a later main turn
		m.names[r.ID] = runTitle(r)
	}
}

func (m *runModel) applyRequest(ctx context.Context, row forkcore.RequestRow) error {
	if err := m.s.nameWriters(ctx, m.names, row); err != nil {
		return err
	}
	m.rows = mergeRow(m.rows, row)
	return nil
}

func (m *runModel) applyEntry(ctx context.Context, e forkcore.Event) error {
	switch {
	case e.Entry.Seq <= m.seq:
		return nil
	case e.Entry.Seq > m.seq+1:
		return m.readLog(ctx) // something was missed
	}
	line := forkcore.TranscriptLine{Seq: e.Entry.Seq, At: e.Entry.At, Kind: e.Entry.Kind, RunID: e.Entry.RunID, Marker: e.Entry.Marker}
	if e.Entry.Kind == forkcore.EntryMessage && e.Entry.RunID == m.run.ID {
		var err error
		if line, err = m.s.o.Bytes.Assemble(ctx, e.SessionID, *e.Entry, e.AgentID); err != nil {
			return err
		}
	}
	m.addLine(line)
	return nil
}

// runHeadView is the top of the page.
type runHeadView struct {
	ID, Title      string
	Session        link
	State          forkcore.State
	Reason         *forkcore.Reason
	Kind           string
	Directive      string
	Stopping       bool // somebody wants it to end, and it has not yet
	CanCancel      bool
	CanBackground  bool
	CanResume      bool
	AtRisk         bool // a request went out with a recomputed prompt
	Warnings       []warning
	Again          string // path of the form that dispatches the same directive; empty: not offered
	Previous, Next string
	Siblings       []siblingView
	SiblingsName   string
	JSONPath       string
}

type siblingView struct {
	Link    link
	State   forkcore.State
	Leader  bool
	Current bool
}

func (m *runModel) head() runHeadView {
	r := m.run
	v := runHeadView{
		ID: r.ID, Title: runTitle(r), Session: sessionLink(m.session), State: r.State, Reason: r.Reason, Kind: "Main turn", Directive: r.Directive,
		Stopping: r.Stop != "" && !r.State.Ended(), CanCancel: !r.State.Ended() && r.Stop == "",
		CanBackground: r.Kind != forkcore.KindFork && !r.Background && !r.State.Ended() && r.Stop == "",
		CanResume:     r.CanResume() || r.Kind == forkcore.KindMain && r.ID == m.session.LastRunID && m.session.ActiveRunID == "" && r.State.Ended() && r.State != forkcore.Done,
		AtRisk:        r.AtRiskRequests > 0, Warnings: warningsOf(r),
		JSONPath: prefixAPI + pathRun + r.ID, SiblingsName: "Main turns",
	}
	if r.Kind == forkcore.KindAgent {
		v.Kind, v.SiblingsName = fmt.Sprintf("Agent %d of %d, %s", r.Index+1, len(m.siblings), r.AgentType), "Agents of this call"
	}
	if r.Kind == forkcore.KindFork {
		v.Kind, v.SiblingsName = fmt.Sprintf("Fork %d of %d", r.Index+1, len(m.siblings)), "Forks of this dispatch"
		if r.Depth > 1 {
			v.Kind += fmt.Sprintf(", started by a fork, at depth %d", r.Depth)
		}
		if r.State == forkcore.Failed || r.State == forkcore.Cancelled || r.State == forkcore.OverBudget {
			v.Again = pathSession + m.session.ID + "/dispatch?" + url.Values{"prompt": {r.Directive}}.Encode()
		}
	}
	for i, s := range m.siblings {
		v.Siblings = append(v.Siblings, siblingView{Link: link{pathRun + s.ID, runTitle(s)}, State: s.State, Leader: s.Leader, Current: s.ID == r.ID})
		if s.ID != r.ID {
			continue
		}
		if i > 0 {
			v.Previous = pathRun + m.siblings[i-1].ID
		}
		if i+1 < len(m.siblings) {
			v.Next = pathRun + m.siblings[i+1].ID
		}
	}
	return v
}

// runReportView is a fork's report, by its labels.
type runReportView struct {
	Parts      []reportPart
	Missing    string // labels that the report does not have
	UsedNoTool bool
	Text       string // of a report without any label
}

type reportPart struct{ Label, Text string }

func newRunReport(run forkcore.Run) *runReportView {
	r := run.Report
	if r == nil {
		return nil
	}
	v := &runReportView{UsedNoTool: run.UsedNoTool()}
	for _, p := range []reportPart{{"Scope", r.Scope}, {"Result", r.Result}, {"Key files", r.KeyFiles}, {"Files changed", r.FilesChanged}, {"Issues", r.Issues}} {
		if p.Text != "" {
			v.Parts = append(v.Parts, p)
		}
	}
	if len(v.Parts) == 0 {
		v.Text = r.Text
	}
	v.Missing = strings.Join(r.Missing, ", ")
	return v
}

// runStatsView are the figures of a run.
type runStatsView struct {
	Bar                           *hitBarView // forks
	Total, Inherited, Own         string
	Cost                          string
	Read, Written, Uncached, Outp string
	ToolUses, Requests            string
	Created, Started, Ended       time.Time
	Waited, Took                  string
}

func (m *runModel) stats() runStatsView {
	r := m.run
	h := r.HitRate()
	v := runStatsView{
		Total: percent(h.Total), Inherited: percent(h.Inherited), Own: percent(h.Own), Cost: dollars(r.Cost.Known()),
		Read: grouped(r.Usage.CacheRead), Written: grouped(r.Usage.CacheWrite5m + r.Usage.CacheWrite1h), Uncached: grouped(r.Usage.Input), Outp: grouped(r.Usage.Output),
		ToolUses: grouped(r.ToolUses), Requests: grouped(r.Requests), Created: r.CreatedAt, Started: r.StartedAt, Ended: r.EndedAt,
		Waited: between(r.CreatedAt, &r.StartedAt), Took: between(r.StartedAt, &r.EndedAt),
	}
	if r.Kind == forkcore.KindFork {
		bar := newHitBar(r)
		v.Bar = &bar
	}
	if h.Total == nil && r.Requests > 0 && r.Cost.Unpriced == 0 && r.Cost.NanoUSD == 0 {
		v.Cost = unknownFigure // requests that nobody has told the usage of yet
	}
	return v
}

// runWhyView is the sentence on the first request, which tells whether the prefix was shared.
type runWhyView struct {
	Why     whyView
	Request link // empty: none has been sent
	Writer  link
	Compare compareForm
	Fork    bool
	Waiting string
}

func (m *runModel) why() runWhyView {
	v := runWhyView{Fork: m.run.Kind == forkcore.KindFork}
	if v.Fork {
		v.Compare = newCompareForm(m.run, 1, m.siblings)
	}
	row := firstRow(m.rows)
	if row == nil {
		v.Why.Verdict, v.Waiting = verdictUnknown, "No request has been sent yet."
		switch m.run.State {
		case forkcore.Parked:
			v.Waiting = "Held by the gate until the leader’s response begins, so that it can read what the leader writes. No request has been sent yet."
		case forkcore.Done, forkcore.Failed, forkcore.Cancelled, forkcore.OverBudget:
			v.Waiting = "This run ended before it sent a request."
		}
		return v
	}
	r := newRequestView(*row, m.names)
	v.Why, v.Writer = r.Why, r.Writer
	v.Request = link{r.Path, fmt.Sprintf("Request %d", r.N)}
	if v.Fork {
		v.Compare = newCompareForm(m.run, row.N, m.siblings)
	}
	return v
}

// firstRow is the first request that got a response, else the first one at all.
func firstRow(rows []forkcore.RequestRow) *forkcore.RequestRow {
	for i := range rows {
		if rows[i].First || rows[i].Usage != nil {
			return &rows[i]
		}
	}
	if len(rows) > 0 {
		return &rows[0]
	}
	return nil
}

// parts draws the page; see livePage.
func (m *runModel) parts() []part {
	head, why, stats, report := m.head(), m.why(), m.stats(), newRunReport(m.run)
	list := []part{
		{id: "run-head", key: keyOf(head), at: time.Time{}, draw: runHead(head)},
		{id: "run-why", key: keyOf(why), draw: runWhy(why)},
		{id: "report", key: keyOf(report), draw: runReport(m.s.markdown, report)},
		{id: "run-stats", key: keyOf(stats), draw: runStats(stats)},
		{id: "run-requests-note", key: fmt.Sprint(len(m.rows) == 0), draw: runRequestsNote(len(m.rows) == 0)},
	}
	for _, row := range m.rows {
		v := newRequestView(row, m.names)
		p := part{id: v.ID, list: "run-requests", key: keyOf(v), draw: requestItem(v)}
		if row.EndedAt != nil {
			p.at = *row.EndedAt
		}
		list = append(list, p)
	}
	list = append(list, m.entryParts()...)
	draft, writing := m.s.drafts.of(m.run.ID)
	key := ""
	if writing {
		key = fmt.Sprint(draft.Seq, draft.Version)
	}
	return append(list, part{id: "run-draft", key: key, draw: runDraft(m.s.markdown, draft, writing), pace: draft.pace()})
}

// keyOf differs whenever a view differs.
func keyOf(view any) string {
	b, err := json.Marshal(view)
	if err != nil {
		return time.Now().String() // draw it rather than miss it
	}
	return string(b)
}

// runPageView is the whole page.
type runPageView struct {
	Parts  map[string]templ.Component
	Rows   []templ.Component
	Lines  []templ.Component
	Notice *forkcore.Reason // what an action came to
}

func (m *runModel) page() runPageView {
	v := runPageView{Parts: map[string]templ.Component{}}
	for _, p := range m.parts() {
		switch p.list {
		case "run-requests":
			v.Rows = append(v.Rows, p.draw)
		case "run-entries":
			v.Lines = append(v.Lines, p.draw)
		default:
			v.Parts[p.id] = p.draw
		}
	}
	return v
}

func (s *Server) runPage(c echo.Context) error {
	return s.renderRun(c, http.StatusOK, c.Param("id"), nil)
}

func (s *Server) renderRun(c echo.Context, status int, id string, notice *forkcore.Reason) error {
	m, cursor, err := s.readRun(c.Request().Context(), id)
	if err != nil {
		return err
	}
	f := s.frame(c, runTitle(m.run))
	f.Live = pathRun + m.run.ID + "/live?after=" + cursor.String()
	v := m.page()
	v.Notice = notice
	return s.render(c, status, runPage(f, v))
}

func (s *Server) runLive(c echo.Context) error {
	id := c.Param("id")
	run, err := s.o.Reader.Run(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return s.stream(c, run.SessionID, func(ctx context.Context) (livePage, sse.ID, error) {
		return s.readRun(ctx, id)
	})
}

func (s *Server) cancelRun(c echo.Context) error {
	return s.actOnRun(c, s.o.Runner.Cancel)
}

func (s *Server) backgroundRun(c echo.Context) error {
	return s.actOnRun(c, s.o.Runner.Background)
}

// actOnRun does something to a run and goes back to the page that asked for it. What does not fit the run's state is said
// on the page of the run: between the click and its arrival a run may have ended.
func (s *Server) actOnRun(c echo.Context, act func(ctx context.Context, runID string) error) error {
	id := c.Param("id")
	err := act(c.Request().Context(), id)
	var conflict *forkcore.ConflictError
	switch {
	case errors.As(err, &conflict), errors.Is(err, forkcore.ErrConflict):
		p := api.ProblemOf(err)
		notice := &forkcore.Reason{Code: "conflict", Message: p.Detail, NextStep: p.NextStep}
		if isHTMX(c) {
			return s.render(c, http.StatusConflict, actionNotice(notice))
		}
		return s.renderRun(c, http.StatusConflict, id, notice)
	case err != nil:
		return err
	}
	back := pathRun + id
	if wish := c.FormValue("back"); wish != "" {
		back = localPath(wish)
	}
	return s.done(c, back)
}

// entryParts are the lines of the transcript.
func (m *runModel) entryParts() []part {
	runs := map[string]forkcore.Run{m.run.ID: m.run}
	for _, r := range m.siblings {
		runs[r.ID] = r
	}
	var list []part
	for _, v := range m.log.entries(runs) {
		list = append(list, part{id: v.ID, list: "run-entries", key: v.Key, at: v.At, draw: entryItem(m.s.markdown, v)})
	}
	return list
}
