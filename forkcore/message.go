package forkcore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Message is a view beside the bytes of one message. Raw is what is stored,
// hashed and sent; the rest is for reading only.
type Message struct {
	Raw []byte
	// Sum is the digest of Raw where the reader knows it; zero = not known.
	Sum    Digest
	Role   Role
	Blocks []Block
}

// Block is a view of one content block. Raw is a slice of the message's bytes.
type Block struct {
	Raw  []byte
	Type string
	// Text of a text block, or of a tool_result whose content is one text block.
	Text string
	// ToolUseID is the id of a tool_use and the tool_use_id of a tool_result.
	ToolUseID string
	Name      string          // tool_use
	Input     json.RawMessage // tool_use, as streamed
	IsError   bool            // tool_result
}

// ErrNotCanonical is returned by ParseMessage for bytes that EncodeMessage
// did not make.
var ErrNotCanonical = errors.New("message bytes are not canonical")

// ParseMessage views canonical message bytes. Blocks of unknown types are
// kept with their type alone.
func ParseMessage(raw []byte) (Message, error) {
	var m struct {
		Role    Role              `json:"role"`
		Content []json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	if m.Role != RoleUser && m.Role != RoleAssistant {
		return Message{}, fmt.Errorf("%w: role %q", ErrNotCanonical, m.Role)
	}
	out := Message{Raw: raw, Role: m.Role, Blocks: make([]Block, len(m.Content))}
	rest, ok := bytes.CutPrefix(raw, AppendOpenMessage(nil, m.Role))
	for i, c := range m.Content {
		if i > 0 && ok {
			rest, ok = bytes.CutPrefix(rest, comma)
		}
		if !ok || !bytes.HasPrefix(rest, c) {
			return Message{}, ErrNotCanonical
		}
		b, err := parseBlock(rest[:len(c):len(c)])
		if err != nil {
			return Message{}, err
		}
		out.Blocks[i] = b
		rest = rest[len(c):]
	}
	if !ok || string(rest) != messageClose {
		return Message{}, ErrNotCanonical
	}
	return out, nil
}

// parseBlocks views the blocks of a fragment: their bytes joined with ",".
func parseBlocks(fragment []byte) ([]Block, error) {
	const start, end = `{"type":"text","text":`, `}`
	// Nearly every fragment is one text block: see that without copying it.
	if raw, ok := bytes.CutPrefix(fragment, []byte(start)); ok && bytes.HasSuffix(raw, []byte(end)) {
		if text, ok := plainString(raw[:len(raw)-len(end)]); ok {
			return []Block{{Raw: fragment, Type: "text", Text: text}}, nil
		}
	}
	m, err := ParseMessage(EncodeMessage(RoleUser, fragment))
	return m.Blocks, err
}

// plainString reads a JSON string; ok is false for anything else.
func plainString(raw []byte) (s string, ok bool) {
	if n := len(raw); n >= 2 && raw[0] == '"' && raw[n-1] == '"' && utf8.Valid(raw) {
		inner := raw[1 : n-1]
		if bytes.IndexFunc(inner, func(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }) < 0 {
			return string(inner), true
		}
	}
	return s, json.Unmarshal(raw, &s) == nil
}

func parseBlock(raw []byte) (Block, error) {
	// By exact keys: encoding/json would take "ID" for "id", and then a block
	// would be answered under a name that it does not have on the wire.
	var v map[string]json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		return Block{}, fmt.Errorf("%w: block: %w", ErrNotCanonical, err)
	}
	if depth(raw) > maxBlockDepth {
		return Block{}, fmt.Errorf("%w: a block nests deeper than %d levels", ErrNotCanonical, maxBlockDepth)
	}
	b := Block{Raw: raw, Type: stringOf(v["type"])}
	switch b.Type {
	case "":
		return Block{}, fmt.Errorf("%w: a block without a type", ErrNotCanonical)
	case "text":
		b.Text = stringOf(v["text"])
	case "tool_use":
		b.ToolUseID, b.Name, b.Input = stringOf(v["id"]), stringOf(v["name"]), v["input"]
	case "tool_result":
		b.ToolUseID, b.IsError = stringOf(v["tool_use_id"]), string(v["is_error"]) == "true"
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(v["content"], &parts) == nil && len(parts) > 0 {
			b.Text = parts[0].Text
		}
	}
	return b, nil
}

// stringOf reads a JSON string; anything else is empty.
func stringOf(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

// ToolCalls lists the tool_use blocks in order.
func (m Message) ToolCalls() []ToolCall {
	var calls []ToolCall
	for _, b := range m.Blocks {
		if b.Type == "tool_use" {
			calls = append(calls, ToolCall{ID: b.ToolUseID, Name: b.Name, Input: b.Input})
		}
	}
	return calls
}

// Text joins the text blocks with blank lines.
func (m Message) Text() string {
	var s string
	for _, b := range m.Blocks {
		if b.Type != "text" {
			continue
		}
		if s != "" {
			s += "\n\n"
		}
		s += b.Text
	}
	return s
}

// serverBlock reports whether a block belongs to a tool that the provider runs itself.
// Source: Messages API, content blocks: server_tool_use, web_search_tool_result and the like.
func serverBlock(kind string) bool {
	return kind == "server_tool_use" || kind == "mcp_tool_use" || kind == "mcp_tool_result" ||
		kind != "tool_result" && strings.HasSuffix(kind, "_tool_result")
}

// Paused reports whether the message ends in the middle of the provider's own
// tools: sent back as it is, it is continued.
func (m Message) Paused() bool {
	n := len(m.Blocks)
	return m.Role == RoleAssistant && n > 0 && serverBlock(m.Blocks[n-1].Type)
}
