package modelsim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	notice     = regexp.MustCompile(`(?s)<task-notification>(.*?)</task-notification>`)
	resultOnly = regexp.MustCompile(`(?m)^[ \t*]*Result:[ \t*]*(.*)$`)
)

// notificationsIn returns the insides of the task notifications in a text.
func notificationsIn(s string) []string {
	var out []string
	for _, m := range notice.FindAllStringSubmatch(s, -1) {
		out = append(out, m[1])
	}
	return out
}

// element returns the text inside the first <name>…</name> of s.
func element(s, name string) string {
	_, rest, ok := strings.Cut(s, "<"+name+">")
	if !ok {
		return ""
	}
	inner, _, _ := strings.Cut(rest, "</"+name+">")
	return strings.TrimSpace(inner)
}

// resultLine returns what stands after Result: in a report, "" when there is no such line.
func resultLine(report string) string {
	if m := resultOnly.FindStringSubmatch(report); m != nil {
		return strings.TrimSpace(m[1])
	}
	return ""
}

// sumUp lists each notice with its status, summary and result, and counts them.
func sumUp(notices []string) string {
	var out strings.Builder
	states := map[string]int{}
	tokens, known := 0, false
	for _, n := range notices {
		status := element(n, "status")
		if status == "" {
			status = "unknown"
		}
		states[status]++
		fmt.Fprintf(&out, "- [%s] %s", status, firstLine(element(n, "summary")))
		result := element(n, "result")
		if line := resultLine(result); line != "" {
			fmt.Fprintf(&out, "\n  Result: %s", line)
		} else if line := firstLine(result); line != "" {
			fmt.Fprintf(&out, "\n  %s", line)
		}
		out.WriteByte('\n')
		if t, err := strconv.Atoi(element(n, "total_tokens")); err == nil {
			tokens, known = tokens+t, true
		}
	}
	var totals []string
	for _, status := range slices.Sorted(maps.Keys(states)) {
		totals = append(totals, fmt.Sprintf("%d %s", states[status], status))
	}
	fmt.Fprintf(&out, "Total: %s, %s", count(len(notices), "agent"), strings.Join(totals, ", "))
	if known {
		fmt.Fprintf(&out, ", %d tokens", tokens)
	}
	return out.String() + "."
}
