package modelsim

import (
	"errors"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func sdkClient(url string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(url), option.WithAPIKey("sim"), option.WithMaxRetries(0))
}

func sdkParams() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "claude-sonnet-5-5", MaxTokens: 1000,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("count the files, please"))},
	}
}

// The official client is the judge of the stream's shape.
func TestOfficialClientStreams(t *testing.T) {
	const input = `{"pattern": "**/*.go", "n":9007199254740993, "z":"<b>&é🙂", "a":1.0}`
	_, url := start(t, Options{Mind: say(ThinkingBlock("hm", ""), TextBlock("I will look for\nthe files now."), ToolUseBlock("", "Glob", input))})
	client := sdkClient(url)
	stream := client.Messages.NewStreaming(t.Context(), sdkParams())
	var m anthropic.Message
	kinds := map[string]int{}
	for stream.Next() {
		event := stream.Current()
		kinds[event.Type]++
		if err := m.Accumulate(event); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	if kinds["message_start"] != 1 || kinds["message_stop"] != 1 || kinds["content_block_start"] != 3 {
		t.Errorf("events = %v", kinds)
	}
	if m.StopReason != "tool_use" || len(m.Content) != 3 || m.Usage.InputTokens == 0 || m.Usage.OutputTokens < 10 {
		t.Fatalf("message = %s", m.RawJSON())
	}
	if got := m.Content[1].Text; got != "I will look for\nthe files now." {
		t.Errorf("text = %q", got)
	}
	if got := string(m.Content[2].Input); got != input {
		t.Errorf("input = %s, want %s", got, input)
	}
	if m.Content[0].Signature == "" || m.Content[0].Thinking != "" {
		t.Errorf("thinking = %+v, want a signature and, as display is omitted, no text", m.Content[0])
	}
}

func TestOfficialClientPlain(t *testing.T) {
	_, url := start(t, Options{Mind: say(TextBlock("four"))})
	client := sdkClient(url)
	m, err := client.Messages.New(t.Context(), sdkParams())
	if err != nil {
		t.Fatal(err)
	}
	if m.Content[0].Text != "four" || m.StopReason != "end_turn" || m.Usage.OutputTokens != 1 || m.Usage.ServiceTier != "standard" {
		t.Errorf("message = %s", m.RawJSON())
	}
	count, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "claude-sonnet-5-5", Messages: sdkParams().Messages})
	if err != nil || count.InputTokens != m.Usage.InputTokens {
		t.Errorf("count = %v, %v; want %d", count, err, m.Usage.InputTokens)
	}
	info, err := client.Models.Get(t.Context(), "claude-opus-5-5", anthropic.ModelGetParams{})
	if err != nil || info.MaxTokens != 128_000 {
		t.Errorf("model = %v, %v", info, err)
	}
}

func TestOfficialClientErrors(t *testing.T) {
	_, url := start(t, Options{})
	client := sdkClient(url)
	params := sdkParams()
	params.Model = "claude-nothing"
	_, err := client.Messages.New(t.Context(), params)
	var api *anthropic.Error
	if !errors.As(err, &api) || api.StatusCode != 404 || api.Type() != "not_found_error" || api.RequestID == "" {
		t.Errorf("error = %v", err)
	}
}
