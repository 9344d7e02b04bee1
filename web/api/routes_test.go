package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

// Every call: its answer when all is well has the status and exactly the shape of the document.
func TestCallsAnswerAsDocumented(t *testing.T) {
	doc := document(t)
	f := newFake()
	f.provider = &provider{
		account: forkcore.ProviderAccount{ID: "a", Limits: []forkcore.RateLimit{{Name: "requests", Limit: 50, Remaining: 49, Reset: noon}}, LimitsAt: noon, CoolUntil: noon.Add(time.Hour)},
		check:   probed, resumed: 3,
	}
	server := serve(t, f)
	snap := snapID.String()
	tests := []struct {
		operation, path, body string
		status                int
	}{
		{"POST /sessions", "/sessions", `{"workspace":"/srv/project"}`, 201},
		{"GET /sessions", "/sessions?limit=1", "", 200},
		{"GET /sessions/{id}", "/sessions/" + sessionID, "", 200},
		{"POST /sessions/{id}/messages", "/sessions/" + sessionID + "/messages", `{"text":"go"}`, 202},
		{"POST /sessions/{id}/forks/quote", "/sessions/" + sessionID + "/forks/quote", `{"directives":[{"prompt":"a"}]}`, 200},
		{"POST /sessions/{id}/forks", "/sessions/" + sessionID + "/forks", `{"directives":[{"title":"t","prompt":"a"}],"isolation":"shared","gate":"off","budget_usd":1.5}`, 202},
		{"POST /sessions/{id}/stop", "/sessions/" + sessionID + "/stop", `{"scope":"tree"}`, 202},
		{"POST /sessions/{id}/archive", "/sessions/" + sessionID + "/archive", "", 202},
		{"GET /storage", "/storage", "", 200},
		{"GET /runs/{id}", "/runs/" + mainID, "", 200},
		{"GET /runs/{id}", "/runs/" + forkID, "", 200},
		{"POST /runs/{id}/cancel", "/runs/" + forkID + "/cancel", "", 202},
		{"POST /runs/{id}/background", "/runs/" + mainID + "/background", "{}", 202},
		{"POST /runs/{id}/resume", "/runs/" + forkID + "/resume", "{}", 202},
		{"PATCH /sessions/{id}", "/sessions/" + sessionID, `{"budget_usd":2.5}`, 200},
		{"PATCH /dispatches/{id}", "/dispatches/" + dispatchID, `{"budget_usd":null}`, 200},
		{"POST /dispatches/{id}/resume", "/dispatches/" + dispatchID + "/resume", "", 202},
		{"POST /dispatches/{id}/retry", "/dispatches/" + dispatchID + "/retry", `{"runs":["` + forkID + `"]}`, 202},
		{"POST /dispatches/{id}/deliver", "/dispatches/" + dispatchID + "/deliver", "", 202},
		{"GET /runs/{id}/requests", "/runs/" + forkID + "/requests", "", 200},
		{"GET /runs/{id}/requests/{n}", "/runs/" + forkID + "/requests/1", "", 200},
		{"GET /runs/{id}/requests/{n}/body", "/runs/" + forkID + "/requests/1/body", "", 200},
		{"GET /dispatches/{id}", "/dispatches/" + dispatchID, "", 200},
		{"GET /queue", "/queue", "", 200},
		{"POST /queue/pause", "/queue/pause", `{"scope":"all"}`, 202},
		{"POST /queue/resume", "/queue/resume", `{"scope":"all"}`, 202},
		{"POST /workers/{id}/drain", "/workers/" + workerID + "/drain", "", 202},
		{"POST /workers/{id}/undrain", "/workers/" + workerID + "/undrain", "", 202},
		{"GET /flags", "/flags", "", 200},
		{"PUT /flags/{name}", "/flags/auto_background_agents", `{"value":true}`, 200},
		{"GET /provider", "/provider", "", 200},
		{"GET /provider/check", "/provider/check?model=m", "", 200},
		{"POST /provider/check", "/provider/check", `{"model":"m","probe":false}`, 200},
		{"PUT /provider/key", "/provider/key", `{"api_key":"sk-new"}`, 200},
		{"GET /snapshots/{sha256}", "/snapshots/" + snap, "", 200},
	}
	for _, test := range tests {
		t.Run(test.operation, func(t *testing.T) {
			method := strings.Fields(test.operation)[0]
			res, body := call(t, server, method, test.path, test.body)
			if res.StatusCode != test.status || res.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%s %s: %d %s, want %d application/json\n%s", method, test.path, res.StatusCode, res.Header.Get("Content-Type"), test.status, body)
			}
			checkAnswer(t, doc, test.operation, test.status, body)
		})
	}
}

