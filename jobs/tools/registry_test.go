package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// yard is a workspace with a set of tools.
type yard struct {
	t   *testing.T
	set *Set
	env Env
}

// newYard makes a workspace of the given files. A path that ends in / is a
// directory, a content "-> x" makes a symlink to x.
func newYard(t *testing.T, files map[string]string) *yard {
	t.Helper()
	y := &yard{t: t, set: NewSet(Options{}), env: Env{Workspace: t.TempDir(), PermissionMode: ModeBypass}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(y.env.Workspace, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(files[name], "-> "); ok {
			must(t, os.Symlink(target, path))
		} else if strings.HasSuffix(name, "/") {
			must(t, os.MkdirAll(path, 0o755))
		} else {
			must(t, os.WriteFile(path, []byte(files[name]), 0o644))
		}
	}
	return y
}

// at is the yard in a subtest.
func (y *yard) at(t *testing.T) *yard {
	sub := *y
	sub.t = t
	return &sub
}

func (y *yard) run(name, input string) forkcore.ToolResult {
	return y.set.Run(y.t.Context(), y.env, forkcore.ToolCall{ID: "toolu_1", Name: name, Input: json.RawMessage(input)})
}

// ok runs a call that must succeed and returns its text.
func (y *yard) ok(name, input string) string {
	y.t.Helper()
	r := y.run(name, input)
	if r.IsError {
		y.t.Fatalf("%s%s failed: %s", name, input, r.Text)
	}
	return r.Text
}

// fails runs a call that must fail with a text that holds each of want.
func (y *yard) fails(name, input string, want ...string) string {
	y.t.Helper()
	r := y.run(name, input)
	if !r.IsError {
		y.t.Fatalf("%s%s succeeded, want an error: %s", name, input, r.Text)
	}
	for _, w := range want {
		if !strings.Contains(r.Text, w) {
			y.t.Errorf("%s%s: got %q, want it to contain %q", name, input, r.Text, w)
		}
	}
	return r.Text
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// input encodes the pairs of names and values of one call.
func input(pairs ...any) string {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestSpecsAreFixed(t *testing.T) {
	want := map[string][]string{
		"Bash": {"command", "description", "timeout", "run_in_background"},
		"Glob": {"pattern", "path"},
		"Grep": {"pattern", "path", "glob", "type", "output_mode", "-i", "-n", "-A", "-B", "-C", "multiline", "head_limit"},
		"Read": {"file_path", "offset", "limit"},
	}
	specs := NewSet(Options{}).Specs()
	var names []string
	for _, s := range specs {
		names = append(names, s.Name)
		if diff := cmp.Diff(want[s.Name], propertyNames(t, s.InputSchema)); diff != "" {
			t.Errorf("%s: properties differ (-want +got):\n%s", s.Name, diff)
		}
		var compact bytes.Buffer
		must(t, json.Compact(&compact, s.InputSchema))
		if !bytes.Equal(compact.Bytes(), s.InputSchema) {
			t.Errorf("%s: the schema is not compact", s.Name)
		}
		if !bytes.HasSuffix(s.InputSchema, []byte(`"additionalProperties":false}`)) {
			t.Errorf("%s: the schema allows more properties", s.Name)
		}
		if s.Description == "" || s.Description != strings.TrimSpace(s.Description) {
			t.Errorf("%s: description %q is empty or not trimmed", s.Name, s.Description)
		}
		// Every field the schema names is one the tool decodes.
		for _, field := range want[s.Name] {
			r := newYard(t, nil).run(s.Name, input(field, nil))
			if strings.Contains(r.Text, "unknown field") {
				t.Errorf("%s does not know its own field %s: %s", s.Name, field, r.Text)
			}
		}
	}
	if diff := cmp.Diff([]string{"Bash", "Glob", "Grep", "Read"}, names); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(specs, NewSet(Options{BashOutput: 1}).Specs()); diff != "" {
		t.Errorf("specs of two sets differ:\n%s", diff)
	}
}

// propertyNames reads the names in the order they stand in.
func propertyNames(t *testing.T, schema json.RawMessage) []string {
	t.Helper()
	var s struct {
		Properties json.RawMessage `json:"properties"`
	}
	must(t, json.Unmarshal(schema, &s))
	d := json.NewDecoder(bytes.NewReader(s.Properties))
	var names []string
	for depth := 0; ; {
		token, err := d.Token()
		if err != nil {
			return names
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' {
				depth++
			} else if token == '}' {
				depth--
			}
		case string:
			if depth == 1 {
				names = append(names, token)
			}
		}
	}
}

func TestReadOnly(t *testing.T) {
	s := NewSet(Options{})
	for name, want := range map[string]bool{"Bash": false, "Glob": true, "Grep": true, "Read": true, "Agent": false} {
		if got := s.ReadOnly(name); got != want {
			t.Errorf("ReadOnly(%s) = %v, want %v", name, got, want)
		}
	}
}

func TestRunAnswersWhateverIsAsked(t *testing.T) {
	y := newYard(t, map[string]string{"a": "text"})
	y.fails("Teleport", `{}`, `no tool "Teleport"`, "Bash, Glob, Grep, Read")
	y.fails("Read", `{"file_path":"a","colour":1}`, `unknown field "colour"`, "file_path, offset, limit")

	gone := *y
	gone.env.Workspace = filepath.Join(y.env.Workspace, "gone")
	gone.fails("Read", `{"file_path":"a"}`, "workspace")
	gone.env.Workspace = "relative"
	gone.fails("Read", `{"file_path":"a"}`, "absolute")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := y.set.Run(ctx, y.env, forkcore.ToolCall{Name: "Read", Input: json.RawMessage(`{"file_path":"a"}`)}); !r.IsError {
		t.Errorf("a cancelled call succeeded: %s", r.Text)
	}
}

func TestRunRecoversFromPanics(t *testing.T) {
	y := newYard(t, nil)
	var log bytes.Buffer
	y.set = NewSet(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	y.env.Secrets = []string{"hunter22"}
	y.set.tools = append(y.set.tools, tool{
		spec: forkcore.ToolSpec{Name: "Broken"},
		run:  func(context.Context, *scene, json.RawMessage) forkcore.ToolResult { panic("hunter22 was the word") },
	})
	text := y.fails("Broken", `{}`, "Broken stopped on an internal error", secretRemoved)
	if strings.Contains(text+log.String(), "hunter22") || !strings.Contains(log.String(), "tool panicked") {
		t.Errorf("log: %s\ntext: %s", log.String(), text)
	}
}

func TestSecretsLeaveNoTool(t *testing.T) {
	const secret = "fy_tok_0123456789abcdef"
	key := "-----BEGIN KEY-----\nMIIEabcdefghijkl\nq83vabcdefghijkl\n-----END KEY-----\n"
	y := newYard(t, map[string]string{
		"conf":           "token=" + secret + "\n" + key,
		"name-" + secret: "x",
		// The secret stands across each place where a tool cuts.
		"long": strings.Repeat("a", readLineSize-10) + secret + strings.Repeat("b", 5000) + "\n",
		"wide": strings.Repeat("a", grepLineSize-10) + secret + strings.Repeat("b", 5000) + "\n",
		// Replaced secrets make the kept text shorter, which must not bring the
		// cut one into view.
		"many": strings.Repeat(secret, 200) + "\n",
	})
	y.env.Secrets = []string{"", secret + "\n", key}
	y.set = NewSet(Options{BashOutput: 1000})
	calls := map[string]string{
		"whole":       y.ok("Read", `{"file_path":"conf"}`),
		"missing":     y.fails("Read", input("file_path", "no-"+secret)),
		"no tool":     y.fails(secret, `{}`),
		"long line":   y.ok("Read", `{"file_path":"long"}`),
		"many":        y.ok("Read", `{"file_path":"many"}`),
		"glob":        y.ok("Glob", `{"pattern":"*"}`),
		"command":     y.ok("Bash", input("command", "cat conf; cat long many wide")),
		"split":       y.ok("Bash", input("command", "printf fy_tok_; printf '%s' 0123456789abcdef; echo")),
		"at the cut":  y.ok("Bash", input("command", "head -c 490 /dev/zero | tr '\\0' a; cat many; printf "+secret+"; head -c 490 /dev/zero | tr '\\0' a")),
		"bad pattern": y.fails("Grep", input("pattern", "(["+secret)),
	}
	for i, set := range bothSearches(t) {
		y.set = set
		calls[fmt.Sprint("grep ", i)] = y.ok("Grep", `{"pattern":"token|aaa|fy_|MII","output_mode":"content"}`)
	}
	for name, text := range calls {
		for _, part := range []string{secret[:11], "0123456789", "MIIEabcdefghijkl", "fy_tok"} {
			if strings.Contains(text, part) {
				t.Errorf("%s: %q is left in %q", name, part, forkcore.CutText(text, 3000))
			}
		}
	}
	if want := "     1\ttoken=" + secretRemoved + "\n"; !strings.HasPrefix(calls["whole"], want) {
		t.Errorf("got %q, want it to begin with %q", calls["whole"], want)
	}
}

func TestConcurrentRuns(t *testing.T) {
	y := newYard(t, map[string]string{"a.go": "package a\n", "b/b.go": "package b\n"})
	want := map[string]string{}
	calls := map[string]string{
		"Read": `{"file_path":"a.go"}`,
		"Glob": `{"pattern":"**/*.go"}`,
		"Grep": `{"pattern":"package","output_mode":"content"}`,
		"Bash": `{"command":"cat a.go b/b.go"}`,
	}
	for name, in := range calls {
		want[name] = y.ok(name, in)
	}
	var wg sync.WaitGroup
	for range 6 {
		for name, in := range calls {
			wg.Go(func() {
				if r := y.run(name, in); r.Text != want[name] {
					t.Errorf("%s: got %q, want %q", name, r.Text, want[name])
				}
			})
		}
	}
	wg.Wait()
}

// FuzzRun feeds the read-only tools whatever a model may write: they answer,
// with clean text, and reach nothing outside.
func FuzzRun(f *testing.F) {
	for _, in := range []string{
		``, `null`, `[]`, `{}`, `{"file_path":"a.txt"}`, `{"file_path":"a.txt","offset":"2","limit":1e0}`,
		`{"pattern":"**/*"}`, `{"pattern":"{a,b","path":"x"}`, `{"pattern":"--pre=x","-A":"3","output_mode":"content"}`,
		`{"file_path":"../out","offset":-1}`, `{"file_path":"\u0000\ud83d"}`, `{"pattern":"(?i)[","multiline":"true"}`,
	} {
		f.Add(in)
	}
	dir := f.TempDir()
	ws := filepath.Join(dir, "ws")
	must(f, os.Mkdir(ws, 0o755))
	must(f, os.WriteFile(filepath.Join(dir, "out"), []byte("outside-needle\n"), 0o644))
	must(f, os.WriteFile(filepath.Join(ws, "a.txt"), []byte("one\ntwo\n"), 0o644))
	must(f, os.Symlink("../out", filepath.Join(ws, "link")))
	set := NewSet(Options{})
	set.rg = "" // a process for each input would make the search for inputs slow
	f.Fuzz(func(t *testing.T, in string) {
		for _, name := range []string{"Read", "Glob", "Grep"} {
			r := set.Run(t.Context(), Env{Workspace: ws}, forkcore.ToolCall{Name: name, Input: json.RawMessage(in)})
			if r.Text == "" || !utf8.ValidString(r.Text) || strings.Contains(r.Text, "\x00") {
				t.Errorf("%s(%q): text %q is empty or not clean", name, in, r.Text)
			}
			if strings.Contains(r.Text, "internal error") {
				t.Errorf("%s(%q) panicked: %s", name, in, r.Text)
			}
			if strings.Contains(r.Text, "outside-needle") && !strings.Contains(in, "outside") {
				t.Errorf("%s(%q) read outside: %s", name, in, r.Text)
			}
		}
	})
}
