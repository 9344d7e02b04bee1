package modelsim

import (
	"errors"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"reflect"
)

// UseScenario swaps the mind: from now on sc answers, with the options that its file names over those given to [New]; nil
// brings back the mind and the options of New. Cache entries and captured requests stay. When limits, credit or keys
// change, what the keys have used is forgotten and keys allowed or revoked since are as the options say. Answers on their
// way come to their end as they began.
func (s *Server) UseScenario(sc *Scenario) {
	o := s.opts
	o.Scenario = sc
	if sc != nil {
		sc.configure(&o)
	}
	if o.Override != nil {
		o.Override(&o)
	}
	old := s.live.Swap(&o)
	if old == nil { // New
		old = &s.opts
	}
	s.cache.configure(&o, old.Seed != o.Seed)
	if old.Limits != o.Limits || old.Credit != o.Credit || old.SpendLimit != o.SpendLimit || !reflect.DeepEqual(old.Keys, o.Keys) {
		s.accounts.configure(&o)
	}
}

func (c *cache) configure(o *Options, reseed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ttl5m, c.ttl1h, c.lag, c.missRate = o.TTL5m, o.TTL1h, o.VisibilityLag, o.MissRate
	if reseed {
		c.rng = mathrand.New(mathrand.NewPCG(o.Seed, 0))
	}
}

func (a *accounts) configure(o *Options) {
	fresh := newAccounts(o)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limits, a.credit, a.spend, a.listed, a.known, a.byPrint = fresh.limits, fresh.credit, fresh.spend, fresh.listed, fresh.known, fresh.byPrint
}

// scenarioMistake is one error of a scenario in the answer to POST /_sim/scenario.
type scenarioMistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// setScenario takes a scenario as YAML and answers with its mistakes as a 422, or 204.
func (s *Server) setScenario(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(io.LimitReader(r.Body, scenarioBytes+1))
	if err != nil {
		invalid("reading the request body: %v", err).write(w, "")
		return
	}
	sc, err := ParseScenario("request", data)
	var mistakes ScenarioErrors
	if errors.As(err, &mistakes) {
		list := make([]scenarioMistake, len(mistakes))
		for i, m := range mistakes {
			list[i] = scenarioMistake{m.Line, m.Column, m.Message}
		}
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"text": err.Error(), "errors": list})
		return
	}
	s.UseScenario(sc)
	w.WriteHeader(http.StatusNoContent)
}

// clearScenario brings back what the server was started with.
func (s *Server) clearScenario(w http.ResponseWriter, _ *http.Request) {
	s.UseScenario(s.opts.Scenario)
	w.WriteHeader(http.StatusNoContent)
}
