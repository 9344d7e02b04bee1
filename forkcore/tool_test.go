package forkcore

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestToolCallHeadline(t *testing.T) {
	tests := []struct{ name, tool, input, want string }{
		{"pattern", "Grep", `{"path":"src","pattern":"TODO|FIXME"}`, "TODO|FIXME"},
		{"file", "Read", `{"file_path":"a/b.go","offset":3}`, "a/b.go"},
		{"command over description", "Bash", `{"description":"Run tests","command":"go test\n ./..."}`, "go test ./..."},
		{"description", "Agent", `{"prompt":"long","description":"Check the docs"}`, "Check the docs"},
		{"nothing", "Glob", `{"x":1}`, ""},
		{"other type", "Read", `{"file_path":7}`, ""},
		{"no object", "Read", `[]`, ""},
		{"no json", "Read", `{`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := (ToolCall{Name: tt.tool, Input: json.RawMessage(tt.input)}).Headline(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	long := ToolCall{Name: "Bash", Input: json.RawMessage(`{"command":"` + strings.Repeat("ä", 200) + `"}`)}.Headline()
	if len(long) > 120 || !strings.HasPrefix(long, "ä") {
		t.Errorf("headline of %d bytes: %q", len(long), long)
	}
}
