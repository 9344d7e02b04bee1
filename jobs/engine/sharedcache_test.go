package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/modelsim"
)

// readThenFan reads a file, then dispatches n forks: the dispatching request has three messages.
func readThenFan(n int) func(call) reply {
	return func(c call) reply {
		switch _, fork := c.directive(); {
		case fork:
			return say(reportText)
		case c.answers() == 0:
			return useTools(use("toolu_r", "Read", `{"file_path":"a.go"}`))
		case c.answers() == 1:
			return agents(n)
		}
		return say("forks are running")
	}
}

// The three outgoing bodies of a parent and its two children: one identity
// for tools, system and all shared messages, and children that differ behind the last placeholder alone.
func TestB01_ParentAndChildrenSendOnePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, sim := newSimulatedYard(t, modelsim.Options{}, readThenFan(2), func(o *engine.Options) {
			o.Tools = someTools{&fakeTools{}, []string{"Bash", "Read"}}
		})
		y.ask("look, then split the work")
		y.idle()
		var parent []byte
		var children []call
		for _, c := range received(t, sim) {
			if _, fork := c.directive(); fork {
				children = append(children, c)
			} else if len(c.messages) == 3 {
				parent = unmarked(c.body)
			}
		}
		if parent == nil || len(children) != 2 {
			t.Fatalf("%d children, the dispatching request was seen: %v", len(children), parent != nil)
		}
		a, b := unmarked(children[0].body), unmarked(children[1].body)
		for _, part := range []string{`"tools":[{"name":"Agent"`, `{"name":"Bash"`, `{"name":"Read"`, `"system":[{"type":"text"`} {
			want(t, part+" in the parent's body", bytes.Count(parent, []byte(part)), 1)
		}
		// Everything that the parent sent, through its last message.
		shared := bytes.LastIndex(parent, []byte(`],"max_tokens"`))
		if shared < 0 {
			t.Fatalf("no end of the messages in %s", parent)
		}
		want(t, "SHA-256 of the first child's", forkcore.DigestOf(a[:shared]), forkcore.DigestOf(parent[:shared]))
		want(t, "SHA-256 of the second child's", forkcore.DigestOf(b[:shared]), forkcore.DigestOf(parent[:shared]))
		placeholder := []byte(`"content":[{"type":"text","text":"Fork started; processing in background"}]}`)
		last := bytes.LastIndex(a, placeholder) + len(placeholder)
		want(t, "placeholders", bytes.Count(a, placeholder), 2)
		want(t, "SHA-256 through the last placeholder", forkcore.DigestOf(a[:last]), forkcore.DigestOf(b[:last]))
		if at, path, equal := forkcore.FirstDifference(a, b); equal || at <= int64(last) || path != "messages.4.content.3.text" {
			t.Errorf("the children part at byte %d (%s), want in their last block behind byte %d", at, path, last)
		}
	})
}

// altering changes one byte of the head that it gave out, just before a request is built from it.
type altering struct {
	engine.Store
	head forkcore.Digest
	out  []byte
}

func (s *altering) Blobs(ctx context.Context, sessionID string, ids ...forkcore.Digest) ([][]byte, error) {
	blobs, err := s.Store.Blobs(ctx, sessionID, ids...)
	if err == nil && len(ids) > 1 && ids[0] == s.head {
		s.out = blobs[0]
	}
	return blobs, err
}

func (s *altering) CacheEntries(ctx context.Context, sessionID string) ([]forkcore.CacheEntry, error) {
	if s.out != nil {
		at := bytes.LastIndex(s.out, []byte(`"text":"`)) + len(`"text":"`)
		s.out[at] ^= 1
		s.out = nil
	}
	return s.Store.CacheEntries(ctx, sessionID)
}

// A head that is not the snapshot's fails the run before anything is sent: no warning, no request.
func TestB01_AChangedHeadFailsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y, sim := newSimulatedYard(t, modelsim.Options{}, func(call) reply { return say("an answer") })
		y.ask("first")
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		o := y.options
		o.Store = &altering{Store: y.store, head: y.session.Head}
		e, _ := y.start(o)
		before := len(sim.Requests())
		if err := e.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Fatal(err)
		}
		r := y.ended(runs[0].ID)
		y.wantReason(r, forkcore.Failed, forkcore.CodePrefixMismatch)
		if r.Reason != nil && !strings.Contains(r.Reason.Message, "(system.0.text)") {
			t.Errorf("the reason does not say where: %s", r.Reason.Message)
		}
		want(t, "requests", len(sim.Requests())-before, 0)
	})
}

