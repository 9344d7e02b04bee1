package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"forkyard/jobs/redisstore/redistest"
	"forkyard/modelsim"
)

func TestRefusals(t *testing.T) {
	_, simURL := simulator(t, modelsim.Options{})
	dir := repository(t)
	redis := redistest.NewServer(t)
	p := startWeb(t, map[string]string{
		"FORKYARD_REDIS_URL": redis.URL(), "FORKYARD_WORKSPACES": dir + ",git@example.test:ship.git", "ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1",
	})
	id := p.session(object{"workspace": dir})
	many := make([]object, 65)
	for i := range many {
		many[i] = object{"prompt": "x"}
	}
	for _, tc := range []struct {
		name, path string
		body       object
		field      string
		says       string
	}{
		{"unknown workspace", "/sessions", object{"workspace": "/nowhere"}, "workspace", dir},
		{"workspace outside", "/sessions", object{"workspace": "/etc"}, "workspace", "outside the allowed folders"},
		{"git remote", "/sessions", object{"workspace": "git@example.test:ship.git"}, "workspace", "git remotes cannot be used yet"},
		{"unknown model", "/sessions", object{"workspace": dir, "model": "claude-opus-9"}, "model", "claude-sonnet-5-5"},
		{"unknown field", "/sessions", object{"workspace": dir, "modle": "x"}, "modle", ""},
		{"empty directive", "/sessions/" + id + "/forks", object{"directives": []object{{"prompt": "a"}, {"prompt": " "}}}, "directives[1].prompt", "empty"},
		{"no directives", "/sessions/" + id + "/forks", object{"directives": []object{}}, "directives", "1 to 64"},
		{"65 directives", "/sessions/" + id + "/forks", object{"directives": many}, "directives", "1 to 64"},
		{"worktree", "/sessions/" + id + "/forks", object{"isolation": "worktree", "directives": []object{{"prompt": "a"}}}, "isolation", "not available yet"},
		{"empty text", "/sessions/" + id + "/messages", object{"text": "\n"}, "text", "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := p.must(422, "POST", tc.path, tc.body)
			errs, _ := o["errors"].([]any)
			if len(errs) != 1 {
				t.Fatalf("errors: %v", o)
			}
			e := errs[0].(object)
			if e["field"] != tc.field || !strings.Contains(e["message"].(string), tc.says) {
				t.Errorf("got %v", e)
			}
		})
	}
	if s := p.get("/sessions/" + id); len(s["runs"].([]any)) != 0 {
		t.Errorf("refusals left runs behind: %v", s["runs"])
	}
	t.Run("Redis down", func(t *testing.T) {
		redis.Kill()
		o := p.must(503, "POST", "/sessions/"+id+"/messages", object{"text": "hello"})
		if !strings.Contains(fmt.Sprint(o["detail"]), "database") {
			t.Errorf("the answer does not say what to check: %v", o)
		}
	})
	t.Run("and up again", func(t *testing.T) {
		redis.Restart()
		eventually(t, "the database to be back", func() bool {
			status, _ := p.call("GET", "/sessions/"+id, nil)
			return status == 200
		})
		turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "hello"})["run_id"].(string)
		if r := p.ended(turn); r["state"] != "done" {
			t.Errorf("run: %v %v", r["state"], r["reason"])
		}
	})
}

func TestEndpointTrouble(t *testing.T) {
	_, url := simulator(t, modelsim.Options{Mind: modelsim.MindFunc(func(context.Context, *modelsim.Request) (modelsim.Reply, error) {
		return modelsim.Reply{Fault: &modelsim.Fault{Kind: modelsim.FaultStatus, Status: http.StatusUnauthorized}}, nil
	})})
	for _, tc := range []struct{ name, url, state, code, next string }{
		{"401", url, "waiting", "provider", "another key"},
		{"unreachable", "http://127.0.0.1:9", "failed", "provider_error", "ANTHROPIC_BASE_URL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := startWeb(t, map[string]string{"ANTHROPIC_BASE_URL": tc.url, "ANTHROPIC_API_KEY": "k"})
			ws := p.workspace()
			id := p.session(object{"workspace": ws, "model": "claude-opus-5-5"})
			turn := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "hello"})["run_id"].(string)
			var r object
			eventually(t, "the run to come to something", func() bool {
				r = p.get("/runs/" + turn)
				return r["state"] != "queued" && r["state"] != "running"
			})
			reason, _ := r["reason"].(object)
			if r["state"] != tc.state || reason["code"] != tc.code || !strings.Contains(fmt.Sprint(reason["next_step"]), tc.next) {
				t.Errorf("run: %v %v", r["state"], reason)
			}
			if s := p.get("/sessions/" + id); s["state"] != tc.state {
				t.Errorf("session: %v", s["state"])
			}
		})
	}
}

// workspace reads the sample's path off the banner, which goes on for some lines after its first one let the test begin.
func (p *program) workspace() (dir string) {
	p.t.Helper()
	eventually(p.t, "the banner to name a workspace", func() bool {
		for l := range strings.Lines(p.out.String()) {
			if after, ok := strings.CutPrefix(strings.TrimLeft(l, " "), "Workspace"); ok && dir == "" && strings.HasSuffix(l, "\n") {
				dir = strings.TrimSpace(after)
			}
		}
		return dir != ""
	})
	return dir
}
