package forkcore

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed agent_prompt.md
var agentPrompt string

// The types of agents that exist as names.
const (
	AgentFork           = "fork"
	AgentExplore        = "Explore"
	AgentPlan           = "Plan"
	AgentGeneralPurpose = "general-purpose"
)

// PermissionBubble lets a question about a permission rise to whoever answers
// for the parent. It is a mode of agents, not of sessions.
const PermissionBubble PermissionMode = "bubble"

// AgentType is a definition: what an agent of this type runs with.
type AgentType struct {
	Name string
	// Modes are those of the sessions that may start one; none for a type that is known by name but cannot be started yet.
	Modes []Mode
	// Tools names the agent's tools; "*" is all that the parent has, in its bytes and order.
	Tools []string
	// Disallowed names tools that it never gets.
	Disallowed []string
	// ReadOnly agents get no tool that changes anything but Bash, which the harness holds to reading.
	ReadOnly bool
	// Model is a model id, or "inherit". A fork inherits: with another model
	// it would have another tokenizer, window and cache.
	Model      string
	Permission PermissionMode
	// Prompt gives the agent's system prompt. A fork's is never asked for: it
	// sends its parent's bytes, and a prompt that is rendered anew may differ.
	Prompt func() string
}

// AgentTypes are the built-in definitions.
func AgentTypes() []AgentType {
	later := func(name string) AgentType {
		return AgentType{Name: name, Tools: []string{"*"}, Model: "inherit", Permission: PermissionBubble}
	}
	explore, plan := later(AgentExplore), later(AgentPlan)
	explore.Tools, explore.ReadOnly = []string{"Glob", "Grep", "Read", "Bash"}, true
	plan.Disallowed = []string{"Edit", "Write"}
	general := later(AgentGeneralPurpose)
	general.Modes, general.Disallowed = []Mode{ModePlain}, []string{AgentToolName}
	general.Prompt = func() string { return strings.TrimSpace(agentPrompt) }
	return []AgentType{
		{
			Name: AgentFork, Modes: []Mode{ModeFork}, Tools: []string{"*"}, Model: "inherit", Permission: PermissionBubble,
			Prompt: func() string { panic("a fork has no prompt of its own: it sends its parent's bytes") },
		},
		explore, plan, general,
	}
}

// ToolsOf are the tools that an agent of this type gets of those that a session latched, in their order.
func (t AgentType) ToolsOf(specs []ToolSpec) []ToolSpec {
	var own []ToolSpec
	for _, s := range specs {
		if !slices.Contains(t.Disallowed, s.Name) && (slices.Contains(t.Tools, "*") || slices.Contains(t.Tools, s.Name)) {
			own = append(own, s)
		}
	}
	return own
}

// QuerySourceOf is Run.QuerySource of agents of a type.
func QuerySourceOf(agentType string) string { return "agent:builtin:" + agentType }

// AgentTypeNamed finds a definition.
func AgentTypeNamed(name string) (t AgentType, ok bool) {
	types := AgentTypes()
	i := slices.IndexFunc(types, func(t AgentType) bool { return t.Name == name })
	if i < 0 {
		return AgentType{}, false
	}
	return types[i], true
}

// EffectiveType says which type an Agent call means: the given one; without
// one a fork where forks are on, else general-purpose. An explicit "fork" is a
// fork in every mode, so that it is refused, and not silently another agent,
// where forks are off.
func EffectiveType(given string, mode Mode) string {
	switch {
	case given != "":
		return given
	case mode == ModeFork:
		return AgentFork
	}
	return AgentGeneralPurpose
}