// Every call that names an object answers 404 for an unknown id and for a string that is no id.
func TestCallsOfUnknownObjects(t *testing.T) {
	doc := document(t)
	server := serve(t, newFake())
	bodies := map[string]string{
		"/messages": `{"text":"a"}`, "/forks": `{"directives":[]}`, "/forks/quote": `{"directives":[]}`, "/stop": `{"scope":"turn"}`,
		"/retry": `{}`, "PATCH": `{"budget_usd":1}`, "PUT": `{"value":true}`,
	}
	for operation := range operations(doc) {
		method, path, _ := strings.Cut(operation, " ")
		if !strings.Contains(path, "{") {
			continue
		}
		kind := map[string]string{"sessions": "ses", "runs": "run", "dispatches": "dsp", "snapshots": "none"}[strings.Split(path, "/")[1]]
		for _, id := range []string{kind + "_03qqqqqqqqqqqqqqqq", "nonsense", strings.Repeat("0", 64)} {
			concrete := strings.NewReplacer("{id}", id, "{sha256}", id, "{name}", id, "{n}", "1").Replace(path)
			_, suffix, _ := strings.Cut(path, "}")
			if method == "PATCH" || method == "PUT" {
				suffix = method
			}
			t.Run(method+" "+concrete, func(t *testing.T) {
				res, body := call(t, server, method, concrete, bodies[suffix])
				if res.StatusCode != 404 || res.Header.Get("Content-Type") != "application/problem+json" {
					t.Fatalf("%d %s, want 404: %s", res.StatusCode, res.Header.Get("Content-Type"), body)
				}
				checkAnswer(t, doc, operation, 404, body)
			})
		}
	}
	for _, path := range []string{"/runs/" + forkID + "/requests/3", "/runs/" + forkID + "/requests/0", "/runs/" + forkID + "/requests/x", "/runs/" + forkID + "/requests/9/body"} {
		if res, body := call(t, server, "GET", path, ""); res.StatusCode != 404 {
			t.Errorf("GET %s: %d, want 404: %s", path, res.StatusCode, body)
		}
	}
}

// Calls that are planned but not there yet are not there.
func TestUnroutedCalls(t *testing.T) {
	server := serve(t, newFake())
	tests := []struct {
		method, path string
		status       int
	}{
		{"POST", "/runs/" + forkID + "/message", 404},
		{"GET", "/permissions", 404},
		{"GET", "/cache/summary", 404},
		{"GET", "/sessions/" + sessionID + "/export", 404},
		{"GET", "/nothing", 404},
		{"DELETE", "/sessions", 405},
		{"PUT", "/runs/" + forkID, 405},
		{"GET", "/runs/" + forkID + "/cancel", 405},
	}
	for _, test := range tests {
		res, body := call(t, server, test.method, test.path, "")
		if res.StatusCode != test.status || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %s, want %d: %s", test.method, test.path, res.StatusCode, res.Header.Get("Content-Type"), test.status, body)
		}
		if test.status == 405 && res.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow header", test.method, test.path)
		}
	}
}

