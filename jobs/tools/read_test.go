package tools

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	y := newYard(t, map[string]string{
		"three.txt":   "one\ntwo\nthree",
		"crlf.txt":    "one\r\ntwo\r\n",
		"empty.txt":   "",
		"bad.txt":     "a\xffb\n",
		"many.txt":    strings.Repeat("line\n", 2001),
		"exact.txt":   strings.Repeat("line\n", 2000),
		"wide.txt":    strings.Repeat(strings.Repeat("w", 1999)+"\n", 300),
		"dir/":        "",
		"README.md":   "x",
		"config.yaml": "x",
	})
	for _, tt := range []struct{ name, in, want string }{
		{"whole", `{"file_path":"three.txt"}`, "     1\tone\n     2\ttwo\n     3\tthree\n"},
		{"from a line", `{"file_path":"three.txt","offset":"2"}`, "     2\ttwo\n     3\tthree\n"},
		{"from line 0", `{"file_path":"three.txt","offset":0}`, "     1\tone\n     2\ttwo\n     3\tthree\n"},
		{"some lines", `{"file_path":"three.txt","offset":2,"limit":1}`, "     2\ttwo\n[lines 2 to 2 of a file of 13 bytes: go on with offset 3]\n"},
		{"up to the last line", `{"file_path":"three.txt","offset":2,"limit":2}`, "     2\ttwo\n     3\tthree\n"},
		{"carriage returns", `{"file_path":"crlf.txt"}`, "     1\tone\n     2\ttwo\n"},
		{"empty", `{"file_path":"empty.txt"}`, "empty.txt is empty"},
		{"bad bytes", `{"file_path":"bad.txt"}`, "     1\ta\uFFFDb\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			if got := y.ok("Read", tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, in, want string }{
		{"past the end", `{"file_path":"three.txt","offset":9}`, "offset 9 is past the end: three.txt has 3 lines"},
		{"before the beginning", `{"file_path":"three.txt","offset":-1}`, "count lines from 1"},
		{"no lines", `{"file_path":"three.txt","limit":0}`, "count lines from 1"},
		{"no path", `{}`, "file_path is required"},
		{"directory", `{"file_path":"dir"}`, `dir is a directory: list its files with Glob, for example with the pattern "dir/*"`},
		{"the workspace", `{"file_path":"."}`, "is a directory"},
		{"below a file", `{"file_path":"three.txt/x"}`, "not a directory"},
		{"other case", `{"file_path":"readme.md"}`, "readme.md does not exist: did you mean README.md?"},
		{"other ending", `{"file_path":"config.yml"}`, "did you mean config.yaml?"},
		{"misspelt", `{"file_path":"thee.txt"}`, "did you mean three.txt?"},
		{"nothing near", `{"file_path":"dir/unheard.of"}`, "dir/unheard.of does not exist: find it with Glob"},
		{"no directory", `{"file_path":"no/unheard.of"}`, "does not exist: find it with Glob"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			y.fails("Read", tt.in, tt.want)
		})
	}
	t.Run("line limit", func(t *testing.T) {
		y := y.at(t)
		got := y.ok("Read", `{"file_path":"many.txt"}`)
		if want := "  2000\tline\n[lines 1 to 2000 of a file of 10005 bytes: go on with offset 2001]\n"; !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want it to end with %q", got[len(got)-100:], want)
		}
		if got := y.ok("Read", `{"file_path":"exact.txt"}`); !strings.HasSuffix(got, "  2000\tline\n") {
			t.Errorf("got %q", got[len(got)-100:])
		}
	})
	t.Run("size limit", func(t *testing.T) {
		y := y.at(t)
		got := y.ok("Read", `{"file_path":"wide.txt"}`)
		if len(got) > y.set.opts.FileOutput+3000 || !strings.Contains(got, "go on with offset 51]") {
			t.Errorf("%d bytes: %q", len(got), got[len(got)-100:])
		}
	})
}

func TestB23_BinaryFilesAreRefused(t *testing.T) {
	y := newYard(t, map[string]string{
		"elf":  "\x7fELF\x00" + strings.Repeat("x", 4091),
		"late": strings.Repeat("text\n", 10_000) + "\x00\n",
	})
	y.fails("Read", `{"file_path":"elf"}`, "elf is a binary file")
	y.fails("Read", `{"file_path":"late","offset":9999}`, "late is a binary file")
	if got, want := y.ok("Read", `{"file_path":"late","limit":1}`), "     1\ttext\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want it to begin with %q", got, want)
	}
}

func TestB54_SpecialFilesAreRefusedUnread(t *testing.T) {
	y := newYard(t, nil)
	fifo, socket, device := filepath.Join(y.env.Workspace, "fifo"), filepath.Join(y.env.Workspace, "socket"), filepath.Join(y.env.Workspace, "zero")
	must(t, syscall.Mkfifo(fifo, 0o644))
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	must(t, os.Symlink("fifo", filepath.Join(y.env.Workspace, "link")))
	// What is written here stays in the FIFO, as long as it is open, unless a
	// tool reads it.
	held, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, err)
	defer held.Close()
	_, err = held.WriteString("unread")
	must(t, err)

	start := time.Now()
	y.fails("Read", `{"file_path":"fifo"}`, "fifo is a FIFO")
	y.fails("Read", `{"file_path":"link"}`, "link is a FIFO")
	y.fails("Read", `{"file_path":"socket"}`, "socket is a socket")
	y.fails("Read", `{"file_path":"/dev/zero"}`, "outside the workspace")
	if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err == nil {
		y.fails("Read", `{"file_path":"zero"}`, "zero is a device")
	} else {
		t.Logf("no device: %v", err)
	}
	for how, set := range bothSearches(t) {
		y.set = set
		if got := y.ok("Grep", `{"pattern":"unread"}`); got != "No matches found" {
			t.Errorf("%s: got %q", how, got)
		}
	}
	if got := y.ok("Glob", `{"pattern":"**"}`); got != "No files match" {
		t.Errorf("Glob: got %q", got)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	buf := make([]byte, 10)
	if n, err := held.Read(buf); string(buf[:n]) != "unread" {
		t.Errorf("the FIFO holds %q, %v, want what was written", buf[:n], err)
	}
}

func TestB54_LongLinesAreReadInBoundedMemory(t *testing.T) {
	y := newYard(t, nil)
	chunk := strings.Repeat("日本語", 10_000)
	const chunks = 583 // 52 MB
	f, err := os.Create(filepath.Join(y.env.Workspace, "long.txt"))
	must(t, err)
	for range chunks {
		_, err := f.WriteString(chunk)
		must(t, err)
	}
	_, err = f.WriteString("\nnext\n")
	must(t, err)
	must(t, f.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := y.ok("Read", `{"file_path":"long.txt"}`)
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
	first, rest, _ := strings.Cut(got, "\n")
	if want := fmt.Sprintf("日本語 [line cut: it has %d bytes]", chunks*len(chunk)); !strings.HasSuffix(first, want) {
		t.Errorf("first line ends with %q, want %q", first[max(0, len(first)-60):], want)
	}
	if rest != "     2\tnext\n" {
		t.Errorf("then %q", rest)
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ab", 1}, {"ab", "ba", 2}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
