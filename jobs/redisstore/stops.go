package redisstore

import (
	"context"
	"strings"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// Stop implements engine.Store. An idle session has nothing to stop: no ids, no error.
func (s *Store) Stop(ctx context.Context, sessionID, scope string) ([]string, []engine.Wake, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, nil, err
	}
	if scope != "turn" && scope != "tree" {
		return nil, nil, forkcore.Invalid("scope", "must be turn or tree")
	}
	in := args{"session": sessionID, "scope": scope}
	if err := in.newTurn(sh); err != nil {
		return nil, nil, err
	}
	st := freshStep(scriptStop, sh, in)
	a, err := opened(ctx, s, sessionID, func() ([]string, error) { return s.run(ctx, st) })
	if err != nil {
		return nil, nil, err
	}
	wakes, err := parseWakes(a[1])
	return strings.Fields(a[0]), wakes, err
}

// Cancel implements engine.Store.
func (s *Store) Cancel(ctx context.Context, runID string) ([]engine.Wake, error) {
	sh, err := shardOf(runID)
	if err != nil {
		return nil, err
	}
	a := args{"run": runID}
	if err := a.newTurn(sh); err != nil {
		return nil, err
	}
	st := freshStep(scriptCancel, sh, a)
	return opened(ctx, s, runID, func() ([]engine.Wake, error) { return s.wakesOf(ctx, st, 0) })
}

// SignalBackground implements engine.Store.
func (s *Store) SignalBackground(ctx context.Context, runID string) ([]engine.Wake, error) {
	sh, err := shardOf(runID)
	if err != nil {
		return nil, err
	}
	st := freshStep(scriptSignalBackground, sh, args{"run": runID})
	return opened(ctx, s, runID, func() ([]engine.Wake, error) { return s.wakesOf(ctx, st, 0) })
}

// Resume implements engine.Store.
func (s *Store) Resume(ctx context.Context, runID string) ([]engine.Wake, error) {
	sh, err := shardOf(runID)
	if err != nil {
		return nil, err
	}
	st := freshStep(scriptResume, sh, args{"run": runID})
	return opened(ctx, s, runID, func() ([]engine.Wake, error) { return s.wakesOf(ctx, st, 0) })
}

// SetBudget implements engine.Store.
func (s *Store) SetBudget(ctx context.Context, id string, nanoUSD int64) error {
	sh, err := shardOf(id)
	if err != nil {
		return err
	}
	st := freshStep(scriptSetBudget, sh, args{"id": id, "budget": formatInt(nanoUSD)})
	_, err = opened(ctx, s, id, func() ([]string, error) { return s.run(ctx, st) })
	return err
}

// DeliverNotices implements engine.Store.
func (s *Store) DeliverNotices(ctx context.Context, dispatchID string) ([]engine.Wake, error) {
	sh, err := shardOf(dispatchID)
	if err != nil {
		return nil, err
	}
	a := args{"dispatch": dispatchID}
	if err := a.newTurn(sh); err != nil {
		return nil, err
	}
	st := freshStep(scriptDeliver, sh, a)
	return opened(ctx, s, dispatchID, func() ([]engine.Wake, error) { return s.wakesOf(ctx, st, 0) })
}
