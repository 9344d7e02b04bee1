package web

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"forkyard/web/api"
)

// hostGate knows by which names the server may be called. Without it a page of any site could reach a server on the
// loopback interface: directly, or through a name of its own that it points there (DNS rebinding).
type hostGate struct {
	hosts   map[string]bool // values of Host
	origins map[string]bool // values of Origin
}

// newHostGate allows the loopback names with the port of addr, addr itself when it names one interface, the host
// of publicURL and the extra hosts. base is where links lead.
func newHostGate(addr, publicURL string, extra []string) (g hostGate, base *url.URL, err error) {
	g = hostGate{hosts: map[string]bool{}, origins: map[string]bool{}}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return g, nil, fmt.Errorf("address to listen on %q: %w", addr, err)
	}
	names := []string{"127.0.0.1", "localhost", "::1"}
	ip := net.ParseIP(host)
	everywhere := host == "" || ip != nil && ip.IsUnspecified()
	if !everywhere {
		names = append(names, host)
	}
	for _, name := range names {
		g.allow("http", net.JoinHostPort(name, port))
	}
	if everywhere {
		host = "localhost"
	}
	base = &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}
	if publicURL != "" {
		u, err := url.Parse(publicURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return g, nil, fmt.Errorf("public URL %q: want a scheme and a host alone, as in https://forkyard.example.org", publicURL)
		}
		base = &url.URL{Scheme: u.Scheme, Host: u.Host}
		g.allow(u.Scheme, u.Host)
	}
	for _, h := range extra {
		g.allow("http", h)
		g.allow("https", h)
	}
	return g, base, nil
}

func (g hostGate) allow(scheme, host string) {
	host = strings.ToLower(host)
	u := url.URL{Scheme: scheme, Host: host}
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	// Browsers leave out the port that belongs to the scheme.
	short := host
	if u.Port() == port {
		short = strings.TrimSuffix(host, ":"+port)
	}
	g.hosts[host], g.hosts[short] = true, true
	if u.Port() == "" {
		g.hosts[host+":"+port] = true
	}
	g.origins[scheme+"://"+short] = true
}

// checkHost refuses requests for a host, or from an origin, that is not ours. Health checks come by address, so
// these two paths, which tell nothing, are open.
func (s *Server) checkHost(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.URL.Path == pathHealth || r.URL.Path == pathReady {
			return next(c)
		}
		if !s.gate.hosts[strings.ToLower(r.Host)] {
			return api.NewProblem(http.StatusForbidden, fmt.Sprintf("This server is not called %q.", r.Host),
				"Open it as "+s.base+", or set FORKYARD_PUBLIC_URL to the address that browsers use.")
		}
		for _, origin := range r.Header.Values("Origin") {
			if !s.gate.origins[strings.ToLower(origin)] {
				return api.NewProblem(http.StatusForbidden, fmt.Sprintf("Requests from pages of %q are refused.", origin),
					"Use the pages of this server, or a client that is no browser.")
			}
		}
		return next(c)
	}
}

// sameOrigin reports whether a browser says that the request comes from a page of this very server. Requests that say
// nothing about it do not pass. Browsers leave Sec-Fetch-Site out on plain HTTP; a proxy may then have changed Host, but never Origin.
func (s *Server) sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Host == "" {
		return false
	}
	return strings.EqualFold(origin.Host, r.Host) || s.o.PublicURL != "" && strings.EqualFold(origin.Scheme+"://"+origin.Host, s.base)
}
