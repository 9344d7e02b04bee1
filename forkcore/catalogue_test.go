package forkcore

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func embedded(t *testing.T) *Catalogue {
	t.Helper()
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func day(t *testing.T, s string) time.Time {
	t.Helper()
	d, err := time.Parse(time.DateOnly, s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The table beside the provider's own, in nano-dollars a token.
func TestEmbeddedCatalogue(t *testing.T) {
	c := embedded(t)
	if c.AsOf != "2026-11-30" || c.File != "" {
		t.Errorf("as of %q with the file %q", c.AsOf, c.File)
	}
	type row struct {
		ID                                string
		In, Out, Write5m, Write1h, Read   int64
		Minimum, Window, MaxOutput        int64
		Thinking, DefaultEffort           string
		Effort, Forced, Assumed, AlwaysOn bool
	}
	const full, large = 1_000_000, 128_000
	want := []row{
		{"claude-fable-5-2", 8000, 40000, 10000, 16000, 200, 512, full, large, "adaptive", "high", true, false, true, true},
		{"claude-mythos-5-2", 8000, 40000, 10000, 16000, 200, 512, full, large, "adaptive", "high", true, false, true, true},
		{"claude-fable-5-1", 10000, 50000, 12500, 20000, 250, 512, full, large, "adaptive", "high", true, false, false, true},
		{"claude-mythos-5-1", 10000, 50000, 12500, 20000, 250, 512, full, large, "adaptive", "high", true, false, false, true},
		{"claude-fable-5", 10000, 50000, 12500, 20000, 1000, 512, full, large, "adaptive", "high", true, true, false, true},
		{"claude-mythos-5", 10000, 50000, 12500, 20000, 1000, 512, full, large, "adaptive", "high", true, true, false, true},
		{"claude-opus-5-5", 4000, 20000, 5000, 8000, 200, 512, full, large, "adaptive", "medium", true, false, false, true},
		{"claude-opus-5", 5000, 25000, 6250, 10000, 500, 512, full, large, "adaptive disabled", "high", true, true, false, false},
		{"claude-opus-4-8", 5000, 25000, 6250, 10000, 500, 1024, full, large, "adaptive disabled", "high", true, true, false, false},
		{"claude-opus-4-7", 5000, 25000, 6250, 10000, 500, 2048, full, large, "adaptive disabled", "high", true, true, false, false},
		{"claude-opus-4-6", 5000, 25000, 6250, 10000, 500, 4096, full, large, "adaptive enabled disabled", "high", true, true, false, false},
		{"claude-opus-4-5", 5000, 25000, 6250, 10000, 500, 4096, 200_000, 64_000, "enabled disabled", "high", true, true, false, false},
		{"claude-sonnet-5-5", 2000, 10000, 2500, 4000, 100, 512, full, large, "adaptive between_tools", "high", true, false, false, false},
		{"claude-sonnet-5", 2000, 10000, 2500, 4000, 200, 1024, full, large, "adaptive disabled", "high", true, true, false, false},
		{"claude-sonnet-4-6", 3000, 15000, 3750, 6000, 300, 1024, full, large, "adaptive enabled disabled", "high", true, true, false, false},
		{"claude-haiku-5-5", 100, 500, 125, 200, 10, 0, full, large, "adaptive disabled", "medium", true, true, false, false},
		{"claude-haiku-4-5", 1000, 5000, 1250, 2000, 100, 4096, 200_000, 64_000, "enabled disabled", "", false, true, false, false},
	}
	var got []row
	ids := c.IDs()
	for _, id := range ids {
		m, ok := c.Model(id)
		if !ok {
			t.Errorf("%s is listed and not known", id)
			continue
		}
		got = append(got, row{
			m.ID, m.Rates.Input, m.Rates.Output, m.Rates.Write5m, m.Rates.Write1h, m.Rates.Read, m.MinCacheable, m.Window, m.MaxOutput,
			strings.Join(m.Thinking, " "), m.DefaultEffort, *m.Effort, *m.ForcedToolChoice, m.MinCacheableAssumed, m.AlwaysOn != nil && *m.AlwaysOn,
		})
		if m.Name == m.ID || m.Family == "" || m.Sources["prices"] == "" || m.Sources["thinking"] == "" || (m.MinCacheable > 0) != (m.Sources["cache"] != "") {
			t.Errorf("%s: name %q, family %q, sources %v", id, m.Name, m.Family, m.Sources)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("catalogue (-want +got):\n%s", d)
	}
	if m, _ := c.Model("claude-haiku-5-5"); m.AboveInput != 100_000 || m.Above != (Rates{Input: 500, Output: 2500, Write5m: 625, Write1h: 1000, Read: 50}) {
		t.Errorf("the dear tier is %+v over %d", m.Above, m.AboveInput)
	}
	if m, _ := c.Model("claude-opus-4-5"); !m.EndOfLife.Equal(day(t, "2027-01-22")) {
		t.Errorf("Opus 4.5 ends on %v", m.EndOfLife)
	}
	// Writes cost 1.25 and 2 times the input everywhere, reads at most a tenth.
	for _, id := range ids {
		m, _ := c.Model(id)
		for _, p := range m.Prices {
			for _, r := range []Rates{p.Rates, p.Above} {
				if 4*r.Write5m != 5*r.Input || r.Write1h != 2*r.Input || 10*r.Read > r.Input {
					t.Errorf("%s: multipliers are off: %+v", id, r)
				}
			}
		}
	}
	ids[0] = "changed"
	if c.IDs()[0] == "changed" {
		t.Error("IDs hands out its own slice")
	}
}

func TestAliasesNameTheSameModel(t *testing.T) {
	c := embedded(t)
	m, ok := c.Model("claude-haiku-4-5-20251001")
	if !ok || m.ID != "claude-haiku-4-5" {
		t.Errorf("the dated id is %q, %v", m.ID, ok)
	}
	if slices.Contains(c.IDs(), "claude-haiku-4-5-20251001") {
		t.Error("an alias is listed beside its model")
	}
}

// A request is priced by when it starts.
func TestPricesHaveDates(t *testing.T) {
	c := embedded(t)
	change := day(t, "2026-10-07")
	u := Usage{CacheRead: 1000}
	for _, tt := range []struct {
		start time.Time
		want  int64
	}{{change.Add(-time.Nanosecond), 200_000}, {change, 100_000}, {time.Time{}, 200_000}, {day(t, "2026-12-01"), 100_000}} {
		m, priced := c.ModelAt("claude-sonnet-5-5", tt.start)
		if got := m.Cost(u); !priced || got != tt.want {
			t.Errorf("at %v: %d, %v, want %d", tt.start, got, priced, tt.want)
		}
	}
	late, err := ParseCatalogue([]byte(`{"models":[{"id":"m","min_cacheable":7,"prices":[{"from":"2026-10-07","input":1,"output":1,"write_5m":1,"write_1h":1,"read":1}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if m, priced := late.ModelAt("m", change.Add(-time.Second)); priced || m.Rates != (Rates{}) || m.MinCacheable != 7 {
		t.Errorf("before its first price a model has %+v, %v", m.Rates, priced)
	}
	if m, priced := late.ModelAt("other", change); priced || m.ID != "" {
		t.Errorf("an unknown model has the row %+v, %v", m, priced)
	}
}

func TestOverlayCatalogue(t *testing.T) {
	base := embedded(t)
	c, err := base.Overlay("/etc/forkyard/models.json", []byte(`{
  "as_of": "2026-12-01",
  "models": [
    {"id": "claude-haiku-5-5", "min_cacheable": 2048},
    {"id": "claude-sonnet-5-5", "prices": null, "thinking": null, "default_thinking": null},
    {"id": "qwen3-coder", "window": 262144, "effort": false, "sources": {"limits": "model card"}}
  ]
}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.AsOf != "2026-11-30" || c.File != "models.json" || c.FileAsOf != "2026-12-01" {
		t.Errorf("as of %s, %s as of %s", c.AsOf, c.File, c.FileAsOf)
	}
	haiku, priced := c.ModelAt("claude-haiku-5-5", day(t, "2026-12-01"))
	if !priced || haiku.MinCacheable != 2048 || haiku.Rates.Input != 100 || haiku.Sources["cache"] != "models.json" || haiku.Added {
		t.Errorf("given fields win and others stay: %+v", haiku)
	}
	if d := cmp.Diff([]string{"min_cacheable"}, haiku.Changed); d != "" {
		t.Error(d)
	}
	sonnet, priced := c.ModelAt("claude-sonnet-5-5", day(t, "2026-12-01"))
	if priced || sonnet.Rates != (Rates{}) || sonnet.Thinking != nil || sonnet.MinCacheable != 512 {
		t.Errorf("null makes unknown: %+v", sonnet)
	}
	added, priced := c.ModelAt("qwen3-coder", day(t, "2026-12-01"))
	if priced || !added.Added || added.Window != 262_144 || added.Name != "qwen3-coder" || added.Sources["limits"] != "model card" || *added.Effort {
		t.Errorf("a new model: %+v", added)
	}
	if ids := c.IDs(); ids[len(ids)-1] != "qwen3-coder" || len(ids) != len(base.IDs())+1 {
		t.Errorf("ids %v", ids)
	}
	if d := cmp.Diff(embedded(t), base, cmp.AllowUnexported(Catalogue{})); d != "" {
		t.Errorf("the table below was changed:\n%s", d)
	}
}

// What is printed can be read again and says the same.
func TestCatalogueRoundTrip(t *testing.T) {
	c, err := embedded(t).Overlay("f.json", []byte(`{"models":[{"id":"new","prices":null},{"id":"claude-opus-5","end_of_life":"2028-01-31","aliases":null}]}`))
	if err != nil {
		t.Fatal(err)
	}
	printed, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCatalogue(printed)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range c.IDs() {
		want, _ := c.Model(id)
		want.Changed, want.Added = nil, false
		got, _ := again.Model(id)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-catalogue +printed and read):\n%s", id, d)
		}
	}
}

func TestCheckSettings(t *testing.T) {
	c := embedded(t)
	for _, tt := range []struct{ model, thinking, effort, want string }{
		{"claude-sonnet-5-5", "between_tools", "max", ""},
		{"claude-sonnet-5-5", "disabled", "", "thinking: of type disabled is not among those that claude-sonnet-5-5 takes; use adaptive or between_tools"},
		{"claude-opus-5-5", "enabled", "", "thinking: of type enabled is not among those that claude-opus-5-5 takes; use adaptive"},
		{"claude-haiku-4-5", "enabled", "low", "effort: is not something that claude-haiku-4-5 takes; leave it out"},
		{"claude-haiku-4-5-20251001", "adaptive", "", "thinking: of type adaptive is not among those that claude-haiku-4-5 takes; use enabled or disabled"},
		{"claude-opus-5", "disabled", "high", ""},
		{"claude-opus-5", "disabled", "xhigh", "thinking: cannot be disabled on claude-opus-5 at effort xhigh; use effort high or lower, or another kind of thinking"},
		{"claude-opus-5", "disabled", "", ""},
		{"nobody-knows-it", "enabled", "max", ""},
		{"claude-haiku-4-5", "", "", ""},
	} {
		m, _ := c.Model(tt.model)
		var bad InvalidError
		m.CheckSettings(tt.thinking, tt.effort, &bad)
		got := ""
		if len(bad.Fields) > 0 {
			got = bad.Error()
		}
		if got != tt.want {
			t.Errorf("%s, %s, %s: %q, want %q", tt.model, tt.thinking, tt.effort, got, tt.want)
		}
	}
}

func TestCatalogueErrorsSayWhere(t *testing.T) {
	const good = `"input":3,"output":15,"write_5m":3.75,"write_1h":6,"read":0.30`
	one := func(fields string) string { return "{\n \"models\": [\n  {\"id\": \"m\",\n   " + fields + "}\n ]\n}" }
	prices := func(fields string) string { return one(`"prices": [{` + fields + `}]`) }
	tests := []struct{ name, table, message string }{
		{"no JSON", "{\n\"models\": [,]}", "f.json:2: want JSON: invalid character ','"},
		{"cut off", "{\n\"models\": [", "f.json:2: want JSON: unexpected end"},
		{"no object", `[]`, "f.json:1: want an object, got []"},
		{"an unknown part", `{"modles": []}`, "f.json:1: modles: is not a field of a catalogue; want as_of, unit or models"},
		{"a bad day", `{"as_of": "yesterday"}`, `f.json:1: as_of: want a day such as "2026-11-30", got "yesterday"`},
		{"another unit", `{"unit": "EUR"}`, `f.json:1: unit: want "USD per million tokens", got "EUR"`},
		{"models are no list", `{"models": {}}`, "f.json:1: models: want a list of models, got {}"},
		{"a model is no object", "{\"models\": [\n7]}", "f.json:2: models: want an object, got 7"},
		{"without an id", "{\"models\": [\n{}]}", "f.json:2: id: missing or empty"},
		{"listed twice", "{\"models\": [{\"id\":\"m\"},\n{\"id\":\"m\"}]}", `f.json:2: m: id: listed twice`},
		{"a field twice", one(`"window": 1, "window": 2`), "f.json:4: window: stands twice"},
		{"an unknown field", one(`"price": 1`), "f.json:4: m: price: is not a field of a model; want id, name,"},
		{"a fraction of a nano-dollar", prices(strings.Replace(good, "0.30", "0.0001", 1)), "f.json:4: m: prices.read: want US dollars per million tokens, above 0 and in whole thousandths, got 0.0001"},
		{"a negative price", prices(strings.Replace(good, "15", "-15", 1)), "m: prices.output: want US dollars"},
		{"a price that is text", prices(strings.Replace(good, "15", `"15"`, 1)), `m: prices.output: want US dollars per million tokens, above 0 and in whole thousandths, got "15"`},
		{"a price left out", prices(strings.Replace(good, `,"read":0.30`, "", 1)), "m: prices: read: missing; want all of input, output, write_5m, write_1h, read"},
		{"a price misspelt", prices(strings.Replace(good, `"read"`, `"raed"`, 1)), "m: prices.raed: is not a field of prices"},
		{"prices that are no list", one(`"prices": {` + good + `}`), "m: prices: want a list of prices"},
		{"no prices", one(`"prices": []`), "m: prices: want at least one entry"},
		{"prices out of order", one(`"prices": [{"from":"2026-10-07",` + good + `},{` + good + `}]`), "m: prices.from: want a day after"},
		{"a bad tier", prices(good + `,"above":{"total_input":9,"input":1}`), "m: prices: output, write_5m, write_1h, read: missing"},
		{"a tier without its limit", prices(good + `,"above":{` + good + `}`), "m: prices.above.total_input: missing"},
		{"more output than the window holds", one(`"window":8,"max_output":9`), "f.json:3: m: window: want at least max_output, 9"},
		{"a negative window", one(`"window":-1`), "m: window: want a count of tokens from 1, or null (not known), got -1"},
		{"zero for not known", one(`"min_cacheable":0`), "m: min_cacheable: want a count of tokens from 1, or null (not known), got 0"},
		{"an unknown kind of thinking", one(`"thinking":["deep"]`), `m: thinking: want adaptive, enabled, disabled or between_tools, got "deep"`},
		{"a kind twice", one(`"thinking":["adaptive","adaptive"]`), `m: thinking: "adaptive" stands twice`},
		{"a default that it does not take", one(`"thinking":["adaptive"],"default_thinking":"disabled"`), `m: default_thinking: want one of thinking: adaptive; got "disabled"`},
		{"an effort of a model without", one(`"effort":false,"default_effort":"low"`), "m: default_effort: want null"},
		{"always on and disabled", one(`"thinking":["disabled"],"always_on":true`), "m: always_on: want false"},
		{"an unknown effort", one(`"default_effort":"extreme"`), `m: default_effort: want low, medium, high, xhigh or max, or null (not known), got "extreme"`},
		{"a flag that is text", one(`"effort":"yes"`), `m: effort: want true, false or null (not known), got "yes"`},
		{"an unknown group", one(`"sources":{"price":"x"}`), "m: sources.price: is not a group of values; want prices, cache, limits, thinking or lifecycle"},
		{"an alias that is a model", `{"models":[{"id":"m","aliases":["n"]},{"id":"n"}]}`, `f.json:1: m: aliases: want ids that no other model has; "n" is one of n`},
		{"an alias of two", `{"models":[{"id":"m","aliases":["x"]},{"id":"n","aliases":["x"]}]}`, `f.json:1: n: aliases: want ids that no other model has; "x" is one of m`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := (&Catalogue{}).Overlay("f.json", []byte(tt.table))
			var where *CatalogueError
			if err == nil || !errors.As(err, &where) || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("Overlay = %+v, %v; want an error with %q", c, err, tt.message)
			}
		})
	}
}

func FuzzOverlayCatalogue(f *testing.F) {
	f.Add(catalogueJSON)
	f.Add([]byte(`{"models":[{"id":"m","prices":null,"sources":{"prices":"x"}}]}`))
	f.Add([]byte("{\n\"models\":[{\"id\":\"\\u0041\",\"thinking\":[ ] } ] }"))
	base, err := EmbeddedCatalogue()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := base.Overlay("f", b)
		if err != nil {
			if _, ok := errors.AsType[*CatalogueError](err); !ok {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		printed, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseCatalogue(printed)
		if err != nil {
			t.Fatalf("what was printed is refused: %v\n%s", err, printed)
		}
		if d := cmp.Diff(c.IDs(), again.IDs()); d != "" {
			t.Fatal(d)
		}
	})
}
