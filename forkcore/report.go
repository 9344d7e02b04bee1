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
	s := strings.TrimLeft(line, " \t#*->_")
	for _, l := range reportLabels {
		if len(s) < len(l) || !strings.EqualFold(s[:len(l)], l) {
			continue
		}
		after := strings.TrimLeft(s[len(l):], " \t*_")
		if !strings.HasPrefix(after, ":") {
			continue
		}
		return l, strings.TrimSpace(strings.Trim(after[1:], "*_ \t\r")), true
	}
	return "", "", false
}
