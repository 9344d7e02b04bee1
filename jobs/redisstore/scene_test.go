package redisstore_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"forkyard/forkcore"
	"forkyard/jobs/engine"
	"forkyard/jobs/redisstore"
)

// scene drives a store through the life of sessions; the contract itself is
// enginetest's, here it is about what only this store does.
type scene struct {
	*testing.T
	client *redis.Client
	store  *redisstore.Store
	count  uint64
}

func newScene(t *testing.T, client *redis.Client, o redisstore.Options) *scene {
	return &scene{T: t, client: client, store: newStore(client, o)}
}

func (s *scene) entropy() (e forkcore.Entropy) {
	s.count++
	binary.BigEndian.PutUint64(e[2:], s.count)
	return e
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) session() string {
	s.Helper()
	id := forkcore.NewSessionID(s.entropy())
	_, _, err := s.store.CreateSession(s.Context(), forkcore.Session{ID: id, Title: "t"}, "")
	s.must(err)
	return id
}

// accept starts a main turn with an empty inbox.
func (s *scene) accept(session, token string) engine.Lease {
	s.Helper()
	run, err := forkcore.NewRunID(session, s.entropy())
	s.must(err)
	a, err := s.store.Accept(s.Context(), engine.Accept{
		Run:    forkcore.Run{ID: run, SessionID: session, AgentID: session, Kind: forkcore.KindMain},
		Holder: engine.Holder{Executor: "web", Token: token}, ItemID: "item-" + run, Text: "hello",
	})
	s.must(err)
	if !a.Started {
		s.Fatal("accept did not start a turn")
	}
	return a.Lease
}

func (s *scene) message(session, run, text string) forkcore.Entry {
	s.Helper()
	s.must(s.store.PutBlobs(s.Context(), session, []byte(text)))
	return forkcore.Entry{Kind: forkcore.EntryMessage, RunID: run, Blob: forkcore.DigestOf([]byte(text))}
}

func (s *scene) dispatch(session string, n int, gate forkcore.GateState) (engine.CreateDispatch, []engine.Wake) {
	s.Helper()
	id, err := forkcore.NewDispatchID(session, s.entropy())
	s.must(err)
	d := engine.CreateDispatch{Dispatch: forkcore.Dispatch{ID: id, SessionID: session, Gate: gate, GateMode: forkcore.GateAuto}}
	for i := range n {
		run, err := forkcore.ChildRunID(id, i)
		s.must(err)
		d.Runs = append(d.Runs, forkcore.Run{
			ID: run, SessionID: session, AgentID: run, Kind: forkcore.KindFork, DispatchID: id, Index: i, Background: true,
		})
		d.Logs = append(d.Logs, []forkcore.Entry{s.message(session, run, "directive")})
	}
	wakes, _, err := s.store.CreateDispatch(s.Context(), nil, d)
	s.must(err)
	return d, wakes
}

func (s *scene) lease(runID string, wake int64, token string) engine.Lease {
	s.Helper()
	l, err := s.store.TakeLease(s.Context(), engine.Wake{RunID: runID, N: wake}, "worker", token, false)
	s.must(err)
	return l
}

func (s *scene) begin(h engine.Holder, n int64) forkcore.RequestRow {
	s.Helper()
	row := forkcore.RequestRow{RunID: h.RunID, SessionID: h.SessionID, N: n, Status: forkcore.RequestOpen, StartedAt: time.Unix(n, 0).UTC()}
	s.must(s.store.BeginRequest(s.Context(), h, row, 100, time.Minute))
	return row
}

func (s *scene) firstEvent(h engine.Holder, row forkcore.RequestRow) []engine.Wake {
	s.Helper()
	wakes, err := s.store.FirstEvent(s.Context(), h, row, nil)
	s.must(err)
	return wakes
}

func (s *scene) end(h engine.Holder) {
	s.Helper()
	_, err := s.store.EndRun(s.Context(), h, engine.EndRun{State: forkcore.Failed})
	s.must(err)
}
