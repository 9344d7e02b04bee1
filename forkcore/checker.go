package forkcore

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Checker validates a request while it grows, so that a send costs the new
// messages and not the whole prefix. It is a value: copying it at a fork point
// is free, what was added before is shared and never changed, and what one
// sibling adds no other sees. It keeps no message bytes: only tool ids, a
// letter a block, and what is broken.
//
// Its verdict is that of Validate on the assembled body.
type Checker struct {
	envelope *envelope
	tip      *checkedMessage
	count    int    // messages
	ids      *idSet // of all tool_use blocks
	// asked are the calls of the message before the last, which the last one
	// answers; calls those of the last one.
	asked, calls []openCall
	answered     []string // ids, of the last message
	late         int      // the highest call answered so far
	other        bool     // the last message has a block that is no tool_result
	found        *foundList
	marks        *markList // that stand in the bytes of messages
}

type openCall struct {
	id    string
	block int
}

// checkedMessage is what marks and later messages need to know of a message.
type checkedMessage struct {
	previous *checkedMessage
	index    int
	role     Role
	letters  string // one a block, see wireBlock.letter
	// serverResult is true when the last block is the result of a server tool, behind which a system message may stand.
	serverResult bool
	// paused is true when the last block is one of a server tool: an answer that ends so can be continued.
	paused bool
	output bool // a system message without blocks that sets something
}

type foundList struct {
	previous *foundList
	n        int
	Violation
}

type markList struct {
	previous *markList
	placedMark
}

// systemRole is that of messages which change instructions in mid-conversation.
const systemRole Role = "system"

// NewChecker starts with a latched request head (see EncodeHead).
func NewChecker(head []byte) Checker {
	whole := append(append(make([]byte, 0, len(head)+len(messageClose)), head...), messageClose...)
	e := newEnvelope(whole)
	e.messages = nil
	return Checker{envelope: e}
}

// Message adds a message, which further blocks may be added to.
func (c Checker) Message(role Role, blocks []Block) Checker {
	return c.begin(role).Blocks(blocks)
}

// Blocks adds blocks to the last message.
func (c Checker) Blocks(blocks []Block) Checker {
	return c.addBlocks(func(yield func([]byte) bool) {
		for _, b := range blocks {
			if !yield(b.Raw) {
				return
			}
		}
	})
}

// Violations lists what is broken in the request that these messages make with
// the marks planned for it and with what follows the messages: closing is
// `],"max_tokens":…}`, size the bytes of the body.
func (c Checker) Violations(marks []Mark, closing []byte, size int64) []Violation {
	if c.envelope == nil {
		c.envelope = newEnvelope(nil)
	}
	if c.envelope.broken {
		return verdict(append(slices.Clone(c.envelope.found), tooLarge(size)...))
	}
	return c.finish(marks, closing, size)
}

// Admit is nil when a message may follow, and else an error that says what it
// would break in this and every later request. What is wrong with the messages
// before it, or not yet answered in it, does not count.
func (c Checker) Admit(m Message) error {
	before := c.begin(m.Role)
	after := before.Blocks(m.Blocks)
	var faults []Violation
	for f := after.found; f != before.found; f = f.previous {
		if !f.Warning {
			faults = append(faults, f.Violation)
		}
	}
	// Marks are this program's to place: one that came with an answer would count against them, or stand out of order, for ever.
	if after.marks != before.marks {
		faults = append(faults, Violation{Rule: RuleMarkPlace, Path: after.marks.path, Message: "the message brings a cache_control mark of its own; discard the answer and ask again"})
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("the message could not be sent back: %s", listed(verdict(faults)))
}

func (c *Checker) add(rule, path, format string, args ...any) {
	c.note(Violation{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...)})
}

// warn notes what only some endpoints refuse: those that made it take it back.
func (c *Checker) warn(rule, path, format string, args ...any) {
	c.note(Violation{Rule: rule, Path: path, Message: fmt.Sprintf(format, args...), Warning: true})
}

