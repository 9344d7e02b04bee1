package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"forkyard/forkcore"
)

// MaxTokens is the output limit of every request.
const MaxTokens = 32_000

// sessionParams are the parts of a session's requests that are fixed for good.
func sessionParams(s forkcore.Session) forkcore.Params {
	return forkcore.Params{Model: s.Model, Thinking: s.Thinking, Effort: s.Effort, Betas: s.Betas, MaxTokens: MaxTokens}
}

// CreateSession checks a spec, fills in defaults, latches the request head and
// stores the session. All bad fields are reported at once as
// *forkcore.InvalidError. An idempotency key names the session: a repeat
// answers with the stored one and created=false.
func (e *Engine) CreateSession(ctx context.Context, spec forkcore.SessionSpec, idempotencyKey string) (forkcore.Session, bool, error) {
	auto, err := e.autoBackground(ctx)
	if err != nil {
		return forkcore.Session{}, false, err
	}
	s, err := e.newSession(spec, auto)
	if err != nil {
		return forkcore.Session{}, false, err
	}
	wish, err := json.Marshal(spec)
	if err != nil {
		return forkcore.Session{}, false, forkcore.Invalid("body", err.Error())
	}
	s.ID = forkcore.NewSessionID(entropyOf("session", idempotencyKey))
	head := e.renderHead(s)
	s.Head = forkcore.DigestOf(head)
	// Before the session that refers to it, so that no session is ever without.
	if err := e.o.Store.PutBlobs(ctx, s.ID, head); err != nil {
		return forkcore.Session{}, false, fmt.Errorf("store request head: %w", err)
	}
	return e.o.Store.CreateSession(ctx, s, hashHex(string(wish)))
}

// renderHead is the only writer of system prompts. It is called when a session is
// created and never again, unless those bytes are lost.
func (e *Engine) renderHead(s forkcore.Session) []byte {
	return forkcore.EncodeHead(sessionParams(s), e.toolSpecs(s.Mode), forkcore.SystemPrompt(s.Mode))
}

func (e *Engine) newSession(spec forkcore.SessionSpec, autoBackground time.Duration) (forkcore.Session, error) {
	var bad forkcore.InvalidError
	s := forkcore.Session{
		Title: strings.TrimSpace(forkcore.CleanText(spec.Title)), Model: spec.Model, Mode: spec.Mode,
		PermissionMode: spec.PermissionMode, Effort: spec.Effort, Interactive: true, AutoBackground: autoBackground,
		Betas: forkcore.LatchBetas(e.o.Betas),
	}
	if len(s.Title) > 200 {
		bad.Add("title", "is longer than 200 bytes")
	}
	if ws, root, err := e.workspace(spec.Workspace); err != nil {
		bad.Add("workspace", "%v", err)
	} else {
		s.Workspace, s.Root = ws, root
	}
	if s.Title == "" && s.Workspace != "" {
		s.Title = filepath.Base(s.Workspace)
	}
	if s.Model == "" {
		s.Model = e.o.DefaultModel
	}
	info, known := e.o.Catalogue.Model(s.Model)
	if e.o.Simulated && (!known || info.Added) {
		bad.Add("model", "%q is not a model the simulator knows; use one of %s", s.Model, strings.Join(e.simulatedModels(), ", "))
	}
	if len(s.Model) > 200 || strings.ContainsFunc(s.Model, func(r rune) bool { return r < 0x21 || r == 0x7f }) {
		bad.Add("model", "is no model id")
	}
	if s.Mode == "" {
		switch {
		case e.o.Coordinator:
			s.Mode = forkcore.ModeCoordinator
		case e.o.ForkOff:
			s.Mode = forkcore.ModePlain
		default:
			s.Mode = forkcore.ModeFork
		}
	}
	if !slices.Contains([]forkcore.Mode{forkcore.ModeFork, forkcore.ModePlain, forkcore.ModeCoordinator}, s.Mode) {
		bad.Add("mode", "is %q; use fork, plain or coordinator", s.Mode)
	}
	if spec.Interactive != nil {
		s.Interactive = *spec.Interactive
	}
	if s.PermissionMode == "" {
		s.PermissionMode = forkcore.PermissionDefault
		if !s.Interactive {
			s.PermissionMode = forkcore.PermissionDontAsk
		}
	}
	modes := []forkcore.PermissionMode{forkcore.PermissionDefault, forkcore.PermissionAcceptEdits, forkcore.PermissionPlan, forkcore.PermissionDontAsk, forkcore.PermissionBypass}
	switch {
	case !slices.Contains(modes, s.PermissionMode):
		bad.Add("permission_mode", "is %q; use default, acceptEdits, plan, dontAsk or bypassPermissions", s.PermissionMode)
	case !s.Interactive && s.PermissionMode != forkcore.PermissionDontAsk && s.PermissionMode != forkcore.PermissionBypass:
		bad.Add("permission_mode", "%s may ask a person, and interactive is false; use dontAsk or bypassPermissions", s.PermissionMode)
	}
	var kind string
	if len(spec.Thinking) > 0 && !bytes.Equal(spec.Thinking, []byte("null")) {
		t, k, err := thinking(spec.Thinking)
		if err != nil {
			bad.Add("thinking", "%v", err)
		}
		s.Thinking, kind = t, k
	}
	if s.Effort != "" && !slices.Contains(forkcore.Efforts(), s.Effort) {
		bad.Add("effort", "is %q; use low, medium, high, xhigh or max", s.Effort)
	} else {
		info.CheckSettings(kind, s.Effort, &bad)
	}
	if spec.BudgetUSD != nil {
		n, err := nanoUSD(*spec.BudgetUSD)
		if err != nil {
			bad.Add("budget_usd", "%v", err)
		}
		s.BudgetNanoUSD = n
	}
	if s.Notify = spec.Notify; s.Notify != "" && !slices.Contains(forkcore.NotifyPolicies, s.Notify) {
		bad.Add("notify", "is %q; use all_done, each or manual", s.Notify)
	}
	if sec := spec.AutoBackgroundSeconds; sec != nil {
		if !(*sec >= 0 && *sec <= 86400) {
			bad.Add("auto_background_seconds", "is %v; use 0 (never) to 86400", *sec)
		} else {
			s.AutoBackground = time.Duration(*sec * float64(time.Second))
		}
	}
	if len(bad.Fields) > 0 {
		return forkcore.Session{}, &bad
	}
	return s, nil
}

