package web

import (
	"net/http"
	"sync"
	"time"
)

const (
	// maxStreams is how many streams the windows of a sign-in hold at most. Over HTTP/1.1 browsers open six connections to
	// a host; streams in all of them would leave none for a click in any window, which then waits without a word.
	maxStreams = 5
	// pollPeriod is the time after which a window beyond those asks again.
	pollPeriod = 3 * time.Second
	// retryPeriod is the time after which a window with a stream that was cut connects again, at first.
	retryPeriod = 300 * time.Millisecond
)

// windows counts the streams of each sign-in.
type windows struct {
	mu   sync.Mutex
	open map[string]int // by the sum of the cookie
}

// enter counts a stream until leave is called. It says no when the sign-in holds enough of them; there is
// nothing to leave then. Clients with a token do without a limit: they are no browsers.
func (w *windows) enter(r *http.Request) (leave func(), ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return func() {}, true
	}
	signIn := sumOf(cookie.Value)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[signIn] >= maxStreams {
		return func() {}, false
	}
	if w.open == nil {
		w.open = map[string]int{}
	}
	w.open[signIn]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[signIn]--; w.open[signIn] == 0 {
			delete(w.open, signIn)
		}
	}, true
}
