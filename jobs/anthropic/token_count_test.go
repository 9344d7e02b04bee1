package anthropic

import (
	"testing"

	"forkyard/forkcore"
)

func TestTokenCount(t *testing.T) {
	for _, tt := range []struct {
		name         string
		start, delta string
		want         forkcore.Usage
		known        bool
	}{
		{
			"B42 delta repeats the input", `{"input_tokens":9,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500,"output_tokens":1}`,
			`{"input_tokens":9,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500,"output_tokens":16}`,
			forkcore.Usage{Input: 9, CacheWrite5m: 500, CacheRead: 1000, Output: 16},
			true,
		},
		{
			"B42 delta without input keeps the start's", `{"input_tokens":9,"cache_read_input_tokens":1000,"cache_creation_input_tokens":500,"output_tokens":1}`,
			`{"output_tokens":16}`,
			forkcore.Usage{Input: 9, CacheWrite5m: 500, CacheRead: 1000, Output: 16},
			true,
		},
		{"delta with null input", `{"input_tokens":9,"output_tokens":1}`, `{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":16}`, forkcore.Usage{Input: 9, Output: 16}, true},
		{"grown by a server tool", `{"input_tokens":9,"output_tokens":1}`, `{"input_tokens":900,"output_tokens":16}`, forkcore.Usage{Input: 900, Output: 16}, true},
		{
			"split by TTL", `{"input_tokens":1,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}`,
			`{"output_tokens":2}`,
			forkcore.Usage{Input: 1, CacheWrite5m: 10, CacheWrite1h: 20, Output: 2},
			true,
		},
		{"split only", `{"input_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20}}`, `{}`, forkcore.Usage{Input: 1, CacheWrite5m: 10, CacheWrite1h: 20}, true},
		{"total larger than the split", `{"cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":20}}`, `{}`, forkcore.Usage{CacheWrite5m: 30, CacheWrite1h: 20}, true},
		{"nothing in start, all in delta", `{"input_tokens":0,"output_tokens":0}`, `{"input_tokens":5,"cache_read_input_tokens":7,"output_tokens":3}`, forkcore.Usage{Input: 5, CacheRead: 7, Output: 3}, true},
		{"zeros in delta", `{"input_tokens":5,"cache_read_input_tokens":7,"output_tokens":0}`, `{"input_tokens":0,"cache_read_input_tokens":0,"cache_creation_input_tokens":0,"output_tokens":3}`, forkcore.Usage{Input: 5, CacheRead: 7, Output: 3}, true},
		{"no usage", ``, ``, forkcore.Usage{}, false},
		{"output only", `{"output_tokens":1}`, `{"output_tokens":3}`, forkcore.Usage{Output: 3}, false},
		{"nonsense", `{"input_tokens":-4,"output_tokens":"x","cache_creation":7}`, `[]`, forkcore.Usage{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c tokenCount
			c.update([]byte(tt.start))
			c.update([]byte(tt.delta))
			if got := c.usage(); got != tt.want || c.known() != tt.known {
				t.Errorf("got %+v, known %v; want %+v, known %v", got, c.known(), tt.want, tt.known)
			}
		})
	}
}
