package main

import (
	"bytes"
	"testing"

	"forkyard/jobs/redisstore/redistest"
	"forkyard/modelsim"
)

// The whole program and its Redis stop and start again: the conversation goes on with the bytes that were sent before, the
// notices of forks among them, so the provider still reads all of it from its cache.
func TestB25_RestartKeepsTheBytes(t *testing.T) {
	sim, simURL := simulator(t, modelsim.Options{})
	dir := repository(t)
	redis := redistest.NewServer(t)
	env := map[string]string{
		"FORKYARD_REDIS_URL": redis.URL(), "FORKYARD_WORKSPACES": dir, "FORKYARD_DATA_DIR": t.TempDir(),
		"ANTHROPIC_BASE_URL": simURL, "ANTHROPIC_API_KEY": "sim", "FORKYARD_SIMULATED": "1",
	}
	p := startWeb(t, env)
	worker := startWorker(t, env)
	id := p.session(object{"workspace": dir})
	p.ended(p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Survey this repository with two forks."})["run_id"].(string))
	eventually(t, "the turn that sums up", func() bool {
		s := p.get("/sessions/" + id)
		return len(s["runs"].([]any)) == 4 && s["active_run_id"] == nil
	})
	requests := sim.Requests()
	last := requests[len(requests)-1]
	if n := bytes.Count(last.Body, []byte("<task-id>run_")); n != 2 {
		t.Fatalf("the last request before the restart has %d notices, want 2", n)
	}

	p.stop()
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	redis.Kill()
	redis.Restart()
	p = startWeb(t, env)
	p.ended(p.must(202, "POST", "/sessions/"+id+"/messages", object{"text": "Thank you."})["run_id"].(string))
	next := sim.Requests()[len(requests)]
	before, _, _ := bytes.Cut(unmark(last.Body), []byte(`],"max_tokens"`))
	if after := unmark(next.Body); !bytes.HasPrefix(after, before) {
		t.Errorf("after the restart the history differs at byte %d of %d", firstDifference(before, after), len(before))
	}
	if u := last.Usage; next.Usage.CacheReadInputTokens != u.CacheReadInputTokens+u.CacheCreationInputTokens {
		t.Errorf("after the restart %d tokens are read, want the %d that were held", next.Usage.CacheReadInputTokens, u.CacheReadInputTokens+u.CacheCreationInputTokens)
	}
	if n := bytes.Count(next.Body, []byte(`"content":"`)); n != 0 {
		t.Errorf("%d contents are strings, want arrays", n)
	}
}
