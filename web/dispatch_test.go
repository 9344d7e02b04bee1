package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"forkyard/forkcore"
)

// forking is a fake whose sessions can be started and forked. Each error is that of its call.
type forking struct {
	*fake
	reading, forked, quoted, made, sent error

	specs  []forkcore.ForkSpec // of Fork and QuoteForks
	spec   forkcore.SessionSpec
	keys   []string // of Fork, CreateSession and SendMessage
	lines  []forkcore.TranscriptLine
	quoteN int
}

func newForking() *forking {
	f := &forking{fake: newFake()}
	f.sessions = []forkcore.Session{{ID: sessionID, Title: "Parser", Mode: forkcore.ModeFork, Model: "claude-sonnet-5-5", LastRunID: mainID}}
	return f
}

func (f *forking) Session(ctx context.Context, id string) (forkcore.Session, error) {
	s, err := f.fake.Session(ctx, id)
	return s, errorOr(err, f.reading)
}

func (f *forking) Fork(_ context.Context, _ string, spec forkcore.ForkSpec, key string) (forkcore.Dispatch, []forkcore.Run, error) {
	f.specs, f.keys = append(f.specs, spec), append(f.keys, key)
	return forkcore.Dispatch{ID: "dsp_1"}, nil, f.forked
}

func (f *forking) QuoteForks(_ context.Context, _ string, spec forkcore.ForkSpec) (forkcore.Quote, error) {
	f.quoteN = len(spec.Directives)
	return warmQuote(len(spec.Directives)), f.quoted
}

func (f *forking) CreateSession(_ context.Context, spec forkcore.SessionSpec, key string) (forkcore.Session, bool, error) {
	f.spec, f.keys = spec, append(f.keys, key)
	return forkcore.Session{ID: sessionID}, true, f.made
}

func (f *forking) SendMessage(_ context.Context, _, text, key string) (string, error) {
	f.called("message " + text)
	f.keys = append(f.keys, key)
	return mainID, f.sent
}

func (f *forking) Transcript(context.Context, string, int64) ([]forkcore.TranscriptLine, error) {
	return f.lines, nil
}

func serveForking(t *testing.T, f *forking) *running {
	return serve(t, f.fake, func(o *Options) {
		o.Runner, o.Reader, o.Bytes = f, f, f
		o.Models, o.DefaultModel = []string{"claude-opus-5-5", "claude-sonnet-5-5"}, "claude-sonnet-5-5"
	})
}

// post sends a form as a client with the token.
func (s *running) post(t *testing.T, path string, form url.Values, header ...string) (*http.Response, *html.Node, string) {
	t.Helper()
	header = append([]string{"Authorization", bearer, "Content-Type", "application/x-www-form-urlencoded"}, header...)
	res, body := s.ask(t, "POST", path, form.Encode(), header...)
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return res, root, body
}

// values are what a browser would send of a page's form, without the buttons.
func values(root *html.Node) url.Values {
	v := url.Values{}
	for n := range root.Descendants() {
		name := attribute(n, "name")
		if name == "" || n.Type != html.ElementNode {
			continue
		}
		has := func(key string) bool {
			return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
		}
		switch n.Data {
		case "textarea":
			content := ""
			if n.FirstChild != nil {
				content = n.FirstChild.Data
			}
			v.Add(name, content)
		case "select":
			for _, o := range all(n, "option") {
				if slices.ContainsFunc(o.Attr, func(a html.Attribute) bool { return a.Key == "selected" }) {
					v.Add(name, attribute(o, "value"))
				}
			}
		case "input":
			if kind := attribute(n, "type"); kind == "radio" && !has("checked") || has("disabled") {
				continue
			}
			v.Add(name, attribute(n, "value"))
		}
	}
	return v
}

const dispatchAt = "/sessions/" + sessionID + "/dispatch"

// hostile is text that must come back as text, to the letter.
const hostile = "\n</textarea><script>alert(1)</script> <b hx-get=\"/x\" hx-trigger=\"load\">\"'&amp;"