// fanOutFaults lists what a cold fan-out did other than to write its shared prefix
// once and to read it in every other child, sent behind the first one's response.
func fanOutFaults(t *testing.T, y *yard, sim *modelsim.Server) (faults []string, writes int) {
	t.Helper()
	var leader *modelsim.Captured
	var shared int
	for _, c := range sim.Requests() {
		if _, fork := (call{messages: parseBody(t, c.Body)}).directive(); !fork {
			continue
		}
		u := c.Usage
		if u.CacheCreationInputTokens > 0 {
			writes++
		}
		if leader == nil {
			leader, shared = &c, u.CacheReadInputTokens+u.CacheCreationInputTokens
			if u.CacheCreationInputTokens == 0 {
				faults = append(faults, "the first child wrote nothing")
			}
			continue
		}
		if u.CacheCreationInputTokens > 0 || u.CacheReadInputTokens != shared {
			faults = append(faults, fmt.Sprintf("a follower read %d of %d tokens and wrote %d", u.CacheReadInputTokens, shared, u.CacheCreationInputTokens))
		}
		if c.Started.Before(leader.Begun) || c.Started.Sub(leader.Begun) > 2*time.Second {
			faults = append(faults, fmt.Sprintf("a follower was sent %v after the first response began", c.Started.Sub(leader.Begun)))
		}
	}
	return faults, writes
}

// Five children launched in one instant over one prefix that becomes readable 800 ms after it was sent.
func TestB06_OneWritesFourRead(t *testing.T) {
	for _, gate := range []forkcore.GateMode{forkcore.GateAlways, forkcore.GateOff} {
		t.Run(string(gate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y, sim := newSimulatedYard(t, modelsim.Options{MessageStartDelay: 800 * time.Millisecond}, fanOut(5), func(o *engine.Options) { o.Gate = gate })
				y.ask("fan out " + strings.Repeat("over a long conversation ", 2_000))
				y.idle()
				want(t, "states", y.states(), "main:done fork:done fork:done fork:done fork:done fork:done main:done")
				faults, writes := fanOutFaults(t, y, sim)
				if gate == forkcore.GateOff {
					// All at once: the very same measure must find fault with it.
					want(t, "writes without a gate", writes, 5)
					want(t, "faults without a gate", len(faults), 8) // four followers, each too early and written
					return
				}
				want(t, "children that wrote", writes, 1)
				if d := cmp.Diff([]string(nil), faults); d != "" {
					t.Errorf("faults (-want +got):\n%s", d)
				}
			})
		})
	}
}

// The parent's entry lives for 5 minutes from its last use. A child of 6 minutes
// outlives it, and that is said, with its price, before the next turn is sent and beside it afterwards; one of 4 min 50 s does not.
func TestB51_TheParentsTurnAfterALongChild(t *testing.T) {
	for _, tt := range []struct {
		name string
		runs time.Duration
		warm bool
	}{{"4 min 50 s", 290 * time.Second, true}, {"6 min", 6 * time.Minute, false}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y, sim := newSimulatedYard(t, modelsim.Options{}, func(c call) reply {
					a := say("an answer")
					if _, fork := c.directive(); fork {
						a = say(reportText)
						a.before = tt.runs
					}
					return a
				})
				first := y.ask(strings.Repeat("four", 80_000))
				held := y.requests(first.ID)[0].Usage.Cached()
				if held < 80_000 || held > 82_000 {
					t.Fatalf("the parent's entry has %d tokens, want about 80,000", held)
				}
				_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("take your time"), "")
				if err != nil {
					t.Fatal(err)
				}
				y.until("the child's request", func() bool { return y.run(runs[0].ID).Requests == 1 })
				y.queue.hold() // so that the turn with the child's report waits
				y.ended(runs[0].ID)

				quote, err := y.engine.QuoteForks(y.ctx, y.session.ID, directives("d1"))
				if err != nil {
					t.Fatal(err)
				}
				want(t, "the quote is warm", quote.ColdNote == "", tt.warm)
				// 80,000 and some tokens, written at $2.50 a million.
				if !tt.warm && !strings.HasPrefix(quote.ColdNote, "Cold, about $0.20") {
					t.Errorf("the quote says %q", quote.ColdNote)
				}

				turn := y.sessionNow().ActiveRunID
				if err := y.engine.Execute(y.ctx, engine.Wake{RunID: turn, N: y.run(turn).Wake}); err != nil {
					t.Fatal(err)
				}
				y.ended(turn)
				row := y.requests(turn)[0]
				usage := sim.Requests()[2].Usage
				if tt.warm {
					want(t, "expected", *row.ExpectedRead, held)
					want(t, "read", int64(usage.CacheReadInputTokens), held)
					if row.Miss != nil {
						t.Errorf("a miss: %+v", row.Miss)
					}
					return
				}
				want(t, "expected", *row.ExpectedRead, 0)
				want(t, "read", usage.CacheReadInputTokens, 0)
				if row.Miss == nil || row.Miss.Code != "expired" || !strings.HasPrefix(row.Miss.Detail, fmt.Sprintf("an entry of %d tokens ran out 1m0s before; read 0", held)) {
					t.Errorf("miss reason %+v", row.Miss)
				}
				for _, m := range row.Marks {
					want(t, "lifetime of a mark", m.TTL, "5m")
				}
			})
		})
	}
}
