package anthropic

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"forkyard/forkcore"
)

// block is a content block while it streams.
//
// Its bytes are the members of content_block_start, with the streamed member
// replaced. Members that nothing streamed into keep their bytes. For the types
// that every answer has, the members this program knows come first and in a fixed
// order (layout); the others follow as they came. Any other type keeps the
// order it came in, and without deltas all its bytes.
type block struct {
	kind  string
	start []byte // the content_block value
	// streamed holds, by member, the joined bodies of the JSON strings of its
	// deltas. They are joined before they are decoded: a server that counts in
	// UTF-16 units or in bytes may cut a character between two deltas.
	streamed  map[string][]byte
	citations [][]byte // the values of citations_delta
	closed    bool
	id        string // in place of that of the start; "" = none
}

// layout gives the members that come first, by block type.
var layout = map[string][]string{
	"text":     {"type", "text", "citations"},
	"thinking": {"type", "thinking", "signature"},
	"tool_use": {"type", "id", "name", "input"},
}

func hasMember(kind, field string) bool { return slices.Contains(layout[kind], field) }

// errCutInput is a tool input that is no complete JSON object.
var errCutInput = errors.New("the tool input is not a valid JSON object")

func newBlock(start []byte) (*block, error) {
	kind := decodeString(member(start, "type"))
	if kind == "" {
		return nil, errors.New("a content block has no type")
	}
	return &block{kind: kind, start: bytes.Clone(start), streamed: map[string][]byte{}}, nil
}

// add takes a delta and returns the member it belongs to and the JSON string it
// adds. A delta that this program cannot put into the block is an error: leaving
// it out would store, and send back, something the model did not say.
func (b *block) add(delta []byte) (field string, piece []byte, err error) {
	var kind, text, thinking, signature, partial, citation []byte
	for key, value := range rawMembers(delta) {
		switch string(key) {
		case "type":
			kind = value
		case "text":
			text = value
		case "thinking":
			thinking = value
		case "signature":
			signature = value
		case "partial_json":
			partial = value
		case "citation":
			citation = value
		}
	}
	switch string(kind) {
	case `"text_delta"`:
		field, piece = "text", text
	case `"thinking_delta"`:
		field, piece = "thinking", thinking
	case `"signature_delta"`:
		field, piece = "signature", signature
	case `"input_json_delta"`:
		field, piece = "input", partial
	case `"citations_delta"`:
		field, piece = "citations", citation
	}
	if field == "" || (!hasMember(b.kind, field) && member(b.start, field) == nil) {
		return "", nil, rebuildError{delta: decodeString(kind), block: b.kind}
	}
	if field == "citations" {
		if len(piece) == 0 || piece[0] != '{' {
			return "", nil, errors.New("a citations_delta without a citation")
		}
		b.citations = append(b.citations, bytes.Clone(piece))
		return field, nil, nil
	}
	if len(piece) == 0 || piece[0] != '"' {
		return "", nil, fmt.Errorf("a %s without its text", decodeString(kind))
	}
	b.streamed[field] = append(b.streamed[field], piece[1:len(piece)-1]...)
	return field, piece, nil
}

// rebuildError says that a block changed in a way this program does not know.
type rebuildError struct{ delta, block string }

func (e rebuildError) Error() string {
	return fmt.Sprintf("the provider sent a %q for a %q block, which this version cannot put together; a newer version is needed", e.delta, e.block)
}

// encode gives the block's bytes; nil for a text block without text, which the
// API would not take back.
func (b *block) encode() ([]byte, error) {
	values := map[string][]byte{}
	switch b.kind {
	case "text":
		text := forkcore.CleanText(b.text("text"))
		// White space alone counts as empty: the API refuses it likewise
		// ("text content blocks must contain non-whitespace text").
		if strings.TrimSpace(text) == "" {
			return nil, nil
		}
		values["text"] = forkcore.AppendString(nil, text)
	case "thinking":
		// Not cleaned: a signed text must come back as it was.
		values["thinking"] = forkcore.AppendString(nil, b.text("thinking"))
		values["signature"] = forkcore.AppendString(nil, b.text("signature"))
	case "tool_use":
		input, err := b.input()
		if err != nil {
			return nil, err
		}
		values["input"] = input
		if b.id != "" {
			values["id"] = forkcore.AppendString(nil, b.id)
		}
	default:
		for field := range b.streamed {
			if field != "input" {
				values[field] = forkcore.AppendString(nil, b.text(field))
				continue
			}
			input, err := b.input()
			if err != nil {
				return nil, err
			}
			values["input"] = input
		}
	}
	if len(b.citations) > 0 {
		values["citations"] = b.joinCitations()
	}

	out := joinLines(b.start)
	if len(values) > 0 {
		out = b.assemble(values)
	}
	if !forkcore.ValidInput(out) {
		return nil, fmt.Errorf("a %q block has a lone surrogate or invalid UTF-8 and could not be sent back", b.kind)
	}
	return out, nil
}

// assemble writes the object: the members of the layout, then the rest of the start.
func (b *block) assemble(values map[string][]byte) []byte {
	out := make([]byte, 0, len(b.start)+256)
	write := func(key string, value []byte) {
		if len(out) == 0 {
			out = append(out, '{')
		} else {
			out = append(out, ',')
		}
		out = forkcore.AppendString(out, key)
		out = append(append(out, ':'), value...)
	}
	first := layout[b.kind]
	for _, key := range first {
		value := values[key]
		if value == nil {
			value = joinLines(member(b.start, key))
		}
		if value != nil {
			write(key, value)
		}
	}
	for key, value := range members(b.start) {
		switch {
		case slices.Contains(first, key):
		case values[key] != nil:
			write(key, values[key])
		default:
			write(key, joinLines(value))
		}
	}
	return append(out, '}')
}

// literal returns the JSON string of a member: what start held and what came after.
func (b *block) literal(field string) []byte {
	lit := []byte{'"'}
	if s := member(b.start, field); len(s) > 2 && s[0] == '"' {
		lit = append(lit, s[1:len(s)-1]...)
	}
	return append(append(lit, b.streamed[field]...), '"')
}

func (b *block) text(field string) string { return decodeString(b.literal(field)) }

// input returns the tool input exactly as it was streamed, without white space
// around it; what start held if nothing was streamed.
func (b *block) input() ([]byte, error) {
	lit := append(append([]byte{'"'}, b.streamed["input"]...), '"')
	if !forkcore.ValidInput(slices.Concat([]byte(`{"x":`), lit, []byte("}"))) {
		return nil, fmt.Errorf("%w: it has a lone surrogate or invalid UTF-8", errCutInput)
	}
	input := bytes.Trim([]byte(decodeString(lit)), " \t\r\n")
	if len(input) == 0 {
		if input = member(b.start, "input"); len(input) == 0 || input[0] != '{' {
			return []byte("{}"), nil
		}
	}
	if !forkcore.ValidInput(input) {
		return nil, errCutInput
	}
	return joinLines(input), nil
}

// joinCitations returns the citations of start and of the deltas as one array.
func (b *block) joinCitations() []byte {
	out := []byte{'['}
	if s := member(b.start, "citations"); len(s) > 2 && s[0] == '[' {
		out = append(out, bytes.TrimSpace(joinLines(s[1:len(s)-1]))...)
	}
	for _, c := range b.citations {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, joinLines(c)...)
	}
	return append(out, ']')
}
