package forkcore

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAgentCall(t *testing.T) {
	tests := []struct {
		name, input string
		mode        Mode
		prompt      string // empty: refused
		message     string
	}{
		{"the least", `{"description":"d","prompt":"p"}`, ModeFork, "p", ""},
		{"by its type", `{"description":"d","prompt":"p","subagent_type":"fork","isolation":"shared"}`, ModeFork, "p", ""},
		{"without a description", `{"prompt":"p"}`, ModeFork, "p", ""},
		{"white space and escapes", " {\"prompt\" : \"\\u003cb>\\n\"} ", ModeFork, "<b>\n", ""},
		{"no prompt", `{"description":"d"}`, ModeFork, "", "prompt is empty"},
		{"blank prompt", `{"prompt":" \n"}`, ModeFork, "", "prompt is empty"},
		{"plain mode", `{"prompt":"p","run_in_background":true}`, ModePlain, "p", ""},
		{"a fork in plain mode", `{"prompt":"p","subagent_type":"fork"}`, ModePlain, "", "forks are off in plain mode"},
		{"coordinator mode", `{"prompt":"p"}`, ModeCoordinator, "", "cannot be started in coordinator mode"},
		{"a model of its own in plain mode", `{"prompt":"p","model":"claude-haiku-5-5"}`, ModePlain, "", "run with this conversation's model"},
		{"another agent", `{"prompt":"p","subagent_type":"Explore"}`, ModeFork, "", `agent type "Explore"`},
		{"its own model (B26)", `{"prompt":"p","model":"claude-haiku-5-5"}`, ModeFork, "", "keeps this conversation's model"},
		{"a worktree", `{"prompt":"p","isolation":"worktree"}`, ModeFork, "", "not available yet"},
		{"unknown isolation", `{"prompt":"p","isolation":"vm"}`, ModeFork, "", `isolation "vm" is unknown`},
		{"unknown member", `{"prompt":"p","effort":"low"}`, ModeFork, "", `unknown field "effort"`},
		{"wrong kind", `{"prompt":1}`, ModeFork, "", "not understood"},
		{"no object", `[]`, ModeFork, "", "not understood"},
		{"nothing", ``, ModeFork, "", "not understood"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, err := ParseAgentCall(ToolCall{ID: "t", Name: AgentToolName, Input: json.RawMessage(tt.input)}, tt.mode)
			if tt.prompt == "" {
				if err == nil || !strings.Contains(err.Error(), tt.message) {
					t.Errorf("error %v, want one with %q", err, tt.message)
				}
				return
			}
			if err != nil || in.Prompt != tt.prompt {
				t.Errorf("ParseAgentCall = %+v, %v; want prompt %q", in, err, tt.prompt)
			}
		})
	}
}

func TestAgentTool(t *testing.T) {
	spec := AgentTool()
	if spec.Name != AgentToolName || spec.ReadOnly || !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(spec.Name) || spec.Description == "" {
		t.Errorf("spec is %+v", spec)
	}
	var schema struct {
		Properties map[string]any
		Required   []string
	}
	if err := json.Unmarshal(spec.InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"description", "prompt"}, schema.Required); d != "" {
		t.Errorf("required (-want +got):\n%s", d)
	}
	// Forks always run in the background: the schema does not offer a choice.
	if _, ok := schema.Properties["run_in_background"]; ok {
		t.Error("the schema offers run_in_background")
	}
	// What the schema offers is understood.
	for name := range schema.Properties {
		_, err := ParseAgentCall(ToolCall{Input: json.RawMessage(`{"prompt":"p","` + name + `":null}`)}, ModeFork)
		if err != nil && name != "prompt" {
			t.Errorf("member %s: %v", name, err)
		}
	}
	if !cmp.Equal(AgentTool(), spec) {
		t.Error("the spec changes between calls")
	}
}

// B27: nothing that changes stands in the system prompt, and no control tag of
// a fork that would make a parent look like one.
func TestSystemPrompt(t *testing.T) {
	s := SystemPrompt(ModeFork)
	if s == "" || s != SystemPrompt(ModeFork) || s != strings.TrimSpace(s) || CleanText(s) != s {
		t.Error("the system prompt is empty, unclean or changes")
	}
	if strings.Contains(s, BoilerplateTag) {
		t.Error("the system prompt has the fork tag")
	}
	if m := regexp.MustCompile(`\b20\d\d\b|ses_|run_|/home|/work|/tmp`).FindString(s); m != "" {
		t.Errorf("the system prompt has %q, which changes", m)
	}
}

// Without forks nothing in the prompt speaks of them.
func TestSystemPromptWithoutForks(t *testing.T) {
	for mode, agents := range map[Mode]bool{ModePlain: true, ModeCoordinator: false} {
		s := SystemPrompt(mode)
		if strings.Contains(strings.ToLower(s), "fork ") || strings.Contains(s, "Agent tool") != agents || strings.Contains(s, "<task-notification>") != agents {
			t.Errorf("%s: %q", mode, s)
		}
	}
	if s := SystemPrompt(ModeFork); strings.Contains(s, "# Agents") || !strings.Contains(s, "# Forks") || !strings.Contains(s, "# Task notifications") {
		t.Errorf("fork: %q", s)
	}
}
