package forkcore

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Placeholder answers every tool_use of a dispatching message, in every child
// and, when all of them were Agent calls, in the parent. It is one constant, so that
// siblings stay byte-identical; it is a deliberate untruth that the directive puts right.
const Placeholder = "Fork started; processing in background"

// BoilerplateTag marks the block of rules that precedes a directive.
const BoilerplateTag = "fork-boilerplate"

//go:embed boilerplate.md
var boilerplateRules string

// Boilerplate is the text block that all forks share: rules and report
// template inside the tag. The directive follows in a block of its own.
func Boilerplate() string {
	return "<" + BoilerplateTag + ">\n" + strings.TrimSpace(boilerplateRules) + "\n</" + BoilerplateTag + ">"
}

// controlTags are the tags this program gives meaning to. In data their "<" is
// replaced, so that no file, directive or tool output can open or close one.
var controlTags = []string{BoilerplateTag, "task-notification", "system-reminder"}

// NeutralizeTags disarms control tags inside data by writing "&lt;" for their
// "<": those of this program, and more where the data is put into another element.
func NeutralizeTags(s string, more ...string) string {
	if strings.IndexByte(s, '<') < 0 {
		return s
	}
	var out strings.Builder
	last := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '<' || (!startsTag(s[i+1:], controlTags) && !startsTag(s[i+1:], more)) {
			continue
		}
		out.WriteString(s[last:i])
		out.WriteString("&lt;")
		last = i + 1
	}
	if last == 0 {
		return s
	}
	out.WriteString(s[last:])
	return out.String()
}

func startsTag(rest string, tags []string) bool {
	rest = strings.TrimLeft(rest, " \t\r\n")
	rest = strings.TrimPrefix(rest, "/")
	rest = strings.TrimLeft(rest, " \t\r\n")
	for _, tag := range tags {
		if len(rest) >= len(tag) && strings.EqualFold(rest[:len(tag)], tag) {
			return true
		}
	}
	return false
}

// DirectiveBlock gives the canonical bytes of a child's own block.
func DirectiveBlock(prompt string) []byte {
	return AppendTextBlock(nil, NeutralizeTags(CleanText(prompt)))
}

// ErrUnanswered is returned by NewSnapshot when the history cannot be followed
// by a user message of a fork: a tool_use of an earlier message has no result.
var ErrUnanswered = errors.New("the history ends in tool calls without results")

// NewSnapshot takes the shared prefix of a fan-out. History is the main log's
// messages; when its last one is an assistant message with tool calls (a
// model's dispatch) every call gets the placeholder; otherwise (a dispatch by a
// person or the API) nothing is put into the model's mouth. It returns the manifest and
// the bytes of the open last segment, which the caller stores as a blob beside those of the head
// and the messages.
func NewSnapshot(sessionID string, head []byte, p Params, tools []string, history []Message, upToSeq int64, entries []CacheEntry, now time.Time) (Snapshot, []byte, error) {
	s := Snapshot{SessionID: sessionID, Params: p, Tools: tools, UpToSeq: upToSeq, CreatedAt: now}
	raws := make([][]byte, 0, len(history)+1)
	s.Segments = append(s.Segments, Segment{SHA256: DigestOf(head), Bytes: int64(len(head))})
	var blocks [][]byte
	for i, m := range history {
		raws = append(raws, m.Raw)
		s.Segments = append(s.Segments, Segment{SHA256: DigestOf(m.Raw), Bytes: int64(len(m.Raw))})
		if m.Role != RoleAssistant {
			continue
		}
		calls := m.ToolCalls()
		if i == len(history)-1 {
			for _, call := range calls {
				blocks = append(blocks, AppendToolResult(nil, call.ID, Placeholder, false))
			}
		} else if len(calls) > 0 && !answers(history[i+1], calls) {
			return Snapshot{}, nil, fmt.Errorf("%w (message %d)", ErrUnanswered, i)
		}
	}
	s.Placeholders = len(blocks)
	before := NewCanonical(head, raws, p).Len()
	if len(raws) > 0 {
		before++ // the comma before the open message
	}
	if s.Placeholders > 0 {
		s.PlaceholderEnd = before + int64(len(AppendOpenMessage(nil, RoleUser, blocks...)))
	}
	open := AppendOpenMessage(nil, RoleUser, append(blocks, AppendTextBlock(nil, Boilerplate()))...)
	s.Segments = append(s.Segments, Segment{SHA256: DigestOf(open), Bytes: int64(len(open)), Open: true})
	s.Bytes = before + int64(len(open))
	c := NewCanonical(head, append(raws, open), p)
	offsets := []int64{s.Bytes}
	for _, e := range entries {
		offsets = append(offsets, e.Bytes)
	}
	digests := c.DigestsAt(offsets...)
	s.ID = digests[s.Bytes]
	for _, e := range entries {
		if d, ok := digests[e.Bytes]; ok && d == e.Prefix {
			s.Entries = append(s.Entries, e)
		}
	}
	return s, open, nil
}

func answers(m Message, calls []ToolCall) bool {
	have := map[string]bool{}
	for _, b := range m.Blocks {
		if b.Type == "tool_result" {
			have[b.ToolUseID] = true
		}
	}
	for _, c := range calls {
		if !have[c.ID] {
			return false
		}
	}
	return m.Role == RoleUser
}

// CloseSegment completes the snapshot's open last segment with a child's own
// blocks and gives the child's first user message.
func CloseSegment(open []byte, blocks []byte) []byte {
	m := make([]byte, 0, len(open)+len(blocks)+len(messageClose)+1)
	m = append(append(append(m, open...), ','), blocks...)
	return append(m, messageClose...)
}

// SnapshotBytes gives the canonical bytes of a snapshot from its segments.
func SnapshotBytes(segments [][]byte) []byte {
	if len(segments) == 0 {
		return nil
	}
	return joinCanonical(NewCanonical(segments[0], segments[1:], Params{}))
}

func joinCanonical(c Canonical) []byte {
	out := make([]byte, 0, c.Len())
	for _, p := range c.pieces() {
		out = append(out, p...)
	}
	return out
}
