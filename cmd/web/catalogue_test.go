package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/modelsim"
	"forkyard/web/browsertest"
)

// The simulator has a table of its own, because it knows nothing of this program. What it does with a request has to
// agree with what the catalogue says; what the catalogue does not know it may decide.
func TestSimulatorAgreesWithTheCatalogue(t *testing.T) {
	catalogue, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	mind := modelsim.MindFunc(func(context.Context, *modelsim.Request) (modelsim.Reply, error) {
		return modelsim.Reply{Blocks: []modelsim.Block{{Type: "text", Text: "ok"}}}, nil
	})
	sim := httptest.NewServer(modelsim.New(modelsim.Options{Mind: mind}))
	defer sim.Close()

	var list struct {
		Data []struct {
			ID           string  `json:"id"`
			Name         string  `json:"display_name"`
			Window       int64   `json:"max_input_tokens"`
			MaxOutput    int64   `json:"max_tokens"`
			Line         string  `json:"line"`
			Retires      *string `json:"retires_at"`
			Capabilities struct {
				Effort struct {
					Supported bool `json:"supported"`
				} `json:"effort"`
				Thinking struct {
					Types map[string]struct {
						Supported bool `json:"supported"`
					} `json:"types"`
				} `json:"thinking"`
			} `json:"capabilities"`
		} `json:"data"`
	}
	if _, body := simulated(t, "GET", sim.URL+"/v1/models?limit=1000", ""); json.Unmarshal(body, &list) != nil {
		t.Fatalf("the list of models: %s", body)
	}
	ids := catalogue.IDs()
	for _, theirs := range list.Data {
		ours, known := catalogue.Model(theirs.ID)
		if !known {
			t.Errorf("the simulator has %s, the catalogue has not", theirs.ID)
			continue
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == theirs.ID })
		if theirs.Name != ours.Name || theirs.Window != ours.Window || theirs.MaxOutput != ours.MaxOutput || theirs.Line != ours.Family {
			t.Errorf("%s: %q of %s, window %d, output %d; the catalogue has %q of %s, %d, %d",
				theirs.ID, theirs.Name, theirs.Line, theirs.Window, theirs.MaxOutput, ours.Name, ours.Family, ours.Window, ours.MaxOutput)
		}
		end := ""
		if !ours.EndOfLife.IsZero() {
			end = ours.EndOfLife.Format(time.RFC3339)
		}
		if got := value(theirs.Retires); got != end {
			t.Errorf("%s ends on %q, in the catalogue on %q", theirs.ID, got, end)
		}
		for kind, is := range theirs.Capabilities.Thinking.Types {
			if ok, known := ours.Thinks(kind); known && ok != is.Supported {
				t.Errorf("%s thinks %s: %v, in the catalogue %v", theirs.ID, kind, is.Supported, ok)
			}
		}
		if ours.Effort != nil && *ours.Effort != theirs.Capabilities.Effort.Supported {
			t.Errorf("%s takes an effort: %v, in the catalogue %v", theirs.ID, theirs.Capabilities.Effort.Supported, *ours.Effort)
		}
		for _, alias := range ours.Aliases {
			if status, body := simulated(t, "GET", sim.URL+"/v1/models/"+alias, ""); status != 200 {
				t.Errorf("%s: the alias %s is answered %d %s", theirs.ID, alias, status, body)
			}
		}
		if ours.MinCacheable > 0 {
			if n := written(t, sim.URL, ours.ID, ours.MinCacheable-1); n != 0 {
				t.Errorf("%s: a prefix of %d tokens, one under the catalogue's minimum, is written", ours.ID, ours.MinCacheable-1)
			}
			if n := written(t, sim.URL, ours.ID, ours.MinCacheable); n != ours.MinCacheable {
				t.Errorf("%s: of a prefix of the catalogue's minimum of %d tokens %d are written", ours.ID, ours.MinCacheable, n)
			}
		}
		if ours.ForcedToolChoice != nil {
			status, body := simulated(t, "POST", sim.URL+"/v1/messages", `{"model":"`+ours.ID+`","max_tokens":10,"tool_choice":{"type":"any"},`+
				`"tools":[{"name":"A","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`)
			if ok := status == 200; ok != *ours.ForcedToolChoice {
				t.Errorf("%s: a forced tool is answered %d %s, in the catalogue %v", ours.ID, status, body, *ours.ForcedToolChoice)
			}
		}
		if most := ours.DisabledMaxEffort; most != "" {
			levels := forkcore.Efforts()
			for i, effort := range levels {
				status, _ := simulated(t, "POST", sim.URL+"/v1/messages", `{"model":"`+ours.ID+`","max_tokens":10,"thinking":{"type":"disabled"},`+
					`"output_config":{"effort":"`+effort+`"},"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`)
				if ok := status == 200; ok != (i <= slices.Index(levels, most)) {
					t.Errorf("%s: thinking disabled at effort %s is answered %d; the catalogue has %s at most", ours.ID, effort, status, most)
				}
			}
		}
	}
	if len(ids) > 0 {
		t.Errorf("the simulator does not have %v", ids)
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// written is how many tokens the simulator writes of a marked system block of so many.
func written(t *testing.T, url, model string, tokens int64) int64 {
	t.Helper()
	name := fmt.Sprint(model, tokens)
	text := name + strings.Repeat("x", int(tokens)*4-len(`{"type":"text","text":""}`)-len(name))
	status, body := simulated(t, "POST", url+"/v1/messages", `{"model":"`+model+`","max_tokens":10,"system":[{"type":"text","text":"`+text+`","cache_control":{"type":"ephemeral"}}],`+
		`"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]}`)
	var answer struct {
		Usage struct {
			Written int64 `json:"cache_creation_input_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); status != 200 || err != nil {
		t.Fatalf("%s: %d %s", model, status, body)
	}
	return answer.Usage.Written
}

func simulated(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", "k")
	req.Header.Set("anthropic-version", "2026-10-21")
	req.Header.Set("content-type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer
}

func TestPrintCatalogue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "models.json")
	if err := os.WriteFile(file, []byte(`{"models":[{"id":"claude-haiku-5-5","min_cacheable":2048},{"id":"mine","window":8192}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	env := map[string]string{"FORKYARD_CATALOGUE": file}
	if err := run(t.Context(), []string{"-print-catalogue"}, func(k string) string { return env[k] }, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	c, err := forkcore.ParseCatalogue(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	haiku, _ := c.Model("claude-haiku-5-5")
	mine, _ := c.Model("mine")
	if haiku.MinCacheable != 2048 || haiku.Rates.Input != 100 || mine.Window != 8192 {
		t.Errorf("printed %+v and %+v", haiku, mine)
	}

	env["FORKYARD_CATALOGUE"] = file + ".not-there"
	if err := run(t.Context(), nil, func(k string) string { return env[k] }, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "FORKYARD_CATALOGUE") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// The schema names the fields that the parser takes, and no others.
func TestCatalogueSchemaHasTheFields(t *testing.T) {
	b, err := os.ReadFile("../../docs/catalogue.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(b, &schema); err != nil {
		t.Fatal(err)
	}
	c, err := forkcore.EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	printed, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var table struct{ Models []map[string]any }
	if err := json.Unmarshal(printed, &table); err != nil {
		t.Fatal(err)
	}
	for field := range table.Models[0] {
		if _, there := schema.Defs["model"].Properties[field]; !there {
			t.Errorf("the schema lacks %s", field)
		}
	}
	for field := range schema.Defs["model"].Properties {
		if _, there := table.Models[0][field]; !there {
			t.Errorf("the schema has %s, the table has not", field)
		}
	}
}

// The page of models shows what a file changed, where it says it is from, and what nobody knows.
func TestCatalogueFileOnThePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mine.json")
	if err := os.WriteFile(file, []byte(`{"as_of":"2026-11-29","models":[{"id":"claude-haiku-5-5","min_cacheable":2048},{"id":"house-model","window":8192}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tab := startWeb(t, map[string]string{"FORKYARD_CATALOGUE": file}).signIn("/models")
	tab.Has("main", "mine.json of 2026-11-29 lies over it.")
	row := func(id string) string {
		return browsertest.Eval[string](tab, `[...document.querySelectorAll(".models tr")].find(r => r.querySelector("code")?.textContent === "`+id+`").innerText`)
	}
	if said := row("claude-haiku-5-5"); !strings.Contains(said, "2,048") {
		t.Errorf("a changed model: %s", said)
	}
	if said := row("house-model"); !strings.Contains(said, "8,192") || strings.Count(said, "not known") < 5 {
		t.Errorf("a model that only the file has: %s", said)
	}
	tab.Accessible(axeFile)
}
