package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

// Every path without a token or sign-in, whether it exists or not.
func TestPathsNeedAuthentication(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	tests := []struct {
		method, path string
		status       int
	}{
		{"GET", "/api/v1/sessions", 401},
		{"POST", "/api/v1/sessions", 401},
		{"GET", "/api/v1/events", 401},
		{"POST", "/api/v1/runs/" + mainID + "/cancel", 401},
		{"GET", "/api/v1/nothing", 401},
		{"DELETE", "/api/v1/sessions", 401},
		{"GET", "/api/v1/openapi.yaml/", 401},
		{"GET", "/api/v1/openapi.yaml", 200},
		{"GET", "/", 303},
		{"GET", "/sessions/x", 303},
		{"GET", "/nothing", 303},
		{"POST", "/", 401},
		{"POST", "/logout", 401},
		{"GET", "/login", 200},
		{"GET", "/healthz", 200},
		{"GET", "/readyz", 200},
		{"GET", "/metrics", 200},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			res, body := s.ask(t, test.method, test.path, "", "Content-Type", jsonType)
			if res.StatusCode != test.status {
				t.Fatalf("%d, want %d: %s", res.StatusCode, test.status, body)
			}
			if test.status == 401 && !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("WWW-Authenticate %q", res.Header.Get("WWW-Authenticate"))
			}
			if test.status == 401 && strings.HasPrefix(test.path, "/api/") && res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("Content-Type %q", res.Header.Get("Content-Type"))
			}
		})
	}
	if len(f.calls) != 0 {
		t.Errorf("the runner was called: %v", f.calls)
	}
}

func TestBearer(t *testing.T) {
	s := serve(t, newFake())
	cookie := s.signIn(t)
	tests := []struct {
		name, authorization, cookie string
		status                      int
	}{
		{"token", bearer, "", 200},
		{"scheme in lower case", "bearer " + adminToken, "", 200},
		{"no scheme", adminToken, "", 401},
		{"basic", "Basic " + adminToken, "", 401},
		{"wrong", "Bearer wrong", "", 401},
		{"a part of it", "Bearer " + adminToken[:10], "", 401},
		{"more than it", bearer + "x", "", 401},
		{"empty", "Bearer ", "", 401},
		{"cookie", "", cookie, 200},
		{"a wrong token beside a cookie", "Bearer wrong", cookie, 401},
		{"unknown cookie", "", "forkyard=AAAA", 401},
		{"empty cookie", "", "forkyard=", 401},
		{"the token as cookie", "", "forkyard=" + adminToken, 401},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var header []string
			if test.authorization != "" {
				header = append(header, "Authorization", test.authorization)
			}
			if test.cookie != "" {
				header = append(header, "Cookie", test.cookie)
			}
			if res, body := s.ask(t, "GET", "/api/v1/sessions", "", header...); res.StatusCode != test.status {
				t.Errorf("%d, want %d: %s", res.StatusCode, test.status, body)
			}
		})
	}
}

// A browser sends the cookie with whatever request a page makes it send.
func TestCookieWritesComeFromOurPages(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	cookie := s.signIn(t)
	own := "http://" + s.host
	_, port, _ := strings.Cut(s.host, ":")
	tests := []struct {
		name   string
		header []string
		status int
	}{
		{"same origin", []string{"Sec-Fetch-Site", "same-origin", "Origin", own}, 202},
		{"an older browser", []string{"Origin", own}, 202},
		{"another port of this host", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"another site", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a bookmark", []string{"Sec-Fetch-Site", "none"}, 403},
		{"another of our names", []string{"Origin", "http://localhost:" + port}, 403},
		{"nothing said", nil, 403},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f.calls = nil
			res, body := s.ask(t, "POST", "/api/v1/runs/"+mainID+"/cancel", "", append(test.header, "Cookie", cookie)...)
			if res.StatusCode != test.status || (len(f.calls) == 1) != (test.status == 202) {
				t.Errorf("%d, calls %v; want %d: %s", res.StatusCode, f.calls, test.status, body)
			}
		})
	}
}

// A proxy that is set up in the shortest way passes its own Host on, and over plain HTTP browsers send no Sec-Fetch-Site.
func TestCookieWritesThroughAProxy(t *testing.T) {
	f := newFake()
	s := serve(t, f, func(o *Options) { o.PublicURL = "http://forkyard.example" })
	cookie := s.signIn(t)
	for origin, want := range map[string]int{"http://forkyard.example": 202, "https://forkyard.example": 403, "http://evil.example": 403, "null": 403} {
		if res, body := s.ask(t, "POST", "/api/v1/runs/"+mainID+"/cancel", "", "Origin", origin, "Cookie", cookie); res.StatusCode != want {
			t.Errorf("from %s: %d, want %d: %s", origin, res.StatusCode, want, body)
		}
	}
}

