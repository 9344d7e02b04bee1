package web

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a-h/templ"
	"github.com/google/go-cmp/cmp"

	"forkyard/forkcore"
	"forkyard/web/sse"
)

// sheet is a page of lines: run events set the line of their run.
type sheet struct {
	lines []sheetLine
}

type sheetLine struct {
	id, text string
	at       time.Time
}

func (p *sheet) apply(_ context.Context, e forkcore.Event) error {
	for i := range p.lines {
		if p.lines[i].id == e.RunID {
			p.lines[i].text = e.Run.Title
			return nil
		}
	}
	p.lines = append(p.lines, sheetLine{e.RunID, e.Run.Title, e.At})
	return nil
}

func (p *sheet) parts() []part {
	var parts []part
	for _, l := range p.lines {
		parts = append(parts, part{id: l.id, list: "sheet", key: l.text, at: l.at, draw: templ.Raw(fmt.Sprintf("<p id=%q>%s</p>", l.id, l.text))})
	}
	return parts
}

// feed is an event store whose live feed is a channel.
type feed chan forkcore.Event

func (f feed) Live(ctx context.Context, _ time.Time, fn func(forkcore.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-f:
			fn(e)
		}
	}
}

func runEvent(n int, run, title string) forkcore.Event {
	return forkcore.Event{ID: fmt.Sprintf("%d-0", n), Type: forkcore.EventRun, SessionID: sessionID, RunID: run, At: noon, Run: &forkcore.Run{ID: run, Title: title}}
}

// pipe is a response whose frames are read as they come.
type pipe struct {
	header http.Header
	frames chan string
	text   strings.Builder
}

func (p *pipe) Header() http.Header                { return p.header }
func (p *pipe) WriteHeader(int)                    {}
func (p *pipe) Flush()                             {}
func (p *pipe) SetWriteDeadline(_ time.Time) error { return nil }
func (p *pipe) Write(b []byte) (int, error) {
	p.text.Write(b)
	for {
		frame, rest, whole := strings.Cut(p.text.String(), "\n\n")
		if !whole {
			return len(b), nil
		}
		p.text.Reset()
		p.text.WriteString(rest)
		p.frames <- frame
	}
}

func always(context.Context) bool { return true }

// watch streams a sheet and returns its frames and the way to end it.
func watch(t *testing.T, f feed, page livePage, skip time.Time, alive func(context.Context) bool) (frames chan string, stop func()) {
	t.Helper()
	hub := sse.StartHub(f, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	sub := hub.NewSubscription(ctx, sessionID)
	sub.Collect()
	p := &pipe{header: http.Header{}, frames: make(chan string, 100)}
	out, err := sse.Start(sub.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		l := liveStream{page: page, out: out, last: sse.ID{MS: 5}, sent: map[string]string{}, drawn: map[string]time.Time{}, alive: alive}
		if !skip.IsZero() {
			l.skipBefore(skip)
		}
		ended <- l.run(sub)
	}()
	return p.frames, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the stream ended with %v", err)
		}
		out.Close()
		sub.Close()
		hub.Close()
	}
}

// swaps lists what a frame draws.
func swaps(frame string) (list []string) {
	scanner := bufio.NewScanner(strings.NewReader(frame))
	for scanner.Scan() {
		if _, markup, ok := strings.Cut(scanner.Text(), `hx-swap="`); ok {
			list = append(list, strings.TrimSuffix(markup, "</hx-partial>"))
		}
	}
	return list
}

func TestLiveSendsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := make(feed)
		page := &sheet{lines: []sheetLine{{"a", "old", noon.Add(-time.Hour)}, {"b", "new", noon}, {"c", "not kept", time.Time{}}}}
		frames, stop := watch(t, f, page, noon.Add(-time.Minute), always)
		defer stop()
		if got := <-frames; got != "id: 5-0\nevent: beat\nretry: 300\ndata: {}" {
			t.Errorf("first frame %q, want a beat with the cursor", got)
		}
		want := []string{`merge"><p id="b">new</p>`, `merge"><p id="c">not kept</p>`}
		if diff := cmp.Diff(want, swaps(<-frames)); diff != "" {
			t.Errorf("drawn at the start (-want +got):\n%s", diff)
		}
		synctest.Wait()
		time.Sleep(livePeriod)
		f <- runEvent(7, "a", "changed")
		got := <-frames
		if diff := cmp.Diff([]string{`merge"><p id="a">changed</p>`}, swaps(got)); diff != "" || !strings.HasPrefix(got, "id: 7-0\n") {
			t.Errorf("drawn after an event: %s\n%s", got, diff)
		}
	})
}

