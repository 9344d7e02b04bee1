package modelsim

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed scenarios/*.yaml
var exampleFiles embed.FS

//go:embed scenario.schema.json
var scenarioSchema []byte

// ScenarioSchema returns the JSON Schema (draft 2020-12) of scenario files.
func ScenarioSchema() []byte { return append([]byte(nil), scenarioSchema...) }

// BuiltinScenarios returns the names of the example scenarios, sorted.
func BuiltinScenarios() []string {
	files, _ := exampleFiles.ReadDir("scenarios") // embedded: always there
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(f.Name(), ".yaml")
	}
	return names
}

// BuiltinScenario returns a fresh example scenario by its name.
func BuiltinScenario(name string) (*Scenario, error) {
	data, err := exampleFiles.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no built-in scenario %s%s", ticked(name), suggest(name, BuiltinScenarios()))
	}
	return ParseScenario("builtin:"+name, data)
}
