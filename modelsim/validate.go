package modelsim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// API versions that are served.
const (
	versionOld = "2023-06-01"
	versionNew = "2026-10-21"
)

var (
	toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	toolID   = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)
)

// validate checks the rules of the Messages API that a client can break with a well-formed body. The messages are those
// seen from the live service where they are known; clients should not match on them.
func (p *prompt) validate(counting bool) *apiError {
	for _, check := range []func() *apiError{
		p.checkMarks, p.checkTools, p.checkThinking, p.checkBlocks, p.checkImages, p.checkSystemTurns, p.checkPairs, p.checkServerTools, p.checkEnd,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	if err := p.checkThoughts(); err != nil || counting {
		return err
	}
	return p.checkLengths()
}

// checkMarks checks placement, number and order of the marks and places the automatic one.
func (p *prompt) checkMarks() *apiError {
	n := 0
	for _, pos := range p.positions {
		n += len(pos.marks)
		if len(pos.marks) == 0 {
			continue
		}
		switch pos.kind {
		case "thinking", "redacted_thinking":
			return invalid("%s.%s.cache_control: Extra inputs are not permitted", pos.path, pos.kind)
		case "text":
			if text(lookup(pos.ms, "text")) == "" {
				return invalid("%s: cache_control cannot be set for empty text blocks", pos.path)
			}
		}
	}
	if p.auto != nil {
		if err := p.placeAuto(n); err != nil {
			return err
		}
		n = 0
		for _, pos := range p.positions {
			n += len(pos.marks)
		}
	}
	if n > 4 {
		return invalid("A maximum of 4 blocks with cache_control may be provided. Found %d.", n)
	}
	short := false
	for _, pos := range p.positions {
		for _, m := range pos.marks {
			if m.ttl == ttl1h && short {
				return invalid("%s.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "+
					"Note that blocks are processed in the following order: `tools`, `system`, `messages`.", m.path)
			}
			short = short || m.ttl == ttl5m
		}
	}
	return nil
}

// placeAuto puts the top-level mark on the last block that may carry one.
func (p *prompt) placeAuto(explicit int) *apiError {
	for i := len(p.positions) - 1; i >= 0; i-- {
		pos := &p.positions[i]
		if pos.kind == "thinking" || pos.kind == "redacted_thinking" || pos.kind == "text" && text(lookup(pos.ms, "text")) == "" {
			continue
		}
		switch ttl := pos.ttl(); {
		case ttl == p.auto.ttl:
			return nil
		case ttl != "":
			return invalid("cache_control: ttl %q conflicts with ttl %q at %s", p.auto.ttl, ttl, pos.path)
		case explicit >= 4:
			return invalid("A maximum of 4 blocks with cache_control may be provided. Found %d.", explicit+1)
		}
		pos.marks = append(pos.marks, mark{path: "cache_control", ttl: p.auto.ttl})
		return nil
	}
	return nil
}

func (p *prompt) checkTools() *apiError {
	seen := map[string]bool{}
	for _, pos := range p.positions {
		if pos.tier != tierTools {
			break
		}
		name := text(lookup(pos.ms, "name"))
		if kind := pos.kind; kind == "" || kind == "custom" {
			if lookup(pos.ms, "name") == nil {
				return invalid("%s.custom.name: Field required", pos.path)
			}
			if !toolName.MatchString(name) {
				return invalid("%s.custom.name: String should match pattern '%s'", pos.path, toolName)
			}
			schema := lookup(pos.ms, "input_schema")
			if schema == nil {
				return invalid("%s.custom.input_schema: Field required", pos.path)
			}
			if !isObject(schema) {
				return invalid("%s.custom.input_schema: Input should be a valid dictionary", pos.path)
			}
			switch kind := lookup(members(schema), "type"); {
			case kind == nil:
				return invalid("%s.custom.input_schema.type: Field required", pos.path)
			case text(kind) != "object":
				return invalid("%s.custom.input_schema.type: Input should be 'object'", pos.path)
			}
		}
		if seen[name] {
			return invalid("tools: Tool names must be unique.")
		}
		seen[name] = true
	}
	return p.checkToolChoice(seen)
}

// checkToolChoice checks tool_choice against the names of the tools.
func (p *prompt) checkToolChoice(tools map[string]bool) *apiError {
	if p.toolChoice == nil {
		return nil
	}
	choice := members(p.toolChoice)
	kind := text(lookup(choice, "type"))
	if !slices.Contains([]string{"auto", "any", "tool", "none"}, kind) {
		return invalid("tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'")
	}
	for _, m := range choice {
		switch {
		case m.name == "type", m.name == "name" && kind == "tool":
		case m.name != "disable_parallel_tool_use" || kind == "none":
			return invalid("tool_choice.%s.%s: Extra inputs are not permitted", kind, m.name)
		case !isNull(m.value) && !isBool(m.value):
			return invalid("tool_choice.%s.disable_parallel_tool_use: Input should be a valid boolean", kind)
		}
	}
	if kind == "any" || kind == "tool" {
		if p.model.noForcedTool {
			return invalid(`tool_choice: type "tool" and "any" are not supported for this model`)
		}
		if p.MaxTokens == 0 && lookup(p.top, "max_tokens") != nil {
			return invalid(`max_tokens: 0 is not supported with tool_choice type %q`, kind)
		}
		if name := text(lookup(choice, "name")); kind == "tool" && !tools[name] {
			return invalid("Tool '%s' not found in provided tools", name)
		}
	}
	if len(tools) == 0 {
		return invalid("tool_choice may only be specified while providing tools.")
	}
	return nil
}

func (p *prompt) checkThinking() *apiError {
	if p.effort != "" && p.model.effort == "" {
		return invalid("output_config.effort: This model does not support the effort parameter.")
	}
	if p.effort == "" {
		p.effort = p.model.effort // naming the default is the same as leaving it out
	}
	if p.thinking == nil {
		return nil
	}
	switch kind := p.Thinking; kind {
	case "adaptive":
		if !p.model.thinks(kind) {
			return invalid("adaptive thinking is not supported on this model")
		}
	case "enabled":
		if !p.model.thinks(kind) {
			return invalid(`"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`)
		}
		raw := lookup(members(p.thinking), "budget_tokens")
		if raw == nil {
			return invalid("thinking.enabled.budget_tokens: Field required")
		}
		budget, err := strconv.Atoi(string(raw))
		if err != nil {
			return invalid("thinking.enabled.budget_tokens: Input should be a valid integer")
		}
		if budget < 1024 {
			return invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
		}
		if p.MaxTokens > 0 && budget >= p.MaxTokens {
			return invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")
		}
	case "disabled", "between_tools":
		if !p.model.thinks(kind) {
			return invalid(`"thinking.type.%s" is not supported for this model. Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.`, kind)
		}
		if kind == "disabled" && p.model.id == "claude-opus-5" && (p.effort == "xhigh" || p.effort == "max") {
			return invalid(`"thinking.type.disabled" is not supported for this model at effort %q.`, p.effort)
		}
	default:
		return invalid("thinking: Input tag '%s' found using 'type' does not match any of the expected tags: 'adaptive', 'between_tools', 'disabled', 'enabled'", kind)
	}
	if err := p.checkBinding(); err != nil {
		return err
	}
	if d := p.display; d != "" && d != "summarized" && d != "omitted" {
		return invalid("thinking.display: Input should be 'summarized' or 'omitted'")
	}
	return nil
}

// checkBinding checks the fields of thinking and reads what is to happen to thinking from another conversation.
func (p *prompt) checkBinding() *apiError {
	for _, m := range members(p.thinking) {
		switch m.name {
		case "type":
		case "budget_tokens", "display":
			if p.Thinking != "enabled" && (p.Thinking != "adaptive" || m.name == "budget_tokens") {
				return invalid("thinking.%s.%s: Extra inputs are not permitted", p.Thinking, m.name)
			}
		case "block_binding":
			if !slices.Contains(p.betas, betaBinding) {
				return invalid("thinking.%s.block_binding: Extra inputs are not permitted", p.Thinking)
			}
			switch v := text(lookup(members(m.value), "prefix_mismatch_behavior")); v {
			case "", "error":
			case "drop_block":
				p.dropMismatch = true
			default:
				return invalid("thinking.%s.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'", p.Thinking)
			}
		default:
			return invalid("thinking.%s.%s: Extra inputs are not permitted", p.Thinking, m.name)
		}
	}
	return nil
}

// blockFields are the fields of the block types whose fields are checked.
var blockFields = map[string][]string{
	"text":              {"type", "text", "cache_control", "citations"},
	"thinking":          {"type", "thinking", "signature"},
	"redacted_thinking": {"type", "data"},
	"tool_use":          {"type", "id", "name", "input", "cache_control", "caller", "toolset_name"},
	"tool_result":       {"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
}

// otherKinds are the block types that are accepted as they are. Of the assistant's blocks any type passes: a mind may
// answer with a block of a type that is newer than this list.
var otherKinds = []string{"image", "document", "search_result", "container_upload"}

// resultKinds are the block types of a tool result's content, as the official SDKs have them.
var resultKinds = []string{"text", "image", "document", "search_result", "tool_reference", "browser_state"}

func (p *prompt) checkBlocks() *apiError {
	for i, t := range p.turns {
		if t.start == t.end && t.role != "system" && !(t.role == "assistant" && i == len(p.turns)-1) {
			return invalid("messages.%d: all messages must have non-empty content except for the optional final assistant message", i)
		}
	}
	for i := range p.positions {
		pos := &p.positions[i]
		if pos.tier == tierTools {
			continue
		}
		allowed, known := blockFields[pos.kind]
		if !known {
			if pos.role == "user" && !slices.Contains(otherKinds, pos.kind) {
				return invalid("%s: Input tag '%s' found using 'type' does not match any of the expected tags", pos.path, pos.kind)
			}
			if p.version == versionNew && pos.role == "assistant" && pos.kind == "document" {
				return invalid("%s: `document` blocks are not permitted in assistant messages", pos.path)
			}
			if err := checkSource(pos.path, pos.kind, pos.ms); pos.role == "user" && err != nil {
				return err
			}
			continue
		}
		for _, m := range pos.ms {
			if !slices.Contains(allowed, m.name) {
				return invalid("%s.%s.%s: Extra inputs are not permitted", pos.path, pos.kind, m.name)
			}
		}
		if err := p.checkBlock(pos); err != nil {
			return err
		}
	}
	return nil
}

// checkImages bounds the images of a request. Source: build with Claude, vision: 600 a request, 100 for windows of 200,000 tokens.
func (p *prompt) checkImages() *apiError {
	n, limit := 0, 600
	if p.model.window <= 200_000 {
		limit = 100
	}
	for i := range p.positions {
		n += p.positions[i].images
	}
	if n > limit {
		return invalid("messages: %d images exceed the limit of %d for %s", n, limit, p.Model)
	}
	return nil
}

func (p *prompt) checkBlock(pos *position) *apiError {
	need := func(field string, ok func([]byte) bool, what string) *apiError {
		v := lookup(pos.ms, field)
		if v == nil {
			return invalid("%s.%s.%s: Field required", pos.path, pos.kind, field)
		}
		if !ok(v) {
			return invalid("%s.%s.%s: Input should be a valid %s", pos.path, pos.kind, field, what)
		}
		return nil
	}
	where, _, _ := strings.Cut(pos.path, ".")
	wrongRole := func(want string) *apiError {
		if pos.role == want {
			return nil
		}
		return invalid("%s: `%s` blocks can only be in `%s` messages", pos.path, pos.kind, want)
	}
	switch pos.kind {
	case "text":
		if err := need("text", isString, "string"); err != nil {
			return err
		}
		switch s := text(lookup(pos.ms, "text")); {
		case s == "":
			return invalid("%s: text content blocks must be non-empty", where)
		case pos.tier == tierMessages && strings.TrimFunc(s, unicode.IsSpace) == "":
			return invalid("%s: text content blocks must contain non-whitespace text", where)
		}
		if els, ok := elements(lookup(pos.ms, "citations")); ok && len(els) > 0 && pos.role == "user" && p.version == versionNew {
			return invalid("%s.text.citations: `citations` must be empty in user messages", pos.path)
		}
	case "thinking":
		return firstError(wrongRole("assistant"), need("thinking", isString, "string"), need("signature", isString, "string"))
	case "redacted_thinking":
		return firstError(wrongRole("assistant"), need("data", isString, "string"))
	case "tool_use":
		if err := firstError(wrongRole("assistant"), need("id", isString, "string"), need("name", isString, "string"), need("input", isObject, "dictionary")); err != nil {
			return err
		}
		if !toolID.MatchString(text(lookup(pos.ms, "id"))) {
			return invalid("%s.tool_use.id: String should match pattern '%s'", pos.path, toolID)
		}
	case "tool_result":
		return firstError(wrongRole("user"), need("tool_use_id", isString, "string"), checkResult(pos))
	}
	return nil
}

// checkResult checks what a tool_result holds.
func checkResult(pos *position) *apiError {
	if v := lookup(pos.ms, "is_error"); !isNull(v) && !isBool(v) {
		return invalid("%s.tool_result.is_error: Input should be a valid boolean", pos.path)
	}
	content := lookup(pos.ms, "content")
	if isNull(content) || isString(content) {
		return nil
	}
	blocks, ok := elements(content)
	if !ok {
		return invalid("%s.tool_result.content: Input should be a valid list", pos.path)
	}
	for j, raw := range blocks {
		path := fmt.Sprintf("%s.tool_result.content.%d", pos.path, j)
		if !isObject(raw) {
			return invalid("%s: Input should be a valid dictionary", path)
		}
		ms := members(raw)
		kind := text(lookup(ms, "type"))
		if !slices.Contains(resultKinds, kind) {
			return invalid("%s: Input tag '%s' found using 'type' does not match any of the expected tags", path, kind)
		}
		if kind == "text" && !isString(lookup(ms, "text")) {
			return invalid("%s.text.text: Input should be a valid string", path)
		}
		if err := checkSource(path, kind, ms); err != nil {
			return err
		}
	}
	return nil
}

// imageTypes are the kinds of images that may be sent as data.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// checkSource checks that an image or a document says where it comes from, and the kind of an image that is sent as data.
func checkSource(path, kind string, ms []member) *apiError {
	if kind != "image" && kind != "document" {
		return nil
	}
	source := lookup(ms, "source")
	switch {
	case source == nil:
		return invalid("%s.%s.source: Field required", path, kind)
	case !isObject(source):
		return invalid("%s.%s.source: Input should be a valid dictionary", path, kind)
	}
	s := members(source)
	if kind == "image" && text(lookup(s, "type")) == "base64" && !slices.Contains(imageTypes, text(lookup(s, "media_type"))) {
		return invalid("%s.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'", path)
	}
	return nil
}

func firstError(errs ...*apiError) *apiError {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSystemTurns checks where messages with role system stand.
func (p *prompt) checkSystemTurns() *apiError {
	for i, t := range p.turns {
		if t.role != "system" {
			continue
		}
		switch {
		case p.model.noSystemTurn || p.model.prefill:
			return invalid("messages.%d: role 'system' is not supported on this model", i)
		case i == 0 || p.turns[i-1].role != "user" && !p.endsInServerResult(i-1):
			return invalid("messages.%d: role 'system' must follow a user turn", i)
		case i+1 < len(p.turns) && p.turns[i+1].role != "assistant":
			return invalid("messages.%d: role 'system' must be the last message or be followed by an assistant turn", i)
		}
	}
	return nil
}

// endsInServerResult reports whether message i is the assistant's and ends with the result of a server tool.
func (p *prompt) endsInServerResult(i int) bool {
	blocks := p.Messages[i].Blocks
	return p.turns[i].role == "assistant" && len(blocks) > 0 && strings.HasSuffix(blocks[len(blocks)-1].Type, "_tool_result")
}

// checkServerTools checks that a server tool which has no result yet is followed by nothing but tool results.
func (p *prompt) checkServerTools() *apiError {
	for i := range len(p.turns) - 1 {
		if p.turns[i].role != "assistant" || !slices.ContainsFunc(p.Messages[i+1].Blocks, func(b Block) bool { return b.Type != "tool_result" }) {
			continue
		}
		answered := map[string]bool{}
		for _, b := range p.Messages[i].Blocks {
			if strings.HasSuffix(b.Type, "_tool_result") {
				answered[text(lookup(members(b.Raw), "tool_use_id"))] = true
			}
		}
		for _, b := range p.Messages[i].Blocks {
			if b.Type != "server_tool_use" {
				continue
			}
			ms := members(b.Raw)
			if id, name := text(lookup(ms, "id")), text(lookup(ms, "name")); !answered[id] {
				return invalid("messages.%d: `%s` tool use with id `%s` was found without a corresponding `%s_tool_result` block", i, name, id, name)
			}
		}
	}
	return nil
}

// checkPairs checks that each tool_use is answered at the head of the next message and each tool_result answers one.
func (p *prompt) checkPairs() *apiError {
	ids := map[string]bool{} // of every tool_use so far
	for i, t := range p.turns {
		open := map[string]bool{} // of the message before
		if i > 0 && p.turns[i-1].role == "assistant" {
			for _, b := range p.Messages[i-1].Blocks {
				if b.Type == "tool_use" {
					open[b.ID] = true
				}
			}
		}
		answered := map[string]bool{}
		if t.role == "user" {
			for _, b := range p.Messages[i].Blocks {
				if b.Type != "tool_result" {
					break // what follows other content does not answer
				}
				answered[b.ID] = true
			}
		}
		if err := p.missing(i-1, answered); err != nil {
			return err
		}
		results := map[string]bool{}
		for j, b := range p.Messages[i].Blocks {
			switch b.Type {
			case "tool_use":
				if ids[b.ID] {
					return invalid("messages.%d.content.%d: `tool_use` ids must be unique", i, j)
				}
				ids[b.ID] = true
			case "tool_result":
				if results[b.ID] {
					return invalid("messages.%d.content.%d: each tool_use must have a single result. Found multiple `tool_result` blocks with id: %s", i, j, b.ID)
				}
				if !open[b.ID] {
					return invalid("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
						"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ID)
				}
				results[b.ID] = true
			}
		}
	}
	return p.missing(len(p.turns)-1, nil)
}

// missing reports the tool_use blocks of message i that answered does not hold.
func (p *prompt) missing(i int, answered map[string]bool) *apiError {
	if i < 0 || p.turns[i].role != "assistant" {
		return nil
	}
	var ids []string
	for _, b := range p.Messages[i].Blocks {
		if b.Type == "tool_use" && !answered[b.ID] {
			ids = append(ids, b.ID)
		}
	}
	if ids == nil {
		return nil
	}
	return invalid("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
		"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, strings.Join(ids, ", "))
}

func (p *prompt) checkEnd() *apiError {
	last := p.turns[len(p.turns)-1]
	if last.role != "assistant" {
		return nil
	}
	blocks := p.Messages[len(p.Messages)-1].Blocks
	if slices.ContainsFunc(blocks, func(b Block) bool { return b.Type == "server_tool_use" }) {
		return nil // a turn that stopped with pause_turn, sent back to be continued
	}
	if !p.model.prefill {
		return invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	if n := len(blocks); n > 0 && blocks[n-1].Type == "text" && strings.TrimRightFunc(blocks[n-1].Text, unicode.IsSpace) != blocks[n-1].Text {
		return invalid("messages: final assistant content cannot end with trailing whitespace")
	}
	return nil
}

// checkLengths checks max_tokens and the window.
func (p *prompt) checkLengths() *apiError {
	if p.MaxTokens > p.model.maxOutput {
		return invalid("max_tokens: %d > %d, which is the maximum allowed number of output tokens for %s", p.MaxTokens, p.model.maxOutput, p.Model)
	}
	if p.MaxTokens == 0 { // a request that only fills the cache
		switch {
		case p.Stream:
			return invalid("max_tokens: 0 is not supported with stream: true")
		case p.Thinking == "enabled":
			return invalid(`max_tokens: 0 is not supported with thinking.type "enabled"`)
		case !isNull(p.format):
			return invalid("max_tokens: 0 is not supported with output_config.format")
		}
	}
	if n := p.inputTokens(); n > p.model.window {
		return invalid("prompt is too long: %d tokens > %d maximum", n, p.model.window)
	}
	return nil
}

func (p *prompt) inputTokens() int {
	n := 0
	for i := range p.positions {
		n += p.positions[i].tokens()
	}
	return n
}
