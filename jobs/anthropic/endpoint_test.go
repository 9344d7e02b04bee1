package anthropic

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// testEndpoint is the row of a kind.
func testEndpoint(kind string) *endpoint {
	e, err := findEndpoint(kind, &url.URL{})
	if err != nil {
		panic(err)
	}
	return e
}

// Every fact of every kind says where it is from.
func TestEndpointsHaveSources(t *testing.T) {
	table, err := endpoints()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		row := reflect.TypeFor[endpoint]()
		for i := range row.NumField() {
			fact := row.Field(i).Tag.Get("json")
			if fact == "kind" || fact == "name" || fact == "sources" {
				continue
			}
			if strings.TrimSpace(e.Sources[fact]) == "" {
				t.Errorf("%s: %s has no source", e.Kind, fact)
			}
		}
		for fact := range e.Sources {
			if !strings.Contains(string(endpointsJSON), `"`+fact+`": `) {
				t.Errorf("%s: a source for %q, which is no fact", e.Kind, fact)
			}
		}
	}
	want := []string{"auto", "anthropic", "llamacpp", "vllm", "sglang", "ollama", "lmstudio", "litellm", "openrouter", "compatible"}
	if diff := cmp.Diff(want, EndpointKinds()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

func TestTraits(t *testing.T) {
	anthropic := forkcore.Traits{Name: "Anthropic API", Caching: forkcore.CachingMarks, Prewarm: true, Diagnostics: true, Ramp: true}
	compatible := forkcore.Traits{Name: "Compatible server", Caching: forkcore.CachingUnknown}
	simulated := forkcore.Traits{Name: "Simulated model", Caching: forkcore.CachingMarks, Prewarm: true, Diagnostics: true}
	automatic := func(name string) forkcore.Traits {
		return forkcore.Traits{Name: name, Caching: forkcore.CachingAutomatic}
	}
	for _, tt := range []struct {
		name string
		o    Options
		want forkcore.Traits
	}{
		{"no base URL", Options{}, anthropic},
		{"the API", Options{BaseURL: DefaultBaseURL}, anthropic},
		{"the API with a port, in capitals", Options{BaseURL: "https://API.anthropic.com:443/x"}, anthropic},
		{"a name that ends otherwise", Options{BaseURL: "https://api.anthropic.com.example.org"}, compatible},
		{"the name in a path", Options{BaseURL: "https://example.org/api.anthropic.com"}, compatible},
		{"a local server", Options{BaseURL: "http://127.0.0.1:1"}, compatible},
		{"auto is the default", Options{BaseURL: "http://127.0.0.1:1", Endpoint: EndpointAuto}, compatible},
		{"OpenRouter", Options{BaseURL: "https://openrouter.ai/api"}, forkcore.Traits{Name: "OpenRouter", Caching: forkcore.CachingMarks}},
		{"Ollama's port", Options{BaseURL: "http://127.0.0.1:11434"}, forkcore.Traits{Name: "Ollama", Caching: forkcore.CachingUnknown}},
		{"LM Studio's port", Options{BaseURL: "http://127.0.0.1:1234"}, forkcore.Traits{Name: "LM Studio", Caching: forkcore.CachingUnknown}},
		{"named", Options{BaseURL: "http://127.0.0.1:11434", Endpoint: "llamacpp"}, automatic("llama.cpp")},
		{"named against the host", Options{Endpoint: "vllm"}, automatic("vLLM")},
		{"simulator", Options{BaseURL: "http://127.0.0.1:1", Simulated: true}, simulated},
		{"simulator, auto", Options{BaseURL: "http://127.0.0.1:1", Simulated: true, Endpoint: "auto"}, simulated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, newTestClient(t, tt.o).Traits()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := New(Options{APIKey: "k", Endpoint: "llama"}); err == nil || !strings.Contains(err.Error(), "llamacpp") {
		t.Errorf("a kind that is none: %v, want an error that lists them", err)
	}
}

func TestParseEndpointsRefuses(t *testing.T) {
	whole := string(endpointsJSON)
	for name, text := range map[string]string{
		"no JSON":          whole[:100],
		"unknown member":   strings.Replace(whole, `"prewarm"`, `"preheat"`, 1),
		"unknown caching":  strings.Replace(whole, `"marks"`, `"hopes"`, 1),
		"unknown tool ids": strings.Replace(whole, `"unique"`, `"sometimes"`, 1),
		"a kind twice":     strings.Replace(whole, `"vllm"`, `"sglang"`, 1),
		"no default":       strings.Replace(whole, `"kind": "compatible"`, `"kind": "other"`, 1),
	} {
		if _, err := parseEndpoints([]byte(text)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
