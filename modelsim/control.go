package modelsim

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// RevokeKey makes every request with key a 401 until [Server.AllowKey].
func (s *Server) RevokeKey(key string) { s.accounts.set(fingerprint(key), false) }

// AllowKey makes key valid, whether or not Options.Keys names it, and gives it its whole Options.Credit and
// Options.SpendLimit again.
func (s *Server) AllowKey(key string) {
	s.accounts.set(fingerprint(key), true)
	s.accounts.refund(fingerprint(key))
}

// Forget drops all cache entries, captured requests, messages that diagnostics could name and what keys have used of their
// limits. Which keys are valid stays. Answers on their way come to their end and leave what they write.
func (s *Server) Forget() {
	s.cache.forget()
	s.record.forget()
	s.traces.forget()
	s.accounts.forget()
}

// control serves the simulator's own pages under /_sim. They need no key: the simulator holds nothing that is worth one.
// What changes something is refused to a page of another origin: a browser would let it post here unseen.
func (s *Server) control() {
	own := http.NewServeMux()
	own.HandleFunc("GET /_sim", home)
	own.HandleFunc("GET /_sim/{$}", home)
	own.HandleFunc("GET /_sim/requests", s.showRequests)
	own.HandleFunc("GET /_sim/cache", s.showCache)
	own.HandleFunc("POST /_sim/keys", s.setKey)
	own.HandleFunc("POST /_sim/scenario", s.setScenario)
	own.HandleFunc("DELETE /_sim/scenario", s.clearScenario)
	own.HandleFunc("DELETE /_sim", func(w http.ResponseWriter, _ *http.Request) {
		s.Forget()
		w.WriteHeader(http.StatusNoContent)
	})
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&apiError{status: http.StatusForbidden, kind: "permission_error", message: "a page of another origin may not change the simulator"}).write(w, "")
	}))
	s.mux.Handle("/_sim", guarded.Handler(own))
	s.mux.Handle("/_sim/", guarded.Handler(own))
}

// home tells a person with a browser what there is.
func home(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, `Simulated Messages API

POST   /v1/messages
POST   /v1/messages/count_tokens
GET    /v1/models
GET    /v1/models/{id}

GET    /_sim/requests?after=n   what /v1/messages received, and what became of it
GET    /_sim/cache              the living cache entries
POST   /_sim/keys               {"key": "the key", "allowed": true or false}
POST   /_sim/scenario           a scenario, as YAML
DELETE /_sim/scenario           back to the scenario of the start
DELETE /_sim                    forget entries, requests and what keys have used up
`)
}

// setKey takes {"key": "…", "allowed": bool}.
func (s *Server) setKey(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Key     string `json:"key"`
		Allowed *bool  `json:"allowed"`
	}
	dec := json.NewDecoder(io.LimitReader(r.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil || in.Key == "" || in.Allowed == nil {
		invalid(`want {"key": "the key", "allowed": true or false}`).write(w, "")
		return
	}
	if *in.Allowed {
		s.AllowKey(in.Key)
	} else {
		s.RevokeKey(in.Key)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) showRequests(w http.ResponseWriter, r *http.Request) {
	after := 0
	if v := r.URL.Query().Get("after"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			invalid("after: Input should be a valid integer").write(w, "")
			return
		}
		after = n
	}
	list := []shown{}
	for _, c := range s.Requests() {
		if c.N > after {
			list = append(list, c.shown())
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"requests": list})
}

func (s *Server) showCache(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"entries": s.CacheEntries()})
}
