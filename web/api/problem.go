package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type     string `json:"type"`
	Title    string `json:"title"` // the status in words
	Status   int    `json:"status"`
	Detail   string `json:"detail"`
	Instance string `json:"instance,omitempty"` // the path of the request
	// NextStep is what the caller can do about it.
	NextStep string                `json:"next_step,omitempty"`
	Errors   []forkcore.FieldError `json:"errors,omitempty"`
}

// NewProblem makes the document of a status.
func NewProblem(status int, detail, nextStep string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail, NextStep: nextStep}
}

// Error makes a Problem an error that handlers and middleware return.
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }

// ProblemOf is the one table from errors to what callers are told. Errors that it does not know are
// 500 and say nothing about the inside; log those.
func ProblemOf(err error) *Problem {
	var (
		problem  *Problem
		invalid  *forkcore.InvalidError
		conflict *forkcore.ConflictError
		tooLarge *http.MaxBytesError
		routing  *echo.HTTPError
	)
	switch {
	case errors.As(err, &problem):
		copied := *problem
		return &copied
	case errors.As(err, &invalid):
		p := NewProblem(http.StatusUnprocessableEntity, "The request has fields that are not valid.", "Correct the fields listed in errors.")
		p.Errors = invalid.Fields
		return p
	case errors.Is(err, forkcore.ErrIdempotencyMismatch):
		p := NewProblem(http.StatusUnprocessableEntity, "This Idempotency-Key was used for a different request.", "Use a new key for a new request.")
		p.Errors = []forkcore.FieldError{{Field: idempotencyHeader, Message: "was used for a different request"}}
		return p
	case errors.As(err, &conflict):
		return NewProblem(http.StatusConflict, conflict.Message, conflict.NextStep)
	case errors.Is(err, forkcore.ErrBudget):
		return NewProblem(http.StatusConflict, "The budget is too small: not even one request fits into what is left of it.", "Raise the budget. A request reserves what its answer may cost until its real cost is known.")
	case errors.Is(err, forkcore.ErrConflict):
		return NewProblem(http.StatusConflict, "This does not fit the present state.", "Read the object again and decide anew.")
	case errors.Is(err, forkcore.ErrNotFound), errors.Is(err, forkcore.ErrBadID), errors.Is(err, forkcore.ErrBadDigest):
		return NewProblem(http.StatusNotFound, "There is no such object.", "Check the id.")
	case errors.Is(err, forkcore.ErrStoreFull):
		return NewProblem(http.StatusServiceUnavailable, "Redis is full and refuses to write, so nothing was changed. What is stored can be read.",
			"Archive sessions on the page Storage, or raise maxmemory of Redis, then try again.")
	case errors.Is(err, forkcore.ErrStoreUnavailable), errors.Is(err, context.DeadlineExceeded):
		return NewProblem(http.StatusServiceUnavailable, "The database cannot be reached.",
			"Check that Redis runs and that FORKYARD_REDIS_URL is right, then try again; /readyz tells when it is back.")
	case errors.Is(err, forkcore.ErrCorrupt):
		return NewProblem(http.StatusInternalServerError, "Stored bytes do not match their SHA-256: they are damaged and not shown.",
			"Look for the digest in the log of the server and restore the database.")
	case errors.As(err, &tooLarge):
		return NewProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("The request body is larger than %d bytes.", tooLarge.Limit), "Send less at once.")
	case errors.As(err, &routing):
		switch routing.Code {
		case http.StatusNotFound:
			return NewProblem(http.StatusNotFound, "There is nothing at this path.", "The calls are described in /api/v1/openapi.yaml.")
		case http.StatusMethodNotAllowed:
			return NewProblem(http.StatusMethodNotAllowed, "This path does not take this method.", "The Allow header lists those that it takes.")
		}
		return NewProblem(routing.Code, http.StatusText(routing.Code)+".", "")
	}
	return NewProblem(http.StatusInternalServerError, "Something went wrong inside the server.", "The log of the server has the cause.")
}

// WriteProblem answers with the problem document of an error.
func WriteProblem(c echo.Context, p *Problem) error {
	p.Instance = c.Request().URL.Path
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encoding a problem document: %w", err)
	}
	return c.Blob(p.Status, "application/problem+json", body)
}
