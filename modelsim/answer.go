package modelsim

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// messageBody is the message object of the API.
type messageBody struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"`
	Role         string       `json:"role"`
	Model        string       `json:"model"`
	Content      []any        `json:"content"`
	StopReason   *string      `json:"stop_reason"`
	StopSequence *string      `json:"stop_sequence"`
	StopDetails  *stopDetails `json:"stop_details"`
	Container    *struct{}    `json:"container"`
	Diagnostics  *Diagnosis   `json:"diagnostics"`
	Usage        Usage        `json:"usage"`
	// InputTransformations are sent with their beta alone, then also as an empty list.
	InputTransformations *[]transformation `json:"input_transformations,omitempty"`
}

// answer is a reply made ready to send: ids and signatures given, cut to max_tokens and stop sequences.
type answer struct {
	blocks         []Block
	stopReason     string
	stopSequence   *string
	stopDetails    *stopDetails
	outputTokens   int
	thinkingTokens int
}

// stopDetails is the shape of [StopDetails].
type stopDetails struct {
	Type        string  `json:"type"`
	Category    *string `json:"category"`
	Explanation *string `json:"explanation"`
}

// Shapes of content blocks in answers.
type (
	textBody struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingBody struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolUseBody struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
)

// finish makes reply ready for the request p.
func finish(p *prompt, reply Reply) answer {
	a := answer{stopReason: reply.StopReason}
	if p.MaxTokens == 0 {
		a.stopReason = "max_tokens"
		return a
	}
	omit := p.display == "omitted" || p.display == "" && !p.model.showsThinking
	seals := newSigner(p, reply.Blocks)
	// Input and max_tokens may together be more than the window; the answer then ends where the window does.
	limit, full := p.MaxTokens, "max_tokens"
	if room := p.model.window - p.inputTokens(); room < limit {
		limit, full = room, "model_context_window_exceeded"
	}
	called := false
	for i, b := range reply.Blocks {
		tokens := outputTokens(b)
		left := limit - a.outputTokens
		if left <= 0 {
			a.stopReason = full
			break
		}
		if b.Type == "text" {
			if at, seq := firstStop(b.Text, p.stopSequences); at >= 0 {
				b.Text, a.stopReason, a.stopSequence = b.Text[:at], "stop_sequence", &seq
				tokens = outputTokens(b)
			}
		}
		over := tokens > left
		if over {
			b, tokens = b.clip(left), left
			a.stopReason, a.stopSequence = full, nil
		}
		a.outputTokens += tokens
		switch b.Type {
		case "thinking":
			a.thinkingTokens += tokens
			if omit {
				b.Text = ""
			}
		case "tool_use":
			called = true
			if b.ID == "" {
				b.ID = callID(p.Raw, i)
			}
		}
		seals.sign(&b)
		a.blocks = append(a.blocks, b)
		if over || a.stopSequence != nil {
			break
		}
	}
	switch {
	case a.stopReason != "":
	case called:
		a.stopReason = "tool_use"
	default:
		a.stopReason = "end_turn"
	}
	if a.stopReason == "refusal" {
		a.stopDetails = &stopDetails{Type: "refusal"}
		if d := reply.StopDetails; d != nil {
			a.stopDetails.Category, a.stopDetails.Explanation = orNull(d.Category), orNull(d.Explanation)
		}
	}
	if reply.OutputTokens > 0 {
		a.outputTokens = reply.OutputTokens
	}
	return a
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func outputTokens(b Block) int {
	switch b.Type {
	case "text", "thinking":
		return (len(b.Text) + 3) / 4
	case "tool_use":
		return (len(b.Name) + len(b.Input) + 3) / 4
	}
	return (len(b.Raw) + 3) / 4
}

// clip shortens b to at most that many tokens; a tool input that is cut is no valid JSON any more, as in real life.
func (b Block) clip(tokens int) Block {
	switch b.Type {
	case "text", "thinking":
		b.Text = prefix(b.Text, 4*tokens)
	case "tool_use":
		b.Input = json.RawMessage(prefix(string(b.Input), max(0, 4*tokens-len(b.Name))))
	}
	return b
}

// prefix returns at most n bytes of s, cut at a rune.
func prefix(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// firstStop finds the first stop sequence in s; at is -1 without one.
func firstStop(s string, sequences []string) (at int, seq string) {
	at = -1
	for _, want := range sequences {
		if i := strings.Index(s, want); want != "" && i >= 0 && (at < 0 || i < at) {
			at, seq = i, want
		}
	}
	return at, seq
}

// callID names a tool call by the request's bytes and the block's index: a retried request gets the same ids, two
// different requests never share one.
func callID(body []byte, index int) string {
	h := sha256.New()
	h.Write(body)
	fmt.Fprintf(h, "\x00%d", index)
	return "toolu_" + base32.StdEncoding.EncodeToString(h.Sum(nil))[:24]
}

// content returns the blocks of an answer without streaming.
func (a *answer) content() []any {
	out := []any{}
	for _, b := range a.blocks {
		switch b.Type {
		case "text":
			out = append(out, textBody{"text", b.Text})
		case "thinking":
			out = append(out, thinkingBody{"thinking", b.Text, b.Signature})
		case "tool_use":
			input := b.Input
			if !json.Valid(input) {
				input = json.RawMessage("{}") // cut by max_tokens
			}
			out = append(out, toolUseBody{"tool_use", b.ID, b.Name, input})
		default:
			out = append(out, b.Raw)
		}
	}
	return out
}
