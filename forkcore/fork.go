package forkcore

import (
	"errors"
	"fmt"
	"time"
)

// Placeholder answers every tool_use of a dispatching message, in every child
// and, when all of them were Agent calls, in the parent. It is one constant, so that
// siblings stay byte-identical; it is a deliberate untruth that the directive puts right.
const Placeholder = "Fork started; processing in background"

// ErrUnanswered is returned by NewSnapshot when the history cannot be followed
// by a user message of a fork: a tool_use of an earlier message has no result.
var ErrUnanswered = errors.New("the history ends in tool calls without results")

// NewSnapshot takes the shared prefix of a fan-out over a history; root alone
// is a history without a message. When the last message is an assistant message
// with tool calls (a model's dispatch) every call gets the placeholder;
// otherwise (a dispatch by a person or the API) nothing is put into the model's
// mouth. Besides the manifest it returns the bytes of the segments that exist since now:
// the caller stores them as blobs beside those of the head and the messages.
func NewSnapshot(sessionID string, history *Prefix, p Params, tools []string, upToSeq int64, entries []CacheEntry, now time.Time) (Snapshot, [][]byte, error) {
	s := Snapshot{SessionID: sessionID, Params: p, Tools: tools, BoilerplateVersion: BoilerplateVersion, UpToSeq: upToSeq, CreatedAt: now}
	if i := history.unanswered(); i >= 0 {
		return Snapshot{}, nil, fmt.Errorf("%w (message %d)", ErrUnanswered, i)
	}
	var blocks [][]byte
	for _, id := range history.calls {
		blocks = append(blocks, AppendToolResult(nil, id, Placeholder, false))
	}
	s.Placeholders = len(blocks)
	m, err := ParseMessage(EncodeMessage(RoleUser, append(blocks, AppendTextBlock(nil, Boilerplate()))...))
	if err != nil {
		return Snapshot{}, nil, err
	}
	open := history.appendOpen(m)
	if s.Placeholders > 0 {
		s.PlaceholderEnd = open.ends[s.Placeholders-1].offset
	}
	s.Bytes, s.ID = open.Tail()
	s.Entries = open.entriesOf(entries)
	var fresh [][]byte
	var raws [][]byte
	s.Segments, raws = open.Segments()
	at := len(raws)
	for l := open; l != nil && l.shared == nil; l = l.parent {
		if l.opens != nil {
			l = l.parent // one message with its open part
			fresh = append(fresh, raws[at-1])
		} else if l.open {
			fresh = append(fresh, raws[at-1])
		}
		at--
	}
	return s, fresh, nil
}

// CloseSegment completes the snapshot's open last segment with a child's own
// blocks and gives the child's first user message.
func CloseSegment(open []byte, blocks []byte) []byte {
	m := make([]byte, 0, len(open)+len(blocks)+len(messageClose)+1)
	m = append(append(append(m, open...), ','), blocks...)
	return append(m, messageClose...)
}
