package forkcore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func plainHead() []byte {
	return EncodeHead(Params{Model: "m", MaxTokens: 10}, []ToolSpec{AgentTool()}, "You are careful.")
}

// An endpoint answers with a block that carries cache_control. It is admitted,
// and from then on every request of the session is refused.
func TestAnswerWithCacheControlIsAdmittedAndKillsTheSession(t *testing.T) {
	for name, block := range map[string]string{
		"1h":        `{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}`,
		"value":     `{"type":"text","text":"hi","cache_control":{"type":"x"}}`,
		"thinking":  `{"type":"thinking","thinking":"t","signature":"s","cache_control":{"type":"ephemeral"}}`,
		"citations": `{"type":"text","text":"hi","citations":[{"type":"x","cache_control":{"type":"ephemeral"}}]}`,
	} {
		p := NewPrefix(plainHead()).Append(message(t, RoleUser, text("go")))
		answer := message(t, RoleAssistant, []byte(block))
		if err := p.Admit(answer); err != nil {
			continue // refused: fine
		}
		next := p.Append(answer).Append(message(t, RoleUser, text("more")))
		plan, err := PlanMarks(Plan{Prefix: next})
		if err != nil {
			t.Fatal(err)
		}
		if err := Refuse(next.Violations(plan.Marks, Params{MaxTokens: 10}, 1000)); err != nil {
			t.Errorf("%s: admitted, then every later request is refused: %v", name, err)
		}
	}
}

// Four plain marks of an endpoint, one an answer: the fifth mark kills it.
func TestMarksOfAnswersAddUp(t *testing.T) {
	p := NewPrefix(plainHead())
	for i := 0; i < 6; i++ {
		p = p.Append(message(t, RoleUser, text("go")))
		plan, err := PlanMarks(Plan{Prefix: p})
		if err != nil {
			t.Fatal(err)
		}
		if err := Refuse(p.Violations(plan.Marks, Params{MaxTokens: 10}, 1000)); err != nil {
			t.Fatalf("turn %d: %v", i+1, err)
		}
		a := message(t, RoleAssistant, []byte(`{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}`))
		if err := p.Admit(a); err != nil {
			return
		}
		p = p.Append(a)
	}
}

// An open last message without a block: the child's body is no JSON, and nobody notices.
func TestLoadSnapshotWithEmptyOpenMessage(t *testing.T) {
	head := plainHead()
	m := EncodeMessage(RoleUser, text("go"))
	open := []byte(`{"role":"user","content":[`)
	hist := NewPrefix(head).Append(message(t, RoleUser, text("go")))
	n, id := hist.Tail()
	s := Snapshot{ID: id, Bytes: n, Segments: []Segment{{}, {}, {Open: true}}}
	base, err := LoadSnapshot(s, [][]byte{head, m, open})
	if err != nil {
		return
	}
	v := NewView(base)
	if err := v.Apply(Entry{Seq: 1, Kind: EntryMessage, Fragment: true, Bytes: DirectiveBlock("d")}); err != nil {
		return
	}
	if err := Verify(s, v.Prefix, func() ([][]byte, error) { return [][]byte{head, m, open}, nil }); err != nil {
		return
	}
	plan, err := PlanMarks(Plan{Prefix: v.Prefix, Snapshot: &s, FirstRequest: true})
	if err != nil {
		return
	}
	body, err := v.Prefix.Body(plan.Marks, Params{MaxTokens: 10}, nil)
	if err != nil {
		return
	}
	if Refuse(v.Prefix.Violations(plan.Marks, Params{MaxTokens: 10}, body.Len())) == nil && !json.Valid(body.Bytes()) {
		t.Errorf("LoadSnapshot, Verify and Violations pass a body that is no JSON: …%s", body.Bytes()[n-20:])
	}
}

func TestQuoteNegative(t *testing.T) {
	cat, err := EmbeddedCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	hist := NewPrefix(plainHead()).Append(message(t, RoleUser, text("go"))).Append(message(t, RoleAssistant, text("ok")))
	for _, id := range cat.IDs() {
		info, _ := cat.Model(id)
		for _, tokens := range []int64{0, 1, 64, 3_000_000_000} {
			n, d := hist.Tail()
			e := CacheEntry{Prefix: d, Bytes: n, Tokens: tokens, Exact: true}
			s, _, err := NewSnapshot("ses", hist, Params{Model: id, MaxTokens: 32000}, nil, 2, []CacheEntry{e}, time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			open, _ := hist.Tail()
			_ = open
			for _, at := range []CacheEntry{e, {Prefix: s.ID, Bytes: s.Bytes, Tokens: tokens, Exact: true}} {
				for _, mode := range []GateMode{GateAuto, GateOff} {
					q := NewQuote(info, true, s, &at, [][]byte{DirectiveBlock("d1"), DirectiveBlock("d2")}, mode, Jobs{})
					b, _ := json.Marshal(q)
					if strings.Contains(string(b), ":-") || strings.Contains(string(b), "−") {
						t.Errorf("%s tokens %d at %d: %s", id, tokens, at.Bytes, b)
					}
				}
			}
		}
	}
}
