package engine_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

func TestSessionDefaults(t *testing.T) {
	no := false
	tests := []struct {
		name    string
		options func(*engine.Options)
		spec    forkcore.SessionSpec
		want    func(s *forkcore.Session) // changes to the usual defaults
	}{
		{"all", func(*engine.Options) {}, forkcore.SessionSpec{}, func(*forkcore.Session) {}},
		{"forks off", func(o *engine.Options) { o.ForkOff = true }, forkcore.SessionSpec{}, func(s *forkcore.Session) { s.Mode = forkcore.ModePlain }},
		{"coordinator", func(o *engine.Options) { o.Coordinator, o.ForkOff = true, true }, forkcore.SessionSpec{}, func(s *forkcore.Session) { s.Mode = forkcore.ModeCoordinator }},
		{"a mode of its own", func(o *engine.Options) { o.Coordinator = true }, forkcore.SessionSpec{Mode: forkcore.ModeFork}, func(*forkcore.Session) {}},
		{"nobody to ask", func(*engine.Options) {}, forkcore.SessionSpec{Interactive: &no}, func(s *forkcore.Session) {
			s.Interactive, s.PermissionMode = false, forkcore.PermissionDontAsk
		}},
		{"background and model", func(o *engine.Options) {
			o.AutoBackground, o.AutoBackgroundAfter, o.DefaultModel = true, time.Minute, "claude-opus-5-5"
		}, forkcore.SessionSpec{}, func(s *forkcore.Session) {
			s.AutoBackground, s.Model = time.Minute, "claude-opus-5-5"
		}},
		{"thinking loses its white space", func(*engine.Options) {}, forkcore.SessionSpec{Thinking: json.RawMessage(` { "type" : "adaptive" } `)}, func(s *forkcore.Session) {
			s.Thinking = json.RawMessage(`{"type":"adaptive"}`)
		}},
		{"thinking null is absent", func(*engine.Options) {}, forkcore.SessionSpec{Thinking: json.RawMessage(`null`)}, func(*forkcore.Session) {}},
		{"title is cleaned", func(*engine.Options) {}, forkcore.SessionSpec{Title: " a\x00b \n"}, func(s *forkcore.Session) { s.Title = "a\u2400b" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, nil, tt.options)
				got := y.newSession(tt.spec)
				wanted := forkcore.Session{
					ID: got.ID, Title: filepath.Base(y.options.Workspaces[0]), Workspace: y.options.Workspaces[0], Root: y.options.Workspaces[0], Model: "claude-sonnet-5-5", Mode: forkcore.ModeFork,
					PermissionMode: forkcore.PermissionDefault, Interactive: true, Head: got.Head,
					CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt, Version: got.Version,
				}
				tt.want(&wanted)
				if diff := cmp.Diff(wanted, got); diff != "" {
					t.Errorf("session (-want +got):\n%s", diff)
				}
				// The head is there, and the same for equal sessions.
				if _, err := y.store.Blobs(y.ctx, got.ID, got.Head); err != nil {
					t.Errorf("head: %v", err)
				}
				want(t, "head of an equal session", y.newSession(tt.spec).Head, got.Head)
			})
		})
	}
}

func TestBadSessionSpecs(t *testing.T) {
	no := false
	num := func(f float64) *float64 { return &f }
	tests := []struct {
		name   string
		spec   forkcore.SessionSpec // Workspace empty = a good one
		fields []string
	}{
		{"title", forkcore.SessionSpec{Title: strings.Repeat("x", 201)}, []string{"title"}},
		{"unknown model", forkcore.SessionSpec{Model: "claude-1"}, []string{"model"}},
		{"mode", forkcore.SessionSpec{Mode: "swarm"}, []string{"mode"}},
		{"permission mode", forkcore.SessionSpec{PermissionMode: "yolo"}, []string{"permission_mode"}},
		{"asking nobody", forkcore.SessionSpec{Interactive: &no, PermissionMode: forkcore.PermissionAcceptEdits}, []string{"permission_mode"}},
		{"thinking is text", forkcore.SessionSpec{Thinking: json.RawMessage(`"much"`)}, []string{"thinking"}},
		{"thinking type", forkcore.SessionSpec{Thinking: json.RawMessage(`{"type":"hard"}`)}, []string{"thinking"}},
		{"thinking is broken", forkcore.SessionSpec{Thinking: json.RawMessage(`{"type":`)}, []string{"thinking"}},
		{"effort", forkcore.SessionSpec{Effort: "heroic"}, []string{"effort"}},
		{"thinking that the model does not have", forkcore.SessionSpec{Thinking: json.RawMessage(`{"type":"disabled"}`)}, []string{"thinking"}},
		{"effort that the model does not have", forkcore.SessionSpec{Model: "claude-haiku-4-5", Effort: "low"}, []string{"effort"}},
		{"budget of zero", forkcore.SessionSpec{BudgetUSD: num(0)}, []string{"budget_usd"}},
		{"negative budget", forkcore.SessionSpec{BudgetUSD: num(-1)}, []string{"budget_usd"}},
		{"budget that is no number", forkcore.SessionSpec{BudgetUSD: num(math.NaN())}, []string{"budget_usd"}},
		{"endless budget", forkcore.SessionSpec{BudgetUSD: num(math.Inf(1))}, []string{"budget_usd"}},
		{"budget below the smallest unit", forkcore.SessionSpec{BudgetUSD: num(1e-10)}, []string{"budget_usd"}},
		{"negative seconds", forkcore.SessionSpec{AutoBackgroundSeconds: num(-0.5)}, []string{"auto_background_seconds"}},
		{"too many seconds", forkcore.SessionSpec{AutoBackgroundSeconds: num(86401)}, []string{"auto_background_seconds"}},
		{"seconds that are no number", forkcore.SessionSpec{AutoBackgroundSeconds: num(math.NaN())}, []string{"auto_background_seconds"}},
		{"all at once", forkcore.SessionSpec{
			Title: strings.Repeat("x", 201), Workspace: "relative", Model: "claude-1", Mode: "swarm", PermissionMode: "yolo", Thinking: json.RawMessage(`7`),
			Effort: "heroic", BudgetUSD: num(0), AutoBackgroundSeconds: num(-1),
		}, []string{"title", "workspace", "model", "mode", "permission_mode", "thinking", "effort", "budget_usd", "auto_background_seconds"}},
	}
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil, func(o *engine.Options) { o.Simulated = true })
		for _, tt := range tests {
			if tt.spec.Workspace == "" {
				tt.spec.Workspace = y.options.Workspaces[0]
			}
			_, created, err := y.engine.CreateSession(y.ctx, tt.spec, "")
			if diff := cmp.Diff(tt.fields, badFields(err)); diff != "" || created {
				t.Errorf("%s: created = %v, fields of %v (-want +got):\n%s", tt.name, created, err, diff)
			}
			var invalid *forkcore.InvalidError
			if errors.As(err, &invalid) {
				for _, f := range invalid.Fields {
					if f.Message == "" {
						t.Errorf("%s: %s has no message", tt.name, f.Field)
					}
				}
			}
		}
		list, _, err := y.store.Sessions(y.ctx, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "sessions", len(list), 1) // the yard's own
	})
}

