package forkcore

import (
	"encoding/json"
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
