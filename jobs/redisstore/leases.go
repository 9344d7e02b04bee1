package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// hold puts the proof of a lease into a script's arguments.
func (a args) hold(h engine.Holder) {
	a["run"] = h.RunID
	a["executor"] = h.Executor
	a["epoch"] = formatInt(h.Epoch)
	a["token"] = h.Token
}

// heldStep makes a step of a holder.
func heldStep(name scriptName, h engine.Holder, a args) (step, error) {
	sh, err := shardOf(h.RunID)
	if err != nil {
		return step{}, err
	}
	a.hold(h)
	return derivedStep(name, sh, a), nil
}

// newTurn gives a script the id of a main turn that it may have to create.
func (a args) newTurn(sh shard) error {
	var e forkcore.Entropy
	if _, err := rand.Read(e[:]); err != nil {
		return fmt.Errorf("make a run id: %w", err)
	}
	// Only the shard of a session id goes into a run id.
	id, err := forkcore.NewRunID("ses_"+sh.tag()+"aaaaaaaaaaaaaaaa", e)
	if err != nil {
		return fmt.Errorf("make a run id: %w", err)
	}
	a["candidate"], a["reports_title"], a["inbox_title"] = id, engine.ReportsTitle, engine.InboxTitle
	return nil
}

// Accept implements engine.Store.
func (s *Store) Accept(ctx context.Context, in engine.Accept) (engine.Accepted, error) {
	sh, err := shardOf(in.Run.SessionID)
	if err != nil {
		return engine.Accepted{}, err
	}
	st := freshStep(scriptAccept, sh, args{
		"run": runFields(in.Run), "executor": in.Holder.Executor, "token": in.Holder.Token,
		"item": in.ItemID, "text": encode(forkcore.InboxItem{Kind: "message", Text: in.Text}),
		"key": in.IdempotencyKey, "hash": in.RequestHash,
	})
	a, err := opened(ctx, s, in.Run.SessionID, func() ([]string, error) { return s.run(ctx, st) })
	if err != nil {
		return engine.Accepted{}, err
	}
	out := engine.Accepted{RunID: a[0], Started: a[1] == "1"}
	if out.Started {
		out.Lease, err = parseLease(in.Holder, a[2:])
	}
	return out, err
}

// TakeLease implements engine.Store.
func (s *Store) TakeLease(ctx context.Context, w engine.Wake, executor, token string, foreground bool) (engine.Lease, error) {
	sh, err := shardOf(w.RunID)
	if err != nil {
		return engine.Lease{}, err
	}
	in := args{
		"run": w.RunID, "wake": formatInt(w.N), "executor": executor, "token": token, "foreground": formatBool(foreground), "ttl": millis(s.gateTTL),
	}
	if err := in.newTurn(sh); err != nil {
		return engine.Lease{}, err
	}
	a, err := s.run(ctx, freshStep(scriptTakeLease, sh, in))
	if err != nil {
		return engine.Lease{}, err
	}
	return parseLease(engine.Holder{Executor: executor, Token: token}, a)
}

// parseLease reads epoch, run and open rows.
func parseLease(h engine.Holder, a []string) (engine.Lease, error) {
	epoch, err := strconv.ParseInt(a[0], 10, 64)
	if err != nil {
		return engine.Lease{}, fmt.Errorf("read epoch: %w", err)
	}
	var f fields
	if err := json.Unmarshal([]byte(a[1]), &f); err != nil {
		return engine.Lease{}, fmt.Errorf("read run: %w", err)
	}
	l := engine.Lease{}
	if l.Run, err = parseRun(f); err != nil {
		return engine.Lease{}, err
	}
	l.Holder = engine.Holder{SessionID: l.Run.SessionID, RunID: l.Run.ID, Executor: h.Executor, Epoch: epoch, Token: h.Token}
	for _, row := range a[2:] {
		r, err := decodeRow(row)
		if err != nil {
			return engine.Lease{}, err
		}
		l.OpenRows = append(l.OpenRows, r)
	}
	return l, nil
}

