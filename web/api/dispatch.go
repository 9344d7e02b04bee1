package api

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// dispatch is a fan-out in JSON.
type dispatch struct {
	ID            string         `json:"id"`
	CreatedAt     *string        `json:"created_at"`
	UpdatedAt     *string        `json:"updated_at"`
	EndedAt       *string        `json:"ended_at"`
	Version       int64          `json:"version"`
	SessionID     string         `json:"session_id"`
	ParentRunID   *string        `json:"parent_run_id"`
	Snapshot      *string        `json:"snapshot"` // null: agents that inherit nothing
	BudgetNanoUSD *int64         `json:"budget_nanousd"`
	Gate          gate           `json:"gate"`
	Quote         forkcore.Quote `json:"quote"`
	Bill          bill           `json:"bill"`
	Remaining     int64          `json:"remaining"`
	// Undelivered counts the notices that Notify holds back.
	Notify        forkcore.NotifyPolicy `json:"notify"`
	Undelivered   int64                 `json:"undelivered"`
	DeadlineAt    *string               `json:"deadline_at"`
	RetryOf       *string               `json:"retry_of"`
	RunIDs        []string              `json:"run_ids"`
	Runs          *[]run                `json:"runs,omitempty"`           // absent in events
	Report        *[]reportOf           `json:"report,omitempty"`         // absent in events
	FileConflicts *[]fileConflictOf     `json:"file_conflicts,omitempty"` // absent in events
}

type gate struct {
	Mode        forkcore.GateMode  `json:"mode"`
	State       forkcore.GateState `json:"state"`
	Generation  int64              `json:"generation"`
	LeaderRunID *string            `json:"leader_run_id"`
	History     []gateEvent        `json:"history"`
}

type gateEvent struct {
	At         *string `json:"at"`
	Generation int64   `json:"generation"`
	Type       string  `json:"type"`
	RunID      string  `json:"run_id,omitempty"`
	Cause      string  `json:"cause"`
}

// bill is what the fan-out cost so far.
type bill struct {
	// FirstRequests is what the quote speaks of.
	FirstRequests firstBill `json:"first_requests"`
	Total         billOf    `json:"total"`
	// Verdict compares the quote with the input of the first requests, once all runs have ended: cheaper, "as quoted" or costlier.
	Verdict *string `json:"verdict"`
}

type billOf struct {
	Usage       forkcore.Usage `json:"usage"`
	CostNanoUSD *int64         `json:"cost_nanousd"`
}

type firstBill struct {
	billOf
	// InputCostNanoUSD leaves the output out, which no quote can know.
	InputCostNanoUSD *int64 `json:"input_cost_nanousd"`
}

// dispatchView shows a dispatch without what has to be read from its runs.
func dispatchView(d forkcore.Dispatch, prices Prices) dispatch {
	v := dispatch{
		ID: d.ID, CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt), EndedAt: stamp(d.EndedAt), Version: d.Version,
		SessionID: d.SessionID, ParentRunID: orNull(d.ParentRunID), Snapshot: digestOrNull(d.Snapshot),
		Gate:  gate{Mode: d.GateMode, State: d.Gate, Generation: d.Generation, LeaderRunID: orNull(d.LeaderRunID), History: make([]gateEvent, len(d.GateHistory))},
		Quote: d.Quote, Remaining: d.Remaining, RunIDs: d.RunIDs,
		Notify: d.Notify, Undelivered: d.Undelivered, DeadlineAt: stamp(d.Deadline), RetryOf: orNull(d.RetryOf),
		Bill: bill{
			FirstRequests: firstBill{billOf: billOf{d.FirstRequestUsage, d.FirstRequests.Known()}, InputCostNanoUSD: FirstInputCost(d, prices)},
			Total:         billOf{d.Usage, d.Cost.Known()},
		},
	}
	v.Bill.Verdict = verdict(d, v.Bill.FirstRequests.InputCostNanoUSD)
	if d.BudgetNanoUSD > 0 {
		v.BudgetNanoUSD = &d.BudgetNanoUSD
	}
	for i, g := range d.GateHistory {
		v.Gate.History[i] = gateEvent{At: stamp(g.At), Generation: g.Generation, Type: g.Type, RunID: g.RunID, Cause: g.Cause}
	}
	if v.RunIDs == nil {
		v.RunIDs = []string{}
	}
	return v
}

// dispatchWithRuns adds the runs, in the order of the directives, and what they reported.
func dispatchWithRuns(d forkcore.Dispatch, runs []forkcore.Run, prices Prices) dispatch {
	v := dispatchView(d, prices)
	views, reports, conflicts := runViews(runs), mergeReports(runs), fileConflicts(runs)
	v.Runs, v.Report, v.FileConflicts = &views, &reports, &conflicts
	v.Bill.Verdict = BillVerdict(d, runs, prices)
	return v
}

// FirstInputCost is the bill of the first requests without their output, in nano-dollars; nil when a part of it has no price.
func FirstInputCost(d forkcore.Dispatch, prices Prices) *int64 {
	cost := d.FirstRequests.Known()
	if cost == nil || prices == nil {
		return nil
	}
	info, priced := prices.ModelAt(d.Quote.Model, d.CreatedAt)
	if !priced {
		return nil
	}
	input := *cost - d.FirstRequestUsage.Output*info.RatesFor(d.Quote.SharedTokens).Output
	return &input
}

