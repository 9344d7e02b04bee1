package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
	"forkyard/web/sse"
)

// eventsOf makes one event of every type.
func eventsOf(t *testing.T, f *fake) []forkcore.Event {
	t.Helper()
	s, err := f.session(sessionID)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.run(forkID)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.dispatch(dispatchID)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := f.requests(forkID)
	if err != nil {
		t.Fatal(err)
	}
	of := func(e forkcore.Event) forkcore.Event { e.SessionID, e.At = sessionID, noon; return e }
	return []forkcore.Event{
		of(forkcore.Event{ID: "1-0", Type: forkcore.EventSession, Session: &s}),
		of(forkcore.Event{ID: "2-0", Type: forkcore.EventRun, RunID: forkID, Run: &r}),
		of(forkcore.Event{ID: "3-0", Type: forkcore.EventNotification, RunID: forkID, Run: &r}),
		of(forkcore.Event{ID: "4-0", Type: forkcore.EventGate, Dispatch: &d}),
		of(forkcore.Event{ID: "5-0", Type: forkcore.EventRequest, RunID: forkID, Request: &rows[0]}),
		of(forkcore.Event{ID: "6-0", Type: forkcore.EventMessage, RunID: mainID, AgentID: sessionID, Entry: &forkcore.Entry{Seq: 4, At: noon, Kind: forkcore.EntryMessage, RunID: mainID, Blob: snapID}}),
		of(forkcore.Event{ID: "7-0", Type: forkcore.EventMessage, RunID: forkID, AgentID: forkID, Entry: &forkcore.Entry{Seq: 1, At: noon, Kind: forkcore.EntryMarker, RunID: forkID, Marker: &forkcore.Marker{Type: forkcore.MarkerForkOf, Snapshot: &snapID}}}),
		of(forkcore.Event{Type: forkcore.EventDelta, RunID: mainID, Delta: []byte(`{"session_id":"` + sessionID + `","run_id":"` + mainID + `","seq":5,"block":1,"kind":"text","offset":7,"text":"hé"}`)}),
	}
}

func encoder(f *fake) *API {
	return &API{reader: f, bytes: f, now: func() time.Time { return noon }, log: slog.New(slog.DiscardHandler)}
}

func TestEncodeEvent(t *testing.T) {
	f := newFake()
	doc := document(t)
	schema := object{"$ref": "#/components/schemas/Event"}
	a := encoder(f)
	for _, e := range eventsOf(t, f) {
		t.Run(string(e.Type)+e.ID, func(t *testing.T) {
			frame, err := a.encodeEvent(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if frame.ID != e.ID || frame.Event != string(e.Type) {
				t.Errorf("frame %s %s", frame.ID, frame.Event)
			}
			var v any
			if err := json.Unmarshal(frame.Data, &v); err != nil {
				t.Fatalf("%v in %s", err, frame.Data)
			}
			for _, problem := range check(doc, schema, v, "data") {
				t.Error(problem)
			}
			object := map[forkcore.EventType]string{
				forkcore.EventSession: "session", forkcore.EventRun: "run", forkcore.EventNotification: "run", forkcore.EventGate: "dispatch",
				forkcore.EventRequest: "request", forkcore.EventMessage: "message", forkcore.EventDelta: "text",
			}[e.Type]
			if m := v.(map[string]any); m[object] == nil || m["type"] != string(e.Type) || m["session_id"] != sessionID {
				t.Errorf("no %s in %s", object, frame.Data)
			}
		})
	}
}

func TestEncodeEventKeepsMessageBytes(t *testing.T) {
	f := newFake()
	e := eventsOf(t, f)[5]
	frame, err := encoder(f).encodeEvent(t.Context(), e)
	if err != nil || !strings.HasSuffix(string(frame.Data), `"message":`+messageBytes+`}}`) {
		t.Errorf("%s, %v", frame.Data, err)
	}
	f.assemble = func(string, forkcore.Entry, string) (forkcore.TranscriptLine, error) {
		return forkcore.TranscriptLine{}, fmt.Errorf("blob: %w", forkcore.ErrCorrupt)
	}
	if frame, err = encoder(f).encodeEvent(t.Context(), e); err != nil || !strings.HasSuffix(string(frame.Data), `"seq":4,"at":"2026-11-20T12:00:00.123Z","kind":"message","run_id":"`+mainID+`","message":null}}`) {
		t.Errorf("damaged bytes: %s, %v; want a line without them, so that the stream goes on", frame.Data, err)
	}
	f.assemble = func(string, forkcore.Entry, string) (forkcore.TranscriptLine, error) {
		return forkcore.TranscriptLine{}, forkcore.ErrStoreUnavailable
	}
	if _, err = encoder(f).encodeEvent(t.Context(), e); !errors.Is(err, forkcore.ErrStoreUnavailable) {
		t.Errorf("error %v, want that of the store: the client reads the event when it resumes", err)
	}
}

// feed is a store of numbered run events.
func feed(f *fake, upTo int) {
	f.events = func(_, after string, limit int) ([]forkcore.Event, error) {
		from, err := sse.ParseID(after)
		if err != nil {
			return nil, err
		}
		r, err := f.run(forkID)
		var found []forkcore.Event
		for n := from.MS + 1; n <= uint64(upTo) && len(found) < limit; n++ {
			found = append(found, forkcore.Event{ID: fmt.Sprintf("%d-0", n), Type: forkcore.EventRun, SessionID: sessionID, At: noon, Run: &r})
		}
		return found, err
	}
	f.lastEventID = func(string) (string, error) { return fmt.Sprintf("%d-0", upTo), nil }
}

// ids opens a stream and returns the ids of the first frames.
func ids(t *testing.T, url string, count int, header ...string) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatalf("%s: %d %v", url, res.StatusCode, res.Header)
	}
	var got []string
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && len(got) < count {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			lines.Scan()
			got = append(got, id+" "+strings.TrimPrefix(lines.Text(), "event: "))
		}
	}
	return got
}

