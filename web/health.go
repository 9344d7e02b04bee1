package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
)

// health says that the process answers.
func (s *Server) health(c echo.Context) error { return c.String(http.StatusOK, "ok\n") }

// readyLimit bounds the question to the database.
const readyLimit = 2 * time.Second

// ready says whether the process can do its work.
func (s *Server) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyLimit)
	defer cancel()
	if err := s.o.Events.Ping(ctx); err != nil {
		s.o.Log.Warn("not ready", "error", err)
		return c.String(http.StatusServiceUnavailable, "The database cannot be reached. Check that Redis runs and that FORKYARD_REDIS_URL is right.\n")
	}
	return c.String(http.StatusOK, "ready\n")
}

// tally counts HTTP requests.
type tally struct {
	mu       sync.Mutex
	requests map[requestClass]int64
}

type requestClass struct {
	method string
	status int
}

func newTally() *tally { return &tally{requests: map[requestClass]int64{}} }

func (t *tally) request(method string, status int) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "other" // callers may invent methods, and each would be a series of its own
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[requestClass{method, status}]++
}

// metrics answers in the Prometheus text format. The numbers are those of this process since its start, but for those of Redis.
func (s *Server) metrics(c echo.Context) error {
	var b strings.Builder
	series := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	single := func(name, kind, help string, value int64) {
		series(name, kind, help)
		fmt.Fprintf(&b, "%s %d\n", name, value)
	}
	series("forkyard_build_info", "gauge", "The version that runs.")
	fmt.Fprintf(&b, "forkyard_build_info{version=%s} 1\n", label(s.o.Version))

	series("forkyard_http_requests_total", "counter", "HTTP requests answered, streams when they end.")
	s.tally.mu.Lock()
	classes := make([]requestClass, 0, len(s.tally.requests))
	for k := range s.tally.requests {
		classes = append(classes, k)
	}
	slices.SortFunc(classes, func(a, b requestClass) int {
		if d := strings.Compare(a.method, b.method); d != 0 {
			return d
		}
		return a.status - b.status
	})
	for _, k := range classes {
		fmt.Fprintf(&b, "forkyard_http_requests_total{method=%s,code=\"%d\"} %d\n", label(k.method), k.status, s.tally.requests[k])
	}
	s.tally.mu.Unlock()

	n := s.api.Counts()
	single("forkyard_messages_accepted_total", "counter", "Messages to main agents that the API accepted, repeats of an idempotency key included.", n.Messages)
	single("forkyard_forks_accepted_total", "counter", "Forks that the API accepted, repeats of an idempotency key included.", n.Forks)
	single("forkyard_sse_clients", "gauge", "Open event streams.", n.StreamClients)
	single("forkyard_sse_clients_cut_total", "counter", "Event streams that were cut because their client read too slowly.", n.StreamsCut)
	memoryMetrics(s.memory(c.Request().Context()), single)
	if f := s.o.PromptsRecomputed; f != nil {
		single("forkyard_prompts_recomputed_total", "counter", "Rendered prompts that were lost and rendered anew by this process: their cache is at risk.", f())
	}
	return c.Blob(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
}

// label quotes a label's value. Source: Prometheus text exposition format 0.0.4.
func label(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v) + `"`
}
