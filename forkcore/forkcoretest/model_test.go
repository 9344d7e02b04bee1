package forkcoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func request(body string) forkcore.Request {
	return forkcore.Request{Body: func() io.Reader { return strings.NewReader(body) }, ContentLength: int64(len(body)), Betas: []string{"b1"}}
}

// drain lists the kinds of the events and the last error.
func drain(ctx context.Context, m *Model, r forkcore.Request) (kinds []string, end *forkcore.ModelEnd, err error) {
	for ev, e := range m.Stream(ctx, r) {
		if e != nil {
			return kinds, end, e
		}
		kinds = append(kinds, strings.TrimPrefix(fmt.Sprintf("%T", ev), "*forkcore.Model"))
		if x, ok := ev.(*forkcore.ModelEnd); ok {
			end = x
		}
	}
	return kinds, end, nil
}

func TestModelAnswers(t *testing.T) {
	broken := &forkcore.ModelError{Code: forkcore.CodeOverloaded, Retryable: true}
	tests := []struct {
		name    string
		answer  Answer
		kinds   []string
		stop    string
		err     error
		elapsed time.Duration
	}{
		{"text", Text("hello"), []string{"Start", "End"}, "end_turn", nil, 0},
		{"tool call", Answer{Blocks: [][]byte{TextBlock("x"), ToolUseBlock("t1", "Read", `{"path": "a"}`)}}, []string{"Start", "End"}, "tool_use", nil, 0},
		{"own stop reason", Answer{Blocks: [][]byte{TextBlock("x")}, StopReason: "max_tokens"}, []string{"Start", "End"}, "max_tokens", nil, 0},
		{"delays and deltas", Answer{Blocks: [][]byte{TextBlock("ab")}, Deltas: []forkcore.ModelDelta{{Text: "a"}, {Text: "b"}}, StartDelay: 2 * time.Second, EndDelay: time.Second}, []string{"Start", "Delta", "Delta", "End"}, "end_turn", nil, 3 * time.Second},
		{"error before the start", Answer{Err: broken, StartDelay: time.Second}, nil, "", broken, time.Second},
		{"error after the start", Answer{Err: broken, Started: true, Deltas: []forkcore.ModelDelta{{Text: "a"}}}, []string{"Start", "Delta"}, "", broken, 0},
		{"hangs before the start", Answer{Hang: true}, nil, "", context.DeadlineExceeded, time.Minute},
		{"hangs after the start", Answer{Hang: true, Started: true}, []string{"Start"}, "", context.DeadlineExceeded, time.Minute},
		{"deadline in the start delay", Answer{StartDelay: time.Hour}, nil, "", context.DeadlineExceeded, time.Minute},
		{"deadline in the end delay", Answer{EndDelay: time.Hour}, []string{"Start"}, "", context.DeadlineExceeded, time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				m := NewModel(func(int, []byte) Answer { return tt.answer })
				began := time.Now()
				kinds, end, err := drain(ctx, m, request("{}"))
				if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				if d := cmp.Diff(tt.kinds, kinds); d != "" {
					t.Errorf("events (-want +got):\n%s", d)
				}
				if got := time.Since(began); got != tt.elapsed {
					t.Errorf("took %v, want %v", got, tt.elapsed)
				}
				if tt.stop == "" {
					return
				}
				if end.StopReason != tt.stop {
					t.Errorf("stop reason %q, want %q", end.StopReason, tt.stop)
				}
				if d := cmp.Diff(tt.answer.Blocks, end.Blocks); d != "" {
					t.Errorf("blocks (-want +got):\n%s", d)
				}
			})
		})
	}
}

