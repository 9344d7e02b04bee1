package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"forkyard/forkcore"
)

// Accounts is what all processes know together about the keys that requests
// are sent with, each named by forkcore.Scope.Account. Every method is one
// atomic step by the database's clock.
type Accounts interface {
	// Admit asks for a place among the requests of an account. A place is at the earliest where a cool-down ends, and places
	// after one lie apart: the first gap is Pacing.AfterCooling, each further one a twentieth shorter, so that what waited
	// comes back by degrees. With pace the same holds, with Pacing.Ramp, from the Pacing.Burst-th start after a minute of rest.
	// A place further away than patience is not taken, only told.
	Admit(ctx context.Context, account string, patience time.Duration, pace bool) (Admission, error)
	// CoolDown lets nobody start before a time from now; a later one that is known stays.
	CoolDown(ctx context.Context, account string, d time.Duration) error
	// NoteLimits keeps the latest limits that a response told.
	NoteLimits(ctx context.Context, account string, limits []forkcore.RateLimit) error
	// RefuseKey notes why no request of the account succeeds; the first reason and its time stay.
	RefuseKey(ctx context.Context, account string, reason forkcore.Reason) error
	// AcceptKey takes that back.
	AcceptKey(ctx context.Context, account string) error
	// SucceedKey notes which account replaced another; sealed is the new key for those who hold the old one (see
	// KeyedModel), empty when it came by another way. A sealed one stays against another sealed one: first is false.
	SucceedKey(ctx context.Context, account, successor, sealed string) (first bool, err error)
	// UseAccount notes which account the dashboard uses and returns the one before, empty without one.
	UseAccount(ctx context.Context, account string) (before string, err error)
	// Account returns what is known; of an unknown one the zero state with its id.
	Account(ctx context.Context, account string) (forkcore.ProviderAccount, error)
	// WakeWaiting queues the runs that wait for an account (Wait with WaitFor.Account). With cold, what their dispatches
	// shared is not expected to be held any more: the first fork to go on leads the others again.
	WakeWaiting(ctx context.Context, account string, cold bool) ([]Wake, error)
}

// Pacing is how starts are spread. The numbers are ours: the provider says that a sudden rise is refused, not where it begins.
// Source: Messages API, rate limits, acceleration limits.
var Pacing = struct {
	AfterCooling, Ramp time.Duration
	Burst              int64
	Rest               time.Duration
}{AfterCooling: 600 * time.Millisecond, Ramp: 50 * time.Millisecond, Burst: 8, Rest: time.Minute}

// Admission is the answer of Admit.
type Admission struct {
	// Wait is from now to the place; Placed says that it is taken.
	Wait   time.Duration
	Placed bool
	// Refused is why the key is refused; nothing is placed then.
	Refused *forkcore.Reason
	// Successor is the account that replaced this one, Sealed its key. With Sealed nothing is placed; a successor whose
	// key came by another way is told beside Refused alone.
	Successor, Sealed string
}

// WaitFor is what a run waits for without a worker.
type WaitFor struct {
	// Delay is until when, from now; ignored with Account and Children.
	Delay  time.Duration
	Reason forkcore.Reason
	// Children, when set, are the awaited agents whose end or detachment the run waits for.
	Children []string
	// Account, when set, is the account whose key the run waits for, however long that takes.
	Account string
}

// KeyedModel is a Model whose key can be replaced while it is in use.
type KeyedModel interface {
	forkcore.Model
	forkcore.Scoped
	// Check asks the endpoint with the key in use; with probe two small requests are paid for.
	Check(ctx context.Context, model string, probe bool) (forkcore.ProviderCheck, error)
	// CheckKey does it with another key.
	CheckKey(ctx context.Context, key, model string, probe bool) (forkcore.ProviderCheck, error)
	// Seal encrypts a key for those who hold the one in use, and names its account.
	Seal(key string) (sealed, account string, err error)
	// Adopt opens what was sealed with the key in use, and uses that key from now on.
	Adopt(sealed string) error
}

// account is what the engine's own requests are counted to; empty when the model cannot tell.
func (e *Engine) account() string {
	if m, ok := e.o.Model.(forkcore.Scoped); ok {
		return m.Scope().Account()
	}
	return ""
}

// traits are those of the endpoint.
func (e *Engine) traits() forkcore.Traits {
	if m, ok := e.o.Model.(forkcore.Described); ok {
		return m.Traits()
	}
	return forkcore.Traits{Name: "Messages API", Caching: forkcore.CachingMarks, Prewarm: true, Diagnostics: true}
}

// How long a request waits for its place with its executor; beyond, the run waits without one.
const (
	patienceForeground = 10 * time.Second
	patienceWorker     = 2 * time.Second
)

// foreignRetry is how often a run looks again whether an executor with its session's key is there.
const foreignRetry = 30 * time.Second