func (c *Checker) note(v Violation) {
	n := 1
	if c.found != nil {
		n += c.found.n
	}
	if n <= maxViolations+1 {
		c.found = &foundList{previous: c.found, n: n, Violation: v}
	}
}

func messagePath(i int) string { return "messages." + strconv.Itoa(i) }

func blockPath(message, block int) string {
	b := make([]byte, 0, 40) // one allocation: every mark of every request asks
	b = strconv.AppendInt(append(b, "messages."...), int64(message), 10)
	b = strconv.AppendInt(append(b, ".content."...), int64(block), 10)
	return string(b)
}

// begin closes the last message and opens the next.
func (c Checker) begin(role Role) Checker {
	c.end()
	last := c.tip
	i := c.count
	switch {
	case role != RoleUser && role != RoleAssistant && role != systemRole:
		c.add(RuleRole, messagePath(i)+".role", "the role %q is none; use user or assistant", shortKey(string(role)))
	case role == systemRole && (last == nil || last.role != RoleUser && !last.serverResult):
		c.add(RuleSystemPlace, messagePath(i), "a system message follows no user turn; move it behind one")
	}
	if last != nil && last.role == systemRole && role != RoleAssistant {
		c.add(RuleSystemPlace, messagePath(last.index), "a system message stands before a %s turn; it must be the last message or be followed by an assistant turn", shortKey(string(role)))
	}
	c.asked, c.calls, c.answered, c.other, c.late = c.calls, nil, nil, false, 0
	c.tip = &checkedMessage{previous: c.tip, index: i, role: role}
	c.count++
	return c
}

// end checks what can be said of the last message once it has all its blocks.
func (c *Checker) end() {
	if c.tip == nil {
		return
	}
	if c.tip.letters == "" && !c.tip.output {
		c.add(RuleEmptyContent, messagePath(c.tip.index), "the message has no content; leave it out or give it a block")
	}
	for _, call := range c.asked {
		if !slices.Contains(c.answered, call.id) {
			c.unanswered(c.tip.index-1, call)
		}
	}
}

func (c *Checker) unanswered(message int, call openCall) {
	c.add(RuleUnanswered, blockPath(message, call.block), "tool_use %s has no tool_result in the message right after it; answer it there, be it with an error", shortRaw([]byte(call.id)))
}

// wireMessage adds a message as it stands in a body.
func (c Checker) wireMessage(raw []byte) Checker {
	path := messagePath(c.count)
	if !isKind(raw, "{") {
		c = c.begin("")
		c.tip.output = true // one thing wrong, said once
		c.add(RuleShape, path, "a message is no object; make it one")
		return c
	}
	var role, content []byte
	var extra []string
	seen := keySet{}
	for key, value := range members(raw) {
		switch {
		case seen.twice(key):
			c.add(RuleDuplicateKey, path+"."+shortKey(key), "%q stands twice; send it once", shortKey(key))
		case key == "role":
			role = value
		case key == "content":
			content = value
		default:
			extra = append(extra, key)
		}
	}
	c = c.begin(Role(plainText(role)))
	for _, key := range extra {
		if c.tip.role == systemRole && (key == "output_config" || key == "clear_at") {
			c.tip.output = true
			continue
		}
		c.add(RuleUnknownField, path+"."+shortKey(key), "a message has no field %q and the API refuses extra ones; leave it out", shortKey(key))
	}
	if !isKind(content, "[") {
		c.tip.output = true
		c.add(RuleShape, path+".content", "the content is no array of blocks; make it one, so that a mark can stand in it")
	}
	return c.addBlocks(elements(content))
}

