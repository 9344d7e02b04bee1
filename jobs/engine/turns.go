package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"forkyard/forkcore"
)

// SendMessage takes a person's text. An idle session starts a turn here, in
// the foreground; a busy one gets the text through its inbox and the running
// turn's id is returned. Acknowledged means stored.
func (e *Engine) SendMessage(ctx context.Context, sessionID, text, idempotencyKey string) (runID string, err error) {
	if strings.TrimSpace(text) == "" {
		return "", forkcore.Invalid("text", "is empty; write what the agent should do")
	}
	s, err := e.o.Store.Session(ctx, sessionID)
	if err != nil {
		return "", err
	}
	// A keyed message may be a repeat, which is answered whatever is left of the budget.
	if s.ActiveRunID == "" && idempotencyKey == "" {
		if err := e.affordTurn(s); err != nil {
			return "", err
		}
	}
	id, err := forkcore.NewRunID(s.ID, entropy())
	if err != nil {
		return "", err
	}
	text = forkcore.CleanText(text)
	holder := Holder{SessionID: s.ID, RunID: id, Executor: e.executor, Epoch: 1, Token: randomToken()}
	rctx, h, ok := e.hold(ctx, id, true)
	if !ok {
		return "", &forkcore.ConflictError{Message: "this server is shutting down", NextStep: "Send again in a moment"}
	}
	acc, err := e.o.Store.Accept(ctx, Accept{
		Run: forkcore.Run{
			ID: id, SessionID: s.ID, AgentID: s.ID, Kind: forkcore.KindMain,
			Title: forkcore.Headline(text, 80),
		},
		Holder: holder, ItemID: "itm_" + strings.ToLower(randomToken()), Text: text,
		IdempotencyKey: idempotencyKey, RequestHash: hashHex(text),
	})
	if errors.Is(err, forkcore.ErrStoreUnavailable) {
		e.later(func(ctx context.Context) error { return e.release(ctx, holder) }) // it may have been granted
	}
	if err != nil || !acc.Started {
		e.letGo(h)
		return acc.RunID, err
	}
	go e.foreground(rctx, h, acc.Lease, s.AutoBackground)
	return acc.RunID, nil
}

// foreground drives a main turn in this process until it ends, waits for agents or the signal
// comes: a click, the timer (after > 0), or shutdown. It then goes on in a worker under the same run id.
func (e *Engine) foreground(ctx context.Context, h *held, lease Lease, after time.Duration) {
	defer e.letGo(h)
	if after > 0 {
		defer e.moveAfter(ctx, h, lease.Run, after)()
	}
	e.drive(ctx, h, lease)
}

// Background moves a foreground run to a worker, wherever it runs: a turn with
// the agents that it waits for, or such an agent alone, and then the turn goes on here.
func (e *Engine) Background(ctx context.Context, runID string) error {
	wakes, err := e.o.Store.SignalBackground(ctx, runID)
	if err != nil {
		return err
	}
	e.signal(Signal{RunID: runID, Kind: "background"}) // at once when it runs here
	for _, w := range wakes {
		r, err := e.o.Store.Run(ctx, w.RunID)
		e.wake(ctx, err == nil && !r.Background, w.RunID, []Wake{w})
	}
	return nil
}

// Stop asks the main turn ("turn") or everything in the session ("tree") to
// stop and returns the runs concerned.
func (e *Engine) Stop(ctx context.Context, sessionID, scope string) ([]string, error) {
	if scope != "turn" && scope != "tree" {
		return nil, forkcore.Invalid("scope", fmt.Sprintf("is %q; use turn or tree", scope))
	}
	ids, wakes, err := e.o.Store.Stop(ctx, sessionID, scope)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		e.signal(Signal{RunID: id, Kind: "stop"})
	}
	e.enqueue(ctx, wakes...)
	return ids, nil
}

// Cancel asks one run to stop.
func (e *Engine) Cancel(ctx context.Context, runID string) error {
	wakes, err := e.o.Store.Cancel(ctx, runID)
	if err != nil {
		return err
	}
	e.signal(Signal{RunID: runID, Kind: "stop"})
	e.enqueue(ctx, wakes...)
	return nil
}

