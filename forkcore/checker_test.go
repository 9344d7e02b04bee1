package forkcore

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// palette is blocks of all kinds, sound and broken.
var palette = []string{
	note, note, call("t1"), call("t2"), call("t3"), call(""), result("t1"), result("t2"), result("t3"), result("t9"), thinkingBlock,
	`{"type":"thinking","thinking":"a"}`, `{"type":"redacted_thinking","data":"x"}`, `{"type":"text","text":" "}`, `{"type":"text","text":"\u0000"}`,
	"{\"type\":\"text\",\"text\":\"\xff\"}", `{"type":"future_x","a":"\ud83d","cache_control":{"type":"ephemeral","ttl":"1h"}}`,
	`{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":""}]}`,
	`{"type":"text","text":"a","text":"b","citations":[{"cache_control":{"type":"x"}}]}`, `{ "type" : "tool_use" , "id" : "t4" , "name" : "" , "input" : [ ] }`, `{"type":"web_search_tool_result"}`,
}

// growing is a request that is made piece by piece, and the same request as a body.
type growing struct {
	check    Checker
	marks    []Mark
	messages [][]string // blocks with marks
}

func (c growing) fork() growing {
	c.marks = append([]Mark(nil), c.marks...)
	c.messages = append([][]string(nil), c.messages...)
	return c
}

// grow adds a message, in one piece or in two, and plans marks for some of its blocks.
func (c *growing) grow(t testing.TB, r *rand.Rand) {
	role := []Role{RoleUser, RoleAssistant}[r.IntN(2)]
	var raws [][]byte
	var marked []string
	for j := range r.IntN(4) {
		block := palette[r.IntN(len(palette))]
		raws = append(raws, []byte(block))
		if r.IntN(6) == 0 {
			ttl := []string{"", "5m", "1h"}[r.IntN(3)]
			c.marks = append(c.marks, Mark{Block: blockPath(len(c.messages), j), TTL: ttl})
			block = block[:len(block)-1] + string(markJSON(ttl)) + "}"
		}
		marked = append(marked, block)
	}
	m := message(t, role, raws...)
	cut := r.IntN(len(m.Blocks) + 1)
	c.check = c.check.Message(role, m.Blocks[:cut])
	if cut < len(m.Blocks) {
		c.check = c.check.Blocks(m.Blocks[cut:])
	}
	c.messages = append(c.messages, append([]string{string(role)}, marked...))
}

func (c *growing) body(head []byte, p Params) []byte {
	var wire []string
	for _, m := range c.messages {
		wire = append(wire, said(m[0], m[1:]...))
	}
	return append(append(bytes.Clone(head), strings.Join(wire, ",")...), requestClose(p, nil)...)
}

// What grows piece by piece is judged like the whole body, and siblings do not see each other.
func TestCheckerSaysWhatValidateSays(t *testing.T) {
	heads := []string{
		string(testHead()),
		`{"model":"m","tools":[{"name":"a","input_schema":{}},{"name":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}],"system":[{"type":"text","text":""},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[`,
		`{"system":[{"type":"text","text":"s"}],"model":"m","top_k":1,"messages":[`,
	}
	r := rand.New(rand.NewPCG(7, 7))
	rules := map[string]int{}
	for round := range 150 {
		head, params := []byte(heads[r.IntN(len(heads))]), Params{MaxTokens: int64(r.IntN(2))}
		judge := func(c growing) {
			t.Helper()
			body := c.body(head, params)
			want := Validate(body)
			for _, v := range want {
				rules[v.Rule]++
			}
			if d := cmp.Diff(want, c.check.Violations(c.marks, requestClose(params, nil), int64(len(body)))); d != "" {
				t.Fatalf("round %d: %s\nValidate, Checker (-,+):\n%s", round, body, d)
			}
		}
		c := growing{check: NewChecker(head)}
		for range r.IntN(6) {
			c.grow(t, r)
		}
		judge(c)
		siblings := []growing{c.fork(), c.fork(), c.fork()}
		for range 3 {
			for i := range siblings {
				siblings[i].grow(t, r)
			}
		}
		for _, s := range append(siblings, c) {
			judge(s)
		}
	}
	for _, rule := range []string{RuleUnanswered, RuleStrayResult, RuleDuplicateResult, RuleResultOrder, RuleDuplicateID, RuleBadID, RuleMarkCount, RuleMarkPlace, RuleMarkTTL, RuleMarkValue, RuleNoMark, RuleLastTurn, RuleEmptyContent, RuleKeyOrder, RuleDuplicateKey} {
		if rules[rule] == 0 {
			t.Errorf("no conversation broke %s: %v", rule, rules)
		}
	}
}