// addBlocks adds the blocks' bytes to the last message.
func (c Checker) addBlocks(raws iter.Seq[[]byte]) Checker {
	if c.tip == nil {
		c = c.begin("")
	}
	tip := *c.tip
	letters := []byte(tip.letters)
	for raw := range raws {
		b := readBlock(raw)
		c.block(&b, raw, len(letters))
		letters = append(letters, b.letter())
		tip.serverResult = b.kind != "tool_result" && strings.HasSuffix(b.kind, "_tool_result")
		tip.paused = serverBlock(b.kind)
	}
	tip.letters = string(letters)
	c.tip = &tip
	return c
}

// finish adds what can be said of the request as a whole.
func (c Checker) finish(planned []Mark, closing []byte, size int64) []Violation {
	c.end()
	switch {
	case c.tip == nil:
		if slices.Contains(c.envelope.keys, "messages") {
			c.add(RuleLastTurn, "messages", "there is no message; a request needs a user's turn")
		}
	case c.tip.role == RoleAssistant && c.tip.paused:
		// A turn that the provider paused is continued by sending it back as it is.
		// Source: Messages API, handling stop reasons, pause_turn.
	case c.tip.role != RoleUser && c.tip.role != systemRole:
		c.add(RuleLastTurn, messagePath(c.tip.index), "the last message is none of a user, and models take no words put into their mouth; end with a user's turn")
	}
	for _, call := range c.calls {
		c.unanswered(c.tip.index, call)
	}
	if c.count > maxMessages {
		c.add(RuleSize, "messages", "there are %d messages, the provider takes %d; start a new session with a summary of this one", c.count, maxMessages)
	}

	e := *c.envelope
	e.found, e.keys = slices.Clip(e.found), slices.Clip(e.keys)
	if len(closing) > 1 {
		rest := append([]byte("{"), bytes.TrimPrefix(closing[1:], comma)...)
		for key, value := range members(rest) {
			e.member(key, value)
		}
	}
	e.required()

	found := append(e.found, tooLarge(size)...)
	if c.found != nil {
		inMessages := make([]Violation, c.found.n)
		for f := c.found; f != nil; f = f.previous {
			inMessages[f.n-1] = f.Violation
		}
		found = append(found, inMessages...)
	}
	return verdict(append(found, c.checkMarks(planned)...))
}

// placedMark is a mark with what its place allows.
type placedMark struct {
	path  string // of the block
	ttl   string // 5m or 1h; another value is broken
	where byte   // the letter of its block
	fault string // of its value
}

// wireMark reads a cache_control member; ok is false where there is none.
func wireMark(value []byte, path string, letter byte) (m placedMark, ok bool) {
	if string(value) == "null" {
		return m, false
	}
	m = placedMark{path: path, ttl: "5m", where: letter}
	kind := ""
	for key, v := range members(value) {
		switch key {
		case "type":
			kind = plainText(v)
		case "ttl":
			m.ttl = plainText(v)
		default:
			m.fault = fmt.Sprintf("has a member %q", shortKey(key))
		}
	}
	switch {
	case kind != "ephemeral":
		m.fault = "is not of type ephemeral"
	case m.ttl != "5m" && m.ttl != "1h":
		m.fault = fmt.Sprintf("has the ttl %q", shortKey(m.ttl))
	}
	return m, true
}

func appendMarks(marks []placedMark, values [][]byte, path string, letter byte) []placedMark {
	for _, value := range values {
		if m, ok := wireMark(value, path, letter); ok {
			marks = append(marks, m)
		}
	}
	return marks
}

func (c *Checker) mark(values [][]byte, path string, letter byte) {
	for _, m := range appendMarks(nil, values, path, letter) {
		c.marks = &markList{c.marks, m}
	}
}

