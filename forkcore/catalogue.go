package forkcore

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of thinking. Source: Messages API, thinking.type.
const (
	ThinkingAdaptive     = "adaptive"
	ThinkingEnabled      = "enabled"
	ThinkingDisabled     = "disabled"
	ThinkingBetweenTools = "between_tools"
)

var (
	thinkingKinds = []string{ThinkingAdaptive, ThinkingEnabled, ThinkingDisabled, ThinkingBetweenTools}
	// efforts go up. Source: Messages API, output_config.effort.
	efforts = []string{"low", "medium", "high", "xhigh", "max"}
	// sourceGroups are the groups of values that come from one place.
	sourceGroups = []string{"prices", "cache", "limits", "thinking", "lifecycle"}
)

// DatedPrices are the prices of requests that start at From or later.
type DatedPrices struct {
	From  time.Time // midnight UTC; zero = since ever
	Rates Rates
	// AboveInput and Above are those of ModelInfo.
	AboveInput int64
	Above      Rates
}

// ModelInfo is a model's row in the catalogue. What is zero, nil or empty is not known.
type ModelInfo struct {
	ID     string
	Name   string // for people; the id when there is no other
	Family string // such as "sonnet"
	// Aliases are other ids of the same model, such as one with a date.
	Aliases []string

	// Prices go up by date; none = not known. Rates, AboveInput and Above are those of one date: the last in a row
	// of Model, those asked for in a row of ModelAt.
	Prices []DatedPrices
	Rates  Rates
	// Above replaces Rates for requests whose total input is over AboveInput tokens; 0 = no such tier.
	AboveInput int64
	Above      Rates

	// MinCacheable is the fewest tokens a prefix needs to be cached; 0 = not known. MinCacheableAssumed: nobody
	// published it, it is that of a relative.
	MinCacheable        int64
	MinCacheableAssumed bool
	// Window is how many tokens of input and output one request may have, MaxOutput the most output; 0 = not known.
	Window, MaxOutput int64

	// Thinking are the kinds that it takes; none = not known. AlwaysOn: it cannot be turned off.
	Thinking []string
	AlwaysOn *bool
	// DefaultThinking is the kind of a request that names none; empty = not known.
	DefaultThinking string
	// DisabledMaxEffort is the highest effort at which thinking can be disabled; empty = no limit is known.
	DisabledMaxEffort string
	// Effort says whether it takes an effort, DefaultEffort which one a request has that names none.
	Effort        *bool
	DefaultEffort string
	// ForcedToolChoice says whether tool_choice any and tool are accepted.
	ForcedToolChoice *bool
	// EndOfLife is the day from which it is no longer served; zero = none is known.
	EndOfLife time.Time

	// Sources say where groups of values come from: "prices", "cache", "limits", "thinking" and "lifecycle".
	Sources map[string]string
	// Changed are the fields that a file gave, in its order. Added: the file brought the model.
	Changed []string
	Added   bool
}

// RatesFor picks the tier for a request of total input tokens.
func (m ModelInfo) RatesFor(totalInput int64) Rates {
	if m.AboveInput > 0 && totalInput > m.AboveInput {
		return m.Above
	}
	return m.Rates
}

// Cost prices one request.
func (m ModelInfo) Cost(u Usage) int64 { return m.RatesFor(u.TotalInput()).Cost(u) }

// at is the row with the prices of a request that starts then; priced is false when they are not known.
func (m ModelInfo) at(start time.Time) (row ModelInfo, priced bool) {
	m.Rates, m.AboveInput, m.Above = Rates{}, 0, Rates{}
	for _, p := range m.Prices {
		if !p.From.After(start) {
			m.Rates, m.AboveInput, m.Above, priced = p.Rates, p.AboveInput, p.Above, true
		}
	}
	return m, priced
}

// Thinks reports whether the model takes a kind of thinking; known is false when nobody said.
func (m ModelInfo) Thinks(kind string) (ok, known bool) {
	return slices.Contains(m.Thinking, kind), len(m.Thinking) > 0
}

