package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	rctx, h, ok := e.hold(ctx, id)
	if !ok {
		return "", &forkcore.ConflictError{Message: "this server is shutting down", NextStep: "Send again in a moment"}
	}
	acc, err := e.o.Store.Accept(ctx, Accept{
		Run: forkcore.Run{
			ID: id, SessionID: s.ID, AgentID: s.ID, Kind: forkcore.KindMain,
			Title: forkcore.CutText(strings.Join(strings.Fields(text), " "), 80),
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

// foreground drives a main turn in this process until it ends or the signal
// comes: a click, the timer (after > 0), or shutdown. It then goes on in a worker under the same run id.
func (e *Engine) foreground(ctx context.Context, h *held, lease Lease, after time.Duration) {
	defer e.letGo(h)
	if after > 0 {
		t := time.AfterFunc(after, h.askHandOver)
		defer t.Stop()
	}
	e.drive(ctx, h, lease)
}

// Background moves a foreground turn to a worker, wherever it runs.
func (e *Engine) Background(ctx context.Context, runID string) error {
	if err := e.o.Store.SignalBackground(ctx, runID); err != nil {
		return err
	}
	e.signal(Signal{RunID: runID, Kind: "background"}) // at once when it runs here
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
	_, plan, err := e.planForks(ctx, sessionID, spec)
	if err != nil {
		return forkcore.Quote{}, err
	}
	return plan.quote, nil
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
	en := entropy()
	if idempotencyKey != "" {
		d := forkcore.DigestOf([]byte("dispatch\x00" + sessionID + "\x00" + idempotencyKey))
		copy(en[:], d[:])
	}
	id, err := forkcore.NewDispatchID(s.ID, en)
	if err != nil {
		return none, nil, err
	}
	// A repeat starts nothing, so it costs nothing: it is answered whatever is left of the budget.
	if _, err := e.o.Store.Dispatch(ctx, id); errors.Is(err, forkcore.ErrNotFound) {
		if err := e.affordForks(s, plan); err != nil {
			return none, nil, err
		}
	} else if err != nil {
		return none, nil, err
	}
	cd, err := plan.create(id, s, "")
	if err != nil {
		return none, nil, err
	}
	cd.RequestHash = hashHex(string(wish))
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

// reservedOutput is the output that a request reserves, in tokens.
const reservedOutput = 4096

// affordTurn refuses a turn whose first request could not be reserved.
func (e *Engine) affordTurn(s forkcore.Session) error {
	info, priced := e.o.Catalogue.Model(s.Model)
	if s.BudgetNanoUSD == 0 || !priced {
		return nil
	}
	u := forkcore.Usage{Output: reservedOutput}
	if s.Warm != nil {
		u.CacheRead = s.Warm.Tokens
	}
	return fits("session", s.BudgetNanoUSD-s.Cost.NanoUSD-s.ReservedNanoUSD, info.Cost(u))
}

// affordForks refuses a fan-out of which not even one first request could be
// reserved.
func (e *Engine) affordForks(s forkcore.Session, p *dispatchPlan) error {
	info, priced := e.o.Catalogue.Model(s.Model)
	if !priced {
		return nil
	}
	u := forkcore.Usage{CacheRead: p.quote.PrefixTokens, Output: reservedOutput}
	rest := p.snapshot.Bytes
	if p.best != nil {
		rest -= p.best.Bytes
	}
	u.CacheWrite5m = max(rest, 0) / 3
	if s.BudgetNanoUSD > 0 {
		if err := fits("session", s.BudgetNanoUSD-s.Cost.NanoUSD-s.ReservedNanoUSD, info.Cost(u)); err != nil {
			return err
		}
	}
	if p.budget > 0 {
		return fits("fan-out", p.budget, info.Cost(u))
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
	add := func(field, format string, args ...any) {
		bad.Fields = append(bad.Fields, forkcore.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if n := len(spec.Directives); n == 0 {
		add("directives", "is empty; give 1 to %d", forkcore.MaxDirectives)
	} else if n > forkcore.MaxDirectives {
		add("directives", "has %d; give 1 to %d", n, forkcore.MaxDirectives)
	}
	var specs []childSpec
	for i, d := range spec.Directives {
		if strings.TrimSpace(d.Prompt) == "" {
			add(fmt.Sprintf("directives[%d].prompt", i), "is empty; say what this fork should do")
		}
		title := strings.TrimSpace(forkcore.CleanText(d.Title))
		if title == "" {
			title = forkcore.CutText(strings.Join(strings.Fields(forkcore.CleanText(d.Prompt)), " "), 60)
		}
		title = forkcore.CutText(title, 200)
		specs = append(specs, childSpec{title: title, prompt: forkcore.CleanText(d.Prompt)})
	}
	switch spec.Isolation {
	case "", "shared":
	case "worktree":
		add("isolation", "worktree is not available yet; use shared")
	default:
		add("isolation", "is %q; use shared", spec.Isolation)
	}
	gate := spec.Gate
	switch gate {
	case "":
		gate = e.o.Gate
	case forkcore.GateAuto, forkcore.GateAlways, forkcore.GateOff:
	default:
		add("gate", "is %q; use auto, always or off", gate)
	}
	var budget int64
	if spec.BudgetUSD != nil {
		if budget, err = nanoUSD(*spec.BudgetUSD); err != nil {
			add("budget_usd", "%v", err)
		}
	}
	if len(bad.Fields) > 0 {
		return s, nil, &bad
	}
	if s.Mode != forkcore.ModeFork {
		return s, nil, &forkcore.ConflictError{Message: fmt.Sprintf("forks are off in this session: its mode is %s", s.Mode), NextStep: "Start a session with mode fork"}
	}
	blobs, err := e.o.Store.Blobs(ctx, s.ID, s.Head)
	if err != nil {
		return s, nil, fmt.Errorf("load request head: %w", err)
	}
	view, err := e.mainView(ctx, s.ID)
	if err != nil {
		return s, nil, err
	}
	plan, err := e.planDispatch(ctx, s, blobs[0], view.Messages[:view.Completed], view.CompletedSeq, specs, gate)
	if errors.Is(err, forkcore.ErrUnanswered) {
		return s, nil, &forkcore.ConflictError{Message: err.Error(), NextStep: "Send a message first, so that the open calls are answered"}
	}
	if err != nil {
		return s, nil, err
	}
	plan.budget = budget
	return s, plan, nil
}

// mainView replays a session's main log.
func (e *Engine) mainView(ctx context.Context, sessionID string) (*forkcore.View, error) {
	entries, err := e.o.Store.Log(ctx, sessionID, sessionID, 0, 0)
	if err != nil {
		return nil, err
	}
	v := forkcore.NewView()
	for _, en := range entries {
		if err := v.Apply(en); err != nil {
			return nil, err
		}
	}
	return v, nil
}
