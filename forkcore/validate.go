package forkcore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxBodyBytes is the provider's limit for the body of one request; a larger
// one is answered 413, on this turn and on every later one.
// Source: Messages API, request size limits (32 MB).
const MaxBodyBytes = 32 << 20

// maxMessages is the provider's limit for the messages of one request.
// Source: Messages API, messages, "limit of 100,000 messages in a single request".
const maxMessages = 100_000

// Violation is one broken invariant of a request.
type Violation struct {
	// Rule is the short code of the invariant, one of the Rule constants.
	Rule string `json:"rule"`
	// Path is where it is broken, such as messages.3.content.1; empty: the request as a whole.
	Path string `json:"path"`
	// Message says what is wrong and what to do about it.
	Message string `json:"message"`
	// Warning is true for what the provider takes but nobody can want.
	Warning bool `json:"warning,omitempty"`
}

// The invariants of a request.
const (
	RuleJSON            = "json"                // the body is one JSON object
	RuleUTF8            = "utf8"                // text is valid UTF-8
	RuleSurrogate       = "lone_surrogate"      // no escape of half a character
	RuleNUL             = "nul"                 // no U+0000 in text
	RuleDepth           = "depth"               // no block nests deeper than readers go
	RuleSize            = "size"                // at most MaxBodyBytes and maxMessages
	RuleDuplicateKey    = "duplicate_key"       // a key stands once
	RuleKeyOrder        = "key_order"           // the keys that make the prefix come first, in one order
	RuleUnknownField    = "unknown_field"       // no field that the provider refuses as an extra input
	RuleForbiddenField  = "forbidden_field"     // no field that API version 2026-10-21 or this program rules out
	RuleRequired        = "required"            // model, max_tokens and messages are there
	RuleShape           = "shape"               // a value is of its type
	RuleToolName        = "tool_name"           // names fit the pattern and are unique
	RuleRole            = "role"                // a known role, and blocks only where their role has them
	RuleEmptyContent    = "empty_content"       // a message has a block
	RuleBlankText       = "blank_text"          // a text has more than white space
	RuleSignature       = "signature"           // thinking carries what the provider signed
	RuleCitations       = "citations"           // none in a user's text
	RuleBadID           = "bad_id"              // ids are there and fit the pattern
	RuleDuplicateID     = "duplicate_id"        // a tool_use id stands once in the conversation
	RuleUnanswered      = "call_without_result" // each tool_use is answered in the next message
	RuleStrayResult     = "result_without_call" // each tool_result answers a tool_use of the message before
	RuleDuplicateResult = "duplicate_result"    // one result each
	RuleResultOrder     = "result_order"        // results come first, in the order of the calls
	RuleSystemPlace     = "system_place"        // where a message with role system may stand
	RuleLastTurn        = "last_turn"           // a request ends with a user's turn
	RuleMarkCount       = "mark_count"          // at most MaxMarks cache_control marks
	RuleMarkPlace       = "mark_place"          // marks only where the provider takes them
	RuleMarkValue       = "mark_value"          // {"type":"ephemeral"} with ttl 5m or 1h
	RuleMarkTTL         = "mark_ttl_order"      // 1h marks before 5m marks
	RuleNoMark          = "no_mark"             // a request that is to be cached has a mark
	RuleMore            = "more"                // stands for the violations beyond maxViolations
)

// maxViolations bounds a verdict: who has that many looks at the first ones.
const maxViolations = 1000

// Validate lists every broken invariant of a whole request body, ordered by
// path; nil: none. It takes any bytes, copies none of them and neither decodes
// nor encodes the request. Sources of the rules: Messages API, prompt caching,
// tool use, and the migration to version 2026-10-21.
func Validate(body []byte) []Violation {
	size := int64(len(body))
	e := newEnvelope(body)
	if e.broken {
		if !utf8.Valid(body) {
			e.found = append(e.found, notUTF8("", "the body"))
		}
		return verdict(append(e.found, tooLarge(size)...))
	}
	c := Checker{envelope: e}
	for m := range elements(e.messages) {
		c = c.wireMessage(m)
	}
	return c.finish(nil, nil, size)
}

