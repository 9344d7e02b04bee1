package modelsim

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Options are the settings of a [Server]; the zero value is a simulator without delays.
type Options struct {
	// Logger gets one line per request; nil means none.
	Logger *slog.Logger
	// Mind answers; nil means Player().
	Mind Mind
	// Scenario, when not nil, is the mind, and sets the options that its file names over those given here.
	Scenario *Scenario
	// Override, when not nil, has the last word on the options, also each time a scenario is swapped in.
	Override func(*Options)
	// MessageStartDelay is waited between the arrival of a request and the first byte of its answer. What the request
	// writes to the cache is readable from that byte on.
	MessageStartDelay time.Duration
	// DeltaDelay is waited before each content delta of a stream.
	DeltaDelay time.Duration
	// TTL5m and TTL1h are the lifetimes behind ttl "5m" and "1h"; 0 means what they say.
	TTL5m, TTL1h time.Duration
	// MinCacheable overrides, per model id, the number of tokens below which nothing is cached.
	MinCacheable map[string]int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// RecordLimit is the number of requests kept for Requests, the latest ones; 0 means 1,000.
	RecordLimit int
	// RecordBytes bounds the bodies kept for Requests; 0 means 256 MB. The latest request is always kept.
	RecordBytes int
	// VisibilityLag is how long after its response began an entry becomes readable; 0 means at once.
	VisibilityLag time.Duration
	// MissRate is the share of requests, from 0 to 1, that find nothing in the cache although it is there. They are drawn
	// at random from Seed, so that a run can be repeated.
	MissRate float64
	Seed     uint64
	// TTLInKey makes the ttl of a mark part of an entry's key: a 5-minute mark then never reads an entry of an hour. The
	// provider does not say; by default ttl is a property of the entry.
	TTLInKey bool
	// Limits are the rate limits of each key; the zero value means none.
	Limits Limits
	// Credit is the number of tokens (input of all classes and output) that each key may use; when they are used up
	// requests are a 402. 0 means no bound.
	Credit int64
	// SpendLimit is the same with another end: a 429 enforced_spend_limit_reached without retry-after.
	SpendLimit int64
	// DiagnosticsPending answers every request for diagnostics as one whose comparison is still running.
	DiagnosticsPending bool
	// Keys are the valid keys; nil means any but the empty one.
	Keys []string
	// MaxBody is the size above which a body is a 413; 0 means the documented 32 MB.
	MaxBody int64
}

// Server is the simulator. It is an http.Handler, safe for concurrent use.
type Server struct {
	opts     Options                 // as given to New, with defaults
	live     atomic.Pointer[Options] // with what the scenario in use sets
	log      *slog.Logger
	mux      *http.ServeMux
	models   []model
	cache    cache
	record   recorder
	traces   traces
	accounts *accounts
}

var _ http.Handler = (*Server)(nil)

// New returns a simulator with an empty cache.
func New(opts Options) *Server {
	if opts.Mind == nil {
		opts.Mind = Player()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	opts.TTL5m = cmp.Or(opts.TTL5m, 5*time.Minute)
	opts.TTL1h = cmp.Or(opts.TTL1h, time.Hour)
	opts.RecordLimit = cmp.Or(opts.RecordLimit, 1000)
	opts.RecordBytes = cmp.Or(opts.RecordBytes, 256<<20)
	opts.MaxBody = cmp.Or(opts.MaxBody, 32<<20)
	s := &Server{
		opts: opts, log: opts.Logger, models: models(), mux: http.NewServeMux(),
		cache: cache{
			ttl5m: opts.TTL5m, ttl1h: opts.TTL1h, lag: opts.VisibilityLag, ttlInKey: opts.TTLInKey, missRate: opts.MissRate,
			rng: mathrand.New(mathrand.NewPCG(opts.Seed, 0)), entries: map[entryKey]*Entry{},
		},
		accounts: newAccounts(&opts),
		record:   recorder{limit: opts.RecordLimit, bytes: opts.RecordBytes},
		traces:   traces{byID: map[string]*trace{}},
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.UseScenario(opts.Scenario)
	s.mux.HandleFunc("POST "+messagesPath, s.api(s.messages))
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.api(s.countTokens))
	s.mux.HandleFunc("GET /v1/models", s.api(s.listModels))
	s.mux.HandleFunc("GET /v1/models/{id}", s.api(s.getModel))
	s.control()
	s.mux.HandleFunc("GET /{$}", home)
	s.mux.HandleFunc("/", s.api(func(http.ResponseWriter, *http.Request) *apiError {
		return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: "Not found"}
	}))
	return s
}

// ServeHTTP answers one request of the API or of the simulator's own pages under /_sim.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Requests returns what the messages endpoints received, in order of arrival.
func (s *Server) Requests() []Captured { return s.record.list() }

// CacheEntries returns the living cache entries, oldest first.
func (s *Server) CacheEntries() []Entry { return s.cache.list(s.opts.Now()) }

