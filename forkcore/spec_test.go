package forkcore

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// M11, M12: whoever dispatches chooses nothing that is part of the cache key; each of it is refused by name.
func TestM12_OverridesOfAForkAreRefused(t *testing.T) {
	all := []string{"model", "effort", "thinking", "tool_choice", "max_tokens"}
	for body, want := range map[string][]string{
		`{}`:           nil,
		`{"model":""}`: {"model"},
		`{"model":null,"effort":null,"thinking":null,"tool_choice":null,"max_tokens":null}`:       nil,
		`{"model":"m","effort":"low","thinking":{},"tool_choice":{"type":"auto"},"max_tokens":0}`: all,
		`{"max_tokens":9,"effort":false}`: {"effort", "max_tokens"},
	} {
		var o Overrides
		if err := json.Unmarshal([]byte(body), &o); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range o.Invalid("directives[1].") {
			got = append(got, f.Field)
		}
		var fields []string
		for _, name := range want {
			fields = append(fields, "directives[1]."+name)
		}
		if d := cmp.Diff(fields, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", body, d)
		}
	}
}

// M11: every parameter of a fork that somebody would choose is named with its place and the reason.
func TestM11_OverridesAreRefused(t *testing.T) {
	const body = `{"directives":[{"prompt":"a","model":"m","max_tokens":1}],"model":null,"effort":"low","thinking":{"type":"disabled"},"tool_choice":{},"max_tokens":0}`
	var spec ForkSpec
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		t.Fatal(err)
	}
	want := []FieldError{
		{"effort", "cannot be set for a fork, which keeps that of its conversation: another one is another cache key; leave it out"},
		{"thinking", "cannot be set for a fork, which keeps that of its conversation: other settings are another cache key; leave it out"},
		{"tool_choice", "cannot be set for a fork, which keeps that of its conversation: another one is another cache key; leave it out"},
		{"max_tokens", "cannot be set for a fork, which keeps that of its conversation: it comes from the snapshot, so that siblings send the same request; leave it out"},
	}
	if d := cmp.Diff(want, spec.Overrides.Invalid("")); d != "" {
		t.Errorf("of the fan-out (-want +got):\n%s", d)
	}
	want = []FieldError{
		{"directives[0].model", "cannot be set for a fork, which keeps that of its conversation: another one has another cache and could not read the shared prefix; leave it out"},
		{"directives[0].max_tokens", want[3].Message},
	}
	if d := cmp.Diff(want, spec.Directives[0].Overrides.Invalid("directives[0].")); d != "" {
		t.Errorf("of a directive (-want +got):\n%s", d)
	}
	// What is not given is not in a request's hash either.
	plain, err := json.Marshal(ForkSpec{Directives: []Directive{{Prompt: "a"}}})
	if err != nil || string(plain) != `{"directives":[{"prompt":"a"}]}` {
		t.Errorf("a plain fan-out is %s, %v", plain, err)
	}
}