// envelope is what is known of a request's own members, without its messages.
// It is shared by all that grow from one head and not changed after.
type envelope struct {
	broken bool
	found  []Violation
	keys   []string
	last   int // the highest position in canonicalKeys of a key so far
	marks  []placedMark
	tools  int
	system string // a letter for each system block, as of a message
	// messages is the raw array; only Validate reads it.
	messages  []byte
	maxTokens []byte
	stream    bool
}

// canonicalKeys is the order of EncodeHead and of what follows the messages.
var canonicalKeys = []string{"model", "thinking", "output_config", "tool_choice", "tools", "system", "messages", "max_tokens", "stream", "diagnostics"}

// otherKeys are the members of a request that this program does not send.
// Source: Messages API, create a message, general and beta.
var otherKeys = []string{
	"metadata", "stop_sequences", "service_tier", "speed", "container", "inference_geo",
	"context_management", "compaction", "mcp_servers", "fallbacks", "thread", "output_format", "betas",
}

func newEnvelope(body []byte) *envelope {
	e := &envelope{last: -1}
	var whole json.RawMessage
	if !json.Valid(body) {
		e.broken = true
		err := json.Unmarshal(body, &whole)
		var syntax *json.SyntaxError
		where := "the body is no JSON"
		if errors.As(err, &syntax) {
			where = fmt.Sprintf("the body is no JSON after byte %d: %v", syntax.Offset, err)
		}
		e.add(RuleJSON, "", "%s; nothing else of it can be checked", where)
		return e
	}
	if body = body[skipSpace(body, 0):]; body[0] != '{' {
		e.broken = true
		e.add(RuleJSON, "", "the body is no JSON object; a request is one object")
		return e
	}
	for key, value := range members(body) {
		e.member(key, value)
	}
	return e
}

func (e *envelope) add(rule, path, format string, args ...any) {
	if len(e.found) <= maxViolations {
		e.found = append(e.found, Violation{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...)})
	}
}

func (e *envelope) member(key string, value []byte) {
	if slices.Contains(e.keys, key) {
		e.add(RuleDuplicateKey, shortKey(key), "%q stands twice, and readers differ in which one they take; send it once", shortKey(key))
		return
	}
	e.keys = append(e.keys, key)
	if at := slices.Index(canonicalKeys, key); at >= 0 {
		if at < e.last {
			e.add(RuleKeyOrder, key, "%q stands after %q; the order is %s, because a prefix is the bytes up to a block", key, canonicalKeys[e.last], strings.Join(canonicalKeys, ", "))
		}
		e.last = max(e.last, at)
	}
	shape := func(first, what string) bool {
		ok := isKind(value, first)
		if !ok {
			e.add(RuleShape, key, "%q is no %s; make it one", key, what)
		}
		return ok
	}
	switch key {
	case "model":
		if shape(`"`, "string") && isBlank(value) {
			e.add(RuleRequired, key, "the model is empty; name one")
		}
	case "thinking", "output_config", "tool_choice":
		shape("{", "object")
	case "max_tokens":
		e.maxTokens = value
		if !isCount(value) {
			e.add(RuleShape, key, "max_tokens is %s; give a whole number from 0", shortRaw(value))
		}
	case "stream":
		e.stream = string(value) == "true"
		shape("tf", "boolean")
	case "tools":
		if shape("[", "array") {
			e.checkTools(value)
		}
		return
	case "system":
		if shape("[", "array of text blocks, which alone can carry a mark") {
			e.checkSystem(value)
		}
		return
	case "messages":
		if shape("[", "array") {
			e.messages = value
		}
		return
	case "temperature", "top_p", "top_k":
		e.add(RuleForbiddenField, key, "API version 2026-10-21 refuses %s; leave it out", key)
	case "cache_control":
		e.add(RuleForbiddenField, key, "automatic caching marks the last block, which differs from fork to fork, so that each writes an entry nobody else reads; mark the last shared block instead")
	default:
		if !slices.Contains(canonicalKeys, key) && !slices.Contains(otherKeys, key) {
			e.add(RuleUnknownField, shortKey(key), "the Messages API has no field %q and refuses extra ones; leave it out", shortKey(key))
		}
	}
	for _, v := range textFaults(value, shortKey(key), "the value") {
		e.add(v.Rule, v.Path, "%s", v.Message)
	}
}

// isCount reports whether a JSON number is a whole one from 0, written as such.
func isCount(value []byte) bool {
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(value) > 0
}

