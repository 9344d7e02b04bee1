package anthropic

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/modelsim"
)

// Each kind of server, as its source or its users show it: the same call in the end, the classes of usage disjoint.
// The first line of a fixture says where its shape is from.
func TestKindsOfEndpoints(t *testing.T) {
	const call = `{"type":"tool_use","id":"call_0","name":"Read","input":{"file_path":"a"}}`
	apart := forkcore.Usage{Input: 100, CacheRead: 900, Output: 7}
	for _, tt := range []struct {
		fixture string
		want    forkcore.Usage
		known   bool
		newID   bool // in a conversation that has call_0 already, or without an id
	}{
		{"llamacpp", apart, true, true},
		{"vllm", apart, true, true},
		{"sglang", apart, true, true},
		{"sglang-later", apart, true, true},
		{"ollama", forkcore.Usage{Input: 1000, Output: 7}, true, true},
		{"lmstudio", forkcore.Usage{Output: 7}, false, true},
		{"litellm", apart, true, false},
		{"openrouter", forkcore.Usage{Input: 100, CacheWrite5m: 300, CacheRead: 600, Output: 7}, true, false},
		{"compatible", apart, true, false},
	} {
		t.Run(tt.fixture, func(t *testing.T) {
			raw, err := os.ReadFile(filepath.Join("testdata", "endpoints", tt.fixture+".sse"))
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(tt.fixture, "-")
			c := newTestClient(t, Options{BaseURL: serve(t, string(raw)).URL, Endpoint: kind})
			answer := func(body string) (*forkcore.ModelStart, *forkcore.ModelEnd, string) {
				t.Helper()
				start, end, err := collect(t, c, t.Context(), request(body))
				if err != nil {
					t.Fatal(err)
				}
				return start, end, string(end.Blocks[len(end.Blocks)-1])
			}
			start, end, first := answer(`{"model":"m"}`)
			if start == nil || end.Usage != tt.want || end.UsageKnown != tt.known || end.StopReason != "tool_use" {
				t.Errorf("start %+v, end %+v; want usage %+v", start, end, tt.want)
			}
			if tt.fixture != "ollama" && first != call {
				t.Errorf("got %s, want %s", first, call)
			}
			const history = `{"messages":[{"type":"tool_use","id":"call_0"}]}`
			_, _, later := answer(history)
			_, _, again := answer(history)
			id := decodeString(member([]byte(later), "id"))
			if tt.newID != (later != call) || id == "" || later != again {
				t.Errorf("in a conversation with call_0: %s, then %s", later, again)
			}
			if _, _, next := answer(history + " "); tt.newID && next == later {
				t.Errorf("another request of the conversation got the same id: %s", next)
			}
		})
	}
}

// The strict kind takes none of the liberties.
func TestAnthropicIsStrict(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "endpoints", "lmstudio.sse"))
	if err != nil {
		t.Fatal(err)
	}
	c := newTestClient(t, Options{BaseURL: serve(t, string(raw)).URL, Endpoint: "anthropic"})
	_, _, err = collect(t, c, t.Context(), request(`{}`))
	if e := modelError(t, err); e.Code != forkcore.CodeInvalidResponse || !strings.Contains(e.Message, "before message_start") {
		t.Errorf("got %+v", e)
	}
}

