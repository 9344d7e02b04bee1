package modelsim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// look is what an agent has found out since its task was set.
type look struct {
	turns  int // assistant turns since the task
	calls  []call
	files  []string       // from Glob, in order
	hits   map[string]int // matched lines per file, from Grep
	order  []string       // files with hits, in order
	quotes []quote        // from Read
}

// call is one tool call with its result.
type call struct {
	use    Block
	result Block
}

// quote is a line read from a file.
type quote struct {
	file  string
	line  string
	lines int
}

// lookFrom gathers the calls and results that follow message at.
func lookFrom(req *Request, at int) *look {
	l := &look{hits: map[string]int{}}
	uses := map[string]Block{}
	for _, m := range req.Messages[at+1:] {
		if m.Role == "assistant" {
			l.turns++
		}
		for _, b := range m.Blocks {
			switch b.Type {
			case "tool_use":
				uses[b.ID] = b
			case "tool_result":
				if use, ok := uses[b.ID]; ok {
					l.add(call{use, b})
				}
			}
		}
	}
	return l
}

func (l *look) add(c call) {
	l.calls = append(l.calls, c)
	if c.result.IsError {
		return
	}
	switch c.use.Name {
	case "Glob", "Bash":
		l.files = append(l.files, paths(c.result.Text)...)
	case "Grep":
		for line := range strings.Lines(c.result.Text) {
			if m := grepLine.FindStringSubmatch(strings.TrimRight(line, "\r\n")); m != nil && looksLikePath(m[1]) {
				l.hit(m[1])
			} else if p := strings.TrimSpace(line); looksLikePath(p) { // output_mode files_with_matches
				l.hit(p)
			}
		}
	case "Read":
		q := quote{file: inputText(c.use, "file_path")}
		for line := range strings.Lines(c.result.Text) {
			if strings.HasPrefix(line, "[lines ") { // the tool's note, not the file's text
				continue
			}
			q.lines++
			if s := strings.TrimSpace(lineNumber.ReplaceAllString(line, "")); q.line == "" && len(s) > 3 {
				q.line = shorten(s, 120)
			}
		}
		l.quotes = append(l.quotes, q)
	}
}

func (l *look) hit(file string) {
	if l.hits[file] == 0 {
		l.order = append(l.order, file)
	}
	l.hits[file]++
}

var (
	grepLine   = regexp.MustCompile(`^(.+?):(\d+)[:-]`)
	lineNumber = regexp.MustCompile(`^\s*\d+(\t|→|: ?|\| ?)`)
)

// paths returns the lines of a tool's output that are paths.
func paths(out string) []string {
	var list []string
	for line := range strings.Lines(out) {
		if p := strings.TrimSpace(line); looksLikePath(p) {
			list = append(list, p)
		}
	}
	return list
}

// looksLikePath tells a path from a sentence or a note in brackets.
func looksLikePath(s string) bool {
	words := strings.Count(s, " ")
	return s != "" && len(s) < 400 && !strings.ContainsAny(s, "<>\"|\t") && !strings.Contains(s, ": ") && !strings.HasSuffix(s, ".") &&
		(words == 0 || words < 4 && strings.ContainsAny(s, "./") && !strings.HasPrefix(s, "[") && !strings.HasPrefix(s, "("))
}

// more is the note under a result that shows a part only, for example "[the first 500 of 1234 files: …]".
var more = regexp.MustCompile(`(?m)^\[(?:only )?the first (\d+)(?: of (\d+))? `)

// shownOf renders a count of what a tool found; where it showed a part only the total it named is given, else "at least".
func shownOf(n int, noun, out string, limit int) string {
	if m := more.FindStringSubmatch(out); m != nil {
		if total, err := strconv.Atoi(m[2]); err == nil {
			return count(total, noun)
		}
		return "at least " + count(n, noun)
	}
	if limit > 0 && n >= limit {
		return "at least " + count(n, noun)
	}
	return count(n, noun)
}

// grepLimit is the number of matches the player asks for.
const grepLimit = 40

func inputText(use Block, field string) string { return text(lookup(members(use.Input), field)) }

