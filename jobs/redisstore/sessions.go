package redisstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func sessionFields(s forkcore.Session) fields {
	return nonEmpty(fields{
		"id":          s.ID,
		"title":       s.Title,
		"workspace":   s.Workspace,
		"model":       s.Model,
		"mode":        string(s.Mode),
		"permissions": string(s.PermissionMode),
		"thinking":    string(s.Thinking),
		"effort":      s.Effort,
		"head":        digestOrEmpty(s.Head),
		"budget":      formatInt(s.BudgetNanoUSD),
		"interactive": formatBool(s.Interactive),
		"background":  formatInt(int64(s.AutoBackground)),
		"notify":      string(s.Notify),
		"root":        s.Root,
		"_pool":       engine.PoolOf(s.Root),
		"betas":       strings.Join(s.Betas, " "),
	})
}

func parseSession(f fields) (forkcore.Session, error) {
	r := &fieldReader{fields: f}
	s := forkcore.Session{
		ID:              r.text("id"),
		Title:           r.text("title"),
		Workspace:       r.text("workspace"),
		Root:            r.text("root"),
		Model:           r.text("model"),
		Mode:            forkcore.Mode(r.text("mode")),
		PermissionMode:  forkcore.PermissionMode(r.text("permissions")),
		Effort:          r.text("effort"),
		Head:            r.digest("head"),
		Account:         r.text("account"),
		BudgetNanoUSD:   r.int("budget"),
		Interactive:     r.flag("interactive"),
		AutoBackground:  time.Duration(r.int("background")),
		Notify:          forkcore.NotifyPolicy(r.text("notify")),
		CreatedAt:       r.time("created"),
		UpdatedAt:       r.time("updated"),
		Version:         r.int("version"),
		ActiveRunID:     r.text("active_run"),
		LastRunID:       r.text("last_run"),
		LastState:       forkcore.State(r.text("last_state")),
		LastReason:      jsonField[forkcore.Reason](r, "last_reason"),
		ActiveRuns:      r.int("active_runs"),
		Descendants:     r.int("descendants"),
		Usage:           r.usage(""),
		Cost:            r.cost(""),
		ReservedNanoUSD: r.int("reserved"),
		AtRiskRequests:  r.int("at_risk"),
		Warm:            jsonField[forkcore.CacheEntry](r, "warm"),
		CacheSafe:       jsonField[forkcore.CacheSafeParams](r, "_slot"),
		Archived:        parseArchived(r),
	}
	if b := r.text("betas"); b != "" {
		s.Betas = strings.Fields(b)
	}
	if c := s.CacheSafe; c != nil {
		c.Version, c.RunID, c.At = r.int("_slot_version"), r.text("_slot_run"), r.time("_slot_at")
	}
	if t := r.text("thinking"); t != "" {
		s.Thinking = json.RawMessage(t)
	}
	return s, r.err
}

// CreateSession implements engine.Store. Times are the database's.
func (s *Store) CreateSession(ctx context.Context, session forkcore.Session, requestHash string) (forkcore.Session, bool, error) {
	sh, err := shardOf(session.ID)
	if err != nil {
		return forkcore.Session{}, false, err
	}
	st := freshStep(scriptCreateSession, sh, args{"session": sessionFields(session), "hash": requestHash})
	a, err := opened(ctx, s, session.ID, func() ([]string, error) { return s.run(ctx, st) })
	if err != nil {
		return forkcore.Session{}, false, err
	}
	var f fields
	if err := json.Unmarshal([]byte(a[1]), &f); err != nil {
		return forkcore.Session{}, false, fmt.Errorf("read session: %w", err)
	}
	stored, err := parseSession(f)
	return stored, a[0] == "1", err
}

// Session implements engine.Reader.
func (s *Store) Session(ctx context.Context, id string) (forkcore.Session, error) {
	f, err := opened(ctx, s, id, func() (fields, error) { return s.object(ctx, "session", stemSession, id) })
	if err != nil {
		return forkcore.Session{}, err
	}
	s.NoteOpen(ctx, id)
	return parseSession(f)
}

// sessionPlace is where a session stands in the list of all: newest first, then by id.
type sessionPlace struct {
	micros int64
	id     string
}

func (p sessionPlace) compare(q sessionPlace) int {
	return cmp.Or(cmp.Compare(q.micros, p.micros), cmp.Compare(q.id, p.id))
}

func (p sessionPlace) String() string { return formatInt(p.micros) + "-" + p.id }

func parsePlace(s string) (sessionPlace, error) {
	micros, id, _ := strings.Cut(s, "-")
	n, err := strconv.ParseInt(micros, 10, 64)
	if _, idErr := shardOf(id); err != nil || idErr != nil {
		return sessionPlace{}, forkcore.Invalid("cursor", "must be a next_cursor of an earlier answer")
	}
	return sessionPlace{n, id}, nil
}

// Sessions implements engine.Reader. Each shard is asked for a page; their
// merge is the page. A shard creates at most one session in a microsecond.
func (s *Store) Sessions(ctx context.Context, cursor string, limit int) ([]forkcore.Session, string, error) {
	by := &redis.ZRangeBy{Min: "-inf", Max: "+inf"}
	var after sessionPlace
	if cursor != "" {
		var err error
		if after, err = parsePlace(cursor); err != nil {
			return nil, "", err
		}
		by.Max = formatInt(after.micros)
	}
	if limit > 0 {
		by.Count = int64(limit) + 2 // the cursor's own and one more
	}
	cmds := make([]*redis.ZSliceCmd, forkcore.Shards)
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range cmds {
			cmds[i] = p.ZRevRangeByScoreWithScores(ctx, shard(i).key(stemSessions), by)
		}
		return nil
	})
	if err != nil {
		return nil, "", s.failure("list sessions", err)
	}
	var places []sessionPlace
	for _, c := range cmds {
		for _, z := range c.Val() {
			p := sessionPlace{int64(z.Score), z.Member.(string)}
			if cursor == "" || after.compare(p) < 0 {
				places = append(places, p)
			}
		}
	}
	slices.SortFunc(places, sessionPlace.compare)
	next := ""
	if limit > 0 && len(places) > limit {
		places = places[:limit]
		next = places[limit-1].String()
	}
	ids := make([]string, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	hashes, err := s.sessionHashes(ctx, ids)
	if err != nil {
		return nil, "", err
	}
	list := make([]forkcore.Session, len(hashes))
	for i, f := range hashes {
		if list[i], err = parseSession(f); err != nil {
			return nil, "", fmt.Errorf("session %s: %w", ids[i], err)
		}
	}
	return list, next, nil
}

// sessionHashes reads sessions for lists: of archived ones what is left of them in Redis.
func (s *Store) sessionHashes(ctx context.Context, ids []string) ([]fields, error) {
	hashes, err := s.objects(ctx, "sessions", stemSession, ids)
	if err != nil {
		return nil, err
	}
	// An archived one may come back between two reads, or go.
	for _, stem := range []string{stemArchived, stemSession} {
		var missing []string
		for i, f := range hashes {
			if len(f) == 0 {
				missing = append(missing, ids[i])
			}
		}
		if len(missing) == 0 {
			break
		}
		found, err := s.objects(ctx, "sessions", stem, missing)
		if err != nil {
			return nil, err
		}
		for i := range hashes {
			if len(hashes[i]) == 0 {
				hashes[i], found = found[0], found[1:]
			}
		}
	}
	return hashes, nil
}
