package anthropic

// maxDepth is how deep JSON may nest, as in encoding/json.
const maxDepth = 10000

// validValue checks the JSON value that begins at b[i] and returns the index after it, or -1. It accepts exactly what
// json.Valid accepts (a fuzz test compares them), and finds the end of the value in the same pass.
func validValue(b []byte, i, depth int) int {
	if i >= len(b) || depth > maxDepth && (b[i] == '{' || b[i] == '[') {
		return -1
	}
	switch b[i] {
	case '"':
		return validString(b, i)
	case '{':
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == '}' {
			return i + 1
		}
		for {
			if i >= len(b) || b[i] != '"' {
				return -1
			}
			if i = validString(b, i); i < 0 {
				return -1
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return -1
			}
			if i = validValue(b, skipSpace(b, i+1), depth+1); i < 0 {
				return -1
			}
			if i = skipSpace(b, i); i >= len(b) {
				return -1
			}
			switch b[i] {
			case '}':
				return i + 1
			case ',':
				i = skipSpace(b, i+1)
			default:
				return -1
			}
		}
	case '[':
		i = skipSpace(b, i+1)
		if i < len(b) && b[i] == ']' {
			return i + 1
		}
		for {
			if i = validValue(b, i, depth+1); i < 0 {
				return -1
			}
			if i = skipSpace(b, i); i >= len(b) {
				return -1
			}
			switch b[i] {
			case ']':
				return i + 1
			case ',':
				i = skipSpace(b, i+1)
			default:
				return -1
			}
		}
	case 't':
		return validWord(b, i, "true")
	case 'f':
		return validWord(b, i, "false")
	case 'n':
		return validWord(b, i, "null")
	}
	return validNumber(b, i)
}

// validJSON says whether b is one JSON value.
func validJSON(b []byte) bool {
	end := validValue(b, skipSpace(b, 0), 1)
	return end >= 0 && skipSpace(b, end) == len(b)
}

func validWord(b []byte, i int, word string) int {
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word)
	}
	return -1
}

// validString checks the string that begins at b[i].
func validString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(b) {
				return -1
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(b)-i < 5 {
					return -1
				}
				for _, h := range b[i+1 : i+5] {
					if (h < '0' || h > '9') && (h < 'a' || h > 'f') && (h < 'A' || h > 'F') {
						return -1
					}
				}
				i += 4
			default:
				return -1
			}
		}
	}
	return -1
}

func validNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = digits(b, i)
	default:
		return -1
	}
	if i < len(b) && b[i] == '.' {
		after := digits(b, i+1)
		if after == i+1 {
			return -1
		}
		i = after
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		after := digits(b, i)
		if after == i {
			return -1
		}
		i = after
	}
	return i
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// eventKind is the type of an event of a stream.
type eventKind uint8

const (
	kindUnknown eventKind = iota // announced by the versioning policy of the API; left alone
	kindMessageStart
	kindBlockStart
	kindBlockDelta
	kindBlockStop
	kindMessageDelta
	kindMessageStop
	kindError
	kindPing
)

var eventKinds = map[string]eventKind{
	"message_start": kindMessageStart, "content_block_start": kindBlockStart, "content_block_delta": kindBlockDelta,
	"content_block_stop": kindBlockStop, "message_delta": kindMessageDelta, "message_stop": kindMessageStop,
	"error": kindError, "ping": kindPing,
}

// streamEvent is the view of an event; its values are slices of the event's data.
type streamEvent struct {
	kind                           eventKind
	index                          int // -1: none
	message, content, delta, usage []byte
}

// name is the event's kind for people.
func (e *streamEvent) name() string {
	for name, kind := range eventKinds {
		if kind == e.kind {
			return name
		}
	}
	return "an unknown event"
}

func (e *streamEvent) block() bool {
	return e.kind == kindBlockStart || e.kind == kindBlockDelta || e.kind == kindBlockStop
}

// parse reads the data of an event, name being what the event field of the stream had. false means that the data is no
// JSON. The type inside counts before the name, except that a name of "error" wins: llama.cpp names the event so and
// puts the type of the error in the data. Without either, an object that has "error", or "detail" as FastAPI writes it, is an error.
func (e *streamEvent) parse(name, data []byte) bool {
	*e = streamEvent{index: -1}
	i := skipSpace(data, 0)
	if i == len(data) || data[i] != '{' {
		e.kind = eventKinds[string(name)]
		return validJSON(data)
	}
	var kind []byte
	hasError := false
	i = skipSpace(data, i+1)
	if i < len(data) && data[i] == '}' {
		i++
	} else {
		for more := true; more; {
			if i >= len(data) || data[i] != '"' {
				return false
			}
			keyEnd := validString(data, i)
			if keyEnd < 0 {
				return false
			}
			key := data[i+1 : keyEnd-1]
			if i = skipSpace(data, keyEnd); i >= len(data) || data[i] != ':' {
				return false
			}
			start := skipSpace(data, i+1)
			if i = validValue(data, start, 2); i < 0 {
				return false
			}
			value := data[start:i]
			switch string(key) {
			case "type":
				kind = value
			case "index":
				var n int64
				if setCount(&n, value) {
					e.index = int(n)
				}
			case "message":
				e.message = value
			case "content_block":
				e.content = value
			case "delta":
				e.delta = value
			case "usage":
				e.usage = value
			case "error":
				hasError = value[0] == '{' || value[0] == '"'
			case "detail":
				hasError = true
			}
			if i = skipSpace(data, i); i >= len(data) {
				return false
			}
			switch data[i] {
			case '}':
				i, more = i+1, false
			case ',':
				i = skipSpace(data, i+1)
			default:
				return false
			}
		}
	}
	if skipSpace(data, i) != len(data) {
		return false
	}
	named := eventKinds[string(name)]
	switch {
	case named == kindError:
		e.kind = kindError
	case len(kind) > 2 && kind[0] == '"':
		e.kind = eventKinds[string(kind[1:len(kind)-1])]
	case len(name) > 0:
		e.kind = named
	case hasError:
		e.kind = kindError
	}
	return true
}
