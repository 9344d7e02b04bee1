package forkcore

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file is the one encoder of the program. What it makes is stored,
// hashed and sent; nothing decodes and re-encodes it. It writes no white
// space, keeps < > & and U+2028/2029 as they are (Go's encoding/json would
// escape them, so two code paths would give two texts), and ends no line.

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD; clean
// text with CleanText first, so that what is stored is what was shown.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[start:i]...)
			dst = append(dst, "\uFFFD"...)
			i++
			start = i
			continue
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// CleanText makes text fit for storage, once, on arrival: valid UTF-8 (bad
// bytes become U+FFFD) and no NUL (shown as U+2400).
func CleanText(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\u2400")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// CutText shortens s to at most limit bytes at a rune edge.
func CutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	limit = max(limit, 0)
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Headline makes one line of a text, white space folded, of at most limit bytes. A longer one ends behind a word, with "…".
func Headline(text string, limit int) string {
	const more = "…"
	line := strings.Join(strings.Fields(text), " ")
	if len(line) <= limit {
		return line
	}
	cut := CutText(line, limit-len(more))
	if i := strings.LastIndexByte(cut, ' '); i > len(cut)/2 && line[len(cut)] != ' ' {
		cut = cut[:i] // not within a word, unless that takes half of the line
	}
	return strings.TrimRight(cut, " ") + more
}

// AppendTextBlock appends {"type":"text","text":…}.
func AppendTextBlock(dst []byte, text string) []byte {
	dst = append(dst, `{"type":"text","text":`...)
	dst = AppendString(dst, text)
	return append(dst, '}')
}

// emptyOutput stands for a tool that gave nothing back: the Messages API
// refuses empty text blocks.
const emptyOutput = "(no output)"

// AppendToolResult appends a tool_result block whose content is one text block.
func AppendToolResult(dst []byte, toolUseID, text string, isError bool) []byte {
	if strings.TrimSpace(text) == "" {
		text = emptyOutput
	}
	dst = append(dst, `{"type":"tool_result","tool_use_id":`...)
	dst = AppendString(dst, toolUseID)
	dst = append(dst, `,"content":[`...)
	dst = AppendTextBlock(dst, text)
	dst = append(dst, ']')
	if isError {
		dst = append(dst, `,"is_error":true`...)
	}
	return append(dst, '}')
}

// Role of a message.
type Role string

// The roles this program writes.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

const (
	messageClose = "]}"
	headClose    = `],"messages":[`
)

// AppendOpenMessage appends a message whose content array is not closed:
// {"role":…,"content":[b1,b2 …
func AppendOpenMessage(dst []byte, role Role, blocks ...[]byte) []byte {
	dst = append(dst, `{"role":`...)
	dst = AppendString(dst, string(role))
	dst = append(dst, `,"content":[`...)
	for i, b := range blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, b...)
	}
	return dst
}

// EncodeMessage gives the canonical bytes of a message from the canonical
// bytes of its blocks.
func EncodeMessage(role Role, blocks ...[]byte) []byte {
	n := 32
	for _, b := range blocks {
		n += len(b) + 1
	}
	return append(AppendOpenMessage(make([]byte, 0, n), role, blocks...), messageClose...)
}

// EncodeHead gives the canonical bytes from the first "{" of a request through
// the "[" of "messages". Key order: model, thinking, output_config,
// tool_choice, tools, system, messages. It is called once a session; from then
// on the bytes are latched.
func EncodeHead(p Params, tools []ToolSpec, system ...string) []byte {
	dst := []byte(`{"model":`)
	dst = AppendString(dst, p.Model)
	if len(p.Thinking) > 0 {
		dst = append(append(dst, `,"thinking":`...), p.Thinking...)
	}
	if p.Effort != "" {
		dst = append(dst, `,"output_config":{"effort":`...)
		dst = append(AppendString(dst, p.Effort), '}')
	}
	if len(p.ToolChoice) > 0 {
		dst = append(append(dst, `,"tool_choice":`...), p.ToolChoice...)
	}
	dst = append(dst, `,"tools":[`...)
	for i, t := range tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"name":`...)
		dst = AppendString(dst, t.Name)
		dst = append(dst, `,"description":`...)
		dst = AppendString(dst, t.Description)
		dst = append(dst, `,"input_schema":`...)
		dst = append(dst, t.InputSchema...)
		dst = append(dst, '}')
	}
	dst = append(dst, `],"system":[`...)
	for i, s := range system {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendTextBlock(dst, s)
	}
	return append(dst, headClose...)
}

// requestClose is what follows the last message: the part of a request that
// may differ without touching the cache.
func requestClose(p Params, d *Diagnostics) []byte {
	dst := append(make([]byte, 0, 128), `],"max_tokens":`...)
	dst = strconv.AppendInt(dst, p.MaxTokens, 10)
	if p.MaxTokens > 0 { // a pre-warm request must not stream. Source: Messages API, prompt caching, pre-warming
		dst = append(dst, `,"stream":true`...)
	}
	return append(d.append(dst), '}')
}

// markJSON is the snippet that a mark splices in before the closing brace of
// its block.
func markJSON(ttl string) []byte {
	switch ttl {
	case "", "5m":
		return mark5m
	case "1h":
		return mark1h
	}
	return []byte(`,"cache_control":{"type":"ephemeral","ttl":"` + ttl + `"}`)
}

var (
	mark5m = []byte(`,"cache_control":{"type":"ephemeral"}`)
	mark1h = []byte(`,"cache_control":{"type":"ephemeral","ttl":"1h"}`)
)

// ValidInput reports whether a tool input as streamed can be kept and sent
// back: a valid JSON object without lone surrogate escapes (the Messages API
// refuses bodies with them), nested at most 500 deep.
func ValidInput(raw []byte) bool {
	i := 0
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i < len(raw) && raw[i] == '{' && json.Valid(raw) && utf8.Valid(raw) && !hasLoneSurrogate(raw) && depth(raw) <= maxInputDepth
}

// maxInputDepth keeps a message readable wherever it is nested: encoding/json
// stops at 10,000 levels, other readers much earlier.
const maxInputDepth = 500

// maxBlockDepth is that of a block around such an input.
const maxBlockDepth = maxInputDepth + 1

// depth is how deep valid JSON nests.
func depth(raw []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		}
	}
	return deepest
}

// hasLoneSurrogate looks through valid JSON, where four digits follow a \u and more follows a string's last escape.
func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] != 'u' {
			i++ // an escaped character, perhaps a backslash
			continue
		}
		v := hex4(raw[i+2 : i+6])
		switch {
		case v >= 0xD800 && v < 0xDC00:
			if raw[i+6] != '\\' || raw[i+7] != 'u' {
				return true
			}
			if low := hex4(raw[i+8 : i+12]); low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 11
		case v >= 0xDC00 && v <= 0xDFFF:
			return true
		default:
			i += 5
		}
	}
	return false
}

func hex4(digits []byte) uint64 {
	n, _ := strconv.ParseUint(string(digits), 16, 16)
	return n
}
