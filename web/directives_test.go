package web

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
)

func TestParseList(t *testing.T) {
	for name, test := range map[string]struct {
		text   string
		blocks bool
		want   []string
	}{
		"empty":               {"", false, nil},
		"blank lines":         {"\n \n\t\n", false, nil},
		"plain lines":         {"one\ntwo", false, []string{"one", "two"}},
		"line ends":           {"one\r\n\r\ntwo\r\n", false, []string{"one", "two"}},
		"bullets":             {"- one\n* two\n+ three\n• four\n– five", false, []string{"one", "two", "three", "four", "five"}},
		"numbers":             {"1. one\n2) two\n(3) three\n12. twelve", false, []string{"one", "two", "three", "twelve"}},
		"check boxes":         {"- [ ] one\n- [x] two\n1. [X] three", false, []string{"one", "two", "three"}},
		"nested bullets":      {"- one\n  - two", false, []string{"one", "two"}},
		"no bullets":          {"-1 is odd\n*bold*\n3.5 litres\n1999. Party\n(a) b\n[ ] box", false, []string{"-1 is odd", "*bold*", "3.5 litres", "1999. Party", "(a) b", "[ ] box"}},
		"bullets of nothing":  {"-\n1.\n- \nx", false, []string{"x"}},
		"one bullet a line":   {"- - a", false, []string{"- a"}},
		"blocks":              {"- one\n  more of one\n\n\n2. two\n- part of two\n", true, []string{"one\n  more of one", "two\n- part of two"}},
		"blocks, white lines": {"a\n \t \nb", true, []string{"a", "b"}},
		"blocks, line ends":   {"a\r\nb\r\n\r\nc", true, []string{"a\nb", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, parseList(test.text, test.blocks)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("- one\n2. two\n\n(3) [x] three", true)
	f.Add("\r\n•\u00a0\n1)", false)
	f.Fuzz(func(t *testing.T, text string, blocks bool) {
		items := parseList(text, blocks)
		at := 0
		for _, item := range items {
			if item == "" || item != strings.TrimSpace(item) {
				t.Fatalf("item %q of %q", item, text)
			}
			if !blocks && strings.Contains(item, "\n") {
				t.Fatalf("item %q of %q has two lines", item, text)
			}
			if utf8.ValidString(text) && !utf8.ValidString(item) {
				t.Fatalf("item %q of %q is no text", item, text)
			}
			// Nothing is invented and nothing changes places: the first line of each item stands in the text, in order.
			first, _, _ := strings.Cut(item, "\n")
			i := strings.Index(text[at:], strings.TrimRight(first, " \t\r"))
			if i < 0 {
				t.Fatalf("item %q is not in %q", item, text)
			}
			at += i + len(strings.TrimRight(first, " \t\r"))
		}
	})
}

// prompts are the prompts of the rows, in order.
func (f directivesForm) prompts() []string {
	var p []string
	for _, r := range f.Rows {
		p = append(p, r.Prompt)
	}
	return p
}

func TestDirectivesFormActions(t *testing.T) {
	rows := func(prompts ...string) url.Values { return url.Values{"prompt": prompts, "times": {"3"}} }
	with := func(v url.Values, key, value string) url.Values { v.Set(key, value); return v }
	many := make([]string, forkcore.MaxDirectives)
	for i := range many {
		many[i] = "x"
	}
	for name, test := range map[string]struct {
		sent   url.Values
		action string
		want   []string
		focus  string // the prompt of the row that has the focus
		bad    string // id of the field with a message
	}{
		"add":                         {rows("a", "b"), "add", []string{"a", "b", ""}, "", ""},
		"add too many":                {rows(many...), "add", many, "", fieldAdd},
		"remove":                      {with(rows("a", "b", "c"), "row", "7"), "remove:7", []string{"b", "c"}, "b", ""},
		"remove the last":             {with(rows("a"), "row", "7"), "remove:7", []string{""}, "", ""},
		"remove what is not there":    {rows("a"), "remove:99", []string{"a"}, "", ""},
		"remove nonsense":             {rows("a"), "remove:", []string{"a"}, "", ""},
		"paste":                       {with(rows("a", "", ""), "list", "- b\n- c"), "paste", []string{"a", "b", "c"}, "b", ""},
		"paste nothing":               {with(rows("a", ""), "list", " "), "paste", []string{"a", ""}, "", "list"},
		"paste too much":              {with(rows("a"), "list", strings.Repeat("x\n", 64)), "paste", []string{"a"}, "", "list"},
		"repeat":                      {with(rows("", ""), "same", "Look again"), "repeat", []string{"Look again", "Look again", "Look again"}, "Look again", ""},
		"repeat nothing":              {rows("a"), "repeat", []string{"a"}, "", "same-2"},
		"repeat a word":               {with(with(rows("a"), "same", "x"), "times", "many"), "repeat", []string{"a"}, "", fieldTimes},
		"repeat none":                 {with(with(rows("a"), "same", "x"), "times", "0"), "repeat", []string{"a"}, "", fieldTimes},
		"repeat too often":            {with(with(rows("a"), "same", "x"), "times", "64"), "repeat", []string{"a"}, "", fieldTimes},
		"restore":                     {rows("a", ""), "restore", []string{"a", ""}, "", ""},
		"an action that is not there": {rows("a"), "explode", []string{"a"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := parseDirectivesForm(test.sent)
			list, same := f.List, f.Same
			f.act(test.action)
			if diff := cmp.Diff(test.want, f.prompts()); diff != "" {
				t.Error(diff)
			}
			ids := map[int]bool{}
			for _, r := range f.Rows {
				if ids[r.ID] || r.ID >= f.Next {
					t.Errorf("row ids %v, next %d", f.Rows, f.Next)
				}
				ids[r.ID] = true
				if f.Focus == r.promptID() && r.Prompt != test.focus {
					t.Errorf("the focus is on %q, want %q", r.Prompt, test.focus)
				}
			}
			if test.focus != "" && f.Focus == "" {
				t.Error("no focus")
			}
			switch {
			case test.bad == "" && len(f.Errors) > 0:
				t.Errorf("errors %v", f.Errors)
			case test.bad != "" && f.at(test.bad) == "":
				t.Errorf("no message at %s: %v", test.bad, f.Errors)
			case test.bad != "" && (f.List != list || f.Same != same):
				t.Errorf("refused, and yet the text is %q %q", f.List, f.Same)
			}
		})
	}
}

func TestRepeatTitles(t *testing.T) {
	f := parseDirectivesForm(url.Values{"prompt": {"", "kept"}, "title": {"", "Mine"}, "same": {"Find\nthe bug"}, "times": {"2"}})
	f.act("repeat")
	var titles []string
	for _, r := range f.Rows {
		titles = append(titles, r.Title)
	}
	if diff := cmp.Diff([]string{"Mine", "Find the bug 1/2", "Find the bug 2/2"}, titles); diff != "" {
		t.Error(diff)
	}
}

func TestParseDirectivesForm(t *testing.T) {
	f := parseDirectivesForm(url.Values{
		"key": {"k"}, "next": {"9"}, "row": {"4", "4", "-1", "x", "99999999999999999999"}, "prompt": {"a\r\nb", "c"}, "title": {"t"},
		"isolation": {"shared"}, "gate": {"off"}, "budget_usd": {" 1.5 "}, "turns": {" 3 "}, "needed_tokens": {"12,000"}, "list": {"l\r\nm"}, "separator": {"blank"}, "same": {"s"}, "times": {"2"},
	})
	want := directivesForm{
		Key: "k", Next: 11, Rows: []directiveRow{{4, "t", "a\nb"}, {10, "", "c"}},
		Isolation: "shared", Gate: "off", Budget: "1.5", Turns: "3", Needed: "12,000", List: "l\nm", Blocks: true, Same: "s", Times: "2",
	}
	if diff := cmp.Diff(want, f, cmp.AllowUnexported(directivesForm{})); diff != "" {
		t.Error(diff)
	}
	spec, rows := f.spec()
	usd, needed := 1.5, int64(12_000)
	if diff := cmp.Diff(forkcore.ForkSpec{
		Directives: []forkcore.Directive{{Title: "t", Prompt: "a\nb"}, {Prompt: "c"}}, Isolation: "shared", Gate: forkcore.GateOff, BudgetUSD: &usd,
		Jobs: forkcore.Jobs{Turns: 3, NeededTokens: &needed},
	}, spec); diff != "" {
		t.Error(diff)
	}
	if len(rows) != 2 || len(f.Errors) != 0 {
		t.Errorf("rows %v, errors %v", rows, f.Errors)
	}
}

func TestRefuse(t *testing.T) {
	f := parseDirectivesForm(url.Values{"row": {"5", "6", "7"}, "prompt": {"", "a", ""}, "title": {"", "", "only a title"}})
	_, rows := f.spec()
	f.refuse([]forkcore.FieldError{
		{Field: "directives[1].prompt", Message: "is empty"},
		{Field: "directives[0].title", Message: "is long"},
		{Field: "directives", Message: "has 65"},
		{Field: "gate", Message: "is odd"},
		{Field: "jobs.turns", Message: "is too much"},
		{Field: "jobs.needed_tokens", Message: "is too much too"},
		{Field: "directives[9].prompt", Message: "is nowhere"},
	}, rows)
	want := []fieldError{
		{"prompt-7", "Prompt of directive 3", "is empty"},
		{"title-6", "Title of directive 2", "is long"},
		{fieldAdd, "Directives", "has 65"},
		{fieldGate, "Gate", "is odd"},
		{fieldTurns, "Requests of a job", "is too much"},
		{fieldNeeded, "Tokens that a job needs", "is too much too"},
		{"", "directives[9].prompt", "is nowhere"},
	}
	if diff := cmp.Diff(want, f.Errors); diff != "" {
		t.Error(diff)
	}
}

func TestNewDirectivesForm(t *testing.T) {
	if f := newDirectivesForm("k", nil); !f.untouched() || len(f.Rows) != startRows {
		t.Errorf("a new form: %+v", f)
	}
	f := newDirectivesForm("k", url.Values{"prompt": {"a", "b"}, "title": {"", "B", "C"}})
	if diff := cmp.Diff([]directiveRow{{0, "", "a"}, {1, "B", "b"}, {2, "C", ""}}, f.Rows); diff != "" || f.untouched() {
		t.Errorf("a linked form: %s", diff)
	}
	if f := newDirectivesForm("k", url.Values{"prompt": make([]string, 500)}); len(f.Rows) != forkcore.MaxDirectives {
		t.Errorf("%d rows", len(f.Rows))
	}
}

func TestParseDollars(t *testing.T) {
	for text, want := range map[string]float64{"1": 1, " $0.50 ": 0.5, "0": 0, "1e-3": 0.001} {
		if got, err := parseDollars(text); err != nil || got == nil || *got != want {
			t.Errorf("parseDollars(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"abc", "NaN", "Inf", "-Inf", "1e300", "0,50", "$"} {
		if got, err := parseDollars(text); text != "$" && err == nil || text == "$" && got != nil {
			t.Errorf("parseDollars(%q) = %v, %v", text, got, err)
		}
	}
}

func TestJobsOfAForm(t *testing.T) {
	for _, tt := range []struct{ turns, needed, problem, other string }{
		{"", "", "", ""},
		{"1", "0", "", ""},
		{"1,000", "100 000 000", "", ""},
		{"0", "-1", "from 1 to 1,000", "from 0 to 100,000,000"},
		{"1001", "100000001", "from 1 to 1,000", "from 0 to 100,000,000"},
		{"a few", "1e3", "from 1 to 1,000", "from 0 to 100,000,000"},
	} {
		f := directivesForm{Turns: tt.turns, Needed: tt.needed, Rows: []directiveRow{{0, "", "a"}}}
		spec, _ := f.spec()
		for id, want := range map[string]string{fieldTurns: tt.problem, fieldNeeded: tt.other} {
			if got := f.at(id); (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("%q and %q: %s %q, want %q", tt.turns, tt.needed, id, got, want)
			}
		}
		if fits := spec.Jobs.Invalid() == nil; !fits {
			t.Errorf("%+v is refused later", spec.Jobs)
		}
	}
	f := directivesForm{Turns: "1,000", Needed: "0"}
	if j, _ := f.jobs(); j.Turns != 1000 || j.NeededTokens == nil || *j.NeededTokens != 0 {
		t.Errorf("jobs %+v", j)
	}
}
