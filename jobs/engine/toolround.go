package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"forkyard/forkcore"
)

// maxParallelTools is how many read-only tools of one round run at a time.
const maxParallelTools = 10

// outcomeUnknown answers a call that an executor started and never finished:
// it may have acted, so it is not run again.
const outcomeUnknown = "outcome unknown: the process that ran this call went away before its result was stored. Look at the present state before you repeat it."

// runTools answers the open calls of a round. Agent calls start forks, in one
// dispatch; read-only tools run in parallel; the others one after another.
func (d *driver) runTools(ctx context.Context, open []forkcore.PendingCall) error {
	var agents, readOnly, acting []forkcore.PendingCall
	for _, p := range open {
		switch {
		case p.Call.Name == forkcore.AgentToolName:
			agents = append(agents, p)
		case d.e.o.Tools.ReadOnly(p.Call.Name):
			readOnly = append(readOnly, p)
		default:
			acting = append(acting, p)
		}
	}
	if len(agents) > 0 {
		if err := d.launch(ctx, agents); err != nil {
			return err
		}
	}
	if len(readOnly) > 0 {
		if err := d.runReadOnly(ctx, readOnly); err != nil {
			return err
		}
	}
	for _, p := range acting {
		if d.h.wantsHandOver() {
			return errHandOver
		}
		if err := d.runActing(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) runReadOnly(ctx context.Context, calls []forkcore.PendingCall) error {
	var started []forkcore.Entry
	for _, p := range calls {
		started = append(started, d.started(p))
	}
	if err := d.append(ctx, nil, started...); err != nil {
		return err
	}
	results := make([]forkcore.Entry, len(calls))
	slots := make(chan struct{}, maxParallelTools)
	var panicked atomic.Value
	var wg sync.WaitGroup
	for i, p := range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() {
				<-slots
				// In this goroutine a panic would end the process; in the driver's it ends the run.
				if r := recover(); r != nil {
					d.e.log.Error("panic in a tool", "tool", p.Call.Name, "panic", r, "stack", string(debug.Stack()))
					panicked.CompareAndSwap(nil, fmt.Sprint(r))
				}
			}()
			results[i] = d.result(p.Call, d.execute(ctx, p.Call))
		})
	}
	wg.Wait()
	if r := panicked.Load(); r != nil {
		panic(r)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // cut results say nothing; they are run again
	}
	return d.append(ctx, nil, results...)
}

