package modelsim

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(ScenarioSchema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("scenario.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("scenario.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func bySchema(t *testing.T, s *jsonschema.Schema, source []byte) error {
	t.Helper()
	var v any
	if err := yaml.Load(source, &v); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if v, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// The schema and the parser agree, on what they accept and on what they refuse.
func TestSchemaAndParserAgree(t *testing.T) {
	schema := compiledSchema(t)
	for _, name := range BuiltinScenarios() {
		data, _ := exampleFiles.ReadFile("scenarios/" + name + ".yaml")
		if !strings.HasPrefix(string(data), "# yaml-language-server: $schema=../scenario.schema.json\n") {
			t.Errorf("%s does not begin with the name of its schema", name)
		}
		if err := bySchema(t, schema, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s, err := BuiltinScenario(name); err != nil || s.Description() == "" {
			t.Errorf("%s: %v, or no description", name, err)
		}
	}
	for _, bad := range []string{
		"rules: []", "fallback: error", "rule: []", "rules: [{}]", "rules: [{answer: {}}]", "rules: [{answer: {txt: a}}]",
		"rules: [{answer: {text: 1}}]", "rules: [{answer: {text: ''}}]", "rules: [{answer: {text: a, content: [{text: b}]}}]",
		"rules: [{match: {}, answer: {text: a}}]", "rules: [{match: {directive: ''}, answer: {text: a}}]",
		"rules: [{match: {directive: {}}, answer: {text: a}}]", "rules: [{match: {directive: {contains: a, equals: b}}, answer: {text: a}}]",
		"rules: [{match: {turn: 0}, answer: {text: a}}]", "rules: [{match: {turn: []}, answer: {text: a}}]", "rules: [{match: {turn: {}}, answer: {text: a}}]",
		"rules: [{match: {tool: ''}, answer: {text: a}}]", "rules: [{match: {stream: 1}, answer: {text: a}}]",
		"rules: [{match: {tool_result: {}}, answer: {text: a}}]", "rules: [{match: {tool_result: {contains: a, regexp: b}}, answer: {text: a}}]",
		"rules: [{times: 0, answer: {text: a}}]", "rules: [{answer: {text: a}, then: {text: b}}]",
		"rules: [{answer: {stop_reason: over}}]", "rules: [{answer: {text: a, stop_details: {category: bio}}}]",
		"rules: [{answer: {stop_reason: refusal, stop_details: {category: x}}}]", "rules: [{answer: {text: a, output_tokens: 0}}]",
		"rules: [{answer: {text: a, usage: {input_tokens: -1}}}]", "rules: [{answer: {text: a, usage: {}, output_tokens: 1}}]",
		"rules: [{answer: {text: a, start_delay: 1}}]", "rules: [{answer: {text: a, start_delay: -1s}}]",
		"rules: [{answer: {tool_use: {}}}]", "rules: [{answer: {tool_use: {name: 'a b'}}}]", "rules: [{answer: {tool_use: {name: a, input: 1}}}]",
		"rules: [{answer: {tool_use: {name: a, input: {}, input_json: '{}'}}}]", "rules: [{answer: {tool_use: []}}]",
		"rules: [{answer: {content: [{}]}}]", "rules: [{answer: {content: [{text: a, thinking: b}]}}]", "rules: [{answer: {content: [{text: a, signature: b}]}}]",
		"rules: [{answer: {content: [{raw: {k: 1}}]}}]", "rules: [{answer: {content: [{raw: {type: text}}]}}]", "rules: [{answer: {content: [{raw: x}]}}]",
		"rules: [{answer: {fault: {}}}]", "rules: [{answer: {fault: {kind: boom}}}]", "rules: [{answer: {fault: {kind: status}}}]",
		"rules: [{answer: {fault: {kind: status, status: 200}}}]", "rules: [{answer: {fault: {kind: eof, retry_after: 1s}}}]",
		"rules: [{answer: {fault: {kind: slow, every: 0s}}}]", "rules: [{answer: {fault: {kind: error_event, type: odd}}}]",
		"fallback: plyer\nrules: [{answer: {text: a}}]", "options: {miss_rate: 2}\nrules: [{answer: {text: a}}]",
		"options: {min_cacheable: {gpt: 1}}\nrules: [{answer: {text: a}}]", "options: {limits: {rpm: 1}}\nrules: [{answer: {text: a}}]",
		"options: {keys: []}\nrules: [{answer: {text: a}}]", "options: {max_body: 0}\nrules: [{answer: {text: a}}]",
	} {
		_, err := ParseScenario("bad", []byte(bad))
		if err == nil || bySchema(t, schema, []byte(bad)) == nil {
			t.Errorf("%s\nparser: %v; schema: %v; want both to refuse it", bad, err, bySchema(t, schema, []byte(bad)))
		}
	}
	// What a schema cannot say: order, reachability, Go's regular expressions, templates, text that is JSON.
	for _, bad := range []string{
		"rules: [{answer: {text: a}}, {answer: {text: b}}]", "rules: [{match: {model: {regexp: '('}}, answer: {text: a}}]",
		"rules: [{answer: {text: '{{.Odd}}'}}]", "rules: [{match: {turn: {min: 2, max: 1}}, answer: {text: a}}]",
		"rules: [{answer: {tool_use: {name: a, input_json: '{'}}}]", "rules: [{answer: {text: a, fault: {kind: status, status: 429}}}]",
		"rules: [{answer: {content: [{raw: '{'}]}}]", "rules: [{answer: {text: '{{range 9}}a{{end}}'}}]",
	} {
		if _, err := ParseScenario("bad", []byte(bad)); err == nil || bySchema(t, schema, []byte(bad)) != nil {
			t.Errorf("%s\nparser: %v; want it to refuse what the schema takes: %v", bad, err, bySchema(t, schema, []byte(bad)))
		}
	}
}

// The schema and the shapes name the same fields.
func TestSchemaNamesTheShapes(t *testing.T) {
	var doc struct {
		shapeSchema
		Defs map[string]shapeSchema `json:"$defs"`
	}
	if err := json.Unmarshal(ScenarioSchema(), &doc); err != nil {
		t.Fatal(err)
	}
	for name, shape := range map[string]any{
		"": scenarioFile{}, "options": scenarioOptions{}, "limits": limitsFile{}, "rule": scenarioRule{}, "match": match{}, "answer": script{},
		"block": scriptBlock{}, "tool_use": toolUse{}, "stop_details": refusalDetails{}, "usage": usageOverride{}, "fault": faultFile{},
		"text_match": textMatch{}, "count": countMatch{}, "result_match": resultMatch{},
	} {
		s := doc.Defs[name]
		if name == "" {
			s = doc.shapeSchema
		}
		for _, one := range s.OneOf {
			if len(one.Properties) > 0 {
				s = one
			}
		}
		want, fields := fieldsOf(reflect.New(reflect.TypeOf(shape)).Elem())
		required := slices.DeleteFunc(slices.Clone(want), func(n string) bool { return !fields[n].required })
		slices.Sort(want)
		got := make([]string, 0, len(s.Properties))
		for n := range s.Properties {
			got = append(got, n)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: fields differ (-Go +schema):\n%s", name, diff)
		}
		if !slices.Equal(required, s.Required) {
			t.Errorf("%s: required %v in Go, %v in the schema", name, required, s.Required)
		}
	}
	enum := doc.Defs["options"].Properties["min_cacheable"].PropertyNames.Enum
	for i, m := range models() {
		if i >= len(enum) || enum[i] != m.id {
			t.Errorf("the schema lists the models %v; model %d is %s", enum, i, m.id)
		}
	}
}

type shapeSchema struct {
	Properties    map[string]shapeSchema
	PropertyNames struct{ Enum []string }
	Required      []string
	OneOf         []shapeSchema
}
