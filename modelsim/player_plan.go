package modelsim

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// plan says where a fork looks first.
type plan struct {
	glob, grep string
	anyCase    bool
}

var (
	quoted    = regexp.MustCompile("[`\"“]([^`\"”\n]{2,60})[`\"”]")
	extension = regexp.MustCompile(`\*?\.(go|ts|tsx|js|py|rs|java|rb|c|h|cpp|md|sql|yaml|yml|json|css|html|templ|sh|toml)\b`)
	fileName  = regexp.MustCompile(`\b[\w./-]*\w\.(go|ts|tsx|js|py|rs|java|rb|c|h|cpp|md|sql|yaml|yml|json|css|html|templ|sh|toml|mod)\b`)
	word      = regexp.MustCompile(`[\pL_][\pL\pN_]{3,}`)
)

// subjects are the things a directive may be about, first match wins.
var subjects = []struct {
	words *regexp.Regexp
	plan  plan
}{
	{regexp.MustCompile(`(?i)\b(todo|fixme|open marks?)`), plan{"**/*", "TODO|FIXME", false}},
	{regexp.MustCompile(`(?i)\btests?\b|\btesting\b`), plan{"**/*test*", "func Test|describe\\(|def test_", false}},
	{regexp.MustCompile(`(?i)\b(dependenc|build|module|package manager|makefile)`), plan{"**/{go.mod,package.json,Makefile,Dockerfile,pyproject.toml,Cargo.toml}", "require|dependencies|FROM ", false}},
	{regexp.MustCompile(`(?i)\b(documentation|docs?|readme)\b`), plan{"**/*.md", "^# ", false}},
	{regexp.MustCompile(`(?i)\b(structure|entry points?|layout|overview)\b`), plan{"**/*", "func main\\(|^package main|__main__", false}},
	{regexp.MustCompile(`(?i)\berrors?\b`), plan{"**/*", "errors?\\.|Error\\(", false}},
	{regexp.MustCompile(`(?i)\b(config|settings?|environment)`), plan{"**/*", "getenv|environ|flag\\.", true}},
}

// commonWords never make a useful search.
var commonWords = map[string]bool{
	"about": true, "after": true, "also": true, "and": true, "answer": true, "check": true, "count": true, "describe": true, "does": true,
	"each": true, "every": true, "explain": true, "file": true, "files": true, "find": true, "from": true, "have": true, "into": true, "list": true,
	"look": true, "make": true, "please": true, "project": true, "read": true, "report": true, "repository": true, "review": true,
	"show": true, "summarise": true, "summarize": true, "tell": true, "that": true, "their": true, "them": true, "there": true, "they": true, "this": true,
	"what": true, "when": true, "where": true, "which": true, "with": true, "workspace": true, "your": true, "many": true, "code": true,
	"contain": true, "contains": true, "containing": true, "name": true, "names": true,
}

// planFor reads a task's first line: a quoted word is searched as it stands, a named file or extension is looked for, else
// the subject decides, else the longest word that means something.
func planFor(task string) plan {
	line := firstLine(task)
	p := plan{glob: "**/*"}
	for _, s := range subjects {
		if s.words.MatchString(line) {
			p = s.plan
			break
		}
	}
	if m := fileName.FindString(line); m != "" {
		p.glob = "**/" + m[strings.LastIndexByte(m, '/')+1:]
	} else if m := extension.FindStringSubmatch(line); m != nil {
		p.glob = "**/*." + m[1]
	}
	if m := quoted.FindStringSubmatch(line); m != nil {
		p.grep, p.anyCase = regexp.QuoteMeta(m[1]), false
		return p
	}
	if p.grep != "" {
		return p
	}
	best := ""
	for _, w := range word.FindAllString(line, -1) {
		if len(w) > len(best) && !commonWords[strings.ToLower(w)] {
			best = w
		}
	}
	if best == "" {
		best = "main"
	}
	p.grep, p.anyCase = best, true
	return p
}

// maxFanOut bounds the number of agents launched in one message.
const maxFanOut = 64

