package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// requestView is one provider request: a row of the page of a run and the head of its own page.
type requestView struct {
	ID      string // of its element
	N       int64
	Attempt int
	Path    string
	Model   string
	Status  forkcore.RequestStatus
	Started time.Time
	First   string // time to the first token
	Took    string
	Why     whyView
	// Expected, Read, Written, Uncached and Output are token counts, a dash when nobody knows.
	Expected, Read, Written, Uncached, Output string
	// ExpectedNote says how the expectation is known.
	ExpectedNote string
	OutputNote   string
	Cost         string
	StopReason   string
	// Refusal is what the provider told about a refusal; empty: nothing.
	Refusal string
	// Limits are the rate limits that the response told.
	Limits []forkcore.RateLimit
	Error  string
	// Writer is the request whose entry was expected or read; empty path: none.
	Writer link
}

// link is an address and what it says.
type link struct{ Path, Text string }

const unknownFigure = "–"

func newRequestView(row forkcore.RequestRow, names map[string]string) requestView {
	v := requestView{
		ID: fmt.Sprintf("request-%s-%d", row.RunID, row.N), N: row.N, Attempt: row.Attempt, Path: requestPath(row.RunID, row.N), Model: row.Model,
		Status: row.Status, Started: row.StartedAt, Why: newNamedWhy(row, names), StopReason: stopReason(row), Error: row.Error,
		First: between(row.StartedAt, row.FirstEventAt), Took: between(row.StartedAt, row.EndedAt),
		Expected: unknownFigure, Read: unknownFigure, Written: unknownFigure, Uncached: unknownFigure, Output: unknownFigure, Cost: unknownFigure,
	}
	v.Limits = row.Limits
	if d := row.StopDetails; d != nil {
		v.Refusal = "The provider refused to go on"
		if d.Category != "" {
			v.Refusal += " (" + strings.ReplaceAll(d.Category, "_", " ") + ")"
		}
		v.Refusal += "."
		if d.Explanation != "" {
			v.Refusal += " " + d.Explanation
		}
	}
	if row.ExpectedRead != nil {
		v.Expected = grouped(*row.ExpectedRead)
		switch {
		case *row.ExpectedRead == 0:
			v.ExpectedNote = "nothing known to be cached"
		case row.ExpectedExact:
			v.ExpectedNote = "counted"
		default:
			v.ExpectedNote = "estimated"
		}
	}
	if u := row.Usage; u != nil {
		v.Read, v.Written, v.Uncached, v.Output = grouped(u.CacheRead), grouped(u.CacheWrite5m+u.CacheWrite1h), grouped(u.Input), grouped(u.Output)
		v.Cost = dollars(row.Cost)
		if row.Status == forkcore.RequestOpen {
			v.OutputNote = "so far"
		} else if row.Estimated {
			v.OutputNote = "estimated"
		}
	}
	if ref := writerOf(row); ref != nil {
		v.Writer = link{requestPath(ref.RunID, ref.N), fmt.Sprintf("request %d of %s", ref.N, nameOf(ref.RunID, row.RunID, names))}
	}
	return v
}

// writerOf is the request whose entry was read, or was to be read.
func writerOf(row forkcore.RequestRow) *forkcore.RequestRef {
	if row.ReadFrom != nil {
		return row.ReadFrom
	}
	return row.ExpectedFrom
}

func nameOf(runID, self string, names map[string]string) string {
	switch {
	case runID == self:
		return "this run"
	case names[runID] != "":
		return "“" + names[runID] + "”"
	}
	return runID
}

func requestPath(runID string, n int64) string {
	return pathRun + runID + "/requests/" + strconv.FormatInt(n, 10)
}

// between is how long it took from one moment to another, a dash while that has not come.
func between(from time.Time, to *time.Time) string {
	if to == nil || to.IsZero() || from.IsZero() {
		return unknownFigure
	}
	return shortDuration(to.Sub(from))
}

func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return unknownFigure
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	default:
		return fmt.Sprintf("%d:%02d min", int(d.Minutes()), int(d.Seconds())%60)
	}
}

