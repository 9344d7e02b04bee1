package forkcore

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the outcome of a live check.
type Verdict string

// The verdicts. Unknown means that there was nothing to look at.
const (
	Holds   Verdict = "holds"
	Broken  Verdict = "broken"
	Unknown Verdict = "unknown"
)

// RuleCheck is one of the five rules that make forks cheap anywhere, with what
// was seen of it.
type RuleCheck struct {
	Rule    string  `json:"rule"` // short code
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Finding is what was seen, in one sentence with its figures.
	Finding string `json:"finding"`
}

// The codes of the five rules.
const (
	RuleThreadPrompt     = "thread_prompt"
	RuleFreezeTools      = "freeze_tools"
	RuleMaximisePrefix   = "maximise_prefix"
	RulePlaceholder      = "constant_placeholder"
	RuleMeasureBreakEven = "measure_break_even"
)

// MinSharedShare is the share of a first request, in hundredths of a percent,
// that siblings must have in common for the prefix to count as maximised.
const MinSharedShare = 9500

// Bill is a fan-out's first requests, without their output: what was quoted,
// what was billed, and what they would have cost with no cache; in nano-dollars.
type Bill struct {
	Quoted, Billed, Unshared int64
}

// Evidence is what was seen of some fan-outs. Its zero value has seen nothing.
type Evidence struct {
	// Heads are the rendered prompts (tools and system prompt) that fan-outs of one
	// session started from; Recomputed counts requests whose prompt was lost and rendered anew.
	Heads      []Digest
	Recomputed int64
	// Tools are the names in the tools arrays, in order.
	Tools [][]string
	// SharedBytes and UniqueBytes are summed over the children's first requests.
	SharedBytes, UniqueBytes int64
	// Placeholders are the texts that answered the dispatching tool calls.
	Placeholders []string
	// Bills are those of fan-outs that have both, Unbilled counts ended ones without.
	Bills    []Bill
	Unbilled int
}

// CheckRules holds the evidence against the five rules, in their order: thread
// the rendered prompt, freeze the tools, maximise the prefix and minimise the
// suffix, keep placeholders constant, measure the break-even.
func CheckRules(e Evidence) []RuleCheck {
	return []RuleCheck{checkPrompt(e), checkTools(e), checkPrefix(e), checkPlaceholder(e), checkBreakEven(e)}
}

func checkPrompt(e Evidence) RuleCheck {
	c := RuleCheck{Rule: RuleThreadPrompt, Name: "Hand on the rendered prompt"}
	n := distinct(e.Heads)
	switch {
	case n > 1:
		c.Verdict, c.Finding = Broken, fmt.Sprintf("The fan-outs of one session started from %d different prompts: each change loses the cache.", n)
	case e.Recomputed > 0:
		c.Verdict, c.Finding = Broken, fmt.Sprintf("%s sent with a prompt that was rendered anew because the stored one was lost.", countText(e.Recomputed, "request was", "requests were"))
	case n == 0:
		c.Verdict, c.Finding = Unknown, "No fork was started yet."
	default:
		c.Verdict, c.Finding = Holds, fmt.Sprintf("%s started from one rendered prompt, %s…; it was never rendered anew.", countText(int64(len(e.Heads)), "fan-out", "fan-outs"), e.Heads[0].String()[:12])
	}
	return c
}

func checkTools(e Evidence) RuleCheck {
	c := RuleCheck{Rule: RuleFreezeTools, Name: "Freeze the tools"}
	if len(e.Tools) == 0 {
		c.Verdict, c.Finding = Unknown, "No fork was started yet."
		return c
	}
	for _, tools := range e.Tools[1:] {
		if !slices.Equal(tools, e.Tools[0]) {
			c.Verdict, c.Finding = Broken, fmt.Sprintf("The tools changed from %s to %s.", strings.Join(e.Tools[0], ", "), strings.Join(tools, ", "))
			return c
		}
	}
	c.Verdict, c.Finding = Holds, fmt.Sprintf("The same %s in the same order, in %s.", countText(int64(len(e.Tools[0])), "tool", "tools"), countText(int64(len(e.Tools)), "fan-out", "fan-outs"))
	return c
}