// What the engine may answer, on every call that changes something.
func TestErrorsOfTheEngine(t *testing.T) {
	doc := document(t)
	tests := []struct {
		name     string
		err      error
		status   int
		detail   string // part of it
		nextStep string
		fields   []forkcore.FieldError
	}{
		{"invalid", &forkcore.InvalidError{Fields: []forkcore.FieldError{{Field: "workspace", Message: "a"}, {Field: "mode", Message: "b"}}}, 422, "not valid", "Correct", []forkcore.FieldError{{Field: "workspace", Message: "a"}, {Field: "mode", Message: "b"}}},
		{"wrapped", fmt.Errorf("forking: %w", forkcore.Invalid("gate", "c")), 422, "not valid", "Correct", []forkcore.FieldError{{Field: "gate", Message: "c"}}},
		{"key of another request", fmt.Errorf("x: %w", forkcore.ErrIdempotencyMismatch), 422, "different request", "new key", []forkcore.FieldError{{Field: "Idempotency-Key", Message: "was used for a different request"}}},
		{"conflict", &forkcore.ConflictError{Message: "The run has ended.", NextStep: "Start another."}, 409, "The run has ended.", "Start another.", nil},
		{"bare conflict", forkcore.ErrConflict, 409, "present state", "again", nil},
		{"budget", fmt.Errorf("x: %w", forkcore.ErrBudget), 409, "budget", "Raise", nil},
		{"not found", forkcore.ErrNotFound, 404, "no such object", "id", nil},
		{"bad id", forkcore.ErrBadID, 404, "no such object", "id", nil},
		{"database", fmt.Errorf("dial tcp 10.0.0.7:6379: %w", forkcore.ErrStoreUnavailable), 503, "database", "FORKYARD_REDIS_URL", nil},
		{"no memory", fmt.Errorf("accept: %w at 10.0.0.7:6379", forkcore.ErrStoreFull), 503, "Redis is full", "maxmemory", nil},
		{"damage", forkcore.ErrCorrupt, 500, "SHA-256", "log", nil},
		{"unknown", errors.New("secret inside"), 500, "inside the server", "log", nil},
	}
	writes := map[string]string{
		"POST /sessions":                  `{"workspace":"/w"}`,
		"POST /sessions/{id}/messages":    `{"text":"a"}`,
		"POST /sessions/{id}/forks":       `{"directives":[]}`,
		"POST /sessions/{id}/forks/quote": `{"directives":[]}`,
		"POST /sessions/{id}/stop":        `{"scope":"turn"}`,
		"POST /runs/{id}/cancel":          "",
		"POST /runs/{id}/background":      "",
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFake()
			f.createSession = func(forkcore.SessionSpec, string) (forkcore.Session, bool, error) {
				return forkcore.Session{}, false, test.err
			}
			f.sendMessage = func(_, _, _ string) (string, error) { return "", test.err }
			f.quoteForks = func(string, forkcore.ForkSpec) (forkcore.Quote, error) { return forkcore.Quote{}, test.err }
			f.fork = func(string, forkcore.ForkSpec, string) (forkcore.Dispatch, []forkcore.Run, error) {
				return forkcore.Dispatch{}, nil, test.err
			}
			f.stop = func(_, _ string) ([]string, error) { return nil, test.err }
			f.cancel = func(string) error { return test.err }
			f.background = f.cancel
			server := serve(t, f)
			for operation, body := range writes {
				method, path, _ := strings.Cut(operation, " ")
				path = strings.ReplaceAll(path, "{id}", sessionID)
				res, answer := call(t, server, method, path, body)
				if res.StatusCode != test.status {
					t.Fatalf("%s: %d, want %d: %s", operation, res.StatusCode, test.status, answer)
				}
				checkAnswer(t, doc, operation, test.status, answer)
				var p Problem
				if err := json.Unmarshal([]byte(answer), &p); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(p.Detail, test.detail) || !strings.Contains(p.NextStep, test.nextStep) || p.Instance != "/api/v1"+path || p.Title != http.StatusText(test.status) {
					t.Errorf("%s: %+v", operation, p)
				}
				if diff := cmp.Diff(test.fields, p.Errors); diff != "" {
					t.Errorf("%s: errors (-want +got):\n%s", operation, diff)
				}
				if strings.Contains(answer, "10.0.0.7") || strings.Contains(answer, "secret inside") {
					t.Errorf("%s tells about the inside: %s", operation, answer)
				}
			}
		})
	}
}