// BillVerdict compares the quote of a dispatch with the input of its runs' first requests: "cheaper", "as quoted" or
// "costlier"; nil until all have ended, without a price, and when a run never got an answer: the quote speaks of all.
func BillVerdict(d forkcore.Dispatch, runs []forkcore.Run, prices Prices) *string {
	for _, r := range runs {
		if r.Usage.TotalInput() == 0 {
			return nil
		}
	}
	return verdict(d, FirstInputCost(d, prices))
}

// tolerance is the part of a quote, 1/20, by which a bill may differ and still be as quoted: directives are counted in bytes.
const tolerance = 20

// verdict compares the bill with the quote at the temperature that it was given for: warm or cold with a gate, ungated without.
func verdict(d forkcore.Dispatch, billed *int64) *string {
	quoted := d.Quote.UngatedNanoUSD
	if d.Quote.Gate {
		quoted = d.Quote.ColdNanoUSD
		if d.Quote.Warm {
			quoted = d.Quote.WarmNanoUSD
		}
	}
	if d.Remaining > 0 || d.FirstRequestUsage.TotalInput() == 0 || billed == nil || quoted == nil {
		return nil
	}
	word := "as quoted"
	switch margin := *quoted / tolerance; {
	case *billed < *quoted-margin:
		word = "cheaper"
	case *billed > *quoted+margin:
		word = "costlier"
	}
	return &word
}

func (a *API) getDispatch(c echo.Context) error {
	ctx := c.Request().Context()
	d, err := a.reader.Dispatch(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	runs := make([]forkcore.Run, len(d.RunIDs))
	for i, id := range d.RunIDs {
		if runs[i], err = a.reader.Run(ctx, id); err != nil {
			return err
		}
	}
	return c.JSON(http.StatusOK, dispatchWithRuns(d, runs, a.prices))
}

func (a *API) quoteForks(c echo.Context) error {
	var spec forkcore.ForkSpec
	if err := decode(c, &spec); err != nil {
		return err
	}
	q, err := a.runner.QuoteForks(c.Request().Context(), c.Param("id"), spec)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, q)
}

func (a *API) fork(c echo.Context) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var spec forkcore.ForkSpec
	if err := decode(c, &spec); err != nil {
		return err
	}
	d, runs, err := a.runner.Fork(c.Request().Context(), c.Param("id"), spec, key)
	if err != nil {
		return err
	}
	return a.dispatched(c, d, runs)
}

// dispatched answers 202 with a fan-out that was started.
func (a *API) dispatched(c echo.Context, d forkcore.Dispatch, runs []forkcore.Run) error {
	a.forks.Add(int64(len(runs)))
	c.Response().Header().Set("Location", "/api/v1/dispatches/"+d.ID)
	return c.JSON(http.StatusAccepted, struct {
		DispatchID string         `json:"dispatch_id"`
		Runs       []run          `json:"runs"`
		Quote      forkcore.Quote `json:"quote"`
	}{d.ID, runViews(runs), d.Quote})
}

func (a *API) retryDispatch(c echo.Context) error {
	key, err := idempotencyKey(c)
	if err != nil {
		return err
	}
	var spec forkcore.RetrySpec
	if err := decode(c, &spec); err != nil {
		return err
	}
	d, runs, err := a.runner.Retry(c.Request().Context(), c.Param("id"), spec, key)
	if err != nil {
		return err
	}
	return a.dispatched(c, d, runs)
}

func (a *API) resumeDispatch(c echo.Context) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	ids, err := a.runner.ResumeDispatch(c.Request().Context(), c.Param("id"))
	if err != nil {
		return err
	}
	return acceptedRuns(c, ids)
}

func (a *API) deliverNotices(c echo.Context) error {
	if err := decodeNothing(c); err != nil {
		return err
	}
	ctx := c.Request().Context()
	if err := a.runner.DeliverNotices(ctx, c.Param("id")); err != nil {
		return err
	}
	d, err := a.reader.Dispatch(ctx, c.Param("id"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, dispatchView(d, a.prices))
}

func (a *API) changeDispatch(c echo.Context) error {
	if err := a.setBudget(c); err != nil {
		return err
	}
	return a.getDispatch(c)
}

// setBudget changes what a PATCH of a session or a dispatch may change.
func (a *API) setBudget(c echo.Context) error {
	var body struct {
		BudgetUSD *json.RawMessage `json:"budget_usd"`
	}
	// A pointer to raw JSON is nil for null as well as for a missing field.
	raw := json.RawMessage("missing")
	body.BudgetUSD = &raw
	if err := decode(c, &body); err != nil {
		return err
	}
	var usd *float64
	if body.BudgetUSD != nil {
		if err := json.Unmarshal(*body.BudgetUSD, &usd); err != nil {
			return forkcore.Invalid("budget_usd", "is missing or no number: give an amount in US dollars, or null for none")
		}
	}
	return a.runner.SetBudget(c.Request().Context(), c.Param("id"), usd)
}
