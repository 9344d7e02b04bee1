package web

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"forkyard/forkcore"
)

func TestComparePage(t *testing.T) {
	y := newYard(t)
	s := y.serve(t)
	a, b := forkcore.RequestRef{RunID: leaderID, N: 1}, forkcore.RequestRef{RunID: followerID, N: 1}
	root := page(t, s, comparePath(a, b), http.StatusOK, "Authorization", bearer)
	harmless(t, root)
	// The canonical bytes of both are equal up to the second letter of the directive.
	canonical := strings.ReplaceAll(string(sampleBody(t)), sampleMark, "")
	at := strings.LastIndex(canonical, "Read the documentation: what") + 1
	shown := text(root)
	for _, want := range []string{
		"The first " + grouped(int64(at)) + " bytes are equal.", "messages.2.content.6.text", forkcore.DigestOf([]byte(canonical[:at])).String(),
		"Both were meant to share the first 12,455 bytes, and they do", "Cache marks (cache_control) are no part", "They carry the same marks.",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not say %q in %s", want, shown)
		}
	}
	marks := all(root, "mark")
	if len(marks) != 2 || text(marks[0]) != "e" || text(marks[1]) != "ö" {
		t.Errorf("%d characters are marked", len(marks))
	}
	if shown := text(page(t, s, comparePath(a, a), http.StatusOK, "Authorization", bearer)); !strings.Contains(shown, "The requests are identical") {
		t.Errorf("a request and itself: %s", shown)
	}
}

func TestCompareBadParameters(t *testing.T) {
	s := newYard(t).serve(t)
	for _, query := range []string{"", "?a=" + leaderID + ":1", "?a=x:1&b=y:2", "?a=" + leaderID + "&b=" + leaderID + ":0", "?a=" + sessionID + ":1&b=" + leaderID + ":1", "?a=%3Cscript%3E:1&b=:"} {
		root := page(t, s, pathCompare+query, http.StatusUnprocessableEntity, "Authorization", bearer)
		invalid := 0
		for _, input := range all(root, "input") {
			if attribute(input, "aria-invalid") == "true" {
				invalid++
			}
		}
		if invalid == 0 || !strings.Contains(text(root), "run_") {
			t.Errorf("%q: %d fields are marked", query, invalid)
		}
	}
}

func TestCompareContained(t *testing.T) {
	short := []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}`)
	long := append(append([]byte(nil), short...), `,{"role":"assistant","content":[{"type":"text","text":"b"}]}`...)
	var v compareView
	v.compare(compared{canonical: short}, compared{canonical: long})
	if !v.Contained || v.Identical || !v.Left.Ends || v.Right.Char != "," {
		t.Errorf("%+v", v)
	}
}

func TestTextAround(t *testing.T) {
	text := []byte(strings.Repeat("ä", 300) + "€" + strings.Repeat("ö", 300))
	for at := range text {
		before, char, after := textAround(text, at)
		if !utf8.ValidString(before+char+after) || utf8.RuneCountInString(char) != 1 || strings.Contains(before+char+after, "\uFFFD") {
			t.Fatalf("at %d: %q %q %q", at, before, char, after)
		}
	}
	if before, char, after := textAround([]byte("ab"), 2); before != "ab" || char != "" || after != "" {
		t.Errorf("at the end: %q %q %q", before, char, after)
	}
	if before, char, after := textAround([]byte("a\xffb"), 1); before != "a" || char != "\uFFFD" || after != "b" {
		t.Errorf("a bad byte: %q %q %q", before, char, after)
	}
}

func TestCompareForm(t *testing.T) {
	run := func(id string, index int, requests int64, leader bool) forkcore.Run {
		return forkcore.Run{ID: id, Kind: forkcore.KindFork, Index: index, Requests: requests, Leader: leader}
	}
	one, two, three := run("run_1", 0, 1, true), run("run_2", 1, 2, false), run("run_3", 2, 3, false)
	tests := []struct {
		name     string
		self     forkcore.Run
		siblings []forkcore.Run
		n        int64
		chosen   string
		options  int
		alone    bool
	}{
		{"the leader", three, []forkcore.Run{one, two, three}, 1, "run_1:1", 2, false},
		{"the next one for the leader", one, []forkcore.Run{one, two, three}, 3, "run_2:2", 2, false},
		{"none has sent", one, []forkcore.Run{one, run("run_4", 1, 0, false)}, 1, "", 0, false},
		{"alone", one, []forkcore.Run{one}, 1, "", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newCompareForm(tt.self, tt.n, tt.siblings)
			chosen := ""
			for _, o := range f.Options {
				if o.Chosen {
					chosen += o.Value
				}
			}
			if chosen != tt.chosen || len(f.Options) != tt.options || f.Alone != tt.alone {
				t.Errorf("%q of %d, alone %v", chosen, len(f.Options), f.Alone)
			}
		})
	}
}
