package redisstore

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestArchiveKnowsEveryStem: a stem that is added to keys.go is archived with its session, or said to be none of one.
func TestArchiveKnowsEveryStem(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Concat(stemsBySession, stemsByAgent, stemsByRun, stemsByDispatch, stemsElsewhere)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if !strings.HasPrefix(name.Name, "stem") {
				continue
			}
			stem, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found++
			if n := len(slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k != stem })); n != 1 {
				t.Errorf("%s is in %d of the lists in archive.go: it must be in one", name.Name, n)
			}
		}
		return true
	})
	if found != len(known) || found < 20 {
		t.Errorf("keys.go has %d stems, the lists have %d", found, len(known))
	}
}
