package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
	"forkyard/web/sse"
)

// event is the data of a frame. One of the objects is set, by type.
type event struct {
	Type      forkcore.EventType `json:"type"`
	SessionID string             `json:"session_id"`
	RunID     string             `json:"run_id,omitempty"`
	AgentID   string             `json:"agent_id,omitempty"` // message: whose log it is
	At        *string            `json:"at"`
	Session   *session           `json:"session,omitempty"`
	Run       *run               `json:"run,omitempty"` // run and notification
	Dispatch  *dispatch          `json:"dispatch,omitempty"`
	Request   *request           `json:"request,omitempty"`
	*delta
}

// delta is a piece of a message that is being written.
type delta struct {
	// Seq is the seq that the message will get, Offset the bytes of the block's text before this piece.
	Seq    int64  `json:"seq"`
	Block  int    `json:"block"`
	Kind   string `json:"kind"` // text, thinking or tool_input
	Offset int64  `json:"offset"`
	Text   string `json:"text"`
	Tool   string `json:"tool,omitempty"`
}

// encodeEvent turns an event into the frame that all clients get.
func (a *API) encodeEvent(ctx context.Context, e forkcore.Event) (sse.Frame, error) {
	v := event{Type: e.Type, SessionID: e.SessionID, RunID: e.RunID, At: stamp(e.At)}
	switch {
	case e.Session != nil:
		s, err := a.eventSession(ctx, *e.Session)
		if err != nil {
			return sse.Frame{}, err
		}
		v.Session = &s
	case e.Run != nil:
		r := runView(*e.Run)
		v.Run = &r
	case e.Dispatch != nil:
		d := dispatchView(*e.Dispatch, a.prices)
		v.Dispatch = &d
	case e.Request != nil:
		r := requestView(*e.Request)
		v.Request = &r
	case e.Entry != nil:
		v.AgentID = e.AgentID
	case e.Type == forkcore.EventDelta:
		v.delta = &delta{}
		if err := json.Unmarshal(e.Delta, v.delta); err != nil {
			return sse.Frame{}, fmt.Errorf("reading a delta of run %s: %w", e.RunID, err)
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		return sse.Frame{}, fmt.Errorf("encoding event %s of session %s: %w", e.ID, e.SessionID, err)
	}
	if e.Entry != nil {
		line, err := a.eventLine(ctx, e)
		if err != nil {
			return sse.Frame{}, err
		}
		data = append(append(data[:len(data)-1], `,"message":`...), line...)
		data = append(data, '}')
	}
	return sse.Frame{ID: e.ID, Event: string(e.Type), Data: data}, nil
}

// eventSession shows the session of an event. The state of its main turn comes from the run, which may have gone on
// since: the newest state is what a reader wants.
func (a *API) eventSession(ctx context.Context, s forkcore.Session) (session, error) {
	active, err := ActiveRun(ctx, a.reader, s, nil)
	if err != nil && !errors.Is(err, forkcore.ErrNotFound) {
		return session{}, err
	}
	if active != nil && active.State.Ended() {
		active = nil
	}
	return sessionView(s, active, nil, a.accountID(), a.now(), a.simulated), nil
}

// eventLine is the transcript line of a message event. A line whose bytes are damaged or gone comes with a null message, so that the
// stream can go on.
func (a *API) eventLine(ctx context.Context, e forkcore.Event) ([]byte, error) {
	line := forkcore.TranscriptLine{Seq: e.Entry.Seq, At: e.Entry.At, Kind: e.Entry.Kind, RunID: e.Entry.RunID, Marker: e.Entry.Marker}
	if e.Entry.Kind == forkcore.EntryMessage {
		full, err := a.bytes.Assemble(ctx, e.SessionID, *e.Entry, e.AgentID)
		switch {
		case err == nil:
			line = full
		case errors.Is(err, forkcore.ErrCorrupt), errors.Is(err, forkcore.ErrNotFound):
			a.log.Error("event sent without its message", "session_id", e.SessionID, "event_id", e.ID, "error", err)
		default:
			return nil, fmt.Errorf("reading the message of event %s: %w", e.ID, err)
		}
	}
	return appendLine(nil, line)
}

// Cursor reads where a stream goes on, nil for now: the header of a browser that reconnects wins over the address that it was opened with.
func Cursor(c echo.Context) (*sse.ID, error) {
	field, text := "Last-Event-ID", c.Request().Header.Get("Last-Event-ID")
	if text == "" {
		field, text = "after", c.QueryParam("after")
	}
	if text == "" {
		return nil, nil
	}
	id, err := sse.ParseID(text)
	if err != nil {
		return nil, forkcore.Invalid(field, `must be an event id such as "1700000000000-0", or 0 for the beginning`)
	}
	return &id, nil
}

func (a *API) sessionEvents(c echo.Context) error {
	after, err := Cursor(c)
	if err != nil {
		return err
	}
	id := c.Param("id")
	if _, err := a.reader.Session(c.Request().Context(), id); err != nil {
		return err
	}
	if isHead(c) {
		return streamHead(c)
	}
	return a.streamEnded(c, a.streams.Session(c.Request().Context(), c.Response(), id, after))
}

func (a *API) allEvents(c echo.Context) error {
	after, err := Cursor(c)
	if err != nil {
		return err
	}
	if isHead(c) {
		return streamHead(c)
	}
	return a.streamEnded(c, a.streams.All(c.Request().Context(), c.Response(), after))
}

func streamHead(c echo.Context) error {
	c.Response().Header().Set("Content-Type", "text/event-stream")
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.NoContent(http.StatusOK)
}

// streamEnded answers an error that came before the headers, and logs one that came later: the client sees the end and resumes.
func (a *API) streamEnded(c echo.Context, err error) error {
	if err == nil || !c.Response().Committed {
		return err
	}
	a.log.Info("stream ended early", "path", c.Request().URL.Path, "error", err)
	return nil
}
