package web

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestNewSessionPage(t *testing.T) {
	s := serveForking(t, newForking())
	v := values(page(t, s, "/sessions/new?message=Hello", 200, "Authorization", bearer))
	if v.Get("workspace") != "/srv/project" || v.Get("model") != "claude-sonnet-5-5" || v.Get("mode") != "fork" || v.Get("permission_mode") != "default" || v.Get("message") != "Hello" {
		t.Errorf("%v", v)
	}
	changed := serve(t, newFake(), func(o *Options) {
		o.Workspaces, o.DefaultMode = []string{"/srv/project", "/srv/other"}, forkcore.ModeCoordinator
	})
	for query, want := range map[string]string{"/srv/other": "/srv/other ", "/srv/other/deep": "/srv/project /srv/other/deep", "": "/srv/project "} {
		v := values(page(t, changed, "/sessions/new?workspace="+query, 200, "Authorization", bearer))
		if got := v.Get("workspace") + " " + v.Get("folder"); got != want || v.Get("mode") != "coordinator" {
			t.Errorf("workspace=%s: %q, want %q; mode %s", query, got, want, v.Get("mode"))
		}
	}
	none := serve(t, newFake(), func(o *Options) { o.Workspaces = nil })
	if got := text(page(t, none, "/sessions/new", 200, "Authorization", bearer)); !strings.Contains(got, "FORKYARD_WORKSPACES") {
		t.Errorf("without a workspace: %s", got)
	}
	free := serve(t, newFake(), func(o *Options) { o.Simulated, o.Models = false, []string{"a", "b"} })
	if root := page(t, free, "/sessions/new", 200, "Authorization", bearer); len(all(root, "datalist")) != 1 {
		t.Error("a real endpoint takes any model id, and the page does not")
	}
}

func TestSessionWorkspace(t *testing.T) {
	for _, test := range [][3]string{
		{"/srv", "", "/srv"},
		{"/srv", "a/b", "/srv/a/b"},
		{"/srv", "/srv/c/", "/srv/c"},
		{"/srv", "../etc", "/etc"},
		{"", "a", ""},
		{"", "", ""},
	} {
		if got := (sessionForm{Root: test[0], Folder: test[1]}).workspace(); got != test[2] {
			t.Errorf("%q below %q is %q, want %q", test[1], test[0], got, test[2])
		}
	}
}

func newSession() url.Values {
	return url.Values{
		"key": {"key-1"}, "workspace": {"/srv/project"}, "folder": {"a"}, "title": {`T "<i>`}, "message": {hostile}, "model": {"claude-opus-5-5"},
		"mode": {"plain"}, "permission_mode": {"bypassPermissions"}, "budget_usd": {"2"}, "auto_background_seconds": {"0"},
	}
}

func TestCreateSession(t *testing.T) {
	f := newForking()
	s := serveForking(t, f)
	res, _, body := s.post(t, "/sessions", newSession())
	if res.StatusCode != 303 || res.Header.Get("Location") != "/sessions/"+sessionID {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	usd, never := 2.0, 0.0
	want := forkcore.SessionSpec{
		Title: `T "<i>`, Workspace: "/srv/project/a", Model: "claude-opus-5-5", Mode: forkcore.ModePlain, PermissionMode: forkcore.PermissionBypass,
		BudgetUSD: &usd, AutoBackgroundSeconds: &never,
	}
	if diff := cmp.Diff(want, f.spec); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"message " + hostile}, f.calls); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"key-1", "key-1"}, f.keys); diff != "" {
		t.Error(diff)
	}
	f.calls = nil
	if res, _, _ := s.post(t, "/sessions", url.Values{"workspace": {"/srv/project"}, "message": {" \n"}}); res.StatusCode != 303 || len(f.calls) != 0 {
		t.Errorf("without a message: %d %v", res.StatusCode, f.calls)
	}
	if f.keys[len(f.keys)-1] == "" {
		t.Error("no key")
	}
}

func TestCreateSessionRefused(t *testing.T) {
	made := func(err error) func(*forking, url.Values) { return func(f *forking, _ url.Values) { f.made = err } }
	sent := func(err error) func(*forking, url.Values) { return func(f *forking, _ url.Values) { f.sent = err } }
	for name, test := range map[string]struct {
		change func(*forking, url.Values)
		status int
		says   string
		bad    string
		newKey bool
	}{
		"folder": {made(forkcore.Invalid("workspace", "is outside")), 422, "is outside", "folder", false},
		"root": {func(f *forking, v url.Values) {
			f.made = forkcore.Invalid("workspace", "is outside")
			v.Set("folder", "")
		}, 422, "is outside", "workspace", false},
		"model":       {made(forkcore.Invalid("model", "is unknown")), 422, "is unknown", "model", false},
		"budget":      {func(_ *forking, v url.Values) { v.Set("budget_usd", "x") }, 422, "write an amount", "budget_usd", false},
		"background":  {func(_ *forking, v url.Values) { v.Set("auto_background_seconds", "NaN") }, 422, "give seconds", "auto_background_seconds", false},
		"changed":     {made(forkcore.ErrIdempotencyMismatch), 422, "sent already", "", true},
		"no database": {made(forkcore.ErrStoreUnavailable), 503, "database cannot be reached", "", false},
		"inside":      {made(errors.New("a secret cause")), 500, "inside the server", "", false},
		"message":     {sent(fmt.Errorf("%w: the session has 0 USD left", forkcore.ErrBudget)), 409, "only its first message is not sent", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForking()
			form := newSession()
			test.change(f, form)
			res, root, body := serveForking(t, f).post(t, "/sessions", form, "HX-Request", "true")
			if res.StatusCode != test.status || !strings.Contains(text(root), test.says) || strings.Contains(body, "secret cause") {
				t.Fatalf("%d, want %d and %q:\n%s", res.StatusCode, test.status, test.says, body)
			}
			got := values(root)
			if changed := got.Get("key") != "key-1"; changed != test.newKey {
				t.Errorf("key %q", got.Get("key"))
			}
			form.Del("key")
			got.Del("key")
			if diff := cmp.Diff(form, got); diff != "" {
				t.Error(diff)
			}
			if test.bad != "" && !strings.Contains(body, `id="`+test.bad+`-error"`) {
				t.Errorf("%s is not marked:\n%s", test.bad, body)
			}
		})
	}
}