// thinking checks the one field that is passed to the provider as given, and
// takes its white space away. kind is its type.
// Source: Messages API, thinking types.
func thinking(raw json.RawMessage) (setting json.RawMessage, kind string, err error) {
	var t struct {
		Type   string           `json:"type"`
		Budget *json.RawMessage `json:"budget_tokens"`
	}
	if err := json.Unmarshal(raw, &t); err != nil || !slices.Contains([]string{"enabled", "adaptive", "disabled", "between_tools"}, t.Type) {
		return nil, "", errors.New(`is no thinking object; use {"type":"adaptive"}, {"type":"disabled"}, {"type":"between_tools"} or {"type":"enabled","budget_tokens":N}`)
	}
	if t.Type == "enabled" {
		var budget int64
		if t.Budget == nil || json.Unmarshal(*t.Budget, &budget) != nil || budget < 1024 || budget >= MaxTokens {
			return nil, "", fmt.Errorf("of type enabled needs budget_tokens, a number from 1024 to %d", MaxTokens-1)
		}
	}
	var buf bytes.Buffer
	if err := json.Compact(&buf, raw); err != nil {
		return nil, "", err
	}
	if err := forkcore.SendableSetting(buf.Bytes()); err != nil {
		return nil, "", err
	}
	return buf.Bytes(), t.Type, nil
}

func nanoUSD(usd float64) (int64, error) {
	// Below one nano-dollar the amount would become 0, which means no budget at all.
	if !(usd >= 1e-9 && usd <= 1_000_000) {
		return 0, fmt.Errorf("is %v; use an amount from 0.000000001 to 1000000", usd)
	}
	return int64(usd*1e9 + 0.5), nil
}

// workspace checks that a path is equal to or below an allowed root, links
// resolved on both sides, and answers both.
func (e *Engine) workspace(path string) (real, root string, err error) {
	roots := "set FORKYARD_WORKSPACES to the folders that sessions may use"
	if len(e.o.Workspaces) > 0 {
		roots = "use one of these folders or one below: " + strings.Join(e.o.Workspaces, ", ")
	}
	switch {
	case path == "":
		return "", "", fmt.Errorf("is missing; %s", roots)
	case slices.Contains(e.o.Remotes, path):
		return "", "", fmt.Errorf("is a git remote; git remotes cannot be used yet, give a folder: %s", roots)
	case !filepath.IsAbs(path):
		return "", "", fmt.Errorf("%q is no absolute path; %s", path, roots)
	}
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", "", fmt.Errorf("%q cannot be opened (it does not exist or is not readable); %s", path, roots)
	}
	for _, root := range e.o.Workspaces {
		r, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		rel, err := filepath.Rel(r, real)
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			continue
		}
		if st, err := os.Stat(real); err != nil || !st.IsDir() {
			return "", "", fmt.Errorf("%q is not a folder", path)
		}
		return real, root, nil
	}
	return "", "", fmt.Errorf("%q is outside the allowed folders; %s", path, roots)
}

// simulatedModels are the models that the simulator answers for: a catalogue file may add others.
func (e *Engine) simulatedModels() []string {
	return slices.DeleteFunc(e.o.Catalogue.IDs(), func(id string) bool {
		m, _ := e.o.Catalogue.Model(id)
		return m.Added
	})
}
