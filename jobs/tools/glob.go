package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"forkyard/forkcore"
)

//go:embed glob.md
var globDescription string

const globSchema = `{"type":"object","properties":{` +
	`"pattern":{"type":"string","description":"The pattern, for example **/*.go"},` +
	`"path":{"type":"string","description":"The directory to start from; the workspace if not given"}},` +
	`"required":["pattern"],"additionalProperties":false}`

const globResults = 500

func (s *Set) runGlob(ctx context.Context, sc *scene, input json.RawMessage) forkcore.ToolResult {
	pattern, dir := "", ""
	err := decodeInput("Glob", input, []field{
		{"pattern", &pattern, true},
		{"path", &dir, false},
	})
	if err != nil {
		return failf("%v", err)
	}
	start, pattern, err := sc.files.globStart(dir, pattern)
	if err != nil {
		return failf("%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.SearchTimeout)
	defer cancel()
	found, total, err := sc.files.glob(ctx, start, pattern)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return failf("Glob took longer than %v: give a narrower pattern or a path", s.opts.SearchTimeout)
	case err != nil:
		return failf("%v", err)
	case total == 0:
		hint := ""
		if !strings.Contains(pattern, "/") && !strings.HasPrefix(pattern, "**") {
			hint = fmt.Sprintf(": to look in all directories below use %s", quote("**/"+pattern))
		}
		return forkcore.ToolResult{Text: "No files match" + hint}
	}
	var b strings.Builder
	for _, p := range found {
		b.WriteString(showPath(p))
		b.WriteByte('\n')
	}
	if total > len(found) {
		fmt.Fprintf(&b, "[the first %d of %d files: give a narrower pattern or a path]\n", len(found), total)
	}
	return forkcore.ToolResult{Text: b.String()}
}

// globStart returns the directory a search starts in and the pattern below it:
// the part of the pattern without wildcards belongs to the former.
func (w *workspace) globStart(dir, pattern string) (start, rest string, err error) {
	// Clean also takes out each .. but leading ones, which end up in base.
	base, rest := doublestar.SplitPattern(filepath.ToSlash(path.Clean(pattern)))
	if !doublestar.ValidatePattern(rest) {
		return "", "", fmt.Errorf("the pattern %s is not valid: check its brackets and braces", quote(pattern))
	}
	if filepath.IsAbs(base) {
		start, err = w.rel(base)
		return start, rest, err
	}
	if dir, err = w.rel(dir); err != nil {
		return "", "", err
	}
	start = filepath.Join(dir, base)
	if !filepath.IsLocal(start) {
		return "", "", outsideError(pattern)
	}
	info, err := w.stat(dir)
	if err != nil {
		return "", "", err
	}
	if !info.IsDir() {
		return "", "", fmt.Errorf("%s is not a directory", showPath(dir))
	}
	return start, rest, nil
}

// glob returns the first matches in the order of their bytes, and how many there
// are. Symlinks to directories are not entered, which also ends every loop.
func (w *workspace) glob(ctx context.Context, start, pattern string) (found []string, total int, err error) {
	depth := strings.Count(pattern, "/")
	anyDepth := strings.Contains(pattern, "**")
	keep := func() {
		slices.Sort(found)
		found = found[:min(len(found), globResults)]
	}
	err = w.walk(ctx, start, func(p, below string, d fs.DirEntry) error {
		if d.IsDir() {
			if !anyDepth && below != "." && strings.Count(below, "/") >= depth {
				return fs.SkipDir
			}
			return nil
		}
		if !doublestar.MatchUnvalidated(pattern, below) || !w.isFile(p, d) {
			return nil
		}
		total++
		// Directories come in an order of their own ("a/x" before "a-b"), so
		// the first ones are known at the end only; memory stays bounded.
		if found = append(found, p); len(found) >= 8*globResults {
			keep()
		}
		return nil
	})
	keep()
	return found, total, err
}

// walk visits what lies below start, in the order of names. below is the path
// relative to start. What cannot be read is passed over.
func (w *workspace) walk(ctx context.Context, start string, visit func(p, below string, d fs.DirEntry) error) error {
	err := fs.WalkDir(w.root.FS(), start, func(p string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if p != start {
				return nil
			}
			if errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll
			}
			return pathError(start, err)
		}
		if d.IsDir() && p != start && skipDir(d.Name()) {
			return fs.SkipDir
		}
		below := p
		if start != "." {
			below = strings.TrimPrefix(strings.TrimPrefix(p, start), "/")
			if below == "" {
				below = "."
			}
		}
		return visit(p, below, d)
	})
	return err
}

// isFile tells whether p is a regular file or a symlink to one in the workspace.
func (w *workspace) isFile(p string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink != 0 {
		info, err := w.root.Stat(p)
		return err == nil && info.Mode().IsRegular()
	}
	return d.Type().IsRegular()
}
