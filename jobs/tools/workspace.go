package tools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sniffSize is how much of a file decides whether it is binary.
const sniffSize = 8 << 10

// workspace is the directory a run may read, through os.Root: the kernel
// resolves each component below the open directory, so that a symlink swapped
// in between a check and an open leads nowhere. os.Root does not stop hard links
// to files outside, nor bind mounts; only a command can make those, and commands
// need bypassPermissions.
type workspace struct {
	dir  string
	root *os.Root
}

func openWorkspace(dir string) (*workspace, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("the workspace %s is not an absolute path", quote(dir))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	return &workspace{dir: filepath.Clean(dir), root: root}, nil
}

func (w *workspace) close() { _ = w.root.Close() }

// rel turns a path as the model wrote it, relative to the workspace or absolute
// inside it, into a clean path relative to the workspace.
func (w *workspace) rel(path string) (string, error) {
	if path == "" {
		return ".", nil
	}
	if !filepath.IsAbs(path) {
		if clean := filepath.Clean(path); filepath.IsLocal(clean) {
			return clean, nil
		}
		return "", outsideError(path)
	}
	bases := []string{w.dir}
	if real, err := filepath.EvalSymlinks(w.dir); err == nil && real != w.dir {
		bases = append(bases, real)
	}
	for _, base := range bases {
		if rel, err := filepath.Rel(base, path); err == nil && filepath.IsLocal(rel) {
			return rel, nil
		}
	}
	return "", outsideError(path)
}

func outsideError(path string) error {
	return fmt.Errorf("%s is outside the workspace: only files of the workspace can be reached", showPath(path))
}

// stat is like os.Stat with an error that the model can use.
func (w *workspace) stat(rel string) (fs.FileInfo, error) {
	info, err := w.root.Stat(rel)
	if err != nil {
		return nil, pathError(rel, err)
	}
	return info, nil
}

// openText opens a regular text file at its beginning. Anything else is refused
// before it is opened, as opening a FIFO blocks and opening a device may act;
// O_NONBLOCK and the second check hold when the file was swapped in between.
func (w *workspace) openText(rel string) (*os.File, fs.FileInfo, error) {
	info, err := w.stat(rel)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(rel, info); err != nil {
		return nil, nil, err
	}
	f, err := w.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, pathError(rel, err)
	}
	if info, err = f.Stat(); err != nil {
		err = pathError(rel, err)
	} else if err = regular(rel, info); err == nil {
		err = sniff(rel, f)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

var errBinary = errors.New("is a binary file, which cannot be shown as text")

func sniff(rel string, f *os.File) error {
	head := make([]byte, sniffSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return pathError(rel, err)
	}
	if bytes.IndexByte(head[:n], 0) >= 0 {
		return fmt.Errorf("%s %w", showPath(rel), errBinary)
	}
	return nil
}

func regular(rel string, info fs.FileInfo) error {
	mode := info.Mode()
	kind := ""
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("%s is a directory: list its files with Glob, for example with the pattern %s",
			showPath(rel), quote(filepath.Join(rel, "*")))
	case mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case mode&fs.ModeSocket != 0:
		kind = "a socket"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	default:
		kind = "a special file"
	}
	return fmt.Errorf("%s is %s: only regular files can be read", showPath(rel), kind)
}

// pathError names the path as the model knows it and drops the syscall.
func pathError(rel string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	// os keeps its error for this unexported.
	if strings.Contains(err.Error(), "path escapes") {
		return fmt.Errorf("%s leads out of the workspace through a symlink: only files of the workspace can be reached", showPath(rel))
	}
	return fmt.Errorf("%s: %w", showPath(rel), err)
}

// realDir resolves the symlinks of a directory's path and refuses what leads out
// of the workspace: for programs that follow a symlink they are given.
func (w *workspace) realDir(rel string) (string, error) {
	full, err := filepath.EvalSymlinks(filepath.Join(w.dir, rel))
	if err != nil {
		return "", pathError(rel, err)
	}
	return w.rel(full)
}

// skipDir names the directories a search does not enter unless it starts there.
func skipDir(name string) bool { return name == ".git" || name == "node_modules" }
