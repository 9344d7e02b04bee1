package modelsim

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// 200 streams of 50 events a second over loopback, client and simulator in one process. events/s is what arrived over the
// time between the first and the last delta, late-% the share of deltas more than 20 ms (one event) behind their place in
// the stream's timetable, counted from its first delta.
func BenchmarkStreams200(b *testing.B) {
	const streams, deltas, every = 200, 150, 20 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	sim := New(Options{Mind: say(TextBlock(strings.Repeat("one two six ", deltas))), DeltaDelay: every, RecordLimit: streams})
	server := &http.Server{Handler: sim}
	go server.Serve(listener) //nolint:errcheck // ends with Close below
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	body := streaming(strings.Replace(hello, "100", "10000", 1))
	url := "http://" + listener.Addr().String() + messagesPath
	var seen, late, nanos atomic.Int64
	for b.Loop() {
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				res, err := client.Do(newRequest(context.Background(), "POST", url, body))
				if err != nil {
					b.Error(err)
					return
				}
				defer res.Body.Close()
				var first, last time.Time
				n := 0
				lines := bufio.NewScanner(res.Body)
				for lines.Scan() {
					if !bytes.Equal(lines.Bytes(), []byte("event: content_block_delta")) {
						continue
					}
					last = time.Now()
					if n == 0 {
						first = last
					}
					if last.Sub(first) > time.Duration(n)*every+20*time.Millisecond {
						late.Add(1)
					}
					n++
				}
				if n != deltas || lines.Err() != nil {
					b.Errorf("%d of %d deltas, %v", n, deltas, lines.Err())
				}
				seen.Add(int64(n - 1))
				nanos.Add(int64(last.Sub(first)))
			})
		}
		wg.Wait()
	}
	perStream := float64(seen.Load()) / (float64(nanos.Load()) / 1e9)
	b.ReportMetric(perStream*streams, "events/s")
	b.ReportMetric(100*float64(late.Load())/float64(max(1, seen.Load())), "late-%")
}
