package web

import (
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

func TestModelsPage(t *testing.T) {
	c, err := catalogue(t).Overlay("mine.json", []byte(`{"as_of":"2026-12-01","models":[{"id":"qwen3-coder","window":262144}]}`))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, newFake(), func(o *Options) { o.Catalogue, o.DefaultModel = c, "claude-sonnet-5-5" })
	said := text(page(t, s, "/models", 200, "Cookie", s.signIn(t)))
	for _, want := range []string{
		"as of 2026-11-30", "The file mine.json of 2026-12-01 lies over it.", "Claude Sonnet 5.5 in use", "before 2026-10-07",
		"over 100,000 tokens of input", "qwen3-coder", "adaptive, always on", "2027-01-22", "512 assumed",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the page does not say %q:\n%s", want, said)
		}
	}
	if strings.Count(said, " in use ") != 1 {
		t.Error("more than one model is in use")
	}
}

func TestModelRowsDoNotGuess(t *testing.T) {
	c, err := forkcore.ParseCatalogue([]byte(`{"models":[{"id":"m"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := newModelRow(c, "m", "", noon)
	for _, v := range []string{m.Price.Input, m.Price.Read, m.Minimum, m.Window, m.Output, m.Thinking, m.Effort, m.ForcedTools} {
		if v != notKnown {
			t.Errorf("%q for what is not known, in %+v", v, m)
		}
	}
	if haiku := newModelRow(catalogue(t), "claude-haiku-5-5", "", noon); haiku.Minimum != notKnown || haiku.Price.Input != "$0.10" || haiku.Price.Write5m != "$0.125" || haiku.Prices[0].Read != "$0.05" {
		t.Errorf("Haiku 5.5: %+v", haiku)
	}
	// Before the change of a price the page says when it comes.
	if early := newModelRow(catalogue(t), "claude-sonnet-5-5", "", noon.AddDate(0, -2, 0)); early.Price.Read != "$0.20" || early.Prices[0].What != "from 2026-10-07" || early.Prices[0].Read != "$0.10" {
		t.Errorf("Sonnet 5.5 on %v: %+v", noon.AddDate(0, -2, 0).Format(time.DateOnly), early)
	}
}
