// Package tools holds the tools that agents call: Bash, Glob, Grep and Read.
//
// A tool that fails is a result with IsError that the model reads, never a Go
// error. Every result is clean text (see forkcore.CleanText) without the secrets of its
// Env. Memory is bounded whatever a file holds or a command prints.
package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"forkyard/forkcore"
)

// ModeBypass is the permission mode in which Bash runs. See Env.PermissionMode.
const ModeBypass = "bypassPermissions"

// Env is where the tools of one run act.
type Env struct {
	// Workspace is the absolute directory that files are read in and commands
	// start in. It is opened through os.Root for each call.
	Workspace string
	// PermissionMode is default, acceptEdits, plan, dontAsk or
	// bypassPermissions. Empty or unknown is as careful as default.
	PermissionMode string
	// Secrets are values replaced by "[secret removed]" wherever they would show.
	Secrets []string
	// TempDir is a private directory of the run that becomes HOME of its
	// commands. Empty gives each command one of its own, removed afterwards.
	TempDir string
}

// Options of a Set. The zero value is ready to use.
type Options struct {
	// Logger receives what a person should look into, such as a panic of a
	// tool. Nothing is logged without it.
	Logger *slog.Logger
	// Path is the PATH of commands; default: that of this process.
	Path string
	// BashTimeout is the limit of a command that names none, default 120 s;
	// BashTimeoutMax the longest it may name, default 600 s.
	BashTimeout, BashTimeoutMax time.Duration
	// SearchTimeout is the limit of Glob and Grep, default 20 s.
	SearchTimeout time.Duration
	// BashOutput is how much of a command's output is kept, head and tail
	// together, in bytes; default 30,000.
	BashOutput int
	// FileOutput is how much text Read and Grep return, in bytes; default
	// 100,000.
	FileOutput int
}

// Set is the tools of a process. It holds no state of a run and is safe for
// concurrent use.
type Set struct {
	opts  Options
	tools []tool
	// bash and rg are the programs found on PATH, or empty.
	bash, rg string
	// namespace holds what a command starts.
	namespace *namespace
}

type tool struct {
	spec forkcore.ToolSpec
	run  func(context.Context, *scene, json.RawMessage) forkcore.ToolResult
}

// scene is what one call acts on.
type scene struct {
	env    Env
	files  *workspace
	redact *redactor
}

// NewSet returns the tools with bash and rg as they are found now. Without rg
// Grep searches by itself, without bash the Bash tool says so.
func NewSet(opts Options) *Set {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.Path = cmp.Or(opts.Path, os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin")
	opts.BashTimeout = cmp.Or(opts.BashTimeout, 120*time.Second)
	opts.BashTimeoutMax = cmp.Or(opts.BashTimeoutMax, 600*time.Second)
	opts.SearchTimeout = cmp.Or(opts.SearchTimeout, 20*time.Second)
	opts.BashOutput = cmp.Or(opts.BashOutput, 30_000)
	opts.FileOutput = cmp.Or(opts.FileOutput, 100_000)

	s := &Set{opts: opts, namespace: newNamespace(opts.Logger)}
	// LookPath never answers with a program of the current directory.
	if path, err := exec.LookPath("bash"); err == nil {
		s.bash = path
	}
	if path, err := exec.LookPath("rg"); err == nil {
		s.rg = path
	}
	// This order is the order of the tools array of every request.
	s.tools = []tool{
		{spec("Bash", bashDescription, bashSchema, false), s.runBash},
		{spec("Glob", globDescription, globSchema, true), s.runGlob},
		{spec("Grep", grepDescription, grepSchema, true), s.runGrep},
		{spec("Read", readDescription, readSchema, true), s.runRead},
	}
	return s
}

func spec(name, description, schema string, readOnly bool) forkcore.ToolSpec {
	return forkcore.ToolSpec{
		Name:        name,
		Description: strings.TrimSpace(description),
		InputSchema: json.RawMessage(schema),
		ReadOnly:    readOnly,
	}
}

// Specs returns what the model is told about the tools, always in the same
// order and with the same bytes.
func (s *Set) Specs() []forkcore.ToolSpec {
	specs := make([]forkcore.ToolSpec, len(s.tools))
	for i, t := range s.tools {
		specs[i] = t.spec
		specs[i].InputSchema = slices.Clone(t.spec.InputSchema)
	}
	return specs
}

// ReadOnly tells whether the named tool changes nothing, so that it may run
// beside others and again after a crash. An unknown tool is not read-only.
func (s *Set) ReadOnly(name string) bool {
	t, ok := s.find(name)
	return ok && t.spec.ReadOnly
}

// Run executes one call and returns within the tool's time limit, or soon after
// ctx is done. It never panics: whatever goes wrong is a result with IsError.
func (s *Set) Run(ctx context.Context, env Env, call forkcore.ToolCall) (result forkcore.ToolResult) {
	redact := newRedactor(env.Secrets)
	defer func() {
		if p := recover(); p != nil {
			s.opts.Logger.ErrorContext(ctx, "tool panicked", "tool", call.Name, "call", call.ID,
				"panic", redact.whole(fmt.Sprint(p)), "stack", string(debug.Stack()))
			result = failf("%s stopped on an internal error: %v", call.Name, p)
		}
		result.Text = forkcore.CleanText(redact.whole(result.Text))
	}()

	t, ok := s.find(call.Name)
	if !ok {
		names := make([]string, len(s.tools))
		for i, t := range s.tools {
			names[i] = t.spec.Name
		}
		return failf("there is no tool %s: the tools are %s", quote(call.Name), strings.Join(names, ", "))
	}
	if ctx.Err() != nil {
		return failf("%s was cancelled before it began", call.Name)
	}
	files, err := openWorkspace(env.Workspace)
	if err != nil {
		return failf("%v", err)
	}
	defer files.close()
	return t.run(ctx, &scene{env: env, files: files, redact: redact}, call.Input)
}

func (s *Set) find(name string) (tool, bool) {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.spec.Name == name })
	if i < 0 {
		return tool{}, false
	}
	return s.tools[i], true
}

func failf(format string, args ...any) forkcore.ToolResult {
	return forkcore.ToolResult{Text: fmt.Sprintf(format, args...), IsError: true}
}
