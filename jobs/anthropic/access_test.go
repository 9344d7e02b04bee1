package anthropic

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"forkyard/forkcore"
)

const (
	oldKey = "sk-old-0123456789abcdef-OLDE"
	newKey = "sk-new-0123456789abcdef-NEWE"
)

func sealed(t testing.TB, c *Client, key string) (text, account string) {
	t.Helper()
	text, account, err := c.Seal(key)
	if err != nil {
		t.Fatal(err)
	}
	return text, account
}

func TestSealAndAdopt(t *testing.T) {
	const base = "http://127.0.0.1:1"
	one, two := newTestClient(t, Options{BaseURL: base, APIKey: oldKey}), newTestClient(t, Options{BaseURL: base + "/", APIKey: oldKey})
	before := one.Scope()
	text, account := sealed(t, one, " "+newKey+"\n")
	if again, _ := sealed(t, one, newKey); again == text {
		t.Error("the same key was sealed to the same text twice")
	}
	if strings.Contains(text, "NEWE") || strings.Contains(text, "OLDE") {
		t.Errorf("the sealed text shows a key: %s", text)
	}
	if one.Scope() != before || one.KeyEnd() != "OLDE" {
		t.Error("Seal changed the key in use")
	}
	for _, c := range []*Client{one, two} {
		for range 2 { // told twice
			if err := c.Adopt(text); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Scope(); s.Account() != account || s.Endpoint != before.Endpoint || s.Key == before.Key || c.KeyEnd() != "NEWE" {
			t.Errorf("scope %+v, key end %q; want account %s", s, c.KeyEnd(), account)
		}
	}
	// And back: the chain goes on from the key in use.
	back, account := sealed(t, one, oldKey)
	if account != before.Account() {
		t.Errorf("account %s, want %s", account, before.Account())
	}
	if err := two.Adopt(back); err != nil || two.Scope() != before {
		t.Errorf("error %v, scope %+v", err, two.Scope())
	}
}

func TestSealRefuses(t *testing.T) {
	const base = "http://127.0.0.1:1"
	keyless, err := New(Options{BaseURL: base})
	if err != nil {
		t.Fatal(err)
	}
	c := newTestClient(t, Options{BaseURL: base, APIKey: oldKey})
	for name, tt := range map[string]struct {
		c         *Client
		key, text string
	}{
		"nothing to seal with": {keyless, newKey, "ANTHROPIC_API_KEY set"},
		"blank":                {c, " \n", "blank"},
		"the same":             {c, " " + oldKey, "the one in use"},
		"line break":           {c, newKey + "\nx: y", "white space"},
		"endless":              {c, strings.Repeat("x", maxKey+1), "longer"},
	} {
		_, _, err := tt.c.Seal(tt.key)
		if err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), newKey) || strings.Contains(err.Error(), oldKey) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.text)
		}
	}
}

func TestAdoptRefuses(t *testing.T) {
	const base = "http://127.0.0.1:1"
	c := newTestClient(t, Options{BaseURL: base, APIKey: oldKey})
	keyless, err := New(Options{BaseURL: base})
	if err != nil {
		t.Fatal(err)
	}
	text, _ := sealed(t, c, newKey)
	other := newTestClient(t, Options{BaseURL: base, APIKey: "another-key"})
	elsewhere := newTestClient(t, Options{BaseURL: base + "/v", APIKey: oldKey})
	flipped := []byte(text)
	flipped[len(flipped)-6] ^= 1
	for name, tt := range map[string]struct {
		c    *Client
		text string
	}{
		"another key": {other, text}, "another endpoint": {elsewhere, text}, "no key": {keyless, text}, "changed": {c, string(flipped)},
		"cut": {c, text[:len(text)-8]}, "empty": {c, ""}, "prefix alone": {c, sealPrefix}, "later form": {c, "fyk2." + text[len(sealPrefix):]},
		"endless": {c, sealPrefix + strings.Repeat("A", maxSealed)},
	} {
		before := tt.c.Scope()
		if err := tt.c.Adopt(tt.text); err == nil || strings.Contains(err.Error(), newKey) || strings.Contains(err.Error(), oldKey) {
			t.Errorf("%s: got %v, want an error without a key", name, err)
		}
		if tt.c.Scope() != before {
			t.Errorf("%s: the key changed", name)
		}
	}
}

