package modelsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// ScenarioError is one mistake in a scenario file.
type ScenarioError struct {
	// File is the name that was given, Line and Column count from 1 (columns in characters).
	File         string
	Line, Column int
	// Message says what was found and what was expected.
	Message string
	// Source is the line of the file, "" when there is none.
	Source string
}

// Error is file:line:column: message, then the line with a mark below the place.
func (e *ScenarioError) Error() string {
	head := fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
	source := []rune(strings.ReplaceAll(e.Source, "\t", " "))
	if len(bytes.TrimSpace([]byte(e.Source))) == 0 {
		return head
	}
	at := min(e.Column-1, len(source))
	const width = 100
	from := max(0, at-width/2)
	to := min(len(source), from+width)
	return fmt.Sprintf("%s\n%5d | %s\n      | %s^", head, e.Line, string(source[from:to]), strings.Repeat(" ", at-from))
}

// ScenarioErrors are all mistakes of a file that could be told apart, in the order of the file.
type ScenarioErrors []*ScenarioError

// Error joins the mistakes with newlines.
func (l ScenarioErrors) Error() string {
	lines := make([]string, len(l))
	for i, e := range l {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Bounds on a file: what a person writes stays far below, and a hostile one costs little.
const (
	scenarioBytes = 1 << 20
	scenarioNodes = 100_000 // visits: an alias counts each time
	scenarioDepth = 100
)

// decoder fills the shapes from YAML nodes and gathers every mistake on the way.
type decoder struct {
	name  string
	lines []string
	errs  ScenarioErrors
	// An alias inside its own anchor would never end, hence the bounds; stopped says that one was reached.
	depth, visits int
	stopped       bool
	// odd are the mappings with an unknown field: what seems to be missing there may be what it was meant to be.
	odd map[*yaml.Node]bool
}

// decodeScenario reads data into f. The result is sorted by place; nil when all is well.
func decodeScenario(name string, data []byte, f *scenarioFile) ScenarioErrors {
	d := &decoder{name: name, odd: map[*yaml.Node]bool{}}
	if len(data) > scenarioBytes {
		d.at(1, 1, "the file has %d bytes: at most %d are read", len(data), scenarioBytes)
		return d.errs
	}
	d.lines = yamlLines(data)
	if root := d.document(data); root != nil {
		d.into(root, f)
		if !d.stopped && f.node != nil {
			d.checkFile(f)
		}
	}
	slices.SortStableFunc(d.errs, func(a, b *ScenarioError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return d.errs
}

// yamlLines cuts data where the YAML parser counts lines, which is not at line feeds alone.
func yamlLines(data []byte) []string {
	breaks := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.Split(breaks.Replace(string(data)), "\n")
}

// document parses the one YAML document; nil with an error noted when it cannot be read.
func (d *decoder) document(data []byte) *yaml.Node {
	for i, line := range d.lines { // the library gives no position for these
		for j, r := range []rune(line) {
			if r == utf8.RuneError && !utf8.ValidString(line) || r < ' ' && r != '\t' || r == 0x7f {
				d.at(i+1, j+1, "found a byte that is not text (%q): expected UTF-8 without control characters", r)
				return nil
			}
		}
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		d.at(1, 1, "%v", err)
		return nil
	}
	var doc, second yaml.Node
	switch err := loader.Load(&doc); {
	case errors.Is(err, io.EOF):
		d.at(1, 1, "the file is empty: expected a mapping with `rules`")
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntax(err)
		return nil
	default:
		d.errorf(&second, "found a second document: expected one scenario in a file")
		return nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		d.at(1, 1, "the file is empty: expected a mapping with `rules`")
		return nil
	}
	return doc.Content[0]
}

// syntax notes an error of the YAML parser.
func (d *decoder) syntax(err error) {
	var bad *yaml.LoadError
	if !errors.As(err, &bad) {
		d.at(1, 1, "not YAML: %v", err)
		return
	}
	message := bad.Message
	if bad.ContextMsg != "" {
		message = fmt.Sprintf("%s (%s", message, bad.ContextMsg)
		if bad.ContextMark.Line > 0 && bad.ContextMark.Line != bad.Mark.Line {
			message += fmt.Sprintf(" that begins at line %d", bad.ContextMark.Line)
		}
		message += ")"
	}
	if strings.Contains(message, "cannot start any token") && bad.Mark.Line > 0 && bad.Mark.Line <= len(d.lines) && strings.HasPrefix(d.lines[bad.Mark.Line-1], "\t") {
		message = "found a tab: YAML is indented with spaces"
	}
	d.at(bad.Mark.Line, bad.Mark.Column, "not YAML: %s", message)
}

// at notes an error at a place. A second one at the same place would follow from the first.
func (d *decoder) at(line, column int, format string, args ...any) {
	e := &ScenarioError{File: d.name, Line: max(line, 1), Column: max(column, 1), Message: fmt.Sprintf(format, args...)}
	if slices.ContainsFunc(d.errs, func(old *ScenarioError) bool { return old.Line == e.Line && old.Column == e.Column }) {
		return
	}
	if e.Line <= len(d.lines) {
		e.Source = d.lines[e.Line-1]
	}
	d.errs = append(d.errs, e)
}

// errorf notes an error at a node.
func (d *decoder) errorf(n *yaml.Node, format string, args ...any) {
	d.at(n.Line, n.Column, format, args...)
}

// want notes that n is of another kind than expected.
func (d *decoder) want(n *yaml.Node, expected string) {
	d.errorf(n, "expected %s, found %s", expected, foundAt(n))
}

// nodeDecoder is a shape that reads its own node.
type nodeDecoder interface {
	decodeNode(d *decoder, n *yaml.Node)
}

// into decodes n into the value that to points to. It reports whether that went without a new error.
func (d *decoder) into(n *yaml.Node, to any) bool {
	before := len(d.errs)
	d.decode(n, reflect.ValueOf(to).Elem())
	return len(d.errs) == before
}

func (d *decoder) decode(n *yaml.Node, v reflect.Value) {
	n, leave := d.enter(n)
	if n == nil {
		return
	}
	defer leave()
	if n.Tag == "!!null" {
		d.want(n, "a value")
		return
	}
	if custom, ok := v.Addr().Interface().(nodeDecoder); ok {
		custom.decodeNode(d, n)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(n, v.Elem())
	case reflect.Struct:
		d.decodeStruct(n, v)
	case reflect.Slice:
		d.decodeSlice(n, v)
	default:
		d.decodeScalar(n, v)
	}
}

// enter follows aliases and keeps the bounds. It returns nil when the node is not to be read.
func (d *decoder) enter(n *yaml.Node) (*yaml.Node, func()) {
	d.visits++
	if d.stopped {
		return nil, nil
	}
	if d.visits > scenarioNodes || d.depth > scenarioDepth {
		d.stopped = true
		d.errorf(n, "nested too deeply, or too many aliases: at most %d levels and %d values", scenarioDepth, scenarioNodes)
		return nil, nil
	}
	d.depth++
	for range scenarioDepth {
		if n.Kind != yaml.AliasNode {
			break
		}
		n = n.Alias
	}
	return n, func() { d.depth-- }
}

func (d *decoder) decodeScalar(n *yaml.Node, v reflect.Value) {
	switch kind := v.Kind(); {
	case kind == reflect.String && n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		v.SetString(n.Value)
	case kind == reflect.String && n.Kind == yaml.ScalarNode:
		d.errorf(n, "expected a text, found %s: put it in quotes", foundAt(n))
	case kind == reflect.String:
		d.want(n, "a text")
	case kind == reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			d.want(n, "true or false")
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case kind == reflect.Int || kind == reflect.Int64:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
			d.want(n, "a whole number")
			return
		}
		if i < 0 {
			d.errorf(n, "expected a number of at least 0, found %d", i)
		}
		v.SetInt(i)
	case kind == reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || n.Tag != "!!float" && n.Tag != "!!int" || err != nil || f != f {
			d.want(n, "a number")
			return
		}
		v.SetFloat(f)
	default:
		panic("scenario shapes hold no " + v.Type().String())
	}
}

func (d *decoder) decodeSlice(n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.want(n, "a list")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, el := range n.Content {
		d.decode(el, v.Index(i))
	}
}

func (d *decoder) decodeStruct(n *yaml.Node, v reflect.Value) {
	names, byName := fieldsOf(v)
	if n.Kind != yaml.MappingNode {
		d.want(n, "a mapping with "+alternatives(names))
		return
	}
	if w := v.FieldByName("where"); w.IsValid() {
		v.Addr().Interface().(interface{ keep(*yaml.Node) }).keep(n)
	}
	present := map[string]bool{}
	d.pairs(n, func(key, value *yaml.Node) {
		f, ok := byName[key.Value]
		if !ok {
			d.errorf(key, "unknown field %s%s", ticked(key.Value), suggest(key.Value, names))
			d.odd[n] = true
			return
		}
		present[key.Value] = true
		d.decode(value, f.value)
	})
	for _, name := range names {
		if byName[name].required && !present[name] && !d.odd[n] {
			d.errorf(n, "`%s` is missing", name)
		}
	}
}

// keep remembers the node of a shape.
func (w *where) keep(n *yaml.Node) { w.node = n }

// pairs visits the keys and values of a mapping; a key that stands twice is an error.
func (d *decoder) pairs(n *yaml.Node, visit func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.want(key, "a name")
			continue
		}
		if line, twice := seen[key.Value]; twice {
			d.errorf(key, "%s stands twice: first at line %d", ticked(key.Value), line)
			continue
		}
		seen[key.Value] = key.Line
		visit(key, value)
	}
}

type shapeField struct {
	value    reflect.Value
	required bool
}

// fieldsOf returns the names of a shape's fields in order, and the fields.
func fieldsOf(v reflect.Value) ([]string, map[string]shapeField) {
	var names []string
	byName := map[string]shapeField{}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag.Get("yaml")
		if tag == "" {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		names = append(names, name)
		byName[name] = shapeField{v.Field(i), option == "required"}
	}
	return names, byName
}

// appendJSON writes n as JSON: keys in the order of the file, numbers with their digits.
func (d *decoder) appendJSON(out []byte, n *yaml.Node) []byte {
	n, leave := d.enter(n)
	if n == nil {
		return out
	}
	defer leave()
	switch {
	case n.Kind == yaml.MappingNode:
		out = append(out, '{')
		first := true
		d.pairs(n, func(key, value *yaml.Node) {
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(appendString(out, key.Value), ':')
			out = d.appendJSON(out, value)
		})
		return append(out, '}')
	case n.Kind == yaml.SequenceNode:
		out = append(out, '[')
		for i, el := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			out = d.appendJSON(out, el)
		}
		return append(out, ']')
	}
	switch n.Tag {
	case "!!null":
		return append(out, "null"...)
	case "!!bool":
		return append(out, strings.ToLower(n.Value)...)
	case "!!int", "!!float":
		if !json.Valid([]byte(n.Value)) {
			d.errorf(n, "%s is not a number of JSON: write it in decimal digits, or in quotes", ticked(n.Value))
			return append(out, '0')
		}
		return append(out, n.Value...)
	}
	return appendString(out, n.Value)
}

