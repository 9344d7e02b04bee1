package modelsim

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// The shapes of a scenario file. A field's yaml tag is its name in the file and in scenario.schema.json; a test compares
// the two. What is behind a pointer tells "not in the file" from a zero.
type (
	scenarioFile struct {
		where
		Description string           `yaml:"description"`
		Options     *scenarioOptions `yaml:"options"`
		Rules       []scenarioRule   `yaml:"rules,required"`
		Fallback    fallback         `yaml:"fallback"`
	}

	// scenarioOptions are the server's settings.
	scenarioOptions struct {
		where
		StartDelay    *duration         `yaml:"start_delay"`
		DeltaDelay    *duration         `yaml:"delta_delay"`
		TTL5m         *duration         `yaml:"ttl_5m"`
		TTL1h         *duration         `yaml:"ttl_1h"`
		MinCacheable  tokenTable        `yaml:"min_cacheable"`
		MaxBody       *int64            `yaml:"max_body"`
		VisibilityLag *duration         `yaml:"visibility_lag"`
		MissRate      *float64          `yaml:"miss_rate"`
		Seed          *int64            `yaml:"seed"`
		Limits        *limitsFile       `yaml:"limits"`
		Credit        *int64            `yaml:"credit"`
		SpendLimit    *int64            `yaml:"spend_limit"`
		Keys          oneOrMore[string] `yaml:"keys"`
	}

	limitsFile struct {
		where
		Requests     int `yaml:"requests_per_minute"`
		InputTokens  int `yaml:"input_tokens_per_minute"`
		OutputTokens int `yaml:"output_tokens_per_minute"`
		Ramp         int `yaml:"ramp_per_second"`
	}

	scenarioRule struct {
		where
		Name   string  `yaml:"name"`
		Match  *match  `yaml:"match"`
		Times  *int    `yaml:"times"`
		Answer *script `yaml:"answer,required"`
		Then   *script `yaml:"then"`
	}

	// match holds conditions that must all be met.
	match struct {
		where
		Directive  *textMatch        `yaml:"directive"`
		LastText   *textMatch        `yaml:"last_text"`
		System     *textMatch        `yaml:"system"`
		Model      *textMatch        `yaml:"model"`
		Turn       *countMatch       `yaml:"turn"`
		Attempt    *countMatch       `yaml:"attempt"`
		ToolResult *resultMatch      `yaml:"tool_result"`
		Tool       oneOrMore[string] `yaml:"tool"`
		Stream     *bool             `yaml:"stream"`
	}

	// script is an answer: blocks and how they are sent.
	script struct {
		where
		Thinking     string             `yaml:"thinking"`
		Text         string             `yaml:"text"`
		ToolUse      oneOrMore[toolUse] `yaml:"tool_use"`
		Content      []scriptBlock      `yaml:"content"`
		StopReason   string             `yaml:"stop_reason"`
		StopDetails  *refusalDetails    `yaml:"stop_details"`
		OutputTokens *int               `yaml:"output_tokens"`
		Usage        *usageOverride     `yaml:"usage"`
		StartDelay   duration           `yaml:"start_delay"`
		DeltaDelay   *duration          `yaml:"delta_delay"`
		PingEvery    duration           `yaml:"ping_every"`
		Fault        *faultFile         `yaml:"fault"`
		blocks       []scriptedBlock    // made of the above by check
	}

	// scriptBlock is one block of an answer's content; exactly one kind is set.
	scriptBlock struct {
		where
		Text      *string   `yaml:"text"`
		Thinking  *string   `yaml:"thinking"`
		Signature string    `yaml:"signature"`
		ToolUse   *toolUse  `yaml:"tool_use"`
		Raw       *rawBlock `yaml:"raw"`
	}

	toolUse struct {
		where
		Name      string       `yaml:"name,required"`
		ID        string       `yaml:"id"`
		Input     *orderedJSON `yaml:"input"`
		InputJSON *string      `yaml:"input_json"`
	}

	refusalDetails struct {
		where
		Category    string `yaml:"category"`
		Explanation string `yaml:"explanation"`
	}

	usageOverride struct {
		where
		InputTokens  int `yaml:"input_tokens"`
		CacheRead    int `yaml:"cache_read_input_tokens"`
		Write5m      int `yaml:"ephemeral_5m_input_tokens"`
		Write1h      int `yaml:"ephemeral_1h_input_tokens"`
		OutputTokens int `yaml:"output_tokens"`
	}

	faultFile struct {
		where
		Kind        string    `yaml:"kind,required"`
		Status      *int      `yaml:"status"`
		Type        *string   `yaml:"type"`
		Message     *string   `yaml:"message"`
		Code        *string   `yaml:"code"`
		RetryAfter  *duration `yaml:"retry_after"`
		AfterEvents *int      `yaml:"after_events"`
		AfterBytes  *int      `yaml:"after_bytes"`
		InRune      *bool     `yaml:"in_rune"`
		Every       *duration `yaml:"every"`
	}
)

