package modelsim

// Usage is the usage object of the API; the three input classes are disjoint and sum up to the whole input.
type Usage struct {
	InputTokens              int            `json:"input_tokens"`
	CacheCreationInputTokens int            `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int            `json:"cache_read_input_tokens"`
	CacheCreation            CacheCreation  `json:"cache_creation"`
	OutputTokens             int            `json:"output_tokens"`
	OutputTokensDetails      *OutputDetails `json:"output_tokens_details,omitempty"`
	ServiceTier              string         `json:"service_tier,omitempty"`
	Speed                    string         `json:"speed,omitempty"`
}

// CacheCreation splits the written tokens by lifetime; the sum is CacheCreationInputTokens.
type CacheCreation struct {
	Ephemeral5mInputTokens int `json:"ephemeral_5m_input_tokens"`
	Ephemeral1hInputTokens int `json:"ephemeral_1h_input_tokens"`
}

// OutputDetails splits the output.
type OutputDetails struct {
	ThinkingTokens int `json:"thinking_tokens"`
}

// bill computes the input side of usage. A is the end of the longest hit, B the last 1-hour mark after A (else A), C the
// last mark: A is read, B-A written for an hour, C-B for five minutes, the rest is plain input.
func (p *prompt) bill(v *verdict) Usage {
	total, a := 0, 0
	if n := len(v.sums); n > 0 {
		total = v.sums[n-1]
	}
	if v.hit >= 0 {
		a = v.sums[v.hit]
	}
	b, c := a, a
	for _, i := range v.marked {
		if i <= v.hit {
			continue
		}
		if p.positions[i].ttl() == ttl1h {
			b = v.sums[i]
		}
		c = v.sums[i]
	}
	return Usage{
		InputTokens: total - c, CacheReadInputTokens: a, CacheCreationInputTokens: c - a,
		CacheCreation: CacheCreation{Ephemeral5mInputTokens: c - b, Ephemeral1hInputTokens: b - a},
		OutputTokens:  1, ServiceTier: "standard", Speed: p.speed,
	}
}
