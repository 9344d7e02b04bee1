package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"forkyard/modelsim"
)

// The manual's scenario has no mistakes, and every flag and every field of a scenario stands in the manual.
func TestManual(t *testing.T) {
	b, err := os.ReadFile("../../docs/modelsim.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := string(b)
	_, example, found := strings.Cut(manual, "    # yaml-language-server:")
	example, _, _ = strings.Cut(example, "\n\n|")
	if !found {
		t.Fatal("no example")
	}
	if _, err := modelsim.ParseScenario("manual", []byte("# "+strings.ReplaceAll(example, "\n    ", "\n"))); err != nil {
		t.Error(err)
	}
	var usage strings.Builder
	_, _ = parseConfig([]string{"-h"}, noEnv, &usage)
	for line := range strings.Lines(usage.String()) {
		if name, ok := strings.CutPrefix(line, "  -"); ok {
			if name = strings.Fields(name)[0]; !strings.Contains(manual, "`-"+name) {
				t.Errorf("the flag -%s is not in the manual", name)
			}
		}
	}
	var schema any
	if err := json.Unmarshal(modelsim.ScenarioSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, field := range properties(schema) {
		n++
		if !strings.Contains(manual, field) {
			t.Errorf("the field %s is not in the manual", field)
		}
	}
	if n < 40 {
		t.Errorf("%d fields in the schema, want all of them", n)
	}
}

// properties lists the names of all objects' members in a JSON Schema.
func properties(v any) (names []string) {
	switch v := v.(type) {
	case map[string]any:
		if p, ok := v["properties"].(map[string]any); ok {
			for name := range p {
				names = append(names, name)
			}
		}
		for _, w := range v {
			names = append(names, properties(w)...)
		}
	case []any:
		for _, w := range v {
			names = append(names, properties(w)...)
		}
	}
	return names
}