// CheckSettings adds to bad what the model is known not to take: a kind of thinking ("" = none is sent) or an effort
// ("" = none is sent). What is not known is left to the provider.
func (m ModelInfo) CheckSettings(thinking, effort string, bad *InvalidError) {
	if ok, known := m.Thinks(thinking); thinking != "" && known && !ok {
		bad.Add("thinking", "of type %s is not among those that %s takes; use %s", thinking, m.ID, orList(m.Thinking))
	} else if most := slices.Index(efforts, m.DisabledMaxEffort); thinking == ThinkingDisabled && most >= 0 && slices.Index(efforts, effort) > most {
		bad.Add("thinking", "cannot be disabled on %s at effort %s; use effort %s or lower, or another kind of thinking", m.ID, effort, m.DisabledMaxEffort)
	}
	if effort != "" && m.Effort != nil && !*m.Effort {
		bad.Add("effort", "is not something that %s takes; leave it out", m.ID)
	}
}

// Efforts lists the levels of effort, the lowest first.
func Efforts() []string { return slices.Clone(efforts) }

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Catalogue knows models and their prices. An unknown model has no price; it
// is never free.
type Catalogue struct {
	// AsOf is the day of the table.
	AsOf string
	// File and FileAsOf are the file whose rows lie over the table and its day; empty = none, not told.
	File, FileAsOf string

	models map[string]ModelInfo
	alias  map[string]string
	order  []string
}

// catalogueUnit is the unit of prices in files.
const catalogueUnit = "USD per million tokens"

//go:embed catalogue.json
var catalogueJSON []byte

// EmbeddedCatalogue is the dated table that ships with the program.
// Source: the provider's model, pricing and prompt caching pages as of its AsOf date; each row says which.
func EmbeddedCatalogue() (*Catalogue, error) { return ParseCatalogue(catalogueJSON) }

// ParseCatalogue reads a table in the form of catalogue.json.
func ParseCatalogue(b []byte) (*Catalogue, error) {
	return (&Catalogue{}).merged("catalogue", b, false)
}

// Overlay lays the rows of a file in the form of catalogue.json over a catalogue. A row may bring a new model; of a
// known one the fields given win, and null makes a value unknown. An error is a *CatalogueError.
func (c *Catalogue) Overlay(file string, b []byte) (*Catalogue, error) {
	return c.merged(file, b, true)
}

