package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// frontProxy stands between browser and server and does to streams what networks and proxies do.
type frontProxy struct {
	url string

	mu      sync.Mutex
	refuse  bool          // answer streams with 503
	hold    string        // requests whose path ends like this wait
	held    chan struct{} // until it is closed
	waiting int           // requests that wait
	conns   map[net.Conn]bool
	streams map[net.Conn]bool
	story   []string // what happened to streams
}

// newFrontProxy serves what listens at target ("127.0.0.1:8080") until the test ends.
func newFrontProxy(t *testing.T, target string) *frontProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frontProxy{url: "http://" + l.Addr().String(), conns: map[net.Conn]bool{}, streams: map[net.Conn]bool{}}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: target})
			r.Out.Host = r.In.Host
		},
		ModifyResponse: func(r *http.Response) error {
			if strings.HasPrefix(r.Request.URL.Path, "/static/") { // so that each page asks for its scripts again
				r.Header.Set("Cache-Control", "no-store")
			}
			return nil
		},
		Transport:    &http.Transport{DisableKeepAlives: true}, // the server behind comes and goes
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	hs := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ConnState: func(c net.Conn, state http.ConnState) {
			f.mu.Lock()
			defer f.mu.Unlock()
			switch state {
			case http.StateNew:
				f.conns[c] = true
			case http.StateIdle:
				delete(f.streams, c)
			case http.StateClosed, http.StateHijacked:
				delete(f.conns, c)
				delete(f.streams, c)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f.wait(r); r.Context().Err() != nil {
				return
			}
			if strings.HasSuffix(r.URL.Path, "/live") {
				f.tell("%s for %s on %s begins", r.URL, r.Referer(), r.RemoteAddr)
				defer f.tell("%s for %s on %s ends", r.URL, r.Referer(), r.RemoteAddr)
				f.mu.Lock()
				refuse := f.refuse
				if !refuse {
					for c := range f.conns {
						if c.RemoteAddr().String() == r.RemoteAddr {
							f.streams[c] = true
						}
					}
				}
				f.mu.Unlock()
				if refuse {
					http.Error(w, "busy", http.StatusServiceUnavailable)
					return
				}
			}
			forward.ServeHTTP(w, r)
		}),
	}
	go func() { _ = hs.Serve(l) }()
	t.Cleanup(func() {
		hs.Close()
		if t.Failed() {
			f.mu.Lock()
			defer f.mu.Unlock()
			t.Logf("what the proxy saw:\n%s", strings.Join(f.story, "\n"))
		}
	})
	return f
}

// wait returns once the answer to a request is no longer held, or nobody waits for it any more.
func (f *frontProxy) wait(r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hold == "" || !strings.HasSuffix(r.URL.Path, f.hold) {
		return
	}
	held := f.held
	f.waiting++
	f.mu.Unlock()
	select {
	case <-held:
	case <-r.Context().Done():
	}
	f.mu.Lock()
	f.waiting--
}

// tell adds a line to what a failed test shows.
func (f *frontProxy) tell(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.story = append(f.story, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, a...))
}

// open is the number of streams that run through the proxy.
func (f *frontProxy) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}

// holding is the number of requests that wait for their answer.
func (f *frontProxy) holding() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// holdAll lets what is asked for from now on wait for its answer until release is called, if its path ends like suffix.
func (f *frontProxy) holdAll(suffix string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.hold, f.held = suffix, held
	return sync.OnceFunc(func() { close(held) })
}

// cut closes the connection of every stream: in the middle of it, without an end, with a reset when asked for.
func (f *frontProxy) cut(reset bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.streams)
	for c := range f.streams {
		if tcp, ok := c.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0)
		}
		c.Close()
		delete(f.streams, c)
	}
	return n
}

// refusing says whether streams are answered with 503.
func (f *frontProxy) refusing(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = yes
}

// freeAddress is a loopback address that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