// nextCalls returns the next tool calls, nil when it is time to answer: first find files, then read one or two.
func nextCalls(req *Request, l *look, task string) []Block {
	switch l.turns {
	case 0:
		var calls []Block
		plan := planFor(task)
		if req.HasTool("Glob") {
			calls = append(calls, ToolUseBlock("", "Glob", object("pattern", plan.glob)))
		}
		if req.HasTool("Grep") {
			calls = append(calls, ToolUseBlock("", "Grep", object("pattern", plan.grep, "output_mode", "content", "-n", true, "-i", plan.anyCase, "head_limit", grepLimit)))
		}
		if calls == nil && req.HasTool("Bash") {
			calls = append(calls, ToolUseBlock("", "Bash", object("command", "ls -p | head -50")))
		}
		return calls
	case 1:
		if !req.HasTool("Read") {
			return nil
		}
		var calls []Block
		for _, file := range l.worthReading() {
			calls = append(calls, ToolUseBlock("", "Read", object("file_path", file, "limit", 80)))
		}
		return calls
	}
	return nil
}

// worthReading picks at most two files: those with most hits, then the first found.
func (l *look) worthReading() []string {
	var out []string
	take := func(file string) {
		if len(out) < 2 && file != "" && !strings.HasSuffix(file, "/") && (len(out) == 0 || out[0] != file) {
			out = append(out, file)
		}
	}
	best := ""
	for _, f := range l.order {
		if best == "" || l.hits[f] > l.hits[best] {
			best = f
		}
	}
	take(best)
	for _, f := range l.files {
		take(f)
	}
	for _, f := range l.order {
		take(f)
	}
	return out
}

// summary says in sentences what the calls showed.
func (l *look) summary() string {
	var out []string
	read := 0
	for _, c := range l.calls {
		if c.result.IsError {
			continue
		}
		switch c.use.Name {
		case "Glob":
			out = append(out, fmt.Sprintf("%s for the name pattern %s.", shownOf(len(paths(c.result.Text)), "file", c.result.Text, 0), strconv.Quote(inputText(c.use, "pattern"))))
		case "Grep":
			n := 0
			for _, f := range l.order {
				n += l.hits[f]
			}
			out = append(out, fmt.Sprintf("%s for %s in %s.", shownOf(n, "match", c.result.Text, grepLimit), strconv.Quote(inputText(c.use, "pattern")), count(len(l.order), "file")))
		case "Bash":
			out = append(out, fmt.Sprintf("The listing shows %s.", count(len(paths(c.result.Text)), "path")))
		case "Read":
			q := l.quotes[read]
			read++
			if q.line == "" {
				out = append(out, q.file+" was read and shows no text.")
				continue
			}
			out = append(out, fmt.Sprintf("%s (%s read) begins with %s.", q.file, count(q.lines, "line"), strconv.Quote(q.line)))
		}
	}
	switch {
	case len(l.calls) == 0:
		return "Nothing could be looked up: no tool for it was used."
	case out == nil:
		return "Nothing was found: every call failed."
	}
	return strings.Join(out, " ")
}

// keyFiles lists what was read, then where matches were, at most five.
func (l *look) keyFiles() string {
	var out []string
	seen := map[string]bool{}
	take := func(file string) {
		if !seen[file] && len(out) < 5 {
			seen[file] = true
			out = append(out, file)
		}
	}
	for _, q := range l.quotes {
		take(q.file)
	}
	for _, f := range l.order {
		take(f)
	}
	for _, f := range l.files {
		take(f)
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

// issues lists the calls that failed; nothing is hidden.
func (l *look) issues() string {
	var out []string
	for _, c := range l.calls {
		if c.result.IsError {
			out = append(out, c.use.Name+" failed: "+firstLine(c.result.Text))
		}
	}
	if len(l.calls) == 0 {
		out = append(out, "no tool for reading the workspace was offered or answered")
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, "; ")
}

// object renders a JSON object from names and values, in the order given.
func object(pairs ...any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	buf.WriteByte('{')
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			buf.WriteByte(',')
		}
		for j, v := range pairs[i : i+2] {
			_ = enc.Encode(v) // strings, numbers and booleans always encode
			buf.Truncate(buf.Len() - 1)
			if j == 0 {
				buf.WriteByte(':')
			}
		}
	}
	buf.WriteByte('}')
	return buf.String()
}
