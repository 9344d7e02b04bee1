package modelsim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Request is what a [Mind] sees of a request: parsed views beside the bytes.
type Request struct {
	Model     string
	MaxTokens int
	Stream    bool
	// Thinking is thinking.type, "" when the request has none.
	Thinking string
	// System is the text of all system blocks, joined by blank lines.
	System   string
	Tools    []Tool
	Messages []Message
	// Raw is the body as it came.
	Raw []byte
}

// Tool is one tool definition.
type Tool struct {
	Name string
	// Raw is the definition as it was sent, mark included.
	Raw json.RawMessage
}

// Message is one message; a content given as a string is one text block.
type Message struct {
	Role   string
	Blocks []Block
}

// HasTool reports whether the request offers a tool of that name.
func (r *Request) HasTool(name string) bool {
	for _, t := range r.Tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

// prompt is a request cut into positions.
type prompt struct {
	Request
	top       []member
	model     *model
	version   string
	betas     []string // sorted, without doubles
	positions []position
	auto      *mark // the top-level cache_control
	// turn[i] is the range of positions of message i.
	turns []turn
	// thinking is the raw thinking configuration, nil when absent; effort is the effective level.
	thinking, toolChoice, format []byte
	effort, speed, display       string
	stopSequences                []string
	diagnose                     bool    // the request asks for diagnostics
	previousID                   string  // the message to compare with; "" for none
	dropMismatch                 bool    // thinking from another conversation is dropped, not refused
	thought                      [8]byte // the last thinking block of the history; zero for none
	transformations              []transformation
}

type turn struct {
	role       string
	raw        []byte
	ms         []member
	start, end int // positions
}

// Tiers of the rendered prompt, in order.
const (
	tierTools = iota
	tierSystem
	tierMessages
)

// position is one step of the cache's walk: a tool, a system block or a message block.
type position struct {
	tier   int
	path   string // as in error messages, for example messages.3.content.1
	role   string // of its message, "" elsewhere
	kind   string // the block's type
	raw    []byte // as sent
	clean  []byte // without marks
	ms     []member
	marks  []mark // its own, then those of blocks inside a tool_result
	nested []byte // content of a tool_result
	images int    // how many it is or holds
	cites  bool   // it is or holds a source with citations on
	effort string // set for the messages from here on
}

// tokens is the simulator's count: a quarter of the bytes, rounded up.
func (p *position) tokens() int { return (len(p.clean) + 3) / 4 }

// ttl of the position's mark: the longer one where several stand inside a tool_result; "" without a mark.
func (p *position) ttl() string {
	out := ""
	for _, m := range p.marks {
		if out == "" || m.ttl == ttl1h {
			out = m.ttl
		}
	}
	return out
}

// mark is one cache_control member.
type mark struct {
	path string
	ttl  string // ttl5m or ttl1h
}

const (
	ttl5m = "5m"
	ttl1h = "1h"
)

// fields are the top-level fields of the API that the simulator understands or may ignore.
var fields = map[string]bool{
	"model": true, "max_tokens": true, "messages": true, "system": true, "tools": true, "tool_choice": true, "thinking": true,
	"output_config": true, "cache_control": true, "diagnostics": true, "metadata": true, "stop_sequences": true, "stream": true,
	"service_tier": true, "speed": true, "container": true, "inference_geo": true,
}

// countFields are those that count_tokens takes: of the settings only what becomes part of the prompt.
var countFields = map[string]bool{
	"model": true, "messages": true, "system": true, "tools": true, "tool_choice": true, "thinking": true, "output_config": true,
	"cache_control": true, "speed": true,
}

// efforts are the levels of output_config.effort.
var efforts = []string{"low", "medium", "high", "xhigh", "max"}

// betaTurnEffort allows a message with role system to set the effort from there on, which keeps the cache.
const betaTurnEffort = "mid-conversation-output-config-2026-07-01"

// sampling fields were removed in API version 2026-10-21.
var sampling = map[string]bool{"temperature": true, "top_p": true, "top_k": true}

// parse cuts body into a prompt and checks its shape; counting says that it came to count_tokens, which takes no max_tokens.
// The rules that need the whole conversation are in validate.
func parse(body []byte, version string, betas []string, counting bool) (*prompt, *apiError) {
	if !wellFormed(body) {
		return nil, invalid("The request body is not valid JSON.")
	}
	p := &prompt{version: version, betas: betas}
	p.Raw = body
	if p.top = members(body); p.top == nil && !isObject(body[skipSpace(body, 0):]) {
		return nil, invalid("Input should be a valid dictionary or object")
	}
	taken := fields
	if counting {
		taken = countFields
	}
	for _, m := range p.top {
		if taken[m.name] || sampling[m.name] && version == versionOld && !counting {
			continue
		}
		return nil, invalid("%s: Extra inputs are not permitted", m.name)
	}
	for _, parseField := range []func(bool) *apiError{
		p.parseScalars, p.parseSettings, p.parseTools, p.parseSystem, p.parseMessages, p.parseAuto,
	} {
		if err := parseField(counting); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *prompt) parseScalars(counting bool) *apiError {
	raw := lookup(p.top, "model")
	if raw == nil {
		return invalid("model: Field required")
	}
	if !isString(raw) {
		return invalid("model: Input should be a valid string")
	}
	p.Model = text(raw)
	switch raw := lookup(p.top, "max_tokens"); {
	case raw == nil && !counting:
		return invalid("max_tokens: Field required")
	case raw != nil:
		n, err := strconv.Atoi(string(raw))
		if err != nil {
			return invalid("max_tokens: Input should be a valid integer")
		}
		if n < 0 {
			return invalid("max_tokens: Input should be greater than or equal to 0")
		}
		p.MaxTokens = n
	}
	switch raw := lookup(p.top, "stream"); string(raw) {
	case "true":
		p.Stream = true
	case "", "false", "null":
	default:
		return invalid("stream: Input should be a valid boolean")
	}
	p.speed = "standard"
	if raw := lookup(p.top, "speed"); !isNull(raw) {
		if p.speed = text(raw); p.speed != "standard" && p.speed != "fast" {
			return invalid("speed: Input should be 'standard' or 'fast'")
		}
	}
	if raw := lookup(p.top, "stop_sequences"); !isNull(raw) {
		if json.Unmarshal(raw, &p.stopSequences) != nil {
			return invalid("stop_sequences: Input should be a valid list")
		}
	}
	if raw := lookup(p.top, "diagnostics"); !isNull(raw) {
		if err := checkStrings("diagnostics", raw, "previous_message_id"); err != nil {
			return err
		}
		p.diagnose, p.previousID = true, text(lookup(members(raw), "previous_message_id"))
	}
	if raw := lookup(p.top, "metadata"); !isNull(raw) {
		if err := checkStrings("metadata", raw, "user_id"); err != nil {
			return err
		}
	}
	if raw := lookup(p.top, "service_tier"); !isNull(raw) && text(raw) != "auto" && text(raw) != "standard_only" {
		return invalid("service_tier: Input should be 'auto' or 'standard_only'")
	}
	if raw := lookup(p.top, "inference_geo"); !isNull(raw) && !isString(raw) {
		return invalid("inference_geo: Input should be a valid string")
	}
	return nil
}

// checkStrings checks that raw is an object of nothing but these members, each a string or null.
func checkStrings(path string, raw []byte, names ...string) *apiError {
	if !isObject(raw) {
		return invalid("%s: Input should be a valid dictionary", path)
	}
	for _, m := range members(raw) {
		switch {
		case !slices.Contains(names, m.name):
			return invalid("%s.%s: Extra inputs are not permitted", path, m.name)
		case !isNull(m.value) && !isString(m.value):
			return invalid("%s.%s: Input should be a valid string", path, m.name)
		}
	}
	return nil
}

func (p *prompt) parseSettings(bool) *apiError {
	if raw := lookup(p.top, "thinking"); !isNull(raw) {
		if !isObject(raw) {
			return invalid("thinking: Input should be a valid dictionary")
		}
		ms := members(raw)
		p.thinking, p.Thinking, p.display = raw, text(lookup(ms, "type")), text(lookup(ms, "display"))
	}
	if raw := lookup(p.top, "tool_choice"); !isNull(raw) {
		if !isObject(raw) {
			return invalid("tool_choice: Input should be a valid dictionary")
		}
		p.toolChoice = raw
	}
	if raw := lookup(p.top, "output_config"); !isNull(raw) {
		if !isObject(raw) {
			return invalid("output_config: Input should be a valid dictionary")
		}
		for _, m := range members(raw) {
			switch m.name {
			case "effort":
				if p.effort = text(m.value); !isNull(m.value) && !slices.Contains(efforts, p.effort) {
					return invalid("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
				}
			case "format":
				if p.format = m.value; !isNull(m.value) && !isObject(m.value) {
					return invalid("output_config.format: Input should be a valid dictionary")
				}
			default:
				return invalid("output_config.%s: Extra inputs are not permitted", m.name)
			}
		}
	}
	return nil
}

// list returns the elements of the array at field; nil when it is absent.
func (p *prompt) list(field string) ([][]byte, *apiError) {
	raw := lookup(p.top, field)
	if isNull(raw) {
		return nil, nil
	}
	els, ok := elements(raw)
	if !ok {
		return nil, invalid("%s: Input should be a valid list", field)
	}
	return els, nil
}

func (p *prompt) parseTools(bool) *apiError {
	els, err := p.list("tools")
	if err != nil {
		return err
	}
	for i, raw := range els {
		pos, err := newPosition(tierTools, fmt.Sprintf("tools.%d", i), "", raw)
		if err != nil {
			return err
		}
		p.positions = append(p.positions, pos)
		p.Tools = append(p.Tools, Tool{Name: text(lookup(pos.ms, "name")), Raw: raw})
	}
	return nil
}

func (p *prompt) parseSystem(bool) *apiError {
	raw := lookup(p.top, "system")
	if isString(raw) {
		if len(raw) > 2 {
			pos, _ := newPosition(tierSystem, "system.0", "", textOf(raw))
			p.positions = append(p.positions, pos)
			p.System = text(raw)
		}
		return nil
	}
	els, err := p.list("system")
	if err != nil {
		return err
	}
	var texts []string
	for i, raw := range els {
		pos, err := newPosition(tierSystem, fmt.Sprintf("system.%d", i), "", raw)
		if err != nil {
			return err
		}
		if pos.kind != "text" {
			return invalid("system.%d.type: Input should be 'text'", i)
		}
		p.positions = append(p.positions, pos)
		texts = append(texts, text(lookup(pos.ms, "text")))
	}
	p.System = strings.Join(texts, "\n\n")
	return nil
}

func (p *prompt) parseMessages(bool) *apiError {
	if lookup(p.top, "messages") == nil {
		return invalid("messages: Field required")
	}
	els, err := p.list("messages")
	if err != nil {
		return err
	}
	if len(els) == 0 {
		return invalid("messages: at least one message is required")
	}
	if len(els) > 100_000 {
		return invalid("messages: List should have at most 100000 items")
	}
	pending := "" // an effort that holds from the next block on
	for i, raw := range els {
		effort := ""
		if !isObject(raw) {
			return invalid("messages.%d: Input should be a valid dictionary", i)
		}
		t := turn{raw: raw, ms: members(raw), start: len(p.positions)}
		content := lookup(t.ms, "content")
		for _, m := range t.ms {
			switch m.name {
			case "role":
				t.role = text(m.value)
			case "content":
			case "output_config":
				if !slices.Contains(p.betas, betaTurnEffort) {
					return invalid("messages.%d.output_config: Extra inputs are not permitted", i)
				}
				effort = text(lookup(members(m.value), "effort"))
			default:
				return invalid("messages.%d.%s: Extra inputs are not permitted", i, m.name)
			}
		}
		if t.role != "user" && t.role != "assistant" && t.role != "system" {
			return invalid("messages.%d.role: Input should be 'user', 'assistant' or 'system'", i)
		}
		if effort != "" && (t.role != "system" || !slices.Contains(efforts, effort)) {
			return invalid("messages.%d.output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max' in a message with role 'system'", i)
		}
		if content == nil {
			return invalid("messages.%d.content: Field required", i)
		}
		blocks := [][]byte{textOf(content)} // a string is one text block
		if !isString(content) {
			var ok bool
			if blocks, ok = elements(content); !ok {
				return invalid("messages.%d.content: Input should be a valid list", i)
			}
		}
		msg := Message{Role: t.role}
		for j, raw := range blocks {
			pos, err := newPosition(tierMessages, fmt.Sprintf("messages.%d.content.%d", i, j), t.role, raw)
			if err != nil {
				return err
			}
			pos.effort, pending = pending, ""
			p.positions = append(p.positions, pos)
			msg.Blocks = append(msg.Blocks, pos.block())
		}
		t.end = len(p.positions)
		pending = cmp.Or(effort, pending)
		p.turns = append(p.turns, t)
		p.Messages = append(p.Messages, msg)
	}
	return nil
}

// parseAuto reads the top-level cache_control, which marks the last block that may carry a mark.
func (p *prompt) parseAuto(bool) *apiError {
	raw := lookup(p.top, "cache_control")
	if isNull(raw) {
		return nil
	}
	m, err := parseMark("cache_control", raw)
	if err != nil {
		return err
	}
	p.auto = &m
	return nil
}

// textOf is the text block that a string content stands for.
func textOf(raw []byte) []byte {
	return []byte(`{"type":"text","text":` + string(raw) + `}`)
}

func newPosition(tier int, path, role string, raw []byte) (position, *apiError) {
	if !isObject(raw) {
		return position{}, invalid("%s: Input should be a valid dictionary", path)
	}
	pos := position{tier: tier, path: path, role: role, raw: raw, ms: members(raw)}
	pos.kind = text(lookup(pos.ms, "type"))
	if pos.kind == "" && tier != tierTools {
		return position{}, invalid("%s.type: Field required", path)
	}
	spans := memberSpans(raw, pos.ms, "cache_control")
	if v := lookup(pos.ms, "cache_control"); !isNull(v) {
		m, err := parseMark(path+".cache_control", v)
		if err != nil {
			return position{}, err
		}
		pos.marks = append(pos.marks, m)
	}
	if pos.kind == "tool_result" {
		err := pos.cutNested()
		return pos, err
	}
	pos.clean = cut(raw, spans)
	pos.notice(pos.kind, pos.ms)
	return pos, nil
}

// notice takes note of what changes the key of more than its own position.
func (p *position) notice(kind string, ms []member) {
	switch kind {
	case "image":
		p.images++
	case "document", "search_result":
		p.cites = p.cites || string(lookup(members(lookup(ms, "citations")), "enabled")) == "true"
	}
}

// cutNested removes the marks of a tool_result and of the blocks in its content.
func (p *position) cutNested() *apiError {
	clean := cut(p.raw, memberSpans(p.raw, p.ms, "cache_control"))
	ms := members(clean)
	var content member
	for _, m := range ms {
		if m.name == "content" {
			content = m
		}
	}
	p.nested, p.clean = content.value, clean
	inner, ok := elementSpans(content.value)
	if !ok {
		return nil
	}
	out := make([]byte, 0, len(clean))
	at := 0 // up to here clean is copied
	from := content.end - len(content.value)
	for j, el := range inner {
		block := content.value[el[0]:el[1]]
		blockMs, start := members(block), from+el[0]
		p.notice(text(lookup(blockMs, "type")), blockMs)
		if v := lookup(blockMs, "cache_control"); !isNull(v) {
			path := fmt.Sprintf("%s.content.%d", p.path, j)
			m, err := parseMark(path+".cache_control", v)
			if err != nil {
				return err
			}
			p.marks = append(p.marks, m)
		}
		for _, span := range memberSpans(block, blockMs, "cache_control") {
			out = append(out, clean[at:start+span[0]]...)
			at = start + span[1]
		}
	}
	if at > 0 {
		p.clean = append(out, clean[at:]...)
	}
	return nil
}

func parseMark(path string, raw []byte) (mark, *apiError) {
	if !isObject(raw) {
		return mark{}, invalid("%s: Input should be a valid dictionary", path)
	}
	m := mark{path: path, ttl: ttl5m}
	kind := ""
	for _, f := range members(raw) {
		switch f.name {
		case "type":
			kind = text(f.value)
		case "ttl":
			if isNull(f.value) {
				continue
			}
			if m.ttl = text(f.value); m.ttl != ttl5m && m.ttl != ttl1h {
				return mark{}, invalid("%s.ttl: Input should be '5m' or '1h'", path)
			}
		default:
			return mark{}, invalid("%s.%s: Extra inputs are not permitted", path, f.name)
		}
	}
	if kind != "ephemeral" {
		return mark{}, invalid("%s.type: Input should be 'ephemeral'", path)
	}
	return m, nil
}

// block is the view of the position that minds get.
func (p *position) block() Block {
	b := Block{Type: p.kind, Raw: p.raw}
	switch p.kind {
	case "text":
		b.Text = text(lookup(p.ms, "text"))
	case "thinking":
		b.Text, b.Signature = text(lookup(p.ms, "thinking")), text(lookup(p.ms, "signature"))
	case "tool_use":
		b.ID, b.Name, b.Input = text(lookup(p.ms, "id")), text(lookup(p.ms, "name")), lookup(p.ms, "input")
	case "tool_result":
		b.ID = text(lookup(p.ms, "tool_use_id"))
		b.IsError = string(lookup(p.ms, "is_error")) == "true"
		b.Text = text(p.nested)
		if inner, ok := elements(p.nested); ok {
			var texts []string
			for _, raw := range inner {
				if ms := members(raw); text(lookup(ms, "type")) == "text" {
					texts = append(texts, text(lookup(ms, "text")))
				}
			}
			b.Text = strings.Join(texts, "\n")
		}
	}
	return b
}
