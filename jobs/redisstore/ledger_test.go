package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"forkyard/jobs/redisstore"
)

// TestClosedRowTime: the script writes the time of the database as a date by itself.
func TestClosedRowTime(t *testing.T) {
	server := miniredis.RunT(t)
	s := newScene(t, connect(t, "redis://"+server.Addr()), redisstore.Options{})
	for _, want := range []string{
		"2000-02-29T00:00:00Z", "2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00.001Z", "2027-02-28T12:34:56.7Z",
		"2027-03-01T01:02:03.045Z", "2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z", "2099-10-31T09:08:07.006Z", "2100-03-01T00:00:00Z",
	} {
		at, err := time.Parse(time.RFC3339Nano, want)
		s.must(err)
		server.SetTime(at)
		h := s.accept(s.session(), "token").Holder
		s.begin(h, 1)
		s.end(h)
		rows, err := s.store.Requests(t.Context(), h.RunID)
		s.must(err)
		if ended := rows[0].EndedAt; ended == nil || !ended.Equal(at) {
			t.Errorf("ended at %v, want %v", ended, at)
		}
	}
}
