package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// Client puts wakes on the ready list.
type Client struct {
	asynq *asynq.Client
	ready ReadyList
	limit int
}

var _ engine.Enqueuer = (*Client)(nil)

// NewClient returns a client on the caller's connection, which stays the
// caller's to close. limit is how many runs of a session may be executed at a time; 0 = any number.
func NewClient(r redis.UniversalClient, ready ReadyList, limit int) *Client {
	return &Client{asynq: asynq.NewClientFromRedisClient(r), ready: ready, limit: limit}
}

// Enqueue puts wakes on the ready list. A run that is there already keeps its
// place. A list that cannot be reached is forkcore.ErrStoreUnavailable.
func (c *Client) Enqueue(ctx context.Context, wakes ...engine.Wake) error {
	added, err := c.ready.Offer(ctx, c.limit, wakes...)
	if err != nil {
		return fmt.Errorf("enqueue %d wakes: %w", len(wakes), err)
	}
	for pool, n := range added {
		if err := c.tokens(ctx, pool, n); err != nil {
			return err
		}
	}
	return nil
}

// tokens enqueues n tokens of a pool. Redelivered after its worker was killed, a token only finds less to pick. Without a
// far deadline asynq would start a second handler after 30 minutes beside the first one.
func (c *Client) tokens(ctx context.Context, pool string, n int) error {
	for range n {
		t := asynq.NewTask(TypeToken, nil, asynq.Queue(QueueOf(pool)), asynq.MaxRetry(1000), asynq.Retention(0), asynq.Deadline(time.Now().AddDate(10, 0, 0)))
		if _, err := c.asynq.EnqueueContext(ctx, t); err != nil {
			return fmt.Errorf("enqueue a token: %w: %w", forkcore.ErrStoreUnavailable, err)
		}
	}
	return nil
}