// TestLiveIsCoalesced: a page, and so each row, is updated ten times a second at most, at once after a quiet time, and
// the last change is never left out.
func TestLiveIsCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := make(feed)
		frames, stop := watch(t, f, &sheet{}, time.Time{}, always)
		defer stop()
		<-frames // beat
		time.Sleep(livePeriod)
		start := time.Now()
		go func() {
			for n := range 500 { // for one second
				f <- runEvent(10+n, "a", fmt.Sprint(n))
				time.Sleep(2 * time.Millisecond)
			}
		}()
		var updates []time.Duration
		last := ""
		for last != "499" {
			frame := <-frames
			for _, s := range swaps(frame) {
				updates = append(updates, time.Since(start))
				last = strings.TrimSuffix(strings.TrimPrefix(s, `merge"><p id="a">`), "</p>")
			}
		}
		if len(updates) > 12 || len(updates) < 9 {
			t.Errorf("%d updates of a row in a second, want about 10", len(updates))
		}
		if updates[0] > 0 {
			t.Errorf("the first update came after %v, want at once", updates[0])
		}
		for i := 1; i < len(updates); i++ {
			if gap := updates[i] - updates[i-1]; gap < livePeriod {
				t.Errorf("updates %v apart, want %v or more", gap, livePeriod)
			}
		}
	})
}

func TestLiveBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := make(feed)
		frames, stop := watch(t, f, &sheet{}, time.Time{}, always)
		defer stop()
		last := time.Now()
		for range 10 {
			<-frames
			if gap := time.Since(last); gap > 15*time.Second {
				t.Errorf("%v without a sign of life; 15 s are promised", gap)
			}
			last = time.Now()
		}
	})
}

// TestLiveIsSilentWithoutTheStore: a page that cannot learn anything new must not look up to date.
func TestLiveIsSilentWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := make(feed)
		var away atomic.Bool
		frames, stop := watch(t, f, &sheet{}, time.Time{}, func(context.Context) bool { return !away.Load() })
		defer stop()
		<-frames // at the start
		<-frames // ten seconds later
		away.Store(true)
		time.Sleep(5 * liveBeat)
		if len(frames) > 0 {
			t.Errorf("while the store is away came %q", <-frames)
		}
		away.Store(false)
		start := time.Now()
		<-frames
		if waited := time.Since(start); waited > liveBeat {
			t.Errorf("the next sign of life came after %v", waited)
		}
	})
}

// slow is a part that costs much, beside one that costs little.
type slow struct{ sheet }

func (p *slow) parts() []part {
	parts := p.sheet.parts()
	for i := range parts {
		if parts[i].id == "slow" {
			parts[i].pace = time.Second
		}
	}
	return parts
}

// TestLivePace: a part with a pace is drawn that often at most, does not hold the others back, and its last state is drawn.
func TestLivePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := make(feed)
		frames, stop := watch(t, f, &slow{}, time.Time{}, always)
		defer stop()
		<-frames
		go func() {
			for n := range 100 { // for two seconds
				f <- runEvent(10+2*n, "slow", fmt.Sprint(n))
				f <- runEvent(11+2*n, "fast", fmt.Sprint(n))
				time.Sleep(20 * time.Millisecond)
			}
		}()
		drawn := map[string]int{}
		last := map[string]string{}
		for last["slow"] != "99" || last["fast"] != "99" {
			for _, s := range swaps(<-frames) {
				id, text, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(s, `merge"><p id="`), "</p>"), `">`)
				drawn[id]++
				last[id] = text
			}
		}
		if drawn["slow"] > 4 || drawn["fast"] < 15 {
			t.Errorf("drawn %v; want the slow one about 3 times, the fast one about 20 times", drawn)
		}
	})
}
