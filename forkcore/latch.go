package forkcore

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// What a session latches when it is created is sent in those very bytes for
// good: what an operator or a registry offers later is for later sessions.

// LatchTools puts the tools of a new session into the order that its tools
// array keeps: Agent first, then by name, each name once. A registry may list
// them in any order, even another each time.
func LatchTools(specs []ToolSpec) []ToolSpec {
	rank := func(t ToolSpec) int {
		if t.Name == AgentToolName {
			return 0
		}
		return 1
	}
	out := slices.Clone(specs)
	slices.SortStableFunc(out, func(a, b ToolSpec) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(out, func(a, b ToolSpec) bool { return a.Name == b.Name })
}

// LatchedTools lists the names in the tools array of a request head, in order:
// what the model was told, whatever a registry offers by now.
func LatchedTools(head []byte) ([]string, error) {
	var v struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(append(append(make([]byte, 0, len(head)+len(messageClose)), head...), messageClose...), &v); err != nil {
		return nil, fmt.Errorf("read the tools of a request head: %w: %w", ErrNotCanonical, err)
	}
	names := make([]string, len(v.Tools))
	for i, t := range v.Tools {
		names[i] = t.Name
	}
	return names, nil
}

// LatchBetas is the anthropic-beta set of a new session: without blanks and
// doubles and in one order, however it was configured. The set is part of the
// provider's cache key, so a session keeps it for good.
func LatchBetas(betas []string) []string {
	var out []string
	for _, b := range betas {
		if b = strings.TrimSpace(b); b != "" {
			out = append(out, b)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
