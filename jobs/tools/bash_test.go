package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBash(t *testing.T) {
	y := newYard(t, map[string]string{"a.txt": "alpha\n"})
	for _, tt := range []struct{ name, command, want string }{
		{"output", "cat a.txt", "alpha\n[exit code 0]"},
		{"no output", "true", "[exit code 0]"},
		{"no line end", "printf x", "x\n[exit code 0]"},
		{"both streams in order", "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n[exit code 0]"},
		{"in the workspace", `[ "$PWD" = ` + y.env.Workspace + ` ] && echo yes`, "yes\n[exit code 0]"},
		{"a home of its own", `cd && ls -A && stat -c %a . && [ "$HOME" != /root ] && echo private`, "700\nprivate\n[exit code 0]"},
		// Without a session of its own a command could open the terminal of
		// whoever started the server.
		{"a session of its own", `cut -d' ' -f6 /proc/$$/stat | grep -qxE "1|$$" && echo own`, "own\n[exit code 0]"},
		{"bash, not sh", "[[ abc == a* ]] && echo {1..3}", "1 2 3\n[exit code 0]"},
		{"a tail that comes late", "echo a > >(cat)", "a\n[exit code 0]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			if got := y.ok("Bash", input("command", tt.command, "description", "test")); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, tt := range []struct{ name, command, want string }{
		{"exit code", "echo no; exit 3", "no\n[exit code 3]"},
		{"not found", "no-such-program", "127]"},
		{"syntax", "if", "[exit code 2]"},
		{"signal", "kill -9 $$", "[exit code 137"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			y := y.at(t)
			y.fails("Bash", input("command", tt.command), tt.want)
		})
	}
	t.Run("bad input", func(t *testing.T) {
		y := y.at(t)
		y.fails("Bash", `{}`, "command is required")
		y.fails("Bash", `{"command":"true","timeout":0}`, "timeout must be")
		y.fails("Bash", `{"command":"true","run_in_background":true}`, "not available yet")
		y.ok("Bash", `{"command":"true","run_in_background":false,"timeout":"5000"}`)
	})
	t.Run("without bash", func(t *testing.T) {
		bare := y.at(t)
		bare.set = NewSet(Options{})
		bare.set.bash = ""
		bare.fails("Bash", `{"command":"true"}`, "not installed")
	})
}

func TestBashNeedsPermission(t *testing.T) {
	for _, mode := range []string{"", "default", "acceptEdits", "plan", "dontAsk", "BypassPermissions", "made-up"} {
		y := newYard(t, nil)
		y.env.PermissionMode = mode
		y.fails("Bash", `{"command":"touch ran"}`, "Bash needs permission", ModeBypass)
		y.fails("Bash", `{}`, ModeBypass)
		if _, err := os.Lstat(filepath.Join(y.env.Workspace, "ran")); err == nil {
			t.Errorf("mode %q: the command ran", mode)
		}
	}
}

func TestBashEnvironmentIsAllowListed(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "leak-1")
	t.Setenv("FORKYARD_ADMIN_TOKEN", "leak-2")
	t.Setenv("SOMETHING_ELSE", "leak-3")
	t.Setenv("BASH_ENV", "/leak-4")
	y := newYard(t, nil)
	y.env.TempDir = filepath.Join(t.TempDir(), "home")
	text := y.ok("Bash", `{"command":"env -0 | tr '\\0' '\\n'"}`)
	if strings.Contains(text, "leak") {
		t.Errorf("a variable leaked: %s", text)
	}
	var names []string
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			names = append(names, name)
			values[name] = value
		}
	}
	slices.Sort(names)
	// PWD, SHLVL and _ are bash's own.
	want := []string{"EDITOR", "GIT_EDITOR", "GIT_TERMINAL_PROMPT", "HOME", "LANG", "PAGER", "PATH", "PWD", "SHLVL", "TERM", "_"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if values["HOME"] != y.env.TempDir || values["TERM"] != "dumb" || values["PATH"] != os.Getenv("PATH") {
		t.Errorf("values: %v", values)
	}
	y.env.TempDir = ""
	home, _, _ := strings.Cut(y.ok("Bash", `{"command":"echo $HOME; touch $HOME/x"}`), "\n")
	if _, err := os.Stat(home); home == "" || !os.IsNotExist(err) {
		t.Errorf("home %q is left: %v", home, err)
	}
}

// No executor's descriptor reaches a command: it could read the connections of
// the server.
func TestBashInheritsNoFiles(t *testing.T) {
	f, err := os.Open(os.DevNull)
	must(t, err)
	defer f.Close()
	y := newYard(t, nil)
	if got, want := y.ok("Bash", `{"command":"for f in /proc/$$/fd/*; do echo ${f##*/}; done | sort -n | head -3; readlink /proc/$$/fd/0"}`),
		"0\n1\n2\n/dev/null\n[exit code 0]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestB23_BashOutputHasNoNUL(t *testing.T) {
	y := newYard(t, nil)
	if got, want := y.ok("Bash", input("command", `printf 'a\0b'`)), "a\u2400b\n[exit code 0]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestB46_BashOutputIsValidUTF8(t *testing.T) {
	y := newYard(t, nil)
	if got, want := y.ok("Bash", input("command", `printf 'ok\xff\xe5\xa5'`)), "ok\uFFFD\n[exit code 0]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestX15_NothingWaitsForAPerson(t *testing.T) {
	y := newYard(t, nil)
	git := "git init -q . && git config user.name A && git config user.email a@example.org && "
	for _, tt := range []struct {
		name, command string
		fails         bool
	}{
		{"cat", "cat", false},
		{"read", "read -r answer", true},
		{"terminal", "read -r answer < /dev/tty", true},
		{"B38 commit without a message", git + "git commit --allow-empty", true},
		{"rebase without one", "git rebase --continue", true},
		{"rebase that opens an editor", git + "git commit -q --allow-empty -m one && git rebase -i --root", true},
		{"password", "git -c credential.helper= ls-remote http://127.0.0.1:1/x", true},
		{"pager", "git --paginate help -a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			r := y.run("Bash", input("command", tt.command, "timeout", 10_000))
			if took := time.Since(start); took > 8*time.Second || strings.Contains(r.Text, "time limit") {
				t.Errorf("took %v", took)
			}
			if r.IsError != tt.fails {
				t.Errorf("IsError is %v: %s", r.IsError, r.Text)
			}
		})
	}
}
