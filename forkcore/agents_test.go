package forkcore

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestM10_ForkDefinition(t *testing.T) {
	fork, ok := AgentTypeNamed("fork")
	if !ok || !cmp.Equal(fork.Modes, []Mode{ModeFork}) || !cmp.Equal(fork.Tools, []string{"*"}) || fork.Model != "inherit" || fork.Permission != PermissionMode("bubble") {
		t.Errorf("the fork's definition is %+v", fork)
	}
	defer func() {
		if recover() == nil {
			t.Error("a fork's prompt can be rendered")
		}
	}()
	fork.Prompt()
}

func TestAgentTypes(t *testing.T) {
	var names, available []string
	for _, a := range AgentTypes() {
		names = append(names, a.Name)
		if len(a.Modes) > 0 {
			available = append(available, a.Name)
		}
		if len(a.Tools) == 0 || a.Model == "" || a.Permission == "" {
			t.Errorf("%s lacks tools, model or permission mode", a.Name)
		}
		if found, ok := AgentTypeNamed(a.Name); !ok || found.Name != a.Name {
			t.Errorf("AgentTypeNamed(%q) = %+v, %v", a.Name, found, ok)
		}
	}
	if d := cmp.Diff([]string{"fork", "Explore", "Plan", "general-purpose"}, names); d != "" {
		t.Errorf("types (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"fork", "general-purpose"}, available); d != "" {
		t.Errorf("available (-want +got):\n%s", d)
	}
	if _, ok := AgentTypeNamed("Fork"); ok {
		t.Error("a name in another case is found")
	}
}

// M33 and M60: the given type; else a fork where forks are on; else general-purpose. What cannot be started is refused
// with its name.
func TestM33_EffectiveType(t *testing.T) {
	tests := []struct {
		given   string
		mode    Mode
		want    string
		refusal string // empty: it is started
	}{
		{"", ModeFork, "fork", ""},
		{"", ModePlain, "general-purpose", ""},
		{"", ModeCoordinator, "general-purpose", `agent type "general-purpose" cannot be started in coordinator mode: do this task yourself`},
		{"fork", ModeFork, "fork", ""},
		{"fork", ModePlain, "fork", "forks are off in plain mode: do this task yourself"},
		{"fork", ModeCoordinator, "fork", "forks are off in coordinator mode: do this task yourself"},
		{"general-purpose", ModeFork, "general-purpose", `agent type "general-purpose" cannot be started in fork mode: leave subagent_type out or use "fork"`},
		{"Explore", ModeFork, "Explore", `agent type "Explore" cannot be started yet: leave subagent_type out or use "fork"`},
		{"Plan", ModePlain, "Plan", `agent type "Plan" cannot be started yet: leave subagent_type out or use "general-purpose"`},
		{"Nobody", ModeFork, "Nobody", `there is no agent type "Nobody": leave subagent_type out or use "fork"`},
	}
	for _, tt := range tests {
		t.Run(tt.given+" in "+string(tt.mode), func(t *testing.T) {
			if got := EffectiveType(tt.given, tt.mode); got != tt.want {
				t.Errorf("type %q, want %q", got, tt.want)
			}
			input, err := json.Marshal(map[string]string{"prompt": "p", "subagent_type": tt.given})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, err := ParseAgentCall(ToolCall{Input: input}, tt.mode); err != nil {
				got = err.Error()
			}
			if got != tt.refusal {
				t.Errorf("refusal %q, want %q", got, tt.refusal)
			}
		})
	}
}

// M11: a fork has its parent's tokenizer, window and cache, or none.
func TestM11_ModelOfAForkIsRefused(t *testing.T) {
	for _, given := range []string{"", "fork"} {
		_, err := ParseAgentCall(ToolCall{Input: json.RawMessage(`{"prompt":"p","model":"claude-haiku-5-5","subagent_type":"` + given + `"}`)}, ModeFork)
		if err == nil || !strings.Contains(err.Error(), "could not read its cached prefix: leave model out") {
			t.Errorf("type %q: %v", given, err)
		}
	}
}
