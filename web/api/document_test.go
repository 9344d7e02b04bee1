package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v4"
)

type object = map[string]any

func document(t *testing.T) object {
	t.Helper()
	var doc object
	if err := yaml.Unmarshal(Document, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

var methods = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// operations lists "GET /path" of every operation.
func operations(doc object) map[string]object {
	found := map[string]object{}
	for path, item := range doc["paths"].(object) {
		for _, method := range methods {
			if op, ok := item.(object)[strings.ToLower(method)]; ok {
				found[method+" "+path] = op.(object)
			}
		}
	}
	return found
}

// The document describes exactly the calls that are routed.
func TestDocumentMatchesRoutes(t *testing.T) {
	var documented, routed []string
	for op := range operations(document(t)) {
		documented = append(documented, op)
	}
	e := echo.New()
	new(API).Mount(e.Group(""))
	parameter := regexp.MustCompile(`:(\w+)`)
	for _, r := range e.Routes() {
		if slices.Contains(methods, r.Method) {
			routed = append(routed, r.Method+" "+parameter.ReplaceAllString(r.Path, "{$1}"))
		}
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if diff := cmp.Diff(routed, documented); diff != "" {
		t.Errorf("-routed +documented:\n%s", diff)
	}
}

func TestDocumentIsWellFormed(t *testing.T) {
	doc := document(t)
	if v, _ := doc["openapi"].(string); !strings.HasPrefix(v, "3.1.") {
		t.Errorf("openapi %q, want 3.1.x", v)
	}
	ids := map[string]string{}
	for name, op := range operations(doc) {
		id, _ := op["operationId"].(string)
		if id == "" || ids[id] != "" {
			t.Errorf("%s: operationId %q is empty or that of %s", name, id, ids[id])
		}
		ids[id] = name
		responses, _ := op["responses"].(object)
		success := false
		for status, r := range responses {
			success = success || strings.HasPrefix(status, "2")
			if r, _ := resolve(doc, r).(object); r["description"] == nil {
				t.Errorf("%s: response %s has no description", name, status)
			}
		}
		if !success || responses["default"] == nil {
			t.Errorf("%s: wants a 2xx and a default response", name)
		}
		// Every {name} of the path is a parameter.
		path := strings.Fields(name)[1]
		item := doc["paths"].(object)[path].(object)
		declared, _ := item["parameters"].([]any)
		own, _ := op["parameters"].([]any)
		var inPath []string
		for _, p := range append(declared, own...) {
			if p := resolve(doc, p).(object); p["in"] == "path" {
				inPath = append(inPath, "{"+p["name"].(string)+"}")
			}
		}
		if want := regexp.MustCompile(`\{\w+\}`).FindAllString(path, -1); !slices.Equal(inPath, want) {
			t.Errorf("%s: path parameters %v, want %v", name, inPath, want)
		}
	}
	walk(doc, "", func(at string, v any) {
		if m, ok := v.(object); ok && m["$ref"] != nil && resolve(doc, m) == nil {
			t.Errorf("%s: %v leads nowhere", at, m["$ref"])
		}
	})
}

func walk(v any, at string, visit func(string, any)) {
	visit(at, v)
	switch v := v.(type) {
	case object:
		for k, child := range v {
			walk(child, at+"/"+k, visit)
		}
	case []any:
		for i, child := range v {
			walk(child, fmt.Sprint(at, "/", i), visit)
		}
	}
}

// resolve follows a $ref.
func resolve(doc object, v any) any {
	m, ok := v.(object)
	if !ok {
		return v
	}
	ref, ok := m["$ref"].(string)
	if !ok {
		return v
	}
	var at any = doc
	for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		m, ok := at.(object)
		if !ok || m[part] == nil {
			return nil
		}
		at = m[part]
	}
	return at
}

// check lists where a JSON value departs from a schema. Members that the schema does not name are reported too, where
// it names any: an answer must not have more than the document says.
func check(doc object, schema, v any, at string) []string {
	s, ok := resolve(doc, schema).(object)
	if !ok {
		return nil
	}
	if options, ok := s["oneOf"].([]any); ok {
		var problems []string
		for _, o := range options {
			p := check(doc, o, v, at)
			if len(p) == 0 {
				return nil
			}
			problems = append(problems, p...)
		}
		return problems
	}
	kind := map[reflect.Kind]string{reflect.Map: "object", reflect.Slice: "array", reflect.String: "string", reflect.Bool: "boolean", reflect.Float64: "number"}[reflect.ValueOf(v).Kind()]
	if v == nil {
		kind = "null"
	}
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		kind = "integer"
	}
	allowed, _ := s["type"].([]any)
	if one, ok := s["type"].(string); ok {
		allowed = []any{one}
	}
	if len(allowed) > 0 && !slices.Contains(allowed, any(kind)) && (kind != "integer" || !slices.Contains(allowed, any("number"))) {
		return []string{fmt.Sprintf("%s is %s, want %v", at, kind, allowed)}
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, v) {
		return []string{fmt.Sprintf("%s is %v, want one of %v", at, v, enum)}
	}
	if pattern, ok := s["pattern"].(string); ok && kind == "string" && !regexp.MustCompile(pattern).MatchString(v.(string)) {
		return []string{fmt.Sprintf("%s is %q, want %s", at, v, pattern)}
	}
	var problems []string
	switch v := v.(type) {
	case object:
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				problems = append(problems, fmt.Sprintf("%s has no %s", at, name))
			}
		}
		properties, _ := s["properties"].(object)
		for name, child := range v {
			p, known := properties[name]
			if properties != nil && !known {
				problems = append(problems, fmt.Sprintf("%s.%s is not documented", at, name))
			}
			problems = append(problems, check(doc, p, child, at+"."+name)...)
		}
	case []any:
		for i, child := range v {
			problems = append(problems, check(doc, s["items"], child, fmt.Sprintf("%s[%d]", at, i))...)
		}
	}
	return problems
}

// checkAnswer compares a JSON answer with what the document says of its operation and status.
func checkAnswer(t *testing.T, doc object, operation string, status int, body string) {
	t.Helper()
	op, ok := operations(doc)[operation]
	if !ok {
		t.Fatalf("%s is not documented", operation)
	}
	responses := op["responses"].(object)
	r, ok := responses[fmt.Sprint(status)]
	if !ok {
		r = responses["default"]
	}
	var schema any
	content, _ := resolve(doc, r).(object)["content"].(object)
	for _, media := range content {
		schema = media.(object)["schema"]
	}
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v in %s", operation, err, body)
	}
	for _, problem := range check(doc, schema, v, "answer") {
		t.Errorf("%s %d: %s", operation, status, problem)
	}
}
