package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

// readyQueue is a ready list that notes what was asked of it.
type readyQueue struct {
	status forkcore.QueueStatus
	asked  []string
}

func (q *readyQueue) Queue(context.Context) (forkcore.QueueStatus, error) { return q.status, nil }

func (q *readyQueue) Pause(_ context.Context, scope string, paused bool) error {
	q.asked = append(q.asked, map[bool]string{true: "pause ", false: "resume "}[paused]+scope)
	return nil
}

func (q *readyQueue) DrainWorker(_ context.Context, id string, on bool) error {
	q.asked = append(q.asked, map[bool]string{true: "drain ", false: "undrain "}[on]+id)
	return nil
}

func TestQueuePage(t *testing.T) {
	f := idleSession()
	q := &readyQueue{}
	s := serve(t, f, func(o *Options) { o.Queue = q })
	shown := func() string {
		return strings.Join(strings.Fields(text(page(t, s, pathQueue, http.StatusOK, "Authorization", bearer))), " ")
	}
	if got := shown(); !strings.Contains(got, "No worker is there") || !strings.Contains(got, "Pause everything") {
		t.Errorf("an empty queue: %s", got)
	}
	q.status = forkcore.QueueStatus{
		PausedSince: new(noon),
		Pools:       []forkcore.QueuePool{{ID: "0a", Root: "/srv/" + villain, Interactive: 1200, Batch: 3}, {ID: "0b", Root: "/srv/b", Workers: 2, Paused: true}},
		Sessions:    []forkcore.QueuedSession{{SessionID: sessionID, Ready: 1203, Paused: true}, {SessionID: "ses_03zzzzzzzzzzzzzzzz"}},
		Workers:     []forkcore.Worker{{ID: "exe_1", Host: "alpha", PID: 7, Slots: 32, Busy: 4, Roots: []string{"/srv/b"}, StartedAt: noon, SeenAt: noon.Add(time.Minute), Draining: true}},
	}
	root := page(t, s, pathQueue, http.StatusOK, "Authorization", bearer)
	harmless(t, root)
	got := shown()
	for _, want := range []string{
		"Nothing new starts since", "Start again", "1203 waiting", "1,200", "No worker has it", "Resume", "Audit", "1 worker", "alpha, process 7", "4 of 32", "drained", "Take runs again",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

func TestQueueActions(t *testing.T) {
	q := &readyQueue{}
	s := serve(t, idleSession(), func(o *Options) { o.Queue = q })
	post := func(path string, form url.Values, status int, header ...string) string {
		res, _, body := s.post(t, path, form, header...)
		if res.StatusCode != status {
			t.Errorf("POST %s %v: %d, want %d: %s", path, form, res.StatusCode, status, body)
		}
		return body
	}
	post(pathQueue+"/pause", url.Values{"scope": {"all"}}, http.StatusSeeOther)
	if body := post(pathQueue+"/resume", url.Values{"scope": {"session:" + sessionID}}, http.StatusOK, "HX-Request", "true"); !strings.Contains(body, `id="queue"`) || strings.Contains(body, "<html") {
		t.Errorf("a part of the page is %s", body)
	}
	post(pathQueue+"/workers/exe_1/drain", nil, http.StatusSeeOther)
	post(pathQueue+"/workers/exe_1/drain", url.Values{"on": {"0"}}, http.StatusSeeOther)
	post(pathQueue+"/pause", url.Values{"scope": {"nonsense"}}, http.StatusUnprocessableEntity)
	if want := []string{"pause all", "resume session:" + sessionID, "drain exe_1", "undrain exe_1"}; !slices.Equal(q.asked, want) {
		t.Errorf("asked %q, want %q", q.asked, want)
	}
}

// TestUnservedIsSaid: a queued fork whose workspace no worker has does not only wait for a free one.
func TestUnservedIsSaid(t *testing.T) {
	for _, workers := range []int{0, 1} {
		f := idleSession()
		f.sessions[0].Root = "/srv/a"
		queued := sampleFork(forkcore.Queued)
		queued.SessionID, queued.DispatchID = sessionID, dispatchID
		f.runs[sessionID] = append([]forkcore.Run{queued}, f.runs[sessionID]...)
		f.dispatches = map[string]forkcore.Dispatch{dispatchID: {ID: dispatchID, SessionID: sessionID, RunIDs: []string{forkID}, Remaining: 1, Version: 1}}
		q := &readyQueue{status: forkcore.QueueStatus{Pools: []forkcore.QueuePool{{ID: "0a", Root: "/srv/a", Interactive: 1, Workers: workers}}}}
		s := serve(t, f, func(o *Options) { o.Queue, o.Bytes = q, &logOf{} }).web
		p, _, err := s.loadSession(t.Context(), sessionID, -1, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.groups()[0].cards[0].Wait; strings.Contains(got, "none is there") != (workers == 0) {
			t.Errorf("with %d workers: %q", workers, got)
		}
	}
}