// appendString writes s as a JSON string; < > & stay as they are.
func appendString(out []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // strings always encode
	return append(out, bytes.TrimRight(buf.Bytes(), "\n")...)
}

// broken says that what appendJSON wrote is not whole, because an error was noted on the way.
func (d *decoder) broken(raw []byte) bool { return d.stopped || !json.Valid(raw) }

// notEmpty refuses an empty text, which would match everything.
func (d *decoder) notEmpty(n *yaml.Node, s string) bool {
	if s == "" {
		d.errorf(n, "empty text: it would match everything")
	}
	return s != ""
}

func (d *decoder) atLeast(n *yaml.Node, v, least int) {
	if v < least {
		d.errorf(n, "expected a number of at least %d, found %d", least, v)
	}
}

// exactlyOne refuses a mapping with none or several of the fields.
func (d *decoder) exactlyOne(w *where, names ...string) {
	if w.node == nil {
		return
	}
	if !slices.ContainsFunc(names, w.has) && !d.odd[w.node] {
		d.errorf(w.node, "expected one of %s", alternatives(names))
	}
	d.atMostOne(w, names...)
}

func (d *decoder) atMostOne(w *where, names ...string) {
	if w.node == nil {
		return
	}
	first := ""
	for _, name := range names {
		switch {
		case !w.has(name):
		case first == "":
			first = name
		default:
			d.errorf(w.key(name), "`%s` beside `%s`: expected one of %s", name, first, alternatives(names))
		}
	}
}

// foundAt names what stands at a node.
func foundAt(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + ticked(n.Value)
	case "!!bool":
		return "the boolean " + ticked(n.Value)
	case "!!str":
		return "the text " + ticked(n.Value)
	}
	return ticked(n.Value)
}

// ticked shows a short form of s in backquotes.
func ticked(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
	if len(s) > 60 {
		s = prefix(s, 57) + "…"
	}
	return "`" + s + "`"
}

// suggest ends a message about an unknown name: the nearest valid one, or all of them.
func suggest(got string, valid []string) string {
	best, least := "", len(got)/3+2
	for _, name := range valid {
		if n := editDistance(got, name); n < least {
			best, least = name, n
		}
	}
	if best != "" {
		return fmt.Sprintf(": did you mean `%s`?", best)
	}
	return ": expected " + alternatives(valid)
}

// alternatives renders a, b or c.
func alternatives(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "`" + name + "`"
	}
	if len(out) < 2 {
		return strings.Join(out, "")
	}
	return strings.Join(out[:len(out)-1], ", ") + " or " + out[len(out)-1]
}

// editDistance counts the inserted, removed, changed and swapped neighbouring bytes between a and b. Names are short;
// for a long one the difference in length is enough to tell that it is none.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
