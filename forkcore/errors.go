package forkcore

import (
	"errors"
	"fmt"
)

// Sentinels. Wrap them with what was being done; compare with errors.Is.
var (
	// ErrNotFound is returned by readers of stores for an unknown id.
	ErrNotFound = errors.New("not found")
	// ErrBadID is returned by ShardOf and every store method given a string that is no id.
	ErrBadID = errors.New("not a valid id")
	// ErrBadDigest is returned by ParseDigest.
	ErrBadDigest = errors.New("not a SHA-256 digest")
	// ErrCorrupt is returned by blob readers when stored bytes do not have the digest they are stored under.
	ErrCorrupt = errors.New("stored bytes do not match their digest")
	// ErrConflict is returned when an action does not fit the present state (HTTP 409).
	ErrConflict = errors.New("state conflict")
	// ErrIdempotencyMismatch is returned when an Idempotency-Key comes back with another request.
	ErrIdempotencyMismatch = errors.New("this Idempotency-Key was used for a different request")
	// ErrBudget is returned when no run fits what is left of a budget.
	ErrBudget = errors.New("budget exhausted")
	// ErrStoreUnavailable is returned when the database cannot be reached; nothing was changed, or it is unknown whether it was.
	ErrStoreUnavailable = errors.New("the database cannot be reached")
	// ErrStoreFull is an ErrStoreUnavailable, too: the database answers and reads, but has no memory left to write into. Nothing was changed.
	ErrStoreFull = fmt.Errorf("%w for writing: Redis is full (used_memory is above maxmemory); archive sessions or raise maxmemory", ErrStoreUnavailable)
)

// FieldError says which input field is wrong and what would be right.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// InvalidError lists every bad field of one input at once (HTTP 422).
type InvalidError struct{ Fields []FieldError }

// Invalid returns an *InvalidError for one field.
func Invalid(field, message string) error {
	return &InvalidError{Fields: []FieldError{{Field: field, Message: message}}}
}

// Add notes one more bad field.
func (e *InvalidError) Add(field, format string, args ...any) {
	e.Fields = append(e.Fields, FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (e *InvalidError) Error() string {
	if len(e.Fields) == 0 {
		return "invalid input"
	}
	s := e.Fields[0].Field + ": " + e.Fields[0].Message
	for _, f := range e.Fields[1:] {
		s += "; " + f.Field + ": " + f.Message
	}
	return s
}

// ConflictError is a state conflict with the sentence and the next step that
// a person should read. errors.Is(err, ErrConflict) holds.
type ConflictError struct{ Message, NextStep string }

func (e *ConflictError) Error() string { return e.Message }

// Unwrap makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Unwrap() error { return ErrConflict }
