package sse

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

// serve runs a server with a stream at /<session> and at /all; ?after= resumes.
func serve(t *testing.T, m *memory) (*httptest.Server, *Hub) {
	t.Helper()
	h := startHub(t, m, encodeID)
	s := &Streamer{Hub: h, Store: m, Sessions: m}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var after *ID
		if text := r.URL.Query().Get("after"); text != "" {
			id, err := ParseID(text)
			if err != nil {
				t.Error(err)
			}
			after = &id
		}
		var err error
		if r.URL.Path == "/all" {
			err = s.All(r.Context(), w, after)
		} else {
			err = s.Session(r.Context(), w, strings.TrimPrefix(r.URL.Path, "/"), after)
		}
		// A client that is cut while a write hangs is no error; one that leaves may be.
		if err != nil {
			t.Logf("stream ended: %v", err)
		}
	}))
	server.Config.WriteTimeout = 200 * time.Millisecond
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(h.Close) // before server.Close, which waits for streams
	return server, h
}

type stream struct {
	t    *testing.T
	body io.ReadCloser
	r    *bufio.Reader
}

func open(t *testing.T, url string) *stream {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if got := res.Header.Get("Content-Type"); res.StatusCode != 200 || got != "text/event-stream" {
		t.Fatalf("GET %s: %d %s", url, res.StatusCode, got)
	}
	return &stream{t, res.Body, bufio.NewReader(res.Body)}
}

// next is the next frame that is no heartbeat.
func (s *stream) next() Frame {
	s.t.Helper()
	for {
		f, err := readFrame(s.r)
		if err != nil {
			s.t.Fatalf("reading a frame: %v", err)
		}
		if f.Event != "heartbeat" {
			return f
		}
	}
}

// expect reads the durable events from to to.
func (s *stream) expect(session string, from, to int) {
	s.t.Helper()
	for n := from; n <= to; n++ {
		want := ID{MS: uint64(n)}
		if f := s.next(); f.ID != want.String() || string(f.Data) != session+"/"+want.String() {
			s.t.Fatalf("frame %q %q, want %s of session %s", f.ID, f.Data, want, session)
		}
	}
}

// The case: events 1 to 100, the connection drops after 40, 41 to 60 are published meanwhile.
func TestSessionResumes(t *testing.T) {
	m := newMemory()
	server, _ := serve(t, m)
	first := open(t, server.URL+"/a?after=0")
	for n := 1; n <= 40; n++ {
		m.publish("a", n)
	}
	first.expect("a", 1, 40)
	if err := first.body.Close(); err != nil {
		t.Fatal(err)
	}
	for n := 41; n <= 60; n++ {
		m.publish("a", n)
	}
	second := open(t, server.URL+"/a?after=40-0")
	second.expect("a", 41, 60)
	for n := 61; n <= 100; n++ {
		m.publish("a", n)
	}
	second.expect("a", 61, 100)
	m.publish("a", 1000)
	if f := second.next(); f.ID != "1000-0" {
		t.Errorf("after 100 comes %s, want 1000-0: something was repeated", f.ID)
	}
}

func TestSessionReadsLongHistory(t *testing.T) {
	m := newMemory()
	for n := 1; n <= 3*pageLength+7; n++ {
		m.publish("a", n)
	}
	server, _ := serve(t, m)
	open(t, server.URL+"/a?after=0").expect("a", 1, 3*pageLength+7)
}

// Events that are published while the stream is between its steps come once each.
func TestSessionPublishWhileConnecting(t *testing.T) {
	m := newMemory()
	for n := 1; n <= 5; n++ {
		m.publish("a", n)
	}
	server, _ := serve(t, m)
	burst := func(from, to int) func() {
		return func() {
			for n := from; n <= to; n++ {
				m.publish("a", n)
			}
		}
	}
	m.before = []func(){burst(6, 10), burst(11, 15)}
	s := open(t, server.URL+"/a?after=0")
	s.expect("a", 1, 15)
	m.publish("a", 16)
	s.expect("a", 16, 16)
}

