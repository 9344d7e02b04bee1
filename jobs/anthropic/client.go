// Package anthropic sends requests to a Messages API endpoint: api.anthropic.com
// or a compatible server.
//
// The official SDK does authentication, headers, URLs and errors. The request
// body is not built by it: the caller's bytes go on the wire as they are, since a
// body that has been decoded and encoded again is another prefix for a cache. For
// the same reason the answer is taken from the raw stream, so that the blocks to
// be sent back keep the bytes they came with.
package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
)

// DefaultBaseURL is the provider's own endpoint.
const DefaultBaseURL = "https://" + officialHost

const officialHost = "api.anthropic.com"

const (
	defaultIdleTimeout  = 90 * time.Second
	silentIdleTimeout   = 10 * time.Minute // of endpoints without pings
	defaultTotalTimeout = 30 * time.Minute

	// drainTimeout is how long a finished stream may take to end, so that its
	// connection can be used again; after it the connection is closed.
	drainTimeout = 100 * time.Millisecond
	// maxErrorBytes is how much of an error answer is read.
	maxErrorBytes = 1 << 20
)

// Options configures a Client. Nothing is read from the environment.
type Options struct {
	// APIKey goes out as "Authorization: Bearer". It may be empty for a server
	// of one's own; api.anthropic.com wants one.
	APIKey string
	// BaseURL is an http or https URL, with a path prefix if need be; "v1/messages"
	// is added. Empty = https://api.anthropic.com.
	BaseURL string
	// Logger gets one debug record a request; nil = none.
	Logger *slog.Logger
	// HTTPClient replaces the built-in client. Redirects are never followed.
	HTTPClient *http.Client
	// IdleTimeout ends a request when no byte, pings included, moved for so long,
	// the wait for the response header included; 0 = 90 s, or
	// 10 min where the kind of endpoint is silent while it reads a long prompt.
	IdleTimeout time.Duration
	// Endpoint is the kind of server at BaseURL, one of EndpointKinds. Empty = EndpointAuto: by the base URL.
	Endpoint string
	// Simulated says that a simulator of the Anthropic API answers at BaseURL: that kind, unless Endpoint names
	// another, and no ramp.
	Simulated bool
	// Catalogue has the prices and the minimum lengths for cache probes; nil = neither is known.
	Catalogue *forkcore.Catalogue
	// TotalTimeout ends a request however busy it is; 0 = 30 min.
	TotalTimeout time.Duration
}

// Client is a forkcore.Model. It is safe for concurrent use.
type Client struct {
	baseURL  string
	endpoint *endpoint
	// simulated says that it is a simulator.
	simulated bool
	catalogue *forkcore.Catalogue    // nil = no prices
	options   []option.RequestOption // of every key's SDK client
	access    atomic.Pointer[access]
	adopting  sync.Mutex // one change of the key at a time
	log       *slog.Logger
	idle      time.Duration
	total     time.Duration
}

var (
	_ forkcore.Model     = (*Client)(nil)
	_ forkcore.Scoped    = (*Client)(nil)
	_ forkcore.Described = (*Client)(nil)
)

// New returns a client. It opens no connection.
func New(o Options) (*Client, error) {
	base := o.BaseURL
	if base == "" {
		base = DefaultBaseURL
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		// The parse error would repeat the URL, and with it a password.
		return nil, errors.New("the base URL cannot be parsed; want something like " + DefaultBaseURL)
	case u.User != nil:
		return nil, errors.New("the base URL must not contain a user or password; give the key as the API key")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("base URL %q: want http or https, a host and at most a path", base)
	}
	key := strings.TrimSpace(o.APIKey)
	if key == "" && u.Hostname() == officialHost {
		return nil, errors.New("api.anthropic.com needs an API key: set ANTHROPIC_API_KEY")
	}
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if o.IdleTimeout < 0 || o.TotalTimeout < 0 {
		return nil, errors.New("timeouts of the model client must not be negative")
	}

	c := &Client{baseURL: strings.TrimSuffix(base, "/"), log: o.Logger, idle: o.IdleTimeout, total: o.TotalTimeout}
	kind := o.Endpoint
	if o.Simulated && (kind == "" || kind == EndpointAuto) {
		kind = endpointAnthropic
	}
	if c.endpoint, err = findEndpoint(kind, u); err != nil {
		return nil, err
	}
	c.simulated, c.catalogue = o.Simulated, o.Catalogue
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.idle == 0 {
		c.idle = defaultIdleTimeout
		if !c.endpoint.Pings {
			c.idle = silentIdleTimeout
		}
	}
	if c.total == 0 {
		c.total = defaultTotalTimeout
	}
	c.options = []option.RequestOption{
		// Otherwise ANTHROPIC_BASE_URL, ANTHROPIC_CUSTOM_HEADERS, profiles and
		// tokens of the process would change what is sent and to whom.
		option.WithoutEnvironmentDefaults(),
		option.WithBaseURL(base),
		option.WithHTTPClient(httpClient(o.HTTPClient)),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),
		option.WithHeader("Content-Type", "application/json"),
		option.WithHeader("Accept", "text/event-stream"),
		// A compressing proxy would hold pings back.
		option.WithHeader("Accept-Encoding", "identity"),
	}
	c.access.Store(c.newAccess(key, nil))
	return c, nil
}

