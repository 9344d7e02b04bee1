package forkcore

import (
	"regexp"
	"strings"
)

// reportLabels are the five labels, in the template's order.
var reportLabels = []string{"Scope", "Result", "Key files", "Files changed", "Issues"}

// ParseReport reads a fork's final text. It takes the five labels in any case
// and order, each at the start of a line: behind list signs, numbers, heading
// signs or bold marks, or in the first cell of a table row, with a colon (a
// full-width one too), a dash or, in headings, nothing after it, and the text on
// that line or below. The first of two equal labels counts. Labels inside a
// code fence are text, unless the fence holds the whole report. Other words, translations
// included, are no labels. What is missing is listed, never invented.
func ParseReport(text string) Report {
	r := Report{Text: text, Missing: []string{}}
	fields := map[string]*string{
		"Scope": &r.Scope, "Result": &r.Result, "Key files": &r.KeyFiles,
		"Files changed": &r.FilesChanged, "Issues": &r.Issues,
	}
	seen := map[string]bool{}
	var into *string
	table, fence := false, ""
	for _, line := range unfenced(strings.Split(text, "\n")) {
		line = strings.TrimRight(line, " \t\r")
		inside := fence != ""
		fence = fenceAfter(fence, line)
		if label, rest, ok := reportLabel(line); ok && !inside && !seen[label] {
			seen[label] = true
			into = fields[label]
			*into = rest
			table = strings.HasPrefix(strings.TrimLeft(line, " \t"), "|")
			continue
		}
		if into != nil && (!table || !tableRule.MatchString(line)) {
			*into += "\n" + line
		}
	}
	for _, label := range reportLabels {
		*fields[label] = strings.TrimSpace(*fields[label])
		if !seen[label] {
			r.Missing = append(r.Missing, label)
		}
	}
	return r
}

var (
	// tableRule is the line between the head and the rows of a table.
	tableRule = regexp.MustCompile(`^[ \t]*\|[-:| \t]*-[-:| \t]*$`)
	// fenceLine opens a code fence, or closes it where no word follows.
	fenceLine = regexp.MustCompile("^[ \t]*(`{3,}|~{3,})([^`]*)$")
	// labelSigns are what may stand before a label; the first group is a bold mark.
	labelSigns = regexp.MustCompile(`^[ \t|#*\->_+•0-9.)]*?([*_]*)(?:[0-9]+[.)][ \t]*)?$`)
)

// fenceAfter is the fence that is open after a line; empty = none.
func fenceAfter(open, line string) string {
	m := fenceLine.FindStringSubmatch(line)
	switch {
	case m == nil:
		return open
	case open == "":
		return m[1]
	case strings.HasPrefix(m[1], open) && strings.TrimSpace(m[2]) == "":
		return ""
	}
	return open
}

// unfenced takes away the one fence around a whole report.
func unfenced(lines []string) []string {
	first, last := 0, len(lines)-1
	for first < last && strings.TrimSpace(lines[first]) == "" {
		first++
	}
	for first < last && strings.TrimSpace(lines[last]) == "" {
		last--
	}
	fence := fenceAfter("", strings.TrimRight(lines[first], "\r"))
	if fence == "" {
		return lines
	}
	for i := first + 1; i <= last; i++ {
		if fence = fenceAfter(fence, strings.TrimRight(lines[i], "\r")); fence == "" {
			if i == last {
				return lines[first+1 : last]
			}
			break
		}
	}
	return lines
}

func reportLabel(line string) (label, rest string, ok bool) {
	s := strings.TrimLeft(line, " \t|#*->_+•0123456789.)")
	signs := line[:len(line)-len(s)]
	for _, l := range reportLabels {
		if len(s) < len(l) || !strings.EqualFold(s[:len(l)], l) {
			continue
		}
		// Only what opened before the label closes after it: "*.go" and
		// "__init__.py" are text.
		bold := ""
		if m := labelSigns.FindStringSubmatch(signs); m != nil {
			bold = m[1]
		}
		after := strings.TrimSpace(s[len(l):])
		closed := bold != "" && strings.HasPrefix(after, bold)
		if closed {
			after = strings.TrimSpace(after[len(bold):])
		}
		if strings.Contains(signs, "|") {
			cell, ok := strings.CutPrefix(strings.TrimLeft(after, ":： \t*_"), "|")
			if !ok {
				continue
			}
			cell = strings.TrimSpace(cell)
			return l, strings.TrimSpace(strings.TrimSuffix(cell, "|")), true
		}
		rest, separated := cutSeparator(after, s[len(l):])
		if !separated {
			if after == "" && (closed || strings.Contains(signs, "#")) {
				return l, "", true // a heading needs no colon
			}
			continue
		}
		if bold != "" && !closed {
			if inner, ok := strings.CutPrefix(rest, bold); ok {
				rest = inner
			} else {
				rest = strings.TrimSuffix(rest, bold)
			}
		}
		return l, strings.TrimSpace(rest), true
	}
	return "", "", false
}

// cutSeparator takes the colon or the dash away that follows a label. A dash
// stands apart from both sides, or it joins the label to a longer word.
func cutSeparator(after, whole string) (rest string, ok bool) {
	for _, colon := range []string{":", "："} {
		if rest, ok := strings.CutPrefix(after, colon); ok {
			return strings.TrimSpace(rest), true
		}
	}
	for _, dash := range []string{"-", "–", "—"} {
		rest, ok := strings.CutPrefix(after, dash)
		if ok && !strings.HasPrefix(whole, dash) && (rest == "" || strings.HasPrefix(rest, " ")) {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}