func TestStreamCursors(t *testing.T) {
	f := newFake()
	feed(f, 100)
	server := serve(t, f)
	tests := []struct {
		name, path string
		header     []string
		first      string
		count      int
	}{
		{"from the beginning", "/sessions/" + sessionID + "/events?after=0", nil, "1-0 run", 100},
		{"after", "/sessions/" + sessionID + "/events?after=40-0", nil, "41-0 run", 60},
		{"header", "/sessions/" + sessionID + "/events", []string{"Last-Event-ID", "40-0"}, "41-0 run", 60},
		{"the header wins", "/sessions/" + sessionID + "/events?after=0", []string{"Last-Event-ID", "98-0"}, "99-0 run", 2},
		{"from now", "/sessions/" + sessionID + "/events", nil, "100-0 heartbeat", 1},
		{"all sessions", "/events?after=0", nil, "0-0 run", 100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := ids(t, server.URL+"/api/v1"+test.path, test.count, test.header...)
			if len(got) != test.count || got[0] != test.first {
				t.Errorf("%d frames, first %v; want %d, %s", len(got), got[:min(1, len(got))], test.count, test.first)
			}
		})
	}
}

func TestStreamErrors(t *testing.T) {
	f := newFake()
	server := serve(t, f)
	stream := "/sessions/" + sessionID + "/events"
	tests := []struct {
		name, path string
		header     []string
		status     int
		field      string
	}{
		{"bad after", stream + "?after=yesterday", nil, 422, `"after"`},
		{"bad header", stream + "?after=0", []string{"Last-Event-ID", "1-x"}, 422, `"Last-Event-ID"`},
		{"bad after of all", "/events?after=-1", nil, 422, `"after"`},
		{"unknown session", "/sessions/ses_03qqqqqqqqqqqqqqqq/events?after=0", nil, 404, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			res, body := call(t, server, "GET", test.path, "", test.header...)
			if res.StatusCode != test.status || !strings.Contains(body, test.field) || res.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		})
	}
	f.lastEventID = func(string) (string, error) { return "", forkcore.ErrStoreUnavailable }
	f.sessions = func(string, int) ([]forkcore.Session, string, error) { return nil, "", forkcore.ErrStoreUnavailable }
	for _, path := range []string{stream, stream + "?after=0", "/events", "/events?after=0"} {
		if res, body := call(t, server, "GET", path, ""); res.StatusCode != 503 {
			t.Errorf("GET %s without the database: %d %s", path, res.StatusCode, body)
		}
	}
}
