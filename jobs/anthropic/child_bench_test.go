package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"

	"forkyard/forkcore"
)

// BenchmarkChildBesideSDK makes the request of one more child of a conversation
// in both ways: from the shared inheritance, and by marshalling the same
// conversation with the official client's types. The metric "less-B" is how many times fewer
// bytes the first allocates.
func BenchmarkChildBesideSDK(b *testing.B) {
	for _, size := range []int{100 << 10, 1 << 20, 10 << 20} {
		snap, base, params := conversation(b, size)
		var own, theirs float64
		b.Run(fmt.Sprintf("prefix=%dKB/inheritance", size>>10), func(b *testing.B) {
			own = allocated(b, func() {
				request, _, err := base.Complete(forkcore.DirectiveBlock("Find what is dropped."))
				check(b, err)
				plan, err := forkcore.PlanMarks(forkcore.Plan{Prefix: request, Snapshot: &snap, FirstRequest: true})
				check(b, err)
				check(b, forkcore.Verify(snap, request, nil))
				body, err := request.Body(plan.Marks, snap.Params, nil)
				check(b, err)
				body.Digest()
				_, err = body.Reader().(io.WriterTo).WriteTo(io.Discard)
				check(b, err)
			})
		})
		b.Run(fmt.Sprintf("prefix=%dKB/sdk", size>>10), func(b *testing.B) {
			theirs = allocated(b, func() {
				_, err := params.MarshalJSON()
				check(b, err)
			})
			if own > 0 {
				b.ReportMetric(theirs/own, "less-B")
			}
		})
	}
}

// allocated runs the benchmark and gives the bytes that one run allocates.
func allocated(b *testing.B, do func()) float64 {
	do() // what is shared is hashed once, not per child
	b.ReportAllocs()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for b.Loop() {
		do()
		n++
	}
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
}

func check(b *testing.B, err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

// conversation gives turns of a question, a tool call, its result and an answer, in both forms.
func conversation(b *testing.B, size int) (forkcore.Snapshot, *forkcore.Prefix, sdk.MessageNewParams) {
	b.Helper()
	const system, input = "You are an agent.", `{"file_path":"part.go"}`
	content := strings.Repeat("func part() error { return <nil> } // \"quoted\"\n", 80)
	p := forkcore.Params{Model: "claude-sonnet-5-5", MaxTokens: 4096}
	params := sdk.MessageNewParams{Model: sdk.Model(p.Model), MaxTokens: p.MaxTokens, System: []sdk.TextBlockParam{{Text: system}}}
	history := forkcore.NewPrefix(forkcore.EncodeHead(p, nil, system))
	add := func(role forkcore.Role, blocks ...[]byte) {
		m, err := forkcore.ParseMessage(forkcore.EncodeMessage(role, blocks...))
		check(b, err)
		history = history.Append(m)
	}
	for i := 0; history.Len() < int64(size); i++ {
		id := fmt.Sprintf("toolu_%05d", i)
		add(forkcore.RoleUser, forkcore.AppendTextBlock(nil, "What does it do?"))
		add(forkcore.RoleAssistant, forkcore.AppendTextBlock(nil, "I read it."), []byte(`{"type":"tool_use","id":"`+id+`","name":"Read","input":`+input+`}`))
		add(forkcore.RoleUser, forkcore.AppendToolResult(nil, id, content, false))
		add(forkcore.RoleAssistant, forkcore.AppendTextBlock(nil, "It returns nothing."))
		params.Messages = append(params.Messages,
			sdk.NewUserMessage(sdk.NewTextBlock("What does it do?")),
			sdk.NewAssistantMessage(sdk.NewTextBlock("I read it."), sdk.NewToolUseBlock(id, json.RawMessage(input), "Read")),
			sdk.NewUserMessage(sdk.NewToolResultBlock(id, content, false)),
			sdk.NewAssistantMessage(sdk.NewTextBlock("It returns nothing.")))
	}
	snap, fresh, err := forkcore.NewSnapshot("ses_00aaaaaaaaaaaaaaaa", history, p, nil, 1, nil, time.Unix(1, 0))
	check(b, err)
	_, segments := history.Segments()
	base, err := forkcore.LoadSnapshot(snap, append(segments, fresh...))
	check(b, err)
	return snap, base, params
}
