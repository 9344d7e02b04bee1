package modelsim

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDiagnostics(t *testing.T) {
	tool := `{"name":"A","input_schema":{"type":"object"}}`
	request := func(settings, tools, system, messages, previous string) string {
		return `{"model":"claude-sonnet-5-5","max_tokens":10,` + settings + `"tools":[` + tools + `],"system":"` + system + `","messages":[` + messages + `],"diagnostics":{"previous_message_id":` + previous + `}}`
	}
	for _, tc := range []struct {
		name, body string
		previous   string // "" means the first message's id
		want       string // type; "" means null
		missed     int
	}{
		{name: "same", body: request("", tool, "s", ask, "ID")},
		{name: "grown", body: request("", tool, "s", ask+`,{"role":"assistant","content":"a"},`+ask, "ID")},
		{name: "nothing to compare", body: request("", tool, "s", ask, "null")},
		{name: "unknown message", body: request("", tool, "s", ask, `"msg_x"`), want: "previous_message_not_found"},
		{name: "model", body: strings.Replace(request("", tool, "s", ask, "ID"), "sonnet-5-5", "opus-5-5", 1), want: "model_changed", missed: 26},
		{name: "tools", body: request("", strings.Replace(tool, "A", "B", 1), "s", ask, "ID"), want: "tools_changed", missed: 26},
		{name: "system", body: request("", tool, "t", ask, "ID"), want: "system_changed", missed: 14},
		{name: "messages", body: request("", tool, "s", strings.Replace(ask, "go", "no", 1), "ID"), want: "messages_changed", missed: 7},
		{name: "settings", body: request(`"thinking":{"type":"adaptive"},`, tool, "s", ask, "ID"), want: "unavailable", missed: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sim := New(Options{Mind: say(TextBlock("ok"))})
			var m struct {
				ID          string
				Diagnostics *struct {
					Reason struct {
						Type   string
						Missed *int `json:"cache_missed_input_tokens"`
					} `json:"cache_miss_reason"`
				}
			}
			ask := func(body string) {
				t.Helper()
				m.Diagnostics = nil
				if err := json.Unmarshal(direct(sim, body).Body.Bytes(), &m); err != nil || m.ID == "" {
					t.Fatal(m, err)
				}
			}
			ask(request("", tool, "s", `{"role":"user","content":"go"}`, "null"))
			ask(strings.Replace(tc.body, "ID", `"`+m.ID+`"`, 1))
			if tc.want == "" {
				if m.Diagnostics != nil {
					t.Errorf("diagnostics = %+v, want null", m.Diagnostics)
				}
				return
			}
			if m.Diagnostics == nil || m.Diagnostics.Reason.Type != tc.want {
				t.Fatalf("diagnostics = %+v, want %s", m.Diagnostics, tc.want)
			}
			if got := m.Diagnostics.Reason.Missed; tc.missed > 0 && (got == nil || *got != tc.missed) || tc.missed < 0 && got != nil {
				t.Errorf("missed = %v, want %d", got, tc.missed)
			}
		})
	}
}

func TestPendingDiagnostics(t *testing.T) {
	sim := New(Options{Mind: say(TextBlock("ok")), DiagnosticsPending: true})
	for _, body := range []string{hello, extra(`"diagnostics":{"previous_message_id":"msg_x"}`)} {
		got := direct(sim, body).Body.String()
		if pending := strings.Contains(got, `"diagnostics":{"cache_miss_reason":null}`); pending != strings.Contains(body, "diagnostics") {
			t.Errorf("%s is answered %s", body, got)
		}
	}
}
