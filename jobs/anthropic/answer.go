package anthropic

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"

	"forkyard/forkcore"
)

// maxAnswerBytes bounds what one answer may hold in memory: far above the
// largest output of any model (128k tokens).
const maxAnswerBytes = 64 << 20

// errStopped is returned when the consumer wants no more events.
var errStopped = errors.New("the consumer stopped")

// answer puts a message together from the events of its stream.
type answer struct {
	endpoint   *endpoint
	requestID  string
	workspace  string
	limits     []forkcore.RateLimit
	request    forkcore.Request // to look for ids that the conversation has; its body may be nil
	log        *slog.Logger
	messageID  string
	started    bool
	implied    bool // begun without a message_start
	blocks     []*block
	byIndex    map[int]*block
	size       int
	usage      tokenCount
	stopReason string
	details    *forkcore.StopDetails
}

func newAnswer(e *endpoint, requestID string, log *slog.Logger) *answer {
	return &answer{endpoint: e, requestID: requestID, log: log, byIndex: map[int]*block{}, usage: tokenCount{readsInInput: e.ReadsInInput == "yes"}}
}

// read takes events up to message_stop and returns the whole answer. What comes
// before the end goes to yield; errStopped means that yield returned false.
func (a *answer) read(events *eventReader, yield func(forkcore.ModelEvent, error) bool) (*forkcore.ModelEnd, error) {
	for {
		name, data, err := events.next()
		if err != nil {
			return nil, err
		}
		done, err := a.event(name, data, yield)
		if err != nil {
			return nil, err
		}
		if done {
			return a.end()
		}
	}
}

// invalidError is a stream that breaks the protocol.
type invalidError struct{ msg string }

func (e invalidError) Error() string { return e.msg }

func invalidf(format string, args ...any) error { return invalidError{fmt.Sprintf(format, args...)} }

// emptyEvent stands for an event that has a name and no data.
var emptyEvent = []byte("{}")

// event takes one event of the stream, its name as the SSE field had it. done
// is true for message_stop. It returns errStopped when yield returned false, an
// eventError for an error event.
func (a *answer) event(name, data []byte, yield func(forkcore.ModelEvent, error) bool) (done bool, err error) {
	if a.size += len(data); a.size > maxAnswerBytes {
		return false, invalidf("the stream is longer than %d MiB", maxAnswerBytes>>20)
	}
	switch data = bytes.TrimSpace(data); {
	case len(data) == 0 && len(name) > 0:
		data = emptyEvent
	case len(data) == 0, string(data) == "[DONE]": // OpenAI's end of a stream, which bridges leave in
		return false, nil
	}
	var e streamEvent
	if !e.parse(name, data) {
		return false, invalidf("an event is not valid JSON: %.200q", data)
	}
	if !a.started && (e.kind == kindMessageDelta || e.kind == kindMessageStop || e.block()) {
		if !a.endpoint.StartMissing || e.kind == kindMessageStop {
			return false, invalidf("%s came before message_start", e.name())
		}
		a.started, a.implied = true, true
		if !yield(&forkcore.ModelStart{ProviderRequestID: a.requestID, Workspace: a.workspace, Limits: a.limits}, nil) {
			return false, errStopped
		}
	}
	var out forkcore.ModelEvent
	switch e.kind {
	case kindMessageStart:
		out, err = a.start(&e)
	case kindBlockStart:
		out, err = a.blockStart(&e)
	case kindBlockDelta:
		out, err = a.blockDelta(&e)
	case kindBlockStop:
		err = a.blockStop(&e)
	case kindMessageDelta:
		a.usage.update(e.usage)
		if s := decodeString(member(e.delta, "stop_reason")); s != "" {
			a.stopReason = s
		}
		if d := stopDetails(member(e.delta, "stop_details")); d != nil {
			a.details = d
		}
	case kindMessageStop:
		return true, nil
	case kindError:
		return false, eventError{bytes.Clone(data)}
	case kindPing:
	case kindUnknown:
		// The versioning policy of the API announces new event types.
		a.log.Debug("unknown stream event", slog.String("name", string(name)), slog.Int("bytes", len(data)))
	}
	if err == nil && out != nil && !yield(out, nil) {
		err = errStopped
	}
	return false, err
}

