package forkcore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var levelParams = Params{Model: "claude-a", Thinking: []byte(`{"type":"adaptive"}`), Effort: "low", ToolChoice: []byte(`{"type":"auto"}`), MaxTokens: 10}

func levelHead(p Params, system string, tools ...string) []byte {
	var specs []ToolSpec
	for _, name := range tools {
		specs = append(specs, ToolSpec{Name: name, Description: "does " + name, InputSchema: []byte(`{"type":"object"}`)})
	}
	return EncodeHead(p, specs, system)
}

// Each byte of a request belongs to one level: one that differs is found there, whatever it is.
func TestM16_EachMutationNamesItsLevel(t *testing.T) {
	request := chain(levelHead(levelParams, "be kind", "Read", "Bash"), []Message{message(t, RoleUser, text("hello")), message(t, RoleAssistant, text("hi"))}).Bytes()
	now := func(p Params, system string, tools []string, said ...string) []byte {
		var ms []Message
		for i, s := range said {
			ms = append(ms, message(t, []Role{RoleUser, RoleAssistant}[i%2], text(s)))
		}
		return chain(levelHead(p, system, tools...), ms).Bytes()
	}
	with := func(change func(*Params)) Params {
		p := levelParams
		change(&p)
		return p
	}
	usual, both := []string{"hello", "hi"}, []string{"Read", "Bash"}
	all, tail := "nothing of the cache survives that", int64(len(request))
	for _, tt := range []struct {
		name         string
		now          []byte
		limit        int64
		code, path   string
		before, then string
		survives     string
	}{
		{"model", now(with(func(p *Params) { p.Model = "claude-b" }), "be kind", both, usual...), tail, "model", "model", `‹"claude-a"›`, `‹"claude-b"›`, all},
		{"thinking", now(with(func(p *Params) { p.Thinking = []byte(`{"type":"disabled"}`) }), "be kind", both, usual...), tail, "thinking", "thinking.type", `‹{"type":"adaptive"}›`, `‹{"type":"disabled"}›`, "messages on none"},
		{"no thinking", now(with(func(p *Params) { p.Thinking = nil }), "be kind", both, usual...), tail, "thinking", "thinking", `‹{"type":"adaptive"}›`, "absent", "messages on none"},
		{"effort", now(with(func(p *Params) { p.Effort = "high" }), "be kind", both, usual...), tail, "thinking", "output_config.effort", `‹{"effort":"low"}›`, `‹{"effort":"high"}›`, "messages on none"},
		{"tool choice", now(with(func(p *Params) { p.ToolChoice = []byte(`{"type":"none"}`) }), "be kind", both, usual...), tail, "thinking", "tool_choice.type", `‹{"type":"auto"}›`, `‹{"type":"none"}›`, "messages on none"},
		{"a tool's name", now(levelParams, "be kind", []string{"Read", "Bath"}, usual...), tail, "tools", "tools.1.name", `{"name":"Bash","desc`, `{"name":"Bath","desc`, all},
		{"a tool more", now(levelParams, "be kind", []string{"Read", "Bash", "New"}, usual...), tail, "tools", "tools.2", `}}]›`, `,{"name":"New"`, all},
		{"a tool less", now(levelParams, "be kind", []string{"Read"}, usual...), tail, "tools", "tools.1", `,{"name":"Bash"`, `}}]›`, all},
		{"system", now(levelParams, "be mind", both, usual...), tail, "system", "system.0.text", `be kind"}]›`, `be mind"}]›`, "only the tools survive that"},
		{"a message", now(levelParams, "be kind", both, "hellO", "hi"), tail, "messages", "messages.0.content.0.text", `hello"}]},`, `hellO"}]},`, "what lies before it survives that"},
		{"a later message", now(levelParams, "be kind", both, "hello", "ho"), tail, "messages", "messages.1.content.0.text", "hi", "ho", "what lies before it"},
		{"a summary", now(levelParams, "be kind", both, "h"), tail, "messages", "messages.0.content.0.text", "hello", `h"}]}›`, "what lies before it"},
		{"no message", now(levelParams, "be kind", both), tail, "messages", "messages.0", `"user"`, "", "what lies before it"},
		{"a message less", now(levelParams, "be kind", both, "hello"), tail, "messages", "messages.1", `,{"role":"assistant`, `"hello"}]}›`, "what lies before it"},
		// What takes more is named, wherever it stands.
		{"effort and tools", now(with(func(p *Params) { p.Effort = "high" }), "be kind", []string{"Read"}, usual...), tail, "tools", "tools.1", "", "", all},
		{"model and all", now(with(func(p *Params) { p.Model, p.Effort = "x", "high" }), "be mind", nil, "x"), tail, "model", "model", `"claude-a"`, `"x"`, all},
		{"system and messages", now(levelParams, "be mind", both, "x"), tail, "system", "system.0.text", "", "", "only the tools"},
		{"effort and messages", now(with(func(p *Params) { p.Effort = "high" }), "be kind", both, "x"), tail, "thinking", "output_config.effort", "", "", "messages on none"},
		{"the same", request, tail, "", "", "", "", ""},
		{"a message more", now(levelParams, "be kind", both, "hello", "hi", "more"), tail, "", "", "", "", ""},
		{"behind the entry", now(levelParams, "be kind", both, "hello", "ho"), tail - int64(len(`i"}]}`)), "", "", "", "", ""},
		{"at the end of the entry", now(levelParams, "be kind", both, "hello", "ho"), tail - int64(len(`"}]}`)), "messages", "messages.1.content.0.text", "", "", "what lies"},
		{"an entry of system and tools", now(levelParams, "be kind", both, "x"), int64(len(levelHead(levelParams, "be kind", both...)) - len(headClose)), "", "", "", "", ""},
		{"an entry inside the tools", now(levelParams, "be mind", both, "x"), int64(bytes.Index(request, []byte(`"system"`)) - 2), "", "", "", "", ""},
		{"a limit beyond the bytes", now(levelParams, "be kind", both, "hello", "ho"), tail + 100, "messages", "messages.1.content.0.text", "", "", "what lies"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := difference(request, tt.now, tt.limit)
			if tt.code == "" {
				if got != nil {
					t.Errorf("found %+v, want none", *got)
				}
				return
			}
			if got == nil || got.Code != tt.code || got.Path != tt.path {
				t.Fatalf("found %+v, want %s at %s", got, tt.code, tt.path)
			}
			before, then, _ := strings.Cut(got.Detail, ", now ")
			then, survives, _ := strings.Cut(then, "; ")
			if !strings.HasPrefix(before, "before ") || !strings.Contains(before, tt.before) || !strings.Contains(then, tt.then) || !strings.Contains(survives, tt.survives) {
				t.Errorf("detail %q, want %q, %q and %q", got.Detail, tt.before, tt.then, tt.survives)
			}
		})
	}

	t.Run("any byte", func(t *testing.T) {
		at := func(s string) int { return bytes.Index(request, []byte(s)) }
		for _, tt := range []struct {
			code     string
			from, to int
		}{
			{"model", at(`"claude-a"`) + 1, at(`,"thinking"`) - 1},
			{"thinking", at("adaptive"), at("adaptive") + 8},
			{"thinking", at("low"), at("low") + 3},
			{"thinking", at("auto"), at("auto") + 4},
			{"tools", at("does Bash"), at("does Bash") + 9},
			{"system", at("be kind"), at("be kind") + 7},
			{"messages", at("hello"), at("hello") + 5},
		} {
			for i := tt.from; i < tt.to; i++ {
				changed := bytes.Clone(request)
				changed[i] ^= 1
				if got := difference(request, changed, tail); got == nil || got.Code != tt.code {
					t.Fatalf("byte %d %q: %+v, want %s", i, request[i], got, tt.code)
				}
			}
		}
	})
}

