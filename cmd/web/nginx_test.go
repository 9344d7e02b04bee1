package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// nginxConfig is what a person writes who has read nothing but nginx's own introduction to proxying: no settings for
// streams, the Host header and the version of HTTP as nginx sends them.
const nginxConfig = `
daemon off;
user %[1]s;
pid %[2]s/nginx.pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi; uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
	server {
		listen %[3]s;
		location / {
			proxy_pass http://%[4]s;
		}
	}
}
`

// startNginx serves what listens at target at the address front until the test ends.
func startNginx(t *testing.T, front, target string) {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path = "/usr/sbin/nginx" // where few but root look
		if _, err := os.Stat(path); err != nil {
			t.Fatal("nginx is not installed: install nginx (make test does)")
		}
	}
	dir := t.TempDir()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, me.Username, dir, front, target), 0o644); err != nil {
		t.Fatal(err)
	}
	log := &syncBuffer{}
	cmd := exec.Command(path, "-p", dir, "-c", config, "-e", "stderr")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its workers end with it
		select {
		case <-exited:
		case <-time.After(10 * time.Second):
			t.Error("nginx did not end within 10 s of SIGTERM")
			_ = cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("log of nginx:\n%s", log)
		}
	})
	eventually(t, "nginx to answer", func() bool {
		select {
		case <-exited:
			t.Fatalf("nginx ended early:\n%s", log)
		default:
		}
		res, err := http.Get("http://" + front + "/healthz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// TestBehindNginx: an nginx with nothing but proxy_pass, and FORKYARD_PUBLIC_URL. Seven tabs are one more than a browser
// opens connections to a host over HTTP/1.1.
func TestBehindNginx(t *testing.T) {
	t.Parallel()
	front, back := freeAddress(t), freeAddress(t)
	p := startDemo(t, modelsim.Options{}, map[string]string{"FORKYARD_ADDR": back, "FORKYARD_PUBLIC_URL": "http://" + front})
	startNginx(t, front, back)
	direct := *p
	direct.base = "http://" + back
	id := direct.session(object{"workspace": p.workspace()})

	page := "/sessions/" + id
	tabs := []*browsertest.Tab{p.signIn(page)}
	for range 6 {
		tab := tabs[0].Beside()
		tab.Open(p.base + page)
		tabs = append(tabs, tab)
	}
	visible := tabs[6]
	visible.Wait("being the visible tab", `document.visibilityState === "visible"`)
	for _, tab := range tabs[:6] {
		tab.Wait("being hidden", `document.visibilityState === "hidden"`)
		tab.Has("button", "Send")
	}
	eventually(t, "the visible tab alone to hold a stream", func() bool { return direct.metric("forkyard_sse_clients") == 1 })

	const text = "hello from the front"
	visible.Run(watchText(text))
	turn := direct.must(202, "POST", page+"/messages", object{"text": text})["run_id"].(string)
	direct.ended(turn)
	visible.Wait("the message", "globalThis.seenText")
	late := time.UnixMilli(browsertest.Eval[int64](visible, "globalThis.seenText")).Sub(direct.line(turn, text).At)
	t.Logf("the visible one of 7 tabs behind nginx showed a message %v after it was logged", late.Round(time.Millisecond))
	if late > time.Second {
		t.Errorf("that is more than a second")
	}
	if n := direct.metric("forkyard_sse_clients"); n != 1 {
		t.Errorf("%d streams are open, want that of the visible tab", n)
	}

	t.Log("a tab that is brought to front catches up, and takes the one stream over")
	first := tabs[0]
	if browsertest.Eval[bool](first, `document.body.innerText.includes("`+text+`")`) {
		t.Error("a hidden tab has the message already: it held a stream")
	}
	first.Front()
	first.Wait("the message", `document.querySelector("#log").innerText.includes("`+text+`")`)
	eventually(t, "one stream", func() bool { return direct.metric("forkyard_sse_clients") == 1 })

	t.Log("and it can write through nginx")
	first.Fill("#message", "and back")
	first.Press("Enter")
	first.Wait("the answer", `document.querySelector("#log").innerText.includes("and back")`)
}

// watchText notes in the page when a text first shows.
func watchText(text string) string {
	return `globalThis.seenText = 0;
		new MutationObserver(() => {
			if (!seenText && document.querySelector("#log")?.textContent.includes("` + text + `")) seenText = Date.now();
		}).observe(document.body, {childList: true, subtree: true, characterData: true}); undefined`
}

// line is the transcript line of a run that holds a text.
func (p *program) line(runID, text string) line {
	p.t.Helper()
	for _, l := range p.transcript(runID) {
		if bytes.Contains(l.Message, []byte(text)) {
			return l
		}
	}
	p.t.Fatalf("no line of %s holds %q", runID, text)
	return line{}
}

// metric reads a number off /metrics.
func (p *program) metric(name string) int {
	p.t.Helper()
	res, err := http.Get(p.base + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindSubmatch(b)
	if m == nil {
		p.t.Fatalf("no %s in %s", name, b)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}
