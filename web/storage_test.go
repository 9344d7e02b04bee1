package web

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"forkyard/forkcore"
)

// stores is a Storage that answers what it is told and counts how often it is asked.
type stores struct {
	known    forkcore.Storage
	err      error
	archived []string
	asked    int
	opened   chan string
}

func (s *stores) Storage(context.Context) (forkcore.Storage, error) { return s.known, s.err }
func (s *stores) Memory(context.Context) (*forkcore.Memory, error) {
	s.asked++
	return s.known.Memory, s.err
}
func (s *stores) ArchivePolicy() forkcore.ArchivePolicy { return s.known.Archive }
func (s *stores) NoteOpen(_ context.Context, id string) { s.opened <- id }
func (s *stores) ArchiveSession(_ context.Context, id string) (forkcore.Archived, error) {
	s.archived = append(s.archived, id)
	return forkcore.Archived{}, s.err
}

const gigabyte = 1 << 30

// memoryOf is one that was at zero a day ago.
func memoryOf(used, limit int64) *forkcore.Memory {
	return &forkcore.Memory{
		MemorySample: forkcore.MemorySample{At: noon, Used: used}, Limit: limit, Own: true,
		Samples: []forkcore.MemorySample{{At: noon.Add(-24 * time.Hour)}},
	}
}

func TestStoragePage(t *testing.T) {
	here := forkcore.ArchivePolicy{Host: "here", Dir: "/data/archive", After: 30 * 24 * time.Hour, Above: 0.8}
	st := &stores{known: forkcore.Storage{
		Memory: memoryOf(gigabyte, 11*gigabyte), Archive: here,
		Sessions: []forkcore.StoredSession{
			{Session: forkcore.Session{ID: sessionID, Title: "Large", UpdatedAt: noon}, Bytes: 5 << 20},
			{Session: forkcore.Session{ID: "ses_03bbbbbbbbbbbbbbbb", Title: "Busy", UpdatedAt: noon, ActiveRuns: 1}},
			{Session: forkcore.Session{ID: "ses_03cccccccccccccccc", Title: "Away", UpdatedAt: noon, Archived: &forkcore.Archived{At: noon, Host: "here", Dir: "/data/archive", Bytes: 2048}}},
			{Session: forkcore.Session{ID: "ses_03dddddddddddddddd", Title: "Far", UpdatedAt: noon, Archived: &forkcore.Archived{At: noon, Host: "there", Dir: "/d", Bytes: 2048}}},
		},
	}}
	s := serve(t, newFake(), func(o *Options) { o.Storage = st })
	cookie := s.signIn(t)
	root := page(t, s, "/storage", 200, "Cookie", cookie)
	said := text(root)
	for _, want := range []string{
		"1.0 GiB 9 %", "Limit (maxmemory) 11.0 GiB", "Left at this rate 10 days", "grows by 1.0 GiB a day, measured over the last 24 hours",
		"/data/archive on here, by themselves when nobody changed or opened them for 30 days, and the oldest first, while memory is above 80 %",
		"2 sessions in Redis, 2 archived",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the page does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "running out") {
		t.Error("the page warns without need")
	}
	rows := table(root)
	for i, want := range []string{"Large|5.0 MiB|Archive now", "Busy|not measured yet|", "Away archived|2.0 KiB on disk|Open again", "Far archived in there:/d/ses_03dddddddddddddddd.fyz|2.0 KiB on disk|Open again"} {
		if got := rows[i][0] + "|" + rows[i][1] + "|" + rows[i][3]; got != want {
			t.Errorf("row %d: %q, want %q", i, got, want)
		}
	}

	res, _ := s.ask(t, "POST", "/sessions/"+sessionID+"/archive", "", "Cookie", cookie, "Origin", s.URL)
	if res.StatusCode != 303 || res.Header.Get("Location") != "/storage" || !slices.Equal(st.archived, []string{sessionID}) {
		t.Errorf("archive: %d %v, %v", res.StatusCode, res.Header, st.archived)
	}
	st.err = &forkcore.ConflictError{Message: "Something of this session is at work or waits.", NextStep: "Archive it again when it is idle."}
	if res, body := s.ask(t, "POST", "/sessions/"+sessionID+"/archive", "", "Cookie", cookie, "Origin", s.URL, "HX-Request", "true"); res.StatusCode != 409 || !strings.Contains(body, "at work or waits") {
		t.Errorf("archive a busy one: %d %s", res.StatusCode, body)
	}
	st.err, st.known.Archive = nil, forkcore.ArchivePolicy{}
	if res, body := s.ask(t, "POST", "/sessions/"+sessionID+"/archive", "", "Cookie", cookie, "Origin", s.URL, "HX-Request", "true"); res.StatusCode != 409 || !strings.Contains(body, "no archive") {
		t.Errorf("archive without one: %d %s", res.StatusCode, body)
	}
	if said := text(page(t, serve(t, newFake()), "/storage", 200, "Authorization", bearer)); !strings.Contains(said, "tells nothing of its memory") {
		t.Errorf("without a storage: %s", said)
	}
}