func TestShownIsShort(t *testing.T) {
	long := []byte(`"` + strings.Repeat("a", 30) + strings.Repeat("é", 30) + `"`)
	for at, want := range map[int]string{
		0:  "‹" + `"` + strings.Repeat("a", 30) + "éééé›", // 39 bytes, the next rune would end at 41
		16: "‹" + `"` + strings.Repeat("a", 30) + "éééé›",
		17: "‹" + strings.Repeat("a", 30) + "ééééé›",
		31: "‹" + strings.Repeat("a", 16) + strings.Repeat("é", 12) + "›",
	} {
		if got := shown(long, at); got != want {
			t.Errorf("shown at %d: %q, want %q", at, got, want)
		}
	}
	if got := shown(nil, 0); got != "absent" {
		t.Errorf("nothing is shown as %q", got)
	}
}

func TestTopMembersOfCutBytes(t *testing.T) {
	whole := `{"model":"a\"b","tools":[{"name":"x","n":[1,2]}],"system":[]`
	for cut, want := range map[string]string{
		``:                    "",
		`{"mod`:               "",
		`{"model"`:            "",
		`{"model":`:           "model= (open)",
		`{"model":"a\"b`:      `model="a\"b (open)`,
		`{"model":"a\"b",`:    `model="a\"b"`,
		`{"model":"a\"b","to`: `model="a\"b"`,
		whole:                 `model="a\"b" system=[] (open) tools=[{"name":"x","n":[1,2]}]`,
	} {
		var got []string
		members := topMembers([]byte(cut))
		for _, key := range []string{"model", "system", "tools"} {
			if m, ok := members[key]; ok {
				s := key + "=" + string(m.value)
				if m.open {
					s += " (open)"
				}
				if !strings.HasPrefix(cut[m.start:], string(m.value)) {
					t.Errorf("%s: %s starts at %d", cut, key, m.start)
				}
				got = append(got, s)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", cut, strings.Join(got, " "), want)
		}
	}
}

// The provider looks at 20 positions, the marked block counted first: of 35 blocks with a mark on the last, 16 to 35.
// Source: Messages API, prompt caching, the worked example.
func TestLookBackWindow(t *testing.T) {
	var blocks [][]byte
	for i := range 35 {
		blocks = append(blocks, text(fmt.Sprint(i)))
	}
	p := chain(testHead(), []Message{message(t, RoleUser, blocks[:10]...), message(t, RoleAssistant, blocks[10:20]...), message(t, RoleUser, blocks[20:]...)})
	ends := append([]int64{p.SystemEnd()}, blockEndsOf(p)...) // ends[k] ends block k, counted from 1
	mark := func(k int) Mark { return Mark{Block: fmt.Sprint(k), Offset: ends[k]} }
	for _, tt := range []struct {
		entry  int
		marks  []Mark
		next   string
		far    int
		beyond bool
	}{
		{15, []Mark{mark(35)}, "35", 20, true},
		{16, []Mark{mark(35)}, "35", 19, false},
		{35, []Mark{mark(35)}, "35", 0, false},
		{15, []Mark{mark(15), mark(35)}, "15", 0, false},
		{15, []Mark{mark(35), mark(34)}, "34", 19, false},
		{14, []Mark{mark(35), mark(34)}, "34", 20, true},
		{14, []Mark{mark(13), mark(34)}, "34", 20, true},
		{34, []Mark{mark(33)}, "", 0, true},
		{34, nil, "", 0, true},
		{0, []Mark{mark(20)}, "20", 20, true},
		{0, []Mark{mark(19)}, "19", 19, false},
	} {
		next, far, beyond := p.beyondLookBack(ends[tt.entry], tt.marks)
		got := ""
		if next != nil {
			got = next.Block
		}
		if got != tt.next || far != tt.far || beyond != tt.beyond {
			t.Errorf("entry at %d, marks %v: next %q, %d positions, beyond %v; want %q, %d, %v", tt.entry, tt.marks, got, far, beyond, tt.next, tt.far, tt.beyond)
		}
	}
}

func blockEndsOf(p *Prefix) (ends []int64) {
	for _, l := range p.chain() {
		for _, e := range l.ends {
			if e.message >= 0 {
				ends = append(ends, e.offset)
			}
		}
	}
	return ends
}

// B26: a turn that starts with a tool call, a resumed one and a child send the settings of the request before, so
// nothing of the cache is lost; a setting that is another one is named.
func TestB26_AnotherSettingIsNamed(t *testing.T) {
	before := chain(levelHead(levelParams, "s", "Read"), []Message{message(t, RoleUser, text("hello"))})
	n, id := before.Tail()
	entry := &CacheEntry{Prefix: id, Bytes: n, Tokens: 1000, Exact: true, UsedAt: testTime}
	for _, tt := range []struct {
		name       string
		change     func(*Params)
		code, path string
	}{
		{"none", func(*Params) {}, "unknown", ""},
		{"model", func(p *Params) { p.Model = "claude-b" }, "model", "model"},
		{"thinking", func(p *Params) { p.Thinking = nil }, "thinking", "thinking"},
		{"effort", func(p *Params) { p.Effort = "max" }, "thinking", "output_config.effort"},
		{"tool choice", func(p *Params) { p.ToolChoice = nil }, "thinking", "tool_choice"},
		{"max tokens", func(p *Params) { p.MaxTokens = 1 }, "unknown", ""},
	} {
		p := levelParams
		tt.change(&p)
		got := Explain(Outcome{
			Usage: Usage{Input: 2000}, Expected: ptr(0), Lost: entry, SentAt: testTime,
			Prefix: chain(levelHead(p, "s", "Read"), []Message{message(t, RoleUser, text("hello"))}),
			Sent:   func() ([]byte, error) { return before.Bytes(), nil },
		})
		if got == nil || got.Code != tt.code || got.Path != tt.path {
			t.Errorf("%s: %+v, want %s at %q", tt.name, got, tt.code, tt.path)
		}
	}
}

func TestX07_X08_ScopesApart(t *testing.T) {
	known := Scope{Endpoint: "e", Key: "k"}
	in := func(s Scope, w string) Scope { s.Workspace = w; return s }
	for _, tt := range []struct {
		name        string
		now, before Scope
		want        string
		proven      bool
	}{
		{"the same", known, known, "", false},
		{"nothing known of the entry", known, Scope{Key: "other", Betas: "b"}, "", false},
		{"nothing known of the request", Scope{}, known, "", false},
		{"another endpoint", known, Scope{Endpoint: "f", Key: "k"}, "another endpoint", true},
		{"another key", known, Scope{Endpoint: "e", Key: "l"}, "inferred: it was written with another API key", false},
		{"another key, one workspace", in(known, "w"), in(Scope{Endpoint: "e", Key: "l"}, "w"), "", false},
		{"another key, one of them not named", in(known, "w"), Scope{Endpoint: "e", Key: "l"}, "inferred", false},
		{"another key, the other not named", known, in(Scope{Endpoint: "e", Key: "l"}, "w"), "inferred", false},
		{"another workspace", in(known, "w"), in(known, "v"), "in workspace v, this request went to w", true},
		{"another workspace, not named", in(known, "w"), known, "", false},
		{"another beta set", known.WithBetas([]string{"a"}), known.WithBetas([]string{"a", "b"}), "the beta set “a,b”, this request had “a”", true},
		{"another beta set and key", known.WithBetas([]string{"a"}), Scope{Endpoint: "e", Key: "l"}, "beta set", true},
		{"the same set in another order", known.WithBetas([]string{"b", "a", "b"}), known.WithBetas([]string{"a", "b"}), "", false},
	} {
		got, proven := tt.now.apart(tt.before)
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" || proven != tt.proven {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got, proven, tt.want, tt.proven)
		}
	}
	latched := []string{"b", "a"}
	Scope{}.WithBetas(latched)
	if diff := cmp.Diff([]string{"b", "a"}, latched); diff != "" {
		t.Errorf("the latched order changed: %s", diff)
	}
}

