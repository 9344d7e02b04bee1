package forkcore

import "encoding/json"

// ToolSpec is what the model is told about one tool. The tools array of a
// session is encoded from specs once, at the session's first request, and its
// bytes are latched from then on.
type ToolSpec struct {
	// Name matches ^[a-zA-Z0-9_-]{1,64}$.
	Name string
	// Description is the text the model reads.
	Description string
	// InputSchema is a JSON Schema object. It is sent as these very bytes.
	InputSchema json.RawMessage
	// ReadOnly tools may run in parallel and may be rerun after a crash.
	ReadOnly bool
}

// ToolCall is one tool_use block of an assistant message.
type ToolCall struct {
	ID   string
	Name string
	// Input is the JSON object exactly as the model streamed it.
	Input json.RawMessage
}

// ToolResult is what a tool gave back. A failing tool is a result with
// IsError, never a Go error: the model reads it and goes on.
type ToolResult struct {
	Text    string
	IsError bool
}

// headlineKeys name the member of a tool's input that says most about the call, the best first.
var headlineKeys = []string{"description", "command", "file_path", "pattern", "path", "task_id", "to", "prompt"}

// Headline says in one line of at most 120 bytes what a call asks for: the command, the file, the pattern. It is for
// people only and empty when the input has nothing of that kind.
func (c ToolCall) Headline() string {
	var input map[string]json.RawMessage
	_ = json.Unmarshal(c.Input, &input) // what is no object says nothing
	keys := headlineKeys
	if c.Name == "Bash" {
		keys = keys[1:] // what is run matters more than what the model says of it
	}
	for _, key := range keys {
		if line := Headline(CleanText(stringOf(input[key])), 120); line != "" {
			return line
		}
	}
	return ""
}
