package web

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/web/api"
)

const (
	kindLoginCode = "login_code"
	kindSignIn    = "sign_in"

	loginCodeLife = 15 * time.Minute
	signInLife    = 30 * 24 * time.Hour

	cookieName = "forkyard"
)

// newSecret is 26 characters with 130 bits of randomness.
func newSecret() string { return rand.Text() }

// sumOf is what is stored of a secret.
func sumOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// isAdminToken compares sums, so that the time it takes tells nothing about the token, its length included.
func (s *Server) isAdminToken(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

// public reports whether a path needs no sign-in. Everything else does, paths that do not exist included.
func public(path string) bool {
	switch path {
	case pathLogin, pathHealth, pathReady, pathMetrics, prefixAPI + api.DocumentPath:
		return true
	}
	return strings.HasPrefix(path, pathStatic)
}

const signedInKey = "signed in"

// authenticate lets requests with the admin token or the cookie of a signed-in browser through. A cookie comes along with
// whatever page makes the browser send a request, so writes with one must come from our own pages.
func (s *Server) authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if public(r.URL.Path) {
			return next(c)
		}
		if header := r.Header.Get("Authorization"); header != "" {
			scheme, token, _ := strings.Cut(header, " ")
			if strings.EqualFold(scheme, "Bearer") && s.isAdminToken(strings.TrimSpace(token)) {
				return next(c)
			}
			return s.unauthorized(c, "The token is not valid.")
		}
		signedIn, err := s.hasSignIn(r)
		switch {
		case err != nil:
			return err
		case !signedIn:
			return s.unauthorized(c, "This needs a token.")
		case r.Method != http.MethodGet && r.Method != http.MethodHead && !s.sameOrigin(r):
			return api.NewProblem(http.StatusForbidden, "A signed-in browser may write from the pages of this server alone.",
				"Other clients send the header Authorization: Bearer with the admin token.")
		}
		c.Set(signedInKey, true)
		ctx, cancel := context.WithCancel(r.Context())
		stop := s.watchSignIn(r, cancel)
		c.SetRequest(r.WithContext(ctx))
		defer func() {
			stop()
			c.SetRequest(r) // an error is answered further out
			cancel()
		}()
		return next(c)
	}
}

// hasSignIn checks the cookie.
func (s *Server) hasSignIn(r *http.Request) (bool, error) {
	cookie, err := r.Cookie(cookieName)
	if err != nil || cookie.Value == "" {
		return false, nil
	}
	return s.o.Secrets.CheckSecret(r.Context(), kindSignIn, sumOf(cookie.Value))
}

// signInBeat is how often a request that goes on, a stream, is asked whether its browser is still signed in.
const signInBeat = 5 * time.Second

// watchSignIn calls cancel once the browser is signed out. The function that it returns ends the watch.
func (s *Server) watchSignIn(r *http.Request, cancel context.CancelFunc) (stop func()) {
	over := make(chan struct{})
	// Most requests end long before the timer fires and cost no goroutine.
	timer := time.AfterFunc(signInBeat, func() {
		again := time.NewTicker(signInBeat)
		defer again.Stop()
		for {
			if signedIn, err := s.hasSignIn(r); err == nil && !signedIn {
				cancel()
				return
			}
			select {
			case <-over:
				return
			case <-again.C:
			}
		}
	})
	return func() { timer.Stop(); close(over) }
}

// unauthorized is 401, or the way to the sign-in page for a browser that wants a page.
func (s *Server) unauthorized(c echo.Context, detail string) error {
	r := c.Request()
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case strings.HasPrefix(r.URL.Path, "/api/") || r.Header.Get("Authorization") != "":
	case isHTMX(c):
		// A part of a page cannot be replaced by the sign-in page: load the whole page, which then leads there.
		c.Response().Header().Set("HX-Refresh", "true")
	case reading:
		return c.Redirect(http.StatusSeeOther, loginPath(r.URL.RequestURI()))
	}
	c.Response().Header().Set("WWW-Authenticate", `Bearer realm="forkyard"`)
	next := "Send the header Authorization: Bearer with the admin token."
	if s.o.TokenPath != "" {
		next = "Send the header Authorization: Bearer with the admin token, which is in the file admin-token of the data directory."
	}
	return api.NewProblem(http.StatusUnauthorized, detail, next)
}
