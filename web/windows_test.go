package web

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestManyWindows: a sixth window of a sign-in is answered with what changed and comes back later; it gets a stream of its
// own when one of the others ends.
func TestManyWindows(t *testing.T) {
	s := serve(t, withData())
	// open reads a stream up to the time after which it is to connect again.
	open := func(header, value string) (retry string, end func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/live", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, value)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		end = func() { cancel(); _ = res.Body.Close() }
		t.Cleanup(end)
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if after, found := strings.CutPrefix(lines.Text(), "retry: "); found {
				return after, end
			}
		}
		t.Fatalf("%d without a time to retry after: %v", res.StatusCode, lines.Err())
		return "", end
	}
	const stays, polls = "300", "3000"
	cookie := s.signIn(t)
	var ends []func()
	for range maxStreams {
		retry, end := open("Cookie", cookie)
		if retry != stays {
			t.Fatalf("one of the first %d streams: retry %s, want %s", maxStreams, retry, stays)
		}
		ends = append(ends, end)
	}
	_, body := s.ask(t, "GET", "/live", "", "Cookie", cookie) // to its end
	if !strings.Contains(body, "retry: "+polls+"\n") || !strings.Contains(body, "<hx-partial") {
		t.Errorf("one more is answered with %.300q", body)
	}
	if retry, _ := open("Cookie", s.signIn(t)); retry != stays {
		t.Errorf("another sign-in: retry %s, want %s", retry, stays)
	}
	if retry, _ := open("Authorization", bearer); retry != stays {
		t.Errorf("a token: retry %s, want %s", retry, stays)
	}
	ends[2]()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // until the server has seen that it ended
		retry, end := open("Cookie", cookie)
		if retry == stays {
			break
		}
		end()
		if time.Now().After(deadline) {
			t.Fatal("the place of a stream that ended is not free")
		}
	}
}