func checkPrefix(e Evidence) RuleCheck {
	c := RuleCheck{Rule: RuleMaximisePrefix, Name: "Long prefix, short suffix"}
	total := e.SharedBytes + e.UniqueBytes
	if total <= 0 {
		c.Verdict, c.Finding = Unknown, "No fork was started yet."
		return c
	}
	c.Verdict = Holds
	// Compared without rounding.
	if e.SharedBytes*10_000 < MinSharedShare*total {
		c.Verdict = Broken
	}
	c.Finding = fmt.Sprintf("%s of the first requests is shared: %s of %s bytes (at least %s is wanted).",
		PercentText(BasisPoints(e.SharedBytes, total)), Grouped(e.SharedBytes), Grouped(total), PercentText(MinSharedShare))
	return c
}

func checkPlaceholder(e Evidence) RuleCheck {
	c := RuleCheck{Rule: RulePlaceholder, Name: "Constant placeholders"}
	other := slices.IndexFunc(e.Placeholders, func(s string) bool { return s != Placeholder })
	switch {
	case len(e.Placeholders) == 0:
		c.Verdict, c.Finding = Unknown, "No model has started forks yet; those of a person or the API need no placeholder."
	case other >= 0:
		c.Verdict, c.Finding = Broken, fmt.Sprintf("A call was answered with %q instead of %q: siblings share nothing behind it.", CutText(e.Placeholders[other], 80), Placeholder)
	default:
		c.Verdict, c.Finding = Holds, fmt.Sprintf("%s, each with %q.", countText(int64(len(e.Placeholders)), "call was answered", "calls were answered"), Placeholder)
	}
	return c
}

func checkBreakEven(e Evidence) RuleCheck {
	c := RuleCheck{Rule: RuleMeasureBreakEven, Name: "Measure the break-even"}
	var sum Bill
	for _, b := range e.Bills {
		sum.Quoted += b.Quoted
		sum.Billed += b.Billed
		sum.Unshared += b.Unshared
	}
	missing := ""
	if e.Unbilled > 0 {
		missing = fmt.Sprintf(" %s no price or no bill.", countText(int64(e.Unbilled), "more has", "more have"))
	}
	switch {
	case len(e.Bills) == 0:
		c.Verdict, c.Finding = Unknown, "No fan-out has a quote and a bill yet."+missing
		return c
	case sum.Billed > sum.Unshared:
		c.Verdict = Broken
	default:
		c.Verdict = Holds
	}
	c.Finding = fmt.Sprintf("%s: quoted %s, billed %s, with no cache %s.%s",
		countText(int64(len(e.Bills)), "fan-out", "fan-outs"), Dollars(sum.Quoted), Dollars(sum.Billed), Dollars(sum.Unshared), missing)
	return c
}

func distinct(list []Digest) int {
	seen := map[Digest]bool{}
	for _, d := range list {
		seen[d] = true
	}
	return len(seen)
}

func countText(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Grouped(n) + " " + many
}

// Tension is something that is bought with cache hits, or that cache hits are
// bought with. It belongs beside a switch.
type Tension struct {
	// Against is what pulls against cache efficiency.
	Against string
	// Switch names the setting, as the API calls it.
	Switch string
	Text   string
}

// Tensions are the three that no design resolves, each with its switch.
func Tensions() []Tension {
	return []Tension{
		{"Isolation", "isolation", "Isolation against the cache: a fork is cheap because it sees all that its parent saw. Folders and state can be its own, the conversation cannot; " +
			"what it must know of its own folder is said behind its directive, where it costs nobody's cache."},
		{"Safety", "permission_mode", "Safety against the cache: taking tools away from a fork would change the first bytes of its request, so it keeps them all. " +
			"What it may not do is refused when it tries, not hidden from it."},
		{"Simplicity", "gate", "Simplicity against the cache: starting all forks at once is simpler and a moment faster, but each then writes what one could have written for all."},
	}
}

// TensionAt is the text beside a switch; empty where nothing pulls.
func TensionAt(name string) string {
	for _, t := range Tensions() {
		if t.Switch == name {
			return t.Text
		}
	}
	return ""
}
