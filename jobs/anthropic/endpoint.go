package anthropic

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"forkyard/forkcore"
)

// EndpointAuto picks the kind of endpoint by its base URL.
const EndpointAuto = "auto"

const (
	endpointAnthropic  = "anthropic"
	endpointCompatible = "compatible"
)

//go:embed endpoints.json
var endpointsJSON []byte

// endpoint is a kind of server that speaks the Messages API, and in what it differs from the documented one. The rows
// are in endpoints.json, each fact with its source.
type endpoint struct {
	Kind      string      `json:"kind"`
	Name      string      `json:"name"`
	Recognise recognition `json:"recognise"`
	// Caching is how it keeps prefixes; CreationReported that it tells what was written.
	Caching          forkcore.Caching `json:"caching"`
	CreationReported bool             `json:"creation_reported"`
	// ReadsInInput says whether input_tokens has the tokens that were read: "no", "yes", or "by_start": yes when
	// message_start told cache_read_input_tokens.
	ReadsInInput string `json:"reads_in_input"`
	Prewarm      bool   `json:"prewarm"`      // takes max_tokens 0
	Diagnostics  bool   `json:"diagnostics"`  // takes diagnostics
	Ramp         bool   `json:"ramp"`         // refuses a sudden rise of requests
	Pings        bool   `json:"pings"`        // sends something at least every minute
	CountTokens  bool   `json:"count_tokens"` // has /v1/messages/count_tokens
	// ModelsShape is the form of its list of models: "anthropic", "openai" or "ollama".
	ModelsShape string `json:"models_shape"`
	// StartMissing says that blocks may come without a message_start before them.
	StartMissing bool `json:"start_missing"`
	// ToolIDs: "unique"; "fill" = empty ids, or the same twice in one answer, are replaced; "restart" = those that the
	// conversation has already, too.
	ToolIDs string            `json:"tool_ids"`
	Sources map[string]string `json:"sources"`
}

// recognition is how a kind is told from others: by the base URL (Hosts, Ports), or by an answer to the question for models.
type recognition struct {
	Hosts   []string `json:"hosts"`
	Ports   []string `json:"ports"`
	Server  []string `json:"server"`   // beginnings of the Server header
	Headers []string `json:"headers"`  // any of them is there
	OwnedBy []string `json:"owned_by"` // of a model
	Fields  []string `json:"fields"`   // members of a model
	Models  string   `json:"models"`   // the form of the list
}

// endpoints are the rows of endpoints.json.
var endpoints = sync.OnceValues(func() ([]*endpoint, error) { return parseEndpoints(endpointsJSON) })

func parseEndpoints(b []byte) ([]*endpoint, error) {
	var table struct {
		AsOf  string      `json:"as_of"`
		Kinds []*endpoint `json:"kinds"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&table); err != nil {
		return nil, fmt.Errorf("table of endpoints: %w", err)
	}
	seen := map[string]bool{}
	for _, e := range table.Kinds {
		caching := e.Caching == forkcore.CachingMarks || e.Caching == forkcore.CachingAutomatic || e.Caching == forkcore.CachingUnknown
		if e.Kind == "" || e.Name == "" || seen[e.Kind] || !caching ||
			!slices.Contains([]string{"no", "yes", "by_start"}, e.ReadsInInput) ||
			!slices.Contains([]string{"anthropic", "openai", "ollama"}, e.ModelsShape) ||
			!slices.Contains([]string{"unique", "fill", "restart"}, e.ToolIDs) {
			return nil, fmt.Errorf("table of endpoints: kind %q has a value that is not known, or stands twice", e.Kind)
		}
		seen[e.Kind] = true
	}
	if !seen[endpointAnthropic] || !seen[endpointCompatible] {
		return nil, errors.New("table of endpoints: the kinds anthropic and compatible must be there")
	}
	return table.Kinds, nil
}

// EndpointKinds are the values of Options.Endpoint, EndpointAuto first.
func EndpointKinds() []string {
	kinds := []string{EndpointAuto}
	table, _ := endpoints() // New reports the error
	for _, e := range table {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// EndpointKind is the value of Options.Endpoint for the name of a kind, such as "llama.cpp"; "" for another text.
func EndpointKind(name string) string {
	table, _ := endpoints() // New reports the error
	for _, e := range table {
		if e.Name == name {
			return e.Kind
		}
	}
	return ""
}

// CheckEndpoint says what is wrong with a value for Options.Endpoint; nil = nothing.
func CheckEndpoint(kind string) error {
	if kinds := EndpointKinds(); kind != "" && !slices.Contains(kinds, kind) {
		return fmt.Errorf("%q is no kind of endpoint; want one of %s", kind, strings.Join(kinds, ", "))
	}
	return nil
}

// findEndpoint gives the row of a kind; "" and "auto" go by the base URL.
func findEndpoint(kind string, base *url.URL) (*endpoint, error) {
	if err := CheckEndpoint(kind); err != nil {
		return nil, err
	}
	table, err := endpoints()
	if err != nil {
		return nil, err
	}
	var fallback *endpoint
	for _, e := range table {
		switch {
		case e.Kind == kind:
			return e, nil
		case kind != "" && kind != EndpointAuto:
		case slices.Contains(e.Recognise.Hosts, strings.ToLower(base.Hostname())), slices.Contains(e.Recognise.Ports, base.Port()):
			return e, nil
		}
		if e.Kind == endpointCompatible {
			fallback = e
		}
	}
	return fallback, nil
}

// looksLike names the kind that an answer to the question for models looks like; nil = none in particular.
func looksLike(h http.Header, list modelList) *endpoint {
	table, _ := endpoints()
	var byShape *endpoint
	for _, e := range table {
		r := e.Recognise
		for _, s := range r.Server {
			if strings.HasPrefix(strings.ToLower(h.Get("Server")), s) {
				return e
			}
		}
		for _, name := range r.Headers {
			if h.Get(name) != "" {
				return e
			}
		}
		for _, o := range r.OwnedBy {
			if slices.Contains(list.ownedBy, o) {
				return e
			}
		}
		for _, f := range r.Fields {
			if slices.Contains(list.fields, f) {
				return e
			}
		}
		if r.Models != "" && r.Models == list.shape {
			byShape = e
		}
	}
	return byShape // the weakest sign: other servers may copy a form
}

// Traits implements forkcore.Described.
func (c *Client) Traits() forkcore.Traits {
	e := c.endpoint
	t := forkcore.Traits{Name: e.Name, Caching: e.Caching, Prewarm: e.Prewarm, Diagnostics: e.Diagnostics, Ramp: e.Ramp}
	if c.simulated {
		t.Name, t.Ramp = "Simulated model", false // one process alone sends there
	}
	return t
}
