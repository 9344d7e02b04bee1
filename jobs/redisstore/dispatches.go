package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func dispatchFields(d forkcore.Dispatch) fields {
	return fields{
		"id":        d.ID,
		"session":   d.SessionID,
		"parent":    d.ParentRunID,
		"snapshot":  digestOrEmpty(d.Snapshot),
		"quote":     encode(d.Quote),
		"budget":    formatInt(d.BudgetNanoUSD),
		"gate_mode": string(d.GateMode),
		"gate":      string(d.Gate),
		"notify":    string(d.Notify),
		"retry_of":  d.RetryOf,
	}
}

func parseDispatch(f fields) (forkcore.Dispatch, error) {
	r := &fieldReader{fields: f}
	d := forkcore.Dispatch{
		ID:                r.text("id"),
		SessionID:         r.text("session"),
		ParentRunID:       r.text("parent"),
		Snapshot:          r.digest("snapshot"),
		RunIDs:            strings.Fields(r.text("runs")),
		Remaining:         r.int("remaining"),
		Notify:            forkcore.NotifyPolicy(cmp.Or(r.text("notify"), string(forkcore.NotifyAllDone))),
		Undelivered:       r.int("undelivered"),
		RetryOf:           r.text("retry_of"),
		Deadline:          r.time("deadline"),
		BudgetNanoUSD:     r.int("budget"),
		GateMode:          forkcore.GateMode(r.text("gate_mode")),
		Gate:              forkcore.GateState(r.text("gate")),
		Generation:        r.int("generation"),
		LeaderRunID:       r.text("leader"),
		Cold:              r.flag("cold"),
		GateHistory:       parseGateHistory(r, "history"),
		Usage:             r.usage(""),
		Cost:              r.cost(""),
		FirstRequests:     r.cost("first_"),
		FirstRequestUsage: r.usage("first_"),
		CreatedAt:         r.time("created"),
		UpdatedAt:         r.time("updated"),
		EndedAt:           r.time("ended"),
		Version:           r.int("version"),
	}
	if q := jsonField[forkcore.Quote](r, "quote"); q != nil {
		d.Quote = *q
	}
	return d, r.err
}

// parseGateHistory reads the objects that scripts join with commas; their
// times are milliseconds, because a script has no calendar.
func parseGateHistory(r *fieldReader, field string) []forkcore.GateEvent {
	if r.text(field) == "" {
		return nil
	}
	var stored []struct {
		At         int64  `json:"at"`
		Generation int64  `json:"generation"`
		Type       string `json:"type"`
		RunID      string `json:"run_id"`
		Cause      string `json:"cause"`
	}
	if err := json.Unmarshal([]byte("["+r.text(field)+"]"), &stored); err != nil {
		r.bad(field, err)
		return nil
	}
	history := make([]forkcore.GateEvent, len(stored))
	for i, e := range stored {
		history[i] = forkcore.GateEvent{
			At: time.UnixMilli(e.At).UTC(), Generation: e.Generation, Type: e.Type, RunID: e.RunID, Cause: e.Cause,
		}
	}
	return history
}

// Dispatch implements engine.Reader.
func (s *Store) Dispatch(ctx context.Context, id string) (forkcore.Dispatch, error) {
	f, err := opened(ctx, s, id, func() (fields, error) { return s.object(ctx, "dispatch", stemDispatch, id) })
	if err != nil {
		return forkcore.Dispatch{}, err
	}
	s.NoteOpen(ctx, f["session"])
	return parseDispatch(f)
}

// CreateDispatch implements engine.Store. Repeated, it answers the wakes of the children that are still queued.
func (s *Store) CreateDispatch(ctx context.Context, h *engine.Holder, d engine.CreateDispatch) ([]engine.Wake, bool, error) {
	sh, err := shardOf(d.Dispatch.ID)
	if err != nil {
		return nil, false, err
	}
	if len(d.Runs) == 0 || len(d.Logs) != len(d.Runs) {
		return nil, false, fmt.Errorf("create dispatch %s: %d runs with %d logs", d.Dispatch.ID, len(d.Runs), len(d.Logs))
	}
	runs := make([]fields, len(d.Runs))
	logs := make([][]string, len(d.Runs))
	for i, r := range d.Runs {
		runs[i] = runFields(r)
		logs[i] = make([]string, len(d.Logs[i]))
		for j, e := range d.Logs[i] {
			if logs[i][j], err = encodeEntry(e); err != nil {
				return nil, false, fmt.Errorf("create dispatch %s: %w", d.Dispatch.ID, err)
			}
		}
	}
	a := args{"token": "", "dispatch": dispatchFields(d.Dispatch), "runs": runs, "logs": logs, "hash": d.RequestHash, "max_descendants": formatInt(d.MaxDescendants), "deadline": millis(d.Deadline)}
	st := freshStep
	if h != nil {
		a.hold(*h)
		a["expect"] = formatInt(d.ExpectLen)
		if a["launch"], err = encodeEntries(d.Launch); err != nil {
			return nil, false, fmt.Errorf("create dispatch %s: %w", d.Dispatch.ID, err)
		}
		st = derivedStep
	}
	create := st(scriptCreateDispatch, sh, a)
	answer, err := opened(ctx, s, d.Dispatch.SessionID, func() ([]string, error) { return s.run(ctx, create) })
	if err != nil {
		return nil, false, err
	}
	wakes, err := parseWakes(answer[1])
	return wakes, answer[0] == "1", err
}