func TestFingerprint(t *testing.T) {
	a := Fingerprint("sk-ant-secret")
	if len(a) != 16 || strings.Contains(a, "sk") || a != Fingerprint("sk-ant-secret") || a == Fingerprint("sk-ant-secreT") || Fingerprint("") != "" {
		t.Errorf("fingerprint %q", a)
	}
}

func TestReadBy(t *testing.T) {
	for _, tt := range []struct {
		exact bool
		read  int64
		want  bool
	}{{true, 1000, true}, {true, 999, false}, {false, 900, true}, {false, 899, false}} {
		if got := (CacheEntry{Tokens: 1000, Exact: tt.exact}).ReadBy(Usage{CacheRead: tt.read}); got != tt.want {
			t.Errorf("read %d of 1000, exact %v: %v", tt.read, tt.exact, got)
		}
	}
}

func TestDiagnosisReason(t *testing.T) {
	tail, inside := &CacheEntry{}, &CacheEntry{Inside: true}
	for _, tt := range []struct {
		kind     string
		compared *CacheEntry
		want     bool
	}{
		{"model_changed", tail, true},
		{"tools_changed", inside, true},
		{"system_changed", nil, true},
		{"of tomorrow", tail, true},
		{"messages_changed", tail, true},
		{"messages_changed", inside, false},
		{"messages_changed", nil, false},
		{"previous_message_not_found", tail, false},
		{"unavailable", tail, false},
		{"pending", tail, false},
	} {
		if got := (Diagnosis{Type: tt.kind}).reason(tt.compared); got != tt.want {
			t.Errorf("%s compared with %+v: %v, want %v", tt.kind, tt.compared, got, tt.want)
		}
	}
	if got := (Diagnosis{Type: "tools_changed", Missed: ptr(7)}).String(); got != "tools_changed, about 7 tokens" {
		t.Errorf("in words: %q", got)
	}
	if got := (Diagnosis{Type: "pending"}).String(); got != "pending" {
		t.Errorf("in words: %q", got)
	}
}

