package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// theOwner takes turns for all sessions until sessions belong to somebody.
const theOwner = "team"

func (s *Store) readyStep(ctx context.Context, what string, a args) ([]string, error) {
	answer, err := s.alone.ready.Run(ctx, s.client, []string{keyReady}, what, encode(a)).StringSlice()
	if err != nil {
		return nil, s.failure("ready list: "+what, err)
	}
	return answer, nil
}

func class(batch bool) string {
	if batch {
		return "b"
	}
	return "i"
}

// Offer puts wakes into the ready list and answers how many entries each pool
// has more. A run that is there already keeps its place, with the later wake.
// limit is how many runs of a session may be executed at a time; 0 = any number.
func (s *Store) Offer(ctx context.Context, limit int, wakes ...engine.Wake) (map[string]int, error) {
	list := make([]fields, len(wakes))
	for i, w := range wakes {
		list[i] = fields{"run": w.RunID, "n": formatInt(w.N), "session": w.SessionID, "pool": w.Pool, "class": class(w.Batch), "owner": theOwner}
	}
	answer, err := s.readyStep(ctx, "offer", args{"wakes": list, "cap": strconv.Itoa(limit)})
	if err != nil {
		return nil, err
	}
	added := make(map[string]int, len(answer)/2)
	for i := 0; i+1 < len(answer); i += 2 {
		if added[answer[i]], err = strconv.Atoi(answer[i+1]); err != nil {
			return nil, fmt.Errorf("ready list: offer: %w", err)
		}
	}
	return added, nil
}

// Pick takes the wake whose turn it is out of the pools' lists; ok is false when there is none that may run now.
func (s *Store) Pick(ctx context.Context, limit int, pools []string) (w engine.Wake, ok bool, err error) {
	a, err := s.readyStep(ctx, "pick", args{"pools": pools, "cap": strconv.Itoa(limit)})
	if err != nil || len(a) < 3 {
		return w, false, err
	}
	w.RunID, w.SessionID = a[0], a[2]
	w.N, err = strconv.ParseInt(a[1], 10, 64)
	return w, err == nil, err
}

// Done says that a picked wake is not executed any more, so that its session has room again. Needed with a limit only.
func (s *Store) Done(ctx context.Context, limit int, w engine.Wake) error {
	_, err := s.readyStep(ctx, "done", args{"session": w.SessionID, "run": w.RunID, "cap": strconv.Itoa(limit)})
	return err
}