// LoadCatalogue is the embedded table with a file over it; file "" = the table alone.
func LoadCatalogue(file string) (*Catalogue, error) {
	c, err := EmbeddedCatalogue()
	if err != nil || file == "" {
		return c, err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return c.Overlay(file, b)
}

// Model returns a model's row by id or alias, with its latest prices; ok is false for an unknown id.
func (c *Catalogue) Model(id string) (m ModelInfo, ok bool) {
	if m, ok = c.models[id]; !ok {
		m, ok = c.models[c.alias[id]]
	}
	return m, ok
}

// ModelAt is Model with the prices of a request that starts then; priced is false when they are not known, also for an
// unknown id.
func (c *Catalogue) ModelAt(id string, start time.Time) (m ModelInfo, priced bool) {
	m, _ = c.Model(id)
	return m.at(start)
}

// IDs lists the known models in the table's order.
func (c *Catalogue) IDs() []string { return slices.Clone(c.order) }

// CatalogueError says what is wrong with a catalogue file and where.
type CatalogueError struct {
	File  string
	Line  int // from 1
	Model string
	Field string
	// Message says what was expected.
	Message string
}

func (e *CatalogueError) Error() string {
	s := fmt.Sprintf("%s:%d: ", e.File, e.Line)
	if e.Model != "" {
		s += e.Model + ": "
	}
	if e.Field != "" {
		s += e.Field + ": "
	}
	return s + e.Message
}

// span is a JSON value in a file.
type span struct {
	raw []byte
	at  int // where it begins
}

func (s span) null() bool { return string(s.raw) == "null" }

// fields is members with places. The keys come with the place of the key.
func (s span) fields() iter.Seq2[string, span] {
	return func(yield func(string, span) bool) {
		for at := skipSpace(s.raw, 1); s.raw[at] != '}'; at = skipSpace(s.raw, at) {
			if s.raw[at] == ',' {
				at = skipSpace(s.raw, at+1)
			}
			end := valueEnd(s.raw, at)
			key := keyOf(s.raw[at:end])
			at = skipSpace(s.raw, skipSpace(s.raw, end)+1) // over the colon
			end = valueEnd(s.raw, at)
			if !yield(key, span{s.raw[at:end], s.at + at}) {
				return
			}
			at = end
		}
	}
}

// items is elements with places.
func (s span) items() iter.Seq[span] {
	return func(yield func(span) bool) {
		for at := skipSpace(s.raw, 1); s.raw[at] != ']'; at = skipSpace(s.raw, at) {
			if s.raw[at] == ',' {
				at = skipSpace(s.raw, at+1)
			}
			end := valueEnd(s.raw, at)
			if !yield(span{s.raw[at:end], s.at + at}) {
				return
			}
			at = end
		}
	}
}

// catalogueReader reads one file.
type catalogueReader struct {
	file  string
	doc   []byte
	model string
}

func (r *catalogueReader) bad(at int, field, format string, args ...any) error {
	line := 1 + strings.Count(string(r.doc[:min(at, len(r.doc))]), "\n")
	return &CatalogueError{File: r.file, Line: line, Model: r.model, Field: field, Message: fmt.Sprintf(format, args...)}
}

func (r *catalogueReader) text(name string, v span) (string, error) {
	if !isKind(v.raw, `"`) || plainText(v.raw) == "" {
		return "", r.bad(v.at, name, "want a text in quotes, got %s", shortRaw(v.raw))
	}
	return plainText(v.raw), nil
}

func (r *catalogueReader) day(name string, v span) (time.Time, error) {
	t, err := time.Parse(time.DateOnly, plainText(v.raw))
	if err != nil {
		return t, r.bad(v.at, name, "want a day such as \"2026-11-30\", got %s", shortRaw(v.raw))
	}
	return t, nil
}

func (r *catalogueReader) flag(name string, v span) (bool, error) {
	if string(v.raw) != "true" && string(v.raw) != "false" {
		return false, r.bad(v.at, name, "want true, false or null (not known), got %s", shortRaw(v.raw))
	}
	return string(v.raw) == "true", nil
}

func (r *catalogueReader) tokens(name string, v span) (int64, error) {
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err != nil || n < 1 || n > 1e12 {
		return 0, r.bad(v.at, name, "want a count of tokens from 1, or null (not known), got %s", shortRaw(v.raw))
	}
	return n, nil
}

func (r *catalogueReader) list(name string, v span, known []string) ([]string, error) {
	if !isKind(v.raw, "[") {
		return nil, r.bad(v.at, name, "want a list of texts, got %s", shortRaw(v.raw))
	}
	var out []string
	for item := range v.items() {
		word, err := r.text(name, item)
		if err != nil {
			return nil, err
		}
		if known != nil && !slices.Contains(known, word) {
			return nil, r.bad(item.at, name, "want %s, got %q", orList(known), word)
		}
		if slices.Contains(out, word) {
			return nil, r.bad(item.at, name, "%q stands twice", word)
		}
		out = append(out, word)
	}
	return out, nil
}

func (r *catalogueReader) word(name string, v span, known []string) (string, error) {
	if word := plainText(v.raw); slices.Contains(known, word) {
		return word, nil
	}
	return "", r.bad(v.at, name, "want %s, or null (not known), got %s", orList(known), shortRaw(v.raw))
}

func (r *catalogueReader) object(name string, v span) error {
	if !isKind(v.raw, "{") {
		return r.bad(v.at, name, "want an object, got %s", shortRaw(v.raw))
	}
	seen := keySet{}
	for key, value := range v.fields() {
		if seen.twice(key) {
			return r.bad(value.at, key, "stands twice; give it once")
		}
	}
	return nil
}

// price turns dollars per million tokens into nano-dollars per token: 1 $/M is
// 1,000 nano-dollars. Every published price is a whole number of them.
func (r *catalogueReader) price(name string, v span) (int64, error) {
	usd, err := strconv.ParseFloat(string(v.raw), 64)
	nano := math.Round(usd * 1000)
	if err != nil || !(nano > 0 && nano < 1e12) || math.Abs(usd*1000-nano) > 1e-6 {
		return 0, r.bad(v.at, name, "want US dollars per million tokens, above 0 and in whole thousandths, got %s", shortRaw(v.raw))
	}
	return int64(nano), nil
}

// rates reads the five prices of an object; other is called for its further fields and reports whether it knows them.
func (r *catalogueReader) rates(v span, other func(key string, value span) (bool, error)) (Rates, error) {
	var out Rates
	if err := r.object("prices", v); err != nil {
		return out, err
	}
	missing := []string{"input", "output", "write_5m", "write_1h", "read"}
	to := []*int64{&out.Input, &out.Output, &out.Write5m, &out.Write1h, &out.Read}
	names := slices.Clone(missing)
	for key, value := range v.fields() {
		i := slices.Index(names, key)
		if i < 0 {
			known, err := other(key, value)
			if err != nil {
				return out, err
			}
			if !known {
				return out, r.bad(value.at, "prices."+key, "is not a field of prices; want %s, and from or above", strings.Join(names, ", "))
			}
			continue
		}
		var err error
		if *to[i], err = r.price("prices."+key, value); err != nil {
			return out, err
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == key })
	}
	if len(missing) > 0 {
		return out, r.bad(v.at, "prices", "%s: missing; want all of %s", strings.Join(missing, ", "), strings.Join(names, ", "))
	}
	return out, nil
}

