package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"forkyard/forkcore"
)

//go:embed read.md
var readDescription string

const readSchema = `{"type":"object","properties":{` +
	`"file_path":{"type":"string","description":"The file, relative to the workspace or absolute inside it"},` +
	`"offset":{"type":"integer","minimum":1,"description":"Number of the first line to return, counted from 1"},` +
	`"limit":{"type":"integer","minimum":1,"description":"How many lines to return, 2000 if not given"}},` +
	`"required":["file_path"],"additionalProperties":false}`

const (
	readLines    = 2000
	readLineSize = 2000 // bytes of one line
)

func (s *Set) runRead(ctx context.Context, sc *scene, input json.RawMessage) forkcore.ToolResult {
	path, offset, limit := "", 1, readLines
	err := decodeInput("Read", input, []field{
		{"file_path", &path, true},
		{"offset", &offset, false},
		{"limit", &limit, false},
	})
	if err != nil {
		return failf("%v", err)
	}
	// Models count from 0 now and then; the first line is what they mean.
	if offset == 0 {
		offset = 1
	}
	if offset < 1 || limit < 1 {
		return failf("offset and limit count lines from 1, got %d and %d", offset, limit)
	}
	rel, err := sc.files.rel(path)
	if err != nil {
		return failf("%v", err)
	}
	f, info, err := sc.files.openText(rel)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return failf("%s does not exist%s", showPath(rel), sc.files.nearNames(rel))
		}
		return failf("%v", err)
	}
	defer f.Close()

	var b strings.Builder
	lines := newLineReader(ctxReader{ctx, f}, '\n', readLineSize+sc.redact.margin())
	n, more := 0, false
	for {
		l, err := lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failf("reading %s: %v", showPath(rel), err)
		}
		if lines.nul {
			return failf("%s %v", showPath(rel), errBinary)
		}
		if n++; n < offset {
			continue
		}
		if n-offset >= limit || b.Len() >= s.opts.FileOutput {
			more = true
			break
		}
		fmt.Fprintf(&b, "%6d\t%s\n", n, l.show(readLineSize, sc.redact))
	}
	switch {
	case n == 0:
		return forkcore.ToolResult{Text: fmt.Sprintf("%s is empty", showPath(rel))}
	case n < offset:
		return failf("offset %d is past the end: %s has %d lines", offset, showPath(rel), n)
	case more:
		fmt.Fprintf(&b, "[lines %d to %d of a file of %d bytes: go on with offset %d]\n", offset, n-1, info.Size(), n)
	}
	return forkcore.ToolResult{Text: b.String()}
}

// nearNames answers a missing path with names of its directory that look alike.
// It reads only the beginning of a huge directory.
func (w *workspace) nearNames(rel string) string {
	const hint = ": find it with Glob"
	dir, want := filepath.Dir(rel), strings.ToLower(filepath.Base(rel))
	d, err := w.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return hint
	}
	defer d.Close()
	entries, _ := d.ReadDir(1000)
	var near []string
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		stem := strings.TrimSuffix(want, filepath.Ext(want))
		if name == want || len(stem) > 2 && strings.HasPrefix(name, stem) || distance(name, want) <= min(2, len(want)/3) {
			near = append(near, showPath(filepath.Join(dir, e.Name())))
		}
	}
	if len(near) == 0 {
		return hint
	}
	slices.Sort(near)
	return ": did you mean " + strings.Join(near[:min(len(near), 3)], " or ") + "?"
}

// distance is the number of single-byte edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
