package forkcore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReport(t *testing.T) {
	full := Report{Scope: "count files", Result: "There are 12.", KeyFiles: "a.go, b.go", FilesChanged: "none", Issues: "none", Missing: []string{}}
	tests := []struct {
		name, text string
		want       Report
	}{
		{"as the template says", "Scope: count files\nResult: There are 12.\nKey files: a.go, b.go\nFiles changed: none\nIssues: none", full},
		{"any case, other order, blank lines", "\nRESULT: There are 12.\n\nissues:none\nKey Files : a.go, b.go\nscope:  count files  \nFILES CHANGED: none\n", full},
		{"bold labels", "**Scope:** count files\n**Result**: There are 12.\n__Key files:__ a.go, b.go\n*Files changed:* none\n**Issues: none**", full},
		{"list signs", "- Scope: count files\n* Result: There are 12.\n+ Key files: a.go, b.go\n• Files changed: none\n  - **Issues:** none", full},
		{"numbers", "1. Scope: count files\n2) Result: There are 12.\n3. **Key files**: a.go, b.go\n4. Files changed: none\n5. Issues: none", full},
		{"headings, text below", "# Scope:\ncount files\n\n## Result\n\nThere are 12.\n### **Key files**\na.go, b.go\n## Files changed:\nnone\n**Issues**\nnone\n", full},
		{"carriage returns", "Scope: count files\r\nResult:\r\nThere are 12.\r\nKey files: a.go, b.go\r\nFiles changed: none\r\nIssues: none\r\n", full},
		{"quoted", "> Scope: count files\n> Result: There are 12.\n> Key files: a.go, b.go\n> Files changed: none\n> Issues: none", full},
		{"talk before", "Here is my report.\n\nScope: count files\nResult: There are 12.\nKey files: a.go, b.go\nFiles changed: none\nIssues: none", full},
		{"nothing", "", Report{Missing: reportLabels}},
		{"no label", "I could not do it.", Report{Missing: reportLabels}},
		{"labels inside a line are text", "The Result: is good. Issues: none", Report{Missing: reportLabels}},
		{"longer words are no labels", "Results: 1\nScopes: 2\nIssues found: 3", Report{Missing: reportLabels}},
		{"a label without a colon is text", "Scope\nx\nResult is good", Report{Missing: reportLabels}},
		{"an empty field is there", "Scope: a\nIssues:", Report{Scope: "a", Missing: []string{"Result", "Key files", "Files changed"}}},
		{"some missing", "Result: x\nIssues: y", Report{Result: "x", Issues: "y", Missing: []string{"Scope", "Key files", "Files changed"}}},
		{"the first of two counts", "Scope: a\nResult: x\nResult: y", Report{Scope: "a", Result: "x\nResult: y", Missing: []string{"Key files", "Files changed", "Issues"}}},
		{
			"several lines keep their shape", "Result: list:\n  - a  \n\n      code\nIssues: none",
			Report{Result: "list:\n  - a\n\n      code", Issues: "none", Missing: []string{"Scope", "Key files", "Files changed"}},
		},
		{
			"stars and underscores of the text stay", "Key files: __init__.py, _x_\nFiles changed: *.go\n**Result:** *all* of **/*.go\n**Issues**: **none**",
			Report{KeyFiles: "__init__.py, _x_", FilesChanged: "*.go", Result: "*all* of **/*.go", Issues: "**none**", Missing: []string{"Scope"}},
		},
		{"dashes", "Scope - count files\nRESULT – There are 12.\nKey Files — a.go, b.go\n**Files changed** - none\n- Issues - none", full},
		{"a dash joins words", "Scope-creep is bad\nResult -x\nIssues -", Report{Issues: "", Missing: []string{"Scope", "Result", "Key files", "Files changed"}}},
		{"full-width colons", "Scope：count files\n**Result：** There are 12.\nKey files： a.go, b.go\nFiles changed：none\nIssues ：none", full},
		{"bold around the number", "**1. Scope:** count files\n**2) Result**: There are 12.\n_3. Key files_ : a.go, b.go\n4. Files changed: none\n5. **Issues**\nnone", full},
		{"a list of headings", "* **Scope**\ncount files\n* **Result**\nThere are 12.\n- **Key files** - a.go, b.go\n+ **Files changed**: none\n* Issues: none", full},
		{
			"a table", "| Label | Text |\n|---|---|\n| Scope | count files |\n| **Result** | There are 12. |\n| Key files: | a.go, b.go |\n| Files changed | none\n|Issues|none|\n", full,
		},
		{"a table without a head", "| Scope | count files |\n|:--|--:|\n| Result | There are 12. |\n| Key files | a.go, b.go |\n| Files changed | none |\n| Issues | none |", full},
		{"a rule that is no table's stays", "Result: a\n|---|\nb", Report{Result: "a\n|---|\nb", Missing: []string{"Scope", "Key files", "Files changed", "Issues"}}},
		{"a pipe alone is no row", "| Scope of it\n| Result", Report{Missing: reportLabels}},
		{
			"inside a fence", "Result: see\n```yaml\nScope: x\n```\nIssues: none",
			Report{Result: "see\n```yaml\nScope: x\n```", Issues: "none", Missing: []string{"Scope", "Key files", "Files changed"}},
		},
		{
			"a longer fence holds a shorter one", "Result: see\n~~~~\n~~~\nScope: x\n```\n~~~~ y\nKey files: x\n~~~~~\nIssues: none",
			Report{Result: "see\n~~~~\n~~~\nScope: x\n```\n~~~~ y\nKey files: x\n~~~~~", Issues: "none", Missing: []string{"Scope", "Key files", "Files changed"}},
		},
		{"a fence around the report", "\n```markdown\nScope: count files\nResult: There are 12.\nKey files: a.go, b.go\nFiles changed: none\nIssues: none\n```\n\n", full},
		{"a fence that is never closed", "```\nScope: a", Report{Missing: reportLabels}},
		{"two fences are not one around all", "```\nScope: a\n```\nx\n```\nResult: b\n```", Report{Missing: reportLabels}},
		{"translations", "Umfang: a\nErgebnis: b\nPortée: c\n結果：d", Report{Missing: reportLabels}},
		{"other scripts", "Scope: 漢字 größe\nResult: ſcope", Report{Scope: "漢字 größe", Result: "ſcope", Missing: []string{"Key files", "Files changed", "Issues"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Text = tt.text
			if d := cmp.Diff(tt.want, ParseReport(tt.text)); d != "" {
				t.Errorf("report (-want +got):\n%s", d)
			}
		})
	}
}

// Five reports as models write them are five rows; what a row lacks is flagged.
func TestM30_FiveReportsMakeFiveRows(t *testing.T) {
	texts := []string{
		"Scope: s1\nResult: r1\nKey files: k1\nFiles changed: f1\nIssues: i1",
		"## Scope\ns2\n## Result\nr2\n## Key files\nk2\n## Files changed\nf2\n## Issues\ni2",
		"| SCOPE | s3 |\n| Result | r3 |\n| Key Files | k3 |\n| Files changed | f3 |\n| Issues | i3 |",
		"Done.\n\n1. **Scope** - s4\n2. **Result** - r4\n3. **Key files** - k4\n4. **Files changed** - f4",
		"I found nothing.",
	}
	want := [][]string{
		{"s1", "r1", "k1", "f1", "i1", ""},
		{"s2", "r2", "k2", "f2", "i2", ""},
		{"s3", "r3", "k3", "f3", "i3", ""},
		{"s4", "r4", "k4", "f4", "", "Issues"},
		{"", "", "", "", "", "Scope Result Key files Files changed Issues"},
	}
	var rows [][]string
	for _, text := range texts {
		r := ParseReport(text)
		rows = append(rows, []string{r.Scope, r.Result, r.KeyFiles, r.FilesChanged, r.Issues, strings.Join(r.Missing, " ")})
	}
	if d := cmp.Diff(want, rows); d != "" {
		t.Errorf("table (-want +got):\n%s", d)
	}
}

// FuzzParseReport: every word of a field stands in the text, and a label is
// either missing or found.
func FuzzParseReport(f *testing.F) {
	f.Add("**Scope:** a\n# Result\nb\n- Key files: *.go\nIssues:")
	f.Add("*_Scope_*:x")
	f.Add("```\n| Scope | a |\n|--|\n~~~\nResult： b\n```")
	f.Fuzz(func(t *testing.T, text string) {
		r := ParseReport(text)
		if r.Text != text {
			t.Fatal("the text changed")
		}
		for label, field := range map[string]string{"Scope": r.Scope, "Result": r.Result, "Key files": r.KeyFiles, "Files changed": r.FilesChanged, "Issues": r.Issues} {
			for _, word := range strings.Fields(field) {
				if !strings.Contains(text, word) {
					t.Fatalf("%s has %q, the text does not: %q", label, word, text)
				}
			}
			for _, m := range r.Missing {
				if m == label && field != "" {
					t.Fatalf("%s is missing and is %q", label, field)
				}
			}
		}
	})
}
