package forkcore

import "slices"

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
	// Available is false for a type that is known by name but cannot be started yet.
	Available bool
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
	return []AgentType{
		{
			Name: AgentFork, Available: true, Tools: []string{"*"}, Model: "inherit", Permission: PermissionBubble,
			Prompt: func() string { panic("a fork has no prompt of its own: it sends its parent's bytes") },
		},
		explore, plan, later(AgentGeneralPurpose),
	}
}

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