// checkMarks judges the marks that stand in the bytes and those to be spliced in, as one list.
func (c *Checker) checkMarks(planned []Mark) (out []Violation) {
	var marks []placedMark
	for m := c.marks; m != nil; m = m.previous {
		marks = append(marks, m.placedMark)
	}
	slices.Reverse(marks)
	marks = append(marks, c.envelope.marks...)
	for _, p := range planned {
		marks = append(marks, placedMark{path: p.Block, ttl: ttlOr5m(p.TTL), where: c.letterAt(p.Block)})
	}
	slices.SortStableFunc(marks, func(a, b placedMark) int { return comparePaths(a.path, b.path) })
	if len(marks) == 0 {
		return []Violation{{Rule: RuleNoMark, Message: "no block carries cache_control, so nothing of this request is written to the cache or read from it; mark the end of the system prompt and the last shared block", Warning: true}}
	}
	if len(marks) > MaxMarks {
		out = append(out, Violation{Rule: RuleMarkCount, Path: marks[MaxMarks].path + ".cache_control", Message: fmt.Sprintf("the request carries %d marks, the provider takes %d; drop those of the oldest messages", len(marks), MaxMarks)})
	}
	var short string // the first 5 minute mark
	for i, m := range marks {
		path := m.path + ".cache_control"
		fault := func(rule, message string) {
			out = append(out, Violation{Rule: rule, Path: path, Message: message})
		}
		if i > 0 && marks[i-1].path == m.path {
			fault(RuleDuplicateKey, "the block is marked twice; mark it once")
		}
		if why := misplaced[m.where]; why != "" {
			fault(RuleMarkPlace, why)
		}
		if m.fault != "" {
			fault(RuleMarkValue, "the mark "+m.fault+`; write {"type":"ephemeral"}, with "ttl":"1h" for an hour`)
			continue
		}
		switch {
		case m.ttl == "1h" && short != "":
			fault(RuleMarkTTL, "a 1h mark stands after the 5m mark at "+short+" (order: tools, system, messages), which the API refuses; use one ttl for all, or 1h first")
		case m.ttl == "5m":
			short = cmp.Or(short, m.path)
		}
	}
	return out
}

// letterAt is the letter of the block that a planned mark names.
func (c *Checker) letterAt(path string) byte {
	section, rest, _ := strings.Cut(path, ".")
	first, rest, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(first)
	if err != nil || n < 0 {
		return letterNowhere
	}
	letters, at := "", n
	switch section {
	case "tools":
		letters = strings.Repeat(string(letterFree), c.envelope.tools)
	case "system":
		letters = c.envelope.system
	case "messages":
		m := c.tip
		for m != nil && m.index > n {
			m = m.previous
		}
		block, isBlock := strings.CutPrefix(rest, "content.")
		if at, err = strconv.Atoi(block); err != nil || at < 0 || !isBlock || m == nil || m.index != n {
			return letterNowhere
		}
		letters = m.letters
	}
	if at >= len(letters) {
		return letterNowhere
	}
	return letters[at]
}

// Violations lists what is broken in the request that p makes with these marks
// and params, of size bytes: what Validate says of its body, for the price of
// the messages that are new.
func (p *Prefix) Violations(marks []Mark, params Params, size int64) []Violation {
	return p.check.Violations(marks, requestClose(params, nil), size) // diagnostics break nothing
}

// Admit says what the model's answer m would break in later requests; nil: nothing.
func (p *Prefix) Admit(m Message) error { return p.check.Admit(m) }

// idSet is a set of ids that grows by sharing: with returns a larger one and
// leaves the old one as it was. It is a trie over the bits of a hash.
type idSet struct {
	id   string
	next [4]*idSet
}

var idSeed = maphash.MakeSeed()

func (s *idSet) has(id string) bool {
	for h := maphash.String(idSeed, id); s != nil; s, h = s.next[h&3], h>>2 {
		if s.id == id {
			return true
		}
	}
	return false
}

func (s *idSet) with(id string) *idSet {
	var root *idSet
	at := &root
	for h := maphash.String(idSeed, id); s != nil; s, h = s.next[h&3], h>>2 {
		n := *s
		*at = &n
		at = &n.next[h&3]
	}
	*at = &idSet{id: id}
	return root
}
