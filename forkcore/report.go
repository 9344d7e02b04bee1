package forkcore

import "strings"

// reportLabels are the five labels, in the template's order.
var reportLabels = []string{"Scope", "Result", "Key files", "Files changed", "Issues"}

// ParseReport reads a fork's final text. It takes labels in any case and
// order, with leading list signs, heading signs or bold marks, and text on
// the label's line or below; what is missing is listed, never invented.
func ParseReport(text string) Report {
	r := Report{Text: text, Missing: []string{}}
	fields := map[string]*string{
		"Scope": &r.Scope, "Result": &r.Result, "Key files": &r.KeyFiles,
		"Files changed": &r.FilesChanged, "Issues": &r.Issues,
	}
	seen := map[string]bool{}
	var into *string
	for _, line := range strings.Split(text, "\n") {
		if label, rest, ok := reportLabel(line); ok && !seen[label] {
			seen[label] = true
			into = fields[label]
			*into = rest
			continue
		}
		if into != nil {
			*into += "\n" + strings.TrimRight(line, " \t\r")
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

func reportLabel(line string) (label, rest string, ok bool) {
	s := strings.TrimLeft(line, " \t#*->_+•0123456789.)")
	signs := line[:len(line)-len(s)]
	// Only what opened before the label closes after it: "*.go" and
	// "__init__.py" are text.
	bold := signs[len(strings.TrimRight(signs, "*_")):]
	for _, l := range reportLabels {
		if len(s) < len(l) || !strings.EqualFold(s[:len(l)], l) {
			continue
		}
		after := strings.TrimSpace(s[len(l):])
		closed := bold != "" && strings.HasPrefix(after, bold)
		if closed {
			after = strings.TrimSpace(after[len(bold):])
		}
		rest, colon := strings.CutPrefix(after, ":")
		if !colon {
			if after == "" && (closed || strings.Contains(signs, "#")) {
				return l, "", true // a heading needs no colon
			}
			continue
		}
		rest = strings.TrimSpace(rest)
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
