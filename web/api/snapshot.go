package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// snapshot is a manifest in JSON.
type snapshot struct {
	ID           string                 `json:"id"`
	CreatedAt    *string                `json:"created_at"`
	UpdatedAt    *string                `json:"updated_at"` // a snapshot never changes
	SHA256       string                 `json:"sha256"`
	SessionID    string                 `json:"session_id"`
	Sessions     []string               `json:"sessions"`
	Bytes        int64                  `json:"bytes"`
	Segments     []forkcore.Segment     `json:"segments"`
	Params       forkcore.Params        `json:"params"`
	Tools        []string               `json:"tools"`
	Placeholders int                    `json:"placeholders"`
	Boilerplate  int                    `json:"boilerplate_version"`
	UpToSeq      int64                  `json:"up_to_seq"`
	Entries      []forkcore.CacheEntry  `json:"entries"`
	Replacements []forkcore.Replacement `json:"replacements"`
}

func snapshotView(s forkcore.Snapshot, sessions []string) snapshot {
	v := snapshot{
		ID: s.ID.String(), SHA256: s.ID.String(), CreatedAt: stamp(s.CreatedAt), UpdatedAt: stamp(s.CreatedAt),
		SessionID: s.SessionID, Sessions: sessions, Bytes: s.Bytes, Segments: s.Segments, Params: s.Params,
		Tools: s.Tools, Placeholders: s.Placeholders, Boilerplate: s.BoilerplateVersion, UpToSeq: s.UpToSeq, Entries: make([]forkcore.CacheEntry, len(s.Entries)),
		Replacements: s.Replacements,
	}
	if v.Segments == nil {
		v.Segments = []forkcore.Segment{}
	}
	if v.Replacements == nil {
		v.Replacements = []forkcore.Replacement{}
	}
	if v.Tools == nil {
		v.Tools = []string{}
	}
	for i, e := range s.Entries {
		e.UsedAt = e.UsedAt.UTC().Truncate(time.Millisecond) // as all times of the API
		v.Entries[i] = e
	}
	return v
}

// findSnapshot reads the manifest from the first session that still holds it.
func (a *API) findSnapshot(ctx context.Context, text string) (forkcore.Snapshot, []string, error) {
	id, err := forkcore.ParseDigest(text)
	if err != nil {
		return forkcore.Snapshot{}, nil, err
	}
	sessions, err := a.reader.SessionsOfSnapshot(ctx, id)
	if err != nil {
		return forkcore.Snapshot{}, nil, err
	}
	missing := forkcore.ErrNotFound
	for _, sessionID := range sessions {
		s, err := a.reader.Snapshot(ctx, sessionID, id)
		if errors.Is(err, forkcore.ErrNotFound) {
			continue // the index may name a session that was deleted
		}
		if errors.Is(err, forkcore.ErrConflict) {
			missing = err // it is archived where this dashboard cannot open it; another session may be here
			continue
		}
		return s, sessions, err
	}
	return forkcore.Snapshot{}, nil, missing
}

func (a *API) getSnapshot(c echo.Context) error {
	s, sessions, err := a.findSnapshot(c.Request().Context(), c.Param("sha256"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, snapshotView(s, sessions))
}

// snapshotBytes answers with the prefix of a JSON document, which is no JSON by itself.
func (a *API) snapshotBytes(c echo.Context) error {
	s, _, err := a.findSnapshot(c.Request().Context(), c.Param("sha256"))
	if err != nil {
		return err
	}
	body, err := a.bytes.SnapshotBytes(c.Request().Context(), s.SessionID, s.ID)
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, echo.MIMEOctetStream, body)
}