func TestProviderErrorShapes(t *testing.T) {
	for _, tt := range []struct {
		name, kind, body string
		want             providerError
	}{
		{"the API", "", `{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"ramp_limit_exceeded"}}}`, providerError{kind: "rate_limit_error", code: "ramp_limit_exceeded", message: "m"}},
		{"OpenAI", "", `{"error":{"message":"m","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, providerError{kind: "insufficient_quota", code: "insufficient_quota", message: "m"}},
		{"llama.cpp", "", `{"error":{"code":401,"message":"Invalid API Key","type":"authentication_error"}}`, providerError{kind: "authentication_error", message: "Invalid API Key", status: 401}},
		{"llama.cpp in a stream", "", `{"code":500,"message":"m","type":"server_error"}`, providerError{kind: "server_error", message: "m", status: 500}},
		{"OpenRouter", "", `{"error":{"code":502,"message":"Provider returned error","metadata":{"raw":"busy"}}}`, providerError{message: "Provider returned error: busy", status: 502}},
		{"text as error", "", `{"error":"Unauthorized"}`, providerError{message: "Unauthorized"}},
		{"FastAPI", "", `{"detail":"Not Found"}`, providerError{message: "Not Found"}},
		{"FastAPI list", "", `{"detail":[{"loc":["body","max_tokens",0],"msg":"too small","type":"x"}]}`, providerError{message: "body.max_tokens.0: too small"}},
		{"message alone", "", `{"message":"m"}`, providerError{message: "m"}},
		{"plain text", "text/plain", " upstream \n", providerError{message: "upstream"}},
		{"page with a title", "text/html; charset=utf-8", "<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>", providerError{message: "502 Bad Gateway", page: true}},
		{"page without", "", "<h1>Bad &amp; sad</h1>", providerError{message: "Bad & sad", page: true}},
		{"nothing", "", "", providerError{}},
		{"another JSON", "", `[1]`, providerError{message: "[1]"}},
	} {
		if got := parseProviderError(tt.kind, []byte(tt.body)); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// A stream that ends after any of its bytes gives no answer, unless message_stop was whole; and the same when the
// connection breaks there, inside a rune too.
func TestB15_B16_EndAtEveryByte(t *testing.T) {
	raw := turn("tool_use", concat(
		[]string{blockStart("0", `{"type":"thinking","thinking":"","signature":""}`), blockDelta("0", `{"type":"thinking_delta","thinking":"好"}`), blockDelta("0", `{"type":"signature_delta","signature":"QUJD"}`), blockStop("0")},
		textBlock("1", "🙂"),
		[]string{blockStart("2", `{"type":"tool_use","id":"t","name":"Bash","input":{}}`), blockDelta("2", `{"type":"input_json_delta","partial_json":"{\"a\":9007199254740993}"}`), blockStop("2")},
	)...)
	whole := strings.LastIndex(raw, msgStop) + len(msgStop) + 1 // its line is over; the empty line may be missing
	reset := errors.New("connection reset by peer")
	for n := range len(raw) + 1 {
		_, end, err := readAll(strings.NewReader(raw[:n]))
		if (err == nil) != (n >= whole) || (end != nil) != (n >= whole) {
			t.Fatalf("the end after byte %d of %d: %v, %v", n, len(raw), end, err)
		}
		_, end, err = readAll(io.MultiReader(strings.NewReader(raw[:n]), iotest.ErrReader(reset)))
		if complete := n == len(raw); (end != nil) != complete || (err == nil) != complete || !complete && !errors.Is(err, reset) {
			t.Fatalf("a reset after byte %d of %d: %v, %v", n, len(raw), end, err)
		}
	}
}

// An aborted stream leaves its caller with what was counted before: the start came, with its usage.
func TestB60_StartTellsUsageBeforeAnAbort(t *testing.T) {
	failed := sse("\n", strings.NewReplacer(`"input_tokens":9`, `"input_tokens":40`, ":1000", ":9000", ":500", ":960").Replace(msgStart), blockStart("0", `{"type":"text","text":""}`))
	start, _, err := collect(t, newTestClient(t, Options{BaseURL: serve(t, failed).URL}), t.Context(), request(`{}`))
	want := forkcore.Usage{Input: 40, CacheWrite5m: 960, CacheRead: 9000, Output: 1}
	if err == nil || start == nil || !start.UsageKnown || start.Usage != want {
		t.Errorf("start %+v, error %v; want usage %+v", start, err, want)
	}
	start, _, err = collect(t, newTestClient(t, Options{BaseURL: serve(t, "").URL}), t.Context(), request(`{}`))
	if err == nil || start != nil {
		t.Errorf("no event at all: start %+v, error %v; want none, so that usage stays unknown", start, err)
	}
}

func TestB43_ClassesAreDisjoint(t *testing.T) {
	var c tokenCount
	c.update([]byte(`{"input_tokens":7,"cache_creation_input_tokens":12000,"cache_creation":{"ephemeral_5m_input_tokens":10000,"ephemeral_1h_input_tokens":2000},"cache_read_input_tokens":40000,"output_tokens":300}`))
	if want := (forkcore.Usage{Input: 7, CacheWrite5m: 10000, CacheWrite1h: 2000, CacheRead: 40000, Output: 300}); c.usage() != want {
		t.Errorf("got %+v, want %+v", c.usage(), want)
	}
}

// The probe writes a prefix and reads it, on a server that keeps the documented rules.
func TestProbeWithSimulator(t *testing.T) {
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"anthropic", "compatible"} {
		t.Run(kind, func(t *testing.T) {
			sim := modelsim.New(modelsim.Options{})
			srv := httptest.NewServer(sim)
			defer srv.Close()
			got, err := newTestClient(t, Options{BaseURL: srv.URL, Endpoint: kind, Catalogue: catalogue}).Check(t.Context(), "claude-sonnet-5-5", true)
			if err != nil || got.Outcome != forkcore.ProviderOK || got.Probe == nil || got.Probe.Err != nil {
				t.Fatalf("got %+v, %v; probe %+v", got, err, got.Probe)
			}
			p := got.Probe
			if read := p.Read(); read == nil || *read != 1 || p.First.CacheWrite5m < 512 || p.Second.CacheRead != p.First.CacheWrite5m || !p.Counted {
				t.Errorf("probe %+v, read %v", p, read)
			}
			m, _ := catalogue.Model("claude-sonnet-5-5")
			if want := m.Cost(p.First) + m.Cost(p.Second); p.Cost == nil || *p.Cost != want {
				t.Errorf("cost %v, want %d", p.Cost, want)
			}
			if n := len(sim.Requests()); n != 2 {
				t.Errorf("%d requests, want 2", n)
			}
		})
	}
}

// Where no models are listed, the probe says whether the key is taken.
func TestProbeDecidesWithoutAList(t *testing.T) {
	credit := `{"error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`
	for _, tt := range []struct {
		name   string
		list   int
		status int
		body   string
		want   forkcore.ProviderOutcome
	}{
		{"answered", 404, 200, turn("max_tokens"), forkcore.ProviderOK},
		{"refused", 404, 401, `{"error":{"type":"authentication_error","message":"no"}}`, forkcore.ProviderRefused},
		{"limited", 404, 429, `{"error":{"type":"rate_limit_error","message":"no"}}`, forkcore.ProviderLimited},
		{"failing", 404, 500, `boom`, forkcore.ProviderFailing},
		{"credit used up, though it lists", 200, 400, credit, forkcore.ProviderRefused},
		{"lists, and the probe fails", 200, 500, `boom`, forkcore.ProviderOK},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if r.Method == http.MethodGet {
					w.WriteHeader(tt.list)
					_, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			got, err := newTestClient(t, Options{BaseURL: srv.URL}).Check(t.Context(), "m", true)
			if err != nil || got.Outcome != tt.want || got.Probe == nil || (got.Probe.Err != nil) != (tt.status != 200) {
				t.Errorf("got %+v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestModelLists(t *testing.T) {
	for _, tt := range []struct {
		name, server, header, body string
		like                       string
	}{
		{"anthropic", "", "", `{"data":[{"type":"model","id":"m"}],"has_more":false}`, "Anthropic API"},
		{"llama.cpp", "llama.cpp", "", `{"models":[{"name":"m"}],"object":"list","data":[{"id":"m","object":"model","owned_by":"llamacpp"}]}`, "llama.cpp"},
		{"vLLM", "uvicorn", "", `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}`, "vLLM"},
		{"SGLang", "", "", `{"object":"list","data":[{"id":"m","owned_by":"sglang"}]}`, "SGLang"},
		{"Ollama", "", "", `{"models":[{"name":"m","model":"m"}]}`, "Ollama"},
		{"LM Studio", "", "", `{"data":[{"id":"m","object":"model","owned_by":"organization_owner"}],"object":"list"}`, "LM Studio"},
		{"LiteLLM", "", "x-litellm-version", `{"data":[{"id":"m","object":"model","owned_by":"openai"}]}`, "LiteLLM"},
		{"OpenRouter", "", "", `{"data":[{"id":"m","canonical_slug":"m"}]}`, "OpenRouter"},
		{"another", "", "", `{"data":[{"id":"m"}]}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Server", tt.server)
				if tt.header != "" {
					w.Header().Set(tt.header, "1")
				}
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			got, err := newTestClient(t, Options{BaseURL: srv.URL}).Check(t.Context(), "m", false)
			want := forkcore.ProviderCheck{Outcome: forkcore.ProviderOK, Endpoint: "Compatible server", LooksLike: tt.like, Models: 1, Offered: true}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// No message is decoded and encoded again: encoding/json is used at the places below alone, for the reason beside each.
func TestEncodingJSONIsNotUsedOnMessages(t *testing.T) {
	allowed := map[string]string{
		"endpoint.go NewDecoder": "the embedded table of endpoints",
		"errors.go NewDecoder":   "the model's name out of a body, for the text of an error",

		"../engine/sessions.go Marshal":   "the wish for a session, to compare it with that of an earlier call",
		"../engine/sessions.go Unmarshal": "the thinking setting that a caller gives, to check it before it is latched",
		"../engine/sessions.go Compact":   "the same, once, before it is latched",
		"../engine/turns.go Marshal":      "the wish for a dispatch, to compare it with that of an earlier call",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := filepath.Glob("../engine/*.go")
	if err != nil || len(engine) == 0 {
		t.Fatal(engine, err)
	}
	files = append(files, engine...)
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "json" && sel.Sel.Name != "RawMessage" {
				use := file + " " + sel.Sel.Name
				found[use] = true
				if allowed[use] == "" {
					t.Errorf("%s: json.%s; messages are kept as bytes", file, sel.Sel.Name)
				}
			}
			return true
		})
	}
	for use := range allowed {
		if !found[use] {
			t.Errorf("%s is allowed and not used", use)
		}
	}
}