// What callers give arrives.
func TestWritesPassOnWhatTheyGet(t *testing.T) {
	f := newFake()
	server := serve(t, f)
	var got []any
	create := f.createSession
	f.createSession = func(s forkcore.SessionSpec, key string) (forkcore.Session, bool, error) {
		got = append(got, s.Workspace, *s.BudgetUSD, *s.Interactive, *s.AutoBackgroundSeconds, string(s.Thinking), key)
		session, _, err := create(s, key)
		return session, false, err
	}
	f.sendMessage = func(id, text, key string) (string, error) { got = append(got, id, text, key); return mainID, nil }
	f.stop = func(id, scope string) ([]string, error) { got = append(got, id, scope); return nil, nil }
	res, _ := call(t, server, "POST", "/sessions", `{"workspace":"/w","budget_usd":0.5,"interactive":false,"auto_background_seconds":0,"thinking":{"type": "adaptive"}}`, "Idempotency-Key", "k1")
	if res.Header.Get("Location") != "/api/v1/sessions/"+sessionID || res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("headers of a repeated creation: %v", res.Header)
	}
	if _, body := call(t, server, "POST", "/sessions/"+sessionID+"/messages", "{\"text\":\" a\\nb \"}", "Idempotency-Key", "k2"); !strings.Contains(body, `{"run_id":"`+mainID+`"}`) {
		t.Errorf("answer to a message: %s", body)
	}
	if _, body := call(t, server, "POST", "/sessions/"+sessionID+"/stop", `{"scope":"turn"}`); body != "{\"runs\":[]}\n" {
		t.Errorf("answer to a stop that concerns nothing: %s", body)
	}
	want := []any{"/w", 0.5, false, 0.0, `{"type": "adaptive"}`, "k1", sessionID, " a\nb ", "k2", sessionID, "turn"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the runner got (-want +got):\n%s", diff)
	}
}

func TestHeadOfEveryGet(t *testing.T) {
	server := serve(t, newFake())
	for _, path := range []string{"/sessions", "/sessions/" + sessionID, "/sessions/" + sessionID + "/events", "/events", "/openapi.yaml", "/runs/" + forkID + "/transcript"} {
		res, body := call(t, server, "HEAD", path, "")
		if res.StatusCode != 200 || body != "" {
			t.Errorf("HEAD %s: %d, %d bytes", path, res.StatusCode, len(body))
		}
	}
}

func TestLists(t *testing.T) {
	f := newFake()
	var cursors []string
	sessions := f.sessions
	f.sessions = func(cursor string, limit int) ([]forkcore.Session, string, error) {
		cursors = append(cursors, fmt.Sprint(cursor, "/", limit))
		all, _, err := sessions(cursor, limit)
		return all, "more", err
	}
	server := serve(t, f)
	tests := []struct {
		path   string
		status int
		want   string
	}{
		{"/sessions", 200, `"next_cursor":"more"`},
		{"/sessions?cursor=abc&limit=200", 200, `"next_cursor":"more"`},
		{"/sessions?limit=0", 422, `"field":"limit"`},
		{"/sessions?limit=201", 422, `"field":"limit"`},
		{"/sessions?limit=many", 422, `"field":"limit"`},
		{"/runs/" + forkID + "/requests?limit=1", 200, `"next_cursor":"1"`},
		{"/runs/" + forkID + "/requests?limit=1&cursor=1", 200, `"next_cursor":null`},
		{"/runs/" + forkID + "/requests?cursor=2", 200, `{"items":[],"next_cursor":null}`},
		{"/runs/" + forkID + "/requests?cursor=x", 422, `"field":"cursor"`},
	}
	for _, test := range tests {
		res, body := call(t, server, "GET", test.path, "")
		if res.StatusCode != test.status || !strings.Contains(body, test.want) {
			t.Errorf("GET %s: %d, want %d with %s:\n%s", test.path, res.StatusCode, test.status, test.want, body)
		}
	}
	if diff := cmp.Diff([]string{"/50", "abc/200"}, cursors); diff != "" {
		t.Errorf("pages asked for (-want +got):\n%s", diff)
	}
}
