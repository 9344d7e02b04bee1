package forkcore

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWindow(t *testing.T) {
	small := ModelInfo{Window: 50_000, MaxOutput: 600}
	tests := []struct {
		name          string
		info          ModelInfo
		best          *CacheEntry
		bytes         int64 // of the shared prefix
		own           []int // bytes of directives
		maxTokens     int64
		want          Window
		refusal, next string
		tooLong       bool
	}{
		{
			"all fits, to the token", small, nil, 4 * 49_000,
			[]int{40, 4 * 400, 8},
			1_000,
			Window{Tokens: 50_000, SharedTokens: 49_000, OwnTokens: 400, Index: 1, OutputTokens: 600},
			"", "", false,
		},
		{
			"the answer is cut by a token", small, nil, 4 * 49_000,
			[]int{40, 4 * 401},
			1_000,
			Window{
				Tokens: 50_000, SharedTokens: 49_000, OwnTokens: 401, Index: 1, OutputTokens: 600,
				Note: "The window has 50,000 tokens, about 49,401 are input: an answer is cut after 599, though up to 600 may be asked for.",
			},
			"", "", false,
		},
		{
			"max_tokens under what the model gives", small, nil, 4 * 49_000,
			[]int{40, 4 * 401},
			599,
			Window{Tokens: 50_000, SharedTokens: 49_000, OwnTokens: 401, Index: 1, OutputTokens: 599},
			"", "", false,
		},
		{
			"the input fills the window", small, nil, 4 * 49_000,
			[]int{4 * 1_000},
			600,
			Window{
				Tokens: 50_000, SharedTokens: 49_000, OwnTokens: 1_000, OutputTokens: 600,
				Note: "The window has 50,000 tokens, about 50,000 are input: an answer is cut after 0, though up to 600 may be asked for.",
			},
			"", "", false,
		},
		{
			"a token over", small, nil, 4 * 49_000,
			[]int{4 * 1_001},
			600,
			Window{
				Tokens: 50_000, SharedTokens: 49_000, OwnTokens: 1_001, OutputTokens: 600,
				Note: "The dispatch would exceed the window of m by about 1 token: it takes 50,000 of input, and directive 1 would send 50,001, 49,000 shared and 1,001 of its own.",
			},
			"The dispatch would exceed the window of m by about 1 token: it takes 50,000 of input, and directive 1 would send 50,001, 49,000 shared and 1,001 of its own",
			"Shorten directive 1 by about 1 token, or put the text into a file that the fork reads in parts", true,
		},
		{
			"the prefix alone fills it, counted", small, &CacheEntry{Bytes: 4_000, Tokens: 50_000, Exact: true}, 4_000,
			[]int{4, 8},
			600,
			Window{
				Tokens: 50_000, SharedTokens: 50_000, OwnTokens: 2, Index: 1, OutputTokens: 600, Exact: true,
				Note: "The dispatch would exceed the window of m by 2 tokens: it takes 50,000 of input, and directive 2 would send 50,002, 50,000 shared and 2 of its own.",
			},
			"The dispatch would exceed the window of m by 2 tokens: it takes 50,000 of input, and directive 2 would send 50,002, 50,000 shared and 2 of its own",
			"Start a new session with a summary of this one, or let a named agent do it: that does not carry the conversation", true,
		},
		{
			"a window that is not known refuses nothing",
			ModelInfo{},
			nil, 4 * 8_000_000,
			[]int{4},
			600,
			Window{SharedTokens: 8_000_000, OwnTokens: 1, OutputTokens: 600, Note: "The window of m is not known: nothing checks whether the forks fit."},
			"", "", false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var blocks [][]byte
			for _, n := range tt.own {
				blocks = append(blocks, make([]byte, n))
			}
			q := NewQuote(tt.info, false, Snapshot{Bytes: tt.bytes, Params: Params{Model: "m", MaxTokens: tt.maxTokens}}, tt.best, blocks, GateAuto, Jobs{})
			tt.want.Model = "m"
			tt.want.Bytes = tt.bytes + int64(tt.own[tt.want.Index]) + bodyMargin
			if d := cmp.Diff(&tt.want, q.Window); d != "" {
				t.Errorf("window (-want +got):\n%s", d)
			}
			if q.Window.TooLong() != tt.tooLong {
				t.Errorf("too long: %t", q.Window.TooLong())
			}
			err := q.Window.Refusal()
			var conflict *ConflictError
			if errors.As(err, &conflict) != tt.tooLong || (err != nil) != tt.tooLong {
				t.Fatalf("refusal %v", err)
			}
			if conflict != nil && (conflict.Message != tt.refusal || conflict.NextStep != tt.next) {
				t.Errorf("%q, %q", conflict.Message, conflict.NextStep)
			}
		})
	}
	var nobody Window
	if q := NewQuote(small, false, Snapshot{Bytes: 8, Params: Params{Model: "m"}}, nil, nil, GateAuto, Jobs{}); q.Window.OwnTokens != 0 || q.Window.Refusal() != nil || nobody.Refusal() != nil {
		t.Errorf("nobody: %+v", q.Window)
	}
}

// B53: images are many bytes and few tokens, so that no child can be sent though every window has room.
func TestB53_NoDispatchOverTheBodyLimit(t *testing.T) {
	held := &CacheEntry{Bytes: 1, Tokens: 4_000, Exact: true}
	for _, tt := range []struct {
		bytes   int64 // of the shared prefix
		refused bool
	}{
		{MaxBodyBytes - bodyMargin - 101, false}, {MaxBodyBytes - bodyMargin - 100, false}, {MaxBodyBytes - bodyMargin - 99, true}, {40 * 1_400_000, true},
	} {
		held.Bytes = tt.bytes
		q := NewQuote(ModelInfo{Window: 1_000_000}, false, Snapshot{Bytes: tt.bytes, Params: Params{Model: "m", MaxTokens: 600}}, held, [][]byte{make([]byte, 90), make([]byte, 100), make([]byte, 10)}, GateAuto, Jobs{})
		err := q.Window.Refusal()
		var conflict *ConflictError
		if !tt.refused {
			if err != nil || q.Window.TooLarge() || q.Window.Note != "" {
				t.Errorf("%d bytes: %v, %q", tt.bytes, err, q.Window.Note)
			}
			continue
		}
		want := "The dispatch would exceed the provider's limit for one request: it takes 33,554,432 bytes, and directive 2 would send " + Grouped(tt.bytes+100+bodyMargin)
		if !errors.As(err, &conflict) || conflict.Message != want || q.Window.Note != want+"." || conflict.NextStep == "" {
			t.Errorf("%d bytes: %v, %q; want %q", tt.bytes, err, q.Window.Note, want)
		}
	}
}
