package modelsim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	template "text/template/parse"

	"go.yaml.in/yaml/v4"
)

// What the API knows by name, in the order in which messages list it.
var (
	stopReasons = []string{
		"end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal", "model_context_window_exceeded",
	}
	refusalCategories = []string{"cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms"}
	errorTypes        = []string{
		"invalid_request_error", "authentication_error", "billing_error", "permission_error", "not_found_error",
		"conflict_error", "request_too_large", "rate_limit_error", "timeout_error", "overloaded_error", "api_error",
	}
	toolNameForm = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
)

// faultFields are the fields of a fault beside kind, by kind.
var faultFields = map[FaultKind][]string{
	FaultStatus:     {"status", "type", "message", "code", "retry_after"},
	FaultErrorEvent: {"type", "message", "code", "after_events"},
	FaultEOF:        {"after_events", "after_bytes", "in_rune"},
	FaultReset:      {"after_events", "after_bytes", "in_rune"},
	FaultSilence:    {"after_events", "after_bytes", "in_rune"},
	FaultSlow:       {"every", "after_events", "after_bytes"},
	FaultPings:      {"every", "after_events"},
}

// checkFile notes what is wrong between fields that are well-formed one by one.
func (d *decoder) checkFile(f *scenarioFile) {
	if f.has("rules") && len(f.value("rules").Content) == 0 {
		d.errorf(f.value("rules"), "empty list: expected at least one rule")
	}
	if o := f.Options; o != nil && o.node != nil {
		if o.MissRate != nil && (*o.MissRate < 0 || *o.MissRate > 1) {
			d.errorf(o.value("miss_rate"), "expected a share from 0 to 1, found %v", *o.MissRate)
		}
		if o.MaxBody != nil {
			d.atLeast(o.value("max_body"), int(*o.MaxBody), 1)
		}
		if slices.Contains(o.Keys, "") {
			d.errorf(o.value("keys"), "empty key: the API takes none")
		}
	}
	always := 0 // the line of a rule after which nothing is reached
	for i := range f.Rules {
		r := &f.Rules[i]
		if r.node == nil { // no mapping, noted already
			continue
		}
		if always > 0 {
			d.errorf(r.node, "unreachable: the rule at line %d has no `match` and answers everything", always)
		}
		d.checkRule(r)
		if always == 0 && !r.has("match") && !d.odd[r.node] && (r.Times == nil || r.Then != nil) {
			always = r.node.Line
		}
	}
	if f.Fallback.answer != nil {
		d.checkScript(f.Fallback.answer)
	}
}

func (d *decoder) checkRule(r *scenarioRule) {
	if r.Match != nil && r.Match.node != nil {
		if len(r.Match.node.Content) == 0 {
			d.errorf(r.Match.node, "empty match: name a condition, or leave `match` out for a rule that answers everything")
		}
		for i, name := range r.Match.Tool {
			at := r.Match.value("tool")
			if at.Kind == yaml.SequenceNode {
				at = at.Content[i]
			}
			d.notEmpty(at, name)
		}
	}
	if r.Times != nil {
		d.atLeast(r.value("times"), *r.Times, 1)
	}
	if r.Then != nil {
		if r.Times == nil {
			d.errorf(r.key("then"), "`then` without `times`: it is the answer after that many")
		}
		d.checkScript(r.Then)
	}
	d.checkScript(r.Answer)
}

