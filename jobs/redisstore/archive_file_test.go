package redisstore

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
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

func TestPackFields(t *testing.T) {
	long := strings.Repeat("x", 300)
	packed := packFields(map[string]string{"b": long, "a": "", "": "\x00\xff"})
	got, err := unpackFields(packed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"", "\x00\xff", "a", "", "b", long}, got); diff != "" {
		t.Error(diff)
	}
	if none, err := unpackFields(""); err != nil || len(none) != 0 {
		t.Errorf("nothing: %v, %v", none, err)
	}
	for name, bad := range map[string]string{
		"cut off": packed[:len(packed)-1], "no value": "\x01a", "no length": "\xff", "a length without end": strings.Repeat("\xff", 12), "a huge length": "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		if got, err := unpackFields(bad); !errors.Is(err, forkcore.ErrCorrupt) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
