package engine_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/anthropic"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// newSimulatedYard is a yard whose model is the real client in front of the
// simulator with its honest cache, inside the bubble: what requests read and write is the provider's word.
func newSimulatedYard(t *testing.T, o modelsim.Options, answer func(call) reply, set ...func(*engine.Options)) (*yard, *modelsim.Server) {
	t.Helper()
	o.Mind = modelsim.MindFunc(func(_ context.Context, r *modelsim.Request) (modelsim.Reply, error) {
		a := answer(call{at: time.Now(), body: r.Raw, messages: parseBody(t, r.Raw)})
		out := modelsim.Reply{StopReason: a.stop, Delay: a.before}
		for _, raw := range a.blocks {
			m, err := forkcore.ParseMessage(forkcore.EncodeMessage(forkcore.RoleAssistant, []byte(raw)))
			if err != nil {
				return out, err
			}
			b := modelsim.TextBlock(m.Blocks[0].Text)
			if calls := m.ToolCalls(); len(calls) == 1 {
				b = modelsim.ToolUseBlock(calls[0].ID, calls[0].Name, string(calls[0].Input))
			}
			out.Blocks = append(out.Blocks, b)
		}
		return out, nil
	})
	sim := modelsim.New(o)
	client := simulatorClient(t, sim, "sim")
	return newYard(t, nil, append([]func(*engine.Options){func(o *engine.Options) { o.Model = client }}, set...)...), sim
}

// simulatorClient is the real client in front of a simulator; each key is a workspace of its own.
func simulatorClient(t *testing.T, sim *modelsim.Server, key string) *anthropic.Client {
	t.Helper()
	l := &pipes{ends: make(chan net.Conn), closed: make(chan struct{})}
	transport := &http.Transport{DialContext: l.dial}
	server := &http.Server{Handler: sim}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	client, err := anthropic.New(anthropic.Options{
		BaseURL: "http://simulator", APIKey: key, HTTPClient: &http.Client{Transport: transport}, IdleTimeout: time.Hour, TotalTimeout: 2 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// pipes is a listener without a network.
type pipes struct {
	ends   chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.ends:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.ends <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// received are the requests that a simulator got.
func received(t *testing.T, sim *modelsim.Server) []call {
	t.Helper()
	var calls []call
	for _, c := range sim.Requests() {
		calls = append(calls, call{n: c.N, at: c.Started, body: c.Body, messages: parseBody(t, c.Body)})
	}
	return calls
}

// someTools offers only these of the fake tools, in this order.
type someTools struct {
	*fakeTools
	names []string
}

func (s someTools) Specs() (specs []forkcore.ToolSpec) {
	for _, name := range s.names {
		specs = append(specs, forkcore.ToolSpec{Name: name, Description: "the tool " + name, InputSchema: json.RawMessage(`{"type":"object"}`), ReadOnly: s.ReadOnly(name)})
	}
	return specs
}
