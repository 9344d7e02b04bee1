package engine_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// A conversation that another process reloads from the store is sent in the same shape: reminders as they were stored, content
// always an array, no byte more or less.
func TestB25_ReloadedConversationHasTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if _, fork := c.directive(); fork {
				return say(reportText)
			}
			return say("an answer\n")
		})
		// A fork before any turn: its notice and a person's prompt make the first message.
		y.queue.hold()
		_, runs, err := y.engine.Fork(y.ctx, y.session.ID, directives("d1"), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := y.engine.Execute(y.ctx, engine.Wake{RunID: runs[0].ID, N: 1}); err != nil {
			t.Fatal(err)
		}
		y.ended(runs[0].ID)
		id := y.send("prompt\n")
		if err := y.engine.Execute(y.ctx, engine.Wake{RunID: id, N: y.run(id).Wake}); err != nil {
			t.Fatal(err)
		}
		want(t, "state", y.ended(id).State, forkcore.Done)
		calls := y.model.received()
		sent := calls[len(calls)-1]
		blocks := sent.messages[0].Blocks
		if len(sent.messages) != 1 || len(blocks) != 2 || !strings.HasPrefix(blocks[0].Text, "<task-notification>") || blocks[1].Text != "prompt\n" {
			t.Fatalf("the first message has the blocks %+v, want a notice and the prompt", blocks)
		}
		if n := bytes.Count(sent.body, []byte(`"cache_control"`)); n != 2 || !bytes.Contains(sent.body, []byte(`"text":"prompt\n","cache_control":{"type":"ephemeral"}}`)) {
			t.Errorf("%d marks, want one on the system and one on the prompt", n)
		}
		var stored []byte
		for _, e := range y.entries(y.session.ID) {
			if e.Marker == nil && stored == nil {
				stored = e.Bytes
			}
		}
		want(t, "the message is stored as it was sent", string(stored), string(sent.messages[0].Raw))

		y.stop()
		again, _ := y.start(y.options)
		y.engine = again
		y.queue.executor(again)
		y.ask("next")
		calls = y.model.received()
		next := calls[len(calls)-1]
		want(t, "messages after the restart", len(next.messages), 3)
		before, _, _ := bytes.Cut(unmarked(sent.body), []byte(`],"max_tokens"`))
		if after := unmarked(next.body); !bytes.HasPrefix(after, before) {
			at, path, _ := forkcore.FirstDifference(before, after)
			t.Errorf("after the restart the same history differs at byte %d (%s)", at, path)
		}
		for _, c := range []call{sent, next} {
			want(t, "contents that are arrays", bytes.Count(c.body, []byte(`,"content":[`)), len(c.messages))
			want(t, "contents that are strings", bytes.Count(c.body, []byte(`"content":"`)), 0)
		}
		y.wantBodies()
	})
}
