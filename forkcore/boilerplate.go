package forkcore

import (
	_ "embed"
	"fmt"
	"strings"
)

// BoilerplateTag marks the block of rules that precedes a directive. It has two
// jobs: it sets the rules apart from what was said before, and a user message
// with it is the history of a fork (see Guard).
const BoilerplateTag = "fork-boilerplate"

// BoilerplateVersion counts the texts of the rules. A snapshot keeps it, so
// that what forks were told can be told from their snapshot alone. Another
// text is another version.
const BoilerplateVersion = 1

//go:embed boilerplate.md
var boilerplateRules string

// Boilerplate is the text block that all forks share: rules and report
// template inside the tag. The directive follows in a block of its own.
func Boilerplate() string {
	return "<" + BoilerplateTag + ">\n" + strings.TrimSpace(boilerplateRules) + "\n</" + BoilerplateTag + ">"
}

// opensBoilerplate tells the block of rules. Data cannot open the tag (see
// NeutralizeTags) and the rules are a block of their own, so only its very
// beginning counts: text that quotes the tag further on is no fork's.
func opensBoilerplate(b Block) bool {
	return b.Type == "text" && strings.HasPrefix(b.Text, "<"+BoilerplateTag+">")
}

// DirectiveBlock gives the canonical bytes of a child's own block: the
// directive, then notices such as WorktreeNotice. They come last because
// siblings may differ in them: nothing that is shared stands behind.
func DirectiveBlock(prompt string, notices ...string) []byte {
	text := NeutralizeTags(CleanText(prompt))
	for _, n := range notices {
		text += "\n\n" + n
	}
	return AppendTextBlock(make([]byte, 0, len(text)+len(text)/8+64), text)
}

// WorktreeNotice tells a child that it works in a git worktree of its own:
// inherited is the root that paths in the conversation start with, root that
// of the worktree, both absolute. It stands in a tag that no directive can
// open, so that it is known as the program's word.
func WorktreeNotice(inherited, root string) string {
	const tag = "system-reminder"
	path := func(p string) string { return NeutralizeTags(CleanText(p)) }
	return fmt.Sprintf("<%[1]s>\n"+
		"You work in a git worktree of your own: %[2]s. The conversation above happened in %[3]s, which other agents share.\n"+
		"- Translate every path that you inherited: what was below %[3]s is now below %[2]s.\n"+
		"- Read a file again in the worktree before you edit it: what you saw of it above may be out of date.\n"+
		"- Change nothing outside the worktree.\n"+
		"</%[1]s>", tag, path(root), path(inherited))
}