// TestModels: a real endpoint takes any id that could be one.
func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		want(t, "model", y.newSession(forkcore.SessionSpec{Model: "vendor/some-model:7b"}).Model, "vendor/some-model:7b")
		for _, model := range []string{"two words", "line\nbreak", "del\x7f", strings.Repeat("m", 201)} {
			_, _, err := y.engine.CreateSession(y.ctx, forkcore.SessionSpec{Workspace: y.options.Workspaces[0], Model: model}, "")
			if diff := cmp.Diff([]string{"model"}, badFields(err)); diff != "" {
				t.Errorf("model %q (-want +got):\n%s", model, diff)
			}
		}
	})
}

func TestWorkspaces(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{base}, parts...)...) }
	for _, dir := range []string{at("root", "sub"), at("root2"), at("outside"), at("rootling")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("root", "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		at("root", "out"): at("outside"), at("root", "in"): at("root", "sub"), at("root", "broken"): at("nowhere"), at("way"): at("root"), at("linked"): at("root2"),
	} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	const remote = "https://git.example.com/app.git"
	tests := []struct {
		name, path string
		want       string // the stored path; empty = refused
		reason     string // part of the message
	}{
		{"root", at("root"), at("root"), ""},
		{"below", at("root", "sub"), at("root", "sub"), ""},
		{"not tidy", at("root") + "/sub/../sub/", at("root", "sub"), ""},
		{"link to the inside", at("root", "in"), at("root", "sub"), ""},
		{"link from the outside", at("way", "sub"), at("root", "sub"), ""},
		{"root behind a link", at("root2"), at("root2"), ""},
		{"missing", "", "", "is missing"},
		{"relative", "root", "", "no absolute path"},
		{"outside", at("outside"), "", "outside the allowed folders"},
		{"above", base, "", "outside the allowed folders"},
		{"same beginning", at("rootling"), "", "outside the allowed folders"},
		{"dots", at("root") + "/../outside", "", "outside the allowed folders"},
		{"link to the outside", at("root", "out"), "", "outside the allowed folders"},
		{"file", at("root", "file"), "", "is not a folder"},
		{"does not exist", at("root", "new"), "", "cannot be opened"},
		{"broken link", at("root", "broken"), "", "cannot be opened"},
		{"remote", remote, "", "git remotes cannot be used yet"},
		{"unlisted remote", "https://git.example.com/other.git", "", "no absolute path"},
	}
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		o := y.options
		o.Workspaces, o.Remotes = []string{at("root"), at("linked"), at("gone")}, []string{remote}
		e, _ := y.start(o)
		for _, tt := range tests {
			s, _, err := e.CreateSession(y.ctx, forkcore.SessionSpec{Workspace: tt.path}, "")
			want(t, tt.name+": workspace", s.Workspace, tt.want)
			if tt.want != "" {
				if err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
				continue
			}
			if diff := cmp.Diff([]string{"workspace"}, badFields(err)); diff != "" || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("%s: %v, want a refusal of workspace that says %q", tt.name, err, tt.reason)
			}
		}
	})
}

func TestCreateSessionIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, nil)
		spec := forkcore.SessionSpec{Workspace: y.options.Workspaces[0], Title: "one"}
		first, created, err := y.engine.CreateSession(y.ctx, spec, "key")
		if err != nil || !created {
			t.Fatalf("create: created = %v, %v", created, err)
		}
		again, created, err := y.engine.CreateSession(y.ctx, spec, "key")
		if err != nil || created {
			t.Fatalf("repeat: created = %v, %v", created, err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("repeat (-first +again):\n%s", diff)
		}
		spec.Title = "two"
		if _, _, err := y.engine.CreateSession(y.ctx, spec, "key"); !errors.Is(err, forkcore.ErrIdempotencyMismatch) {
			t.Errorf("another session with the same key: %v, want ErrIdempotencyMismatch", err)
		}
		other, created, err := y.engine.CreateSession(y.ctx, spec, "")
		if err != nil || !created || other.ID == first.ID {
			t.Errorf("without a key: %s, created = %v, %v", other.ID, created, err)
		}
	})
}
