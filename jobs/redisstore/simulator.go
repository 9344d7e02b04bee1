package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// PublishSimulator tells workers without a key where the dashboard's simulated model listens.
func (s *Store) PublishSimulator(ctx context.Context, url string) error {
	if err := s.client.Set(ctx, simulatorKey, url, 0).Err(); err != nil {
		return s.failure("publish the simulator's address", err)
	}
	return nil
}

// Simulator returns that address, empty when none was published.
func (s *Store) Simulator(ctx context.Context) (string, error) {
	url, err := s.client.Get(ctx, simulatorKey).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", s.failure("read the simulator's address", err)
	}
	return url, nil
}
