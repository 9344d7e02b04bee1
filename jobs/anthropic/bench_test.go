package anthropic

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/ssestream"

	"forkyard/forkcore"
)

// thousandDeltas is a stream as the API sends it: a text of 1,000 pieces of a few words.
func thousandDeltas() string {
	events := []string{blockStart("0", `{"type":"text","text":""}`), `{"type":"ping"}`}
	for i := range 1000 {
		events = append(events, blockDelta("0", fmt.Sprintf(`{"type":"text_delta","text":" some words of an answer %d,\n"}`, i)))
	}
	return turn("end_turn", append(events, blockStop("0"))...)
}

// BenchmarkStream1000Deltas reads one recorded stream to its whole message, from the same bytes: here, and with the
// official SDK's stream and Accumulate.
func BenchmarkStream1000Deltas(b *testing.B) {
	raw := thousandDeltas()
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			end, err := newAnswer(testEndpoint("anthropic"), "", nil).read(newEventReader(strings.NewReader(raw)), func(forkcore.ModelEvent, error) bool { return true })
			if err != nil || len(end.Blocks) != 1 {
				b.Fatal(err, end)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			res := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(raw))}
			stream := ssestream.NewStream[sdk.MessageStreamEventUnion](ssestream.NewDecoder(res), nil)
			var m sdk.Message
			for stream.Next() {
				if err := m.Accumulate(stream.Current()); err != nil {
					b.Fatal(err)
				}
			}
			if err := stream.Err(); err != nil || len(m.Content) != 1 {
				b.Fatal(err, m)
			}
		}
	})
}

// BenchmarkPost1400KB sends a body of about 1.4 MB, made of a shared prefix and a tail, over the client's whole
// request path to a local server that drains it and answers; net/http posts the same bytes from one slice.
func BenchmarkPost1400KB(b *testing.B) {
	body := forkBody(b, 1_400_000)
	var whole bytes.Buffer
	if _, err := io.Copy(&whole, body.Reader()); err != nil {
		b.Fatal(err)
	}
	answer := turn("end_turn", textBlock("0", "x")...)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n != int64(whole.Len()) {
			b.Errorf("the server got %d bytes, want %d", n, whole.Len())
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	b.Run("ours", func(b *testing.B) {
		c := newTestClient(b, Options{BaseURL: srv.URL})
		r := forkcore.Request{Body: body.Reader, ContentLength: body.Len()}
		b.SetBytes(r.ContentLength)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := collect(b, c, b.Context(), r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("nethttp", func(b *testing.B) {
		c := httpClient(nil)
		b.SetBytes(int64(whole.Len()))
		b.ReportAllocs()
		for b.Loop() {
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL, bytes.NewReader(whole.Bytes()))
			req.Header.Set("Content-Type", "application/json")
			res, err := c.Do(req)
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	})
}

// forkBody is a request of about size bytes of history and a directive, with its marks.
func forkBody(b *testing.B, size int) *forkcore.Body {
	b.Helper()
	snap, base, _ := conversation(b, size)
	request, _, err := base.Complete(forkcore.DirectiveBlock("Find what is dropped."))
	check(b, err)
	plan, err := forkcore.PlanMarks(forkcore.Plan{Prefix: request, Snapshot: &snap, FirstRequest: true})
	check(b, err)
	body, err := request.Body(plan.Marks, snap.Params, nil)
	check(b, err)
	return body
}