func TestModelUsage(t *testing.T) {
	usage := forkcore.Usage{Input: 3, CacheRead: 1000, Output: 16}
	for _, unknown := range []bool{false, true} {
		m := NewModel(func(int, []byte) Answer {
			return Answer{Blocks: [][]byte{TextBlock("x")}, Usage: usage, UsageUnknown: unknown}
		})
		for ev, err := range m.Stream(t.Context(), request("{}")) {
			if err != nil {
				t.Fatal(err)
			}
			var got, want forkcore.Usage
			var known bool
			switch ev := ev.(type) {
			case *forkcore.ModelStart:
				got, known, want = ev.Usage, ev.UsageKnown, forkcore.Usage{Input: 3, CacheRead: 1000, Output: 1}
			case *forkcore.ModelEnd:
				got, known, want = ev.Usage, ev.UsageKnown, usage
			}
			if unknown {
				want = forkcore.Usage{}
			}
			if got != want || known == unknown {
				t.Errorf("unknown=%v: %T has usage %+v known=%v, want %+v", unknown, ev, got, known, want)
			}
		}
	}
}

func TestModelRecordsConcurrentRequests(t *testing.T) {
	m := NewModel(func(n int, body []byte) Answer { return Text(fmt.Sprintf("%d:%s", n, body)) })
	var wg sync.WaitGroup
	texts := make([]string, 32)
	for i := range texts {
		wg.Go(func() {
			_, end, err := drain(t.Context(), m, request(fmt.Sprintf("body-%d", i)))
			if err != nil {
				t.Error(err)
				return
			}
			texts[i] = string(end.Blocks[0])
		})
	}
	wg.Wait()
	rs := m.Requests()
	if len(rs) != len(texts) {
		t.Fatalf("%d requests recorded, want %d", len(rs), len(texts))
	}
	for i, r := range rs {
		if r.N != i+1 || len(r.Betas) != 1 {
			t.Errorf("request %d is recorded as %+v", i+1, r)
		}
		var index int
		if _, err := fmt.Sscanf(string(r.Body), "body-%d", &index); err != nil {
			t.Fatal(err)
		}
		if want := string(TextBlock(fmt.Sprintf("%d:%s", r.N, r.Body))); texts[index] != want {
			t.Errorf("answer to %s is %s, want %s", r.Body, texts[index], want)
		}
	}
}

func TestModelRefusesAWrongContentLength(t *testing.T) {
	m := NewModel(func(int, []byte) Answer { return Text("x") })
	r := request("12345")
	r.ContentLength = 4
	if _, _, err := drain(t.Context(), m, r); err == nil {
		t.Error("no error for a body longer than its content length")
	}
	if n := len(m.Requests()); n != 0 {
		t.Errorf("%d requests recorded, want none", n)
	}
}

func TestModelStopsWhenTheReaderBreaks(t *testing.T) {
	m := NewModel(func(int, []byte) Answer {
		return Answer{Deltas: []forkcore.ModelDelta{{Text: "a"}, {Text: "b"}}, Blocks: [][]byte{TextBlock("ab")}}
	})
	for stopAfter := 1; stopAfter <= 4; stopAfter++ {
		seen := 0
		for _, err := range m.Stream(t.Context(), request("{}")) {
			if err != nil {
				t.Fatal(err)
			}
			if seen++; seen == stopAfter {
				break // a yield after this would panic
			}
		}
		if seen != stopAfter {
			t.Errorf("%d events before the break, want %d", seen, stopAfter)
		}
	}
}

func TestToolUseBlockKeepsItsInput(t *testing.T) {
	const input = `{"id": 9007199254740993,"x":1.0,"y":1e2,"s":"a<b\u00e9"}`
	b := ToolUseBlock("t\"1", "Read", input)
	m, err := forkcore.ParseMessage(forkcore.EncodeMessage(forkcore.RoleAssistant, b))
	if err != nil {
		t.Fatal(err)
	}
	call := m.ToolCalls()[0]
	if call.ID != "t\"1" || call.Name != "Read" || !bytes.Equal(call.Input, []byte(input)) {
		t.Errorf("call is %+v", call)
	}
}
