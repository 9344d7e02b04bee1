package modelsim

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// model holds what the simulator has to know about one model id.
type model struct {
	id, name, line string
	created        string // RFC 3339 date of release; epoch where it is not known
	window         int    // input tokens
	maxOutput      int
	minCacheable   int    // tokens below which nothing is cached, silently
	thinking       string // accepted thinking types, comma-separated
	effort         string // default effort; "" when the model takes none
	noForcedTool   bool   // tool_choice any and tool are refused
	prefill        bool   // the conversation may end with an assistant message
	noSystemTurn   bool   // messages with role system are refused
	showsThinking  bool   // thinking text is shown unless display says omitted
	deprecated     string // RFC 3339 end of life, "" for active models
	retired        bool   // listed when asked for, but answers nothing any more; the end of life is in deprecated
	generation     int    // see generation
	binds          bool   // thinking is bound to model and conversation
	bindsPrefix    bool   // an edited conversation is refused
	lastTurnOnly   bool   // earlier thinking goes once a user message with more than tool results comes
	effortInSystem bool   // another effort misses the system tier too
}

const (
	epoch   = "1970-01-01T00:00:00Z"
	million = 1_000_000
)

// models is the public model list of November 2026. Minimum cacheable lengths are those of the prompt caching page;
// for Fable and Mythos 5.2 the family's 512 is assumed. Haiku 5.5's is not published: Options.MinCacheable overrides 4,096.
//
// Mythos 5.1 does not check the conversation before a thinking block. Fable 5.1 does so for newer organizations, and here.
// Thinking of all turns is kept from Opus 4.5, Sonnet 4.6 and the lines that began later on, not by Haiku 4.5.
func models() []model {
	list := []model{
		{id: "claude-fable-5-2", name: "Claude Fable 5.2", line: "fable", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high", noForcedTool: true},
		{id: "claude-mythos-5-2", name: "Claude Mythos 5.2", line: "mythos", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high", noForcedTool: true},
		{id: "claude-haiku-5-5", name: "Claude Haiku 5.5", line: "haiku", window: million, maxOutput: 128_000, minCacheable: 4096, thinking: "adaptive,disabled", effort: "medium"},
		{id: "claude-sonnet-5-5", name: "Claude Sonnet 5.5", line: "sonnet", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive,between_tools", effort: "high", noForcedTool: true},
		{id: "claude-opus-5-5", name: "Claude Opus 5.5", line: "opus", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "medium", noForcedTool: true},
		{id: "claude-fable-5-1", name: "Claude Fable 5.1", line: "fable", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high", noForcedTool: true},
		{id: "claude-mythos-5-1", name: "Claude Mythos 5.1", line: "mythos", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high", noForcedTool: true},
		{id: "claude-fable-5", name: "Claude Fable 5", line: "fable", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high"},
		{id: "claude-mythos-5", name: "Claude Mythos 5", line: "mythos", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive", effort: "high"},
		{id: "claude-opus-5", name: "Claude Opus 5", line: "opus", window: million, maxOutput: 128_000, minCacheable: 512, thinking: "adaptive,disabled", effort: "high"},
		{id: "claude-sonnet-5", name: "Claude Sonnet 5", line: "sonnet", window: million, maxOutput: 128_000, minCacheable: 1024, thinking: "adaptive,disabled", effort: "high", noSystemTurn: true},
		{id: "claude-opus-4-8", name: "Claude Opus 4.8", line: "opus", window: million, maxOutput: 128_000, minCacheable: 1024, thinking: "adaptive,disabled", effort: "high"},
		{id: "claude-opus-4-7", name: "Claude Opus 4.7", line: "opus", window: million, maxOutput: 128_000, minCacheable: 2048, thinking: "adaptive,disabled", effort: "high", noSystemTurn: true},
		{id: "claude-opus-4-6", name: "Claude Opus 4.6", line: "opus", window: million, maxOutput: 128_000, minCacheable: 4096, thinking: "adaptive,enabled,disabled", effort: "high", noSystemTurn: true, showsThinking: true},
		{id: "claude-sonnet-4-6", name: "Claude Sonnet 4.6", line: "sonnet", window: million, maxOutput: 128_000, minCacheable: 1024, thinking: "adaptive,enabled,disabled", effort: "high", noSystemTurn: true, showsThinking: true},
		{id: "claude-opus-4-5", name: "Claude Opus 4.5", line: "opus", window: 200_000, maxOutput: 64_000, minCacheable: 4096, thinking: "enabled,disabled", effort: "high", prefill: true, noSystemTurn: true, showsThinking: true, deprecated: "2027-01-22T00:00:00Z"},
		{id: "claude-haiku-4-5", name: "Claude Haiku 4.5", line: "haiku", window: 200_000, maxOutput: 64_000, minCacheable: 4096, thinking: "enabled,disabled", prefill: true, noSystemTurn: true, showsThinking: true},
		{id: "claude-sonnet-4-5", name: "Claude Sonnet 4.5", line: "sonnet", window: 200_000, maxOutput: 64_000, minCacheable: 1024, thinking: "enabled,disabled", prefill: true, noSystemTurn: true, showsThinking: true, deprecated: "2026-11-30T00:00:00Z", retired: true},
	}
	for i := range list {
		m := &list[i]
		m.generation = generation(m.id)
		m.binds = bindsThinking(m.id)
		m.bindsPrefix = m.binds && m.id != "claude-mythos-5-1"
		m.lastTurnOnly = m.id == "claude-haiku-4-5"
		m.effortInSystem = m.id == "claude-opus-5"
	}
	return list
}

func (m *model) thinks(kind string) bool {
	for t := range strings.SplitSeq(m.thinking, ",") {
		if t == kind {
			return true
		}
	}
	return false
}

type supported struct {
	Supported bool `json:"supported"`
}

// modelInfo is the shape of GET /v1/models/{id}.
type modelInfo struct {
	ID             string         `json:"id"`
	Type           string         `json:"type"`
	DisplayName    string         `json:"display_name"`
	CreatedAt      string         `json:"created_at"`
	MaxInputTokens int            `json:"max_input_tokens"`
	MaxTokens      int            `json:"max_tokens"`
	Lifecycle      string         `json:"lifecycle"`
	Line           string         `json:"line"`
	DeprecatedAt   *string        `json:"deprecated_at"`
	RetiresAt      *string        `json:"retires_at"`
	Capabilities   map[string]any `json:"capabilities"`
}

func (m *model) info() modelInfo {
	in := modelInfo{
		ID: m.id, Type: "model", DisplayName: m.name, CreatedAt: epoch, MaxInputTokens: m.window, MaxTokens: m.maxOutput,
		Lifecycle: "active", Line: m.line,
	}
	if m.created != "" {
		in.CreatedAt = m.created
	}
	if m.deprecated != "" {
		in.Lifecycle, in.RetiresAt, in.DeprecatedAt = "deprecated", &m.deprecated, &in.CreatedAt
	}
	if m.retired {
		in.Lifecycle = "retired"
	}
	kinds := map[string]supported{}
	for _, kind := range []string{"adaptive", "between_tools", "disabled", "enabled"} {
		kinds[kind] = supported{m.thinks(kind)}
	}
	effort := map[string]any{"supported": m.effort != ""}
	for _, level := range []string{"low", "medium", "high", "xhigh", "max"} {
		effort[level] = supported{m.effort != ""}
	}
	// What the simulator does not do is not offered.
	in.Capabilities = map[string]any{
		"batch": supported{}, "citations": supported{}, "code_execution": supported{}, "context_management": supported{},
		"image_input": supported{true}, "pdf_input": supported{}, "server_tools": supported{}, "structured_outputs": supported{},
		"effort": effort, "thinking": map[string]any{"supported": true, "types": kinds},
	}
	return in
}

func (s *Server) model(id string) *model {
	for i := range s.models {
		if s.models[i].id == id {
			return &s.models[i]
		}
	}
	// A dated snapshot names the same model.
	if cut := len(id) - len("-20251001"); cut > 0 && id[cut] == '-' {
		if _, err := time.Parse("20060102", id[cut+1:]); err == nil {
			return s.model(id[:cut])
		}
	}
	return nil
}

func unknownModel(id string) *apiError {
	return &apiError{status: http.StatusNotFound, kind: "not_found_error", message: "model: " + id}
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) *apiError {
	limit := 20
	query := r.URL.Query()
	if v := query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 1000 {
			return invalid("limit: Input should be between 1 and 1000")
		}
		limit = n
	}
	stages := []string{"active", "deprecated"}
	if asked := slices.Concat(query["lifecycle"], query["lifecycle[]"]); len(asked) > 0 {
		stages = strings.Split(strings.Join(asked, ","), ",")
	}
	for _, stage := range stages {
		if stage != "active" && stage != "deprecated" && stage != "retired" {
			return invalid("lifecycle: Input should be 'active', 'deprecated' or 'retired'")
		}
	}
	all := slices.DeleteFunc(slices.Clone(s.models), func(m model) bool { return !slices.Contains(stages, m.info().Lifecycle) })
	index := func(id string) int { return slices.IndexFunc(all, func(m model) bool { return m.id == id }) }
	if i := index(query.Get("after_id")); i >= 0 {
		all = all[i+1:]
	}
	more := len(all) > limit // in the direction of the request
	if i := index(query.Get("before_id")); i >= 0 {
		more = i > limit
		all = all[max(0, i-limit):i]
	}
	page := struct {
		Data    []modelInfo `json:"data"`
		HasMore bool        `json:"has_more"`
		FirstID *string     `json:"first_id"`
		LastID  *string     `json:"last_id"`
	}{Data: []modelInfo{}, HasMore: more}
	for i := range all[:min(limit, len(all))] {
		page.Data = append(page.Data, all[i].info())
	}
	if n := len(page.Data); n > 0 {
		page.FirstID, page.LastID = &page.Data[0].ID, &page.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

func (s *Server) getModel(w http.ResponseWriter, r *http.Request) *apiError {
	m := s.model(r.PathValue("id"))
	if m == nil {
		return unknownModel(r.PathValue("id"))
	}
	writeJSON(w, http.StatusOK, m.info())
	return nil
}
