package modelsim

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// forkTag opens the block that tells a fork its rules; the text block after it is the fork's directive.
const forkTag = "<fork-boilerplate>"

// Player returns the built-in mind. It has no knowledge of its own: it finds out with the tools that the request offers
// and says what they said. It reads and never writes, and answers the same request with the same blocks.
//
// A fork (a user message with the boilerplate's tag) looks for files, reads one or two and writes the five-line report. A
// main agent that is offered a tool named Agent fans out; told to work alone, or without that tool, it looks itself.
// Task notifications are summed up.
func Player() Mind { return MindFunc(play) }

func play(_ context.Context, req *Request) (Reply, error) {
	var blocks []Block
	if at, directive := forkOf(req); at >= 0 {
		blocks = playFork(req, at, directive)
	} else {
		blocks = playMain(req)
	}
	if req.Thinking == "adaptive" || req.Thinking == "enabled" {
		blocks = append([]Block{ThinkingBlock(thought(blocks), "")}, blocks...)
	}
	return Reply{Blocks: blocks}, nil
}

// thought is what the player thinks before it says blocks.
func thought(blocks []Block) string {
	var names []string
	for _, b := range blocks {
		if b.Type == "tool_use" {
			names = append(names, b.Name)
		}
	}
	if names == nil {
		return "I have what I need and can answer now."
	}
	return "Next I call " + strings.Join(names, ", ") + "."
}

// forkOf returns the index of the message that made this agent a fork and its directive; -1 for other agents. The last
// such message counts.
func forkOf(req *Request) (at int, directive string) {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		m := req.Messages[i]
		if m.Role != "user" {
			continue
		}
		for j, b := range m.Blocks {
			if b.Type != "text" || !strings.Contains(b.Text, forkTag) {
				continue
			}
			for _, next := range m.Blocks[j+1:] {
				if next.Type == "text" {
					return i, strings.TrimSpace(next.Text)
				}
			}
			_, after, _ := strings.Cut(b.Text, "</fork-boilerplate>")
			return i, strings.TrimSpace(after)
		}
	}
	return -1, ""
}

// playMain answers for an agent that is no fork.
func playMain(req *Request) []Block {
	last := len(req.Messages) - 1
	for last > 0 && req.Messages[last].Role != "user" { // a system message may end the conversation
		last--
	}
	var notices []string
	results := map[string]Block{}
	for _, b := range req.Messages[last].Blocks {
		switch b.Type {
		case "tool_result":
			results[b.ID] = b
		case "text":
			notices = append(notices, notificationsIn(b.Text)...)
		}
	}
	if len(notices) > 0 {
		return []Block{TextBlock(sumUp(notices))}
	}
	if len(results) > 0 {
		if launched := launchesIn(req.Messages[:last], results); len(launched) > 0 {
			return []Block{TextBlock(tellLaunched(launched))}
		}
	}
	task, at := taskOf(req)
	if smallTalk(task) {
		return []Block{TextBlock("Hello. I am a simulated model: give me a task and I will look into the workspace with the tools I have.")}
	}
	if len(results) == 0 && req.HasTool("Agent") && !wantsAlone(task) {
		return fanOut(task)
	}
	return playAlone(req, task, at)
}

// taskOf returns the latest text a person wrote and the index of its message. Reminders and notices that the harness
// put beside it are passed over.
func taskOf(req *Request) (string, int) {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if req.Messages[i].Role != "user" {
			continue
		}
		blocks := req.Messages[i].Blocks
		for j := len(blocks) - 1; j >= 0; j-- {
			s := strings.TrimSpace(blocks[j].Text)
			if blocks[j].Type == "text" && s != "" && !strings.HasPrefix(s, "<system-reminder>") {
				return s, i
			}
		}
	}
	return "", 0
}

// launch is one Agent call with its result.
type launch struct {
	description string
	result      Block
}

// launchesIn pairs the Agent calls of the last assistant message with their results.
func launchesIn(before []Message, results map[string]Block) []launch {
	var out []launch
	if len(before) == 0 {
		return nil
	}
	for _, b := range before[len(before)-1].Blocks {
		if res, ok := results[b.ID]; ok && b.Type == "tool_use" && b.Name == "Agent" {
			out = append(out, launch{text(lookup(members(b.Input), "description")), res})
		}
	}
	return out
}

// tellLaunched says what the Agent calls led to. Agents that were waited for have answered in their results.
func tellLaunched(launched []launch) string {
	var lines, failed, answered []string
	for _, l := range launched {
		lines = append(lines, "- "+l.description)
		switch line := resultLine(l.result.Text); {
		case l.result.IsError:
			failed = append(failed, "- "+l.description+": "+firstLine(l.result.Text))
		case line != "":
			answered = append(answered, "- "+l.description+": "+line)
		}
	}
	var out strings.Builder
	switch {
	case len(failed) == len(launched):
		fmt.Fprintf(&out, "None of the %s could be launched:\n%s", count(len(launched), "agent"), strings.Join(failed, "\n"))
		return out.String()
	case len(answered) > 0:
		fmt.Fprintf(&out, "%d of %s answered:\n%s", len(answered), count(len(launched), "agent"), strings.Join(answered, "\n"))
	default:
		fmt.Fprintf(&out, "I launched %s:\n%s", count(len(launched)-len(failed), "agent"), strings.Join(lines, "\n"))
		out.WriteString("\n\nThey work in parallel; I will sum up when their notices arrive.")
	}
	if len(failed) > 0 {
		fmt.Fprintf(&out, "\nNot launched:\n%s", strings.Join(failed, "\n"))
	}
	return out.String()
}

var (
	aloneWords = regexp.MustCompile(`(?i)\b(yourself|on your own|alone|(without|no|do not|don't|dont)( \w+){0,2} (forks?|forking|agents?|children|sub-?agents?|delegat\w+))\b`)
	greeting   = regexp.MustCompile(`(?i)^(hi|hello|hey|thanks|thank you|ok|okay|yes|no|good (morning|evening|day)|how are you)\b[\s\w]{0,12}[.!?]*$`)
)

func smallTalk(task string) bool { return greeting.MatchString(task) }

// wantsAlone reports whether the task is to be done without other agents: it says so or is very short.
func wantsAlone(task string) bool {
	return aloneWords.MatchString(task) || len(strings.Fields(task)) < 3
}

// playAlone works step by step with the request's own tools and then answers in prose.
func playAlone(req *Request, task string, at int) []Block {
	look := lookFrom(req, at)
	if calls := nextCalls(req, look, task); calls != nil {
		if look.turns == 0 {
			return append([]Block{TextBlock("I look into this myself.")}, calls...)
		}
		return calls
	}
	var out strings.Builder
	out.WriteString("I looked into this myself. " + look.summary())
	if issues := look.issues(); issues != "none" {
		out.WriteString("\nIssues: " + issues)
	}
	if files := look.keyFiles(); files != "none" {
		out.WriteString("\nKey files: " + files)
	}
	return []Block{TextBlock(out.String())}
}

// count renders a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// firstLine returns the first line of s that is not blank, shortened to 160 bytes.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return shorten(line, 160)
		}
	}
	return ""
}

func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return prefix(s, n) + "…"
}
