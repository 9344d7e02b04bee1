package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGlob(t *testing.T) {
	y := newYard(t, map[string]string{
		"main.go": "", "go.mod": "", "a/x.go": "", "a-b.go": "", "a/b/y.go": "", "a/b/z.md": "", "a/b/c/w.go": "",
		".env": "", ".git/config": "", ".git/hooks/h.go": "", "node_modules/m/i.js": "", "a/node_modules/n.go": "",
		"empty/": "", "we[ird].txt": "", "new\nline": "",
	})
	for _, tt := range []struct{ name, in, want string }{
		{"top", `{"pattern":"*.go"}`, "a-b.go main.go"},
		{"all, in the order of bytes", `{"pattern":"**/*.go"}`, "a-b.go a/b/c/w.go a/b/y.go a/x.go main.go"},
		{"one level", `{"pattern":"*/*.go"}`, "a/x.go"},
		{"choice", `{"pattern":"a/**/*.{md,go}"}`, "a/b/c/w.go a/b/y.go a/b/z.md a/x.go"},
		{"choice of directories", `{"pattern":"{a/b,x}/*.md"}`, "a/b/z.md"},
		{"from a directory", `{"pattern":"**/*.go","path":"a/b"}`, "a/b/c/w.go a/b/y.go"},
		{"from an absolute directory", input("pattern", "*.go", "path", filepath.Join(y.env.Workspace, "a")), "a/x.go"},
		{"absolute pattern", input("pattern", filepath.Join(y.env.Workspace, "a/**/y.go")), "a/b/y.go"},
		{"a name", `{"pattern":"a/x.go"}`, "a/x.go"},
		{"a leading dot", `{"pattern":"./*.mod"}`, "go.mod"},
		{"hidden", `{"pattern":".e*"}`, ".env"},
		{"skipped", `{"pattern":"**/*.js"}`, "No files match"},
		{"skipped by name", `{"pattern":"node_modules/**/*.js"}`, "node_modules/m/i.js"},
		{"skipped by path", `{"pattern":"*","path":".git"}`, ".git/config"},
		{"directories are none", `{"pattern":"empty"}`, `No files match: to look in all directories below use "**/empty"`},
		{"nothing there", `{"pattern":"gone/**/*.go"}`, "No files match"},
		{"escaped", `{"pattern":"we\\[ird\\].txt"}`, "we[ird].txt"},
		{"control characters", `{"pattern":"new*"}`, `"new\nline"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			got := y.ok("Glob", tt.in)
			if !strings.HasPrefix(got, "No") {
				got = strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", " ")
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, in, want string }{
		{"no pattern", `{"path":"a"}`, "pattern is required"},
		{"bad pattern", `{"pattern":"*.{go"}`, "not valid"},
		{"climbing", `{"pattern":"../*"}`, "outside the workspace"},
		{"climbing later", `{"pattern":"a/*/../../../*"}`, "outside the workspace"},
		{"climbing from a path", `{"pattern":"../../*","path":"a"}`, "outside the workspace"},
		{"absolute outside", `{"pattern":"/etc/*"}`, "outside the workspace"},
		{"missing directory", `{"pattern":"*","path":"gone"}`, "gone: no such file"},
		{"a file", `{"pattern":"*","path":"go.mod"}`, "not a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			y.fails("Glob", tt.in, tt.want)
		})
	}
}

func TestGlobIsCapped(t *testing.T) {
	y := newYard(t, nil)
	const files = 8*globResults + 123
	for i := range files {
		must(t, os.WriteFile(filepath.Join(y.env.Workspace, fmt.Sprintf("f%05d", files-i)), nil, 0o644))
	}
	lines := strings.Split(strings.TrimSuffix(y.ok("Glob", `{"pattern":"*"}`), "\n"), "\n")
	last := lines[len(lines)-1]
	lines = lines[:len(lines)-1]
	if len(lines) != globResults || lines[0] != "f00001" || lines[globResults-1] != "f00500" || !slices.IsSorted(lines) {
		t.Errorf("%d lines from %s to %s", len(lines), lines[0], lines[len(lines)-1])
	}
	if want := fmt.Sprintf("the first 500 of %d files", files); !strings.Contains(last, want) {
		t.Errorf("got %q, want it to contain %q", last, want)
	}
}

func TestB54_SymlinkLoopsEnd(t *testing.T) {
	y := newYard(t, map[string]string{"a/b/file.txt": "word\n", "a/b/loop": "-> ../../a", "a/self": "-> .", "own": "-> own", "x": "-> y", "y": "-> x"})
	start := time.Now()
	for _, pattern := range []string{"**", "**/*.txt", "**/file.txt", "a/**/file.txt"} {
		if got, want := y.ok("Glob", input("pattern", pattern)), "a/b/file.txt\n"; got != want {
			t.Errorf("%s: got %q, want %q", pattern, got, want)
		}
	}
	for how, set := range bothSearches(t) {
		y.set = set
		if got, want := y.ok("Grep", `{"pattern":"word","path":"a/b/loop"}`), "a/b/file.txt\n"; got != want {
			t.Errorf("%s: got %q, want %q", how, got, want)
		}
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestGlobTimeLimit(t *testing.T) {
	y := newYard(t, map[string]string{"a": ""})
	y.set = NewSet(Options{SearchTimeout: 1}) // a nanosecond
	y.fails("Glob", `{"pattern":"**"}`, "took longer than 1ns")
}
