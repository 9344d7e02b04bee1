package forkcore

import (
	"bytes"
	"encoding/json"
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file walks over JSON that is known to be valid without decoding it:
// what it yields are slices of the input. It never recurses, so depth costs nothing.

// members yields the decoded keys and the raw values of an object, in order,
// a key that stands twice both times. What is no object has none.
func members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		at := skipSpace(object, 0)
		if at == len(object) || object[at] != '{' {
			return
		}
		for at = skipSpace(object, at+1); object[at] != '}'; at = skipSpace(object, at) {
			if object[at] == ',' {
				at = skipSpace(object, at+1)
			}
			end := valueEnd(object, at)
			key := keyOf(object[at:end])
			at = skipSpace(object, skipSpace(object, end)+1) // over the colon
			end = valueEnd(object, at)
			if !yield(key, object[at:end:end]) {
				return
			}
			at = end
		}
	}
}

// keyOf decodes a string, which for most takes nothing.
func keyOf(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	return stringOf(quoted)
}

// indexed counts from 0.
func indexed(seq iter.Seq[[]byte]) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		i := 0
		for v := range seq {
			if !yield(i, v) {
				return
			}
			i++
		}
	}
}

// plainText reads a JSON string; anything else is empty.
func plainText(raw []byte) string {
	if !isKind(raw, `"`) {
		return ""
	}
	return keyOf(raw)
}

// elements yields the raw values of an array. What is no array has none.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		at := skipSpace(array, 0)
		if at == len(array) || array[at] != '[' {
			return
		}
		for at = skipSpace(array, at+1); array[at] != ']'; at = skipSpace(array, at) {
			if array[at] == ',' {
				at = skipSpace(array, at+1)
			}
			end := valueEnd(array, at)
			if !yield(array[at:end:end]) {
				return
			}
			at = end
		}
	}
}

func skipSpace(b []byte, at int) int {
	for at < len(b) && (b[at] == ' ' || b[at] == '\n' || b[at] == '\t' || b[at] == '\r') {
		at++
	}
	return at
}

// valueEnd is where the value that begins at b[at] ends.
func valueEnd(b []byte, at int) int {
	switch b[at] {
	case '"':
		return stringEnd(b, at)
	case '{', '[':
		for open := 0; ; at++ {
			switch b[at] {
			case '{', '[':
				open++
			case '}', ']':
				if open--; open == 0 {
					return at + 1
				}
			case '"':
				at = stringEnd(b, at) - 1
			}
		}
	}
	for at < len(b) && !strings.ContainsRune(",]} \n\t\r", rune(b[at])) {
		at++
	}
	return at
}

// stringEnd is where the string that begins at b[at] ends.
func stringEnd(b []byte, at int) int {
	for at++; b[at] != '"'; at++ {
		if b[at] == '\\' {
			at++
		}
	}
	return at + 1
}

// isKind reports whether a value begins with one of the given bytes.
func isKind(value []byte, first string) bool {
	return len(value) > 0 && strings.IndexByte(first, value[0]) >= 0
}

// isBlank reports whether a JSON string has nothing but white space in it.
func isBlank(quoted []byte) bool {
	for rest := quoted[1 : len(quoted)-1]; len(rest) > 0; {
		if rest[0] == '\\' {
			return strings.TrimSpace(stringOf(json.RawMessage(quoted))) == ""
		}
		r, size := utf8.DecodeRune(rest)
		if !unicode.IsSpace(r) {
			return false
		}
		rest = rest[size:]
	}
	return true
}

// hasNUL reports whether a string of the value has the escape of U+0000.
func hasNUL(raw []byte) bool {
	escape := []byte(`u0000`)
	for from := 0; ; {
		i := bytes.Index(raw[from:], escape)
		if i < 0 {
			return false
		}
		slashes := 0
		for k := from + i - 1; k >= 0 && raw[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 1 {
			return true
		}
		from += i + len(escape)
	}
}
