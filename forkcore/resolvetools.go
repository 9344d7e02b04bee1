package forkcore

import (
	"cmp"
	"slices"
)

// DroppedTool is a tool that an agent does not get, and the rule that says so.
type DroppedTool struct {
	Name string `json:"name"`
	// Rule is one of the Drop constants.
	Rule string `json:"rule"`
}

// The rules by which a tool is dropped.
const (
	DropLeaf       = "leaf"            // only the session's main agent starts agents
	DropNotListed  = "not_listed"      // the definition does not name it
	DropDisallowed = "disallowed"      // the definition rules it out
	DropReadOnly   = "read_only"       // the agent reads only, and the tool changes something
	DropPermission = "permission_mode" // the session's permission mode lets nothing be changed
	DropBackground = "background"      // the tool needs a person in the foreground
)

// foregroundTools ask whoever looks on; an agent in the background has nobody.
var foregroundTools = []string{"AskUserQuestion", "EnterPlanMode", "ExitPlanMode"}

// ResolveTools gives the tools of an agent that is started with a prompt of its
// own, in the order of their names, and what was dropped by which rule, in the parent's order. A fork
// takes another path: it gets the parent's array as it is, the Agent tool included, because each of these rules
// would change its bytes.
func (t AgentType) ResolveTools(parent []ToolSpec, mode PermissionMode, background bool) (tools []ToolSpec, dropped []DroppedTool) {
	if t.Name == AgentFork {
		return parent, nil
	}
	for _, spec := range parent {
		if rule := t.drops(spec, mode, background); rule != "" {
			dropped = append(dropped, DroppedTool{spec.Name, rule})
			continue
		}
		tools = append(tools, spec)
	}
	slices.SortStableFunc(tools, func(a, b ToolSpec) int { return cmp.Compare(a.Name, b.Name) })
	return tools, dropped
}

func (t AgentType) drops(spec ToolSpec, mode PermissionMode, background bool) string {
	changes := !spec.ReadOnly && spec.Name != "Bash"
	switch {
	case spec.Name == AgentToolName:
		return DropLeaf
	case !slices.Contains(t.Tools, "*") && !slices.Contains(t.Tools, spec.Name):
		return DropNotListed
	case slices.Contains(t.Disallowed, spec.Name):
		return DropDisallowed
	case t.ReadOnly && changes:
		return DropReadOnly
	case mode == PermissionPlan && changes:
		return DropPermission
	case background && slices.Contains(foregroundTools, spec.Name):
		return DropBackground
	}
	return ""
}