// where is embedded in the shapes; it keeps the node for messages about what the decoder alone cannot see.
type where struct{ node *yaml.Node }

// key returns the node of the field's name, or the mapping itself when the field is not in the file.
func (w *where) key(name string) *yaml.Node {
	for i := 0; i+1 < len(w.node.Content); i += 2 {
		if w.node.Content[i].Value == name {
			return w.node.Content[i]
		}
	}
	return w.node
}

// value returns the node of the field's value, or the mapping itself when the field is not in the file.
func (w *where) value(name string) *yaml.Node {
	for i := 0; i+1 < len(w.node.Content); i += 2 {
		if w.node.Content[i].Value == name {
			return w.node.Content[i+1]
		}
	}
	return w.node
}

// has says that the field is in the file.
func (w *where) has(name string) bool { return w.key(name) != w.node }

// duration is a time such as 1.5s.
type duration time.Duration

// durationForm is the same pattern as in the schema: time.ParseDuration would take "-1s" and "0" as well.
var durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`)

func (t *duration) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && durationForm.MatchString(n.Value) {
		if v, err := time.ParseDuration(n.Value); err == nil {
			*t = duration(v)
			return
		}
	}
	d.want(n, "a duration such as 300ms or 1.5s")
}

// oneOrMore is a list that may be written as its only element.
type oneOrMore[T any] []T

func (l *oneOrMore[T]) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		var one T
		d.into(n, &one)
		*l = oneOrMore[T]{one}
		return
	}
	if len(n.Content) == 0 {
		d.errorf(n, "empty list: leave the field out instead")
	}
	d.into(n, (*[]T)(l))
}

// tokenTable maps model ids to tokens.
type tokenTable map[string]int

func (t *tokenTable) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.want(n, "a mapping of model ids to tokens")
		return
	}
	*t = tokenTable{}
	known := make([]string, 0, len(models()))
	for _, m := range models() {
		known = append(known, m.id)
	}
	d.pairs(n, func(key, value *yaml.Node) {
		if !slices.Contains(known, key.Value) {
			d.errorf(key, "unknown model %s%s", ticked(key.Value), suggest(key.Value, known))
			return
		}
		tokens := 0
		d.into(value, &tokens)
		(*t)[key.Value] = tokens
	})
}

// textMatch is a condition on a text: a string to be found in it, or a mapping with one way of comparing.
type textMatch struct {
	where
	Contains string   `yaml:"contains"`
	Equals   *string  `yaml:"equals"`
	Regexp   *pattern `yaml:"regexp"`
}

// plainTextMatch is textMatch without its decodeNode.
type plainTextMatch textMatch

func (m *textMatch) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
			d.want(n, "a text to look for, or a mapping with `contains`, `equals` or `regexp`")
			return
		}
		m.node, m.Contains = n, n.Value
		d.notEmpty(n, n.Value)
		return
	}
	d.into(n, (*plainTextMatch)(m))
	d.exactlyOne(&m.where, "contains", "equals", "regexp")
	if m.has("contains") {
		d.notEmpty(m.value("contains"), m.Contains)
	}
}

func (m *textMatch) match(s string) bool {
	switch {
	case m == nil:
		return true
	case m.Equals != nil:
		return s == *m.Equals
	case m.Regexp != nil:
		return m.Regexp.MatchString(s)
	}
	return strings.Contains(s, m.Contains)
}

// pattern is a regular expression in Go's syntax.
type pattern struct{ *regexp.Regexp }

func (p *pattern) decodeNode(d *decoder, n *yaml.Node) {
	var s string
	if !d.into(n, &s) || !d.notEmpty(n, s) {
		return
	}
	re, err := regexp.Compile(s)
	if err != nil {
		d.errorf(n, "bad regular expression: %s (syntax: RE2, see go doc regexp/syntax)", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		return
	}
	p.Regexp = re
}

// countMatch is a condition on a number that counts from 1: one, several, or a range.
type countMatch struct {
	where
	one []int
	Min *int `yaml:"min"`
	Max *int `yaml:"max"`
}

// plainCountMatch is countMatch without its decodeNode.
type plainCountMatch countMatch

func (m *countMatch) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		var list oneOrMore[int]
		d.into(n, &list)
		m.one = list
		for i, v := range list {
			at := n
			if n.Kind == yaml.SequenceNode {
				at = n.Content[i]
			}
			d.atLeast(at, v, 1)
		}
		return
	}
	d.into(n, (*plainCountMatch)(m))
	if m.Min == nil && m.Max == nil && len(n.Content) == 0 {
		d.errorf(n, "empty range: expected `min`, `max` or both")
	}
	for name, v := range map[string]*int{"min": m.Min, "max": m.Max} {
		if v != nil {
			d.atLeast(m.value(name), *v, 1)
		}
	}
	if m.Min != nil && m.Max != nil && *m.Max < *m.Min {
		d.errorf(m.value("max"), "max %d is below min %d: nothing matches", *m.Max, *m.Min)
	}
}

func (m *countMatch) match(n int) bool {
	if m == nil {
		return true
	}
	if m.one != nil {
		return slices.Contains(m.one, n)
	}
	return (m.Min == nil || n >= *m.Min) && (m.Max == nil || n <= *m.Max)
}

// resultMatch is a condition on the tool results of the last user message: one of them must meet all of it. A string is
// to be found in the result's text.
type resultMatch struct {
	where
	Tool     string   `yaml:"tool"`
	Contains string   `yaml:"contains"`
	Equals   *string  `yaml:"equals"`
	Regexp   *pattern `yaml:"regexp"`
	IsError  *bool    `yaml:"is_error"`
}

// plainResultMatch is resultMatch without its decodeNode.
type plainResultMatch resultMatch

func (m *resultMatch) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
			d.want(n, "a text to look for in the result, or a mapping")
			return
		}
		m.Contains = n.Value
		d.notEmpty(n, n.Value)
		return
	}
	d.into(n, (*plainResultMatch)(m))
	if len(n.Content) == 0 {
		d.errorf(n, "empty match: expected `tool`, `contains`, `equals`, `regexp` or `is_error`")
	}
	d.atMostOne(&m.where, "contains", "equals", "regexp")
	for name, v := range map[string]string{"tool": m.Tool, "contains": m.Contains} {
		if m.has(name) {
			d.notEmpty(m.value(name), v)
		}
	}
}

func (m *resultMatch) match(results []toolResult) bool {
	if m == nil {
		return true
	}
	how := textMatch{Contains: m.Contains, Equals: m.Equals, Regexp: m.Regexp}
	return slices.ContainsFunc(results, func(r toolResult) bool {
		return (m.Tool == "" || r.tool == m.Tool) && (m.IsError == nil || r.isError == *m.IsError) && how.match(r.text)
	})
}

// fallback says what answers when no rule matches: the word error or player, or an answer.
type fallback struct {
	player bool
	answer *script
}

func (f *fallback) decodeNode(d *decoder, n *yaml.Node) {
	words := []string{"error", "player"}
	switch {
	case n.Kind == yaml.MappingNode:
		f.answer = &script{}
		d.into(n, f.answer)
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		d.want(n, "`error`, `player` or an answer")
	case !slices.Contains(words, n.Value):
		d.errorf(n, "unknown fallback %s%s", ticked(n.Value), suggest(n.Value, append(words, "an answer such as {text: …}")))
	default:
		f.player = n.Value == "player"
	}
}

// orderedJSON is a YAML mapping written as JSON: keys in the order of the file, numbers as they stand there.
type orderedJSON json.RawMessage

func (o *orderedJSON) decodeNode(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.want(n, "a mapping (the tool's input)")
		return
	}
	*o = orderedJSON(d.appendJSON(nil, n))
}

// rawBlock is a content block that is sent as it stands: a mapping, or JSON in a string.
type rawBlock struct {
	kind string
	json json.RawMessage
}

func (r *rawBlock) decodeNode(d *decoder, n *yaml.Node) {
	switch {
	case n.Kind == yaml.MappingNode:
		r.json = d.appendJSON(nil, n)
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		raw := strings.TrimSpace(n.Value)
		if !json.Valid([]byte(raw)) || !isObject([]byte(raw)) {
			d.errorf(n, "raw: expected a JSON object with a type, found %s", foundAt(n))
			return
		}
		r.json = json.RawMessage(raw)
	default:
		d.want(n, "a mapping or a JSON object in a string (the block)")
		return
	}
	if d.broken(r.json) {
		return
	}
	switch r.kind = text(lookup(members(r.json), "type")); r.kind {
	case "":
		d.errorf(n, "raw: the block has no `type`")
	case "text", "thinking", "tool_use":
		d.errorf(n, "raw: a block of type %s is written as `%[1]s`, which streams its parts", r.kind)
	}
}