func (a *answer) start(e *streamEvent) (forkcore.ModelEvent, error) {
	late := a.implied && a.messageID == ""
	if a.started && !late {
		return nil, invalidf("a second message_start")
	}
	a.started = true
	a.messageID = decodeString(member(e.message, "id"))
	usage := member(e.message, "usage")
	if a.endpoint.ReadsInInput == "by_start" {
		a.usage.readsInInput = isNumber(member(usage, "cache_read_input_tokens"))
	}
	a.usage.update(usage)
	if late {
		if a.messageID == "" {
			a.messageID = "late" // one is enough
		}
		return nil, nil // the start was told when the first block came
	}
	return &forkcore.ModelStart{
		MessageID:         a.messageID,
		ProviderRequestID: a.requestID,
		Usage:             a.usage.usage(),
		UsageKnown:        a.usage.known(),
		Workspace:         a.workspace,
		Diagnosis:         diagnosis(member(e.message, "diagnostics")),
		Limits:            a.limits,
	}, nil
}

// diagnosis reads the diagnostics of a message; nil for none, null, and what has no reason to read.
// Source: Messages API, cache diagnostics: a cache_miss_reason of null is a comparison that still runs.
func diagnosis(value []byte) *forkcore.Diagnosis {
	reason := member(value, "cache_miss_reason")
	switch {
	case reason == nil:
		return nil
	case string(reason) == "null":
		return &forkcore.Diagnosis{Type: forkcore.DiagnosisPending}
	}
	d := &forkcore.Diagnosis{Type: forkcore.CutText(decodeString(member(reason, "type")), maxDiagnosisType)}
	if d.Type == "" {
		return nil
	}
	var n int64
	if setCount(&n, member(reason, "cache_missed_input_tokens")) {
		d.Missed = &n
	}
	return d
}

// maxDiagnosisType is more than any verdict needs; it is stored with each request.
const maxDiagnosisType = 100

// stopDetails reads the details of a stop reason; nil for none. What no known form has is left out.
// Source: Messages API, stop_details: of refusals, with a category and an explanation that may be null.
func stopDetails(value []byte) *forkcore.StopDetails {
	text := func(key string, limit int) string {
		return forkcore.CutText(forkcore.CleanText(decodeString(member(value, key))), limit)
	}
	d := forkcore.StopDetails{
		Type: text("type", maxDiagnosisType), Category: text("category", maxDiagnosisType), Explanation: text("explanation", maxMessageBytes),
	}
	if d == (forkcore.StopDetails{}) {
		return nil
	}
	return &d
}

func (a *answer) blockStart(e *streamEvent) (forkcore.ModelEvent, error) {
	if e.index < 0 {
		e.index = len(a.blocks) // left out: they come in order
	}
	if a.byIndex[e.index] != nil {
		return nil, invalidf("content_block_start with a repeated index %d", e.index)
	}
	b, err := newBlock(e.content)
	if err != nil {
		return nil, invalidf("%v", err)
	}
	a.blocks = append(a.blocks, b)
	a.byIndex[e.index] = b
	switch b.kind {
	case "text", "thinking":
		if s := b.text(b.kind); s != "" {
			return &forkcore.ModelDelta{Index: e.index, Kind: b.kind, Text: s}, nil
		}
	case "tool_use", "server_tool_use":
		// Said at once, not with the first piece of input: the model may think about
		// that for long, and an input of {} has no piece.
		return &forkcore.ModelDelta{Index: e.index, Kind: "tool_input", ToolName: decodeString(member(b.start, "name"))}, nil
	}
	return nil, nil
}

func (a *answer) blockDelta(e *streamEvent) (forkcore.ModelEvent, error) {
	b := a.openBlock(e)
	if b == nil {
		return nil, invalidf("content_block_delta for block %d, which is not open", e.index)
	}
	field, piece, err := b.add(e.delta)
	if err != nil {
		if errors.As(err, new(rebuildError)) {
			return nil, err
		}
		return nil, invalidf("%v", err)
	}
	text := decodeString(piece)
	if text == "" {
		return nil, nil
	}
	switch field {
	case "text", "thinking":
		return &forkcore.ModelDelta{Index: e.index, Kind: field, Text: text}, nil
	case "input":
		return &forkcore.ModelDelta{Index: e.index, Kind: "tool_input", Text: text}, nil
	}
	return nil, nil
}

