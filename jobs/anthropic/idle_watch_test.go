package anthropic

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
)

// pipeClient returns a client whose connections go to script, over net/http and
// an in-memory pipe, so that time is the bubble's. script gets the parsed
// request and writes the raw answer; its return closes the connection.
func pipeClient(t *testing.T, o Options, script func(conn net.Conn, r *http.Request)) *Client {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			r, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return // the client left first
			}
			script(far, r)
		}()
		return near, nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	o.BaseURL, o.Endpoint, o.HTTPClient = "http://model.test", cmp.Or(o.Endpoint, "anthropic"), &http.Client{Transport: transport}
	return newTestClient(t, o)
}

const streamHeader = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// chunk writes events as one HTTP chunk; false when the client has gone.
func chunk(w io.Writer, events ...string) bool {
	raw := sse("\n", events...)
	_, err := fmt.Fprintf(w, "%x\r\n%s\r\n", len(raw), raw)
	return err == nil
}

func TestB48_X12_IdleAndTotalTimeouts(t *testing.T) {
	const ping = `{"type":"ping"}`
	start := func(conn net.Conn, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(conn, streamHeader)
		chunk(conn, msgStart)
	}
	finish := func(conn net.Conn) {
		chunk(conn, append(textBlock("0", "x"), msgDelta("end_turn"), msgStop)...)
		_, _ = io.WriteString(conn, "0\r\n\r\n")
	}
	for _, tt := range []struct {
		name   string
		script func(conn net.Conn, r *http.Request)
		// want: an error with this text after this time; or an answer.
		text      string
		retryable bool
		after     time.Duration
	}{
		{name: "B48a silence after the start", text: "for 1m30s", retryable: true, after: 90 * time.Second, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			time.Sleep(10 * time.Minute)
		}},
		{name: "B48a silence instead of an answer", text: "for 1m30s", retryable: true, after: 90 * time.Second, script: func(conn net.Conn, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(10 * time.Minute)
		}},
		{name: "silence during the upload", text: "for 1m30s", retryable: true, after: 90 * time.Second, script: func(net.Conn, *http.Request) {
			time.Sleep(10 * time.Minute)
		}},
		{name: "B48b pings for 4 minutes", after: 4 * time.Minute, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			for range 16 {
				time.Sleep(15 * time.Second)
				chunk(conn, ping)
			}
			finish(conn)
		}},
		{name: "X12 pings in 130 s of thinking", after: 130 * time.Second, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			for range 2 {
				time.Sleep(65 * time.Second)
				chunk(conn, ping)
			}
			finish(conn)
		}},
		{name: "single bytes count", after: 200 * time.Second, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			for _, c := range ": x\n" {
				time.Sleep(50 * time.Second)
				_, _ = fmt.Fprintf(conn, "1\r\n%c\r\n", c)
			}
			finish(conn)
		}},
		{name: "B48c pings for ever", text: "not complete after 30m0s", after: 30 * time.Minute, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			for chunk(conn, ping) {
				time.Sleep(15 * time.Second)
			}
		}},
		{name: "server that never ends the body", after: 0, script: func(conn net.Conn, r *http.Request) {
			start(conn, r)
			chunk(conn, append(textBlock("0", "x"), msgDelta("end_turn"), msgStop)...)
			time.Sleep(10 * time.Minute)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Hour) // the server's end
				c := pipeClient(t, Options{}, tt.script)
				began := time.Now()
				var ended time.Duration
				var end *forkcore.ModelEnd
				var err error
				for e, streamErr := range c.Stream(t.Context(), request(strings.Repeat(`{}`, 100_000))) {
					if m, ok := e.(*forkcore.ModelEnd); ok {
						end = m
					}
					err, ended = streamErr, time.Since(began)
				}
				if ended != tt.after {
					t.Errorf("ended after %v, want %v", ended, tt.after)
				}
				if over := time.Since(began) - ended; over > drainTimeout {
					t.Errorf("the loop ended %v after the answer, want at most %v", over, drainTimeout)
				}
				if tt.text == "" {
					if err != nil || end == nil {
						t.Errorf("got %v, want an answer", err)
					}
					return
				}
				if e := modelError(t, err); e.Code != forkcore.CodeStreamCut || e.Retryable != tt.retryable || !strings.Contains(e.Message, tt.text) || end != nil {
					t.Errorf("got %+v, want stream_cut, retryable %v, text %q", e, tt.retryable, tt.text)
				}
			})
		})
	}
}

func TestSlowConsumerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeClient(t, Options{}, func(conn net.Conn, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(conn, streamHeader)
			chunk(conn, msgStart)
			chunk(conn, append(textBlock("0", "x"), msgDelta("end_turn"), msgStop)...)
			_, _ = io.WriteString(conn, "0\r\n\r\n")
		})
		for e, err := range c.Stream(t.Context(), request(`{}`)) {
			if err != nil {
				t.Fatalf("got %v, want an answer", err)
			}
			if _, ok := e.(*forkcore.ModelStart); ok {
				time.Sleep(5 * time.Minute)
			}
		}
	})
}

func TestDeadlineOfTheCallerIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipeClient(t, Options{}, func(_ net.Conn, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(time.Minute)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := collect(t, c, ctx, request(`{}`)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's deadline", err)
		}
		time.Sleep(time.Hour)
	})
}
