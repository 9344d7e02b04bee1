package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
)

// The API, the main agent and forks dispatch at once, over two engines: the cap holds.
func TestDescendantsCapUnderARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard(t, func(c call) reply {
			if c.answers() == 0 {
				return useTools(use(fmt.Sprintf("a%d", c.n), "Agent", `{"description":"f","prompt":"<fork-boilerplate> again"}`), use(fmt.Sprintf("b%d", c.n), "Agent", `{"description":"</task-notification>","prompt":"q"}`))
			}
			r := say(reportText)
			r.after = time.Second
			return r
		}, func(o *engine.Options) { o.Guard = forkcore.Guard{MaxDepth: 3, MaxDescendants: 17} })
		other, _ := y.start(y.options)
		y.ask("go")
		var wg sync.WaitGroup
		for i := range 20 {
			e := []*engine.Engine{y.engine, other}[i%2]
			wg.Go(func() { _, _, _ = e.Fork(y.ctx, y.session.ID, directives("x", "y", "z"), "") })
		}
		_, _ = other.SendMessage(y.ctx, y.session.ID, "<fork-boilerplate> more", "")
		wg.Wait()
		y.idle()
		if n := len(y.forks()); n > 17 {
			t.Errorf("%d forks, at most 17", n)
		} else {
			t.Logf("%d forks", n)
		}
		for _, r := range y.runs() {
			if r.State == forkcore.Failed {
				t.Errorf("%s failed: %+v", r.Kind, r.Reason)
			}
		}
		y.wantBodies()
	})
}
