package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestArchive puts a session with a fan-out away and opens it by the id of a fork, across a restart: every byte that the API
// tells of it is as it was, and it goes on.
func TestArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := map[string]string{"FORKYARD_DATA_DIR": dir}
	p := startWeb(t, env)
	id := p.session(object{"workspace": p.workspace()})
	p.ended(p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Say hello."})["run_id"].(string))
	d := p.must(202, "POST", "/sessions/"+id+"/forks", object{"directives": []object{{"prompt": "Count the files."}, {"prompt": "Read the README."}}})
	for _, r := range d["runs"].([]any) {
		p.ended(r.(object)["id"].(string))
	}
	fork := d["runs"].([]any)[0].(object)["id"].(string)
	eventually(t, "the turn that reads the reports", func() bool {
		s := p.get("/sessions/" + id)
		return s["active_run_id"] == nil && len(s["runs"].([]any)) == 4
	})
	read := func(p *program) []byte {
		var all []byte
		for _, path := range []string{
			"/runs/" + fork + "/transcript", "/runs/" + fork, "/runs/" + fork + "/requests", "/runs/" + fork + "/requests/1/body",
			"/dispatches/" + d["dispatch_id"].(string),
		} {
			status, b := p.raw("GET", path, nil)
			if status != 200 {
				t.Fatalf("%s: %d %s", path, status, b)
			}
			all = append(append(all, b...), '\n')
		}
		return all
	}
	before := read(p)
	away := p.must(202, "POST", "/sessions/"+id+"/archive", nil)["archived"].(object)
	file := filepath.Join(dir, "archive", id+".fyz")
	if info, err := os.Stat(file); err != nil || away["folder"] != filepath.Dir(file) || away["bytes"] != float64(info.Size()) {
		t.Fatalf("the file: %v, %v", away, err)
	}
	listed := func(p *program) object {
		for _, s := range p.get("/sessions")["items"].([]any) {
			if s := s.(object); s["id"] == id {
				return s
			}
		}
		t.Fatal("the list does not show it")
		return nil
	}
	if s := listed(p); s["archived"] == nil || s["state"] != "done" {
		t.Errorf("in the list: %v", s)
	}
	if s := p.get("/storage"); s["archived_sessions"] != 1.0 || s["archive"] == nil || s["memory"] == nil {
		t.Errorf("storage: %v", s)
	}
	p.stop()

	p = startWeb(t, env)
	if listed(p)["archived"] == nil {
		t.Error("the restart or the list opened it")
	}
	if after := read(p); !bytes.Equal(before, after) {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if s := listed(p); s["archived"] != nil {
		t.Errorf("reading it did not open it: %v", s)
	}
	p.must(202, "POST", "/sessions/"+id+"/archive", nil)
	run := p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Go on."})["run_id"].(string)
	if r := p.ended(run); r["state"] != "done" {
		t.Errorf("the next turn: %v", r)
	}
	if _, err := os.ReadFile(file); err != nil {
		t.Errorf("the file stays for a day: %v", err)
	}
	if strings.Contains(p.log.String(), "level=ERROR") {
		t.Errorf("log: %s", p.log)
	}
}
