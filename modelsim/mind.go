package modelsim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Mind decides what the model answers. It is called once per request, after the request was found valid and before the
// first byte of the answer; it must be safe for concurrent use and must not change the request.
type Mind interface {
	// Reply answers req. An error becomes a 500 api_error; to ask for any other failure set Reply.Fault.
	Reply(ctx context.Context, req *Request) (Reply, error)
}

// MindFunc is a function that is a Mind.
type MindFunc func(ctx context.Context, req *Request) (Reply, error)

// Reply calls f.
func (f MindFunc) Reply(ctx context.Context, req *Request) (Reply, error) { return f(ctx, req) }

// Reply is one answer of the model.
type Reply struct {
	// Blocks is the content in order. The server gives ids to tool_use blocks without one and signatures to thinking
	// blocks without one.
	Blocks []Block
	// StopReason is as in the API: end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal or
	// model_context_window_exceeded; "" means tool_use when a tool_use block is there, else end_turn.
	StopReason string
	// StopDetails says why with StopReason refusal; it is not sent with any other. A refusal without it has stop_details
	// whose category and explanation are null.
	StopDetails *StopDetails
	// OutputTokens overrides the counted output tokens when positive.
	OutputTokens int
	// Usage, if not nil, replaces the whole usage that is reported. What the cache holds stays as it is.
	Usage *Usage
	// Delay is waited before message_start, after Options.MessageStartDelay.
	Delay time.Duration
	// DeltaDelay is waited before each content delta of a stream instead of Options.DeltaDelay; 0 means that one, a
	// negative value none.
	DeltaDelay time.Duration
	// PingEvery sends a ping each time that long passes while the stream waits before a delta; 0 means none.
	PingEvery time.Duration
	// Fault, if not nil, spoils the answer.
	Fault *Fault
}

// StopDetails explains a refusal.
type StopDetails struct {
	// Category is cyber, bio, frontier_llm, reasoning_extraction or general_harms; "" is sent as null.
	Category string
	// Explanation is a sentence for people; "" is sent as null.
	Explanation string
}

// Block is one content block of a request or an answer, seen by its parts.
type Block struct {
	// Type is the API's type: text, thinking, tool_use, tool_result, ….
	Type string
	// Text is the text of a text block, the thinking of a thinking block, the text of a tool_result.
	Text string
	// Signature belongs to a thinking block.
	Signature string
	// ID is the id of a tool_use, or the tool_use_id of a tool_result.
	ID string
	// Name is the name of the tool of a tool_use block.
	Name string
	// Input is the input of a tool_use block, byte for byte.
	Input json.RawMessage
	// IsError says that a tool_result reports an error.
	IsError bool
	// Raw is the block as it was sent, marks included. In an answer, a block of any other type than text, thinking and
	// tool_use is sent as Raw says.
	Raw json.RawMessage
}

// TextBlock returns a text block of an answer.
func TextBlock(s string) Block { return Block{Type: "text", Text: s} }

// ThinkingBlock returns a thinking block of an answer; with an empty signature the server signs it.
func ThinkingBlock(s, signature string) Block {
	return Block{Type: "thinking", Text: s, Signature: signature}
}

// ToolUseBlock returns a tool call; input is a JSON object and is sent byte for byte. With an empty id the server makes
// one that depends on the request's bytes and the block's index alone.
func ToolUseBlock(id, name, input string) Block {
	return Block{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(input)}
}

// FaultKind says how an answer goes wrong.
type FaultKind int

const (
	// FaultStatus answers with an HTTP error and its documented body. Nothing is written to the cache.
	FaultStatus FaultKind = iota + 1
	// FaultErrorEvent sends an error event after a 200 and ends without message_stop. Without streaming it is the status
	// that goes with the error.
	FaultErrorEvent
	// FaultEOF ends the body cleanly without message_stop. Without streaming it needs AfterBytes or InRune; else the
	// connection is reset.
	FaultEOF
	// FaultReset resets the TCP connection.
	FaultReset
	// FaultSilence sends nothing more until the client goes away.
	FaultSilence
	// FaultSlow sends one byte per Fault.Every from then on, until the answer is whole or the client goes away.
	FaultSlow
	// FaultPings sends one ping per Fault.Every and nothing else until the client goes away; silence without streaming.
	FaultPings
)

// faultNames are the names of the kinds, by value.
var faultNames = []string{
	FaultStatus: "status", FaultErrorEvent: "error_event", FaultEOF: "eof", FaultReset: "reset", FaultSilence: "silence",
	FaultSlow: "slow", FaultPings: "pings",
}

// FaultKinds returns all kinds in order.
func FaultKinds() []FaultKind {
	return []FaultKind{FaultStatus, FaultErrorEvent, FaultEOF, FaultReset, FaultSilence, FaultSlow, FaultPings}
}

// String returns the kind's name: status, error_event, eof, reset, silence, slow or pings.
func (k FaultKind) String() string {
	if k < FaultStatus || int(k) >= len(faultNames) {
		return fmt.Sprintf("FaultKind(%d)", int(k))
	}
	return faultNames[k]
}

// ParseFaultKind is the reverse of [FaultKind.String]; it knows the names of [FaultKinds] and fails for any other.
func ParseFaultKind(name string) (FaultKind, error) {
	for _, k := range FaultKinds() {
		if k.String() == name {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown fault %q: want one of %s", name, strings.Join(faultNames[FaultStatus:], ", "))
}

// Fault describes a failure to act out. Where it strikes is said by AfterEvents, AfterBytes and InRune together; a fault
// whose place the answer never reaches does not strike.
type Fault struct {
	Kind FaultKind
	// AfterEvents is the number of SSE events (pings not counted) that are sent before the fault can strike: with 0, and
	// no AfterBytes and InRune, there is not even a message_start, so nothing is written to the cache. Ignored by
	// FaultStatus and without streaming.
	AfterEvents int
	// AfterBytes is the number of bytes of the body, pings included, that are sent after those events, so that the fault
	// strikes inside an event. An error event waits for the end of the event it would strike in.
	AfterBytes int
	// InRune lets the fault strike after the first byte of the first multi-byte rune from there on.
	InRune bool
	// Every is the pace of FaultSlow and FaultPings; 0 means one second.
	Every time.Duration
	// Status is the status of FaultStatus, for example 401, 429, 500, 529.
	Status int
	// Type is the error type; "" means the one that goes with Status, for FaultErrorEvent overloaded_error.
	Type string
	// Message is the error message; "" means a general one.
	Message string
	// Code goes to error.details.error_code when not empty.
	Code string
	// RetryAfter is sent as a retry-after header in whole seconds, rounded up, when positive.
	RetryAfter time.Duration
}

func (f *Fault) apiError() *apiError {
	e := &apiError{status: f.Status, kind: f.Type, message: f.Message, code: f.Code, retryAfter: f.RetryAfter}
	if f.Kind == FaultErrorEvent && e.kind == "" {
		e.kind = "overloaded_error"
	}
	if e.status == 0 {
		e.status = statusOf(e.kind)
	}
	if e.kind == "" {
		e.kind = kindOf(e.status)
	}
	if e.message == "" {
		switch e.kind {
		case "overloaded_error":
			e.message = "Overloaded"
		case "rate_limit_error":
			e.message = "This request would exceed the rate limit of your organization."
		case "authentication_error":
			e.message = "invalid x-api-key"
		default:
			e.message = "Internal server error"
		}
	}
	return e
}
