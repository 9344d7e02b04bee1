package anthropic

import (
	"bytes"
	"encoding/json"
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
	requestID  string
	workspace  string
	limits     []forkcore.RateLimit
	log        *slog.Logger
	started    bool
	blocks     []*block
	byIndex    map[int]*block
	size       int
	usage      tokenCount
	stopReason string
	details    *forkcore.StopDetails
}

func newAnswer(requestID string, log *slog.Logger) *answer {
	return &answer{requestID: requestID, log: log, byIndex: map[int]*block{}}
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

// event takes one event of the stream, its name as the SSE field had it. done
// is true for message_stop. It returns errStopped when yield returned false, an
// eventError for an error event.
func (a *answer) event(name, data []byte, yield func(forkcore.ModelEvent, error) bool) (done bool, err error) {
	if !json.Valid(data) {
		return false, invalidf("an event is not valid JSON: %.200q", data)
	}
	if a.size += len(data); a.size > maxAnswerBytes {
		return false, invalidf("the stream is longer than %d MiB", maxAnswerBytes>>20)
	}
	e := parseEvent(name, data)
	if !a.started && (e.kind == "message_delta" || e.kind == "message_stop" || e.block()) {
		return false, invalidf("%s came before message_start", e.kind)
	}
	var out forkcore.ModelEvent
	switch e.kind {
	case "message_start":
		out, err = a.start(e)
	case "content_block_start":
		out, err = a.blockStart(e)
	case "content_block_delta":
		out, err = a.blockDelta(e)
	case "content_block_stop":
		err = a.blockStop(e)
	case "message_delta":
		a.usage.update(e.usage)
		if s := decodeString(member(e.delta, "stop_reason")); s != "" {
			a.stopReason = s
		}
		if d := stopDetails(member(e.delta, "stop_details")); d != nil {
			a.details = d
		}
	case "message_stop":
		return true, nil
	case "error":
		return false, eventError{bytes.Clone(data)}
	case "ping":
	default:
		// The versioning policy of the API announces new event types.
		a.log.Debug("unknown stream event", slog.String("type", e.kind))
	}
	if err == nil && out != nil && !yield(out, nil) {
		err = errStopped
	}
	return false, err
}

// streamEvent is the view of an event; its values are slices of the event's data.
type streamEvent struct {
	kind                           string
	index                          int // -1: none
	message, content, delta, usage []byte
}

func (e streamEvent) block() bool {
	return e.kind == "content_block_start" || e.kind == "content_block_delta" || e.kind == "content_block_stop"
}

func parseEvent(name, data []byte) streamEvent {
	e := streamEvent{index: -1}
	hasError := false
	for key, value := range members(data) {
		switch key {
		case "type":
			e.kind = decodeString(value)
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
			hasError = value[0] == '{'
		}
	}
	if e.kind == "" {
		e.kind = string(name)
	}
	if e.kind == "" && hasError {
		e.kind = "error" // compatible servers send a bare {"error":{…}}
	}
	return e
}

func (a *answer) start(e streamEvent) (forkcore.ModelEvent, error) {
	if a.started {
		return nil, invalidf("a second message_start")
	}
	a.started = true
	a.usage.update(member(e.message, "usage"))
	return &forkcore.ModelStart{
		MessageID:         decodeString(member(e.message, "id")),
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

func (a *answer) blockStart(e streamEvent) (forkcore.ModelEvent, error) {
	if e.index < 0 || a.byIndex[e.index] != nil {
		return nil, invalidf("content_block_start with a missing or repeated index %d", e.index)
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

func (a *answer) blockDelta(e streamEvent) (forkcore.ModelEvent, error) {
	b := a.byIndex[e.index]
	if b == nil || b.closed {
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

func (a *answer) blockStop(e streamEvent) error {
	b := a.byIndex[e.index]
	if b == nil || b.closed {
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
			id := decodeString(member(b.start, "id"))
			if id == "" || ids[id] {
				return nil, invalidf("content block %d: the tool_use id %q is empty or used twice", i, id)
			}
			ids[id] = true
			if decodeString(member(b.start, "name")) == "" {
				return nil, invalidf("content block %d: a tool_use without a name", i)
			}
		}
		end.Blocks = append(end.Blocks, enc)
	}
	return end, nil
}

// limited says that the model stopped for lack of room.
func (a *answer) limited() bool {
	return a.stopReason == "max_tokens" || a.stopReason == "model_context_window_exceeded"
}
