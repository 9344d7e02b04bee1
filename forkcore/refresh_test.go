package forkcore

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestRefreshPays(t *testing.T) {
	rates := Rates{Input: 3000, Write5m: 3750, Write1h: 6000, Read: 300, Output: 15000}
	entry := func(ttl string, tokens int64) CacheEntry { return CacheEntry{TTL: ttl, Tokens: tokens} }
	for _, tt := range []struct {
		name  string
		entry CacheEntry
		spent int64
		want  bool
	}{
		{"the first time", entry("5m", 1000), 0, true},
		{"ten reads cost less than one write", entry("5m", 1000), 10 * 300_000, true},
		{"eleven do not", entry("5m", 1000), 11 * 300_000, false},
		{"an hour costs more to write", entry("1h", 1000), 11 * 300_000, true},
		{"nothing is held", entry("5m", 0), 0, false},
	} {
		if got := RefreshPays(rates, tt.entry, tt.spent); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if RefreshPays(Rates{}, entry("5m", 1000), 0) {
		t.Error("without a price it pays")
	}
}

func TestPrewarmable(t *testing.T) {
	for raw, want := range map[string]bool{
		"": true, `{"type":"adaptive"}`: true, `{"type":"disabled"}`: true, `{"type":"enabled","budget_tokens":2000}`: false, `{"type":"any"}`: false, `nonsense`: false,
	} {
		if got := (Params{Thinking: json.RawMessage(raw)}).Prewarmable(); got != want {
			t.Errorf("thinking %s: %v, want %v", raw, got, want)
		}
	}
	if (Params{ToolChoice: json.RawMessage(`{"type":"tool","name":"x"}`)}).Prewarmable() {
		t.Error("a forced tool is pre-warmable")
	}
}

// A pre-warm request differs from the one before in its close alone.
func TestPrewarmBody(t *testing.T) {
	p := NewPrefix(EncodeHead(Params{Model: "m"}, nil, "s"))
	m, err := ParseMessage(EncodeMessage(RoleUser, AppendTextBlock(nil, "hello")))
	if err != nil {
		t.Fatal(err)
	}
	p = p.Append(m)
	body, err := p.Body(nil, Params{Model: "m", MaxTokens: 100}, nil)
	if err != nil {
		t.Fatal(err)
	}
	warm, err := p.Body(nil, Params{Model: "m"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	prefix, close, _ := strings.Cut(string(body.Bytes()), `],"max_tokens"`)
	if got := string(warm.Bytes()); got != prefix+`],"max_tokens":0}` || close != `:100,"stream":true}` {
		t.Errorf("pre-warm %s beside %s", got, body.Bytes())
	}
}
