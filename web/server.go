// Package web is the HTTP side of Forkyard: pages here, the JSON API in web/api, streams in web/sse.
package web

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/api"
)

// Pinger tells whether the database can be reached.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Events are the durable events, the live feed and the way to ask whether their database is there.
type Events interface {
	api.EventStore
	Pinger
}

// SecretStore keeps hashes of secrets, never the secrets. sum is a SHA-256 in hex, kind a constant of this package.
type SecretStore interface {
	SaveSecret(ctx context.Context, kind, sum string, expires time.Time) error
	// TakeSecret removes the secret and reports whether it was there and had not expired: it succeeds once.
	TakeSecret(ctx context.Context, kind, sum string) (bool, error)
	CheckSecret(ctx context.Context, kind, sum string) (bool, error)
	DropSecret(ctx context.Context, kind, sum string) error
}

// Options are what a server is made of.
type Options struct {
	Runner  api.Runner
	Reader  api.Reader
	Bytes   api.ByteReader
	Events  Events
	Inbox   InboxReader
	Secrets SecretStore
	Prices  api.Prices // nil: bills get no verdict
	// Catalogue is shown on a page; nil: an empty one.
	Catalogue *forkcore.Catalogue
	// Storage is where sessions are kept; nil: nothing is known of it.
	Storage api.Storage
	// Queue is what waits for workers.
	Queue api.Queue
	// PromptsRecomputed counts prompts that were lost and rendered anew by this process; nil: none can be.
	PromptsRecomputed func() int64

	// AdminToken is what API callers present. Required.
	AdminToken string
	// Addr is the address that is listened on, with the real port.
	Addr string
	// PublicURL is where browsers find the server, when that is not Addr: "https://forkyard.example.org".
	PublicURL string
	// Hosts are further allowed values of the Host header.
	Hosts []string

	// Simulated is true while answers come from the simulated model; every page says so.
	Simulated bool
	// Kept is false when all data is lost with the process; Notice says more about where it is kept.
	Kept   bool
	Notice string
	// TokenPath is the file that holds AdminToken, empty when it came from the environment.
	TokenPath string
	// Workspaces are the folders that sessions may use.
	Workspaces []string
	// Sample is the one of them that holds the sample repository; empty when there is none.
	Sample string
	// Provider is the endpoint that answers.
	Provider Provider
	// Models are the ids to choose from; while answers are simulated there are no others. DefaultModel is chosen first.
	Models       []string
	DefaultModel string
	// DefaultMode and Gate are what forms start with; empty: fork, auto.
	DefaultMode forkcore.Mode
	Gate        forkcore.GateMode
	Version     string

	Log *slog.Logger     // nil: discarded
	Now func() time.Time // nil: time.Now
}

// Server answers everything. It is safe for concurrent use.
type Server struct {
	o     Options
	api   *api.API
	echo  *echo.Echo
	gate  hostGate
	base  string // of links, without a slash at the end
	https bool
	token [sha256.Size]byte
	tally *tally

	markdown *markdown
	drafts   *drafts
	windows  windows

	memoryWatch memoryWatch
	queueWatch  queueWatch
}

// New makes a server and starts following the live feed; Close ends that.
func New(o Options) (*Server, error) {
	if o.AdminToken == "" {
		return nil, errors.New("web: the admin token is empty, so nobody could use the API")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	gate, base, err := newHostGate(o.Addr, o.PublicURL, o.Hosts)
	if err != nil {
		return nil, err
	}
	s := &Server{
		o: o, gate: gate, base: base.String(), https: base.Scheme == "https",
		token: sha256.Sum256([]byte(o.AdminToken)), tally: newTally(), markdown: newMarkdown(), drafts: newDrafts(),
	}
	s.api = api.New(api.Options{
		Runner: o.Runner, Reader: o.Reader, Bytes: o.Bytes, Events: o.Events, Prices: o.Prices, Storage: o.Storage, Queue: o.Queue,
		Provider: o.Provider.Account, Endpoint: api.Endpoint{Host: o.Provider.host(), KeyEnd: o.Provider.KeyEnd, AccountID: o.Provider.AccountID},
		Simulated: o.Simulated, Log: o.Log, Now: o.Now,
	})
	s.api.Hub().AddObserver(s.drafts)
	s.echo = echo.New()
	s.echo.HTTPErrorHandler = s.answerError
	s.routes()
	return s, nil
}

// Handler answers requests.
func (s *Server) Handler() http.Handler { return s.echo }

// Close ends every stream. Call it before http.Server.Shutdown, which waits for streams and does not end them.
func (s *Server) Close() { s.api.Close() }

// MakeLoginLink makes a link that signs one browser in, once, within fifteen minutes.
func (s *Server) MakeLoginLink(ctx context.Context) (string, error) {
	code := newSecret()
	if err := s.o.Secrets.SaveSecret(ctx, kindLoginCode, sumOf(code), s.o.Now().Add(loginCodeLife)); err != nil {
		return "", fmt.Errorf("storing the code of a sign-in link: %w", err)
	}
	return s.base + "/login?code=" + code, nil
}
