package anthropic

import (
	"bytes"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// Reading pieces of JSON without decoding them: values are sliced out of the
// event, so that what is kept has the bytes that were sent.

// members yields the members of a JSON object in order: the decoded key and the
// bytes of the value. b must be valid JSON; anything but an object has no members.
func members(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for key, value := range rawMembers(b) {
			if !yield(decodeKey(key), value) {
				return
			}
		}
	}
}

// rawMembers are the members with their keys as they are written, without the quotes.
func rawMembers(b []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		i := skipSpace(b, 0)
		if i == len(b) || b[i] != '{' {
			return
		}
		for i = skipSpace(b, i+1); b[i] != '}'; i = skipSpace(b, i) {
			if b[i] == ',' {
				i = skipSpace(b, i+1)
			}
			keyEnd := stringEnd(b, i)
			key := b[i+1 : keyEnd-1]
			i = skipSpace(b, skipSpace(b, keyEnd)+1) // over the colon
			end := valueEnd(b, i)
			if !yield(key, b[i:end]) {
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
	for k, v := range rawMembers(b) {
		if string(k) == key || bytes.IndexByte(k, '\\') >= 0 && decodeKey(k) == key {
			found = v
		}
	}
	return found
}

func decodeKey(raw []byte) string {
	if isPlain(raw) {
		return string(raw)
	}
	return string(appendDecoded(nil, raw))
}

// isNumber says that a value is there and a number.
func isNumber(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
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
	return string(appendDecoded(make([]byte, 0, len(lit)), lit[1:len(lit)-1]))
}

// appendDecoded appends what a string body stands for, as encoding/json decodes it (a fuzz test compares them). raw must
// be the body of a valid JSON string.
func appendDecoded(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		c = raw[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(raw)-i >= 6 && raw[i] == '\\' && raw[i+1] == 'u' {
					low = hex4(raw[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// hex4 reads the four digits that a valid escape has.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
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

// elements yields the values of a JSON array in order; anything but an array has none. b must be valid JSON.
func elements(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		i := skipSpace(b, 0)
		if i == len(b) || b[i] != '[' {
			return
		}
		for i = skipSpace(b, i+1); b[i] != ']'; i = skipSpace(b, i) {
			if b[i] == ',' {
				i = skipSpace(b, i+1)
			}
			end := valueEnd(b, i)
			if !yield(b[i:end]) {
				return
			}
			i = end
		}
	}
}