// A writer that publishes all the time meets clients that connect at any moment.
func TestSessionLosesAndRepeatsNothingUnderLoad(t *testing.T) {
	const total = 400
	m := newMemory()
	server, _ := serve(t, m)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; n <= total; n++ {
			m.publish("a", n)
			m.publish("b", n)
		}
	})
	for range 8 {
		wg.Go(func() {
			// A client that is cut resumes, as browsers do.
			var got []string
			after := "0"
			for len(got) < total {
				res, err := http.Get(server.URL + "/a?after=" + after)
				if err != nil {
					t.Error(err)
					return
				}
				r := bufio.NewReader(res.Body)
				for len(got) < total {
					f, err := readFrame(r)
					if err != nil {
						break
					}
					if f.Event != "heartbeat" {
						got, after = append(got, f.ID), f.ID
					}
				}
				_ = res.Body.Close()
			}
			for n := 1; n <= total; n++ {
				if want := (ID{MS: uint64(n)}).String(); got[n-1] != want {
					t.Errorf("event %d is %s, want %s", n, got[n-1], want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSessionFromNow(t *testing.T) {
	m := newMemory()
	m.publish("a", 7)
	server, _ := serve(t, m)
	s := open(t, server.URL+"/a")
	f, err := readFrame(s.r)
	if err != nil {
		t.Fatal(err)
	}
	if f.Event != "heartbeat" || f.ID != "7-0" || !strings.Contains(string(f.Data), `"type":"heartbeat"`) {
		t.Errorf("first frame %+v, want a heartbeat with id 7-0", f)
	}
	m.publish("a", 8)
	s.expect("a", 8, 8)
}

func TestAllSpansSessionsAndResumes(t *testing.T) {
	m := newMemory()
	m.publish("a", 10_001)
	m.publish("b", 20_000)
	m.publish("c", 30_000)
	m.publish("a", 30_001)
	server, _ := serve(t, m)
	s := open(t, server.URL+"/all?after=20000-0")
	var got []string
	for range 3 {
		f := s.next()
		got = append(got, string(f.Data))
		if f.ID != "20000-0" {
			t.Errorf("a replayed frame has id %s, want that of the cursor: a break in the middle would lose the rest", f.ID)
		}
	}
	slices.Sort(got)
	if want := []string{"a/30001-0", "b/20000-0", "c/30000-0"}; !slices.Equal(got, want) {
		t.Errorf("replayed %v, want %v", got, want)
	}
	// Until its heartbeat the stream still replays, and labels what it sends with the cursor.
	if f, err := readFrame(s.r); err != nil || f.Event != "heartbeat" {
		t.Fatalf("after the replay came %+v, %v; want a heartbeat", f, err)
	}
	m.publish("b", 40_000)
	if f := s.next(); f.ID != "40000-0" || string(f.Data) != "b/40000-0" {
		t.Errorf("live frame %s %q", f.ID, f.Data)
	}
}

func TestAllFromNow(t *testing.T) {
	m := newMemory()
	m.publish("a", 5)
	server, _ := serve(t, m)
	s := open(t, server.URL+"/all")
	f, err := readFrame(s.r)
	if err != nil {
		t.Fatal(err)
	}
	id, err := ParseID(f.ID)
	if err != nil || f.Event != "heartbeat" || time.Since(time.UnixMilli(int64(id.MS))).Abs() > time.Minute {
		t.Errorf("first frame %+v, want a heartbeat with the time as its id", f)
	}
	m.publish("a", 6)
	if f := s.next(); string(f.Data) != "a/6-0" {
		t.Errorf("frame %q, want a/6-0", f.Data)
	}
}

// A server's WriteTimeout must not cut a stream, and a client that stops reading must not hold its goroutine.
func TestSlowReaderIsCutAndStreamsOutliveTheWriteTimeout(t *testing.T) {
	m := newMemory()
	server, h := serve(t, m)
	good := open(t, server.URL+"/a?after=0")
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /b?after=0 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for start := time.Now(); h.Cut() == 0 || time.Since(start) < 300*time.Millisecond; {
		n++
		m.publish("b", n)
		if n%100 == 0 {
			m.publish("a", n)
			if f := good.next(); f.ID != (ID{MS: uint64(n)}).String() {
				t.Fatalf("the good client got %s, want %d-0", f.ID, n)
			}
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal("the client that does not read was never cut")
		}
	}
	for start := time.Now(); h.Clients() != 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d clients, want 1: the cut client still holds its goroutine", h.Clients())
		}
	}
}

func TestCloseEndsStreamsSoThatShutdownIsQuick(t *testing.T) {
	m := newMemory()
	server, h := serve(t, m)
	s := open(t, server.URL+"/a?after=0")
	m.publish("a", 1)
	s.expect("a", 1, 1)
	start := time.Now()
	h.Close()
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("shutdown took %v", took)
	}
	if _, err := readFrame(s.r); err == nil {
		t.Error("the stream goes on")
	}
}

// recorder is a client in memory.
type recorder struct {
	mu     sync.Mutex
	header http.Header
	bytes.Buffer
}

func (r *recorder) Header() http.Header              { return r.header }
func (r *recorder) WriteHeader(int)                  {}
func (r *recorder) FlushError() error                { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Buffer.Write(b)
}

func (r *recorder) count(s string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.Buffer.String(), s)
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := StartHub(m, encodeID, testLog(t))
		defer h.Close()
		<-m.fed
		s := &Streamer{Hub: h, Store: m, Sessions: m}
		out := &recorder{header: http.Header{}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Session(ctx, out, "a", &ID{}) }()
		synctest.Wait()
		m.publish("a", 3)
		for i := range 40 {
			time.Sleep(15 * time.Second)
			synctest.Wait()
			if got := out.count("event: heartbeat"); got < i+1 {
				t.Fatalf("%d heartbeats after %d s, want one at least every 15 s", got, 15*(i+1))
			}
		}
		if got := out.count("id: 3-0\nevent: heartbeat"); got == 0 {
			t.Error("heartbeats do not carry the id of the last event")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("a stream whose client left ends with %v", err)
		}
		for name, want := range map[string]string{
			"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no",
		} {
			if got := out.header.Get(name); got != want {
				t.Errorf("%s %q, want %q", name, got, want)
			}
		}
	})
}

