package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
)

// runFields are what a run is created with; states, times and counts are the scripts'.
func runFields(r forkcore.Run) fields {
	return nonEmpty(fields{
		"id":         r.ID,
		"session":    r.SessionID,
		"agent":      r.AgentID,
		"kind":       string(r.Kind),
		"title":      r.Title,
		"directive":  r.Directive,
		"parent":     r.ParentRunID,
		"depth":      formatInt(int64(r.Depth)),
		"source":     r.QuerySource,
		"dispatch":   r.DispatchID,
		"tool_use":   r.ToolUseID,
		"index":      formatInt(int64(r.Index)),
		"snapshot":   digestOrEmpty(r.Snapshot),
		"background": formatBool(r.Background),
		"agent_type": r.AgentType,
		"head":       digestOrEmpty(r.Head),
		"awaited":    formatBool(r.Awaited),
	})
}

func parseRun(f fields) (forkcore.Run, error) {
	r := &fieldReader{fields: f}
	run := forkcore.Run{
		ID:              r.text("id"),
		SessionID:       r.text("session"),
		AgentID:         r.text("agent"),
		Kind:            forkcore.RunKind(r.text("kind")),
		Title:           r.text("title"),
		Directive:       r.text("directive"),
		ParentRunID:     r.text("parent"),
		Depth:           int(r.int("depth")),
		QuerySource:     r.text("source"),
		DispatchID:      r.text("dispatch"),
		ToolUseID:       r.text("tool_use"),
		Index:           int(r.int("index")),
		Snapshot:        r.digest("snapshot"),
		AgentType:       r.text("agent_type"),
		Head:            r.digest("head"),
		Awaited:         r.flag("awaited"),
		State:           forkcore.State(r.text("state")),
		Reason:          jsonField[forkcore.Reason](r, "reason"),
		Background:      r.flag("background"),
		Leader:          r.flag("leader"),
		Stop:            r.text("stop"),
		Wake:            r.int("wake"),
		Version:         r.int("version"),
		CreatedAt:       r.time("created"),
		UpdatedAt:       r.time("updated"),
		StartedAt:       r.time("started"),
		EndedAt:         r.time("ended"),
		ResumedAt:       r.time("resumed"),
		Requests:        r.int("requests"),
		ToolUses:        r.int("tool_uses"),
		LastTool:        r.text("last_tool"),
		LastToolDetail:  r.text("last_tool_detail"),
		Usage:           r.usage(""),
		Cost:            r.cost(""),
		InheritedTokens: r.int("inherited"),
		InheritedRead:   r.int("inherited_read"),
		AtRiskRequests:  r.int("at_risk"),
		Report:          jsonField[forkcore.Report](r, "report"),
	}
	return run, r.err
}

// Run implements engine.Reader.
func (s *Store) Run(ctx context.Context, id string) (forkcore.Run, error) {
	f, err := opened(ctx, s, id, func() (fields, error) { return s.object(ctx, "run", stemRun, id) })
	if err != nil {
		return forkcore.Run{}, err
	}
	s.NoteOpen(ctx, f["session"])
	return parseRun(f)
}

// object reads one hash; none is forkcore.ErrNotFound.
func (s *Store) object(ctx context.Context, noun, stem, id string) (fields, error) {
	sh, err := shardOf(id)
	if err != nil {
		return nil, err
	}
	f, err := s.client.HGetAll(ctx, sh.key(stem, id)).Result()
	if err != nil {
		return nil, s.failure("read "+noun, err)
	}
	if f["id"] == "" {
		return nil, fmt.Errorf("%s %s: %w", noun, id, forkcore.ErrNotFound)
	}
	return f, nil
}

// objects reads hashes of any shards in one pipeline, in order.
func (s *Store) objects(ctx context.Context, noun, stem string, ids []string) ([]fields, error) {
	cmds := make([]*redis.MapStringStringCmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			sh, err := shardOf(id)
			if err != nil {
				return err
			}
			cmds[i] = p.HGetAll(ctx, sh.key(stem, id))
		}
		return nil
	})
	if err != nil {
		return nil, s.failure("read "+noun, err)
	}
	list := make([]fields, len(ids))
	for i, c := range cmds {
		list[i] = c.Val()
	}
	return list, nil
}

// RunsOf implements engine.Reader. The cursor is the last score seen. An archived session has no runs here, and is not
// opened by this: lists of sessions ask for the runs of each.
func (s *Store) RunsOf(ctx context.Context, sessionID, cursor string, limit int) ([]forkcore.Run, string, error) {
	sh, err := shardOf(sessionID)
	if err != nil {
		return nil, "", err
	}
	below := "+inf"
	if cursor != "" {
		if strings.Trim(cursor, "0123456789") != "" {
			return nil, "", forkcore.Invalid("cursor", "must be a next_cursor of an earlier answer")
		}
		below = "(" + cursor
	}
	by := &redis.ZRangeBy{Min: "-inf", Max: below}
	if limit > 0 {
		by.Count = int64(limit) + 1
	}
	rows, err := s.client.ZRevRangeByScoreWithScores(ctx, sh.key(stemRuns, sessionID), by).Result()
	if err != nil {
		return nil, "", s.failure("list runs", err)
	}
	if len(rows) == 0 && cursor == "" {
		// No runs yet, or no such session.
		n, err := s.client.Exists(ctx, sh.key(stemSession, sessionID), sh.key(stemArchived, sessionID)).Result()
		if err != nil {
			return nil, "", s.failure("list runs", err)
		}
		if n == 0 {
			return nil, "", fmt.Errorf("session %s: %w", sessionID, forkcore.ErrNotFound)
		}
	}
	next := ""
	if limit > 0 && len(rows) > limit {
		rows = rows[:limit]
		next = formatInt(int64(rows[limit-1].Score))
	}
	ids := make([]string, len(rows))
	for i, z := range rows {
		ids[i] = z.Member.(string)
	}
	hashes, err := s.objects(ctx, "runs", stemRun, ids)
	if err != nil {
		return nil, "", err
	}
	runs := make([]forkcore.Run, len(hashes))
	for i, f := range hashes {
		if runs[i], err = parseRun(f); err != nil {
			return nil, "", fmt.Errorf("run %s: %w", ids[i], err)
		}
	}
	return runs, next, nil
}
