package redisstore

import (
	"context"
	"time"
)

// SaveSecret remembers the SHA-256 (hex) of a secret of a kind until expires;
// the zero time means for ever. The secret itself is never stored.
func (s *Store) SaveSecret(ctx context.Context, kind, sha256hex string, expires time.Time) error {
	until := "inf"
	if !expires.IsZero() {
		until = formatInt(expires.UnixMilli())
	}
	_, err := s.secretStep(ctx, "save", kind, sha256hex, until)
	return err
}

// TakeSecret uses a secret up: of any number of calls at most one is told ok.
// When the answer is lost on the way the secret is used up as well.
func (s *Store) TakeSecret(ctx context.Context, kind, sha256hex string) (bool, error) {
	return s.secretStep(ctx, "take", kind, sha256hex, "")
}

// CheckSecret tells whether a secret is known and has not expired.
func (s *Store) CheckSecret(ctx context.Context, kind, sha256hex string) (bool, error) {
	return s.secretStep(ctx, "check", kind, sha256hex, "")
}

// DropSecret forgets a secret; an unknown one is no error.
func (s *Store) DropSecret(ctx context.Context, kind, sha256hex string) error {
	_, err := s.secretStep(ctx, "drop", kind, sha256hex, "")
	return err
}

func (s *Store) secretStep(ctx context.Context, what, kind, sha256hex, until string) (bool, error) {
	n, err := s.alone.secret.Run(ctx, s.client, []string{keySecrets}, what, kind+":"+sha256hex, until).Int()
	return n == 1, s.failure(what+" secret", err)
}
