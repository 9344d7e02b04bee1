package main

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
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
	held    chan struct{} // streams wait until it is closed
	waiting int           // streams that wait
	conns   map[net.Conn]bool
	streams map[net.Conn]bool
	flight  map[string]bool // requests that are on their way
}

// newFrontProxy serves what listens at target ("127.0.0.1:8080") until the test ends.
func newFrontProxy(t *testing.T, target string) *frontProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &frontProxy{url: "http://" + l.Addr().String(), conns: map[net.Conn]bool{}, streams: map[net.Conn]bool{}, flight: map[string]bool{}, held: make(chan struct{})}
	close(f.held)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: target})
			r.Out.Host = r.In.Host
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
			name := fmt.Sprintf("%s %s from %s since %s", r.Method, r.URL.Path, r.RemoteAddr, time.Now().Format(time.TimeOnly))
			f.mu.Lock()
			f.flight[name] = true
			f.mu.Unlock()
			defer func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				delete(f.flight, name)
			}()
			if strings.HasSuffix(r.URL.Path, "/live") {
				f.mu.Lock()
				held := f.held
				f.waiting++
				f.mu.Unlock()
				select {
				case <-held:
				case <-r.Context().Done():
				}
				f.mu.Lock()
				f.waiting--
				if r.Context().Err() != nil {
					f.mu.Unlock()
					return
				}
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
		if t.Failed() {
			f.mu.Lock()
			t.Logf("%s, %d connections to the proxy, %d streams; on their way:\n%s", time.Now().Format(time.TimeOnly), len(f.conns), len(f.streams), strings.Join(slices.Sorted(maps.Keys(f.flight)), "\n"))
			f.mu.Unlock()
		}
		hs.Close()
	})
	return f
}

// open is the number of streams that run through the proxy.
func (f *frontProxy) open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.streams)
}

// holding is the number of streams that wait for their answer.
func (f *frontProxy) holding() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting
}

// hold lets the streams that are asked for from now on wait for their answer until release is called.
func (f *frontProxy) hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = make(chan struct{})
	return sync.OnceFunc(func() { close(f.held) })
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