func (d *decoder) checkScript(a *script) {
	if a == nil || a.node == nil {
		return
	}
	short := slices.DeleteFunc([]string{"thinking", "text", "tool_use"}, func(name string) bool { return !a.has(name) })
	switch {
	case a.has("content") && len(short) > 0:
		d.errorf(a.key(short[0]), "`%s` beside `content`: put it into the list", short[0])
	case !a.has("content") && len(short) == 0 && !a.has("fault") && !a.has("stop_reason") && !d.odd[a.node]:
		d.errorf(a.node, "empty answer: expected `text`, `thinking`, `tool_use`, `content`, `stop_reason` or `fault`")
	case a.Fault != nil && a.Fault.Kind == FaultStatus.String() && (a.has("content") || len(short) > 0):
		d.errorf(a.key(append(short, "content")[0]), "never sent: a fault of kind `status` answers with an error alone")
	}
	d.oneOf(a.node, a.value("stop_reason"), a.StopReason, "stop reason", stopReasons)
	if a.StopDetails != nil && a.StopDetails.node != nil {
		if a.StopReason != "refusal" {
			d.errorf(a.key("stop_details"), "`stop_details` is sent with `stop_reason: refusal` only")
		}
		d.oneOf(a.StopDetails.node, a.StopDetails.value("category"), a.StopDetails.Category, "category", refusalCategories)
	}
	d.atMostOne(&a.where, "usage", "output_tokens")
	if a.OutputTokens != nil {
		d.atLeast(a.value("output_tokens"), *a.OutputTokens, 1)
	}
	if a.Fault != nil && a.Fault.node != nil {
		d.checkFault(a.Fault)
	}
	cut := a.StopReason == "max_tokens" || a.has("fault")
	if a.has("thinking") {
		a.blocks = append(a.blocks, d.textBlock("thinking", a.value("thinking"), a.Thinking))
	}
	if a.has("text") {
		a.blocks = append(a.blocks, d.textBlock("text", a.value("text"), a.Text))
	}
	for i := range a.ToolUse {
		a.blocks = append(a.blocks, d.toolBlock(&a.ToolUse[i], cut))
	}
	for i := range a.Content {
		if b, ok := d.contentBlock(&a.Content[i], cut); ok {
			a.blocks = append(a.blocks, b)
		}
	}
}

// oneOf notes a name that is not in valid; the empty one is that of a field which is not in the file.
func (d *decoder) oneOf(parent, n *yaml.Node, got, what string, valid []string) {
	if n != parent && !slices.Contains(valid, got) {
		d.errorf(n, "unknown %s %s%s", what, ticked(got), suggest(got, valid))
	}
}

func (d *decoder) checkFault(f *faultFile) {
	kind, err := ParseFaultKind(f.Kind)
	if !f.has("kind") {
		return
	}
	if err != nil {
		d.errorf(f.value("kind"), "unknown kind of fault %s%s", ticked(f.Kind), suggest(f.Kind, faultNames[FaultStatus:]))
		return
	}
	for i := 0; i < len(f.node.Content); i += 2 {
		if name := f.node.Content[i].Value; name != "kind" && !slices.Contains(faultFields[kind], name) {
			d.errorf(f.node.Content[i], "`%s` does not go with a fault of kind `%s`, which takes %s", name, f.Kind, alternatives(faultFields[kind]))
		}
	}
	if kind == FaultStatus {
		switch {
		case !f.has("status"):
			d.errorf(f.node, "`status` is missing: the HTTP status, for example 429 or 529")
		case f.Status != nil && (*f.Status < 400 || *f.Status > 599):
			d.errorf(f.value("status"), "expected an HTTP status from 400 to 599, found %d", *f.Status)
		}
	}
	if f.Type != nil {
		d.oneOf(f.node, f.value("type"), *f.Type, "error type", errorTypes)
	}
	if f.Every != nil && *f.Every == 0 {
		d.errorf(f.value("every"), "expected a duration above 0s")
	}
}

// scriptedBlock is a block of an answer; the text of a text or thinking block may have places to fill.
type scriptedBlock struct {
	block Block
	text  answerText
}

func (d *decoder) textBlock(kind string, n *yaml.Node, s string) scriptedBlock {
	if s == "" && kind == "text" {
		d.errorf(n, "empty text: the API has no empty text blocks")
	}
	return scriptedBlock{block: Block{Type: kind}, text: d.template(n, s)}
}

