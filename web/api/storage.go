package api

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

// Storage tells where sessions are kept, and puts them away.
type Storage interface {
	Storage(ctx context.Context) (forkcore.Storage, error)
	// Memory is nil for a database that tells nothing of it.
	Memory(ctx context.Context) (*forkcore.Memory, error)
	ArchivePolicy() forkcore.ArchivePolicy
	// NoteOpen says that somebody looks at a session, so that it is not put away by itself for an hour.
	NoteOpen(ctx context.Context, sessionID string)
	// ArchiveSession puts a session away; one that has something to do is a *forkcore.ConflictError.
	ArchiveSession(ctx context.Context, sessionID string) (forkcore.Archived, error)
}

// archived says where a session lies.
type archived struct {
	At     *string         `json:"at"`
	Host   string          `json:"host"`
	Folder string          `json:"folder"`
	Bytes  int64           `json:"bytes"`
	SHA256 forkcore.Digest `json:"sha256"`
}

func archivedView(a *forkcore.Archived) *archived {
	if a == nil {
		return nil
	}
	return &archived{At: stamp(a.At), Host: a.Host, Folder: a.Dir, Bytes: a.Bytes, SHA256: a.SHA256}
}

// memory is the database's memory in JSON.
type memory struct {
	UsedBytes       int64           `json:"used_bytes"`
	LimitBytes      *int64          `json:"limit_bytes"`
	LimitOf         string          `json:"limit_of"` // redis or host
	Used            float64         `json:"used"`
	Growth          forkcore.Growth `json:"growth"`
	BytesPerDay     *int64          `json:"bytes_per_day"`
	DaysLeft        *float64        `json:"days_left"`
	MeasuredSeconds int64           `json:"measured_seconds"`
	Scarce          bool            `json:"scarce"`
}

func memoryView(m *forkcore.Memory) *memory {
	if m == nil {
		return nil
	}
	f := m.Forecast()
	v := &memory{UsedBytes: m.Used, LimitOf: "host", Used: m.UsedPart(), Growth: f.Growth, MeasuredSeconds: int64(f.Over.Seconds()), Scarce: m.Scarce()}
	if m.Own {
		v.LimitOf = "redis"
	}
	if m.Limit > 0 {
		v.LimitBytes = &m.Limit
	}
	if f.Growth == forkcore.GrowthSteady {
		days := f.Left.Hours() / 24
		v.BytesPerDay, v.DaysLeft = &f.PerDay, &days
	}
	return v
}

// archivePolicy says when sessions are put away.
type archivePolicy struct {
	Host         string   `json:"host"`
	Folder       string   `json:"folder"`
	AfterSeconds *int64   `json:"after_seconds"`
	Above        *float64 `json:"above"`
}

func policyView(p forkcore.ArchivePolicy) *archivePolicy {
	if p.Dir == "" {
		return nil
	}
	v := &archivePolicy{Host: p.Host, Folder: p.Dir}
	if p.After > 0 {
		seconds := int64(p.After.Seconds())
		v.AfterSeconds = &seconds
	}
	if p.Above > 0 {
		v.Above = &p.Above
	}
	return v
}

// storedSession is a session by its size.
type storedSession struct {
	ID        string    `json:"id"`
	Title     string    `json:"title"`
	UpdatedAt *string   `json:"updated_at"`
	Bytes     *int64    `json:"bytes"`
	Archived  *archived `json:"archived"`
}

func (a *API) getStorage(c echo.Context) error {
	_, limit, err := page(c)
	if err != nil {
		return err
	}
	if a.storage == nil {
		return noStorage()
	}
	known, err := a.storage.Storage(c.Request().Context())
	if err != nil {
		return err
	}
	v := struct {
		Memory   *memory         `json:"memory"`
		Archive  *archivePolicy  `json:"archive"`
		Live     int             `json:"live_sessions"`
		Archived int             `json:"archived_sessions"`
		Sessions []storedSession `json:"sessions"`
	}{Memory: memoryView(known.Memory), Archive: policyView(known.Archive), Sessions: []storedSession{}}
	for _, s := range known.Sessions {
		if s.Session.Archived == nil {
			v.Live++
		} else {
			v.Archived++
		}
		if len(v.Sessions) == limit {
			continue
		}
		row := storedSession{ID: s.Session.ID, Title: s.Session.Title, UpdatedAt: stamp(s.Session.UpdatedAt), Archived: archivedView(s.Session.Archived)}
		if s.Bytes > 0 {
			row.Bytes = &s.Bytes
		}
		v.Sessions = append(v.Sessions, row)
	}
	return c.JSON(http.StatusOK, v)
}

// noStorage is the answer where nothing is known of the storage.
func noStorage() error {
	return &forkcore.ConflictError{Message: "This process tells nothing of its storage and has no archive.", NextStep: "Ask a dashboard with a Redis."}
}

func (a *API) archiveSession(c echo.Context) error {
	if a.storage == nil {
		return noStorage()
	}
	id := c.Param("id")
	lies, err := a.storage.ArchiveSession(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, struct {
		ID       string    `json:"id"`
		Archived *archived `json:"archived"`
	}{id, archivedView(&lies)})
}