func typed() url.Values {
	return url.Values{
		"key": {"key-1"}, "next": {"5"}, "row": {"0", "3", "4"}, "title": {"", `A "title" <i>`, ""}, "prompt": {"first", hostile, ""},
		"list": {"- kept"}, "separator": {"blank"}, "same": {" kept too "}, "times": {"7"},
		"isolation": {"shared"}, "gate": {"always"}, "budget_usd": {"0.5"}, "turns": {"7"}, "needed_tokens": {"9"},
	}
}

func TestDispatchPage(t *testing.T) {
	f := newForking()
	f.lines = []forkcore.TranscriptLine{
		{Kind: forkcore.EntryMessage},
		{Kind: forkcore.EntryMessage},
		{Kind: forkcore.EntryMarker, Marker: &forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: forkcore.Done}},
	}
	s := serveForking(t, f)
	root := page(t, s, dispatchAt+"?prompt=one&prompt=two&title=T", 200, "Authorization", bearer)
	v := values(root)
	if diff := cmp.Diff([]string{"one", "two"}, v["prompt"]); diff != "" || v["title"][0] != "T" || len(v.Get("key")) < 20 {
		t.Errorf("%v %s", v, diff)
	}
	content := text(all(root, "main")[0])
	for _, want := range []string{"2 messages", "41,200 tokens", "warm", "Dispatch 2 forks", "Gated.", "not offered yet"} {
		if !strings.Contains(content, want) {
			t.Errorf("the page lacks %q:\n%s", want, content)
		}
	}
	eager := serveForking(t, f)
	eager.web.o.Gate = forkcore.GateOff
	if got := values(page(t, eager, dispatchAt, 200, "Authorization", bearer)).Get("gate"); got != "off" || v.Get("gate") != "auto" {
		t.Errorf("gate %q where off is configured, %q where nothing is", got, v.Get("gate"))
	}
	if other := values(page(t, s, dispatchAt, 200, "Authorization", bearer)); other.Get("key") == v.Get("key") {
		t.Error("two forms have one key")
	}
	page(t, s, "/sessions/ses_03zzzzzzzzzzzzzzzz/dispatch", 404, "Authorization", bearer)
	f.sessions[0].Mode = forkcore.ModePlain
	root = page(t, s, dispatchAt, 200, "Authorization", bearer)
	if content := text(all(root, "main")[0]); !strings.Contains(content, "mode is plain") || len(all(all(root, "main")[0], "form")) != 0 {
		t.Errorf("a session without forks: %s", content)
	}
}

func TestInherits(t *testing.T) {
	m := forkcore.TranscriptLine{Kind: forkcore.EntryMessage}
	end := func(state forkcore.State) forkcore.TranscriptLine {
		return forkcore.TranscriptLine{Kind: forkcore.EntryMarker, Marker: &forkcore.Marker{Type: forkcore.MarkerTurnEnd, State: state}}
	}
	busy, idle := forkcore.Session{ActiveRunID: mainID}, forkcore.Session{}
	for _, test := range []struct {
		session forkcore.Session
		lines   []forkcore.TranscriptLine
		want    string
	}{
		{idle, nil, "No turn is completed yet"},
		{busy, []forkcore.TranscriptLine{m, m}, "first turn is still running"},
		{idle, []forkcore.TranscriptLine{m, m, end(forkcore.Failed)}, "No turn is completed yet"},
		{idle, []forkcore.TranscriptLine{m, m, end(forkcore.Done)}, "whole conversation: 2 messages"},
		{idle, []forkcore.TranscriptLine{m, end(forkcore.Done), m, end(forkcore.Cancelled)}, "did not complete. Forks start from the last one that did: each inherits 1 message."},
		{busy, []forkcore.TranscriptLine{m, m, end(forkcore.Done), m}, "A turn is running. Forks start from the last completed one: each inherits 2 messages."},
	} {
		if got := newInherits(test.session, test.lines); !strings.Contains(got, test.want) {
			t.Errorf("%q lacks %q", got, test.want)
		}
	}
}