// FreePlaces gives back the places of picked runs that are not running any more although nobody said so: their executors died.
func (s *Store) FreePlaces(ctx context.Context, limit int) error {
	sessions, err := s.client.SMembers(ctx, keyReady+"capped").Result()
	if err != nil {
		return s.failure("ready list: read places", err)
	}
	for _, sid := range sessions {
		picked, err := s.client.HGetAll(ctx, keyReady+"busy:"+sid).Result()
		if err != nil {
			return s.failure("ready list: read places", err)
		}
		for run, ms := range picked {
			n, err := strconv.ParseInt(ms, 10, 64)
			if err != nil || time.Since(time.UnixMilli(n)) < placeGrace {
				continue
			}
			if r, err := s.Run(ctx, run); err == nil && r.State == forkcore.Running {
				continue
			}
			if err := s.Done(ctx, limit, engine.Wake{RunID: run, SessionID: sid}); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeGrace is how long a picked run may take to be leased.
const placeGrace = 10 * time.Second

// The scopes of Pause.
const (
	ScopeAll     = "all"
	scopePool    = "pool:"
	scopeSession = "session:"
)

// Pause lets nothing new start in a scope: ScopeAll, "pool:<pool>" or "session:<session>". What runs goes on.
func (s *Store) Pause(ctx context.Context, scope string, paused bool) error {
	what := "resume"
	if paused {
		what = "pause"
	}
	_, err := s.readyStep(ctx, what, args{"scope": scope})
	return err
}

// Announce tells that a worker is there, by the database's clock, and answers whether somebody wants it drained. A nil info says that it goes.
func (s *Store) Announce(ctx context.Context, executor string, info *forkcore.Worker) (drain bool, err error) {
	text := ""
	if info != nil {
		text = encode(info)
	}
	a, err := s.readyStep(ctx, "announce", args{"executor": executor, "info": text})
	return err == nil && len(a) > 0 && a[0] == "1", err
}

// DrainWorker asks a worker to hand over what it does and to take nothing new, or takes that back.
func (s *Store) DrainWorker(ctx context.Context, executor string, on bool) error {
	a, err := s.readyStep(ctx, "drain", args{"executor": executor, "on": formatBool(on)})
	if err == nil && len(a) > 0 && a[0] == "unknown" {
		return fmt.Errorf("worker %s: %w", executor, forkcore.ErrNotFound)
	}
	return err
}

// NamePools notes which roots the pools are of.
func (s *Store) NamePools(ctx context.Context, roots ...string) error {
	if len(roots) == 0 {
		return nil
	}
	var values []any
	for _, r := range roots {
		values = append(values, engine.PoolOf(r), r)
	}
	return s.failure("ready list: name pools", s.client.HSet(ctx, keyReady+"pools", values...).Err())
}

// Pools are the roots of the pools that were ever named, by pool.
func (s *Store) Pools(ctx context.Context) (map[string]string, error) {
	pools, err := s.client.HGetAll(ctx, keyReady+"pools").Result()
	return pools, s.failure("ready list: read pools", err)
}

// Depths is how many entries of some pools may be picked now.
func (s *Store) Depths(ctx context.Context, pools []string) (map[string]int64, error) {
	answer, err := s.readyStep(ctx, "depths", args{"pools": pools})
	if err != nil {
		return nil, err
	}
	depths := make(map[string]int64, len(pools))
	for i, pool := range pools {
		if depths[pool], err = strconv.ParseInt(answer[i], 10, 64); err != nil {
			return nil, fmt.Errorf("ready list: count: %w", err)
		}
	}
	return depths, nil
}

// silentWorker is after how long without a word a worker is not shown any more.
const silentWorker = 5 * time.Second

// Queue reads what waits, what is paused and who works.
func (s *Store) Queue(ctx context.Context) (forkcore.QueueStatus, error) {
	var q forkcore.QueueStatus
	pools, err := s.Pools(ctx)
	if err != nil {
		return q, err
	}
	var paused, workers, seen, drains *redis.MapStringStringCmd
	var now *redis.TimeCmd
	entries := map[string]*redis.MapStringStringCmd{}
	if _, ok := pools[""]; !ok {
		pools[""] = ""
	}
	_, err = s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		paused, now = p.HGetAll(ctx, keyReady+"paused"), p.Time(ctx)
		workers, seen, drains = p.HGetAll(ctx, keyReady+"workers"), p.HGetAll(ctx, keyReady+"seen"), p.HGetAll(ctx, keyReady+"drain")
		for id := range pools {
			entries[id] = p.HGetAll(ctx, keyReady+"entries:"+id)
		}
		return nil
	})
	if err != nil {
		return q, s.failure("ready list: read", err)
	}
	at := func(ms string) time.Time {
		n, _ := strconv.ParseInt(ms, 10, 64) // the script wrote it
		return time.UnixMilli(n).UTC()
	}
	for executor, text := range workers.Val() {
		var w forkcore.Worker
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			return q, fmt.Errorf("read worker %s: %w", executor, err)
		}
		w.ID, w.SeenAt = executor, at(seen.Val()[executor])
		_, w.Draining = drains.Val()[executor]
		if now.Val().Sub(w.SeenAt) <= silentWorker {
			q.Workers = append(q.Workers, w)
		}
	}
	slices.SortFunc(q.Workers, func(a, b forkcore.Worker) int { return a.StartedAt.Compare(b.StartedAt) })
	if ms, ok := paused.Val()[ScopeAll]; ok {
		since := at(ms)
		q.PausedSince = &since
	}
	bySession := map[string]*forkcore.QueuedSession{}
	for id, root := range pools {
		p := forkcore.QueuePool{ID: id, Root: root}
		_, p.Paused = paused.Val()[scopePool+id]
		for _, w := range q.Workers {
			if !w.Draining && (id == "" || slices.Contains(w.Pools, id)) {
				p.Workers++
			}
		}
		for _, text := range entries[id].Val() {
			var e struct {
				Session string `json:"session"`
				Class   string `json:"class"`
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return q, fmt.Errorf("read an entry of the ready list: %w", err)
			}
			if bySession[e.Session] == nil {
				bySession[e.Session] = &forkcore.QueuedSession{SessionID: e.Session}
			}
			bySession[e.Session].Ready++
			if e.Class == "b" {
				p.Batch++
			} else {
				p.Interactive++
			}
		}
		if id != "" || p.Batch+p.Interactive > 0 {
			q.Pools = append(q.Pools, p)
		}
	}
	slices.SortFunc(q.Pools, func(a, b forkcore.QueuePool) int { return slices.Compare([]string{a.Root}, []string{b.Root}) })
	for scope := range paused.Val() {
		if len(scope) > len(scopeSession) && scope[:len(scopeSession)] == scopeSession {
			sid := scope[len(scopeSession):]
			if bySession[sid] == nil {
				bySession[sid] = &forkcore.QueuedSession{SessionID: sid}
			}
			bySession[sid].Paused = true
		}
	}
	for _, e := range bySession {
		q.Sessions = append(q.Sessions, *e)
	}
	slices.SortFunc(q.Sessions, func(a, b forkcore.QueuedSession) int {
		if a.Ready != b.Ready {
			return int(b.Ready - a.Ready)
		}
		return slices.Compare([]string{a.SessionID}, []string{b.SessionID})
	})
	return q, nil
}