// httpClient returns given, or a client of our own, that follows no redirect: a
// redirect would turn the POST into a GET or carry the prompt to another host.
func httpClient(given *http.Client) *http.Client {
	var c http.Client
	if given != nil {
		c = *given
	} else {
		t := &http.Transport{Proxy: http.ProxyFromEnvironment}
		if d, ok := http.DefaultTransport.(*http.Transport); ok {
			t = d.Clone()
		}
		t.MaxIdleConnsPerHost = 64 // a fan-out's worth for HTTP/1.1 servers
		// Finds a dead HTTP/2 connection, which a retry would otherwise be given again.
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
		c.Transport = t
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// Scope implements forkcore.Scoped, for the key in use.
func (c *Client) Scope() forkcore.Scope { return c.access.Load().scope }

// Stream implements forkcore.Model.
func (c *Client) Stream(ctx context.Context, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) { c.stream(ctx, c.access.Load(), r)(yield) }
}

// stream is Stream with a given key.
func (c *Client) stream(ctx context.Context, access *access, r forkcore.Request) iter.Seq2[forkcore.ModelEvent, error] {
	return func(yield func(forkcore.ModelEvent, error) bool) {
		began := time.Now()
		reqCtx, cancel := context.WithTimeoutCause(ctx, c.total, errTotal)
		defer cancel()
		reqCtx, cancelCause := context.WithCancelCause(reqCtx)
		defer cancelCause(nil)
		watch := newIdleWatch(c.idle, cancelCause)
		defer watch.stop()

		res, err := c.send(reqCtx, access, r, watch)
		watch.answered()
		if res != nil && res.Body != nil {
			defer res.Body.Close()
		}
		if err == nil {
			err = c.checkResponse(res)
		}
		if err != nil {
			err = c.requestError(ctx, reqCtx, access, r, res, err)
			c.log.DebugContext(ctx, "model request failed", slog.Any("error", err))
			yield(nil, err)
			return
		}

		answer := newAnswer(c.endpoint, res.Header.Get("request-id"), c.log)
		answer.request = r
		answer.workspace = res.Header.Get("anthropic-workspace-id")
		answer.limits = limitsOf(res.Header)
		end, err := answer.read(newEventReader(watch.reader(res.Body)), yield)
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			err = c.streamError(ctx, reqCtx, access, res.Header, err)
			c.log.DebugContext(ctx, "model stream failed", slog.Any("error", err))
			yield(nil, err)
			return
		}
		c.log.DebugContext(ctx, "model request done", slog.String("provider_request_id", answer.requestID),
			slog.Int64("body_bytes", r.ContentLength), slog.String("stop_reason", end.StopReason), slog.Duration("took", time.Since(began)))
		if !yield(end, nil) {
			return
		}
		watch.limit(drainTimeout)
		_, _ = io.CopyN(io.Discard, res.Body, 4096) // up to the end of the body, if it is there
	}
}

// send posts r once. The response may be non-nil beside an error.
func (c *Client) send(ctx context.Context, a *access, r forkcore.Request, watch *idleWatch) (*http.Response, error) {
	if r.Body == nil || r.ContentLength <= 0 {
		return nil, errNoBody
	}
	body := func() (io.ReadCloser, error) {
		return &upload{r: r.Body(), left: r.ContentLength, watch: watch}, nil
	}
	opts := []option.RequestOption{option.WithMiddleware(
		// The SDK marshals bodies or copies them; ours is streamed from its parts.
		func(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			req.Body, _ = body()
			req.GetBody = body
			req.ContentLength = r.ContentLength
			res, err := next(req)
			if err == nil && res.StatusCode >= 400 {
				res.Body = limitedBody{io.LimitReader(res.Body, maxErrorBytes), res.Body}
			}
			return res, err
		})}
	if len(r.Betas) > 0 {
		opts = append(opts, option.WithHeader("anthropic-beta", strings.Join(r.Betas, ",")))
	}
	var res *http.Response
	err := a.sdk.Post(ctx, "v1/messages", nil, &res, opts...)
	return res, err
}

// limitedBody reads from a limited reader and closes the whole.
type limitedBody struct {
	io.Reader
	io.Closer
}

// upload is a request body: it tells the watch that bytes move, and that it is
// as long as was promised, which net/http finds out too late to say whose fault it is.
type upload struct {
	r     io.Reader
	left  int64
	watch *idleWatch
}

func (u *upload) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	u.left -= int64(n)
	u.watch.uploaded()
	if u.left == 0 && err == nil {
		// Look for more before the last bytes go out and the request is complete.
		var extra [1]byte
		var more int
		more, err = u.r.Read(extra[:])
		u.left -= int64(more)
	}
	if u.left < 0 || (err == io.EOF && u.left != 0) {
		return 0, errBodyLength
	}
	return n, err
}

func (u *upload) Close() error { return nil }
