package tools

import (
	"encoding/json"
	"strings"
	"testing"
)

type inputs struct {
	path string
	n    int
	flag bool
}

func (in *inputs) fields() []field {
	return []field{{"path", &in.path, true}, {"n", &in.n, false}, {"flag", &in.flag, false}}
}

func TestDecodeInput(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     inputs
		err      string
	}{
		{"all", `{"path":"a","n":3,"flag":true}`, inputs{"a", 3, true}, ""},
		{"defaults", `{"path":"a"}`, inputs{"a", 7, false}, ""},
		{"null is absent", `{"path":"a","n":null,"flag":null}`, inputs{"a", 7, false}, ""},
		{"in quotes", `{"path":"a","n":" 12 ","flag":"true"}`, inputs{"a", 12, true}, ""},
		{"whole with a point", `{"path":"a","n":2.0}`, inputs{"a", 2, false}, ""},
		{"negative", `{"path":"a","n":-1}`, inputs{"a", -1, false}, ""},
		{"lone surrogate", `{"path":"\ud83d"}`, inputs{"\uFFFD", 7, false}, ""},
		{"nothing", ``, inputs{}, "path is required"},
		{"empty", `{}`, inputs{}, "path is required"},
		{"required but null", `{"path":null}`, inputs{}, "path is required"},
		{"required but empty", `{"path":""}`, inputs{}, "must not be empty"},
		{"not an object", `[1]`, inputs{}, "must be a JSON object with path, n, flag"},
		{"null", `null`, inputs{}, "must be a JSON object"},
		{"cut off", `{"path":"a`, inputs{}, "must be a JSON object"},
		{"unknown", `{"path":"a","file":1}`, inputs{}, `unknown field "file": Tool takes path, n, flag`},
		{"other case", `{"Path":"a"}`, inputs{}, `unknown field "Path"`},
		{"not a string", `{"path":["a"]}`, inputs{}, `path must be a string, got ["a"]`},
		{"not a number", `{"path":"a","n":"many"}`, inputs{}, "n must be a whole number, got many"},
		{"a fraction", `{"path":"a","n":1.5}`, inputs{}, "n must be a whole number"},
		{"too large", `{"path":"a","n":1e300}`, inputs{}, "n must be a whole number"},
		{"not a boolean", `{"path":"a","flag":1}`, inputs{}, "flag must be true or false, got 1"},
		{"NUL", `{"path":"a\u0000b"}`, inputs{}, "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := inputs{n: 7}
			err := decodeInput("Tool", json.RawMessage(tt.in), got.fields())
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func FuzzDecodeInput(f *testing.F) {
	for _, in := range []string{`{"path":"a","n":"3","flag":true}`, `{"n":1e999}`, `{"path":"\ud83d\u0000"}`, `{"flag":"TRUE"}`, `nul`} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var in inputs
		if err := decodeInput("Tool", raw, in.fields()); err != nil {
			return
		}
		// What was accepted is a JSON object with a usable path.
		var object map[string]any
		if json.Unmarshal(raw, &object) != nil || object["path"] != in.path || in.path == "" || strings.Contains(in.path, "\x00") {
			t.Errorf("%q decoded to %+v", raw, in)
		}
	})
}
