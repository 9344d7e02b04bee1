package forkcore

import (
	"slices"
	"strconv"
)

// wireBlock is the raw members of a block that rules speak of.
type wireBlock struct {
	kind string
	// nil: not there. The last one counts where a key stands twice.
	text, id, name, input, resultOf, content, signature, data, citations []byte

	marks [][]byte // cache_control, as often as it stands there
	twice []string // the keys among these that stand twice
}

func readBlock(raw []byte) (b wireBlock) {
	var kind, thinking, isError []byte
	for key, value := range members(raw) {
		var member *[]byte
		switch key {
		case "type":
			member = &kind
		case "text":
			member = &b.text
		case "id":
			member = &b.id
		case "name":
			member = &b.name
		case "input":
			member = &b.input
		case "tool_use_id":
			member = &b.resultOf
		case "content":
			member = &b.content
		case "thinking":
			member = &thinking
		case "signature":
			member = &b.signature
		case "data":
			member = &b.data
		case "citations":
			member = &b.citations
		case "is_error":
			member = &isError
		case "cache_control":
			b.marks = append(b.marks, value)
			continue
		default:
			continue // kept as it is, and nobody here reads it
		}
		if *member != nil {
			b.twice = append(b.twice, key)
		}
		*member = value
	}
	b.kind = plainText(kind)
	return b
}

// What a mark needs to know of a block.
const (
	letterFree     byte = 'f' // it may carry a mark
	letterThinking byte = 't'
	letterBlank    byte = 'b'
	letterInner    byte = 'i' // a block within a block
	letterNowhere  byte = 'n' // there is no such block
)

// misplaced says why a mark cannot stand at a block, by letter.
// Source: Messages API, prompt caching, "what can be cached".
var misplaced = map[byte]string{
	letterThinking: "a thinking block cannot carry a mark; mark the block after it, thinking is cached as part of a longer prefix",
	letterBlank:    "an empty text block cannot carry a mark; leave the block out and mark the one before it",
	letterInner:    "a block within another carries a mark, which the API takes in a tool_result alone; mark the outer block",
	letterNowhere:  "the mark names no block of this request; plan the marks for these very messages",
}

func (b *wireBlock) letter() byte {
	switch {
	case b.kind == "thinking" || b.kind == "redacted_thinking":
		return letterThinking
	case b.kind == "text" && isKind(b.text, `"`) && isBlank(b.text):
		return letterBlank
	}
	return letterFree
}

// block checks block j of the last message.
func (c *Checker) block(b *wireBlock, raw []byte, j int) {
	role, path := c.tip.role, blockPath(c.tip.index, j)
	switch {
	case !isKind(raw, "{"):
		c.add(RuleShape, path, "a block is no object; make it one")
	case b.kind == "":
		c.add(RuleShape, path+".type", "the block has no type; every block needs one")
	}
	for _, key := range b.twice {
		c.add(RuleDuplicateKey, path+"."+key, "%q stands twice, and readers differ in which one they take; send it once", key)
	}
	if depth(raw) > maxBlockDepth {
		c.add(RuleDepth, path, "the block nests deeper than %d levels, which readers refuse; flatten it", maxBlockDepth)
	}
	for _, v := range characterFaults(raw, path, "this block") {
		c.note(v)
	}
	c.mark(b.marks, path, b.letter())
	if b.kind != "tool_result" {
		c.other = true
		c.innerMarks(b.content, path+".content.", letterInner)
	}
	c.innerMarks(b.citations, path+".citations.", letterInner)

	want := func(r Role) {
		if role != r && (role == RoleUser || role == RoleAssistant) {
			c.add(RuleRole, path, "a %s block stands in a message of the %s; only the %s has them", b.kind, role, r)
		}
	}
	switch b.kind {
	case "text":
		c.text(b, path)
		if role == RoleUser && isKind(b.citations, "[") {
			for range elements(b.citations) {
				c.add(RuleCitations, path+".citations", "API version 2026-10-21 refuses citations in a user's text; leave them out")
				break
			}
		}
	case "thinking":
		want(RoleAssistant)
		switch {
		case isKind(b.signature, `"`) && isBlank(b.signature):
			c.warn(RuleSignature, path+".signature", "the thinking is not signed; endpoints that do not sign take it back, the Messages API refuses it")
		case !isKind(b.signature, `"`):
			c.add(RuleSignature, path+".signature", "the thinking has no signature, as when its stream was cut, and each replay would be refused; drop the block with the answer it was cut from")
		}
	case "redacted_thinking":
		want(RoleAssistant)
		if !isKind(b.data, `"`) || isBlank(b.data) {
			c.add(RuleSignature, path+".data", "the redacted thinking has no data, and each replay would be refused; drop the block with the answer it came in")
		}
	case "document":
		want(RoleUser)
	case "tool_use":
		want(RoleAssistant)
		c.toolUse(b, path, j)
	case "tool_result":
		want(RoleUser)
		c.toolResult(b, path)
		if hasNUL(raw) {
			c.add(RuleNUL, path, "the result has a NUL (U+0000), on which stores and pages break; clean text when it arrives")
		}
	}
}