func TestDispatch(t *testing.T) {
	f := newForking()
	s := serveForking(t, f)
	res, _, body := s.post(t, dispatchAt, typed())
	if res.StatusCode != 303 || res.Header.Get("Location") != "/sessions/"+sessionID+"#fanout-dsp_1" {
		t.Fatalf("%d %v %s", res.StatusCode, res.Header, body)
	}
	usd, needed := 0.5, int64(9)
	want := forkcore.ForkSpec{
		Directives: []forkcore.Directive{{Prompt: "first"}, {Title: `A "title" <i>`, Prompt: hostile}},
		Isolation:  "shared", Gate: forkcore.GateAlways, BudgetUSD: &usd,
		Jobs: forkcore.Jobs{Turns: 7, NeededTokens: &needed},
	}
	if diff := cmp.Diff(want, f.specs[0]); diff != "" {
		t.Error(diff)
	}
	res, _, _ = s.post(t, dispatchAt, typed(), "HX-Request", "true")
	if res.StatusCode != 204 || res.Header.Get("HX-Redirect") != "/sessions/"+sessionID+"#fanout-dsp_1" {
		t.Errorf("with htmx: %d %v", res.StatusCode, res.Header)
	}
	if diff := cmp.Diff([]string{"key-1", "key-1"}, f.keys); diff != "" {
		t.Error("a second sending has another key:", diff)
	}
}

// Whatever goes wrong, the answer has all that was typed.
func TestDispatchRefused(t *testing.T) {
	invalid := &forkcore.InvalidError{Fields: []forkcore.FieldError{{Field: "directives[1].prompt", Message: "is odd"}}}
	change := func(key, value string) func(*forking, url.Values) {
		return func(_ *forking, v url.Values) { v.Set(key, value) }
	}
	fails := func(err error) func(*forking, url.Values) { return func(f *forking, _ url.Values) { f.forked = err } }
	for name, test := range map[string]struct {
		change func(*forking, url.Values)
		status int
		says   string
		bad    string // id of the field that is marked
		newKey bool
	}{
		"a prompt":      {fails(invalid), 422, "Prompt of directive 2", "prompt-3", false},
		"the budget":    {change("budget_usd", "lots"), 422, "write an amount", "budget_usd", false},
		"exhausted":     {fails(fmt.Errorf("%w: the session has 0.1 USD left", forkcore.ErrBudget)), 409, "the session has 0.1 USD left", "", false},
		"conflict":      {fails(&forkcore.ConflictError{Message: "calls are open", NextStep: "Send a message first."}), 409, "Send a message first.", "", false},
		"changed":       {fails(forkcore.ErrIdempotencyMismatch), 422, "dispatched already", "", true},
		"no database":   {fails(forkcore.ErrStoreUnavailable), 503, "database cannot be reached", "", false},
		"inside":        {fails(errors.New("a secret cause")), 500, "inside the server", "", false},
		"no session":    {func(f *forking, _ url.Values) { f.reading = forkcore.ErrStoreUnavailable }, 503, "database cannot be reached", "", false},
		"a paste":       {func(_ *forking, v url.Values) { v.Set("action", "paste"); v.Set("list", strings.Repeat("x\n\n", 70)) }, 422, "at most 64", "list", false},
		"a repeat":      {func(_ *forking, v url.Values) { v.Set("action", "repeat"); v.Set("times", "x") }, 422, "give a number", "times", false},
		"nothing typed": {func(_ *forking, v url.Values) { v["title"], v["prompt"] = []string{"", "", ""}, []string{"", "", ""} }, 422, "all are empty", "prompt-0", false},
	} {
		for _, htmx := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, htmx %t", name, htmx), func(t *testing.T) {
				f := newForking()
				sent := typed()
				test.change(f, sent)
				var header []string
				if htmx {
					header = []string{"HX-Request", "true"}
				}
				res, root, body := serveForking(t, f).post(t, dispatchAt, sent, header...)
				if res.StatusCode != test.status || !strings.Contains(text(root), test.says) || strings.Contains(body, "secret cause") {
					t.Fatalf("%d, want %d and %q:\n%s", res.StatusCode, test.status, test.says, body)
				}
				if strings.Contains(body, "<!doctype") == htmx {
					t.Errorf("with htmx %t: %.80s", htmx, body)
				}
				got := values(root)
				if changed := got.Get("key") != "key-1"; changed != test.newKey {
					t.Errorf("key %q", got.Get("key"))
				}
				for _, name := range []string{"title", "prompt", "row", "list", "same", "times", "separator", "gate", "isolation", "budget_usd"} {
					if diff := cmp.Diff(sent[name], got[name]); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
				}
				if test.bad == "" {
					return
				}
				for n := range root.Descendants() {
					if attribute(n, "id") == test.bad && attribute(n, "aria-invalid") == "true" && attribute(n, "aria-describedby") == test.bad+"-error" &&
						strings.Contains(body, `id="`+test.bad+`-error"`) && strings.Contains(body, `href="#`+test.bad+`"`) {
						return
					}
				}
				t.Errorf("%s is not marked:\n%s", test.bad, body)
			})
		}
	}
}