// admit waits for the place of the next request, or says in a *waitError what the run has to wait for.
func (d *driver) admit(ctx context.Context) error {
	patience := patienceForeground
	if d.run.Background {
		patience = patienceWorker
	}
	for {
		account := d.e.account()
		if account == "" {
			return nil
		}
		if err := d.belongs(ctx, account); err != nil {
			if d.e.current(ctx) != account {
				continue // the session went ahead to a key that this process had not taken over
			}
			return err
		}
		a, err := d.e.o.Store.Admit(ctx, account, patience, d.e.traits().Ramp)
		switch {
		case err != nil:
			return fmt.Errorf("ask for a place: %w", err)
		case a.Sealed != "" && d.e.adopt(a) == nil:
			continue
		case a.Sealed != "", a.Refused != nil && a.Successor != "":
			// Nobody wakes what waits for this account any more: another process may have the new key.
			return &waitError{WaitFor{Delay: foreignRetry, Reason: *keyReason("the key that this process was started with was replaced, and it does not have the new one", sameKeys)}}
		case a.Refused != nil:
			return &waitError{WaitFor{Reason: *a.Refused, Account: account}}
		case !a.Placed:
			return &waitError{WaitFor{Delay: a.Wait, Reason: forkcore.Reason{
				Code:     forkcore.WaitRateLimit,
				Message:  fmt.Sprintf("the provider wants fewer requests; this one may go at %s", clock(a.Wait)),
				NextStep: "Nothing: it goes on by itself then. Cancel it if that is too late",
			}}}
		}
		return d.pause(ctx, a.Wait)
	}
}

func clock(in time.Duration) string { return time.Now().Add(in).UTC().Format(time.RFC3339) }

// pause waits, unless the run is to end or to go on elsewhere.
func (d *driver) pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.h.handOver:
		return errHandOver
	case <-time.After(wait):
		return nil
	}
}

// belongs checks that the session is bound to this key, or to one that it
// replaced: children spread over keys need not share a cache.
func (d *driver) belongs(ctx context.Context, account string) error {
	for at, steps := d.session.Account, 0; at != "" && at != account; steps++ {
		a, err := d.e.o.Store.Account(ctx, at)
		if err != nil {
			return fmt.Errorf("read the session's account: %w", err)
		}
		if a.Successor == "" || steps == maxSuccessions {
			return &waitError{WaitFor{Delay: foreignRetry, Reason: *keyReason(
				"this conversation is bound to another key or endpoint than the process that took it has",
				sameKeys)}}
		}
		at = a.Successor
	}
	return nil
}

const sameKeys = "Start the dashboard and all workers with the same ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL; it is tried again every 30 seconds"

// maxSuccessions bounds how far a chain of replaced keys is followed.
const maxSuccessions = 32

func keyReason(message, next string) *forkcore.Reason {
	return &forkcore.Reason{Code: forkcore.WaitProvider, Message: message, NextStep: next}
}

// adopt takes over a key that replaced the one in use.
func (e *Engine) adopt(a Admission) error {
	m, ok := e.o.Model.(KeyedModel)
	if !ok {
		return errors.New("the model's key cannot be replaced")
	}
	if m.Scope().Account() == a.Successor {
		return nil // another run was faster
	}
	if err := m.Adopt(a.Sealed); err != nil {
		if m.Scope().Account() == a.Successor {
			return nil
		}
		e.log.Error("take over the replaced key", "err", err)
		return err
	}
	e.log.Info("the key was replaced", "account", a.Successor)
	return nil
}

// failedAttempt tells the other processes what a failed attempt says about the
// account, and what the run has to wait for because of it; nil = only its own pause.
func (d *driver) failedAttempt(ctx context.Context, me *forkcore.ModelError, account string) error {
	if account == "" {
		return nil
	}
	switch {
	case me.KeyRefused:
		reason := *keyReason(me.Message, refusedNext)
		if err := d.e.o.Store.RefuseKey(ctx, account, reason); err != nil {
			return fmt.Errorf("note that the key is refused: %w", err)
		}
		return &waitError{WaitFor{Reason: reason, Account: account}}
	case me.Code == forkcore.CodeRateLimited, me.Retryable && me.RetryAfter > 0: // an overloaded provider may say when as well
		if err := d.e.o.Store.CoolDown(ctx, account, me.RetryAfter); err != nil {
			return fmt.Errorf("note the provider's pause: %w", err)
		}
	}
	return nil
}

// ProviderAccount is what is known about the key in use.
func (e *Engine) ProviderAccount(ctx context.Context) (forkcore.ProviderAccount, error) {
	return e.o.Store.Account(ctx, e.current(ctx))
}

// current is the account in use, after taking over a key that another process replaced.
func (e *Engine) current(ctx context.Context) string {
	account := e.account()
	if account == "" {
		return ""
	}
	if a, err := e.o.Store.Admit(ctx, account, -1, false); err == nil && a.Sealed != "" {
		_ = e.adopt(a) // logged; the old one stays in use
	}
	return e.account()
}

