package modelsim

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Shapes of the SSE events.
type (
	messageStart struct {
		Type    string      `json:"type"`
		Message messageBody `json:"message"`
	}
	blockStart struct {
		Type         string `json:"type"`
		Index        int    `json:"index"`
		ContentBlock any    `json:"content_block"`
	}
	blockDelta struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta any    `json:"delta"`
	}
	blockStop struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	messageDelta struct {
		Type  string    `json:"type"`
		Delta stopDelta `json:"delta"`
		Usage Usage     `json:"usage"`
	}
	stopDelta struct {
		StopReason   string       `json:"stop_reason"`
		StopSequence *string      `json:"stop_sequence"`
		StopDetails  *stopDetails `json:"stop_details"`
	}
	bare struct {
		Type string `json:"type"`
	}
	textDelta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingDelta struct {
		Type     string `json:"type"`
		Thinking string `json:"thinking"`
	}
	signatureDelta struct {
		Type      string `json:"type"`
		Signature string `json:"signature"`
	}
	inputDelta struct {
		Type        string `json:"type"`
		PartialJSON string `json:"partial_json"`
	}
)

// stream sends the answer as server-sent events. It returns why the stream ended early, nil for a complete one.
func (x *exchange) stream() error {
	h := x.w.Header()
	h.Set("content-type", "text/event-stream; charset=utf-8")
	h.Set("cache-control", "no-cache")
	out := newOutlet(x)
	if err := out.faulty(); err != nil {
		return err
	}
	x.begin()
	x.message.Usage = x.startUsage()
	if err := out.send("message_start", messageStart{"message_start", x.message}); err != nil {
		return err
	}
	if err := out.write("ping", bare{"ping"}); err != nil {
		return err
	}
	for i, b := range x.answer.blocks {
		if err := out.block(i, b); err != nil {
			return err
		}
	}
	delta := stopDelta{x.answer.stopReason, x.answer.stopSequence, x.answer.stopDetails}
	if err := out.send("message_delta", messageDelta{"message_delta", delta, x.finalUsage()}); err != nil {
		return err
	}
	x.done()
	return out.send("message_stop", bare{"message_stop"})
}

// block sends one content block: start, deltas, stop.
func (o *outlet) block(i int, b Block) error {
	var start any
	var deltas []any
	switch b.Type {
	case "text":
		start = textBody{"text", ""}
		for _, s := range pieces(b.Text) {
			deltas = append(deltas, textDelta{"text_delta", s})
		}
	case "thinking":
		start = thinkingBody{"thinking", "", ""}
		for _, s := range pieces(b.Text) {
			deltas = append(deltas, thinkingDelta{"thinking_delta", s})
		}
		deltas = append(deltas, signatureDelta{"signature_delta", b.Signature})
	case "tool_use":
		start = toolUseBody{"tool_use", b.ID, b.Name, json.RawMessage("{}")}
		deltas = append(deltas, inputDelta{"input_json_delta", ""})
		for _, s := range chunks(string(b.Input), 32) {
			deltas = append(deltas, inputDelta{"input_json_delta", s})
		}
	default:
		start = b.Raw
	}
	if err := o.send("content_block_start", blockStart{"content_block_start", i, start}); err != nil {
		return err
	}
	for _, d := range deltas {
		if err := o.pause(); err != nil {
			return err
		}
		if err := o.send("content_block_delta", blockDelta{"content_block_delta", i, d}); err != nil {
			return err
		}
	}
	return o.send("content_block_stop", blockStop{"content_block_stop", i})
}

// send writes an event that counts and then lets a fault strike.
func (o *outlet) send(name string, v any) error {
	if err := o.write(name, v); err != nil {
		return err
	}
	o.sent++
	return o.faulty()
}

func (o *outlet) write(name string, v any) error {
	o.buf.Reset()
	o.buf.WriteString("event: ")
	o.buf.WriteString(name)
	o.buf.WriteString("\ndata: ")
	if err := o.enc.Encode(v); err != nil { // ends the line
		return fmt.Errorf("encoding event %s: %w", name, err)
	}
	o.buf.WriteByte('\n')
	return o.put(o.buf.Bytes())
}

// pieces cuts text into deltas of three words or so; joined they are the text.
func pieces(s string) []string {
	var out []string
	for len(s) > 0 {
		at := 0
		for range 3 {
			n := strings.IndexAny(s[at:], " \n")
			if n < 0 {
				at = len(s)
				break
			}
			at += n + 1
		}
		out = append(out, s[:at])
		s = s[at:]
	}
	return out
}

// chunks cuts s into parts of about n bytes at rune boundaries; joined they are s.
func chunks(s string, n int) []string {
	var out []string
	for len(s) > n {
		at := n
		for at < len(s) && !utf8.RuneStart(s[at]) {
			at++
		}
		out = append(out, s[:at])
		s = s[at:]
	}
	if s != "" {
		out = append(out, s)
	}
	return out
}