// requestPageView is the page of one request.
type requestPageView struct {
	requestView
	Run, Session   link
	Previous, Next string // paths; empty: none
	Prefix         string // SHA-256
	PrefixBytes    string
	Body           string
	BodyBytes      string
	RawPath        string
	ChecksPath     string
	ProviderID     string
	Compare        []link
	Siblings       compareForm
	// Trouble says why the bytes cannot be shown; then Anatomy is empty.
	Trouble string
	Anatomy anatomyView
}

func (s *Server) requestPage(c echo.Context) error {
	n, err := strconv.ParseInt(c.Param("n"), 10, 64)
	if err != nil || n < 1 {
		return forkcore.ErrNotFound
	}
	v, err := s.readRequestPage(c.Request().Context(), c.Param("id"), n)
	if err != nil {
		return err
	}
	f := s.frame(c, fmt.Sprintf("Request %d of %s", n, v.Run.Text))
	f.Wide = true
	return s.render(c, http.StatusOK, requestPage(f, v))
}

func (s *Server) readRequestPage(ctx context.Context, runID string, n int64) (requestPageView, error) {
	run, rows, err := s.runAndRequests(ctx, runID)
	if err != nil {
		return requestPageView{}, err
	}
	row := findRequest(rows, n)
	if row == nil {
		return requestPageView{}, fmt.Errorf("request %d of run %s: %w", n, runID, forkcore.ErrNotFound)
	}
	session, err := s.o.Reader.Session(ctx, run.SessionID)
	if err != nil {
		return requestPageView{}, err
	}
	siblings, err := s.siblings(ctx, run)
	if err != nil {
		return requestPageView{}, err
	}
	names := map[string]string{run.ID: runTitle(run)}
	for _, r := range siblings {
		names[r.ID] = runTitle(r)
	}
	if err := s.nameWriters(ctx, names, *row); err != nil {
		return requestPageView{}, err
	}
	v := requestPageView{
		requestView: newRequestView(*row, names),
		Run:         link{pathRun + run.ID, runTitle(run)}, Session: sessionLink(session),
		Prefix: row.Prefix.String(), PrefixBytes: grouped(row.PrefixBytes), Body: row.Body.String(), BodyBytes: grouped(row.BodyBytes),
		RawPath: prefixAPI + requestPath(run.ID, n) + "/body", ProviderID: row.ProviderRequestID,
		ChecksPath: checksPath(requestKey(forkcore.RequestRef{RunID: run.ID, N: n})),
		Siblings:   newCompareForm(run, n, siblings),
	}
	if findRequest(rows, n-1) != nil {
		v.Previous = requestPath(run.ID, n-1)
		v.Compare = append(v.Compare, link{comparePath(forkcore.RequestRef{RunID: run.ID, N: n - 1}, forkcore.RequestRef{RunID: run.ID, N: n}), "With the previous request"})
	}
	if findRequest(rows, n+1) != nil {
		v.Next = requestPath(run.ID, n+1)
	}
	ref := writerOf(*row)
	if ref != nil && (ref.RunID != run.ID || ref.N != n-1) {
		v.Compare = append(v.Compare, link{comparePath(*ref, forkcore.RequestRef{RunID: run.ID, N: n}), "With the request that wrote the cache entry"})
	}
	body, err := s.o.Bytes.RequestBody(ctx, run.ID, n)
	switch {
	case errors.Is(err, forkcore.ErrCorrupt):
		v.Trouble = "The stored bytes of this request do not match their SHA-256: they are damaged and not shown."
		return v, nil
	case err != nil:
		return requestPageView{}, err
	}
	writer, err := s.readRef(ctx, ref)
	if err != nil {
		return requestPageView{}, err
	}
	if v.Anatomy, err = newAnatomy(body, *row, writer); err != nil {
		s.o.Log.Error("a request cannot be taken apart", "run_id", run.ID, "n", n, "error", err)
		v.Trouble = "The bytes of this request cannot be taken apart here. The raw body shows them as they were sent."
	}
	return v, nil
}

