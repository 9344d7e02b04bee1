package jobs

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Keeper repairs the ready list while it runs, in any number of processes: it adds tokens where entries have none, removes
// tasks that asynq has given up or lost, and gives back places of runs whose workers died.
type Keeper struct {
	client    *Client
	redis     redis.UniversalClient
	inspector *asynq.Inspector
	log       *slog.Logger
	// short is how many tokens each pool lacked at the last look: what lacks once may be on its way.
	short map[string]int
	// stray are the tasks that were active without a lease, since when.
	stray map[string]time.Time
	down  bool
}

// strayGrace is after how long a task that is active without a lease is taken for lost: asynq renews leases every 5 s.
const strayGrace = 60 * time.Second

// NewKeeper returns a keeper on the caller's connection.
func NewKeeper(r redis.UniversalClient, c *Client, log *slog.Logger) *Keeper {
	return &Keeper{client: c, redis: r, inspector: asynq.NewInspectorFromRedisClient(r), log: log, short: map[string]int{}, stray: map[string]time.Time{}}
}

// Start looks every second until stop is called.
func (k *Keeper) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(time.Second)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			err := k.Look(ctx)
			if (err != nil) != k.down && ctx.Err() == nil {
				k.down = err != nil
				if err != nil {
					k.log.Warn("looking after the ready list failed, and is tried again every second", "err", err)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Look does it once.
func (k *Keeper) Look(ctx context.Context) error {
	named, err := k.client.ready.Pools(ctx)
	if err != nil {
		return err
	}
	pools := slices.Collect(maps.Keys(named))
	if !slices.Contains(pools, "") {
		pools = append(pools, "")
	}
	depths, err := k.client.ready.Depths(ctx, pools)
	if err != nil {
		return err
	}
	for _, pool := range pools {
		if err := k.lookAt(ctx, pool, int(depths[pool])); err != nil {
			return err
		}
	}
	if k.client.limit > 0 {
		return k.client.ready.FreePlaces(ctx, k.client.limit)
	}
	return nil
}

func (k *Keeper) lookAt(ctx context.Context, pool string, entries int) error {
	queue := QueueOf(pool)
	base := "asynq:{" + queue + "}:"
	// Read directly: the inspector's summary samples every task's memory.
	var pending, archived, retry *redis.IntCmd
	var active *redis.StringSliceCmd
	if _, err := k.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		pending, active = p.LLen(ctx, base+"pending"), p.LRange(ctx, base+"active", 0, -1)
		archived, retry = p.ZCard(ctx, base+"archived"), p.ZCard(ctx, base+"retry")
		return nil
	}); err != nil {
		return err
	}
	// Until a second look says so too, tokens may be on their way: between an offer and its enqueue, or between a handler's start and its pick.
	lack := max(entries-int(pending.Val()), 0)
	both := min(lack, k.short[pool])
	k.short[pool] = lack
	if both > 0 {
		k.short[pool] = 0
		if err := k.client.tokens(ctx, pool, both); err != nil {
			return err
		}
	}
	for n, remove := range map[*redis.IntCmd]func(string) (int, error){archived: k.inspector.DeleteAllArchivedTasks, retry: k.inspector.DeleteAllRetryTasks} {
		if n.Val() == 0 {
			continue
		}
		if _, err := remove(queue); err != nil && !errors.Is(err, asynq.ErrQueueNotFound) {
			return err
		}
	}
	return k.removeStray(ctx, base, active.Val())
}

// removeStray removes tasks that asynq takes for active although no lease says that anybody has them: its recoverer never
// looks at them again. They are tokens, so nothing but their own memory is lost.
// Source: hibiken/asynq issue 1144.
func (k *Keeper) removeStray(ctx context.Context, base string, active []string) error {
	now := time.Now()
	for _, id := range active {
		err := k.redis.ZScore(ctx, base+"lease", id).Err()
		switch {
		case err == nil:
			delete(k.stray, base+id)
		case !errors.Is(err, redis.Nil):
			return err
		case k.stray[base+id].IsZero():
			k.stray[base+id] = now
		case now.Sub(k.stray[base+id]) > strayGrace:
			delete(k.stray, base+id)
			if _, err := k.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.LRem(ctx, base+"active", 1, id)
				p.Del(ctx, base+"t:"+id)
				return nil
			}); err != nil {
				return err
			}
			k.log.Warn("removed a task that was active without a lease", "task", id)
		}
	}
	return nil
}
