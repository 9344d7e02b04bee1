package modelsim

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The cache is keyed by the bytes a client sent, so requests are cut along their JSON structure, never decoded and
// encoded again. The functions here take valid JSON (json.Valid has passed) and return sub-slices of it.

// member is one name and value of a JSON object. start and end delimit name and value in the object's bytes.
type member struct {
	name       string
	value      []byte
	start, end int
}

// wellFormed reports whether raw is JSON that the provider's decoder takes. It is stricter than Go's, which turns bad
// UTF-8 and lone surrogate escapes into U+FFFD without a word.
func wellFormed(raw []byte) bool {
	return json.Valid(raw) && utf8.Valid(raw) && !hasLoneSurrogate(raw)
}

func hasLoneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		r, ok := escapedUnit(raw[i:])
		if !ok {
			i++ // a two-byte escape
			continue
		}
		i += 5
		if !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := escapedUnit(raw[i+1:])
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escapedUnit reads the \uXXXX at the head of raw.
func escapedUnit(raw []byte) (rune, bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[2:6]), 16, 16)
	return rune(n), err == nil
}

// members returns the members of the object raw in the order sent; nil when raw is not an object.
func members(raw []byte) []member {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return nil
	}
	var out []member
	for i = skipSpace(raw, i+1); i < len(raw) && raw[i] != '}'; {
		m := member{start: i}
		nameEnd := skipValue(raw, i)
		m.name = text(raw[i:nameEnd])
		i = skipSpace(raw, nameEnd)
		i = skipSpace(raw, i+1) // the colon
		m.end = skipValue(raw, i)
		m.value = raw[i:m.end:m.end]
		out = append(out, m)
		if i = skipSpace(raw, m.end); i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return out
}

// elements returns the elements of the array raw; ok is false when raw is not an array.
func elements(raw []byte) (out [][]byte, ok bool) {
	spans, ok := elementSpans(raw)
	for _, s := range spans {
		out = append(out, raw[s[0]:s[1]:s[1]])
	}
	return out, ok
}

// elementSpans returns where each element of the array raw starts and ends.
func elementSpans(raw []byte) (out [][2]int, ok bool) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return nil, false
	}
	for i = skipSpace(raw, i+1); i < len(raw) && raw[i] != ']'; {
		end := skipValue(raw, i)
		out = append(out, [2]int{i, end})
		if i = skipSpace(raw, end); i < len(raw) && raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
	return out, true
}

// lookup returns the value of the last member with that name: the last one wins in the provider's decoder too.
func lookup(ms []member, name string) []byte {
	for i := len(ms) - 1; i >= 0; i-- {
		if ms[i].name == name {
			return ms[i].value
		}
	}
	return nil
}

// text decodes a JSON string; "" when raw is something else.
func text(raw []byte) string {
	if !isString(raw) {
		return ""
	}
	if body := raw[1 : len(raw)-1]; bytes.IndexByte(body, '\\') < 0 && utf8.Valid(body) {
		return string(body)
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func isString(raw []byte) bool { return len(raw) >= 2 && raw[0] == '"' }

func isObject(raw []byte) bool { return len(raw) >= 2 && raw[0] == '{' }

func isBool(raw []byte) bool { return string(raw) == "true" || string(raw) == "false" }

func isNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// cut removes the spans [start,end) from raw; they are in order and do not overlap.
func cut(raw []byte, spans [][2]int) []byte {
	if len(spans) == 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	at := 0
	for _, s := range spans {
		out = append(out, raw[at:s[0]]...)
		at = s[1]
	}
	return append(out, raw[at:]...)
}

// memberSpans returns the spans whose removal takes every member called name out of the object raw, each together with
// one comma, so that an object with the member and one written without it give the same bytes.
func memberSpans(raw []byte, ms []member, name string) [][2]int {
	var spans [][2]int
	for i, m := range ms {
		if m.name != name {
			continue
		}
		span := [2]int{m.start, m.end}
		switch {
		case i > 0 && (len(spans) < i): // some earlier member stays: take the comma before
			span[0] = ms[i-1].end
		case i+1 < len(ms): // the first that is left: take the comma after
			span[1] = ms[i+1].start
		}
		spans = append(spans, span)
	}
	return spans
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\t' || raw[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index after the value that starts at i.
func skipValue(raw []byte, i int) int {
	if i >= len(raw) {
		return i
	}
	switch raw[i] {
	case '"':
		return skipString(raw, i)
	case '{', '[':
		depth := 0
		for i < len(raw) {
			switch raw[i] {
			case '"':
				i = skipString(raw, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	}
	for ; i < len(raw); i++ {
		switch raw[i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return i
		}
	}
	return i
}

func skipString(raw []byte, i int) int {
	for i++; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}
