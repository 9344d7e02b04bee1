package web

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/web/api"
)

// loginView is what the sign-in page shows.
type loginView struct {
	Code  string // of a sign-in link; empty: ask for a token
	Next  string // local path to go to afterwards
	Error string
	// TokenPath is shown to those on this machine alone.
	TokenPath string
}

// loginPath leads back to next after signing in.
func loginPath(next string) string {
	if next == pathHome {
		return pathLogin
	}
	return pathLogin + "?" + url.Values{"next": {next}}.Encode()
}

// localPath keeps a path of this server and turns everything else into the start page: an address that leads
// elsewhere after signing in would lend it our good name.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsAny(next, "\\\t\r\n") {
		return pathHome
	}
	return next
}

func (s *Server) loginView(next string) loginView {
	v := loginView{Next: localPath(next)}
	if s.o.PublicURL == "" {
		v.TokenPath = s.o.TokenPath
	}
	return v
}

// loginPage shows a button for a sign-in link rather than signing in: programs that preview links open them too, and would
// use the code up.
func (s *Server) loginPage(c echo.Context) error {
	v := s.loginView(c.QueryParam("next"))
	v.Code = c.QueryParam("code")
	return s.render(c, http.StatusOK, loginForm(s.frame(c, "Sign in"), v))
}

func (s *Server) signIn(c echo.Context) error {
	r := c.Request()
	// Browsers say where a form comes from. Another site must not sign a visitor in as somebody else.
	if (r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "") && !s.sameOrigin(r) {
		return api.NewProblem(http.StatusForbidden, "Signing in works from the pages of this server alone.", "Open "+s.base+pathLogin+".")
	}
	v := s.loginView(c.FormValue("next"))
	if code := c.FormValue("code"); code != "" {
		ok, err := s.o.Secrets.TakeSecret(r.Context(), kindLoginCode, sumOf(code))
		if err != nil {
			return err
		}
		if !ok {
			v.Error = "This sign-in link was used already, or is older than 15 minutes. Start the program again for a new one, or paste the admin token."
			return s.render(c, http.StatusUnauthorized, loginForm(s.frame(c, "Sign in"), v))
		}
	} else if !s.isAdminToken(strings.TrimSpace(c.FormValue("token"))) {
		v.Error = "That is not the admin token. Paste the whole line."
		return s.render(c, http.StatusUnauthorized, loginForm(s.frame(c, "Sign in"), v))
	}
	secret := newSecret()
	if err := s.o.Secrets.SaveSecret(r.Context(), kindSignIn, sumOf(secret), s.o.Now().Add(signInLife)); err != nil {
		return err
	}
	c.SetCookie(s.cookie(secret, int(signInLife.Seconds())))
	return c.Redirect(http.StatusSeeOther, v.Next)
}

func (s *Server) signOut(c echo.Context) error {
	if cookie, err := c.Cookie(cookieName); err == nil {
		if err := s.o.Secrets.DropSecret(c.Request().Context(), kindSignIn, sumOf(cookie.Value)); err != nil {
			return err
		}
	}
	c.SetCookie(s.cookie("", -1))
	return c.Redirect(http.StatusSeeOther, pathLogin)
}

func (s *Server) cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: s.https, SameSite: http.SameSiteLaxMode,
	}
}
