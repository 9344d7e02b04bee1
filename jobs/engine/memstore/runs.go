package memstore

import (
	"context"
	"fmt"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// run is a stored run with its lease and ledger.
type run struct {
	forkcore.Run
	executor, token string // the lease; an empty token means that nobody holds it
	epoch           int64
	op              string // the last step of a holder, and its answer
	answer          answer
	rows            []forkcore.RequestRow // row n at n-1
	open            map[int64]int64       // reserved nano-dollars of open rows, by n
	children        bool                  // a waiting run waits for awaited agents
	account         string                // whose key a waiting run waits for; empty = it waits until due
	due             time.Time             // when a queued run is handed out again, a waiting one goes on
}

func (r *run) heldBy(h engine.Holder) bool {
	return r.State == forkcore.Running && h.Token != "" && r.token == h.Token && r.epoch == h.Epoch && r.executor == h.Executor
}

// Run implements engine.Reader.
func (s *Store) Run(ctx context.Context, id string) (forkcore.Run, error) {
	leave, err := s.enter(ctx, "read run", id)
	if err != nil {
		return forkcore.Run{}, err
	}
	defer leave()
	r := s.runs[id]
	if r == nil {
		return forkcore.Run{}, notFound("run", id)
	}
	return r.Run, nil
}

// RunsOf implements engine.Reader. A cursor is the place of the last run seen.
func (s *Store) RunsOf(ctx context.Context, sessionID, cursor string, limit int) ([]forkcore.Run, string, error) {
	c, leave, err := s.lookup(ctx, "list runs", sessionID)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	page, next, err := newestFirst(c.runs, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	list := make([]forkcore.Run, len(page))
	for i, r := range page {
		list[i] = r.Run
	}
	return list, next, nil
}

// createRun stores a run in its first state.
func (st *step) createRun(in forkcore.Run, state forkcore.State) *run {
	c := st.sessions[in.SessionID]
	// States, sums and times are the store's.
	r := &run{
		Run: forkcore.Run{
			ID: in.ID, SessionID: in.SessionID, AgentID: in.AgentID, Kind: in.Kind, Title: in.Title, Directive: in.Directive,
			ParentRunID: in.ParentRunID, Depth: in.Depth, QuerySource: in.QuerySource, DispatchID: in.DispatchID, ToolUseID: in.ToolUseID, Index: in.Index, Snapshot: in.Snapshot,
			AgentType: in.AgentType, Head: in.Head, Awaited: in.Awaited, Background: in.Background, Leader: in.Leader, State: state, CreatedAt: st.now,
		},
		open: map[int64]int64{},
	}
	st.runs[r.ID] = r
	c.runs = append(c.runs, r)
	c.ActiveRuns++
	st.touchRun(r)
	st.touchSession(c)
	if state == forkcore.Queued {
		st.wake(r)
	}
	return r
}

// startTurn creates a main turn.
func (st *step) startTurn(in forkcore.Run, state forkcore.State) *run {
	r := st.createRun(in, state)
	c := st.sessions[r.SessionID]
	c.ActiveRunID, c.follow = r.ID, ""
	st.mark(r, forkcore.Marker{Type: forkcore.MarkerTurnStart})
	return r
}

// wake counts a transition to queued and puts the run on the list of what is due.
func (st *step) wake(r *run) {
	r.Wake++
	r.due = st.now.Add(enqueueGrace)
	st.wakes = append(st.wakes, engine.Wake{RunID: r.ID, N: r.Wake})
}

func (st *step) setState(r *run, to forkcore.State) {
	if !r.State.CanBecome(to) {
		panic(fmt.Sprintf("run %s cannot go from %s to %s", r.ID, r.State, to))
	}
	if r.State == forkcore.Waiting {
		r.Reason, r.account, r.children = nil, "", false
	}
	r.State = to
	st.touchRun(r)
	if to == forkcore.Queued {
		st.wake(r)
	}
}