func (r *catalogueReader) prices(v span) ([]DatedPrices, error) {
	if !isKind(v.raw, "[") {
		return nil, r.bad(v.at, "prices", "want a list of prices, the oldest first, or null (not known), got %s", shortRaw(v.raw))
	}
	var out []DatedPrices
	for item := range v.items() {
		var p DatedPrices
		var err error
		p.Rates, err = r.rates(item, func(key string, value span) (known bool, err error) {
			switch key {
			case "from":
				p.From, err = r.day("prices.from", value)
			case "above":
				p.Above, err = r.rates(value, func(key string, value span) (known bool, err error) {
					if key == "total_input" {
						p.AboveInput, err = r.tokens("prices.above.total_input", value)
						return true, err
					}
					return false, nil
				})
				if err == nil && p.AboveInput == 0 {
					err = r.bad(value.at, "prices.above.total_input", "missing; want the count of input tokens over which these prices hold")
				}
			default:
				return false, nil
			}
			return true, err
		})
		if err != nil {
			return nil, err
		}
		if n := len(out); n > 0 && !p.From.After(out[n-1].From) {
			return nil, r.bad(item.at, "prices.from", "want a day after that of the prices before it")
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, r.bad(v.at, "prices", "want at least one entry, or null (not known)")
	}
	return out, nil
}

// fieldNames are the fields of a model, with the group of their source; empty = none.
var fieldNames = []struct{ name, group string }{
	{"id", ""},
	{"name", ""},
	{"family", ""},
	{"aliases", ""},
	{"prices", "prices"},
	{"min_cacheable", "cache"},
	{"min_cacheable_assumed", "cache"},
	{"window", "limits"},
	{"max_output", "limits"},
	{"end_of_life", "lifecycle"},
	{"thinking", "thinking"},
	{"always_on", "thinking"},
	{"default_thinking", "thinking"},
	{"disabled_max_effort", "thinking"},
	{"effort", "thinking"},
	{"default_effort", "thinking"},
	{"forced_tool_choice", "thinking"},
	{"sources", ""},
}

// set takes one field of a row in. null makes it unknown.
func (r *catalogueReader) set(m *ModelInfo, name string, v span) (err error) {
	null := v.null()
	flag := func(to **bool) {
		*to = nil
		if !null {
			var b bool
			b, err = r.flag(name, v)
			*to = &b
		}
	}
	word := func(to *string, known []string) {
		*to = ""
		if !null {
			*to, err = r.word(name, v, known)
		}
	}
	count := func(to *int64) {
		*to = 0
		if !null {
			*to, err = r.tokens(name, v)
		}
	}
	switch name {
	case "name":
		m.Name = m.ID
		if !null {
			m.Name, err = r.text(name, v)
		}
	case "family":
		m.Family = ""
		if !null {
			m.Family, err = r.text(name, v)
		}
	case "aliases":
		m.Aliases = nil
		if !null {
			m.Aliases, err = r.list(name, v, nil)
		}
	case "prices":
		m.Prices = nil
		if !null {
			m.Prices, err = r.prices(v)
		}
	case "min_cacheable":
		count(&m.MinCacheable)
		m.MinCacheableAssumed = false
	case "min_cacheable_assumed":
		m.MinCacheableAssumed = false
		if !null {
			m.MinCacheableAssumed, err = r.flag(name, v)
		}
	case "window":
		count(&m.Window)
	case "max_output":
		count(&m.MaxOutput)
	case "end_of_life":
		m.EndOfLife = time.Time{}
		if !null {
			m.EndOfLife, err = r.day(name, v)
		}
	case "thinking":
		m.Thinking = nil
		if !null {
			m.Thinking, err = r.list(name, v, thinkingKinds)
		}
	case "always_on":
		flag(&m.AlwaysOn)
	case "default_thinking":
		word(&m.DefaultThinking, thinkingKinds)
	case "disabled_max_effort":
		word(&m.DisabledMaxEffort, efforts)
	case "effort":
		flag(&m.Effort)
	case "default_effort":
		word(&m.DefaultEffort, efforts)
	case "forced_tool_choice":
		flag(&m.ForcedToolChoice)
	}
	return err
}

// row reads one model over what was known of it.
func (r *catalogueReader) row(m ModelInfo, v span, overlay bool) (ModelInfo, error) {
	// What is changed below may not be shared with the row before.
	sources := map[string]string{}
	for group, text := range m.Sources {
		sources[group] = text
	}
	m.Sources, m.Changed = sources, slices.Clone(m.Changed)
	groups := map[string]string{}
	for _, f := range fieldNames {
		groups[f.name] = f.group
	}
	for key, value := range v.fields() {
		group, known := groups[key]
		if !known {
			var names []string
			for _, f := range fieldNames {
				names = append(names, f.name)
			}
			return m, r.bad(value.at, key, "is not a field of a model; want %s", orList(names))
		}
		if err := r.set(&m, key, value); err != nil {
			return m, err
		}
		if overlay && group != "" {
			m.Sources[group] = filepath.Base(r.file)
		}
		if overlay && key != "id" {
			m.Changed = append(m.Changed, key)
		}
	}
	for key, value := range v.fields() {
		if key != "sources" {
			continue
		}
		if err := r.object(key, value); err != nil {
			return m, err
		}
		for group, text := range value.fields() {
			if !slices.Contains(sourceGroups, group) {
				return m, r.bad(text.at, "sources."+group, "is not a group of values; want %s", orList(sourceGroups))
			}
			s, err := r.text("sources."+group, text)
			if err != nil {
				return m, err
			}
			m.Sources[group] = s
		}
	}
	fail := func(field, format string, args ...any) (ModelInfo, error) {
		return m, r.bad(v.at, field, format, args...)
	}
	switch {
	case m.Window > 0 && m.Window < m.MaxOutput:
		return fail("window", "want at least max_output, %d, because the window holds the output; got %d", m.MaxOutput, m.Window)
	case m.DefaultThinking != "" && len(m.Thinking) > 0 && !slices.Contains(m.Thinking, m.DefaultThinking):
		return fail("default_thinking", "want one of thinking: %s; got %q", orList(m.Thinking), m.DefaultThinking)
	case m.DefaultEffort != "" && m.Effort != nil && !*m.Effort:
		return fail("default_effort", "want null, because effort is false; got %q", m.DefaultEffort)
	case m.AlwaysOn != nil && *m.AlwaysOn && slices.Contains(m.Thinking, ThinkingDisabled):
		return fail("always_on", "want false, because thinking lists disabled; got true")
	}
	m.Rates, m.AboveInput, m.Above = Rates{}, 0, Rates{}
	if n := len(m.Prices); n > 0 {
		last := m.Prices[n-1]
		m.Rates, m.AboveInput, m.Above = last.Rates, last.AboveInput, last.Above
	}
	return m, nil
}

// merged is the catalogue with a file over it.
func (c *Catalogue) merged(file string, b []byte, overlay bool) (*Catalogue, error) {
	r := &catalogueReader{file: file, doc: b}
	if !json.Valid(b) {
		var whole json.RawMessage
		err := json.Unmarshal(b, &whole)
		at := len(b)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = int(syntax.Offset)
		}
		return nil, r.bad(at, "", "want JSON: %v", err)
	}
	at := skipSpace(b, 0)
	doc := span{b[at:valueEnd(b, at)], at}
	if err := r.object("", doc); err != nil {
		return nil, err
	}
	out := &Catalogue{AsOf: c.AsOf, File: c.File, FileAsOf: c.FileAsOf, models: map[string]ModelInfo{}, alias: map[string]string{}, order: slices.Clone(c.order)}
	for id, m := range c.models {
		out.models[id] = m
	}
	asOf := ""
	places := map[string]int{}
	var rows []span
	for key, v := range doc.fields() {
		var err error
		switch key {
		case "$schema":
			_, err = r.text(key, v)
		case "as_of":
			asOf = plainText(v.raw)
			_, err = r.day(key, v)
		case "unit":
			if plainText(v.raw) != catalogueUnit {
				err = r.bad(v.at, key, "want %q, got %s", catalogueUnit, shortRaw(v.raw))
			}
		case "models":
			if !isKind(v.raw, "[") {
				err = r.bad(v.at, key, "want a list of models, got %s", shortRaw(v.raw))
				break
			}
			rows = slices.Collect(v.items())
		default:
			err = r.bad(v.at, key, "is not a field of a catalogue; want as_of, unit or models")
		}
		if err != nil {
			return nil, err
		}
	}
	for _, v := range rows {
		r.model = ""
		if err := r.object("models", v); err != nil {
			return nil, err
		}
		id := ""
		for key, value := range v.fields() {
			if key == "id" {
				id = plainText(value.raw)
			}
		}
		_, twice := places[id]
		r.model = id
		switch {
		case id == "":
			return nil, r.bad(v.at, "id", "missing or empty; want the model's id, such as \"claude-sonnet-5-5\"")
		case twice:
			return nil, r.bad(v.at, "id", "listed twice; give each model once")
		}
		places[id] = v.at
		m, known := out.models[id]
		if !known {
			m = ModelInfo{ID: id, Name: id, Added: overlay}
			out.order = append(out.order, id)
		}
		m, err := r.row(m, v, overlay)
		if err != nil {
			return nil, err
		}
		out.models[id] = m
	}
	for _, id := range out.order {
		for _, alias := range out.models[id].Aliases {
			owner := out.alias[alias]
			if _, taken := out.models[alias]; taken {
				owner = alias
			}
			if owner != "" {
				r.model = id
				return nil, r.bad(places[id], "aliases", "want ids that no other model has; %q is one of %s", alias, owner)
			}
			out.alias[alias] = id
		}
	}
	if overlay {
		out.File, out.FileAsOf = filepath.Base(file), asOf
	} else {
		out.AsOf = asOf
	}
	return out, nil
}