// runAndRequests reads a run and its requests; an unknown run is not found, rather than a run without requests.
func (s *Server) runAndRequests(ctx context.Context, runID string) (forkcore.Run, []forkcore.RequestRow, error) {
	run, err := s.o.Reader.Run(ctx, runID)
	if err != nil {
		return forkcore.Run{}, nil, err
	}
	rows, err := s.o.Reader.Requests(ctx, runID)
	return run, rows, err
}

func findRequest(rows []forkcore.RequestRow, n int64) *forkcore.RequestRow {
	for i := range rows {
		if rows[i].N == n {
			return &rows[i]
		}
	}
	return nil
}

// readRef reads the row that is named; nil when none is named or it is gone.
func (s *Server) readRef(ctx context.Context, ref *forkcore.RequestRef) (*forkcore.RequestRow, error) {
	if ref == nil {
		return nil, nil
	}
	rows, err := s.o.Reader.Requests(ctx, ref.RunID)
	if errors.Is(err, forkcore.ErrNotFound) || errors.Is(err, forkcore.ErrBadID) {
		return nil, nil
	}
	return findRequest(rows, ref.N), err
}

// nameWriters adds the titles of the runs whose entries the rows were to read.
func (s *Server) nameWriters(ctx context.Context, names map[string]string, rows ...forkcore.RequestRow) error {
	for _, row := range rows {
		for _, ref := range []*forkcore.RequestRef{row.ExpectedFrom, row.ReadFrom} {
			if ref == nil || names[ref.RunID] != "" {
				continue
			}
			r, err := s.o.Reader.Run(ctx, ref.RunID)
			switch {
			case errors.Is(err, forkcore.ErrNotFound), errors.Is(err, forkcore.ErrBadID):
				names[ref.RunID] = ref.RunID
			case err != nil:
				return err
			default:
				names[ref.RunID] = runTitle(r)
			}
		}
	}
	return nil
}

// mergeRow puts the row of an event among those of its run, in order of N. Events may come that the rows were read after.
func mergeRow(rows []forkcore.RequestRow, row forkcore.RequestRow) []forkcore.RequestRow {
	i, known := slices.BinarySearchFunc(rows, row.N, func(r forkcore.RequestRow, n int64) int { return cmp.Compare(r.N, n) })
	switch {
	case !known:
		rows = slices.Insert(rows, i, row)
	case progress(row) >= progress(rows[i]):
		rows[i] = row
	}
	return rows
}

// progress tells an earlier version of a row from a later one; rows carry no number for it.
func progress(r forkcore.RequestRow) int {
	switch {
	case r.EndedAt != nil || r.Status != forkcore.RequestOpen:
		return 2
	case r.FirstEventAt != nil:
		return 1
	}
	return 0
}

func sessionLink(s forkcore.Session) link { return link{pathSession + s.ID, sessionTitle(s)} }

func verdictWord(verdict string) string {
	switch verdict {
	case verdictHit:
		return "cache hit"
	case verdictPartial:
		return "partly read"
	case verdictMiss:
		return "cache miss"
	case verdictCold:
		return "cold"
	}
	return "not known"
}

// statusWord is empty for requests that went well.
func statusWord(s forkcore.RequestStatus) string {
	switch s {
	case forkcore.RequestOpen:
		return "in flight"
	case forkcore.RequestAborted:
		return "cut off"
	case forkcore.RequestError:
		return "failed"
	}
	return ""
}

func orDash(s string) string {
	if s == "" {
		return unknownFigure
	}
	return s
}

// segmentClass is that of a group which is of one class, as tools always are.
func segmentClass(list []segmentView) string {
	for _, s := range list {
		if s.Class != list[0].Class {
			return ""
		}
	}
	return list[0].Class
}

// stopReason says why an answer ended, or that there was to be none.
func stopReason(row forkcore.RequestRow) string {
	if row.Refresh && row.Status == forkcore.RequestOK {
		return "kept the cache warm"
	}
	return strings.ReplaceAll(row.StopReason, "_", " ")
}
