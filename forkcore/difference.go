package forkcore

import "slices"

// The levels of a request that a provider's cache is keyed by, as codes of a
// MissReason, in the order of what a change takes with it: of the model and the
// tools everything, of the system prompt all but the tools, of the settings and
// the messages at least what follows.
// Source: Messages API, prompt caching, "what invalidates the cache".
var levels = [...]struct {
	code     string
	members  []string
	survives string
}{
	{"model", []string{"model"}, "nothing of the cache survives that"},
	{"tools", []string{"tools"}, "nothing of the cache survives that"},
	{"system", []string{"system"}, "only the tools survive that"},
	{"thinking", []string{"thinking", "output_config", "tool_choice"}, "on most models tools and system prompt survive that, messages on none"},
	{"messages", []string{"messages"}, "what lies before it survives that"},
}

// difference compares the first limit canonical bytes of a request with
// another one and names the level whose change takes the most; nil = none.
func difference(before, now []byte, limit int64) *MissReason {
	before = before[:min(limit, int64(len(before)))]
	a, b := topMembers(before), topMembers(now)
	for _, level := range levels {
		for _, key := range level.members {
			x, y := a[key], b[key]
			if x.value == nil && level.code != "thinking" {
				continue // behind the limit: only settings may be left out
			}
			if len(y.value) > len(x.value) && x.open {
				y.value = y.value[:len(x.value)] // the other one goes on
			}
			at := commonPrefix(x.value, y.value)
			if at == len(x.value) && at == len(y.value) {
				continue
			}
			path := key
			if x.value != nil && y.value != nil {
				cut := before[:x.start+at]
				if startsWithComma(x.value[at:]) || startsWithComma(y.value[at:]) {
					cut = append(slices.Clip(cut), ',') // what one of them has more, not the value before it
				}
				path = jsonPath(cut)
			}
			return &MissReason{Code: level.code, Path: path, Detail: "before " + shown(x.value, at) + ", now " + shown(y.value, at) + "; " + level.survives}
		}
	}
	return nil
}

func startsWithComma(b []byte) bool { return len(b) > 0 && b[0] == ',' }

// shown is a short piece of a value around a place, quoted as it stands; the
// bytes are JSON already.
func shown(value []byte, at int) string {
	if value == nil {
		return "absent"
	}
	return "‹" + CleanText(CutText(string(value[max(at-16, 0):]), 40)) + "›"
}

// topMember is a value of the top level of a canonical request.
type topMember struct {
	start int
	value []byte
	open  bool // the bytes end before the value does
}

// topMembers finds the members of canonical bytes, which may end anywhere.
func topMembers(b []byte) map[string]topMember {
	out := map[string]topMember{}
	depth, start, key := 0, 0, ""
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 1 {
				out[key] = topMember{start, b[start:i], false}
				key = ""
			}
		case '"':
			end := i + 1
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			if depth == 1 && key == "" && end+1 < len(b) {
				key, start = string(b[i+1:end]), end+2 // over the colon
				end++
			}
			i = end
		}
	}
	if key != "" {
		out[key] = topMember{start, b[start:], true}
	}
	return out
}

// lookBackWindow is how many positions the provider looks at from a mark
// backwards, the marked block counted first.
// Source: Messages API, prompt caching, "20 positions per breakpoint".
const lookBackWindow = 20

// beyondLookBack reports whether an entry that prefixes a request of these
// marks lies where no read looks, and names the next mark behind it, if there
// is one, and its distance in positions.
func (p *Prefix) beyondLookBack(entry int64, marks []Mark) (next *Mark, positions int, beyond bool) {
	for i := range marks {
		if m := &marks[i]; m.Offset >= entry && (next == nil || m.Offset < next.Offset) {
			next = m
		}
	}
	if next == nil {
		return nil, 0, true
	}
	positions = p.positions(entry, next.Offset)
	return next, positions, positions >= lookBackWindow
}

// positions counts the blocks that end behind from and not behind to.
func (p *Prefix) positions(from, to int64) (n int) {
	for l := p; l != nil && l.end > from; l = l.parent {
		a, _ := slices.BinarySearchFunc(l.ends, from+1, func(e blockEnd, at int64) int { return int(e.offset - at) })
		b, _ := slices.BinarySearchFunc(l.ends, to+1, func(e blockEnd, at int64) int { return int(e.offset - at) })
		n += b - a
	}
	return n
}
