package forkyard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	asynqModule = "github.com/hibiken/asynq"
	redisModule = "github.com/redis/go-redis/v9"
	echoModule  = "github.com/labstack/echo/v4"
)

// arrows are the rules between packages, checked through every import between the two. A pattern that ends in
// "/..." covers the package before it and all below; "..." alone covers everything but the standard library.
var arrows = []arrow{
	{
		from: []string{"forkyard/forkcore/..."}, to: []string{"..."}, unless: []string{"forkyard/forkcore/..."},
		why: "forkcore is the domain: it imports the standard library alone, so that nothing outside decides what a fork is",
	},
	{
		from: []string{"forkyard/modelsim/..."}, to: []string{"forkyard/..."}, unless: []string{"forkyard/modelsim/..."},
		why: "modelsim stands in for a foreign service: sharing code with the program would let one mistake hide in both",
	},
	{
		from: []string{"forkyard/web/..."}, to: []string{asynqModule + "/...", redisModule + "/...", "forkyard/jobs/..."},
		why: "web declares the small interfaces it needs and cmd/web supplies them",
	},
	{
		from: []string{"forkyard/jobs/engine/..."}, to: []string{asynqModule + "/...", redisModule + "/...", echoModule + "/..."},
		why: "the engine runs in the web process and in workers alike: it sees queue and stores through its own interfaces",
	},
	{
		from: []string{"forkyard/jobs/..."}, to: []string{"forkyard/web/..."},
		why: "arrows point inwards: results come back through the store, not through an import",
	},
	{
		from: []string{"forkyard/..."}, unlessFrom: []string{"forkyard/web/...", "forkyard/cmd/web/..."}, to: []string{echoModule + "/..."},
		why: "echo v4 is supported until the end of 2026: inside web and cmd/web a move stays a change of one layer",
	},
	{
		from: []string{"forkyard/..."}, unlessFrom: []string{"forkyard/jobs", "forkyard/cmd/..."}, to: []string{asynqModule + "/..."},
		why: "asynq is only the ready-list: outside of package jobs and the programs nothing may rest on its promises",
	},
}

func TestArrows(t *testing.T) {
	for _, violation := range violations(imports(t), arrows) {
		t.Error(violation)
	}
}

// A rule about a module that the program no longer has could not fail.
func TestArrowsNameRequiredModules(t *testing.T) {
	goMod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{asynqModule, redisModule, echoModule} {
		if !strings.Contains(string(goMod), module+" v") {
			t.Errorf("go.mod does not require %s: correct or remove its rules in arrows_test.go", module)
		}
	}
}

func TestViolations(t *testing.T) {
	const why = "because"
	tests := []struct {
		name  string
		graph map[string][]string
		rule  arrow
		want  []string
	}{
		{
			name:  "direct",
			graph: map[string][]string{"forkyard/web": {echoModule, asynqModule}, asynqModule: nil, echoModule: nil},
			rule:  arrow{from: []string{"forkyard/web/..."}, to: []string{asynqModule + "/..."}},
			want:  []string{"forkyard/web → github.com/hibiken/asynq: because"},
		},
		{
			name:  "through others, shortest way, below a pattern",
			graph: map[string][]string{"forkyard/web/api": {"a"}, "a": {"b", "c"}, "b": {"c"}, "c": {asynqModule + "/x/rate"}, asynqModule + "/x/rate": nil},
			rule:  arrow{from: []string{"forkyard/web/..."}, to: []string{asynqModule + "/..."}},
			want:  []string{"forkyard/web/api → a → c → github.com/hibiken/asynq/x/rate: because"},
		},
		{
			name:  "everything but its own",
			graph: map[string][]string{"forkyard/forkcore/forkcoretest": {"forkyard/forkcore"}, "forkyard/forkcore": {"example.com/x"}, "example.com/x": nil},
			rule:  arrow{from: []string{"forkyard/forkcore/..."}, to: []string{"..."}, unless: []string{"forkyard/forkcore/..."}},
			want: []string{
				"forkyard/forkcore → example.com/x: because",
				"forkyard/forkcore/forkcoretest → forkyard/forkcore → example.com/x: because",
			},
		},
		{
			name:  "exempt packages, not those below them",
			graph: map[string][]string{"forkyard/jobs": {asynqModule}, "forkyard/jobs/tools": {asynqModule}, "forkyard/cmd/web": {"forkyard/jobs"}, asynqModule: nil},
			rule:  arrow{from: []string{"forkyard/..."}, unlessFrom: []string{"forkyard/jobs", "forkyard/cmd/..."}, to: []string{asynqModule + "/..."}},
			want:  []string{"forkyard/jobs/tools → github.com/hibiken/asynq: because"},
		},
		{
			name:  "the standard library and equal beginnings are allowed",
			graph: map[string][]string{"forkyard/web": {"net/http", "forkyard/jobsboard"}, "forkyard/jobsboard": nil, "forkyard/website": {"forkyard/jobs"}, "forkyard/jobs": nil},
			rule:  arrow{from: []string{"forkyard/web/..."}, to: []string{"forkyard/jobs/..."}},
		},
		{
			name:  "a package that does not exist",
			graph: map[string][]string{"forkyard/forkcore": {"fmt"}},
			rule:  arrow{from: []string{"forkyard/web/..."}, to: []string{"..."}},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.rule.why = why
			if diff := cmp.Diff(test.want, violations(test.graph, []arrow{test.rule})); diff != "" {
				t.Errorf("violations differ (-want +got):\n%s", diff)
			}
		})
	}
}

// arrow forbids packages that match from, and not unlessFrom, to reach packages that match to, and not unless.
type arrow struct {
	from, unlessFrom []string
	to, unless       []string
	why              string
}

// violations lists every broken rule with the shortest way of imports that breaks it, sorted. The graph
// maps packages to what they import; what it does not hold is the standard library.
func violations(graph map[string][]string, rules []arrow) []string {
	var found []string
	for _, rule := range rules {
		for start := range graph {
			if !matches(start, rule.from) || matches(start, rule.unlessFrom) {
				continue
			}
			seen := map[string]bool{start: true}
			for ways := [][]string{{start}}; len(ways) > 0; ways = ways[1:] {
				way := ways[0]
				for _, next := range graph[way[len(way)-1]] {
					if _, held := graph[next]; !held || seen[next] {
						continue
					}
					seen[next] = true
					longer := append(slices.Clone(way), next)
					if matches(next, rule.to) && !matches(next, rule.unless) {
						found = append(found, strings.Join(longer, " → ")+": "+rule.why)
						continue // what the forbidden package imports is its own affair
					}
					ways = append(ways, longer)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func matches(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		above, tree := strings.CutSuffix(pattern, "/...")
		return pattern == "..." || pkg == above || tree && strings.HasPrefix(pkg, above+"/")
	})
}

// imports asks the go command for the packages of the module and all that they import, tests and the standard
// library left out.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	var stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,Standard", "./...")
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("listing the packages: %v\n%s", err, &stderr)
	}
	graph := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
			Standard   bool
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(fmt.Errorf("reading the answer of go list: %w", err))
		}
		if !pkg.Standard {
			graph[pkg.ImportPath] = pkg.Imports
		}
	}
	if len(graph) == 0 {
		t.Fatal("go list found no package, so no rule was checked")
	}
	return graph
}
