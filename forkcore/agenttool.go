package forkcore

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed prompt.md
var systemPrompt string

// SystemPrompt is the text of the system block of a session in this mode; the
// parts about forks are there only where forks are on. Nothing in it changes:
// no clock, no id, no path, no git state.
func SystemPrompt(mode Mode) string {
	text := systemPrompt
	if mode != ModeFork {
		text, _, _ = strings.Cut(text, "# Forks\n")
	}
	return strings.TrimSpace(text)
}

// AgentToolName is the tool that dispatches forks. It stays in a fork's tools
// array although calling it there is refused: removing it would change the
// shared bytes.
const AgentToolName = "Agent"

// AgentTool is the tool that dispatches forks.
func AgentTool() ToolSpec {
	return ToolSpec{
		Name: AgentToolName,
		Description: "Start a fork: a copy of this agent that inherits the whole conversation and carries out one directive in the background. " +
			"Call it several times in one message to fan out. The result only says that the fork was started; its report arrives later as a task notification.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"description":{"type":"string","description":"Three to five words that name the task"},` +
			`"prompt":{"type":"string","description":"The directive: what this fork should do and report"},` +
			`"subagent_type":{"type":"string","description":"fork (the default)"},` +
			`"model":{"type":"string","description":"Not for forks: a fork keeps this conversation's model"},` +
			`"isolation":{"type":"string","enum":["shared","worktree"],"description":"Where the fork works; shared is the default"}},` +
			`"required":["description","prompt"],"additionalProperties":false}`),
	}
}

// AgentInput is the input of an Agent call.
type AgentInput struct {
	Description     string `json:"description"`
	Prompt          string `json:"prompt"`
	SubagentType    string `json:"subagent_type"`
	Model           string `json:"model"`
	Isolation       string `json:"isolation"`
	RunInBackground *bool  `json:"run_in_background"`
	Name            string `json:"name"`
}

// ParseAgentCall reads an Agent call of a session's main agent in the given
// mode and decides whether it is a fork. The error is the text of the tool
// error; it costs no request.
func ParseAgentCall(call ToolCall, mode Mode) (AgentInput, error) {
	var in AgentInput
	d := json.NewDecoder(bytes.NewReader(call.Input))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, fmt.Errorf("the input of Agent is not understood: %w; it takes description, prompt, subagent_type and isolation", err)
	}
	name := EffectiveType(in.SubagentType, mode)
	agent, known := AgentTypeNamed(name)
	switch {
	case strings.TrimSpace(in.Prompt) == "":
		return in, fmt.Errorf("prompt is empty: say what the fork should do")
	case name == AgentFork && mode != ModeFork:
		return in, fmt.Errorf("forks are off in %s mode: do this task yourself", mode)
	case !known:
		return in, fmt.Errorf("there is no agent type %q: leave subagent_type out or use \"fork\"", name)
	case !agent.Available && mode != ModeFork:
		return in, fmt.Errorf("agent type %q cannot be started yet, and forks are off in %s mode: do this task yourself", name, mode)
	case !agent.Available:
		return in, fmt.Errorf("agent type %q cannot be started yet: leave subagent_type out or use \"fork\"", name)
	case in.Model != "":
		return in, fmt.Errorf("a fork keeps this conversation's model, another one could not read its cached prefix: leave model out")
	case in.Isolation == "worktree":
		return in, fmt.Errorf("worktree isolation is not available yet: leave isolation out and let the fork only read")
	case in.Isolation != "" && in.Isolation != "shared":
		return in, fmt.Errorf("isolation %q is unknown: use shared", in.Isolation)
	}
	return in, nil
}