// A setting that one of two requests lacks is named by its key, one that both have by what differs in it.
func TestM12_SettingsThatComeAndGrow(t *testing.T) {
	with := func(thinking string) []byte {
		return chain(levelHead(Params{Model: "m", Thinking: []byte(thinking)}, "s"), []Message{message(t, RoleUser, text("q"))}).Bytes()
	}
	const budget, more, shown = `{"type":"enabled","budget_tokens":1024}`, `{"type":"enabled","budget_tokens":10240}`, `{"type":"enabled","budget_tokens":1024,"display":"full"}`
	for _, tt := range []struct{ name, before, now, path, detail string }{
		{"thinking comes", "", budget, "thinking", "before absent, now ‹" + budget + "›; "},
		{"thinking goes", budget, "", "thinking", "before ‹" + budget + "›, now absent; "},
		{"another number", budget, more, "thinking.budget_tokens", ""},
		{"a member more", budget, shown, "thinking", ""},
	} {
		before := with(tt.before)
		got := difference(before, with(tt.now), int64(len(before)))
		if got == nil || got.Code != "thinking" || got.Path != tt.path || !strings.HasPrefix(got.Detail, tt.detail) {
			t.Errorf("%s: %+v, want thinking at %s: %s", tt.name, got, tt.path, tt.detail)
		}
	}
}
