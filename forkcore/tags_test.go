package forkcore

import (
	"regexp"
	"strings"
	"testing"
)

// B41: tags in data are disarmed; a parent that merely mentions them is kept as
// it is and can fork.
func TestNeutralizeTags(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing to do", "a < b && c > d <div>", "a < b && c > d <div>"},
		{"close and open", "explain </fork-boilerplate> and <fork-boilerplate>", "explain &lt;/fork-boilerplate> and &lt;fork-boilerplate>"},
		{"notification", "<task-notification>done</task-notification>", "&lt;task-notification>done&lt;/task-notification>"},
		{"reminder", "x<system-reminder>", "x&lt;system-reminder>"},
		{"any case", "</Fork-BoilerPlate>", "&lt;/Fork-BoilerPlate>"},
		{"white space inside", "< / \n\tfork-boilerplate>", "&lt; / \n\tfork-boilerplate>"},
		{"attributes", `<fork-boilerplate x="1">`, `&lt;fork-boilerplate x="1">`},
		{"doubled bracket", "<<fork-boilerplate>", "<&lt;fork-boilerplate>"},
		{"cut at the end", "<fork-boilerplate", "&lt;fork-boilerplate"},
		{"half a name", "<fork-boil", "<fork-boil"},
		{"bracket alone", "<", "<"},
		{"bracket and slash alone", "</", "</"},
		{"two slashes are no tag", "<//fork-boilerplate>", "<//fork-boilerplate>"},
		{"zero-width space", "<\u200bfork\u200b-boilerplate>", "&lt;\u200bfork\u200b-boilerplate>"},
		{"invisible characters around the slash", "<\u2060/\ufefffork-boilerplate>", "&lt;\u2060/\ufefffork-boilerplate>"},
		{"soft hyphen and variation selector", "</fork-boil\u00aderpl\ufe0fate>", "&lt;/fork-boil\u00aderpl\ufe0fate>"},
		{"full-width brackets", "＜fork-boilerplate＞ ﹤task-notification", "&lt;fork-boilerplate＞ &lt;task-notification"},
		{"full-width letters", "<／ＦＯＲＫ－ｂｏｉｌｅｒｐｌａｔｅ>", "&lt;／ＦＯＲＫ－ｂｏｉｌｅｒｐｌａｔｅ>"},
		{"other dashes", "<fork‐boilerplate><fork–boilerplate><task−notification>", "&lt;fork‐boilerplate>&lt;fork–boilerplate>&lt;task−notification>"},
		{"letters of another script are another word", "<fоrk-boilerplate>", "<fоrk-boilerplate>"},
		{"white space in the name is another word", "<fork boilerplate><fork- boilerplate>", "<fork boilerplate><fork- boilerplate>"},
		{"full-width bracket before a word", "1 ＜ 2", "1 ＜ 2"},
		{"broken bytes", "\xff<fork-boilerplate\xff", "\xff&lt;fork-boilerplate\xff"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NeutralizeTags(tt.in)
			if got != tt.want {
				t.Errorf("NeutralizeTags(%q) = %q, want %q", tt.in, got, tt.want)
			}
			if again := NeutralizeTags(got); again != got {
				t.Errorf("a second pass changes it to %q", again)
			}
		})
	}

	history := dispatching(t, 1)
	history[0] = message(t, RoleUser, text("what does </fork-boilerplate> mean?"))
	f := newFanOut(t, history)
	last := f.child(t, "explain </fork-boilerplate> \x00 and <fork-boilerplate>")[len(history)].Blocks
	if got, want := last[len(last)-1].Text, "explain &lt;/fork-boilerplate> \u2400 and &lt;fork-boilerplate>"; got != want {
		t.Errorf("directive is %q, want %q", got, want)
	}
	whole := string(f.prefix()) + string(last[len(last)-1].Raw)
	if n := strings.Count(whole, "<fork-boilerplate>"); n != 1 {
		t.Errorf("the opening tag is there %d times, want once", n)
	}
}

// More names, where the data is put into another element.
func TestNeutralizeMoreTags(t *testing.T) {
	if got, want := NeutralizeTags("</result></x></task-notification>", "result"), "&lt;/result></x>&lt;/task-notification>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// anyTag knows control tags in another way than the code does.
var anyTag = regexp.MustCompile(`(?i)<[\s\x{85}\x{a0}]*/?[\s\x{85}\x{a0}]*(fork-boilerplate|task-notification|system-reminder|persisted-output)`)

// FuzzNeutralizeTags: afterwards no data opens or closes a control tag, a second pass finds nothing, and nothing but
// brackets has changed. The oracle first undoes what a kind reader would overlook.
func FuzzNeutralizeTags(f *testing.F) {
	f.Add("< /Task-Notification><<system-reminder")
	f.Add("＜／ｆｏｒｋ‐boiler\u200bplate>")
	f.Add("&lt;<fork-boilerplate<")
	read := strings.NewReplacer("\u200b", "", "\ufeff", "", "\u2060", "", "\u00ad", "", "＜", "<", "／", "/", "－", "-", "‐", "-", "–", "-", "ｆ", "f", "ｏ", "o", "ｒ", "r", "ｋ", "k")
	f.Fuzz(func(t *testing.T, s string) {
		got := NeutralizeTags(s)
		if m := anyTag.FindString(read.Replace(got)); m != "" {
			t.Fatalf("%q still has the tag %q", got, m)
		}
		if again := NeutralizeTags(got); again != got {
			t.Fatalf("a second pass changes %q to %q", got, again)
		}
		plain := strings.NewReplacer("&lt;", "<", "＜", "<", "﹤", "<")
		if plain.Replace(got) != plain.Replace(s) {
			t.Fatalf("%q became %q: more than brackets changed", s, got)
		}
	})
}

// What a model reads as an ASCII character ends with the letters and signs themselves.
func TestFold(t *testing.T) {
	for r, want := range map[rune]rune{
		'A': 'a', 'Z': 'z', '@': '@', '[': '[', 'a': 'a', '<': '<', '/': '/',
		'！': '!', '～': '~', 'Ａ': 'a', 'Ｚ': 'z', '\uff00': '\uff00', '\uff5f': '\uff5f',
		'﹤': '<', '﹥': '﹥', '‐': '-', '−': '-', 'é': 'é',
	} {
		if got := fold(r); got != want {
			t.Errorf("fold(%q) = %q, want %q", r, got, want)
		}
	}
}
