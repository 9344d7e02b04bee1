package tools

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bothSearches returns a set that searches with rg, where there is one, and one
// that searches by itself.
func bothSearches(t *testing.T) map[string]*Set {
	t.Helper()
	builtin := NewSet(Options{})
	builtin.rg = ""
	sets := map[string]*Set{"builtin": builtin}
	if _, err := exec.LookPath("rg"); err == nil {
		sets["rg"] = NewSet(Options{})
	}
	return sets
}

func TestGrep(t *testing.T) {
	long := strings.Repeat("é", 400)
	y := newYard(t, map[string]string{
		"a.go":              "package a\n\nfunc Alpha() {\n\treturn\n}\n",
		"b.md":              "# Alpha\nbeta\ngamma\ndelta\nAlpha again",
		"sub/c.go":          "package c\nvar alpha = 1\r\n",
		"sub/deep/d.py":     "alpha = 2\n",
		".hidden":           "Alpha hidden\n",
		".gitignore":        "ignored.txt\n",
		"ignored.txt":       "Alpha ignored\n",
		".git/x":            "Alpha in git\n",
		"node_modules/m.js": "Alpha in a module\n",
		"bin":               "\x7fELF\x00 Alpha\n",
		"bad.txt":           "Alpha \xff\xe5\xa5 end\n",
		"long.txt":          "needle" + long + "\n",
		"link":              "-> a.go",
		"odd: name-1-x.txt": "odd one\n",
	})
	must(t, syscall.Mkfifo(filepath.Join(y.env.Workspace, "fifo"), 0o644))
	tests := []struct{ name, in, want string }{
		{"paths by default", `{"pattern":"Alpha"}`, ".hidden\na.go\nb.md\nbad.txt\nignored.txt\n"},
		{"ignoring case", `{"pattern":"alpha","-i":true,"glob":"*.{go,py}"}`, "a.go\nsub/c.go\nsub/deep/d.py\n"},
		{"none", `{"pattern":"nowhere"}`, "No matches found"},
		{"content", `{"pattern":"Alpha","output_mode":"content","glob":"*.md"}`, "b.md:1:# Alpha\nb.md:5:Alpha again\n"},
		{"content without numbers", `{"pattern":"Alpha","output_mode":"content","glob":"*.md","-n":false}`, "b.md:# Alpha\nb.md:Alpha again\n"},
		{"carriage return", `{"pattern":"alpha","output_mode":"content","path":"sub/c.go"}`, "sub/c.go:2:var alpha = 1\n"},
		{"context", `{"pattern":"beta","output_mode":"content","-B":1,"-A":"1"}`, "b.md-1-# Alpha\nb.md:2:beta\nb.md-3-gamma\n"},
		{
			"context that meets", `{"pattern":"beta|delta","output_mode":"content","-C":1}`,
			"b.md-1-# Alpha\nb.md:2:beta\nb.md-3-gamma\nb.md:4:delta\nb.md-5-Alpha again\n",
		},
		{
			"context apart", `{"pattern":"Alpha","output_mode":"content","-A":1,"path":"b.md"}`,
			"b.md:1:# Alpha\nb.md-2-beta\n--\nb.md:5:Alpha again\n",
		},
		{
			"context of two files", `{"pattern":"package","output_mode":"content","-A":1,"type":"go"}`,
			"a.go:1:package a\na.go-2-\n--\nsub/c.go:1:package c\nsub/c.go-2-var alpha = 1\n",
		},
		{"-A over -C", `{"pattern":"gamma","output_mode":"content","-C":1,"-A":0}`, "b.md-2-beta\nb.md:3:gamma\n"},
		{"count", `{"pattern":"a","output_mode":"count","type":"md"}`, "b.md:5\n"},
		{"count in a file", `{"pattern":"Alpha","output_mode":"count","path":"b.md"}`, "b.md:2\n"},
		{"directory", `{"pattern":"alpha","path":"sub"}`, "sub/c.go\nsub/deep/d.py\n"},
		{"absolute directory", input("pattern", "alpha", "path", filepath.Join(y.env.Workspace, "sub", "deep")), "sub/deep/d.py\n"},
		{"skipped directory by name", `{"pattern":"Alpha","path":"node_modules"}`, "node_modules/m.js\n"},
		{"file", `{"pattern":"func","path":"a.go"}`, "a.go\n"},
		{"symlink to a file", `{"pattern":"func","path":"link","output_mode":"content"}`, "link:3:func Alpha() {\n"},
		{"glob with a slash", `{"pattern":"alpha","glob":"sub/**/*.py"}`, "sub/deep/d.py\n"},
		{"glob turned round", `{"pattern":"alpha","glob":"!*.py"}`, "sub/c.go\n"},
		{"type", `{"pattern":"alpha","type":"py"}`, "sub/deep/d.py\n"},
		{"bad bytes", `{"pattern":"Alpha","path":"bad.txt","output_mode":"content"}`, "bad.txt:1:Alpha \uFFFD end\n"},
		{
			"long line", `{"pattern":"needle","output_mode":"content"}`,
			"long.txt:1:needle" + long[:grepLineSize-6] + " [line cut: it has 806 bytes]\n",
		},
		{"odd name", `{"pattern":"odd","output_mode":"content"}`, "odd: name-1-x.txt:1:odd one\n"},
		{"line end anchors", `{"pattern":"^beta$"}`, "b.md\n"},
		{"multiline", `{"pattern":"beta.*delta","multiline":true,"output_mode":"content"}`, "b.md:2:beta\nb.md:3:gamma\nb.md:4:delta\n"},
		{
			"multiline with an escape", `{"pattern":"beta\\ngamma","multiline":true,"output_mode":"content","-C":1}`,
			"b.md-1-# Alpha\nb.md:2:beta\nb.md:3:gamma\nb.md-4-delta\n",
		},
		{"multiline anchors", `{"pattern":"^gamma$","multiline":true,"output_mode":"content"}`, "b.md:3:gamma\n"},
		{"multiline count", `{"pattern":"a","multiline":true,"output_mode":"count","path":"b.md"}`, "b.md:8\n"},
		{"multiline paths", `{"pattern":"Alpha.*again","multiline":true}`, "b.md\n"},
		{
			"head limit", `{"pattern":"Alpha","head_limit":2}`,
			".hidden\na.go\n[only the first 2 are shown, there are more: give a narrower path, glob or pattern, or a higher head_limit]\n",
		},
		{"head limit just met", `{"pattern":"Alpha","head_limit":"5"}`, ".hidden\na.go\nb.md\nbad.txt\nignored.txt\n"},
	}
	errors := []struct{ name, in, want string }{
		{"no pattern", `{}`, "pattern is required"},
		{"empty pattern", `{"pattern":""}`, "pattern is required"},
		{"bad pattern", `{"pattern":"a(b"}`, "regex parse error"},
		{"line end without multiline", `{"pattern":"a\\nb"}`, "multiline"},
		{"bad mode", `{"pattern":"a","output_mode":"lines"}`, "output_mode must be"},
		{"bad limit", `{"pattern":"a","head_limit":0}`, "head_limit must be"},
		{"bad type", `{"pattern":"a","type":"klingon"}`, "unrecognized file type"},
		{"bad glob", `{"pattern":"a","glob":"{a"}`, "error parsing glob"},
		{"missing path", `{"pattern":"a","path":"gone"}`, "gone: no such file"},
		{"binary file", `{"pattern":"Alpha","path":"bin"}`, "binary file"},
		{"FIFO", `{"pattern":"a","path":"fifo"}`, "FIFO"},
	}
	for how, set := range bothSearches(t) {
		y := *y
		y.set = set
		for _, tt := range tests {
			t.Run(how+"/"+tt.name, func(t *testing.T) {
				y := y.at(t)
				if diff := cmp.Diff(tt.want, y.ok("Grep", tt.in)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
		for _, tt := range errors {
			t.Run(how+"/"+tt.name, func(t *testing.T) {
				y := y.at(t)
				y.fails("Grep", tt.in, tt.want)
			})
		}
	}
}

func TestB08_PatternIsNeverAFlag(t *testing.T) {
	dir := t.TempDir()
	pwned, script := filepath.Join(dir, "PWN"), filepath.Join(dir, "p.sh")
	must(t, os.WriteFile(script, []byte("#!/bin/sh\ntouch "+pwned+"\ncat\n"), 0o755))
	patterns := []string{"--pre=" + script, "-77", "--help", "-f/etc/passwd", "--", "-", "-e", "--files"}
	files := map[string]string{}
	for i, p := range patterns {
		files[fmt.Sprintf("f%d.txt", i)] = "before " + p + " after\n"
	}
	for how, set := range bothSearches(t) {
		y := newYard(t, files)
		y.set = set
		for i, p := range patterns {
			t.Run(how+"/"+p, func(t *testing.T) {
				y := y.at(t)
				name := fmt.Sprintf("f%d.txt", i)
				for _, path := range []string{".", name} {
					got := y.ok("Grep", input("pattern", p, "path", path, "output_mode", "content"))
					if want := name + ":1:before " + p + " after\n"; !strings.Contains(got, want) {
						t.Errorf("path %s: got %q, want it to contain %q", path, got, want)
					}
				}
			})
		}
		for _, in := range []string{
			input("pattern", "x", "glob", "--pre="+script),
			input("pattern", "x", "type", "--pre="+script),
			input("pattern", "x", "path", "--pre="+script),
		} {
			y.run("Grep", in)
		}
	}
	if _, err := os.Stat(pwned); err == nil {
		t.Errorf("the script ran")
	}
}

func TestGrepIgnoresRgConfiguration(t *testing.T) {
	config := filepath.Join(t.TempDir(), "rc")
	must(t, os.WriteFile(config, []byte("--follow\n--files-without-match\n"), 0o644))
	t.Setenv("RIPGREP_CONFIG_PATH", config)
	out := t.TempDir()
	must(t, os.WriteFile(filepath.Join(out, "o.txt"), []byte("word\n"), 0o644))
	y := newYard(t, map[string]string{"a.txt": "word\n", "b.txt": "else\n", "out": "-> " + out, "o.txt": "-> " + out + "/o.txt"})
	for how, set := range bothSearches(t) {
		y.set = set
		if got, want := y.ok("Grep", `{"pattern":"word"}`), "a.txt\n"; got != want {
			t.Errorf("%s: got %q, want %q", how, got, want)
		}
	}
}

func TestGrepOutputIsBounded(t *testing.T) {
	y := newYard(t, map[string]string{"a.txt": strings.Repeat("word\n", 5000)})
	for how, set := range bothSearches(t) {
		set.opts.FileOutput = 1000
		y.set = set
		got := y.ok("Grep", `{"pattern":"word","output_mode":"content","head_limit":4000}`)
		if len(got) > 1300 || !strings.Contains(got, "there are more") {
			t.Errorf("%s: %d bytes: %q", how, len(got), got[len(got)-200:])
		}
	}
}

func TestGrepTimeLimit(t *testing.T) {
	y := newYard(t, map[string]string{"a.txt": "word\n"})
	for how, set := range bothSearches(t) {
		set.opts.SearchTimeout = 1 // a nanosecond
		y.set = set
		y.t.Log(how)
		y.fails("Grep", `{"pattern":"word"}`, "took longer")
	}
}

func TestNamesLineEnd(t *testing.T) {
	for pattern, want := range map[string]bool{"a": false, `\n`: true, "\n": true, `\\n`: false, `\\\n`: true, `\`: false} {
		if got := namesLineEnd(pattern); got != want {
			t.Errorf("namesLineEnd(%q) = %v, want %v", pattern, got, want)
		}
	}
}
