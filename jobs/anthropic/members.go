package anthropic

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Reading pieces of JSON without decoding them: values are sliced out of the
// event, so that what is kept has the bytes that were sent.

// members yields the members of a JSON object in order: the decoded key and the
// bytes of the value. b must be valid JSON; anything but an object has no members.
func members(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := skipSpace(b, 0)
		if i == len(b) || b[i] != '{' {
			return
		}
		for i = skipSpace(b, i+1); b[i] != '}'; i = skipSpace(b, i) {
			if b[i] == ',' {
				i = skipSpace(b, i+1)
			}
			keyEnd := stringEnd(b, i)
			key := b[i:keyEnd]
			i = skipSpace(b, skipSpace(b, keyEnd)+1) // over the colon
			end := valueEnd(b, i)
			if !yield(decodeString(key), b[i:end]) {
				return
			}
			i = end
		}
	}
}

// member returns the value of the last member with this key, or nil. Last, since
// that is which one decoders take.
func member(b []byte, key string) []byte {
	var found []byte
	for k, v := range members(b) {
		if k == key {
			found = v
		}
	}
	return found
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd returns the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		depth := 0
		for {
			switch b[i] {
			case '"':
				i = stringEnd(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	default:
		for i < len(b) && bytes.IndexByte([]byte(",]} \n\r\t"), b[i]) < 0 {
			i++
		}
		return i
	}
}

// decodeString returns the value of a JSON string, or "" for any other value.
// What is no Unicode text becomes U+FFFD.
func decodeString(lit []byte) string {
	if len(lit) < 2 || lit[0] != '"' {
		return ""
	}
	if body := lit[1 : len(lit)-1]; isPlain(body) {
		return string(body)
	}
	var s string
	if json.Unmarshal(lit, &s) != nil {
		return "" // cannot be: lit is valid JSON
	}
	return s
}

// isPlain says that a string body is printable ASCII without escapes.
func isPlain(b []byte) bool {
	for _, c := range b {
		if c == '\\' || c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// joinLines turns line breaks between tokens into spaces. Blocks are parts of
// JSON lines (the transcript), and in valid JSON a raw line break is never inside
// a string, so no value changes. b must be valid JSON.
func joinLines(b []byte) []byte {
	if bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 {
		return b
	}
	b = bytes.Clone(b)
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
	return b
}
