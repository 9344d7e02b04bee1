package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"forkyard/forkcore"
)

// agentHead renders the request head of an agent of a type: the session's
// settings, those of its tools that the type may have, and the type's own prompt.
func (e *Engine) agentHead(s forkcore.Session, latched []string, t forkcore.AgentType) []byte {
	specs := slices.DeleteFunc(e.toolSpecs(s.Mode), func(spec forkcore.ToolSpec) bool { return !slices.Contains(latched, spec.Name) })
	return forkcore.EncodeHead(sessionParams(s), t.ToolsOf(specs), t.Prompt())
}

// agentHeadAnew renders a head that is lost, as far as the session's tells what it was latched with.
func (e *Engine) agentHeadAnew(ctx context.Context, s forkcore.Session, r forkcore.Run) []byte {
	var latched []string
	if blobs, err := e.o.Store.Blobs(ctx, s.ID, s.Head); err == nil {
		latched, _ = forkcore.LatchedTools(blobs[0]) // none is the same as not known
	}
	if latched == nil {
		for _, spec := range e.toolSpecs(s.Mode) {
			latched = append(latched, spec.Name)
		}
	}
	t, _ := forkcore.AgentTypeNamed(r.AgentType)
	if t.Prompt == nil {
		t.Prompt = func() string { return forkcore.SystemPrompt(s.Mode) }
	}
	return e.agentHead(s, latched, t)
}

// spawn starts agents with conversations of their own. In the foreground they
// run in this process while the turn waits for them without a worker; the calls that asked for the
// background are answered at once.
func (d *driver) spawn(ctx context.Context, specs []childSpec) error {
	var awaited, background []childSpec
	for _, c := range specs {
		if c.background {
			background = append(background, c)
		} else {
			awaited = append(awaited, c)
		}
	}
	// Ids are derived, so that a launch is the same one after a crash; the two groups must not share one.
	if err := d.spawnGroup(ctx, awaited, d.view.AssistantSeq, false); err != nil {
		return err
	}
	return d.spawnGroup(ctx, background, -d.view.AssistantSeq, true)
}

func (d *driver) spawnGroup(ctx context.Context, specs []childSpec, seq int64, background bool) error {
	if len(specs) == 0 {
		return nil
	}
	id, err := forkcore.ModelDispatchID(d.run.AgentID, seq)
	if err != nil {
		return err
	}
	latched, err := forkcore.LatchedTools(d.view.Prefix.Head().Bytes())
	if err != nil {
		return err
	}
	cd := CreateDispatch{
		Dispatch: forkcore.Dispatch{
			ID: id, SessionID: d.session.ID, ParentRunID: d.run.ID, Remaining: int64(len(specs)), GateMode: forkcore.GateOff, Gate: forkcore.GateNone,
			Notify: d.session.Notify, Quote: forkcore.Quote{Model: d.params.Model, Children: len(specs)},
		},
		ExpectLen: d.view.Len, MaxDescendants: d.e.o.Guard.MaxDescendants,
	}
	if !background {
		cd.Dispatch.Notify = forkcore.NotifyEach
	}
	var calls []string
	var blobs [][]byte
	for i, c := range specs {
		t, ok := forkcore.AgentTypeNamed(c.agentType)
		if !ok {
			return fmt.Errorf("agent type %q is not known", c.agentType)
		}
		runID, err := forkcore.ChildRunID(id, i)
		if err != nil {
			return err
		}
		head := d.e.agentHead(d.session, latched, t)
		task := forkcore.EncodeMessage(forkcore.RoleUser, forkcore.AppendTextBlock(nil, c.prompt))
		blobs = append(blobs, head, task)
		calls = append(calls, c.toolUseID)
		cd.Dispatch.RunIDs = append(cd.Dispatch.RunIDs, runID)
		cd.Runs = append(cd.Runs, forkcore.Run{
			ID: runID, SessionID: d.session.ID, AgentID: runID, Kind: forkcore.KindAgent, Title: c.title, Directive: c.prompt,
			ParentRunID: d.run.ID, Depth: d.run.Depth + 1, QuerySource: forkcore.QuerySourceOf(t.Name), DispatchID: id, ToolUseID: c.toolUseID, Index: i,
			AgentType: t.Name, Head: forkcore.DigestOf(head), Awaited: !background, Background: background || d.run.Background,
		})
		cd.Logs = append(cd.Logs, []forkcore.Entry{{Kind: forkcore.EntryMessage, RunID: runID, Blob: forkcore.DigestOf(task), Bytes: task}})
	}
	cd.Launch = []forkcore.Entry{d.marker(forkcore.Marker{Type: forkcore.MarkerSpawned, DispatchID: id, RunIDs: cd.Dispatch.RunIDs, ToolUseIDs: calls})}
	if background {
		cd.Launch = append(cd.Launch, d.marker(forkcore.Marker{Type: forkcore.MarkerAsync, ToolUseIDs: calls}))
	}
	if err := d.e.o.Store.PutBlobs(ctx, d.session.ID, blobs...); err != nil {
		return fmt.Errorf("store an agent's first bytes: %w", err)
	}
	wakes, created, err := d.e.o.Store.CreateDispatch(ctx, &d.holder, cd)
	if errors.Is(err, forkcore.ErrConflict) {
		return d.refuseAll(ctx, specs, forkcore.GuardDescendants, err) // others were started meanwhile, and now these are too many
	}
	if err != nil {
		return err
	}
	for _, w := range wakes {
		if background || d.run.Background {
			d.e.enqueue(ctx, w)
		} else {
			d.e.here(ctx, w)
		}
	}
	if !created {
		return d.catchUp(ctx)
	}
	return d.apply(cd.Launch)
}

