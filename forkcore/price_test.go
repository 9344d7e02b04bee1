package forkcore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestB43_EachClassIsPricedOnceAtItsOwnRate(t *testing.T) {
	c, err := ParseCatalogue([]byte(`{"as_of":"2026-11-30","models":[{"id":"m","input":3,"output":15,"write_5m":3.75,"write_1h":6,"read":0.30}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := c.Model("m")
	u := Usage{Input: 7, CacheWrite5m: 10_000, CacheWrite1h: 2_000, CacheRead: 40_000, Output: 300}
	if got := m.Cost(u); got != 66_021_000 {
		t.Errorf("cost is %d nano-dollars, want 66,021,000", got)
	}
	for _, tt := range []struct {
		name string
		u    Usage
		want int64
	}{
		{"nothing", Usage{}, 0},
		{"input", Usage{Input: 1}, 3000},
		{"5 m write", Usage{CacheWrite5m: 1}, 3750},
		{"1 h write", Usage{CacheWrite1h: 1}, 6000},
		{"read", Usage{CacheRead: 1}, 300},
		{"output", Usage{Output: 1}, 15000},
	} {
		if got := m.Cost(tt.u); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestB43_UnknownModelHasNoPrice(t *testing.T) {
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"", "claude-sonnet-5-5 ", "claude-sonnet", "gpt"} {
		if m, ok := c.Model(id); ok {
			t.Errorf("Model(%q) = %+v", id, m)
		}
	}
}

// The table beside the provider's own, in nano-dollars a token.
func TestEmbeddedCatalogue(t *testing.T) {
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	if c.AsOf != "2026-11-30" {
		t.Errorf("AsOf = %q", c.AsOf)
	}
	row := func(id string, in, out, w5, w1, read, minimum int64) ModelInfo {
		m := ModelInfo{ID: id, Rates: Rates{Input: in, Output: out, Write5m: w5, Write1h: w1, Read: read}, MinCacheable: minimum, Window: 1_000_000, MaxOutput: 128_000}
		if id == "claude-opus-4-5" || id == "claude-haiku-4-5" {
			m.Window, m.MaxOutput = 200_000, 64_000
		}
		return m
	}
	haiku := row("claude-haiku-5-5", 100, 500, 125, 200, 10, 0)
	haiku.AboveInput, haiku.Above = 100_000, Rates{Input: 500, Output: 2500, Write5m: 625, Write1h: 1000, Read: 50}
	want := []ModelInfo{
		row("claude-fable-5-2", 8000, 40000, 10000, 16000, 200, 512),
		row("claude-mythos-5-2", 8000, 40000, 10000, 16000, 200, 512),
		row("claude-fable-5-1", 10000, 50000, 12500, 20000, 250, 512),
		row("claude-mythos-5-1", 10000, 50000, 12500, 20000, 250, 512),
		row("claude-fable-5", 10000, 50000, 12500, 20000, 1000, 512),
		row("claude-mythos-5", 10000, 50000, 12500, 20000, 1000, 512),
		row("claude-opus-5-5", 4000, 20000, 5000, 8000, 200, 512),
		row("claude-opus-5", 5000, 25000, 6250, 10000, 500, 512),
		row("claude-opus-4-8", 5000, 25000, 6250, 10000, 500, 1024),
		row("claude-opus-4-7", 5000, 25000, 6250, 10000, 500, 2048),
		row("claude-opus-4-6", 5000, 25000, 6250, 10000, 500, 4096),
		row("claude-opus-4-5", 5000, 25000, 6250, 10000, 500, 4096),
		row("claude-sonnet-5-5", 2000, 10000, 2500, 4000, 100, 512),
		row("claude-sonnet-5", 2000, 10000, 2500, 4000, 200, 1024),
		row("claude-sonnet-4-6", 3000, 15000, 3750, 6000, 300, 1024),
		haiku,
		row("claude-haiku-4-5", 1000, 5000, 1250, 2000, 100, 4096),
	}
	var got []ModelInfo
	ids := c.IDs()
	for _, id := range ids {
		m, ok := c.Model(id)
		if !ok {
			t.Errorf("%s is listed and not known", id)
		}
		got = append(got, m)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("catalogue (-want +got):\n%s", d)
	}
	// Writes cost 1.25 and 2 times the input everywhere, reads at most a tenth.
	for _, m := range got {
		for _, r := range []Rates{m.Rates, m.Above} {
			if 4*r.Write5m != 5*r.Input || r.Write1h != 2*r.Input || 10*r.Read > r.Input {
				t.Errorf("%s: multipliers are off: %+v", m.ID, r)
			}
		}
	}
	ids[0] = "changed"
	if c.IDs()[0] == "changed" {
		t.Error("IDs hands out its own slice")
	}
}

// The tier goes by the whole input, reads and writes included, and by the whole request.
func TestHaikuTier(t *testing.T) {
	c, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := c.Model("claude-haiku-5-5")
	tests := []struct {
		name string
		u    Usage
		want int64
	}{
		{"at the edge", Usage{Input: 100_000, Output: 10}, 100_000*100 + 10*500},
		{"one token over", Usage{Input: 100_001, Output: 10}, 100_001*500 + 10*2500},
		{"over by reads and writes", Usage{Input: 1, CacheRead: 60_000, CacheWrite5m: 40_000}, 500 + 60_000*50 + 40_000*625},
		{"output does not count", Usage{Input: 90_000, Output: 20_000}, 90_000*100 + 20_000*500},
	}
	for _, tt := range tests {
		if got := m.Cost(tt.u); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestParseCatalogueRefuses(t *testing.T) {
	const good = `"input":3,"output":15,"write_5m":3.75,"write_1h":6,"read":0.30`
	tests := []struct{ name, table, message string }{
		{"no JSON", `{`, "price table"},
		{"a fraction of a nano-dollar", `{"models":[{"id":"m",` + strings.Replace(good, "0.30", "0.0001", 1) + `}]}`, "m: price 0.0001"},
		{"a price left out", `{"models":[{"id":"m",` + strings.Replace(good, `"read"`, `"raed"`, 1) + `}]}`, "above 0"},
		{"a negative price", `{"models":[{"id":"m",` + strings.Replace(good, "15", "-15", 1) + `}]}`, "above 0"},
		{"a bad tier", `{"models":[{"id":"m",` + good + `,"above":{"total_input":9,"input":1}}]}`, "m above"},
		{"listed twice", `{"models":[{"id":"m",` + good + `},{"id":"m",` + good + `}]}`, "listed twice"},
		{"more output than the window holds", `{"models":[{"id":"m",` + good + `,"window":8,"max_output":9}]}`, "the window holds"},
		{"a negative window", `{"models":[{"id":"m",` + good + `,"window":-1,"max_output":-2}]}`, "counts of tokens"},
		{"a negative output", `{"models":[{"id":"m",` + good + `,"max_output":-1}]}`, "counts of tokens"},
		{"a negative minimum", `{"models":[{"id":"m",` + good + `,"min_cacheable":-1}]}`, "counts of tokens"},
		{"without an id", `{"models":[{` + good + `}]}`, "is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := ParseCatalogue([]byte(tt.table)); err == nil || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("ParseCatalogue = %+v, %v; want an error with %q", c, err, tt.message)
			}
		})
	}
}
