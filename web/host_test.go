package web

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The case of neighbours: a page of any site starts an agent on a loopback dashboard, by a simple cross-site POST or by a name
// that it points at the loopback address.
func TestOtherSitesCannotReachTheRunner(t *testing.T) {
	f := newFake()
	s := serve(t, f)
	cookie := s.signIn(t)
	_, port, _ := strings.Cut(s.host, ":")
	own := "http://" + s.host
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
	}{
		{"cross-site POST", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", "text/plain", "Origin", "https://evil.test"}, 403},
		{"with the cookie", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", "text/plain", "Origin", "https://evil.test", "Cookie", cookie}, 403},
		{"with the token", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", jsonType, "Origin", "https://evil.test", "Authorization", bearer}, 403},
		{"sandboxed frame", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", jsonType, "Origin", "null", "Authorization", bearer}, 403},
		{"another port", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", jsonType, "Origin", "http://localhost:1", "Authorization", bearer}, 403},
		{"another scheme", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", jsonType, "Origin", "https://" + s.host, "Authorization", bearer}, 403},
		{"rebinding, read", "GET", "/api/v1/sessions", "", []string{"Host", "evil.test:" + port, "Authorization", bearer}, 403},
		{"rebinding, page", "GET", "/", "", []string{"Host", "evil.test:" + port, "Cookie", cookie}, 403},
		{"rebinding, stream", "GET", "/api/v1/events", "", []string{"Host", "evil.test:" + port, "Authorization", bearer}, 403},
		{"rebinding, metrics", "GET", "/metrics", "", []string{"Host", "evil.test:" + port}, 403},
		{"our name without the port", "GET", "/api/v1/sessions", "", []string{"Host", "localhost", "Authorization", bearer}, 403},
		{"a name that begins like ours", "GET", "/api/v1/sessions", "", []string{"Host", "localhost.evil.test:" + port, "Authorization", bearer}, 403},
		{"text from our page", "POST", "/api/v1/sessions", `{"workspace":"/w"}`, []string{"Content-Type", "text/plain", "Origin", own, "Cookie", cookie}, 415},
		{"localhost", "GET", "/api/v1/sessions", "", []string{"Host", "LOCALHOST:" + port, "Authorization", bearer}, 200},
		{"ip version 6", "GET", "/api/v1/sessions", "", []string{"Host", "[::1]:" + port, "Authorization", bearer}, 200},
		{"our page", "GET", "/api/v1/sessions", "", []string{"Origin", own, "Authorization", bearer}, 200},
		{"health by address", "GET", "/healthz", "", []string{"Host", "10.1.2.3:" + port}, 200},
		{"readiness by address", "GET", "/readyz", "", []string{"Host", "10.1.2.3:" + port}, 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if res, body := s.ask(t, test.method, test.path, test.body, test.header...); res.StatusCode != test.status {
				t.Errorf("%d, want %d: %s", res.StatusCode, test.status, body)
			}
		})
	}
	if len(f.calls) != 0 {
		t.Errorf("the runner was called: %v", f.calls)
	}
	// The same request from a client that is no browser is fine, so that nothing above passed for another reason.
	if res, body := s.ask(t, "POST", "/api/v1/sessions", `{"workspace":"/w"}`, "Content-Type", jsonType, "Authorization", bearer); res.StatusCode != 201 || len(f.calls) != 1 {
		t.Errorf("%d, calls %v: %s", res.StatusCode, f.calls, body)
	}
}

func TestMissingHostIsUntrusted(t *testing.T) {
	s := serve(t, newFake())
	conn, err := net.Dial("tcp", s.host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /api/v1/sessions HTTP/1.0\r\nAuthorization: %s\r\n\r\n", bearer); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 403 {
		t.Errorf("%d without a Host, want 403", res.StatusCode)
	}
}

func TestHostGate(t *testing.T) {
	tests := []struct {
		name, addr, public string
		extra              []string
		base               string
		hosts, origins     []string
		refused            []string
	}{
		{
			"loopback", "127.0.0.1:8080", "", nil, "http://127.0.0.1:8080",
			[]string{"127.0.0.1:8080", "localhost:8080", "[::1]:8080"},
			[]string{"http://localhost:8080"},
			[]string{"127.0.0.1", "localhost:8081", ""},
		},
		{"port 80", "127.0.0.1:80", "", nil, "http://127.0.0.1:80", []string{"127.0.0.1", "127.0.0.1:80", "localhost"}, []string{"http://localhost"}, []string{"localhost:8080"}},
		{"everywhere", "[::]:8080", "", nil, "http://localhost:8080", []string{"localhost:8080"}, nil, []string{"[::]:8080", "10.0.0.1:8080"}},
		{"one interface", "10.0.0.1:8080", "", nil, "http://10.0.0.1:8080", []string{"10.0.0.1:8080", "localhost:8080"}, nil, []string{"10.0.0.2:8080"}},
		{
			"public", "0.0.0.0:8080", "https://Forkyard.example.org/", nil, "https://Forkyard.example.org",
			[]string{"forkyard.example.org", "forkyard.example.org:443", "localhost:8080"},
			[]string{"https://forkyard.example.org"},
			[]string{"forkyard.example.org:80"},
		},
		{"extra", "127.0.0.1:8080", "", []string{"box.lan:9000"}, "http://127.0.0.1:8080", []string{"box.lan:9000"}, []string{"http://box.lan:9000", "https://box.lan:9000"}, []string{"box.lan"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g, base, err := newHostGate(test.addr, test.public, test.extra)
			if err != nil || base.String() != test.base {
				t.Fatalf("base %v, %v; want %s", base, err, test.base)
			}
			for _, h := range test.hosts {
				if !g.hosts[h] {
					t.Errorf("host %q is refused", h)
				}
			}
			for _, o := range test.origins {
				if !g.origins[o] {
					t.Errorf("origin %q is refused", o)
				}
			}
			for _, h := range test.refused {
				if g.hosts[h] {
					t.Errorf("host %q is allowed", h)
				}
			}
		})
	}
	for _, bad := range [][2]string{{"8080", ""}, {"127.0.0.1:8080", "forkyard.example.org"}, {"127.0.0.1:8080", "https://a.example.org/path"}, {"127.0.0.1:8080", "ftp://a"}} {
		if _, _, err := newHostGate(bad[0], bad[1], nil); err == nil {
			t.Errorf("address %q with public URL %q is accepted", bad[0], bad[1])
		}
	}
}
