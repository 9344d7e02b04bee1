package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func TestParseConfig(t *testing.T) {
	for _, tc := range []struct {
		name  string
		args  []string
		env   map[string]string
		check func(config) bool
		errs  []string
	}{
		{name: "defaults", check: func(c config) bool {
			return c.addr == "127.0.0.1:8080" && c.redisURL == "" && c.model == "claude-sonnet-5-5" && c.concurrency == 32 &&
				!c.autoBackground && !c.forkOff && !c.coordinator && c.gate == forkcore.GateAuto && c.guard == (forkcore.Guard{MaxDepth: 1, MaxDescendants: 256}) && c.diagnostics == "auto" && c.archiveAfter == 30*24*time.Hour && c.archiveAbove == 0.8 && filepath.IsAbs(c.dataDir)
		}},
		{name: "auto background on", env: map[string]string{"AGENT_AUTO_BACKGROUND_TASKS": "1"}, check: func(c config) bool { return c.autoBackground && c.autoAfter == 120*time.Second }},
		{name: "auto background on after 5 s", env: map[string]string{"AGENT_AUTO_BACKGROUND_TASKS": "true", "FORKYARD_AUTO_BACKGROUND_AFTER": "5s"}, check: func(c config) bool { return c.autoBackground && c.autoAfter == 5*time.Second }},
		{name: "the time alone does not switch it on", env: map[string]string{"FORKYARD_AUTO_BACKGROUND_AFTER": "5s"}, check: func(c config) bool { return !c.autoBackground }},
		{name: "flag wins over variable", args: []string{"-addr", "127.0.0.1:1"}, env: map[string]string{"FORKYARD_ADDR": "127.0.0.1:2"}, check: func(c config) bool { return c.addr == "127.0.0.1:1" }},
		{name: "flag of the full name", args: []string{"-forkyard-addr", "127.0.0.1:1", "-anthropic-api-key", "k"}, check: func(c config) bool { return c.addr == "127.0.0.1:1" && c.apiKey == "k" }},
		{name: "workspaces", env: map[string]string{"FORKYARD_WORKSPACES": "/tmp/, git@h:r.git,https://h/r.git"}, check: func(c config) bool {
			return len(c.workspaces) == 1 && c.workspaces[0] == "/tmp" && len(c.remotes) == 2
		}},
		{name: "a catalogue", args: []string{"-print-catalogue"}, env: map[string]string{"FORKYARD_CATALOGUE": "models.json"}, check: func(c config) bool { return c.printCatalogue && c.catalogue == "models.json" }},
		{name: "betas in any order", env: map[string]string{"FORKYARD_BETAS": " b-2, a-1,,b-2"}, check: func(c config) bool { return slices.Equal(c.betas, []string{"a-1", "b-2"}) }},
		{name: "no beta", env: map[string]string{"FORKYARD_BETAS": "a b"}, errs: []string{"FORKYARD_BETAS"}},
		{name: "modes", env: map[string]string{"FORKYARD_FORK_SUBAGENT": "off", "AGENT_COORDINATOR_MODE": "1", "FORKYARD_GATE": "off"}, check: func(c config) bool { return c.forkOff && c.coordinator && c.gate == forkcore.GateOff }},
		{name: "guards", args: []string{"-max-descendants", "9"}, env: map[string]string{"FORKYARD_FORK_DEPTH": "2", "FORKYARD_MAX_DESCENDANTS": "8"}, check: func(c config) bool {
			return c.guard == (forkcore.Guard{MaxDepth: 2, MaxDescendants: 9})
		}},
		{name: "bad guards", env: map[string]string{"FORKYARD_FORK_DEPTH": "0", "FORKYARD_MAX_DESCENDANTS": "none"}, errs: []string{"FORKYARD_FORK_DEPTH", "FORKYARD_MAX_DESCENDANTS"}},
		{name: "archive", env: map[string]string{"FORKYARD_ARCHIVE_AFTER": "36h", "FORKYARD_ARCHIVE_ABOVE": "5"}, check: func(c config) bool { return c.archiveAfter == 36*time.Hour && c.archiveAbove == 0.05 }},
		{name: "no archive by itself", env: map[string]string{"FORKYARD_ARCHIVE_AFTER": "off", "FORKYARD_ARCHIVE_ABOVE": "Off"}, check: func(c config) bool { return c.archiveAfter == 0 && c.archiveAbove == 0 }},
		{name: "bad archive", env: map[string]string{"FORKYARD_ARCHIVE_AFTER": "1.5d", "FORKYARD_ARCHIVE_ABOVE": "0.8"}, errs: []string{"FORKYARD_ARCHIVE_AFTER", "FORKYARD_ARCHIVE_ABOVE"}},
		{name: "too soon", env: map[string]string{"FORKYARD_ARCHIVE_AFTER": "59m", "FORKYARD_ARCHIVE_ABOVE": "100%"}, errs: []string{"FORKYARD_ARCHIVE_AFTER", "FORKYARD_ARCHIVE_ABOVE"}},
		{name: "every bad value at once", env: map[string]string{
			"FORKYARD_ADDR": "8080", "FORKYARD_CONCURRENCY": "0", "FORKYARD_AUTO_BACKGROUND_AFTER": "2", "FORKYARD_GATE": "maybe",
			"FORKYARD_WORKSPACES": "relative", "AGENT_AUTO_BACKGROUND_TASKS": "perhaps", "FORKYARD_DIAGNOSTICS": "maybe", "FORKYARD_ENDPOINT": "llama",
		}, errs: []string{"FORKYARD_ADDR", "FORKYARD_CONCURRENCY", "FORKYARD_AUTO_BACKGROUND_AFTER", "FORKYARD_GATE", "FORKYARD_WORKSPACES", "AGENT_AUTO_BACKGROUND_TASKS", "FORKYARD_DIAGNOSTICS", "FORKYARD_ENDPOINT"}},
		{name: "a workspace that is not there", env: map[string]string{"FORKYARD_WORKSPACES": "/nowhere/at/all"}, errs: []string{"FORKYARD_WORKSPACES"}},
		{name: "stray argument", args: []string{"serve"}, errs: []string{`"serve"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parseConfig(tc.args, func(k string) string { return tc.env[k] }, io.Discard)
			for _, want := range tc.errs {
				if err == nil || !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("error %v does not name %s", err, want)
				}
			}
			if len(tc.errs) == 0 && (err != nil || !tc.check(c)) {
				t.Errorf("got %+v, %v", c, err)
			}
		})
	}
}

func TestAdminToken(t *testing.T) {
	dir := t.TempDir()
	first, path, err := adminToken("", dir)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 || len(first) < 32 {
		t.Errorf("token of %d characters in %s: %v, %v", len(first), path, st, err)
	}
	again, _, err := adminToken("", dir)
	if err != nil || again != first {
		t.Errorf("the second start has another token (%v)", err)
	}
	if given, path, _ := adminToken("mine", dir); given != "mine" || path != "" {
		t.Errorf("a configured token became %q, %q", given, path)
	}
}

func TestDataDirIsLocked(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDataDir(dir); err == nil || !strings.Contains(err.Error(), "FORKYARD_DATA_DIR") {
		t.Errorf("a second program got the folder, or no advice: %v", err)
	}
	unlock()
	unlock, err = lockDataDir(dir)
	if err != nil {
		t.Fatalf("after the first one ended: %v", err)
	}
	unlock()
}

// Redis reads back what quote writes, also for paths with odd characters.
func TestDataDirWithOddCharacters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a \"b\" \\c \u00a0\u200b é 'd'")
	db, err := startDatabase(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer db.stop()
	if !db.kept {
		t.Fatal("redis-server is not installed; make test installs it")
	}
	if _, err := os.Stat(filepath.Join(dir, "redis", "redis.log")); err != nil {
		t.Errorf("the log is elsewhere: %v", err)
	}
}
