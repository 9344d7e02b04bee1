package modelsim

import (
	"crypto/sha256"
	"slices"
	"sync"
)

// Diagnosis answers a request's diagnostics: where its prompt parts from that of an earlier message. It compares what
// was asked, whether or not the cache still held it.
type Diagnosis struct {
	// CacheMissReason is null while the comparison is still running.
	CacheMissReason *missReason `json:"cache_miss_reason"`
}

type missReason struct {
	Type string `json:"type"`
	// MissedTokens is left out where nothing was compared.
	MissedTokens *int `json:"cache_missed_input_tokens,omitempty"`
}

// trace is what stays of a request's prompt for later comparisons: hashes, as with the provider.
type trace struct {
	workspace, model, settings string
	tiers                      []int
	blocks                     []digest
	tokens                     []int
}

// traceLimit is the number of messages that can be named as previous_message_id.
const traceLimit = 1000

type traces struct {
	mu    sync.Mutex
	byID  map[string]*trace
	order []string
}

func (p *prompt) trace(workspace string) *trace {
	t := &trace{workspace: workspace, model: p.model.id + " " + p.speed}
	h := sha256.New()
	for _, b := range [][]byte{[]byte(p.thinkingKey()), []byte(p.effort), p.toolChoice, p.format} {
		writeFramed(h, b)
	}
	for _, b := range p.betas {
		writeFramed(h, []byte(b))
	}
	t.settings = string(h.Sum(nil))
	for i := range p.positions {
		pos := &p.positions[i]
		h.Reset()
		writeFramed(h, []byte(pos.role))
		writeFramed(h, pos.clean)
		t.tiers = append(t.tiers, pos.tier)
		t.blocks = append(t.blocks, digest(h.Sum(nil)))
		t.tokens = append(t.tokens, pos.tokens())
	}
	return t
}

// diagnose compares p with an earlier message; nil means no divergence or nothing to compare.
func (s *Server) diagnose(p *prompt, workspace string) *Diagnosis {
	if p.previousID == "" {
		return nil
	}
	if s.opts.DiagnosticsPending {
		return &Diagnosis{}
	}
	s.traces.mu.Lock()
	old := s.traces.byID[p.previousID]
	s.traces.mu.Unlock()
	if old == nil || old.workspace != workspace {
		return &Diagnosis{&missReason{Type: "previous_message_not_found"}}
	}
	now := p.trace(workspace)
	from := func(kind string, at int) *Diagnosis {
		n := 0
		for _, t := range old.tokens[min(at, len(old.tokens)):] {
			n += t
		}
		return &Diagnosis{&missReason{kind, &n}}
	}
	if now.model != old.model {
		return from("model_changed", 0)
	}
	for tier, kind := range []string{"tools_changed", "system_changed", "messages_changed"} {
		a, start := old.tier(tier)
		b, _ := now.tier(tier)
		same := slices.Equal(a, b)
		if tier == tierMessages { // growing is not a change
			if now.settings != old.settings {
				return &Diagnosis{&missReason{Type: "unavailable"}}
			}
			same = len(b) >= len(a) && slices.Equal(a, b[:len(a)])
		}
		if same {
			continue
		}
		at := 0
		for at < len(a) && at < len(b) && a[at] == b[at] {
			at++
		}
		return from(kind, start+at)
	}
	return nil
}

// tier returns the block hashes of one tier and where it starts.
func (t *trace) tier(tier int) ([]digest, int) {
	start, _ := slices.BinarySearch(t.tiers, tier)
	end, _ := slices.BinarySearch(t.tiers, tier+1)
	return t.blocks[start:end], start
}

func (s *Server) remember(messageID string, t *trace) {
	s.traces.mu.Lock()
	defer s.traces.mu.Unlock()
	s.traces.byID[messageID] = t
	s.traces.order = append(s.traces.order, messageID)
	if len(s.traces.order) > traceLimit {
		delete(s.traces.byID, s.traces.order[0])
		s.traces.order = s.traces.order[1:]
	}
}

func (t *traces) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.byID)
	t.order = nil
}
