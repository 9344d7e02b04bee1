package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"forkyard/forkcore"
)

func TestRequestPage(t *testing.T) {
	s := newYard(t).serve(t)
	root := page(t, s, requestPath(followerID, 1), http.StatusOK, "Authorization", bearer)
	harmless(t, root)
	shown := text(root)
	for _, want := range []string{
		"cache hit", "Read all 3,082 tokens", "Mark 1: system.0, 5 min, offset 8,339 bytes", "Mark 2: messages.2.content.5, 5 min, offset 12,455 bytes",
		"Mark 3: messages.4.content.1", "The edges are exact", "Message 4 · user", "tool result",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	l := links(root)
	for _, want := range []string{prefixAPI + requestPath(followerID, 1) + "/body", requestPath(leaderID, 1)} {
		if _, ok := l[want]; !ok {
			t.Errorf("no link to %s", want)
		}
	}
}

// Damaged bytes and marks that do not fit leave the figures to be read.
func TestRequestPageWithoutBytes(t *testing.T) {
	y := newYard(t)
	delete(y.bodies, followerID)
	y.bodies[leaderID] = []byte(`{"messages":[]}`)
	s := y.serve(t)
	for id, want := range map[string]string{followerID: "do not match their SHA-256", leaderID: "cannot be taken apart"} {
		shown := text(page(t, s, requestPath(id, 1), http.StatusOK, "Authorization", bearer))
		if !strings.Contains(shown, want) || !strings.Contains(shown, "3,082") {
			t.Errorf("%s: %s", id, shown)
		}
	}
}

// What nobody knows is a dash, never zero.
func TestRequestViewOfTheUnknown(t *testing.T) {
	v := newRequestView(forkcore.RequestRow{RunID: leaderID, N: 1, Status: forkcore.RequestError, StartedAt: noon}, nil)
	for name, got := range map[string]string{"read": v.Read, "written": v.Written, "uncached": v.Uncached, "output": v.Output, "cost": v.Cost, "expected": v.Expected, "took": v.Took} {
		if got != unknownFigure {
			t.Errorf("%s is %q", name, got)
		}
	}
}

func TestAnatomyClasses(t *testing.T) {
	row := forkcore.RequestRow{Marks: sampleMarks(t), Usage: &forkcore.Usage{CacheRead: 3082, CacheWrite5m: 186}}
	writer := &forkcore.RequestRow{Usage: &forkcore.Usage{CacheWrite5m: 3082}, Marks: sampleMarks(t)[:2]}
	v, err := newAnatomy(sampleBody(t), row, writer)
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]string{}
	for _, g := range v.Groups {
		for _, b := range g.Segments {
			classes[b.Path] = b.Class
		}
	}
	for path, want := range map[string]string{"settings": "read", "tools.0": "read", "messages.2.content.5": "read", "messages.2.content.6": "write", "messages.4.content.1": "write"} {
		if classes[path] != want {
			t.Errorf("%s is %q, want %q", path, classes[path], want)
		}
	}
	if len(v.Ticks) != 3 || len(v.Bar) != 2 {
		t.Errorf("%d ticks, %d pieces", len(v.Ticks), len(v.Bar))
	}
}

// A request of a thousand messages is drawn by its ends and its marks, and says how much is left out.
func TestAnatomyOfALongRequest(t *testing.T) {
	long := strings.Repeat("x", 2*segmentTextLimit)
	var messages []string
	for i := range 1000 {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"%d %s"}]}`, i, long))
	}
	v, err := newAnatomy([]byte(`{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`), forkcore.RequestRow{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	boxes, left, size := 0, 0, 0
	for _, g := range v.Groups {
		for _, b := range g.Segments {
			if left += b.Left; b.Left == 0 {
				boxes++
			}
			size += len(b.Text)
		}
	}
	if boxes+left != 1001 || boxes > anatomyTail+anatomyEdge+1 || size > anatomyTextLimit {
		t.Errorf("%d boxes, %d left out, %d bytes of text", boxes, left, size)
	}
}

// What a response told beside its answer: rate limits, and why the model refused.
func TestRequestTellsLimitsAndRefusals(t *testing.T) {
	row := forkcore.RequestRow{
		RunID: followerID, N: 1, StartedAt: noon, StopReason: "refusal",
		StopDetails: &forkcore.StopDetails{Type: "refusal", Category: "general_harms", Explanation: "<i>No.</i>"},
		Limits:      []forkcore.RateLimit{{Name: "input-tokens", Limit: 2_000_000, Remaining: 1_994_000, Reset: noon}, {Name: "requests", Limit: 50}},
	}
	var b strings.Builder
	if err := requestPage(frame{}, requestPageView{requestView: newRequestView(row, nil)}).Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	said := text(parse(t, b.String()))
	for _, want := range []string{"The provider refused to go on (general harms). <i>No.</i>", "input-tokens 2,000,000 1,994,000 2026-11-20 12:00:00 UTC", "requests 50 0 not told"} {
		if !strings.Contains(said, want) {
			t.Errorf("the page does not say %q:\n%s", want, said)
		}
	}
}
