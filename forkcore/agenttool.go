package forkcore

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:embed prompt.md
var systemPrompt string

// SystemPrompt is the text of the system block of a session in this mode; the
// part about forks is there only where forks are on, that about agents where they may be started. Nothing in it changes:
// no clock, no id, no path, no git state.
func SystemPrompt(mode Mode) string {
	head, rest, _ := strings.Cut(systemPrompt, "# Forks\n")
	forks, agents, _ := strings.Cut(rest, "# Agents\n")
	agents, notices, _ := strings.Cut(agents, "# Task notifications\n")
	switch mode {
	case ModeFork:
		return strings.TrimSpace(head + "# Forks\n" + forks + "# Task notifications\n" + notices)
	case ModePlain:
		return strings.TrimSpace(head + "# Agents\n" + agents + "# Task notifications\n" + notices)
	}
	return strings.TrimSpace(head)
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

// NamedAgentTool is the tool that starts agents where forks are off.
func NamedAgentTool() ToolSpec {
	return ToolSpec{
		Name: AgentToolName,
		Description: "Start an agent for one task. It does not know this conversation: say in the prompt all that it needs. " +
			"You get its last message as the result when it is done. With run_in_background the result only says that it was started; " +
			"its result arrives later as a task notification, and a long one may be moved to the background in the middle.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{` +
			`"description":{"type":"string","description":"Three to five words that name the task"},` +
			`"prompt":{"type":"string","description":"The whole task: what to do, where, and what to report"},` +
			`"subagent_type":{"type":"string","description":"general-purpose (the default)"},` +
			`"run_in_background":{"type":"boolean","description":"Go on at once, and hear of the result later"},` +
			`"isolation":{"type":"string","enum":["shared","worktree"],"description":"Where the agent works; shared is the default"}},` +
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

// whatIs names an agent of a type in messages.
func whatIs(agentType string) string {
	if agentType == AgentFork {
		return "fork"
	}
	return "agent"
}

// ParseAgentCall reads an Agent call of a session's main agent in the given
// mode; SubagentType is then the type that is meant. The error is the text of the tool
// error; it costs no request.
func ParseAgentCall(call ToolCall, mode Mode) (AgentInput, error) {
	var in AgentInput
	d := json.NewDecoder(bytes.NewReader(call.Input))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, fmt.Errorf("the input of Agent is not understood: %w; it takes description, prompt, subagent_type, isolation and run_in_background", err)
	}
	in.SubagentType = EffectiveType(in.SubagentType, mode)
	name := in.SubagentType
	agent, known := AgentTypeNamed(name)
	instead := fmt.Sprintf("leave subagent_type out or use %q", EffectiveType("", mode))
	if mode == ModeCoordinator {
		instead = "do this task yourself"
	}
	switch {
	case strings.TrimSpace(in.Prompt) == "":
		return in, fmt.Errorf("prompt is empty: say what the %s should do", whatIs(name))
	case name == AgentFork && mode != ModeFork:
		return in, fmt.Errorf("forks are off in %s mode: do this task yourself", mode)
	case !known:
		return in, fmt.Errorf("there is no agent type %q: %s", name, instead)
	case len(agent.Modes) == 0:
		return in, fmt.Errorf("agent type %q cannot be started yet: %s", name, instead)
	case !slices.Contains(agent.Modes, mode):
		return in, fmt.Errorf("agent type %q cannot be started in %s mode: %s", name, mode, instead)
	case name == AgentFork && in.Model != "":
		return in, fmt.Errorf("a fork keeps this conversation's model, another one could not read its cached prefix: leave model out")
	case in.Model != "":
		return in, fmt.Errorf("agents run with this conversation's model: leave model out")
	case in.Isolation == "worktree":
		return in, fmt.Errorf("worktree isolation is not available yet: leave isolation out and let the %s only read", whatIs(name))
	case in.Isolation != "" && in.Isolation != "shared":
		return in, fmt.Errorf("isolation %q is unknown: use shared", in.Isolation)
	}
	return in, nil
}