// MarshalJSON writes the catalogue in the form that it is read from, one field of a model after the other.
func (c *Catalogue) MarshalJSON() ([]byte, error) {
	type row struct {
		ID                  string            `json:"id"`
		Name                string            `json:"name"`
		Family              *string           `json:"family"`
		Aliases             []string          `json:"aliases"`
		Prices              []map[string]any  `json:"prices"`
		MinCacheable        *int64            `json:"min_cacheable"`
		MinCacheableAssumed bool              `json:"min_cacheable_assumed"`
		Window              *int64            `json:"window"`
		MaxOutput           *int64            `json:"max_output"`
		EndOfLife           *string           `json:"end_of_life"`
		Thinking            []string          `json:"thinking"`
		AlwaysOn            *bool             `json:"always_on"`
		DefaultThinking     *string           `json:"default_thinking"`
		DisabledMaxEffort   *string           `json:"disabled_max_effort"`
		Effort              *bool             `json:"effort"`
		DefaultEffort       *string           `json:"default_effort"`
		ForcedToolChoice    *bool             `json:"forced_tool_choice"`
		Sources             map[string]string `json:"sources"`
	}
	out := struct {
		AsOf   *string `json:"as_of,omitempty"`
		Unit   string  `json:"unit"`
		Models []row   `json:"models"`
	}{AsOf: known(c.AsOf), Unit: catalogueUnit}
	for _, id := range c.order {
		m := c.models[id]
		r := row{
			ID: m.ID, Name: m.Name, Family: known(m.Family), Aliases: append([]string{}, m.Aliases...), MinCacheable: known(m.MinCacheable),
			MinCacheableAssumed: m.MinCacheableAssumed, Window: known(m.Window), MaxOutput: known(m.MaxOutput),
			Thinking: m.Thinking, AlwaysOn: m.AlwaysOn, DefaultThinking: known(m.DefaultThinking), DisabledMaxEffort: known(m.DisabledMaxEffort),
			Effort: m.Effort, DefaultEffort: known(m.DefaultEffort), ForcedToolChoice: m.ForcedToolChoice, Sources: m.Sources,
		}
		if !m.EndOfLife.IsZero() {
			r.EndOfLife = known(m.EndOfLife.Format(time.DateOnly))
		}
		for _, p := range m.Prices {
			prices := p.Rates.json()
			if !p.From.IsZero() {
				prices["from"] = p.From.Format(time.DateOnly)
			}
			if p.AboveInput > 0 {
				above := p.Above.json()
				above["total_input"] = p.AboveInput
				prices["above"] = above
			}
			r.Prices = append(r.Prices, prices)
		}
		out.Models = append(out.Models, r)
	}
	return json.Marshal(out)
}

// known is nil for what is not known.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func (r Rates) json() map[string]any {
	usd := func(nano int64) float64 { return float64(nano) / 1000 }
	return map[string]any{"input": usd(r.Input), "output": usd(r.Output), "write_5m": usd(r.Write5m), "write_1h": usd(r.Write1h), "read": usd(r.Read)}
}
