// Package redisstore keeps sessions, runs, logs and events in Redis.
//
// Every change of state is one Lua script in the session's shard (scripts/,
// keys.go), so a run's state, its log, its budget and its events cannot
// disagree. It implements engine.Store, the event readers and the store of
// login secrets.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

var _ engine.Store = (*Store)(nil)

// Options configures a Store. The zero value is usable.
type Options struct {
	// Logger hears about trouble that no caller is told of; default slog.Default.
	Logger *slog.Logger
	// GateTTL is for how long the opening of a gate is trusted: the life of
	// the provider's shared entry less a margin. Default 290 s.
	GateTTL time.Duration
	// InProcess says that the server is an in-process stand-in without an
	// eviction policy, so that CheckServer has nothing to read.
	InProcess bool
	// Archive is where this process puts idle sessions away; with an empty Dir it does not, and opens none. An in-process
	// stand-in keeps nothing, so it has no archive either.
	Archive forkcore.ArchivePolicy
}

// Store is the database of the engine. Its methods are safe for concurrent use.
type Store struct {
	client    redis.UniversalClient
	address   string
	logger    *slog.Logger
	gateTTL   time.Duration
	inProcess bool
	scripts   map[scriptName]*redis.Script
	alone     lonely
	archive   archive
	packer    *zstd.Encoder
	unpacker  *zstd.Decoder
}

// New returns a store on client, which stays the caller's to close.
func New(client redis.UniversalClient, o Options) *Store {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.GateTTL == 0 {
		o.GateTTL = 290 * time.Second
	}
	s := &Store{
		client:    client,
		address:   addressOf(client),
		logger:    o.Logger,
		gateTTL:   o.GateTTL,
		inProcess: o.InProcess,
	}
	s.scripts, s.alone = loadScripts()
	if !o.InProcess {
		s.archive.policy = o.Archive
	}
	s.packer, s.unpacker = newPacker()
	return s
}

// addressOf names the server for error messages; never with a password.
func addressOf(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().Addr
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return "redis"
}

// Ping tells whether the database answers; the error is forkcore.ErrStoreUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	return s.failure("ping", s.client.Ping(ctx).Err())
}

// CheckServer refuses a Redis that may evict keys, because every key here is
// the only copy of something. The error names the setting to change.
func (s *Store) CheckServer(ctx context.Context) error {
	if s.inProcess {
		return s.Ping(ctx)
	}
	info, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return s.failure("read INFO memory", err)
	}
	for line := range strings.Lines(info) {
		policy, found := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if found && policy != "noeviction" {
			return fmt.Errorf("redis at %s may evict keys (maxmemory-policy %s): run \"CONFIG SET maxmemory-policy noeviction\" and set the same in redis.conf", s.address, policy)
		}
		if found {
			return nil
		}
	}
	return fmt.Errorf("redis at %s does not report maxmemory_policy in INFO memory: allow INFO for this user", s.address)
}

// refusals are answers of a server that is there but cannot serve now.
var refusals = [...]string{"LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "ERR max number of clients"}

// failure says what was being done and makes every error of the network
// forkcore.ErrStoreUnavailable. nil stays nil.
func (s *Store) failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return fmt.Errorf("%s: %w at %s: %w", doing, forkcore.ErrStoreUnavailable, s.address, err)
	}
	if strings.HasPrefix(err.Error(), "OOM") {
		return fmt.Errorf("%s: %w at %s: %w", doing, forkcore.ErrStoreFull, s.address, err)
	}
	for _, r := range refusals {
		if strings.HasPrefix(err.Error(), r) {
			return fmt.Errorf("%s: %w at %s: %w", doing, forkcore.ErrStoreUnavailable, s.address, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
