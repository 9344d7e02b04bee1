package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestB07_FilesOutsideAreRefused(t *testing.T) {
	out := t.TempDir()
	must(t, os.WriteFile(filepath.Join(out, "passwd"), []byte("root:needle"), 0o644))
	must(t, os.Mkdir(filepath.Join(out, "sub"), 0o755))
	target := filepath.Join(out, "new.txt")
	y := newYard(t, map[string]string{
		"inside.txt": "fine needle\n",
		"alias":      "-> " + target,
		"dir":        "-> " + out,
		"file":       "-> " + filepath.Join(out, "passwd"),
		"up":         "-> ../..",
		"zero":       "-> /dev/zero",
		"x/":         "",
		"loop":       "-> loop",
		"good":       "-> inside.txt",
		"gooddir":    "-> x",
		"x/deep.txt": "deep needle\n",
	})
	for _, path := range []string{
		"alias", "dir/passwd", "file", "up/passwd", "x/../../y", "../" + filepath.Base(out) + "/passwd",
		"/etc/passwd", filepath.Join(out, "passwd"), y.env.Workspace + "/../passwd", "zero", "loop",
		y.env.Workspace + "x/passwd", "dir", "x/../dir/sub",
	} {
		t.Run(path, func(t *testing.T) {
			for tool, in := range map[string]string{
				"Read": input("file_path", path),
				"Grep": input("pattern", ".", "path", path, "output_mode", "content"),
				"Glob": input("pattern", "**", "path", path),
			} {
				r := y.run(tool, in)
				if strings.Contains(r.Text, "needle") || !r.IsError {
					t.Errorf("%s reached %s: %+v", tool, path, r)
				}
			}
		})
	}
	if _, err := os.Lstat(target); err == nil {
		t.Errorf("%s came into being", target)
	}
	// What stays inside is served, by whichever name.
	for _, path := range []string{"inside.txt", "good", "./x/../inside.txt", filepath.Join(y.env.Workspace, "inside.txt")} {
		if got, want := y.ok("Read", input("file_path", path)), "     1\tfine needle\n"; got != want {
			t.Errorf("Read %s: got %q, want %q", path, got, want)
		}
	}
	if got, want := y.ok("Read", input("file_path", "gooddir/deep.txt")), "     1\tdeep needle\n"; got != want {
		t.Errorf("Read through a symlink inside: got %q, want %q", got, want)
	}
	if got, want := y.ok("Glob", input("pattern", "**")), "good\ninside.txt\nx/deep.txt\n"; got != want {
		t.Errorf("Glob: got %q, want %q", got, want)
	}
	if got, want := y.ok("Glob", input("pattern", "gooddir/*")), "gooddir/deep.txt\n"; got != want {
		t.Errorf("Glob: got %q, want %q", got, want)
	}
	y.fails("Glob", input("pattern", "dir/*"), "out of the workspace")
}

func TestWorkspaceBehindASymlink(t *testing.T) {
	y := newYard(t, map[string]string{"a.txt": "alpha\n"})
	real := y.env.Workspace
	y.env.Workspace = filepath.Join(t.TempDir(), "ws")
	must(t, os.Symlink(real, y.env.Workspace))
	for _, path := range []string{"a.txt", filepath.Join(real, "a.txt"), filepath.Join(y.env.Workspace, "a.txt")} {
		y.ok("Read", input("file_path", path))
	}
	for _, set := range bothSearches(t) {
		y.set = set
		if got, want := y.ok("Grep", input("pattern", "alpha", "path", y.env.Workspace)), "a.txt\n"; got != want {
			t.Errorf("Grep: got %q, want %q", got, want)
		}
	}
}
