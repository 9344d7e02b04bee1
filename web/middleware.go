package web

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"
)

// maxBody is the largest request body in bytes. A message of a million tokens has about as many.
const maxBody = 4 << 20

// contentPolicy lets pages load from this server alone, run no inline script and be framed by nobody.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func securityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// With "no-referrer" browsers send "Origin: null" with forms, which the origin check would refuse.
		h.Set("Referrer-Policy", "same-origin")
		// Static files and streams say otherwise.
		h.Set("Cache-Control", "no-store")
		return next(c)
	}
}

const requestIDHeader = "X-Request-Id"

// identify gives each request an id that the log and the answer share.
func (s *Server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set(requestIDHeader, rand.Text())
		return next(c)
	}
}

// recoverPanic turns a panic into an error, so that it is answered and logged like others.
func (s *Server) recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch cause := recover(); cause {
			case nil:
			case http.ErrAbortHandler:
				panic(cause)
			default:
				err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			}
		}()
		return next(c)
	}
}

// count counts answers by status. It is the outermost, so it answers errors itself to see their status.
func (s *Server) count(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := next(c); err != nil {
			c.Error(err)
		}
		s.tally.request(c.Request().Method, c.Response().Status)
		return nil
	}
}

// limitBody refuses bodies over maxBody: at once when the length is announced, else while reading.
func limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.ContentLength > maxBody {
			return &http.MaxBytesError{Limit: maxBody}
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, maxBody)
		return next(c)
	}
}

// clientGone reports whether an error only says that nobody waits for the answer any more.
func clientGone(c echo.Context, err error) bool {
	return c.Request().Context().Err() != nil && errors.Is(err, c.Request().Context().Err())
}
