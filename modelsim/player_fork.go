package modelsim

import "strings"

// playFork answers for a fork: calls while there is something to find out, then the report.
func playFork(req *Request, at int, directive string) []Block {
	look := lookFrom(req, at)
	if calls := nextCalls(req, look, directive); calls != nil {
		return calls
	}
	report := []string{
		"Scope: " + firstLine(directive),
		"Result: " + look.summary(),
		"Key files: " + look.keyFiles(),
		"Files changed: none",
		"Issues: " + look.issues(),
	}
	return []Block{TextBlock(strings.Join(report, "\n"))}
}