// Key returns a key that requests may use: the first of those that are valid, "sim" where any is. Keys that were revoked
// since are not looked at.
func (s *Server) Key() string {
	if keys := s.live.Load().Keys; len(keys) > 0 {
		return keys[0]
	}
	return "sim"
}

// caller is who sent a request.
type caller struct {
	key       string // fingerprint of the key
	workspace string // id; caches are never shared across workspaces
	requestID string
}

type callerKey struct{}

func callerOf(ctx context.Context) caller { c, _ := ctx.Value(callerKey{}).(caller); return c }

// api wraps a handler of the provider's API: request id, key, version, and errors in the documented shape.
func (s *Server) api(handle func(http.ResponseWriter, *http.Request) *apiError) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := caller{requestID: newID("req_")}
		w.Header().Set("request-id", c.requestID)
		err := c.identify(r)
		if err == nil && !s.accounts.allowed(c.key) {
			err = wrongKey()
		}
		if err == nil {
			w.Header().Set("anthropic-organization-id", "org_simulated")
			w.Header().Set("anthropic-workspace-id", c.workspace)
			if r.URL.Path == messagesPath {
				s.accounts.show(w.Header(), c.key, s.opts.Now())
			}
			err = checkHeaders(r)
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
		served := err == nil
		if served {
			err = handle(w, r)
		} else if r.Method == http.MethodPost {
			s.refuse(r, err)
		}
		if !served || r.URL.Path != messagesPath { // those that were served write a line of their own
			s.logCall(r, c.requestID, err)
		}
		if err != nil {
			err.write(w, c.requestID)
		}
	}
}

// logCall logs a request that did not come to be an exchange of messages.
func (s *Server) logCall(r *http.Request, id string, err *apiError) {
	attrs := []slog.Attr{slog.String("request_id", id), slog.String("method", r.Method), slog.String("path", r.URL.Path)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "call", attrs...)
}

// messagesPath is the endpoint whose requests are recorded and limited.
const messagesPath = "/v1/messages"

func wrongKey() *apiError {
	return &apiError{status: http.StatusUnauthorized, kind: "authentication_error", message: "invalid x-api-key"}
}

// identify reads the key from either of its headers. A key is an organization with one workspace of its own; more of them
// are named by anthropic-workspace-id.
func (c *caller) identify(r *http.Request) *apiError {
	key := r.Header.Get("x-api-key")
	if bearer, ok := strings.CutPrefix(r.Header.Get("authorization"), "Bearer "); ok && key == "" {
		key = bearer
	}
	if key = strings.TrimSpace(key); key == "" {
		return wrongKey()
	}
	c.key = fingerprint(key)
	c.workspace = "wrkspc_" + fingerprint(key+"\x00"+r.Header.Get("anthropic-workspace-id"))
	return nil
}

// fingerprint stands for a secret where it would be kept or shown.
func fingerprint(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func checkHeaders(r *http.Request) *apiError {
	switch v := r.Header.Get("anthropic-version"); v {
	case versionOld, versionNew:
	case "":
		return invalid("anthropic-version: header is required")
	default:
		return invalid("anthropic-version: %q is not a valid version", v)
	}
	if enc := r.Header.Get("content-encoding"); enc != "" && enc != "identity" {
		e := invalid("content-encoding: %q is not supported", enc)
		e.code = "request_body_encoding_unsupported"
		return e
	}
	return nil
}

// read reads, cuts and checks a request. The body is returned in any case.
func (s *Server) read(r *http.Request, counting bool) ([]byte, *prompt, *apiError) {
	opts := s.live.Load()
	body, err := io.ReadAll(io.LimitReader(r.Body, opts.MaxBody+1))
	if err != nil {
		return body, nil, invalid("reading the request body: %v", err)
	}
	if int64(len(body)) > opts.MaxBody {
		return nil, nil, &apiError{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", message: "Request exceeds the maximum size"}
	}
	p, bad := parse(body, r.Header.Get("anthropic-version"), betas(r), counting)
	if bad != nil {
		return body, nil, bad
	}
	if p.model = s.model(p.Model); p.model == nil || p.model.retired {
		return body, p, unknownModel(p.Model)
	}
	if n, ok := opts.MinCacheable[p.model.id]; ok {
		own := *p.model
		own.minCacheable, p.model = n, &own
	}
	return body, p, p.validate(counting)
}

// betas returns the beta headers as a set: the order in which a client lists them says nothing.
func betas(r *http.Request) []string {
	var out []string
	for _, line := range r.Header.Values("anthropic-beta") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) *apiError {
	_, p, err := s.read(r, true)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": p.inputTokens()})
	return nil
}

// newID returns a fresh id with that prefix; ids of answers must not repeat after a restart, so they are random.
func newID(prefix string) string { return prefix + rand.Text()[:24] }

// wait waits for d or until ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
