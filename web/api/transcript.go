package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// appendLine appends a transcript line as JSON. The message's bytes are spliced in as they are: encoding/json would
// compact and escape them. A line break in them is white space between JSON tokens, kept from a
// tool input as the model sent it; it becomes a space, since it would end the line.
func appendLine(b []byte, l forkcore.TranscriptLine) ([]byte, error) {
	head, err := json.Marshal(struct {
		Seq    int64              `json:"seq"`
		At     *string            `json:"at"`
		Kind   forkcore.EntryKind `json:"kind"`
		RunID  string             `json:"run_id"`
		Marker *forkcore.Marker   `json:"marker,omitempty"`
	}{l.Seq, stamp(l.At), l.Kind, l.RunID, l.Marker})
	if err != nil {
		return nil, fmt.Errorf("encoding transcript line %d: %w", l.Seq, err)
	}
	b = append(b, head...)
	if l.Kind != forkcore.EntryMessage {
		return b, nil
	}
	b = append(b[:len(b)-1], `,"message":`...)
	start := len(b)
	if len(l.Message) == 0 {
		b = append(b, "null"...)
	}
	b = append(b, l.Message...)
	for i := start; i < len(b); i++ {
		if b[i] == '\n' || b[i] == '\r' {
			b[i] = ' '
		}
	}
	return append(b, '}'), nil
}

func (a *API) transcript(c echo.Context) error {
	after, err := sequence(c, "after")
	if err != nil {
		return err
	}
	lines, err := a.bytes.Transcript(c.Request().Context(), c.Param("id"), after)
	if err != nil {
		return err
	}
	var body []byte
	for _, l := range lines {
		if body, err = appendLine(body, l); err != nil {
			return err
		}
		body = append(body, '\n')
	}
	return c.Blob(http.StatusOK, "application/x-ndjson", body)
}
