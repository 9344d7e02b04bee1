// Package jobs lets workers take runs off the ready list. The list is ours: which run is next, what is paused, who may
// serve it. asynq carries tokens: an anonymous task for each entry of the list, in the queue of its pool. A worker that
// gets a token picks the entry whose turn it is. So nothing about a run hangs on a task of asynq: states, retries, delays, cancelling and
// recovery are in the run scripts and the sweep, a handler always returns nil, nothing is retained, and a token that is
// lost, archived or stuck is replaced by Keeper.
package jobs

import (
	"context"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// ReadyList is the list that tokens stand for. *redisstore.Store is one. limit is how many runs of a session may be
// executed at a time; 0 = any number.
type ReadyList interface {
	Offer(ctx context.Context, limit int, wakes ...engine.Wake) (added map[string]int, err error)
	Pick(ctx context.Context, limit int, pools []string) (w engine.Wake, ok bool, err error)
	Done(ctx context.Context, limit int, w engine.Wake) error
	FreePlaces(ctx context.Context, limit int) error
	Depths(ctx context.Context, pools []string) (map[string]int64, error)
	NamePools(ctx context.Context, roots ...string) error
	Pools(ctx context.Context) (map[string]string, error)
	Announce(ctx context.Context, executor string, info *forkcore.Worker) (drain bool, err error)
}

// TypeToken is the task type of a token.
const TypeToken = "run:token"

// QueueOf is the asynq queue of a pool.
func QueueOf(pool string) string {
	if pool == "" {
		return "default"
	}
	return "runs-" + pool
}