// openBlock finds the block of an event; nil = it is not open. An event without an index, which it then gets, belongs to
// the one open block.
func (a *answer) openBlock(e *streamEvent) *block {
	if e.index < 0 {
		for i, b := range a.byIndex {
			if b.closed {
				continue
			}
			if e.index >= 0 {
				e.index = -1
				return nil
			}
			e.index = i
		}
	}
	if b := a.byIndex[e.index]; b != nil && !b.closed {
		return b
	}
	return nil
}

func (a *answer) blockStop(e *streamEvent) error {
	b := a.openBlock(e)
	if b == nil {
		return invalidf("content_block_stop for block %d, which is not open", e.index)
	}
	b.closed = true
	return nil
}

// end builds the answer, after message_stop.
func (a *answer) end() (*forkcore.ModelEnd, error) {
	if a.stopReason == "" {
		return nil, invalidf("message_stop without a stop reason")
	}
	end := &forkcore.ModelEnd{StopReason: a.stopReason, StopDetails: a.details, Usage: a.usage.usage(), UsageKnown: a.usage.known()}
	ids := map[string]bool{}
	for i, b := range a.blocks {
		if !b.closed {
			return nil, cutError{fmt.Sprintf("content block %d (%s) was never closed", i, b.kind)}
		}
		if b.kind == "tool_use" {
			if err := a.identify(i, b, ids); err != nil {
				return nil, err
			}
		}
		enc, err := b.encode()
		if errors.Is(err, errCutInput) && a.limited() && i == len(a.blocks)-1 {
			// A call that ran into the output limit is no call. Trying again would
			// run into the same limit; the stop reason tells the caller.
			continue
		}
		if err != nil {
			return nil, invalidf("content block %d: %v", i, err)
		}
		if enc == nil {
			continue
		}
		if b.kind == "tool_use" {
			if decodeString(member(b.start, "name")) == "" {
				return nil, invalidf("content block %d: a tool_use without a name", i)
			}
		}
		end.Blocks = append(end.Blocks, enc)
	}
	return end, nil
}

// identify sees to it that a tool_use has an id that no other of the answer has, and none of the conversation where the
// endpoint's ids restart. An id of which that is not true is replaced, where the endpoint's row says so, by itself (it
// may have the tool's name, which some templates read), "_" and a hash of the message's id, the length of the request
// and the block's index: the same stream gives the same id, and another request of the conversation another one.
func (a *answer) identify(i int, b *block, ids map[string]bool) error {
	literal := member(b.start, "id")
	id := decodeString(literal)
	bad := id == "" || ids[id]
	if !bad && a.endpoint.ToolIDs == "restart" {
		bad = a.said(literal)
	}
	if bad && a.endpoint.ToolIDs == "unique" {
		return invalidf("content block %d: the tool_use id %q is empty or used twice", i, id)
	}
	for n := 0; bad; n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "forkyard tool id %s %d %d %d", a.messageID, a.request.ContentLength, i, n))
		b.id = cmp.Or(forkcore.CutText(forkcore.CleanText(id), 80), "toolu") + "_" + hex.EncodeToString(sum[:8])
		bad = ids[b.id]
	}
	ids[cmp.Or(b.id, id)] = true
	return nil
}

// said reports whether the request has a JSON string with these bytes.
func (a *answer) said(literal []byte) bool {
	if a.request.Body == nil {
		return false
	}
	r, buf, kept := a.request.Body(), make([]byte, 64<<10+len(literal)), 0
	for {
		n, err := r.Read(buf[kept:])
		seen := buf[:kept+n]
		if bytes.Contains(seen, literal) {
			return true
		}
		if err != nil {
			return false
		}
		kept = copy(buf, seen[max(0, len(seen)-len(literal)+1):])
	}
}

// limited says that the model stopped for lack of room.
func (a *answer) limited() bool {
	return a.stopReason == "max_tokens" || a.stopReason == "model_context_window_exceeded"
}
