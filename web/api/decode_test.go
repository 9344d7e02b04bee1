package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestDecodeStrict(t *testing.T) {
	tests := []struct{ name, body, field, message string }{
		{"empty", "", "body", "is empty, want a JSON object"},
		{"blank", " \n", "body", "is empty, want a JSON object"},
		{"null", "null", "body", "must be a JSON object"},
		{"array", "[]", "body", "must be a JSON object"},
		{"string", `"a"`, "body", "must be a JSON object"},
		{"syntax", `{"title":}`, "body", "is not valid JSON at byte 10: invalid character '}' looking for beginning of value"},
		{"cut", `{"title":"a`, "body", "ends at byte 11, in the middle of the JSON object"},
		{"encoding", "{\"title\":\"\xff\"}", "body", "is not valid UTF-8"},
		{"second value", `{"title":"a"} {}`, "body", "goes on behind the JSON object, which ends at byte 13"},
		{"garbage", `{"title":"a"}x`, "body", "goes on behind the JSON object, which ends at byte 13"},
		{"unknown field", `{"titel":"a"}`, "titel", "is not a field of this call"},
		{"unknown inner field", `{"directives":[{"promt":"a"}]}`, "promt", "is not a field of this call"},
		{"number for string", `{"title":1}`, "title", "must be a string, not number"},
		{"string for number", `{"budget_usd":"5"}`, "budget_usd", "must be a number, not string"},
		{"string for boolean", `{"interactive":"yes"}`, "interactive", "must be true or false, not string"},
		{"boolean for string", `{"title":true}`, "title", "must be a string, not true or false"},
		{"object for array", `{"directives":{}}`, "directives", "must be an array, not object"},
		{"string for object", `{"directives":["a"]}`, "directives", "must be an object, not string"},
		{"inner type", `{"directives":[{"prompt":2}]}`, "directives.prompt", "must be a string, not number"},
		{"huge number", `{"budget_usd":1e999}`, "budget_usd", "must be a number, not number 1e999"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var v struct {
				Title       string               `json:"title"`
				BudgetUSD   *float64             `json:"budget_usd"`
				Interactive *bool                `json:"interactive"`
				Directives  []forkcore.Directive `json:"directives"`
			}
			err := decodeStrict([]byte(test.body), &v)
			var invalid *forkcore.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("error %v, want an InvalidError", err)
			}
			if diff := cmp.Diff([]forkcore.FieldError{{Field: test.field, Message: test.message}}, invalid.Fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBodiesOverHTTP(t *testing.T) {
	server := serve(t, newFake())
	messages, cancel := "/sessions/"+sessionID+"/messages", "/runs/"+forkID+"/cancel"
	tests := []struct {
		name, path, body, contentType string
		status                        int
		field                         string
	}{
		{"charset", messages, `{"text":"a"}`, "application/json; charset=utf-8", 202, ""},
		{"text", messages, `{"text":"a"}`, "text/plain", 415, ""},
		{"form", messages, `text=a`, "application/x-www-form-urlencoded", 415, ""},
		{"no type", messages, `{"text":"a"}`, "", 415, ""},
		{"nonsense type", messages, `{"text":"a"}`, ";;", 415, ""},
		{"empty body", messages, "", "application/json", 422, "body"},
		{"empty text", messages, `{"text":""}`, "application/json", 422, "text"},
		{"blank text", messages, `{"text":" \n\t"}`, "application/json", 422, "text"},
		{"missing text", messages, `{}`, "application/json", 422, "text"},
		{"unknown field", messages, `{"text":"a","role":"user"}`, "application/json", 422, "role"},
		{"scope", "/sessions/" + sessionID + "/stop", `{"scope":"all"}`, "application/json", 422, "scope"},
		{"no scope", "/sessions/" + sessionID + "/stop", `{}`, "application/json", 422, "scope"},
		{"nothing needed", cancel, "", "", 202, ""},
		{"empty object", cancel, "{}", "application/json", 202, ""},
		{"text to a call without body", cancel, "{}", "text/plain", 415, ""},
		{"field of a call without body", cancel, `{"force":true}`, "application/json", 422, "force"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			res, body := call(t, server, "POST", test.path, test.body, "Content-Type", test.contentType)
			var p Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(p.Errors) > 0 {
				got = p.Errors[0].Field
			}
			if res.StatusCode != test.status || got != test.field {
				t.Errorf("%d, field %q; want %d, %q: %s", res.StatusCode, got, test.status, test.field, body)
			}
		})
	}
}

func TestIdempotencyKeyLength(t *testing.T) {
	server := serve(t, newFake())
	for _, path := range []string{"/sessions", "/sessions/" + sessionID + "/messages", "/sessions/" + sessionID + "/forks"} {
		for length, status := range map[int]int{255: 0, 256: 422} {
			res, body := call(t, server, "POST", path, map[bool]string{true: `{"text":"a"}`, false: `{}`}[strings.HasSuffix(path, "messages")], "Idempotency-Key", strings.Repeat("k", length))
			if status == 0 && res.StatusCode >= 300 || status != 0 && (res.StatusCode != status || !strings.Contains(body, "Idempotency-Key")) {
				t.Errorf("POST %s with a key of %d: %d %s", path, length, res.StatusCode, body)
			}
		}
	}
}

func FuzzDecodeStrict(f *testing.F) {
	for _, s := range []string{`{}`, `{"text":"a"}`, `{"text":`, `{"text":"a"}}`, `null`, "{\"text\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var v struct {
			Text string `json:"text"`
		}
		err := decodeStrict(body, &v)
		var invalid *forkcore.InvalidError
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("%q: error %v has no field", body, err)
		}
		if err == nil && !json.Valid(body) {
			t.Errorf("%q is accepted and no JSON", body)
		}
		if err != nil && fmt.Sprint(ProblemOf(err).Status) != "422" {
			t.Errorf("%q: status %d", body, ProblemOf(err).Status)
		}
	})
}
