package forkcore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestM74_FiveRules(t *testing.T) {
	a, b := DigestOf([]byte("a")), DigestOf([]byte("b"))
	start := a.String()[:12]
	good := func(change func(*Evidence)) Evidence {
		e := Evidence{
			Heads: []Digest{a, a, a}, Tools: [][]string{{"Agent", "Bash"}, {"Agent", "Bash"}}, SharedBytes: 80_000, UniqueBytes: 200,
			Placeholders: []string{Placeholder, Placeholder}, Bills: []Bill{{Quoted: 900_000, Billed: 1_000_000, Unshared: 2_000_000}, {Quoted: 100_000, Billed: 1_000_000, Unshared: 500_000}},
		}
		change(&e)
		return e
	}
	tests := []struct {
		name    string
		rule    int
		e       Evidence
		verdict Verdict
		finding string
	}{
		{"threaded", 0, good(func(*Evidence) {}), Holds, "3 fan-outs started from one rendered prompt, " + start + "…; it was never rendered anew."},
		{"threaded once", 0, good(func(e *Evidence) { e.Heads = e.Heads[:1] }), Holds, "1 fan-out started from one rendered prompt, " + start + "…; it was never rendered anew."},
		{"two prompts", 0, good(func(e *Evidence) { e.Heads[2], e.Recomputed = b, 1 }), Broken, "The fan-outs of one session started from 2 different prompts: each change loses the cache."},
		{"recomputed once", 0, good(func(e *Evidence) { e.Recomputed = 1 }), Broken, "1 request was sent with a prompt that was rendered anew because the stored one was lost."},
		{"recomputed, nothing sent", 0, Evidence{Recomputed: 2}, Broken, "2 requests were sent with a prompt that was rendered anew because the stored one was lost."},
		{"nothing sent", 0, Evidence{}, Unknown, "No fork was started yet."},

		{"frozen", 1, good(func(*Evidence) {}), Holds, "The same 2 tools in the same order, in 2 fan-outs."},
		{"frozen once", 1, good(func(e *Evidence) { e.Tools = [][]string{{"Agent"}} }), Holds, "The same 1 tool in the same order, in 1 fan-out."},
		{"another order", 1, good(func(e *Evidence) { e.Tools[1] = []string{"Bash", "Agent"} }), Broken, "The tools changed from Agent, Bash to Bash, Agent."},
		{"no tools seen", 1, Evidence{}, Unknown, "No fork was started yet."},

		{"maximised", 2, good(func(*Evidence) {}), Holds, "99.75 % of the first requests is shared: 80,000 of 80,200 bytes (at least 95 % is wanted)."},
		{"just enough", 2, Evidence{SharedBytes: 19_000, UniqueBytes: 1_000}, Holds, "95 % of the first requests is shared: 19,000 of 20,000 bytes (at least 95 % is wanted)."},
		{"a byte too little", 2, Evidence{SharedBytes: 18_999, UniqueBytes: 1_001}, Broken, "95 % of the first requests is shared: 18,999 of 20,000 bytes (at least 95 % is wanted)."},
		{"no bytes", 2, Evidence{}, Unknown, "No fork was started yet."},
		{"only suffix", 2, Evidence{UniqueBytes: 1}, Broken, "0 % of the first requests is shared: 0 of 1 bytes (at least 95 % is wanted)."},

		{"constant", 3, good(func(*Evidence) {}), Holds, `2 calls were answered, each with "` + Placeholder + `".`},
		{"constant once", 3, good(func(e *Evidence) { e.Placeholders = e.Placeholders[:1] }), Holds, `1 call was answered, each with "` + Placeholder + `".`},
		{"an id in one", 3, good(func(e *Evidence) { e.Placeholders[1] = "Fork 17 started" }), Broken, `A call was answered with "Fork 17 started" instead of "` + Placeholder + `": siblings share nothing behind it.`},
		{"the first differs", 3, good(func(e *Evidence) { e.Placeholders[0] = "" }), Broken, `A call was answered with "" instead of "` + Placeholder + `": siblings share nothing behind it.`},
		{"no call", 3, Evidence{}, Unknown, "No model has started forks yet; those of a person or the API need no placeholder."},

		{"measured", 4, good(func(*Evidence) {}), Holds, "2 fan-outs: quoted $0.0010, billed $0.0020, with no cache $0.0025."},
		{"as dear as no cache", 4, Evidence{Bills: []Bill{{Quoted: 1, Billed: 100_000, Unshared: 100_000}}, Unbilled: 1}, Holds, "1 fan-out: quoted < $0.0001, billed $0.0001, with no cache $0.0001. 1 more has no price or no bill."},
		{"dearer", 4, Evidence{Bills: []Bill{{Billed: 100_001, Unshared: 100_000}}, Unbilled: 2}, Broken, "1 fan-out: quoted $0.0000, billed $0.0001, with no cache $0.0001. 2 more have no price or no bill."},
		{"nothing measured", 4, Evidence{Unbilled: 1}, Unknown, "No fan-out has a quote and a bill yet. 1 more has no price or no bill."},
		{"nothing at all", 4, Evidence{}, Unknown, "No fan-out has a quote and a bill yet."},
	}
	rules := []string{RuleThreadPrompt, RuleFreezeTools, RuleMaximisePrefix, RulePlaceholder, RuleMeasureBreakEven}
	names := []string{"Hand on the rendered prompt", "Freeze the tools", "Long prefix, short suffix", "Constant placeholders", "Measure the break-even"}
	for _, tt := range tests {
		t.Run(names[tt.rule]+"/"+tt.name, func(t *testing.T) {
			all := CheckRules(tt.e)
			if len(all) != 5 {
				t.Fatalf("%d rules", len(all))
			}
			want := RuleCheck{Rule: rules[tt.rule], Name: names[tt.rule], Verdict: tt.verdict, Finding: tt.finding}
			if d := cmp.Diff(want, all[tt.rule]); d != "" {
				t.Errorf("check (-want +got):\n%s", d)
			}
		})
	}
}

func TestM75_ThreeTensions(t *testing.T) {
	seen := map[string]string{}
	for _, tension := range Tensions() {
		seen[tension.Switch] = tension.Against
		if text := TensionAt(tension.Switch); text != tension.Text || !strings.HasPrefix(text, tension.Against+" against the cache: ") {
			t.Errorf("%s: %q", tension.Switch, text)
		}
	}
	if d := cmp.Diff(map[string]string{"isolation": "Isolation", "permission_mode": "Safety", "gate": "Simplicity"}, seen); d != "" {
		t.Errorf("switches (-want +got):\n%s", d)
	}
	if text := TensionAt("title"); text != "" {
		t.Errorf("a switch without a tension: %q", text)
	}
}