// QuoteForks prices a fan-out over the last completed turn without starting it.
func (e *Engine) QuoteForks(ctx context.Context, sessionID string, spec forkcore.ForkSpec) (forkcore.Quote, error) {
	s, plan, err := e.planForks(ctx, sessionID, spec)
	if err != nil {
		return forkcore.Quote{}, err
	}
	if err := e.o.Guard.Admit(s.Descendants, int64(len(plan.specs))); err != nil {
		return plan.quote, err
	}
	return plan.quote, plan.quote.Window.Refusal()
}

// Fork starts a fan-out over the last completed turn: no words are put into
// the model's mouth. An idempotency key names the dispatch.
func (e *Engine) Fork(ctx context.Context, sessionID string, spec forkcore.ForkSpec, idempotencyKey string) (forkcore.Dispatch, []forkcore.Run, error) {
	var none forkcore.Dispatch
	s, plan, err := e.planForks(ctx, sessionID, spec)
	if err != nil {
		return none, nil, err
	}
	wish, err := json.Marshal(spec)
	if err != nil {
		return none, nil, forkcore.Invalid("body", err.Error())
	}
	id, err := forkcore.NewDispatchID(s.ID, entropyOf("dispatch\x00"+sessionID, idempotencyKey))
	if err != nil {
		return none, nil, err
	}
	return e.startForks(ctx, s, plan, id, hashHex(string(wish)))
}

// startForks creates a dispatch by a person or the API. id comes from an idempotency key.
func (e *Engine) startForks(ctx context.Context, s forkcore.Session, plan *dispatchPlan, id, requestHash string) (forkcore.Dispatch, []forkcore.Run, error) {
	var none forkcore.Dispatch
	// A repeat starts nothing, so it costs nothing: it is answered whatever is left of the budget and of the window.
	if _, err := e.o.Store.Dispatch(ctx, id); errors.Is(err, forkcore.ErrNotFound) {
		if err := e.o.Guard.Admit(s.Descendants, int64(len(plan.specs))); err != nil {
			return none, nil, err
		}
		if err := plan.quote.Window.Refusal(); err != nil {
			return none, nil, err
		}
		if err := e.affordForks(s, plan); err != nil {
			return none, nil, err
		}
	} else if err != nil {
		return none, nil, err
	}
	cd, err := plan.create(id, forkcore.Run{})
	if err != nil {
		return none, nil, err
	}
	cd.RequestHash, cd.MaxDescendants = requestHash, e.o.Guard.MaxDescendants
	if err := plan.store(ctx, e.o.Store); err != nil {
		return none, nil, err
	}
	wakes, _, err := e.o.Store.CreateDispatch(ctx, nil, cd)
	if err != nil {
		return none, nil, err
	}
	e.enqueue(ctx, wakes...)
	return e.dispatchWithRuns(ctx, id)
}

func (e *Engine) dispatchWithRuns(ctx context.Context, id string) (forkcore.Dispatch, []forkcore.Run, error) {
	d, err := e.o.Store.Dispatch(ctx, id)
	if err != nil {
		return forkcore.Dispatch{}, nil, err
	}
	runs := make([]forkcore.Run, 0, len(d.RunIDs))
	for _, rid := range d.RunIDs {
		r, err := e.o.Store.Run(ctx, rid)
		if err != nil {
			return forkcore.Dispatch{}, nil, err
		}
		runs = append(runs, r)
	}
	return d, runs, nil
}

// maxDeadline bounds the time that a fan-out may be given.
const maxDeadline = 30 * 24 * time.Hour

// affordTurn refuses a turn whose first request could not be reserved.
func (e *Engine) affordTurn(s forkcore.Session) error {
	info, priced := e.o.Catalogue.ModelAt(s.Model, time.Now())
	if s.BudgetNanoUSD == 0 || !priced {
		return nil
	}
	// How long the request will be is known only once the log is replayed: this is the least.
	return fits("session", s.BudgetNanoUSD-s.Cost.NanoUSD-s.ReservedNanoUSD, reservation(info, s.Warm, 0))
}

// affordForks refuses a fan-out of which not even one first request could be
// reserved.
func (e *Engine) affordForks(s forkcore.Session, p *dispatchPlan) error {
	if p.quote.ReserveNanoUSD == nil {
		return nil
	}
	need := *p.quote.ReserveNanoUSD
	if s.BudgetNanoUSD > 0 {
		if err := fits("session", s.BudgetNanoUSD-s.Cost.NanoUSD-s.ReservedNanoUSD, need); err != nil {
			return err
		}
	}
	if p.budget > 0 {
		return fits("fan-out", p.budget, need)
	}
	return nil
}

