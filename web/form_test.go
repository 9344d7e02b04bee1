package web

import (
	"strings"
	"testing"
)

func TestBrokenForms(t *testing.T) {
	s := serve(t, idleSession())
	cookie := s.signIn(t)
	for _, path := range []string{"/sessions", pathSession + sessionID + "/messages", pathSession + sessionID + "/dispatch", pathSession + sessionID + "/dispatch/quote"} {
		for name, sent := range map[string][2]string{
			"escape":    {"application/x-www-form-urlencoded", "text=%zz"},
			"multipart": {"multipart/form-data", "nothing"},
		} {
			res, body := s.ask(t, "POST", path, sent[1], "Cookie", cookie, "Content-Type", sent[0], "Sec-Fetch-Site", "same-origin")
			if res.StatusCode != 400 || !strings.Contains(body, "could not be read") {
				t.Errorf("%s with a broken %s: %d, want 400", path, name, res.StatusCode)
			}
		}
	}
	res, _ := s.ask(t, "POST", pathSession+sessionID+"/messages", "text=a&key="+strings.Repeat("k", maxFormKey+1), "Cookie", cookie,
		"Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	if res.StatusCode != 422 {
		t.Errorf("a key without an end: %d, want 422", res.StatusCode)
	}
}
