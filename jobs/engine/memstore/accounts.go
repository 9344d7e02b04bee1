package memstore

import (
	"context"
	"slices"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// account is what is known of a key at an endpoint.
type account struct {
	forkcore.ProviderAccount
	sealed     string
	next, last time.Time     // the next free place, the last one taken
	gap        time.Duration // between the next two places; 0 = none
	taken      int64         // places since the last rest
}

func (s *Store) account(id string) *account {
	a := s.accounts[id]
	if a == nil {
		a = &account{ProviderAccount: forkcore.ProviderAccount{ID: id}}
		s.accounts[id] = a
	}
	return a
}

// Admit implements engine.Accounts.
func (s *Store) Admit(ctx context.Context, id string, patience time.Duration, pace bool) (engine.Admission, error) {
	leave, err := s.enter(ctx, "admit")
	if err != nil {
		return engine.Admission{}, err
	}
	defer leave()
	a, now := s.account(id), s.begin().now
	switch {
	case a.sealed != "":
		return engine.Admission{Successor: a.Successor, Sealed: a.sealed}, nil
	case a.Refused != nil:
		r := *a.Refused
		return engine.Admission{Refused: &r, Successor: a.Successor}, nil
	}
	p := engine.Pacing
	if now.Sub(a.last) > p.Rest && now.Sub(a.CoolUntil) > p.Rest {
		a.gap, a.taken = 0, 0
	}
	at := now
	for _, t := range []time.Time{a.CoolUntil, a.next} {
		if t.After(at) {
			at = t
		}
	}
	out := engine.Admission{Wait: at.Sub(now)}
	if out.Wait > patience {
		return out, nil
	}
	out.Placed = true
	if a.taken++; a.gap == 0 && pace && a.taken == p.Burst {
		a.gap = p.Ramp
	}
	a.next, a.last = at.Add(a.gap), at
	if a.gap = (a.gap * 19 / 20).Truncate(time.Millisecond); a.gap < 5*time.Millisecond {
		a.gap = 0
	}
	return out, nil
}

// CoolDown implements engine.Accounts.
func (s *Store) CoolDown(ctx context.Context, id string, d time.Duration) error {
	return s.change(ctx, "cool down", id, func(st *step, a *account) {
		if until := st.now.Add(d); until.After(a.CoolUntil) {
			a.CoolUntil = until
		}
		a.gap = engine.Pacing.AfterCooling
	})
}

// NoteLimits implements engine.Accounts.
func (s *Store) NoteLimits(ctx context.Context, id string, limits []forkcore.RateLimit) error {
	if len(limits) == 0 {
		return nil
	}
	return s.change(ctx, "note limits", id, func(st *step, a *account) { a.Limits, a.LimitsAt = slices.Clone(limits), st.now })
}

// RefuseKey implements engine.Accounts.
func (s *Store) RefuseKey(ctx context.Context, id string, reason forkcore.Reason) error {
	return s.change(ctx, "refuse key", id, func(st *step, a *account) {
		if a.Refused == nil {
			a.Refused, a.RefusedAt = &reason, st.now
		}
	})
}

// AcceptKey implements engine.Accounts.
func (s *Store) AcceptKey(ctx context.Context, id string) error {
	return s.change(ctx, "accept key", id, func(_ *step, a *account) {
		a.Refused, a.RefusedAt = nil, time.Time{}
		a.Successor, a.sealed = "", "" // it is in use again
	})
}

// SucceedKey implements engine.Accounts.
func (s *Store) SucceedKey(ctx context.Context, id, successor, sealed string) (first bool, err error) {
	err = s.change(ctx, "succeed key", id, func(_ *step, a *account) {
		if sealed != "" && a.sealed != "" {
			first = a.Successor == successor
			return
		}
		a.Successor, a.sealed, first = successor, sealed, true
	})
	return first, err
}

func (s *Store) change(ctx context.Context, doing, id string, do func(*step, *account)) error {
	leave, err := s.enter(ctx, doing)
	if err != nil {
		return err
	}
	defer leave()
	do(s.begin(), s.account(id))
	return nil
}

// UseAccount implements engine.Accounts.
func (s *Store) UseAccount(ctx context.Context, id string) (string, error) {
	leave, err := s.enter(ctx, "use account")
	if err != nil {
		return "", err
	}
	defer leave()
	before := s.inUse
	s.inUse = id
	return before, nil
}

// Account implements engine.Accounts.
func (s *Store) Account(ctx context.Context, id string) (forkcore.ProviderAccount, error) {
	leave, err := s.enter(ctx, "read account")
	if err != nil {
		return forkcore.ProviderAccount{}, err
	}
	defer leave()
	out := s.account(id).ProviderAccount
	for _, r := range s.runs {
		if r.State == forkcore.Waiting && r.account == id && id != "" {
			out.Waiting++
		}
	}
	return out, nil
}

// WakeWaiting implements engine.Accounts.
func (s *Store) WakeWaiting(ctx context.Context, id string, cold bool) ([]engine.Wake, error) {
	leave, err := s.enter(ctx, "wake waiting")
	if err != nil {
		return nil, err
	}
	defer leave()
	st := s.begin()
	for _, c := range s.order {
		for _, r := range c.runs {
			if r.State != forkcore.Waiting || r.account != id || id == "" {
				continue
			}
			if d := s.dispatches[r.DispatchID]; d != nil && cold && d.Gate == forkcore.GateOpen {
				d.Cold = true
			}
			st.requeue(r)
		}
	}
	st.finish()
	return st.wakes, nil
}