func TestSignInLinkWorksOnceAndForFifteenMinutes(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "http://" + s.host}
	link, err := s.web.MakeLoginLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(link, "http://"+s.host)
	if !ok {
		t.Fatalf("link %s does not lead to %s", link, s.host)
	}
	_, code, _ := strings.Cut(link, "code=")
	if len(code) < 26 {
		t.Errorf("code %q is short", code)
	}
	for range 3 { // opening the link does not use it up
		if res, body := s.ask(t, "GET", path, ""); res.StatusCode != 200 || !strings.Contains(body, `value="`+code+`"`) || len(res.Cookies()) != 0 {
			t.Fatalf("GET of the link: %d %v", res.StatusCode, res.Cookies())
		}
	}
	res, _ := s.ask(t, "POST", "/login", "code="+code+"&next=/sessions/x%3Fa=1", form...)
	if res.StatusCode != 303 || res.Header.Get("Location") != "/sessions/x?a=1" || len(res.Cookies()) != 1 {
		t.Fatalf("using the link: %d %v", res.StatusCode, res.Header)
	}
	c := res.Cookies()[0]
	if !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 30*24*3600 || c.Path != "/" {
		t.Errorf("cookie %+v", c)
	}
	if strings.Contains(strings.Join(keys(f), " "), c.Value) || strings.Contains(strings.Join(keys(f), " "), code) {
		t.Error("a secret is stored as it is, not as its hash")
	}
	if res, body := s.ask(t, "POST", "/login", "code="+code, form...); res.StatusCode != 401 || !strings.Contains(body, "used already") {
		t.Errorf("using the link twice: %d", res.StatusCode)
	}
	if link, err = s.web.MakeLoginLink(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, code, _ = strings.Cut(link, "code=")
	f.now = func() time.Time { return noon.Add(15*time.Minute + time.Second) }
	if res, _ := s.ask(t, "POST", "/login", "code="+code, form...); res.StatusCode != 401 {
		t.Errorf("using the link after 15 minutes: %d", res.StatusCode)
	}
}

func keys(f *fake) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for k := range f.secrets {
		all = append(all, k)
	}
	return all
}

func TestSignInByTokenAndSignOut(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	own := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "http://" + s.host}
	if res, body := s.ask(t, "POST", "/login", "token=wrong", own...); res.StatusCode != 401 || !strings.Contains(body, "not the admin token") {
		t.Errorf("wrong token: %d", res.StatusCode)
	}
	if res, _ := s.ask(t, "POST", "/login", "token=", own...); res.StatusCode != 401 {
		t.Errorf("empty token: %d", res.StatusCode)
	}
	if res, _ := s.ask(t, "POST", "/login", "token="+adminToken, "Content-Type", own[1], "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
		t.Errorf("signing in from another site: %d", res.StatusCode)
	}
	res, _ := s.ask(t, "POST", "/login", "token=+"+adminToken+"%0A", own...)
	if res.StatusCode != 303 || len(res.Cookies()) != 1 {
		t.Fatalf("right token: %d", res.StatusCode)
	}
	cookie := res.Cookies()[0].Name + "=" + res.Cookies()[0].Value
	if res, _ := s.ask(t, "GET", "/", "", "Cookie", cookie); res.StatusCode != 200 {
		t.Errorf("signed in: %d", res.StatusCode)
	}
	if res, _ := s.ask(t, "POST", "/logout", "", append(own, "Cookie", cookie)...); res.StatusCode != 303 || res.Cookies()[0].MaxAge >= 0 {
		t.Errorf("signing out: %d %v", res.StatusCode, res.Cookies())
	}
	if res, _ := s.ask(t, "GET", "/", "", "Cookie", cookie); res.StatusCode != 303 {
		t.Errorf("signed out: %d, want the way to the sign-in page", res.StatusCode)
	}
}

func TestSecureCookieBehindTLS(t *testing.T) {
	s := serve(t, newFake(), func(o *Options) { o.PublicURL = "https://forkyard.example.org" })
	link, err := s.web.MakeLoginLink(t.Context())
	if err != nil || !strings.HasPrefix(link, "https://forkyard.example.org/login?code=") {
		t.Fatalf("link %s, %v", link, err)
	}
	res, _ := s.ask(t, "POST", "/login", "token="+adminToken, "Content-Type", "application/x-www-form-urlencoded", "Host", "forkyard.example.org")
	if len(res.Cookies()) != 1 || !res.Cookies()[0].Secure {
		t.Errorf("%d, cookies %v: want a secure one", res.StatusCode, res.Cookies())
	}
}

func TestLocalPath(t *testing.T) {
	for next, want := range map[string]string{
		"": "/", "/": "/", "/sessions/a?x=1": "/sessions/a?x=1", "https://evil.test/": "/", "//evil.test": "/", `/\evil.test`: "/",
		"evil.test": "/", "/\t/evil.test": "/", "javascript:alert(1)": "/", "///evil.test": "/",
	} {
		if got := localPath(next); got != want {
			t.Errorf("localPath(%q) = %q, want %q", next, got, want)
		}
	}
}

func TestSignedOutPollReloadsThePage(t *testing.T) {
	s := serve(t, newFake())
	res, _ := s.ask(t, "GET", "/", "", "HX-Request", "true")
	if res.StatusCode != 401 || res.Header.Get("HX-Refresh") != "true" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
}

// TestSignOutEndsWhatIsOpen: a stream of a browser that was signed out in another tab ends within seconds, and stays open
// while the store cannot say.
func TestSignOutEndsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := &Server{o: Options{Secrets: f, Now: time.Now}}
		f.now = time.Now
		r := httptest.NewRequest("GET", "/live", nil)
		r.AddCookie(&http.Cookie{Name: cookieName, Value: "secret"})
		if err := f.SaveSecret(t.Context(), kindSignIn, sumOf("secret"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stop := s.watchSignIn(r, cancel)
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Fatal("a signed-in browser was cut off")
		}
		fail := func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.fail = err
		}
		fail(forkcore.ErrStoreUnavailable)
		time.Sleep(time.Minute)
		synctest.Wait()
		if ctx.Err() != nil {
			t.Error("cut off because the store was away")
		}
		fail(nil)
		if err := f.DropSecret(t.Context(), kindSignIn, sumOf("secret")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * signInBeat)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("still open after signing out")
		}
	})
}