func TestCheckerOfABrokenHead(t *testing.T) {
	for _, head := range []string{``, `{`, `[`, `{"model":"m"`} {
		if got := broken(NewChecker([]byte(head)).Message(RoleUser, nil).Violations(nil, requestClose(testParams, nil), 1)); !cmp.Equal(got, []string{"json"}) {
			t.Errorf("head %q: %q", head, got)
		}
	}
	if got := broken(Checker{}.Violations(nil, nil, 1)); !cmp.Equal(got, []string{"json"}) {
		t.Errorf("no head: %q", got)
	}
}

func TestCheckerMarksThatNameNoBlock(t *testing.T) {
	c := NewChecker(testHead()).Message(RoleUser, message(t, RoleUser, text("a"), text("b")).Blocks).Message(RoleAssistant, message(t, RoleAssistant, []byte(thinkingBlock), text("c")).Blocks).Message(RoleUser, message(t, RoleUser, text("d")).Blocks)
	for path, sound := range map[string]bool{
		"tools.0": true, "tools.1": true, "tools.2": false, "system.0": true, "system.1": true, "system.2": false, "system.-1": false,
		"messages.0.content.0": true, "messages.0.content.1": true, "messages.0.content.2": false, "messages.0.content.-1": false, "messages.1.content.0": false, "messages.1.content.1": true,
		"messages.2.content.0": true, "messages.3.content.0": false, "messages.-1.content.0": false, "messages.0.0": false, "messages.0": false, "messages.0.content.x": false,
		"": false, "model": false, "other.0": false, "tools": false,
	} {
		got := broken(c.Violations([]Mark{{Block: path}}, requestClose(testParams, nil), 1))
		if (got == nil) != sound {
			t.Errorf("a mark at %q: %q", path, got)
		}
		if !sound && !cmp.Equal(got, []string{path + ".cache_control mark_place"}) {
			t.Errorf("a mark at %q: %q", path, got)
		}
	}
	if got := broken(c.Violations([]Mark{{Block: "tools.0"}, {Block: "tools.0"}}, requestClose(testParams, nil), 1)); !cmp.Equal(got, []string{"tools.0.cache_control duplicate_key"}) {
		t.Errorf("two marks on a block: %q", got)
	}
}

// The prefix carries its verdict, an open message and its completion included.
func TestPrefixKnowsItsViolations(t *testing.T) {
	f := newFanOut(t, dispatching(t, 2))
	marks := []Mark{{Block: "system.0"}}
	a := f.request(t, "count .go files")
	if got := a.Violations(marks, testParams, 1); got != nil {
		t.Errorf("a child: %+v", got)
	}
	b, _, err := f.base.Complete([]byte(`{"type":"tool_result","tool_use_id":"toolu_00","content":[]},{"type":"text","text":""}`))
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("messages.%d.content.", b.Count()-1)
	if d := cmp.Diff([]string{last + "3 duplicate_result", last + "4 blank_text"}, broken(b.Violations(marks, testParams, 1))); d != "" {
		t.Errorf("a broken sibling (-want +got):\n%s", d)
	}
	if got := a.Violations(marks, testParams, 1); got != nil {
		t.Errorf("the first child sees its sibling: %+v", got)
	}
}

func TestAdmit(t *testing.T) {
	p := NewPrefix(testHead()).Append(message(t, RoleUser, text("q"), text(""))).Append(message(t, RoleAssistant, toolUse("t1", "Read", `{}`)))
	for name, tt := range map[string]struct {
		blocks [][]byte
		want   string
	}{
		"a sound answer":    {[][]byte{[]byte(thinkingBlock), toolUse("t2", "Read", `{}`)}, ""},
		"an id of before":   {[][]byte{text("a"), toolUse("t1", "Read", `{}`)}, "the message could not be sent back: messages.2.content.1.id: the id \"t1\" stands before in this conversation; discard the answer and ask again"},
		"more than one":     {[][]byte{text(""), toolUse("", "Read", `{}`)}, "messages.2.content.0: the text is empty or white space, which the API refuses; leave the block out or say something; messages.2.content.1.id: "},
		"cut thinking":      {[][]byte{[]byte(`{"type":"thinking","thinking":"abc"}`)}, "has no signature"},
		"half a character":  {[][]byte{toolUse("t2", "Read", `{"c":"\ud83d"}`)}, "lone surrogate"},
		"a block of a user": {[][]byte{AppendToolResult(nil, "t1", "a", false)}, "only the user has them"},
	} {
		err := p.Admit(message(t, RoleAssistant, tt.blocks...))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func TestIDSet(t *testing.T) {
	var s *idSet
	var all []*idSet
	for i := range 200 {
		all = append(all, s)
		s = s.with(strconv.Itoa(i))
	}
	for n, s := range all {
		for i := range 200 {
			if got := s.has(strconv.Itoa(i)); got != (i < n) {
				t.Fatalf("the set of %d has %d: %v", n, i, got)
			}
		}
	}
	a, b := s.with("a"), s.with("b")
	if a.has("b") || b.has("a") || !a.has("a") || !b.has("b") || s.has("a") {
		t.Error("siblings share what they added")
	}
}
