package redisstore

import (
	"context"
	"fmt"
	"strconv"
)

// Flags implements engine.FlagStore.
func (s *Store) Flags(ctx context.Context) (map[string]bool, error) {
	stored, err := s.client.HGetAll(ctx, keyFlags).Result()
	if err != nil {
		return nil, s.failure("read flags", err)
	}
	flags := make(map[string]bool, len(stored))
	for name, v := range stored {
		if flags[name], err = strconv.ParseBool(v); err != nil {
			return nil, fmt.Errorf("read flag %s: %w", name, err)
		}
	}
	return flags, nil
}

// SetFlag implements engine.FlagStore.
func (s *Store) SetFlag(ctx context.Context, name string, value bool) error {
	return s.failure("set a flag", s.client.HSet(ctx, keyFlags, name, strconv.FormatBool(value)).Err())
}