type failing struct{ *memory }

func (failing) LastEventID(context.Context, string) (string, error) {
	return "", forkcore.ErrStoreUnavailable
}

func (failing) Sessions(context.Context, string, int) ([]forkcore.Session, string, error) {
	return nil, "", forkcore.ErrStoreUnavailable
}

func TestErrorsBeforeTheHeadersLeaveTheResponseAlone(t *testing.T) {
	m := newMemory()
	h := startHub(t, m, encodeID)
	s := &Streamer{Hub: h, Store: failing{m}, Sessions: failing{m}}
	for name, serve := range map[string]func(http.ResponseWriter) error{
		"one": func(w http.ResponseWriter) error { return s.Session(t.Context(), w, "a", nil) },
		"all": func(w http.ResponseWriter) error { return s.All(t.Context(), w, nil) },
	} {
		out := &recorder{header: http.Header{}}
		if err := serve(out); !errors.Is(err, forkcore.ErrStoreUnavailable) {
			t.Errorf("%s: error %v, want %v", name, err, forkcore.ErrStoreUnavailable)
		}
		if len(out.header) != 0 || out.Len() != 0 {
			t.Errorf("%s: the response was begun: %v %q", name, out.header, out.String())
		}
	}
}

// TestCursorFromTheFuture: an id of another session or of an older database must not hide what comes.
func TestCursorFromTheFuture(t *testing.T) {
	for _, path := range []string{"/a", "/all"} {
		m := newMemory()
		now := int(time.Now().UnixMilli())
		m.publish("a", now-60_000)
		server, _ := serve(t, m)
		s := open(t, server.URL+path+"?after=99999999999999-0")
		if path == "/all" {
			if f, err := readFrame(s.r); err != nil || f.Event != "heartbeat" {
				t.Fatalf("%s: first came %+v, %v", path, f, err)
			}
		}
		m.publish("a", now+60_000)
		if f, want := s.next(), fmt.Sprintf("a/%d-0", now+60_000); string(f.Data) != want {
			t.Errorf("%s: after it came %s %q, want %s", path, f.ID, f.Data, want)
		}
	}
}
