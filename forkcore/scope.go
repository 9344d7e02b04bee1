package forkcore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Scope is what the key of a provider's cache entry has beyond the prefix's
// hash. Two requests with equal bytes and different scopes share nothing.
// Source: Messages API, prompt caching: caches are isolated by workspace, not by key or user.
type Scope struct {
	// Endpoint is the Fingerprint of the base URL; empty = not known.
	Endpoint string `json:"endpoint,omitempty"`
	// Key is the Fingerprint of the API key, never the key; empty = none was sent.
	Key string `json:"key,omitempty"`
	// Workspace is the provider's workspace as the response named it; empty = not told.
	Workspace string `json:"workspace,omitempty"`
	// Betas is the anthropic-beta set, sorted and joined with ",": the set counts, not its order.
	Betas string `json:"betas,omitempty"`
}

// Fingerprint tells equal values apart from others and does not give them away:
// the first 8 bytes of a SHA-256, in hex. Of nothing it is empty.
func Fingerprint(value string) string {
	if value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("forkyard scope\x00" + value))
	return hex.EncodeToString(sum[:8])
}

// Account names the key at its endpoint: what rate limits, credit and refusals
// belong to. It holds neither the key nor the URL; of a scope that told nothing it is empty.
func (s Scope) Account() string {
	if s.Endpoint == "" {
		return ""
	}
	return s.Endpoint + "-" + s.Key
}

// WithBetas is s for requests that carry a beta set.
func (s Scope) WithBetas(betas []string) Scope {
	s.Betas = strings.Join(LatchBetas(betas), ",")
	return s
}

// apart says in what an entry's scope differs from that of a request; empty =
// in nothing that is known. proven is false for two keys of which nobody said
// whether they belong to one workspace.
func (s Scope) apart(entry Scope) (detail string, proven bool) {
	switch named := s.Workspace != "" && entry.Workspace != ""; {
	case s.Endpoint == "" || entry.Endpoint == "":
		return "", false // of a model or a row that told nothing
	case s.Endpoint != entry.Endpoint:
		return "it was written at another endpoint", true
	case named && s.Workspace != entry.Workspace:
		return "it was written in workspace " + entry.Workspace + ", this request went to " + s.Workspace, true
	case s.Betas != entry.Betas:
		return "it was written with the beta set “" + entry.Betas + "”, this request had “" + s.Betas + "”", true
	case !named && s.Key != entry.Key:
		return "inferred: it was written with another API key, and the provider did not say whether both belong to one workspace", false
	}
	return "", false
}
