package memstore

import (
	"context"
	"maps"
)

// Flags implements engine.FlagStore.
func (s *Store) Flags(ctx context.Context) (map[string]bool, error) {
	leave, err := s.enter(ctx, "read flags")
	if err != nil {
		return nil, err
	}
	defer leave()
	return maps.Clone(s.flags), nil
}

// SetFlag implements engine.FlagStore.
func (s *Store) SetFlag(ctx context.Context, name string, value bool) error {
	leave, err := s.enter(ctx, "set a flag")
	if err != nil {
		return err
	}
	defer leave()
	s.flags[name] = value
	return nil
}