// Release implements engine.Store.
func (s *Store) Release(ctx context.Context, h engine.Holder) ([]engine.Wake, error) {
	st, err := heldStep(scriptRelease, h, args{})
	if err != nil {
		return nil, err
	}
	return s.wakesOf(ctx, st, 0)
}

// Wait implements engine.Store.
func (s *Store) Wait(ctx context.Context, h engine.Holder, w engine.WaitFor) error {
	st, err := heldStep(scriptWait, h, args{"delay": millis(w.Delay), "reason": encode(w.Reason), "account": w.Account, "children": append([]string{}, w.Children...)})
	if err != nil {
		return err
	}
	_, err = s.run(ctx, st)
	return err
}

// EndRun implements engine.Store.
func (s *Store) EndRun(ctx context.Context, h engine.Holder, e engine.EndRun) ([]engine.Wake, error) {
	st, err := heldStep(scriptEndRun, h, args{
		"state": string(e.State), "reason": jsonOrEmpty(e.Reason), "report": jsonOrEmpty(e.Report),
		"candidate": e.Candidate, "title": e.CandidateTitle, "slot": jsonOrEmpty(e.CacheSafe),
	})
	if err != nil {
		return nil, err
	}
	return s.wakesOf(ctx, st, 0)
}

// Heartbeat implements engine.Store: one pipeline over all shards. However many
// shards did not know the executor, it is told so once.
func (s *Store) Heartbeat(ctx context.Context, executor string) ([]engine.Signal, error) {
	answers, err := s.runAll(ctx, everyShard(scriptHeartbeat, args{"executor": executor}))
	var signals []engine.Signal
	swept := false
	for _, a := range answers {
		for i := 0; i+1 < len(a); i += 2 {
			if a[i] == "" {
				swept = true
			} else {
				signals = append(signals, engine.Signal{RunID: a[i], Kind: a[i+1]})
			}
		}
	}
	if swept {
		signals = slices.Insert(signals, 0, engine.Signal{Kind: "swept"})
	}
	return signals, err
}

// Goodbye implements engine.Store.
func (s *Store) Goodbye(ctx context.Context, executor string) error {
	_, err := s.runAll(ctx, everyShard(scriptGoodbye, args{"executor": executor}))
	return err
}

// sweepBatch bounds what one sweep hands out of one shard, so that a script stays short.
const sweepBatch = 500

// Sweep implements engine.Store: one pipeline over all shards. Shards that
// answered count even when another failed; both wakes and error are returned then.
func (s *Store) Sweep(ctx context.Context, dead, redue time.Duration) ([]engine.Wake, error) {
	steps := make([]step, forkcore.Shards)
	for i := range steps {
		a := args{"dead": millis(dead), "redue": millis(redue), "batch": formatInt(sweepBatch)}
		if err := a.newTurn(shard(i)); err != nil {
			return nil, err
		}
		steps[i] = freshStep(scriptSweep, shard(i), a)
	}
	return s.wakesOfAll(ctx, steps)
}

// wakesOfAll performs steps whose first answer is a list of wakes.
func (s *Store) wakesOfAll(ctx context.Context, steps []step) ([]engine.Wake, error) {
	answers, err := s.runAll(ctx, steps)
	var wakes []engine.Wake
	for _, a := range answers {
		if len(a) == 0 {
			continue
		}
		w, parseErr := parseWakes(a[0])
		if parseErr != nil {
			return wakes, parseErr
		}
		wakes = append(wakes, w...)
	}
	return wakes, err
}

// everyShard makes the same fresh step for each shard.
func everyShard(name scriptName, a args) []step {
	steps := make([]step, forkcore.Shards)
	for i := range steps {
		steps[i] = freshStep(name, shard(i), a)
	}
	return steps
}
