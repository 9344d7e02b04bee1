package forkcore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Named agents get tools of their own; which were dropped, and why, is a table. A fork gets the parent's.
func TestM08_NamedAgentsResolveTheirTools(t *testing.T) {
	spec := func(name string, readOnly bool) ToolSpec {
		return ToolSpec{Name: name, Description: "the tool " + name, InputSchema: []byte(`{}`), ReadOnly: readOnly}
	}
	parent := []ToolSpec{AgentTool(), spec("Write", false), spec("Read", true), spec("Bash", false), spec("Edit", false), spec("Grep", true), spec("AskUserQuestion", true)}
	named := func(name string) AgentType {
		a, ok := AgentTypeNamed(name)
		if !ok {
			t.Fatalf("no agent %s", name)
		}
		return a
	}
	writes := AgentType{Name: "custom", Tools: []string{"*"}, ReadOnly: true}
	tests := []struct {
		name       string
		agent      AgentType
		mode       PermissionMode
		background bool
		tools      []string
		dropped    []DroppedTool
	}{
		{"fork", named(AgentFork), PermissionPlan, true, []string{"Agent", "Write", "Read", "Bash", "Edit", "Grep", "AskUserQuestion"}, nil},
		{
			"Explore", named(AgentExplore), PermissionDefault, false,
			[]string{"Bash", "Grep", "Read"},
			[]DroppedTool{{"Agent", DropLeaf}, {"Write", DropNotListed}, {"Edit", DropNotListed}, {"AskUserQuestion", DropNotListed}},
		},
		{
			"Plan", named(AgentPlan), PermissionDefault, true,
			[]string{"Bash", "Grep", "Read"},
			[]DroppedTool{{"Agent", DropLeaf}, {"Write", DropDisallowed}, {"Edit", DropDisallowed}, {"AskUserQuestion", DropBackground}},
		},
		{
			"general-purpose", named(AgentGeneralPurpose), PermissionDefault, false,
			[]string{"AskUserQuestion", "Bash", "Edit", "Grep", "Read", "Write"},
			[]DroppedTool{{"Agent", DropLeaf}},
		},
		{
			"general-purpose where nothing may change", named(AgentGeneralPurpose), PermissionPlan, false,
			[]string{"AskUserQuestion", "Bash", "Grep", "Read"},
			[]DroppedTool{{"Agent", DropLeaf}, {"Write", DropPermission}, {"Edit", DropPermission}},
		},
		{
			"one that reads only", writes, PermissionDefault, false,
			[]string{"AskUserQuestion", "Bash", "Grep", "Read"},
			[]DroppedTool{{"Agent", DropLeaf}, {"Write", DropReadOnly}, {"Edit", DropReadOnly}},
		},
	}
	hash := func(tools []ToolSpec) Digest { return DigestOf(EncodeHead(Params{Model: "m"}, tools)) }
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tools, dropped := tt.agent.ResolveTools(parent, tt.mode, tt.background)
			var names []string
			for _, s := range tools {
				names = append(names, s.Name)
			}
			if d := cmp.Diff(tt.tools, names); d != "" {
				t.Errorf("tools (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.dropped, dropped); d != "" {
				t.Errorf("dropped (-want +got):\n%s", d)
			}
			if same := hash(tools) == hash(parent); same != (tt.agent.Name == AgentFork) {
				t.Errorf("the bytes are the parent's: %v", same)
			}
		})
	}
	if parent[0].Name != "Agent" || parent[1].Name != "Write" {
		t.Error("resolving reordered the parent's tools")
	}
}