// here executes a wake in the foreground of this process.
func (e *Engine) here(ctx context.Context, w Wake) {
	go func() {
		if err := e.execute(context.WithoutCancel(ctx), w, true); err != nil {
			e.log.Error("execute a wake in the foreground", "run", w.RunID, "wake", w.N, "err", err)
		}
	}()
}

// wake puts wakes on the ready-list, but for that of a turn in the foreground of this process, which goes on here.
func (e *Engine) wake(ctx context.Context, foreground bool, turn string, wakes []Wake) {
	for _, w := range wakes {
		if foreground && w.RunID == turn {
			e.here(ctx, w)
		} else {
			e.enqueue(ctx, w)
		}
	}
}

// moveAfter moves a foreground run to a worker when it took so long; 0 or less: at once.
func (e *Engine) moveAfter(ctx context.Context, h *held, r forkcore.Run, after time.Duration) (stop func()) {
	move := h.askHandOver
	if r.Kind != forkcore.KindMain {
		// Whoever waits for it must hear of it, so this is a step of the store.
		move = func() {
			if err := e.Background(context.WithoutCancel(ctx), r.ID); err != nil && !errors.Is(err, forkcore.ErrConflict) {
				e.log.Error("move an agent to the background", "run", r.ID, "err", err)
			}
		}
	}
	if after <= 0 {
		move()
		return func() {}
	}
	t := time.AfterFunc(after, move)
	return func() { t.Stop() }
}

func (e *Engine) setParent(h *held, runID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h.parent = runID
}

// errAwaiting ends a loop whose run waits for agents and is not held any more.
var errAwaiting = errors.New("the run waits for agents")

// await gives the run back until an agent that it waits for has ended or gone to the background.
func (d *driver) await(ctx context.Context, runIDs []string) error {
	what := "the agent that it started"
	if len(runIDs) > 1 {
		what = fmt.Sprintf("%d agents that it started", len(runIDs))
	}
	err := d.e.o.Store.Wait(ctx, d.holder, WaitFor{Children: runIDs, Reason: forkcore.Reason{
		Code: forkcore.WaitChildren, Message: "it waits for " + what, NextStep: "Nothing: it goes on when they end. Move it to the background to go on at once",
	}})
	if err != nil {
		return err
	}
	return errAwaiting
}

// answerAwaited writes the results of calls whose agents have ended or went to the
// background meanwhile. Answers whether there were any.
func (d *driver) answerAwaited(ctx context.Context, inbox []forkcore.InboxItem) (bool, error) {
	var entries []forkcore.Entry
	var take, async []string
	for _, p := range d.view.Pending {
		if !p.Awaits() {
			continue
		}
		child, err := d.e.o.Store.Run(ctx, p.ChildRunID)
		if err != nil {
			return false, fmt.Errorf("load an agent: %w", err)
		}
		notice := slices.IndexFunc(inbox, func(i forkcore.InboxItem) bool { return i.Kind == "notification" && i.RunID == child.ID })
		switch {
		case !child.Awaited:
			async = append(async, p.Call.ID)
		case child.State.Ended() && notice >= 0:
			text, failed := forkcore.AgentResult(child)
			entries = append(entries, d.result(p.Call, forkcore.ToolResult{Text: text, IsError: failed}))
			take = append(take, inbox[notice].ID)
		}
	}
	if len(async) > 0 {
		entries = append(entries, d.marker(forkcore.Marker{Type: forkcore.MarkerAsync, ToolUseIDs: async}))
	}
	if len(entries) == 0 {
		return false, nil
	}
	err := d.append(ctx, take, entries...)
	if errors.Is(err, ErrInbox) {
		return true, nil // look again
	}
	return true, err
}