func (d *decoder) toolBlock(t *toolUse, cut bool) scriptedBlock {
	if t.node == nil {
		return scriptedBlock{}
	}
	if t.has("name") && !toolNameForm.MatchString(t.Name) {
		d.errorf(t.value("name"), "expected a tool name of 1 to 128 letters, digits, _ and -, found %s", ticked(t.Name))
	}
	d.atMostOne(&t.where, "input", "input_json")
	input := "{}"
	switch {
	case t.Input != nil:
		input = string(*t.Input)
	case t.InputJSON != nil:
		input = *t.InputJSON
		whole := json.Valid([]byte(input)) && isObject([]byte(strings.TrimSpace(input)))
		if !whole && !cut {
			d.errorf(t.value("input_json"), "expected a JSON object, found %s: it may break off only with `stop_reason: max_tokens` or a fault", ticked(input))
		}
	}
	return scriptedBlock{block: ToolUseBlock(t.ID, t.Name, input)}
}

func (d *decoder) contentBlock(b *scriptBlock, cut bool) (scriptedBlock, bool) {
	if b.node == nil {
		return scriptedBlock{}, false
	}
	before := len(d.errs)
	d.exactlyOne(&b.where, "text", "thinking", "tool_use", "raw")
	if b.has("signature") && !b.has("thinking") {
		d.errorf(b.key("signature"), "`signature` goes with `thinking` only")
	}
	if len(d.errs) > before || d.odd[b.node] {
		return scriptedBlock{}, false
	}
	switch {
	case b.Text != nil:
		return d.textBlock("text", b.value("text"), *b.Text), true
	case b.Thinking != nil:
		t := d.textBlock("thinking", b.value("thinking"), *b.Thinking)
		t.block.Signature = b.Signature
		return t, true
	case b.ToolUse != nil:
		return d.toolBlock(b.ToolUse, cut), true
	}
	if b.Raw == nil { // its value was no block, noted already
		return scriptedBlock{}, false
	}
	return scriptedBlock{block: Block{Type: b.Raw.kind, Raw: b.Raw.json}}, true
}

// answerText is a text with places to fill, in order.
type answerText []answerPart

// answerPart is a piece of text as it is, or the name of the view's field that stands there.
type answerPart struct{ literal, field string }

// answerFields are the names that may stand between double braces.
var answerFields = []string{"Directive", "LastText", "ToolResult", "Turn", "Attempt"}

// template reads a text in the syntax of text/template, of which fields and quoted strings are taken and nothing that
// could fail or not end.
func (d *decoder) template(n *yaml.Node, s string) answerText {
	if !strings.Contains(s, "{{") {
		return answerText{{literal: s}}
	}
	trees, err := template.Parse("text", s, "", "", nil)
	if err != nil || len(trees) != 1 {
		d.errorf(n, "bad template in %s: expected fields such as {{.Directive}}; two braces as they are: {{\"{{\"}}", ticked(s))
		return nil
	}
	var out answerText
	for _, node := range trees["text"].Root.Nodes {
		var arg template.Node
		if action, ok := node.(*template.ActionNode); ok && len(action.Pipe.Decl) == 0 && len(action.Pipe.Cmds) == 1 && len(action.Pipe.Cmds[0].Args) == 1 {
			arg = action.Pipe.Cmds[0].Args[0]
		}
		if part, ok := node.(*template.TextNode); ok {
			out = append(out, answerPart{literal: string(part.Text)})
			continue
		}
		switch part := arg.(type) {
		case *template.StringNode:
			out = append(out, answerPart{literal: part.Text})
		case *template.FieldNode:
			name := strings.Join(part.Ident, ".")
			if !slices.Contains(answerFields, name) {
				d.errorf(n, "unknown field %s in a template%s", ticked("."+name), suggest(name, answerFields))
			}
			out = append(out, answerPart{field: name})
		default:
			d.errorf(n, "%s in a template: expected a field such as {{.Directive}}", ticked(node.String()))
		}
	}
	return out
}
