package redisstore

import (
	"strings"
	"testing"
)

func TestNeeded(t *testing.T) {
	const prelude = `-- what all use
local A, B = 1, 2
local function int(n) return n end -- a number
local clock = now()
local NOW = int(clock)

-- two lines
local function late(n)
  local B = NOW
  return n > B
end
local TABLE = {
  x = {y = true},
}
local function unused() return A end
`
	list := definitions(prelude)
	for script, want := range map[string]string{
		"return 1":                    "",
		"return A":                    "A, B",
		"return late(1)":              "A, B|int|clock|NOW|late",
		"-- late\nreturn TABLE.x":     "TABLE",
		"return int(B) + TABLE.x.y":   "A, B|int|TABLE",
		"local s = 'late' return NOW": "A, B|int|clock|NOW|late", // in a string it counts too, which costs little
	} {
		code := needed(list, script)
		var got []string
		for _, d := range list {
			if strings.Contains(code, d.code) {
				got = append(got, strings.Join(d.names, ", "))
			}
		}
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("%q needs %s, want %s", script, s, want)
		}
	}
	if code := needed(list, "late()"); !strings.Contains(code, "return n > B\nend\n") || strings.Contains(code, "--") {
		t.Errorf("the code is %s", code)
	}
}

// TestPreludeIsDefinitions: a statement that only does something would be lost with the definition before it.
func TestPreludeIsDefinitions(t *testing.T) {
	seen := map[string]bool{}
	for _, d := range definitions(generated() + source("prelude")) {
		for _, n := range d.names {
			if seen[n] {
				t.Errorf("%s is defined twice", n)
			}
			seen[n] = true
		}
	}
	for line := range strings.Lines(generated() + source("prelude")) {
		if line[0] != ' ' && line[0] != '\n' && !strings.HasPrefix(line, "local ") && !strings.HasPrefix(line, "--") && line != "end\n" && line != "}\n" {
			t.Errorf("not part of a definition: %s", line)
		}
	}
}