func TestDispatchHostile(t *testing.T) {
	_, root, body := serveForking(t, newForking()).post(t, dispatchAt, url.Values{"prompt": {hostile}, "title": {hostile}, "action": {"add"}}, "HX-Request", "true")
	if len(all(root, "script")) != 0 || len(all(root, "b")) != 0 {
		t.Errorf("markup of a prompt is alive:\n%s", body)
	}
	if got := values(root)["prompt"]; len(got) != 2 || got[0] != hostile {
		t.Errorf("prompts %q", got)
	}
}

func TestDispatchQuote(t *testing.T) {
	f := newForking()
	s := serveForking(t, f)
	sent := typed()
	sent.Set("budget_usd", "0.")
	sent.Set("gate", "nonsense")
	res, root, body := s.post(t, dispatchAt+"/quote", sent, "HX-Request", "true")
	if res.StatusCode != 200 || f.quoteN != 2 || strings.Contains(body, "aria-invalid") || !strings.Contains(text(root), "41,200 tokens") || !strings.Contains(body, "<hx-partial hx-target=\"#send\"") {
		t.Errorf("%d, %d directives: %s", res.StatusCode, f.quoteN, body)
	}
	_, root, _ = s.post(t, dispatchAt+"/quote", url.Values{"prompt": {"", " "}}, "HX-Request", "true")
	if f.quoteN != 1 || !strings.Contains(text(root), "until you write one") {
		t.Errorf("nothing typed: %s", text(root))
	}
	for _, err := range []error{forkcore.ErrStoreUnavailable, errors.New("a secret cause"), &forkcore.ConflictError{Message: "calls are open"}, forkcore.Invalid("directives", "has 65; give 1 to 64")} {
		f.quoted = err
		res, _, body := s.post(t, dispatchAt+"/quote", typed(), "HX-Request", "true")
		if res.StatusCode != 200 || strings.Contains(body, "secret cause") || strings.Contains(body, "data-kind=\"error\"") {
			t.Errorf("%v: %d %s", err, res.StatusCode, body)
		}
	}
}

// htmx may not put an error page where the form is.
func TestErrorForHTMX(t *testing.T) {
	res, _, body := serveForking(t, newForking()).post(t, "/sessions/ses_03zzzzzzzzzzzzzzzz/dispatch", typed(), "HX-Request", "true")
	if res.StatusCode != 404 || res.Header.Get("HX-Retarget") != "#toast" || strings.Contains(body, "<!doctype") {
		t.Errorf("%d %v %s", res.StatusCode, res.Header, body)
	}
}