// A request keeps the key that it began with, and what the endpoint says shows neither.
func TestAdoptDuringARequest(t *testing.T) {
	begun, adopted := make(chan struct{}), make(chan struct{})
	var first sync.Once
	var keys []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		first.Do(func() {
			close(begun)
			<-adopted
		})
		keys = append(keys, r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"type":"authentication_error","message":"neither `+oldKey+` nor `+newKey+`"}}`)
	}))
	defer srv.Close()
	c := newTestClient(t, Options{BaseURL: srv.URL, APIKey: oldKey})
	text, _ := sealed(t, c, newKey)
	done := make(chan error)
	go func() {
		for _, err := range c.Stream(t.Context(), request(`{}`)) {
			done <- err
		}
	}()
	<-begun
	if err := c.Adopt(text); err != nil {
		t.Error(err)
	}
	close(adopted)
	if e := modelError(t, <-done); strings.Contains(e.Message, oldKey) {
		t.Errorf("message shows the key: %q", e.Message)
	}
	_, _, err := collect(t, c, t.Context(), request(`{}`))
	if e := modelError(t, err); strings.Contains(e.Message, oldKey) || strings.Contains(e.Message, newKey) || !strings.Contains(e.Message, "neither [API key] nor [API key]") {
		t.Errorf("message %q, want both keys hidden", e.Message)
	}
	if len(keys) != 2 || keys[0] != "Bearer "+oldKey || keys[1] != "Bearer "+newKey {
		t.Errorf("keys sent: %q", keys)
	}
}

func TestCheckKey(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+newKey {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"error":{"type":"authentication_error","message":"no: `+r.Header.Get("Authorization")+`, nor `+oldKey+`"}}`)
			return
		}
		_, _ = io.WriteString(w, `{"data":[{"id":"m","type":"model"}],"has_more":false}`)
	}))
	defer srv.Close()
	c := newTestClient(t, Options{BaseURL: srv.URL, APIKey: oldKey})
	before := c.Scope()
	check, err := c.CheckKey(t.Context(), newKey, "m", false)
	if err != nil || check.Outcome != forkcore.ProviderOK || !check.Offered {
		t.Errorf("got %+v, %v", check, err)
	}
	const bad = "sk-bad-0123456789"
	check, err = c.CheckKey(t.Context(), bad, "m", false)
	if err != nil || check.Outcome != forkcore.ProviderRefused || strings.Contains(check.Detail, bad) || strings.Contains(check.Detail, oldKey) {
		t.Errorf("got %+v, %v", check, err)
	}
	if _, err := c.CheckKey(t.Context(), "two words", "m", false); err == nil {
		t.Error("a key with a space was taken")
	}
	if c.Scope() != before {
		t.Error("the check changed the key in use")
	}
}

func TestKeyEnd(t *testing.T) {
	for key, want := range map[string]string{"": "", "0123456789012345678": "", "01234567890123456789": "6789", " 0123456789012345678\n": ""} {
		if got := KeyEnd(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// FuzzAdopt: a text changes the key to the one that was sealed in it, or nothing.
func FuzzAdopt(f *testing.F) {
	const base = "http://127.0.0.1:1"
	c := newTestClient(f, Options{BaseURL: base, APIKey: oldKey})
	good, account := sealed(f, c, newKey)
	other, _ := sealed(f, newTestClient(f, Options{BaseURL: base, APIKey: "another-key"}), newKey)
	for _, s := range []string{good, other, sealPrefix, good[:40], "", sealPrefix + "====", sealPrefix + "AAAA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := newTestClient(t, Options{BaseURL: base, APIKey: oldKey})
		want := c.Scope().Account()
		if c.Adopt(text) == nil {
			want = account
		}
		if got := c.Scope().Account(); got != want {
			t.Fatalf("%q: account %s, want %s", text, got, want)
		}
	})
}
