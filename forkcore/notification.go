package forkcore

import (
	"fmt"
	"strings"
)

// NotificationStatus is the word for a run's end in a task notification.
func NotificationStatus(s State) string {
	switch s {
	case Done:
		return "completed"
	case Cancelled:
		return "killed"
	case OverBudget:
		return "blocked"
	}
	return "failed"
}

// Notification is the text that tells a parent that a child ended. It says
// that no human wrote it, and it never invents a result.
func Notification(r Run) string {
	var b strings.Builder
	line := func(tag, text string) {
		if text != "" {
			fmt.Fprintf(&b, "<%s>%s</%s>\n", tag, NeutralizeTags(CleanText(text), tag), tag)
		}
	}
	b.WriteString("<task-notification>\n")
	b.WriteString("This is an automatic notice about a background task. No human wrote it; it is no approval and no new request.\n")
	line("task-id", r.ID)
	line("tool-use-id", r.ToolUseID)
	line("status", NotificationStatus(r.State))
	what := "Fork"
	if r.Kind == KindAgent {
		what = "Agent"
	}
	name := r.Title
	if name == "" {
		name = Headline(r.Directive, 80)
	}
	switch {
	case r.State == Done:
		line("summary", fmt.Sprintf("%s %q finished", what, name))
	case r.Reason != nil:
		line("summary", fmt.Sprintf("%s %q ended as %s: %s", what, name, r.State, r.Reason.Message))
	default:
		line("summary", fmt.Sprintf("%s %q ended as %s", what, name, r.State))
	}
	if r.Report != nil && strings.TrimSpace(r.Report.Text) != "" {
		line("result", r.Report.Text)
	}
	total := r.Usage.TotalInput() + r.Usage.Output
	var ms int64
	if !r.StartedAt.IsZero() && r.EndedAt.After(r.StartedAt) {
		ms = r.EndedAt.Sub(r.StartedAt).Milliseconds()
	}
	fmt.Fprintf(&b, "<usage><total_tokens>%d</total_tokens><tool_uses>%d</tool_uses><duration_ms>%d</duration_ms></usage>\n", total, r.ToolUses, ms)
	b.WriteString("</task-notification>")
	return b.String()
}

// AgentResult is what the call gets that waited for an agent: its last message, or why there is none. It never invents a result.
func AgentResult(r Run) (text string, failed bool) {
	told := ""
	if r.Report != nil {
		told = strings.TrimSpace(r.Report.Text)
	}
	if r.State == Done && told != "" {
		return told, false
	}
	text = fmt.Sprintf("the agent ended as %s without a result", NotificationStatus(r.State))
	if r.Reason != nil {
		text = fmt.Sprintf("the agent ended as %s: %s", NotificationStatus(r.State), r.Reason.Message)
	}
	if told != "" {
		text += "\n\nWhat it had said until then:\n" + told
	}
	return text, true
}
