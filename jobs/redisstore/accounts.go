package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// accountStep performs one step of an account's script.
func (s *Store) accountStep(ctx context.Context, what, account string, a args) ([]string, error) {
	answer, err := s.alone.account.Run(ctx, s.client, []string{keyAccounts + account}, what, encode(a)).StringSlice()
	return answer, s.failure(what+" account", err)
}

// Admit implements engine.Accounts.
func (s *Store) Admit(ctx context.Context, account string, patience time.Duration, pace bool) (engine.Admission, error) {
	p := engine.Pacing
	a, err := s.accountStep(ctx, "admit", account, args{
		"patience": millis(patience), "pace": formatBool(pace), "burst": formatInt(p.Burst), "ramp": millis(p.Ramp), "rest": millis(p.Rest),
	})
	if err != nil {
		return engine.Admission{}, err
	}
	switch {
	case len(a) == 3 && a[0] == "successor":
		return engine.Admission{Successor: a[1], Sealed: a[2]}, nil
	case len(a) == 3 && a[0] == "refused":
		f := &fieldReader{fields: fields{"refused": a[1]}}
		return engine.Admission{Refused: jsonField[forkcore.Reason](f, "refused"), Successor: a[2]}, f.err
	case len(a) == 2 && (a[0] == "placed" || a[0] == "later"):
		f := &fieldReader{fields: fields{"wait": a[1]}}
		return engine.Admission{Wait: time.Duration(f.int("wait")) * time.Millisecond, Placed: a[0] == "placed"}, f.err
	}
	return engine.Admission{}, fmt.Errorf("admit: answer %q", a)
}

// CoolDown implements engine.Accounts.
func (s *Store) CoolDown(ctx context.Context, account string, d time.Duration) error {
	_, err := s.accountStep(ctx, "cool", account, args{"delay": millis(d), "gap": millis(engine.Pacing.AfterCooling)})
	return err
}

// NoteLimits implements engine.Accounts.
func (s *Store) NoteLimits(ctx context.Context, account string, limits []forkcore.RateLimit) error {
	if len(limits) == 0 {
		return nil
	}
	_, err := s.accountStep(ctx, "limits", account, args{"limits": encode(limits)})
	return err
}

// RefuseKey implements engine.Accounts.
func (s *Store) RefuseKey(ctx context.Context, account string, reason forkcore.Reason) error {
	_, err := s.accountStep(ctx, "refuse", account, args{"reason": encode(reason)})
	return err
}

// AcceptKey implements engine.Accounts.
func (s *Store) AcceptKey(ctx context.Context, account string) error {
	_, err := s.accountStep(ctx, "accept", account, args{})
	return err
}

// SucceedKey implements engine.Accounts.
func (s *Store) SucceedKey(ctx context.Context, account, successor, sealed string) (bool, error) {
	a, err := s.accountStep(ctx, "succeed", account, args{"successor": successor, "sealed": sealed})
	return err == nil && a[0] == "ok", err
}

// UseAccount implements engine.Accounts.
func (s *Store) UseAccount(ctx context.Context, account string) (string, error) {
	before, err := s.client.SetArgs(ctx, keyAccount, account, redis.SetArgs{Get: true}).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return before, s.failure("use account", err)
}

// Account implements engine.Accounts.
func (s *Store) Account(ctx context.Context, account string) (forkcore.ProviderAccount, error) {
	cmds := make([]*redis.IntCmd, forkcore.Shards)
	var hash *redis.MapStringStringCmd
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		hash = p.HGetAll(ctx, keyAccounts+account)
		for i := range cmds {
			cmds[i] = p.SCard(ctx, shard(i).key(stemWaiting, account))
		}
		return nil
	})
	if err != nil {
		return forkcore.ProviderAccount{}, s.failure("read account", err)
	}
	r := &fieldReader{fields: hash.Val()}
	out := forkcore.ProviderAccount{
		ID: account, Refused: jsonField[forkcore.Reason](r, "refused"), RefusedAt: r.time("refused_at"), CoolUntil: r.time("cool"),
		LimitsAt: r.time("limits_at"), Successor: r.text("successor"),
	}
	if limits := jsonField[[]forkcore.RateLimit](r, "limits"); limits != nil {
		out.Limits = *limits
	}
	for _, c := range cmds {
		out.Waiting += c.Val()
	}
	return out, r.err
}

// WakeWaiting implements engine.Accounts: one pipeline over all shards. Shards that answered count even when another failed.
func (s *Store) WakeWaiting(ctx context.Context, account string, cold bool) ([]engine.Wake, error) {
	return s.wakesOfAll(ctx, everyShard(scriptWakeWaiting, args{"account": account, "cold": formatBool(cold)}))
}
