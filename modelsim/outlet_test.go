package modelsim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestFaultKindNames(t *testing.T) {
	var got []string
	for _, k := range FaultKinds() {
		got = append(got, k.String())
		if back, err := ParseFaultKind(k.String()); err != nil || back != k {
			t.Errorf("ParseFaultKind(%q) = %v, %v", k, back, err)
		}
	}
	if diff := cmp.Diff([]string{"status", "error_event", "eof", "reset", "silence", "slow", "pings"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"", "FaultKind(0)", "hang", "EOF"} {
		if k, err := ParseFaultKind(name); err == nil {
			t.Errorf("ParseFaultKind(%q) = %v", name, k)
		}
	}
	if s := FaultKind(99).String(); s != "FaultKind(99)" {
		t.Errorf("unknown kind: %s", s)
	}
}

// spoilt answers with one text and that fault.
func spoilt(words string, f Fault) Mind {
	return MindFunc(func(context.Context, *Request) (Reply, error) {
		return Reply{Blocks: []Block{TextBlock(words)}, Fault: &f}, nil
	})
}

// What a client has when the fault strikes: where exactly the body is cut and how it ends.
func TestFaultsInsideAnEvent(t *testing.T) {
	const words = "plain words first, then größer and 好🙂"
	for _, tc := range []struct {
		name   string
		fault  Fault
		plain  bool // without streaming
		ending string
		check  func(body []byte) bool
	}{
		{name: "eof after 100 bytes", fault: Fault{Kind: FaultEOF, AfterBytes: 100}, check: func(b []byte) bool { return len(b) == 100 }},
		{name: "reset after 100 bytes", fault: Fault{Kind: FaultReset, AfterBytes: 100}, ending: "reset", check: func(b []byte) bool { return len(b) == 100 }},
		{
			name: "bytes count from the events", fault: Fault{Kind: FaultEOF, AfterEvents: 3, AfterBytes: 10},
			check: func(b []byte) bool {
				return bytes.HasSuffix(b, []byte("\n\nevent: con")) && bytes.Count(b, []byte("event: ")) == 5
			},
		},
		{
			name: "reset inside a rune", fault: Fault{Kind: FaultReset, InRune: true}, ending: "reset",
			check: func(b []byte) bool { return bytes.HasSuffix(b, []byte("gr\xc3")) },
		},
		{
			name: "eof inside a later rune", fault: Fault{Kind: FaultEOF, AfterEvents: 4, InRune: true},
			check: func(b []byte) bool { return bytes.HasSuffix(b, []byte("\"\xe5")) },
		},
		{
			name: "no rune there, no fault", fault: Fault{Kind: FaultEOF, AfterEvents: 7, InRune: true},
			check: func(b []byte) bool { return bytes.Contains(b, []byte("message_stop")) },
		},
		{
			name: "beyond the end, no fault", fault: Fault{Kind: FaultReset, AfterBytes: 1 << 20},
			check: func(b []byte) bool { return bytes.Contains(b, []byte("message_stop")) },
		},
		{
			name: "an error event never cuts an event", fault: Fault{Kind: FaultErrorEvent, AfterBytes: 10},
			check: func(b []byte) bool {
				return bytes.Count(b, []byte("event: ")) == 2 && bytes.Contains(b, []byte("}\n\nevent: error\ndata: {")) && bytes.HasSuffix(b, []byte("\n\n"))
			},
		},
		{name: "document cut", plain: true, fault: Fault{Kind: FaultEOF, AfterBytes: 50}, check: func(b []byte) bool { return len(b) == 50 }},
		{name: "document reset in a rune", plain: true, fault: Fault{Kind: FaultReset, InRune: true}, ending: "reset", check: func(b []byte) bool { return bytes.HasSuffix(b, []byte("gr\xc3")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, url := start(t, Options{Mind: spoilt(words, tc.fault)})
			body := hello
			if !tc.plain {
				body = streaming(body)
			}
			res, err := http.DefaultClient.Do(newRequest(t.Context(), "POST", url+"/v1/messages", body))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if reset := errors.Is(err, syscall.ECONNRESET); reset != (tc.ending == "reset") || !reset && err != nil {
				t.Errorf("the body ended with %v, want %q", err, tc.ending)
			}
			if !tc.check(got) {
				t.Errorf("body (%d bytes): %q", len(got), got)
			}
			if tc.fault.InRune && strings.HasPrefix(tc.name, "reset") && utf8.Valid(got) {
				t.Error("the body is whole UTF-8")
			}
		})
	}
}

// served runs one request in a bubble until it ends by itself or until patience is over.
func served(sim *Server, body string, patience time.Duration) (*httptest.ResponseRecorder, time.Duration) {
	w := httptest.NewRecorder()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	start := time.Now()
	sim.ServeHTTP(w, newRequest(ctx, "POST", "/v1/messages", body))
	return w, time.Since(start)
}

func TestSlowFault(t *testing.T) {
	for _, body := range []string{hello, streaming(hello)} {
		synctest.Test(t, func(t *testing.T) {
			whole, _ := served(New(Options{Mind: say(TextBlock("one two"))}), body, time.Hour)
			sim := New(Options{Mind: spoilt("one two", Fault{Kind: FaultSlow, AfterBytes: 30, Every: 2 * time.Second})})
			w, took := served(sim, body, time.Hour)
			if n := w.Body.Len(); n != whole.Body.Len() || took != time.Duration(n-30)*2*time.Second {
				t.Errorf("%d of %d bytes took %v", n, whole.Body.Len(), took)
			}
			if c := sim.Requests()[0]; c.Error != "" || c.StopReason != "end_turn" {
				t.Errorf("captured %+v", c)
			}
			sim = New(Options{Mind: spoilt("one two", Fault{Kind: FaultSlow})})
			if w, _ := served(sim, body, 10500*time.Millisecond); w.Body.Len() != 10 || sim.Requests()[0].Error != errGone.Error() {
				t.Errorf("%d bytes in 10.5 s at the default pace, captured %+v", w.Body.Len(), sim.Requests()[0])
			}
		})
	}
}

func TestPingsAndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, took := served(New(Options{Mind: spoilt("one two", Fault{Kind: FaultPings, AfterEvents: 2, Every: 15 * time.Second})}), streaming(hello), 30*time.Minute)
		if n := strings.Count(w.Body.String(), "event: ping\n"); n != 1+119 && n != 1+120 || took != 30*time.Minute {
			t.Errorf("%d pings in %v", n, took)
		}
		if strings.Contains(w.Body.String(), "content_block_delta") {
			t.Errorf("more than pings: %s", w.Body)
		}
		w, took = served(New(Options{Mind: spoilt("one two", Fault{Kind: FaultSilence, AfterEvents: 1})}), streaming(hello), time.Minute)
		if n := strings.Count(w.Body.String(), "event: "); n != 1 || took != time.Minute {
			t.Errorf("%d events in %v", n, took)
		}
	})
}

func TestPingsWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := New(Options{DeltaDelay: time.Second, Mind: MindFunc(func(context.Context, *Request) (Reply, error) {
			return Reply{Blocks: []Block{TextBlock("a b c d e f")}, DeltaDelay: 4 * time.Minute, PingEvery: 15 * time.Second}, nil
		})})
		w, took := served(sim, streaming(hello), time.Hour)
		if n := strings.Count(w.Body.String(), "event: ping\n"); n != 1+2*15 || took != 8*time.Minute {
			t.Errorf("%d pings in %v, want 31 in 8m", n, took)
		}
		if !strings.Contains(w.Body.String(), "message_stop") {
			t.Errorf("the answer is not whole: %s", w.Body)
		}
	})
}

// A delta that went out late does not delay those after it, so a stream keeps its rate.
func TestDeltasKeepTheirTimetable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := New(Options{DeltaDelay: 20 * time.Millisecond, Mind: say(TextBlock(strings.Repeat("a b c ", 100)))})
		w := &hesitant{ResponseRecorder: httptest.NewRecorder()}
		start := time.Now()
		sim.ServeHTTP(w, newRequest(context.Background(), "POST", "/v1/messages", streaming(strings.Replace(hello, "100", "1000", 1))))
		if took := time.Since(start); took < 2*time.Second || took > 2040*time.Millisecond {
			t.Errorf("100 deltas, 20 ms apart, took %v over a connection that adds 5 ms to each", took)
		}
	})
}

// hesitant takes 5 ms for each write.
type hesitant struct{ *httptest.ResponseRecorder }

func (h *hesitant) Write(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return h.ResponseRecorder.Write(b)
}

func TestStopDetails(t *testing.T) {
	for _, tc := range []struct {
		name  string
		reply Reply
		want  string
	}{
		{"refusal", Reply{StopReason: "refusal", StopDetails: &StopDetails{"cyber", "Not that."}}, `"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":"cyber","explanation":"Not that."}`},
		{"bare refusal", Reply{StopReason: "refusal"}, `"stop_reason":"refusal","stop_sequence":null,"stop_details":{"type":"refusal","category":null,"explanation":null}`},
		{"details of another stop", Reply{StopReason: "pause_turn", StopDetails: &StopDetails{"cyber", "x"}}, `"stop_reason":"pause_turn","stop_sequence":null,"stop_details":null`},
		{"window", Reply{StopReason: "model_context_window_exceeded"}, `"stop_reason":"model_context_window_exceeded","stop_sequence":null,"stop_details":null`},
		{"cut before it could refuse", Reply{StopReason: "refusal", Blocks: []Block{TextBlock(strings.Repeat("x", 500))}}, `"stop_reason":"max_tokens","stop_sequence":null,"stop_details":null`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: MindFunc(func(context.Context, *Request) (Reply, error) { return tc.reply, nil })})
			for _, body := range []string{hello, streaming(hello)} {
				if w := direct(sim, body); w.Code != 200 || !strings.Contains(w.Body.String(), tc.want) {
					t.Errorf("got %d %s, want %s", w.Code, w.Body, tc.want)
				}
			}
		})
	}
}
