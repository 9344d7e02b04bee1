package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// Client enqueues wakes.
type Client struct{ asynq *asynq.Client }

var _ engine.Enqueuer = (*Client)(nil)

// NewClient returns a client on the caller's connection, which stays the caller's to close.
func NewClient(r redis.UniversalClient) *Client {
	return &Client{asynq: asynq.NewClientFromRedisClient(r)}
}

// Enqueue puts a wake on the ready-list. A wake that is there already is
// success. A list that cannot be reached is forkcore.ErrStoreUnavailable.
func (c *Client) Enqueue(ctx context.Context, w engine.Wake) error {
	t, err := newRunTask(w, time.Now())
	if err != nil {
		return err
	}
	_, err = c.asynq.EnqueueContext(ctx, t)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("enqueue %s: %w: %w", TaskID(w), forkcore.ErrStoreUnavailable, err)
	}
	return nil
}