func fits(whose string, left, need int64) error {
	if need <= left {
		return nil
	}
	return fmt.Errorf("%w: the %s has %.6f USD left, and one request reserves %.6f USD until its cost is known", forkcore.ErrBudget, whose, float64(max(left, 0))/1e9, float64(need)/1e9)
}

func (e *Engine) planForks(ctx context.Context, sessionID string, spec forkcore.ForkSpec) (forkcore.Session, *dispatchPlan, error) {
	s, err := e.o.Store.Session(ctx, sessionID)
	if err != nil {
		return s, nil, err
	}
	var bad forkcore.InvalidError
	if n := len(spec.Directives); n == 0 {
		bad.Add("directives", "is empty; give 1 to %d", forkcore.MaxDirectives)
	} else if n > forkcore.MaxDirectives {
		bad.Add("directives", "has %d; give 1 to %d", n, forkcore.MaxDirectives)
	}
	bad.Fields = append(bad.Fields, spec.Overrides.Invalid("")...)
	var specs []childSpec
	for i, d := range spec.Directives {
		bad.Fields = append(bad.Fields, d.Overrides.Invalid(fmt.Sprintf("directives[%d].", i))...)
		if strings.TrimSpace(d.Prompt) == "" {
			bad.Add(fmt.Sprintf("directives[%d].prompt", i), "is empty; say what this fork should do")
		}
		title := strings.TrimSpace(forkcore.CleanText(d.Title))
		if title == "" {
			title = forkcore.Headline(forkcore.CleanText(d.Prompt), 60)
		}
		title = forkcore.CutText(title, 200)
		specs = append(specs, childSpec{title: title, prompt: forkcore.CleanText(d.Prompt)})
	}
	switch spec.Isolation {
	case "", "shared":
	case "worktree":
		bad.Add("isolation", "worktree is not available yet; use shared")
	default:
		bad.Add("isolation", "is %q; use shared", spec.Isolation)
	}
	gate := spec.Gate
	switch gate {
	case "":
		gate = e.o.Gate
	case forkcore.GateAuto, forkcore.GateAlways, forkcore.GateOff:
	default:
		bad.Add("gate", "is %q; use auto, always or off", gate)
	}
	var budget int64
	if spec.BudgetUSD != nil {
		if budget, err = nanoUSD(*spec.BudgetUSD); err != nil {
			bad.Add("budget_usd", "%v", err)
		}
	}
	if spec.Notify != "" && !slices.Contains(forkcore.NotifyPolicies, spec.Notify) {
		bad.Add("notify", "is %q; use all_done, each or manual", spec.Notify)
	}
	var deadline time.Duration
	if sec := spec.DeadlineSeconds; sec != nil {
		if deadline = time.Duration(*sec * float64(time.Second)); !(*sec >= 1 && *sec <= maxDeadline.Seconds()) {
			bad.Add("deadline_seconds", "is %v; use 1 to %.0f, or leave it out", *sec, maxDeadline.Seconds())
		}
	}
	bad.Fields = append(bad.Fields, spec.Jobs.Invalid()...)
	if len(bad.Fields) > 0 {
		return s, nil, &bad
	}
	if s.Mode != forkcore.ModeFork {
		return s, nil, &forkcore.ConflictError{Message: fmt.Sprintf("forks are off in this session: its mode is %s", s.Mode), NextStep: "Start a session with mode fork"}
	}
	in, err := e.completedTurn(ctx, s)
	if err != nil {
		return s, nil, err
	}
	plan, err := e.planDispatch(ctx, s, in, specs, gate, spec.Jobs)
	if errors.Is(err, forkcore.ErrUnanswered) {
		return s, nil, &forkcore.ConflictError{Message: err.Error(), NextStep: "Send a message first, so that the open calls are answered"}
	}
	if err != nil {
		return s, nil, err
	}
	plan.budget, plan.deadline = budget, deadline
	if spec.Notify != "" {
		plan.notify = spec.Notify
	}
	return s, plan, nil
}