// CheckProvider asks the endpoint with the key in use. When it works and was
// refused before, the runs that waited for it go on; resumed counts them.
func (e *Engine) CheckProvider(ctx context.Context, model string, probe bool) (check forkcore.ProviderCheck, resumed int, err error) {
	m, ok := e.o.Model.(KeyedModel)
	if !ok {
		return check, 0, &forkcore.ConflictError{Message: "There is no endpoint to check.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
	}
	account := e.current(ctx)
	if check, err = m.Check(ctx, e.modelOr(model), probe); err != nil {
		return check, 0, err
	}
	if account == "" {
		return check, 0, nil
	}
	if err := e.o.Store.NoteLimits(ctx, account, check.Limits); err != nil {
		return check, 0, err
	}
	switch err := check.Probe.Refusal(); {
	case check.Outcome == forkcore.ProviderRefused:
		return check, 0, e.o.Store.RefuseKey(ctx, account, *keyReason(check.Detail, refusedNext))
	case err != nil:
		return check, 0, e.o.Store.RefuseKey(ctx, account, *keyReason(err.Message, refusedNext))
	case check.Outcome != forkcore.ProviderOK:
		return check, 0, nil
	}
	known, err := e.o.Store.Account(ctx, account)
	if err != nil || known.Refused == nil {
		return check, 0, err
	}
	if !probe {
		// A list of models tells nothing about credit: only a request does.
		return check, 0, nil
	}
	if err := e.o.Store.AcceptKey(ctx, account); err != nil {
		return check, 0, err
	}
	resumed, err = e.resume(ctx, account, false)
	return check, resumed, err
}

const refusedNext = "Give another key on the page “Key and limits” (/provider), or mend the account and check again there: the run then goes on by itself"

// ReplaceKey checks another key for the same endpoint and, when it works, uses
// it from now on, in this process and in all that hold the one in use. The runs
// that waited go on; resumed counts them. What the provider cached for the old
// key is taken for lost. A key that does not work changes nothing: see check.
func (e *Engine) ReplaceKey(ctx context.Context, key string) (check forkcore.ProviderCheck, resumed int, err error) {
	m, ok := e.o.Model.(KeyedModel)
	if !ok {
		return check, 0, &forkcore.ConflictError{Message: "There is no endpoint whose key could be replaced.", NextStep: "Set ANTHROPIC_API_KEY and start again."}
	}
	key = strings.TrimSpace(key)
	select {
	case e.replacing <- struct{}{}:
		defer func() { <-e.replacing }()
	case <-ctx.Done():
		return check, 0, context.Cause(ctx)
	}
	old := e.current(ctx)
	sealed, account, err := m.Seal(key)
	if err != nil {
		return check, 0, forkcore.Invalid("api_key", err.Error())
	}
	if check, err = m.CheckKey(ctx, key, e.o.DefaultModel, true); err != nil {
		return check, 0, err
	}
	if check.Outcome != forkcore.ProviderOK || check.Probe.Refusal() != nil {
		return check, 0, nil
	}
	// Half of what follows would leave runs waiting for a key that nobody uses: it does not end with the caller.
	ctx, done := cleanup(ctx)
	defer done()
	if err := e.o.Store.AcceptKey(ctx, account); err != nil {
		return check, 0, err
	}
	switch first, err := e.o.Store.SucceedKey(ctx, old, account, sealed); {
	case err != nil:
		return check, 0, err
	case !first:
		return check, 0, &forkcore.ConflictError{Message: "Somebody gave another key at the same time, and that one is in use.", NextStep: "Look which key is in use, and give yours again if it is still wanted."}
	}
	if err := e.adopt(Admission{Successor: account, Sealed: sealed}); err != nil {
		return check, 0, err
	}
	if _, err := e.o.Store.UseAccount(ctx, account); err != nil {
		return check, 0, err
	}
	if resumed, err = e.resume(ctx, old, true); err != nil {
		return check, resumed, err
	}
	more, err := e.resume(ctx, account, true)
	return check, resumed + more, err
}

func (e *Engine) modelOr(model string) string {
	if model == "" {
		return e.o.DefaultModel
	}
	return model
}

// resume puts the runs that wait for an account back on the ready-list.
func (e *Engine) resume(ctx context.Context, account string, cold bool) (int, error) {
	wakes, err := e.o.Store.WakeWaiting(ctx, account, cold)
	e.enqueue(ctx, wakes...)
	return len(wakes), err
}

// announce is done once at the start: it tells the others which key the
// dashboard uses, so that sessions bound to the one before move to it, and wakes what no longer has anything to wait for.
func (e *Engine) announce(ctx context.Context) error {
	account := e.current(ctx)
	if account == "" {
		return nil
	}
	if e.o.Dashboard {
		before, err := e.o.Store.UseAccount(ctx, account)
		if err != nil {
			return err
		}
		if before != "" && before != account {
			if _, err := e.o.Store.SucceedKey(ctx, before, account, ""); err != nil {
				return err
			}
			if _, err := e.resume(ctx, before, true); err != nil {
				return err
			}
		}
	}
	known, err := e.o.Store.Account(ctx, account)
	if err != nil || known.Refused != nil {
		return err
	}
	_, err = e.resume(ctx, account, false)
	return err
}