func (e *envelope) checkTools(array []byte) {
	names := map[string]int{}
	for tool := range elements(array) {
		path := "tools." + strconv.Itoa(e.tools)
		e.tools++
		if !isKind(tool, "{") {
			e.add(RuleShape, path, "a tool is no object; make it one")
			continue
		}
		var name, schema, kind []byte
		var marks [][]byte
		seen := keySet{}
		for key, value := range members(tool) {
			if seen.twice(key) && key != "cache_control" { // that is found among the marks
				e.add(RuleDuplicateKey, path+"."+shortKey(key), "%q stands twice; send it once", shortKey(key))
			}
			switch key {
			case "name":
				name = value
			case "input_schema":
				schema = value
			case "type":
				kind = value
			case "cache_control":
				marks = append(marks, value)
			}
		}
		if custom := kind == nil || plainText(kind) == "custom"; custom && !isKind(schema, "{") {
			e.add(RuleShape, path+".input_schema", "the input schema is no object; give a JSON Schema object")
		}
		switch first, twice := names[plainText(name)]; {
		case !isName(plainText(name)):
			e.add(RuleToolName, path+".name", "the name %s does not match ^[a-zA-Z0-9_-]{1,%d}$; rename the tool", shortRaw(name), maxToolName)
		case twice:
			e.add(RuleToolName, path+".name", "tool %d has the name %s too; names must be unique", first, shortRaw(name))
		default:
			names[plainText(name)] = e.tools - 1
		}
		for _, v := range textFaults(tool, path, "this tool") {
			e.add(v.Rule, v.Path, "%s", v.Message)
		}
		e.marks = appendMarks(e.marks, marks, path, letterFree)
	}
}

func (e *envelope) checkSystem(array []byte) {
	var letters []byte
	for block := range elements(array) {
		path := "system." + strconv.Itoa(len(letters))
		b := readBlock(block)
		switch {
		case !isKind(block, "{"), b.kind != "text", !isKind(b.text, `"`):
			e.add(RuleShape, path, "a system block is no text block; give {\"type\":\"text\",\"text\":…}")
		case isBlank(b.text):
			e.add(RuleBlankText, path, "the text is empty or white space, which the API refuses; leave the block out")
		}
		for _, key := range b.twice {
			e.add(RuleDuplicateKey, path+"."+key, "%q stands twice; send it once", key)
		}
		for _, v := range textFaults(block, path, "this block") {
			e.add(v.Rule, v.Path, "%s", v.Message)
		}
		letters = append(letters, b.letter())
		e.marks = appendMarks(e.marks, b.marks, path, b.letter())
	}
	e.system = string(letters)
}

// required adds what is missing once all members are there.
func (e *envelope) required() {
	for _, key := range []string{"model", "max_tokens", "messages"} {
		if !slices.Contains(e.keys, key) {
			e.add(RuleRequired, key, "%q is missing; the API needs it", key)
		}
	}
	if string(e.maxTokens) == "0" && e.stream {
		e.add(RuleForbiddenField, "max_tokens", "max_tokens 0 fills the cache without an answer and cannot be streamed; leave \"stream\" out or allow output")
	}
}

// keySet notices keys that stand twice.
type keySet map[string]bool

func (s keySet) twice(key string) bool {
	if s[key] {
		return true
	}
	s[key] = true
	return false
}

// textFaults checks the characters of a part of the request.
func textFaults(raw []byte, path, what string) []Violation {
	out := characterFaults(raw, path, what)
	if hasNUL(raw) {
		out = append(out, Violation{Rule: RuleNUL, Path: path, Message: what + " has a NUL (U+0000), on which stores and pages break; clean text when it arrives"})
	}
	return out
}

// SendableSetting is nil for a valid JSON object that a request can carry as
// one of its settings, and else an error that says which rule it breaks.
func SendableSetting(object []byte) error {
	if depth(object) > maxInputDepth {
		return fmt.Errorf("nests deeper than %d levels", maxInputDepth)
	}
	for _, v := range textFaults(object, "", "the value") {
		return errors.New(v.Message)
	}
	return nil
}

