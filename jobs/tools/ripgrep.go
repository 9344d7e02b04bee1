package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ripgrep searches with the program rg. It resolves paths by itself, below the
// workspace it is started in; it does not follow symlinks that it meets, its
// starting point is none, and a single file to search is handed to it open.
type ripgrep struct{ program string }

// pathMax is the longest path that Linux resolves (PATH_MAX).
const pathMax = 4096

func (g ripgrep) search(ctx context.Context, sc *scene, q grepQuery, p *grepPrinter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends rg when the printer is full
	cmd := exec.CommandContext(ctx, g.program, q.arguments()...)
	cmd.Dir = sc.files.dir
	cmd.Env = []string{"LANG=C.UTF-8"}
	if q.file != nil {
		cmd.Stdin = q.file
	}
	// A child that holds the pipe cannot delay the return.
	cmd.WaitDelay = time.Second
	stderr := newCapture(2000, sc.redact)
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting rg: %w", err)
	}

	end := byte('\n')
	if q.mode == grepFiles {
		end = 0
	}
	lines := newLineReader(stdout, end, pathMax+32+p.lineMax())
	for err == nil {
		var l line
		if l, err = lines.next(); err == nil && !q.report(p, l) {
			break
		}
	}
	if p.full {
		cancel()
		_ = cmd.Wait() // killed on purpose
		return nil
	}
	wait := cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err = endOf(err); err != nil {
		return fmt.Errorf("reading from rg: %w", err)
	}
	// Code 1 means no match. Code 2 without a message comes from files that
	// could not be read, which are passed over.
	var exit *exec.ExitError
	if errors.As(wait, &exit) && (exit.ExitCode() == 1 || stderr.total == 0 || p.entries > 0) {
		return nil
	}
	if wait != nil && stderr.total > 0 {
		return errors.New(strings.TrimSpace(stderr.text()))
	}
	return wait
}

// arguments builds the command line. Whatever the model wrote stands behind the
// = of an option or behind --, so that it cannot become an option itself; above
// all not --pre, which runs a program.
func (q grepQuery) arguments() []string {
	args := []string{
		"--no-config", "--no-messages", "--color=never", "--no-heading",
		"--with-filename", "--null", "--sort=path", "--no-mmap",
		// As the built-in search and Glob do: everything but these two.
		"--hidden", "--no-ignore",
	}
	if q.glob != "" {
		args = append(args, "--glob="+q.glob)
	}
	args = append(args, "--glob=!.git", "--glob=!node_modules") // the last one wins
	if q.language != "" {
		args = append(args, "--type="+q.language)
	}
	if q.ignoreCase {
		args = append(args, "--ignore-case")
	}
	if q.multiline {
		args = append(args, "--multiline", "--multiline-dotall")
	}
	switch {
	case q.mode == grepFiles:
		args = append(args, "--files-with-matches")
	case q.mode == grepCount && q.multiline:
		args = append(args, "--count-matches")
	case q.mode == grepCount:
		args = append(args, "--count")
	default:
		// Numbers always: the printer needs them and leaves them out.
		args = append(args, "--line-number",
			"--before-context="+strconv.Itoa(q.before), "--after-context="+strconv.Itoa(q.after))
	}
	target := "./"
	switch {
	case q.file != nil:
		target = "-" // standard input
	case q.rel != ".":
		target += filepath.ToSlash(q.rel)
	}
	return append(args, "--regexp="+q.pattern, "--", target)
}

// report hands one record of rg to the printer. With --null a path ends in NUL,
// so that no name can be mistaken for something else; records without one are
// rg's own remarks and separators.
func (q grepQuery) report(p *grepPrinter, l line) bool {
	path, rest, found := bytes.Cut(l.text, []byte{0})
	if !found && q.mode != grepFiles {
		return true
	}
	name := strings.TrimPrefix(string(path), "./")
	if q.file != nil {
		name = q.rel
	}
	switch q.mode {
	case grepFiles:
		return p.file(name)
	case grepCount:
		n, err := strconv.Atoi(string(rest))
		return err != nil || p.count(name, n)
	}
	digits := 0
	for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '9' {
		digits++
	}
	n, err := strconv.Atoi(string(rest[:digits]))
	if err != nil || digits == len(rest) {
		return true
	}
	head := len(path) + 1 + digits + 1
	return p.line(name, n, rest[digits] == ':', line{text: l.text[head:], size: l.size - int64(head)})
}
