package forkcore

import "testing"

func TestB43_EachClassIsPricedOnceAtItsOwnRate(t *testing.T) {
	c, err := ParseCatalogue([]byte(`{"as_of":"2026-11-30","models":[{"id":"m","prices":[{"input":3,"output":15,"write_5m":3.75,"write_1h":6,"read":0.30}]}]}`))
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