// A page that stays open keeps its session in Redis.
func TestOpenPageIsNoted(t *testing.T) {
	st := &stores{opened: make(chan string, 1)}
	s := serve(t, newFake(), func(o *Options) { o.Storage = st })
	if !s.web.aliveFor(sessionID)(t.Context()) || <-st.opened != sessionID {
		t.Error("the page of a session")
	}
	if !s.web.aliveFor("")(t.Context()) || len(st.opened) > 0 {
		t.Error("the list opens no session")
	}
}

func TestMemoryWarning(t *testing.T) {
	for name, c := range map[string]struct {
		memory *forkcore.Memory
		err    error
		want   string
	}{
		"nothing known": {nil, nil, ""},
		"away":          {memoryOf(90, 100), errors.New("away"), ""},
		"enough":        {memoryOf(20, 100), nil, ""},
		"two days":      {memoryOf(40, 100), nil, "40 % of 100 bytes in use, time left: 36 hours."},
		"almost full":   {&forkcore.Memory{MemorySample: forkcore.MemorySample{At: noon, Used: 86}, Limit: 100}, nil, "86 % of 100 bytes in use, time left: not known yet."},
		"full":          {memoryOf(101, 100), nil, "101 % of 100 bytes in use, time left: none: it is full."},
	} {
		st := &stores{known: forkcore.Storage{Memory: c.memory}, err: c.err}
		s := serve(t, newFake(), func(o *Options) { o.Storage = st })
		cookie := s.signIn(t)
		for range 3 {
			said := text(page(t, s, "/", 200, "Cookie", cookie))
			if warned := strings.Contains(said, "Redis is running out of memory"); warned != (c.want != "") || !strings.Contains(said, c.want) {
				t.Errorf("%s: %s", name, said)
			}
		}
		if c.err == nil && st.asked != 1 {
			t.Errorf("%s: three pages asked %d times", name, st.asked)
		}
		if said := text(page(t, s, "/login", 200)); strings.Contains(said, "running out") {
			t.Errorf("%s: strangers are told: %s", name, said)
		}
	}
}

func TestMemoryMetrics(t *testing.T) {
	s := serve(t, newFake(), func(o *Options) { o.Storage = &stores{known: forkcore.Storage{Memory: memoryOf(40, 100)}} })
	_, body := s.ask(t, "GET", "/metrics", "")
	for _, want := range []string{"forkyard_redis_memory_used_bytes 40\n", "forkyard_redis_memory_limit_bytes 100\n", "forkyard_redis_memory_seconds_left 129600\n"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// A session that failed long ago needs nobody once it is archived.
func TestArchivedInTheList(t *testing.T) {
	f := newFake()
	f.sessions = []forkcore.Session{{
		ID: sessionID, Title: "Old", LastState: forkcore.Failed, LastRunID: mainID, CreatedAt: noon, UpdatedAt: noon, Archived: &forkcore.Archived{At: noon, Host: "h", Dir: "/d"},
	}}
	s := serve(t, f)
	said := text(page(t, s, "/", 200, "Cookie", s.signIn(t)))
	if !strings.Contains(said, "Old failed archived") || strings.Contains(said, "Needs you") {
		t.Errorf("the list: %s", said)
	}
}

func TestSizeAndDays(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 999: "999 bytes", 1000: "1.0 KiB", 1536: "1.5 KiB", 200 << 10: "200 KiB", 1000 << 20: "1.0 GiB", 3 << 40: "3.0 TiB", 5000 << 40: "5000 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "none: it is full", time.Minute: "less than an hour", time.Hour: "1 hour", 47 * time.Hour: "47 hours", 60 * time.Hour: "2.5 days", 240 * time.Hour: "10 days", 365 * 24 * time.Hour: "more than a year"} {
		if got := daysText(d); got != want {
			t.Errorf("daysText(%v) = %q, want %q", d, got, want)
		}
	}
}