var (
	numbers  = map[string]int{"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "sixteen": 16, "twenty": 20}
	numeral  = `(\d{1,4}|two|three|four|five|six|seven|eight|nine|ten|twelve|sixteen|twenty)`
	crew     = `(?:forks?|agents?|child(?:ren)?|sub-?agents?|workers?|parallel|directives?)`
	crewSize = []*regexp.Regexp{
		regexp.MustCompile(`(?i)\b` + numeral + `(?:[\s-]+[a-z-]+){0,2}?[\s-]+` + crew + `\b`),
		regexp.MustCompile(`(?i)\bfan(?:ning)?[\s-]*out(?:\s+(?:to|into|with|over))?[\s:=]+` + numeral + `\b`),
		regexp.MustCompile(`(?i)\b` + crew + `\s*(?:[:=x×]\s*)?` + numeral + `\b`),
	}
	bullet = regexp.MustCompile(`(?m)^[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t]+(\S.*?)[ \t]*$`)
)

// aspect is a directive that fits any repository.
type aspect struct{ description, prompt string }

func aspects() []aspect {
	return []aspect{
		{"Map structure and entry points", "Describe the structure of the repository and its entry points."},
		{"Survey the tests", "Find the tests: where they are and what they cover."},
		{"Check dependencies and build", "List the dependencies and how the project is built."},
		{"Collect open TODO marks", "Collect open TODO and FIXME marks."},
		{"Review the documentation", "Read the documentation: what is there and what it says first."},
		{"Review error handling", "Look at how errors are made and handled."},
		{"Review configuration and environment", "Look at configuration: flags, environment and defaults."},
		{"Search for logging", "Find where the program writes \"log\" lines."},
		{"Search for concurrency", "Find where goroutines or threads start: look for \"go func\"."},
		{"Search for network use", "Find the use of the network: look for \"http\"."},
		{"Search for stored data", "Find where data is stored: look for \"json\"."},
		{"Search for time handling", "Find the use of clocks: look for \"time\"."},
	}
}

// fanOut launches agents for a task: as many as it asks for, with its own bullet points as directives where it has some.
func fanOut(task string) []Block {
	list := directives(task)
	blocks := []Block{TextBlock(fmt.Sprintf("I split this into %s that work in parallel.", count(len(list), "directive")))}
	for _, d := range list {
		blocks = append(blocks, ToolUseBlock("", "Agent", object("description", d.description, "prompt", d.prompt)))
	}
	return blocks
}

func directives(task string) []aspect {
	n := 0
	for _, re := range crewSize {
		if m := re.FindStringSubmatch(bullet.ReplaceAllString(task, "")); m != nil {
			if n = numbers[strings.ToLower(m[1])]; n == 0 {
				n, _ = strconv.Atoi(m[1])
			}
			break
		}
	}
	var list []aspect
	for _, m := range bullet.FindAllStringSubmatch(task, -1) {
		list = append(list, aspect{describe(m[1]), m[1]})
	}
	if n <= 0 {
		if n = len(list); n == 0 {
			n = 5
		}
	}
	n = min(n, maxFanOut)
	for i := 0; len(list) < n; i++ {
		list = append(list, part(i, n, task))
	}
	return list[:n]
}

// part is the i-th directive beyond the task's own. After the aspects come the letters file names begin with.
func part(i, n int, task string) aspect {
	context := "\nThe whole task, of which this is one part: " + firstLine(task)
	if known := aspects(); i < len(known) {
		return aspect{known[i].description, known[i].prompt + context}
	}
	i -= len(aspects())
	letter := string(rune('a' + i%26))
	return aspect{
		fmt.Sprintf("Look through part %d of %d", i+1, n),
		fmt.Sprintf("Look through files whose names begin with %q, share %d: search for \"%s\".", letter, i/26+1, letter) + context,
	}
}

// describe makes three to five words of a directive.
func describe(directive string) string {
	words := strings.Fields(strings.Trim(directive, ".:;!? "))
	if len(words) > 5 {
		words = words[:5]
	}
	return shorten(strings.TrimRight(strings.Join(words, " "), ".,:;"), 60)
}
