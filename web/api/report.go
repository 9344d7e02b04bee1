package api

import (
	"slices"
	"strings"

	"forkyard/forkcore"
)

// reportOf is one run's part of a dispatch's merged report.
type reportOf struct {
	RunID        string         `json:"run_id"`
	Index        int            `json:"index"`
	Title        string         `json:"title"`
	State        forkcore.State `json:"state"`
	Scope        string         `json:"scope"`
	Result       string         `json:"result"`
	KeyFiles     string         `json:"key_files"`
	FilesChanged string         `json:"files_changed"`
	Issues       string         `json:"issues"`
	Missing      []string       `json:"missing"`
	UsedNoTool   bool           `json:"used_no_tool"`
}

// mergeReports lists the reports there are, in the order of the directives.
func mergeReports(runs []forkcore.Run) []reportOf {
	merged := []reportOf{}
	for _, r := range runs {
		if r.Report == nil {
			continue
		}
		p := *r.Report
		missing := p.Missing
		if missing == nil {
			missing = []string{}
		}
		merged = append(merged, reportOf{
			RunID: r.ID, Index: r.Index, Title: r.Title, State: r.State,
			Scope: p.Scope, Result: p.Result, KeyFiles: p.KeyFiles, FilesChanged: p.FilesChanged, Issues: p.Issues, Missing: missing, UsedNoTool: r.UsedNoTool(),
		})
	}
	return merged
}

// fileConflictOf is a file that more than one run says it changed.
type fileConflictOf struct {
	Path   string   `json:"path"`
	RunIDs []string `json:"run_ids"`
}

// fileConflicts compares what the reports say under "Files changed".
func fileConflicts(runs []forkcore.Run) []fileConflictOf {
	by := map[string][]string{}
	for _, r := range runs {
		if r.Report == nil {
			continue
		}
		for _, path := range changedFiles(r.Report.FilesChanged) {
			if !slices.Contains(by[path], r.ID) {
				by[path] = append(by[path], r.ID)
			}
		}
	}
	conflicts := []fileConflictOf{}
	for path, ids := range by {
		if len(ids) > 1 {
			conflicts = append(conflicts, fileConflictOf{path, ids})
		}
	}
	slices.SortFunc(conflicts, func(a, b fileConflictOf) int { return strings.Compare(a.Path, b.Path) })
	return conflicts
}

// changedFiles reads paths out of free text: one for each line or comma, the first word of it, without list signs and quotes.
// A word counts as a path when it holds a slash, or a dot that does not end it, so that "None." and "no files" name nothing.
func changedFiles(text string) []string {
	var paths []string
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == ',' || r == ';' }) {
		words := strings.Fields(strings.TrimLeft(part, " \t-*•+"))
		if len(words) == 0 {
			continue
		}
		path := strings.TrimPrefix(strings.Trim(words[0], "`'\"*():"), "./")
		if strings.ContainsAny(strings.TrimRight(path, "."), "./") && path != "n/a" && path != "N/A" {
			paths = append(paths, path)
		}
	}
	return paths
}