func (d *driver) runActing(ctx context.Context, p forkcore.PendingCall) error {
	if p.StartedBy != "" {
		return d.append(ctx, nil, d.result(p.Call, forkcore.ToolResult{Text: outcomeUnknown, IsError: true}))
	}
	if err := d.append(ctx, nil, d.started(p)); err != nil {
		return err
	}
	res := d.executeWarm(ctx, p.Call)
	// The call may have acted: its result is kept though the run is being stopped.
	actx, done := cleanup(ctx)
	defer done()
	if err := d.append(actx, nil, d.result(p.Call, res)); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (d *driver) execute(ctx context.Context, call forkcore.ToolCall) forkcore.ToolResult {
	return d.e.o.Tools.Run(ctx, d.session.Workspace, d.session.PermissionMode, call)
}

func (d *driver) started(p forkcore.PendingCall) forkcore.Entry {
	return d.marker(forkcore.Marker{Type: forkcore.MarkerToolStarted, ToolUseID: p.Call.ID, Name: p.Call.Name, Detail: p.Call.Headline(), Holder: fmt.Sprintf("%s.%d", d.holder.Executor, d.holder.Epoch)})
}

// result is where a tool_result block is born.
func (d *driver) result(call forkcore.ToolCall, res forkcore.ToolResult) forkcore.Entry {
	text := forkcore.NeutralizeTags(forkcore.CleanText(res.Text))
	block := forkcore.AppendToolResult(nil, call.ID, text, res.IsError)
	sum := forkcore.DigestOf(block)
	return d.marker(forkcore.Marker{Type: forkcore.MarkerToolResult, ToolUseID: call.ID, Name: call.Name, Blob: &sum, IsError: res.IsError, Bytes: block})
}

// replaceResults puts previews in the place of results that are too big for the message that is about to be born. The
// log keeps the decisions, so whoever goes on sends the same. Answers whether there were any.
func (d *driver) replaceResults(ctx context.Context) (bool, error) {
	markers, err := d.view.ReplaceResults(d.e.o.Replacements)
	if err != nil || len(markers) == 0 {
		return false, err
	}
	entries := make([]forkcore.Entry, len(markers))
	for i, m := range markers {
		entries[i] = d.marker(m)
	}
	return true, d.append(ctx, nil, entries...)
}

// launch starts the forks that a round's Agent calls ask for. Calls that are
// refused get a tool error and cost no request. Where forks may fork, a fork's
// own history is what its forks inherit.
func (d *driver) launch(ctx context.Context, calls []forkcore.PendingCall) error {
	caller, err := d.caller(ctx)
	if err != nil {
		return err
	}
	var started, refused []forkcore.Entry
	var specs []childSpec
	for _, p := range calls {
		// Before anything of the call is read: the guard holds for every type of agent.
		r := d.e.o.Guard.Check(caller)
		if r == nil && d.run.Kind == forkcore.KindAgent {
			r = &forkcore.Refusal{Guard: forkcore.GuardQuerySource, Reason: forkcore.RefuseNestedAgent}
		}
		if r != nil {
			refused = append(refused, d.guarded(p.Call, r))
			continue
		}
		if p.StartedBy == "" {
			started = append(started, d.started(p))
		}
		in, err := forkcore.ParseAgentCall(p.Call, d.session.Mode)
		if err == nil && len(specs) == forkcore.MaxDirectives {
			err = fmt.Errorf("one message starts at most %d forks", forkcore.MaxDirectives)
		}
		if err != nil {
			refused = append(refused, d.result(p.Call, forkcore.ToolResult{Text: err.Error(), IsError: true}))
			continue
		}
		specs = append(specs, childSpec{
			title: forkcore.CutText(forkcore.CleanText(in.Description), 200), prompt: in.Prompt, toolUseID: p.Call.ID,
			agentType: in.SubagentType, background: in.RunInBackground != nil && *in.RunInBackground,
		})
		caller.Descendants++
	}
	// Started comes before refused and launched, as for every tool.
	if entries := append(started, refused...); len(entries) > 0 {
		if err := d.append(ctx, nil, entries...); err != nil {
			return err
		}
	}
	if len(specs) == 0 {
		return nil
	}
	if d.session.Mode != forkcore.ModeFork {
		return d.spawn(ctx, specs)
	}
	id, err := forkcore.ModelDispatchID(d.run.AgentID, d.view.AssistantSeq)
	if err != nil {
		return err
	}
	plan, err := d.e.planDispatch(ctx, d.session, inheritance{d.view.Prefix, d.view.Len, d.params, d.view.Replacements}, specs, d.e.o.Gate, forkcore.Jobs{})
	if err != nil {
		return err
	}
	if err := plan.quote.Window.Refusal(); err != nil {
		return d.refuseAll(ctx, specs, "", err)
	}
	cd, err := plan.create(id, d.run)
	if err != nil {
		return err
	}
	cd.MaxDescendants = d.e.o.Guard.MaxDescendants
	cd.ExpectLen = d.view.Len
	ids := make([]string, len(specs))
	for i, s := range specs {
		ids[i] = s.toolUseID
	}
	cd.Launch = []forkcore.Entry{d.marker(forkcore.Marker{Type: forkcore.MarkerLaunched, DispatchID: id, RunIDs: cd.Dispatch.RunIDs, ToolUseIDs: ids})}
	if err := plan.store(ctx, d.e.o.Store); err != nil {
		return err
	}
	wakes, created, err := d.e.o.Store.CreateDispatch(ctx, &d.holder, cd)
	if errors.Is(err, forkcore.ErrConflict) {
		return d.refuseAll(ctx, specs, forkcore.GuardDescendants, err) // others were started meanwhile, and now these are too many
	}
	if err != nil {
		return err
	}
	if !created {
		return d.catchUp(ctx)
	}
	d.e.enqueue(ctx, wakes...)
	return d.apply(cd.Launch)
}

// caller is what the guard has to know of this run.
func (d *driver) caller(ctx context.Context) (forkcore.Caller, error) {
	s, err := d.e.o.Store.Session(ctx, d.session.ID) // its count as it is now
	if err != nil {
		return forkcore.Caller{}, fmt.Errorf("load session: %w", err)
	}
	return forkcore.Caller{QuerySource: d.run.QuerySource, Tags: d.view.Prefix.ForkTags(), Depth: d.run.Depth, Descendants: s.Descendants}, nil
}

// guarded is the tool error for a call that a guard refuses; log and transcript name the guard.
func (d *driver) guarded(call forkcore.ToolCall, r *forkcore.Refusal) forkcore.Entry {
	d.e.log.Warn("an agent may not be started", "run", d.run.ID, "guard", r.Guard, "reason", r.Reason)
	e := d.result(call, forkcore.ToolResult{Text: r.Reason, IsError: true})
	e.Marker.Detail = r.Guard
	return e
}

// refuseAll answers the calls of a dispatch that cannot be started; guard names the one that said so, if one did.
func (d *driver) refuseAll(ctx context.Context, specs []childSpec, guard string, cause error) error {
	text := cause.Error()
	var conflict *forkcore.ConflictError
	if errors.As(cause, &conflict) {
		text += ". " + conflict.NextStep
	}
	var refused []forkcore.Entry
	for _, s := range specs {
		refused = append(refused, d.guarded(forkcore.ToolCall{ID: s.toolUseID, Name: forkcore.AgentToolName}, &forkcore.Refusal{Guard: guard, Reason: text}))
	}
	return d.append(ctx, nil, refused...)
}

// childSpec is one child to be.
type childSpec struct {
	title, prompt, toolUseID string
	agentType                string // of agents that a model starts
	background               bool   // its call asked for the background
}

// dispatchPlan is a fan-out that is priced and ready but not stored.
type dispatchPlan struct {
	snapshot forkcore.Snapshot
	fresh    [][]byte // segments of the snapshot that the store does not have yet
	specs    []childSpec
	blocks   [][]byte
	quote    forkcore.Quote
	gate     forkcore.GateMode
	budget   int64
	best     *forkcore.CacheEntry // the longest live entry that prefixes the snapshot
	notify   forkcore.NotifyPolicy
	deadline time.Duration // from now; 0 = none
	retryOf  string
}

// inheritance is what a fan-out shares with the agent that dispatches.
type inheritance struct {
	history  *forkcore.Prefix
	upTo     int64 // the last log entry in it
	params   forkcore.Params
	replaced forkcore.ReplacementState
}

// planDispatch takes the snapshot of an inheritance and prices a fan-out over it.
func (e *Engine) planDispatch(ctx context.Context, s forkcore.Session, in inheritance, specs []childSpec, gate forkcore.GateMode, jobs forkcore.Jobs) (*dispatchPlan, error) {
	entries, err := e.o.Store.CacheEntries(ctx, s.ID)
	if err != nil {
		return nil, fmt.Errorf("load cache entries: %w", err)
	}
	tools, err := forkcore.LatchedTools(in.history.Head().Bytes())
	if err != nil {
		return nil, err
	}
	snap, fresh, err := forkcore.NewSnapshot(s.ID, in.history, in.params, tools, in.upTo, entries, time.Now().UTC())
	if err != nil {
		return nil, err
	}
	snap.Replacements = in.replaced
	p := &dispatchPlan{snapshot: snap, fresh: fresh, specs: specs, gate: gate, notify: s.Notify}
	e.price(p, s, snap.Entries, jobs)
	return p, nil
}

// price quotes a fan-out over its snapshot; entries are those that prefix it.
func (e *Engine) price(p *dispatchPlan, s forkcore.Session, entries []forkcore.CacheEntry, jobs forkcore.Jobs) {
	for _, c := range p.specs {
		p.blocks = append(p.blocks, forkcore.DirectiveBlock(c.prompt))
	}
	live := e.liveNow()
	for i := range entries {
		if en := &entries[i]; live(*en) && (p.best == nil || en.Bytes > p.best.Bytes) {
			p.best = en
		}
	}
	info, priced := e.o.Catalogue.ModelAt(s.Model, time.Now())
	p.quote = forkcore.NewQuote(info, priced, p.snapshot, p.best, p.blocks, p.gate, jobs)
	if priced {
		need := reservation(info, p.best, p.snapshot.Bytes)
		p.quote.ReserveNanoUSD = &need
	}
}

// create builds the dispatch and its children. parent is the run that
// dispatches; without an id, for a dispatch by a person or the API, the main agent is.
func (p *dispatchPlan) create(id string, parent forkcore.Run) (CreateDispatch, error) {
	d := forkcore.Dispatch{
		ID: id, SessionID: p.snapshot.SessionID, ParentRunID: parent.ID, Snapshot: p.snapshot.ID,
		Remaining: int64(len(p.specs)), Quote: p.quote, BudgetNanoUSD: p.budget, GateMode: p.gate, Gate: forkcore.GateNone,
		Notify: p.notify, RetryOf: p.retryOf,
	}
	cd := CreateDispatch{Deadline: p.deadline}
	for i, c := range p.specs {
		runID, err := forkcore.ChildRunID(id, i)
		if err != nil {
			return cd, err
		}
		d.RunIDs = append(d.RunIDs, runID)
		sum := forkcore.DigestOf(p.blocks[i])
		cd.Runs = append(cd.Runs, forkcore.Run{
			ID: runID, SessionID: p.snapshot.SessionID, AgentID: runID, Kind: forkcore.KindFork, Title: c.title, Directive: c.prompt,
			ParentRunID: parent.ID, Depth: parent.Depth + 1, QuerySource: forkcore.QuerySourceFork, DispatchID: id, ToolUseID: c.toolUseID, Index: i, Snapshot: p.snapshot.ID, Background: true,
		})
		cd.Logs = append(cd.Logs, []forkcore.Entry{
			{Kind: forkcore.EntryMarker, RunID: runID, Marker: &forkcore.Marker{Type: forkcore.MarkerForkOf, Snapshot: &p.snapshot.ID}},
			{Kind: forkcore.EntryMessage, RunID: runID, Blob: sum, Bytes: p.blocks[i], Fragment: true},
		})
	}
	if p.quote.Gate {
		d.Gate, d.Generation, d.LeaderRunID = forkcore.GateClosed, 1, d.RunIDs[0]
		cd.Runs[0].Leader = true
	}
	cd.Dispatch = d
	return cd, nil
}

// store writes what the children will read and the session does not have yet;
// everything is found by its hash, so writing twice changes nothing.
func (p *dispatchPlan) store(ctx context.Context, st Store) error {
	if err := st.PutBlobs(ctx, p.snapshot.SessionID, append(p.fresh, p.blocks...)...); err != nil {
		return fmt.Errorf("store fork bytes: %w", err)
	}
	if err := st.PutSnapshot(ctx, p.snapshot); err != nil {
		return fmt.Errorf("store snapshot: %w", err)
	}
	return nil
}

// toolSpecs are what a session that is created now latches. A coordinator has no agent to start yet, so that tool is not offered.
func (e *Engine) toolSpecs(mode forkcore.Mode) []forkcore.ToolSpec {
	specs := e.o.Tools.Specs()
	switch mode {
	case forkcore.ModeFork:
		specs = append(specs, forkcore.AgentTool())
	case forkcore.ModePlain:
		specs = append(specs, forkcore.NamedAgentTool())
	}
	return forkcore.LatchTools(specs)
}
