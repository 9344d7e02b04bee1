package api

import (
	"fmt"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

const (
	defaultLimit = 50
	maxLimit     = 200
)

// list is one page of a list.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

func newList[T any](items []T, next string) list[T] {
	if items == nil {
		items = []T{}
	}
	return list[T]{Items: items, NextCursor: orNull(next)}
}

// page reads ?cursor= and ?limit=.
func page(c echo.Context) (cursor string, limit int, err error) {
	limit = defaultLimit
	if text := c.QueryParam("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > maxLimit {
			return "", 0, forkcore.Invalid("limit", fmt.Sprintf("must be a whole number from 1 to %d", maxLimit))
		}
	}
	return c.QueryParam("cursor"), limit, nil
}

// sequence reads a query parameter that is a whole number from 0; absent is 0.
func sequence(c echo.Context, name string) (int64, error) {
	text := c.QueryParam(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, forkcore.Invalid(name, "must be a whole number from 0")
	}
	return n, nil
}

// stamp is RFC 3339 in UTC with milliseconds; the zero time is nil.
func stamp(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return &s
}

// stampOf is stamp for a time that may be absent.
func stampOf(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return stamp(*t)
}

// orNull turns "" into JSON null.
func orNull[S ~string](s S) *string {
	if s == "" {
		return nil
	}
	text := string(s)
	return &text
}
