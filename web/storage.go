package web

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"forkyard/forkcore"
)

const (
	// storedShown is how many sessions the page of the storage lists, the largest first.
	storedShown = 200
	// memoryKept is for how long an answer about the memory serves all pages; samples are a minute apart.
	memoryKept = 10 * time.Second
)

// memoryWatch keeps the latest answer about the database's memory.
type memoryWatch struct {
	mu    sync.Mutex
	at    time.Time
	known *forkcore.Memory
}

// memory is what is known of the database's memory; nil when that is nothing, or it does not answer in time.
func (s *Server) memory(ctx context.Context) *forkcore.Memory {
	if s.o.Storage == nil {
		return nil
	}
	w := &s.memoryWatch
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := s.o.Now(); w.at.IsZero() || now.Sub(w.at) >= memoryKept {
		ctx, cancel := context.WithTimeout(ctx, bannerPatience)
		defer cancel()
		known, err := s.o.Storage.Memory(ctx)
		if err != nil {
			return nil
		}
		w.at, w.known = now, known
	}
	return w.known
}

// memoryView is the memory as people read it.
type memoryView struct {
	Used, Limit, Part string
	Fill              int // percent, 0 to 100
	Own               bool
	Left              string // in how much time it is full, or why that is not known
	Rate              string // empty: it does not grow, or that is not known
	Scarce            bool
}

func newMemoryView(m *forkcore.Memory) *memoryView {
	if m == nil {
		return nil
	}
	v := &memoryView{Used: sizeText(m.Used), Limit: "not known", Part: "–", Own: m.Own, Scarce: m.Scarce()}
	if m.Limit > 0 {
		part := m.UsedPart()
		v.Limit, v.Part, v.Fill = sizeText(m.Limit), wholePercent(&part), int(min(1, part)*100)
	}
	f := m.Forecast()
	switch f.Growth {
	case forkcore.GrowthNone:
		v.Left = "not growing"
	case forkcore.GrowthSteady:
		v.Left, v.Rate = daysText(f.Left), fmt.Sprintf("%s a day, measured over the last %s", sizeText(f.PerDay), hoursText(f.Over))
	case forkcore.GrowthUnknown:
		v.Left = "not known yet"
	}
	return v
}

// sizeText is a number of bytes with three digits or so.
func sizeText(n int64) string {
	value, unit := float64(n), "bytes"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1000 {
			break
		}
		value, unit = value/1024, u
	}
	if unit == "bytes" || value >= 100 {
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// daysText is how long something lasts.
func daysText(d time.Duration) string {
	switch days := d.Hours() / 24; {
	case days >= 365:
		return "more than a year"
	case days >= 10:
		return fmt.Sprintf("%.0f days", days)
	case days >= 2:
		return fmt.Sprintf("%.1f days", days)
	case d >= time.Hour:
		return hoursText(d)
	case d > 0:
		return "less than an hour"
	}
	return "none: it is full"
}

func hoursText(d time.Duration) string { return counted(int64(d.Round(time.Hour)/time.Hour), "hour") }

// storageView is the page of the storage.
type storageView struct {
	Memory         *memoryView
	Archive        *archiveView
	Live, Archived string
	Rows           []storedRow
	More           bool
}

// archiveView says when sessions are put away.
type archiveView struct{ Host, Dir, After, Above string }

// storedRow is a session by its size.
type storedRow struct {
	ID, Title, Path string
	Size            string
	Changed         time.Time
	At              time.Time // when it was archived; zero: it is not
	Where           string    // the file, when another dashboard wrote it
	Busy            bool
}

func newArchiveView(p forkcore.ArchivePolicy) *archiveView {
	if p.Dir == "" {
		return nil
	}
	v := &archiveView{Host: p.Host, Dir: p.Dir}
	if p.After > 0 {
		v.After = hoursText(p.After)
		if p.After >= 48*time.Hour {
			v.After = counted(int64(p.After/(24*time.Hour)), "day")
		}
	}
	if p.Above > 0 {
		v.Above = wholePercent(&p.Above)
	}
	return v
}

func newStorageView(known forkcore.Storage) storageView {
	v := storageView{Memory: newMemoryView(known.Memory), Archive: newArchiveView(known.Archive), More: len(known.Sessions) > storedShown}
	var live, archived int64
	for i, stored := range known.Sessions {
		s := stored.Session
		if s.Archived == nil {
			live++
		} else {
			archived++
		}
		if i >= storedShown {
			continue
		}
		row := storedRow{ID: s.ID, Title: sessionTitle(s), Path: pathSession + s.ID, Size: "not measured yet", Changed: s.UpdatedAt, Busy: s.ActiveRuns > 0}
		if stored.Bytes > 0 {
			row.Size = sizeText(stored.Bytes)
		}
		if a := s.Archived; a != nil {
			row.At, row.Size = a.At, sizeText(a.Bytes)+" on disk"
			if a.Host != known.Archive.Host || a.Dir != known.Archive.Dir {
				row.Where = a.Host + ":" + filepath.Join(a.Dir, s.ID+".fyz")
			}
		}
		v.Rows = append(v.Rows, row)
	}
	v.Live, v.Archived = counted(live, "session"), grouped(archived)
	return v
}

func (s *Server) storagePage(c echo.Context) error {
	var known forkcore.Storage
	if s.o.Storage != nil {
		var err error
		if known, err = s.o.Storage.Storage(c.Request().Context()); err != nil {
			return err
		}
	}
	f := s.frame(c, "Storage")
	f.Memory = nil // the page says it itself
	return s.render(c, http.StatusOK, storagePage(f, newStorageView(known)))
}

// archiveSession puts a session away and shows where it is now: its own page would bring it back.
func (s *Server) archiveSession(c echo.Context) error {
	if !s.canArchive() {
		return &forkcore.ConflictError{Message: "This dashboard has no archive.", NextStep: "Install redis-server and start again: an in-process Redis keeps nothing that could be put away."}
	}
	if _, err := s.o.Storage.ArchiveSession(c.Request().Context(), c.Param("id")); err != nil {
		return err
	}
	return seeOther(c, pathStorage)
}

func (s *Server) canArchive() bool {
	return s.o.Storage != nil && s.o.Storage.ArchivePolicy().Dir != ""
}

// memoryMetrics writes the gauges of the database's memory, which all processes share.
func memoryMetrics(m *forkcore.Memory, single func(name, kind, help string, value int64)) {
	if m == nil {
		return
	}
	single("forkyard_redis_memory_used_bytes", "gauge", "Memory that Redis uses.", m.Used)
	if m.Limit > 0 {
		single("forkyard_redis_memory_limit_bytes", "gauge", "Its maxmemory or, without one, the memory of its host.", m.Limit)
	}
	if f := m.Forecast(); f.Growth == forkcore.GrowthSteady {
		single("forkyard_redis_memory_seconds_left", "gauge", "Time until the limit at the rate of the last 24 hours; absent while it does not grow or that is not known.", int64(f.Left.Seconds()))
	}
}

// archiveRule says in words when sessions are put away.
func archiveRule(v archiveView) string {
	var rules []string
	if v.After != "" {
		rules = append(rules, "when nobody changed or opened them for "+v.After)
	}
	if v.Above != "" {
		rules = append(rules, "the oldest first, while memory is above "+v.Above)
	}
	if len(rules) == 0 {
		return "only by hand"
	}
	return "by themselves " + strings.Join(rules, ", and ")
}
