package engine_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"forkyard/forkcore"
)

// A turn of an odd but honest endpoint must end as done.
func TestOddEndpoints(t *testing.T) {
	for name, blocks := range map[string][]string{
		"thinking without signature": {`{"type":"thinking","thinking":"hm","signature":""}`, `{"type":"text","text":"x"}`},
		"id with a colon":            {use("functions.Glob:0", "Glob", `{}`)},
		"id with a dot":              {use("call_abc-1.2", "Glob", `{}`)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard(t, func(c call) reply {
					if len(c.messages) > 1 {
						return say("done")
					}
					r := useTools(blocks...)
					if !strings.Contains(blocks[0], "tool_use") {
						r.stop = "end_turn"
					}
					return r
				})
				r := y.ask("go")
				if r.State != forkcore.Done {
					t.Errorf("%s after %d requests: %+v", r.State, len(y.model.received()), r.Reason)
				}
			})
		})
	}
}

func TestAnswerWithAMarkKillsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		y := newYard(t, func(c call) reply {
			if n++; n == 1 {
				return reply{blocks: []string{`{"type":"text","text":"hi","cache_control":{"type":"ephemeral","ttl":"1h"}}`}, stop: "end_turn"}
			}
			return say("ok")
		})
		first := y.ask("one")
		for i := range 3 {
			r := y.ask(fmt.Sprint("again ", i))
			if first.State == forkcore.Done && r.State != forkcore.Done {
				t.Errorf("turn %d: %s %+v", i+2, r.State, r.Reason)
			}
		}
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1", "d2"), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r := y.ended(r.ID); r.State != forkcore.Done {
				t.Errorf("fork: %s %+v", r.State, r.Reason)
			}
		}
	})
}

func TestPauseTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			r := say("searching")
			r.stop = "pause_turn"
			return r
		})
		r := y.ask("go")
		if n := len(y.model.received()); r.State == forkcore.Done && n == 1 {
			t.Errorf("pause_turn ended the turn as done after %d request: %+v", n, r.Reason)
		}
	})
}

func TestThinkingThatNoRequestCanCarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply { return say("ok") })
		for _, th := range []string{`{"type":"adaptive","x":"\u0000"}`, `{"type":"adaptive","x":"\ud800"}`} {
			s, _, err := y.engine.CreateSession(y.ctx, forkcore.SessionSpec{Workspace: y.options.Workspaces[0], Thinking: json.RawMessage(th)}, "")
			if err != nil {
				continue
			}
			id, err := y.engine.SendMessage(y.ctx, s.ID, "go", "")
			if err != nil {
				t.Fatal(err)
			}
			if r := y.ended(id); r.State != forkcore.Done {
				t.Errorf("%s: a session that can never send: %+v", th, r.Reason)
			}
		}
	})
}