// characterFaults is textFaults for what a model wrote, which is sent back as it came.
func characterFaults(raw []byte, path, what string) (out []Violation) {
	if !utf8.Valid(raw) {
		out = append(out, notUTF8(path, what))
	}
	if hasLoneSurrogate(raw) {
		out = append(out, Violation{Rule: RuleSurrogate, Path: path, Message: what + " has an escape of half a character (a lone surrogate), which the API refuses; take it out before it enters the history"})
	}
	return out
}

func notUTF8(path, what string) Violation {
	return Violation{Rule: RuleUTF8, Path: path, Message: what + " is not valid UTF-8; clean text when it arrives"}
}

func tooLarge(size int64) []Violation {
	if size <= MaxBodyBytes {
		return nil
	}
	return []Violation{{Rule: RuleSize, Message: fmt.Sprintf("the body has %d bytes, the provider takes %d; start a new session with a summary of this one", size, int64(MaxBodyBytes))}}
}

// maxToolName is the shorter of the two lengths that sources give, 64 and 128.
const maxToolName = 64

func isName(s string) bool { return len(s) <= maxToolName && isID(s) }

// isID reports whether s matches ^[a-zA-Z0-9_-]+$.
// Source: Messages API, tool_use.id and tools.name, "String should match pattern".
func isID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

// shortKey makes a key fit for a path and a message.
func shortKey(key string) string { return CutText(CleanText(key), 100) }

// shortRaw shows a value in a message.
func shortRaw(raw []byte) string {
	if len(raw) == 0 {
		return "(missing)"
	}
	return CutText(CleanText(string(raw)), 80)
}

// verdict orders violations by path and bounds their number.
func verdict(found []Violation) []Violation {
	more := len(found) > maxViolations
	if more {
		found = found[:maxViolations]
	}
	slices.SortStableFunc(found, func(a, b Violation) int {
		return cmp.Or(comparePaths(a.Path, b.Path), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Message, b.Message))
	})
	if more {
		found = append(found, Violation{Rule: RuleMore, Message: fmt.Sprintf("there are more than %d violations; mend these first", maxViolations)})
	}
	if len(found) == 0 {
		return nil
	}
	return found
}

// comparePaths orders paths as the provider reads a request: in canonical key
// order, and numbers by their value.
func comparePaths(a, b string) int {
	x, restA, _ := strings.Cut(a, ".")
	y, restB, _ := strings.Cut(b, ".")
	order := cmp.Or(cmp.Compare(rank(x), rank(y)), strings.Compare(x, y))
	for order == 0 && (restA != "" || restB != "") {
		x, restA, _ = strings.Cut(restA, ".")
		y, restB, _ = strings.Cut(restB, ".")
		m, errA := strconv.Atoi(x)
		n, errB := strconv.Atoi(y)
		if errA == nil && errB == nil {
			order = cmp.Compare(m, n)
		} else {
			order = strings.Compare(x, y)
		}
	}
	return order
}

func rank(key string) int {
	if key == "" {
		return -1
	}
	if i := slices.Index(canonicalKeys, key); i >= 0 {
		return i
	}
	return len(canonicalKeys)
}

// InvalidRequestError says that a request must not be sent, with everything that is wrong with it.
type InvalidRequestError struct{ Violations []Violation }

func (e *InvalidRequestError) Error() string {
	if len(e.Violations) == 1 {
		return "the request breaks a rule and was not sent: " + listed(e.Violations)
	}
	return fmt.Sprintf("the request breaks %d rules and was not sent: %s", len(e.Violations), listed(e.Violations))
}

// listed is the first violations in one line.
func listed(found []Violation) string {
	const shown = 3
	var parts []string
	for i, v := range found {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(found)-shown))
			break
		}
		if v.Path != "" {
			v.Message = v.Path + ": " + v.Message
		}
		parts = append(parts, v.Message)
	}
	return strings.Join(parts, "; ")
}

// TooLarge reports whether the size of the request is among what is wrong.
func (e *InvalidRequestError) TooLarge() bool {
	return slices.ContainsFunc(e.Violations, func(v Violation) bool { return v.Rule == RuleSize })
}

// Refuse gives a *InvalidRequestError of the violations that are no mere warnings; nil when there are none.
func Refuse(found []Violation) error {
	e := &InvalidRequestError{}
	for _, v := range found {
		if !v.Warning {
			e.Violations = append(e.Violations, v)
		}
	}
	if len(e.Violations) == 0 {
		return nil
	}
	return e
}
