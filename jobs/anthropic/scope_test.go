package anthropic

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestX07_ScopeNamesEndpointAndKeyWithoutGivingThemAway(t *testing.T) {
	scope := func(base, key string) forkcore.Scope {
		return newTestClient(t, Options{BaseURL: base, APIKey: key}).Scope()
	}
	a := scope("http://127.0.0.1:1/v", "sk-one")
	if a != scope("http://127.0.0.1:1/v/", " sk-one\n") {
		t.Error("the same endpoint and key, written in another way, make another scope")
	}
	if b := scope("http://127.0.0.1:1/w", "sk-one"); b.Endpoint == a.Endpoint || b.Key != a.Key {
		t.Errorf("another path: %+v and %+v", a, b)
	}
	if b := scope("http://127.0.0.1:1/v", "sk-two"); b.Endpoint != a.Endpoint || b.Key == a.Key {
		t.Errorf("another key: %+v and %+v", a, b)
	}
	if strings.Contains(a.Key+a.Endpoint, "one") || len(a.Key) != 16 || len(a.Endpoint) != 16 || a.Workspace != "" || a.Betas != "" {
		t.Errorf("scope %+v", a)
	}
}

func TestDiagnosis(t *testing.T) {
	n := int64(1234)
	for _, tt := range []struct {
		name, message string
		want          *forkcore.Diagnosis
	}{
		{"absent", ``, nil},
		{"null", `,"diagnostics":null`, nil},
		{"still running", `,"diagnostics":{"cache_miss_reason":null}`, &forkcore.Diagnosis{Type: "pending"}},
		{"a change", `,"diagnostics":{"cache_miss_reason":{"type":"tools_changed","cache_missed_input_tokens":1234}}`, &forkcore.Diagnosis{Type: "tools_changed", Missed: &n}},
		{"without a count", `,"diagnostics":{"cache_miss_reason":{"type":"previous_message_not_found"}}`, &forkcore.Diagnosis{Type: "previous_message_not_found"}},
		{"no count", `,"diagnostics":{"cache_miss_reason":{"type":"system_changed","cache_missed_input_tokens":-1}}`, &forkcore.Diagnosis{Type: "system_changed"}},
		{"no type", `,"diagnostics":{"cache_miss_reason":{}}`, nil},
		{"another shape", `,"diagnostics":[1]`, nil},
		{"a long type", `,"diagnostics":{"cache_miss_reason":{"type":"` + strings.Repeat("x", 101) + `"}}`, &forkcore.Diagnosis{Type: strings.Repeat("x", 100)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("anthropic-workspace-id", "wrkspc_1")
				_, _ = io.WriteString(w, sse("\n", strings.Replace(msgStart, `"id":"msg_1"`, `"id":"msg_1"`+tt.message, 1), msgDelta("end_turn"), msgStop))
			}))
			defer srv.Close()
			start, _, err := collect(t, newTestClient(t, Options{BaseURL: srv.URL}), t.Context(), request(`{"a":1}`))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, start.Diagnosis); d != "" || start.Workspace != "wrkspc_1" || start.MessageID != "msg_1" {
				t.Errorf("workspace %q, message %q, diagnosis (-want +got):\n%s", start.Workspace, start.MessageID, d)
			}
		})
	}
}