// text checks a text block, be it within a result.
func (c *Checker) text(b *wireBlock, path string) {
	switch {
	case !isKind(b.text, `"`):
		c.add(RuleShape, path+".text", "the text is no string; give one")
	case isBlank(b.text):
		c.add(RuleBlankText, path, "the text is empty or white space, which the API refuses; leave the block out or say something")
	case hasNUL(b.text):
		c.add(RuleNUL, path, "the text has a NUL (U+0000), on which stores and pages break; clean text when it arrives")
	}
}

func (c *Checker) toolUse(b *wireBlock, path string, j int) {
	id := plainText(b.id)
	switch {
	case id != "" && !isID(id) && !c.ids.has(id):
		c.ids = c.ids.with(id)
		c.warn(RuleBadID, path+".id", "the id %s does not match ^[a-zA-Z0-9_-]+$; the endpoint that issued it takes it back, the Messages API refuses it", shortRaw(b.id))
	case id == "":
		c.add(RuleBadID, path+".id", "the id %s does not match ^[a-zA-Z0-9_-]+$, so that no result could answer it; discard the answer and ask again", shortRaw(b.id))
	case c.ids.has(id):
		c.add(RuleDuplicateID, path+".id", "the id %s stands before in this conversation; discard the answer and ask again", shortRaw(b.id))
	default:
		c.ids = c.ids.with(id)
	}
	if name := plainText(b.name); !isID(name) {
		c.add(RuleToolName, path+".name", "the name %s does not match ^[a-zA-Z0-9_-]+$; discard the answer and ask again", shortRaw(b.name))
	}
	if !isKind(b.input, "{") {
		c.add(RuleShape, path+".input", "the input is no object; discard the answer and ask again")
	}
	c.calls = append(c.calls[:len(c.calls):len(c.calls)], openCall{id, j})
}

func (c *Checker) toolResult(b *wireBlock, path string) {
	for k, raw := range indexed(elements(b.content)) {
		inner := readBlock(raw)
		at := path + ".content." + strconv.Itoa(k)
		if inner.kind == "text" {
			c.text(&inner, at)
		}
		c.mark(inner.marks, at, inner.letter())
		c.innerMarks(inner.content, at+".content.", letterInner)
	}

	id := plainText(b.resultOf)
	call := slices.IndexFunc(c.asked, func(a openCall) bool { return a.id == id })
	switch {
	case id == "":
		c.add(RuleBadID, path+".tool_use_id", "the result names no call; give the id of the tool_use it answers")
		return
	case call < 0:
		c.add(RuleStrayResult, path, "no tool_use of the message right before has the id %s; drop the result, or put it into the message right after its call", shortRaw(b.resultOf))
		return
	case slices.Contains(c.answered, id):
		c.add(RuleDuplicateResult, path, "tool_use %s has a result already; give each call one", shortRaw(b.resultOf))
		return
	case c.other:
		c.add(RuleResultOrder, path, "the result stands behind other blocks, and the API then takes the call for unanswered; put results first")
	case call < c.late:
		c.add(RuleResultOrder, path, "the result of call %d stands behind that of call %d; keep the order of the calls, so that siblings have the same bytes", call, c.late)
	}
	c.late = max(c.late, call)
	c.answered = append(c.answered[:len(c.answered):len(c.answered)], id)
}

// innerMarks notes the marks of the blocks within a block.
func (c *Checker) innerMarks(array []byte, path string, letter byte) {
	for k, raw := range indexed(elements(array)) {
		if isKind(raw, "{") {
			c.mark(readBlock(raw).marks, path+strconv.Itoa(k), letter)
		}
	}
}
