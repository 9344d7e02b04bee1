package redisstore

import (
	"regexp"
	"strings"
)

// definition is a piece of the prelude: names and the Lua that gives them their values.
type definition struct {
	names []string
	code  string
	words map[string]bool // that the code speaks of
}

var (
	luaComment = regexp.MustCompile(`(?m)--.*$`)
	luaWord    = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	luaLocal   = regexp.MustCompile(`^local (?:function )?([A-Za-z_][A-Za-z0-9_, ]*)`)
)

// definitions cuts a prelude at its lines that begin with "local": every statement in it defines something.
func definitions(prelude string) (list []definition) {
	for line := range strings.Lines(luaComment.ReplaceAllString(prelude, "")) {
		switch m := luaLocal.FindStringSubmatch(line); {
		case m != nil:
			list = append(list, definition{names: luaWord.FindAllString(m[1], -1), code: line})
		case strings.TrimSpace(line) != "":
			list[len(list)-1].code += line
		}
	}
	for i := range list {
		list[i].words = wordsOf(list[i].code)
	}
	return list
}

func wordsOf(code string) map[string]bool {
	words := map[string]bool{}
	for _, w := range luaWord.FindAllString(luaComment.ReplaceAllString(code, ""), -1) {
		words[w] = true
	}
	return words
}

// needed is the part of a prelude that a script uses. Lua makes every function of a script anew in every call, which costs more
// than most scripts do themselves.
func needed(list []definition, script string) string {
	used := wordsOf(script)
	keep := make([]bool, len(list))
	for i := len(list) - 1; i >= 0; i-- { // what is defined later uses what is defined before
		for _, name := range list[i].names {
			if used[name] && !keep[i] {
				keep[i] = true
				for w := range list[i].words {
					used[w] = true
				}
			}
		}
	}
	var b strings.Builder
	for i, d := range list {
		if keep[i] {
			b.WriteString(d.code)
		}
	}
	return b.String()
}
